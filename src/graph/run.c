/* run.c - from a recorded graph to runs on a device: plan, prepare, run, read, write. */
#include "graph/backend.h"
#include "tensor/dtype.h"

#include <math.h>

/* a GPU: H200 146, A100 201, 4090 165; a core of a CPU: 35 GFLOP/s and 6 to 10 GB/s */
#define FLOP_PER_BYTE_GPU 150.0
#define FLOP_PER_BYTE_CPU 5.0
/* of a bus: 690 TFLOP/s of a forward pass and 44 GB/s (H200; 48 to 50 when nothing else is in the
 * way); others have about this ratio */
#define FLOP_PER_MOVE 15500.0

uint64_t af_graph_bytes(const af_graph *g)
{
    uint64_t sum = g->work_bytes;
    for (int r = 0; r < AF_ROLE_COUNT; r++)
        sum += g->role_bytes[r];
    return sum;
}

/* A graph that is never differentiated is not trained: its dropouts and noises pass everything. */
static void silence_dropout(af_graph *g)
{
    for (int i = 0; i < g->n_nodes && !g->differentiated; i++) {
        af_node *n = g->nodes[i];
        if (n->op == AF_OP_DROPOUT)
            n->attr.dropout.p = 0;
        else if (n->op == AF_OP_NOISE)
            n->attr.noise.alpha = 0;
    }
}

static af_status plan(af_graph *g, af_device *d, af_error *err)
{
    af_status st = AF_OK;
    if (g->planned)
        return g->device == d ? AF_OK
                              : af_fail(err, AF_EUSAGE, "the graph was planned for another device");
    AF_TRY(af_graph_status(g, err));
    silence_dropout(g);
    af_graph_fuse_accumulate(g);
    /* the host would wait for each sum */
    g->sums_early = g->one_pass && g->optimized && g->carry.levels == 0 && !g->carry.line &&
                    !d->ops->host && g->ranks > 1 && g->shard.split < AF_SHARD_GRADIENTS;
    g->one_pass = g->one_pass && g->optimized && d->ops->one_pass;
    af_graph_write_first(g);
    af_graph_sum_ranks(g);
    af_graph_drop_dead(g);
    if (d->ops->rewrite) {
        d->ops->rewrite(g);
        af_graph_drop_dead(g);
    }
    g->flop_per_byte = d->ops->host ? FLOP_PER_BYTE_CPU : FLOP_PER_BYTE_GPU;
    g->flop_per_move = d->ops->host_free ? FLOP_PER_MOVE : 0;
    /* ranks run the same nodes, whatever their hosts have */
    g->move_most = d->ops->host_free && g->shard.ranks <= 1
                       ? d->ops->host_free(d) / (uint64_t)AF_MAX(g->ranks, 1)
                       : UINT64_MAX;
    af_graph_apply_recompute(g);
    AF_TRY(af_graph_status(g, err));
    af_graph_drop_dead(g); /* forward nodes that only served a dropped value */
    af_graph_gather_weights(g);
    AF_TRY(af_graph_status(g, err));
    AF_TRY(d->ops->layout(d, g, err));
    AF_TRY(af_graph_layout(g, err));
    g->device = d;
    g->planned = true;
done:
    return st;
}

af_status af_graph_plan(af_graph *g, af_device *d, af_plan_info *info, af_error *err)
{
    AF_NEED(err, g, d);
    const af_status st = plan(g, d, err);
    const uint64_t shared = st == AF_OK && g->grads_in_arena ? af_tensor_extent(g->grads_flat) : 0;
    if (st == AF_OK && info)
        *info = (af_plan_info){
            .inputs = g->role_bytes[AF_ROLE_INPUT],
            .weights = g->role_bytes[AF_ROLE_WEIGHT],
            .params = g->role_bytes[AF_ROLE_PARAM],
            .grads = g->role_bytes[AF_ROLE_GRADIENT] + shared,
            .state = g->role_bytes[AF_ROLE_STATE],
            .activations = g->role_bytes[AF_ROLE_ACTIVATION] - shared,
            .workspace = g->work_bytes,
            .total = af_graph_bytes(g),
            .bound = g->bound_bytes,
            .returned = g->returned_bytes,
            .host = g->host_bytes,
            .flops = g->flops,
            .effort = g->effort,
            .nodes = g->n_nodes,
            .tensors = g->n_tensors,
        };
    return st;
}

af_status af_graph_prepare(af_graph *g, af_device *d, af_error *err)
{
    AF_NEED(err, g, d);
    af_status st = plan(g, d, err);
    if (st != AF_OK)
        return st;
    if (g->prepared)
        return af_fail(err, AF_EUSAGE, "the graph is prepared already");
    st = d->ops->prepare(d, g, err);
    g->prepared = st == AF_OK;
    return st;
}

static af_status write_scalars(af_graph *g, int what, af_error *err)
{
    af_status st = AF_OK;
    if (g->clock && what & AF_RUN_FORWARD) {
        const uint32_t c[4] = {
            (uint32_t)g->seed, (uint32_t)(g->seed >> 32), (uint32_t)g->clock_count,
            (uint32_t)(g->clock_count >> 32) | (g->evaluating ? 0x80000000u : 0)};
        AF_TRY(g->device->ops->write(g->device, g, g->clock, c, err));
        g->clock_count += !g->evaluating;
    }
    if (g->hyper && what & AF_RUN_UPDATE) {
        const double t = (double)g->step;
        float h[AF_HYPER_COUNT] = {
            [AF_HYPER_LR] = (float)g->learning_rate,
            [AF_HYPER_CORRECTION1] = (float)(1.0 - pow(g->beta1, t)),
            [AF_HYPER_CORRECTION2_SQRT] = (float)sqrt(1.0 - pow(g->beta2, t)),
            [AF_HYPER_STEP] = (float)t,
        };
        if (g->step_numbers)
            g->step_numbers(g, t, h);
        g->renews = g->optimizer.kind == AF_OPTIMIZER_GALORE && h[AF_HYPER_B] > 0;
        AF_TRY(g->device->ops->write(g->device, g, g->hyper, h, err));
    }
done:
    return st;
}

af_status af_graph_begin_run(af_graph *g, int what, af_error *err)
{
    if (!g->prepared)
        return af_fail(err, AF_EUSAGE, "the graph is not prepared");
    if (what & ~(AF_RUN_STEP | AF_RUN_KEEP))
        return af_fail(err, AF_EUSAGE, "unknown run %d: use a sum of AF_RUN_* flags, at most %d",
                       what, AF_RUN_STEP | AF_RUN_KEEP);
    if (af_graph_failed(g)) /* a call was recorded after it was prepared */
        return af_graph_status(g, err);
    if (what & AF_RUN_BACKWARD && !g->differentiated)
        return af_fail(err, AF_EUSAGE, "the graph has no backward pass to run");
    if (what & AF_RUN_UPDATE && !g->optimized)
        return af_fail(err, AF_EUSAGE, "the graph has no optimizer to run");
    return write_scalars(g, what, err);
}

af_status af_graph_run(af_graph *g, int what, af_error *err)
{
    AF_NEED(err, g);
    af_status st = af_graph_begin_run(g, what, err);
    if (st == AF_OK)
        st = g->device->ops->run(g->device, g, what, err);
    if (st == AF_OK && what & AF_RUN_UPDATE)
        g->step++;
    return st;
}

static af_status check_copy(const af_graph *g, const af_tensor *t, const char *verb, uint64_t bytes,
                            af_error *err)
{
    if (t->graph != g)
        return af_fail(err, AF_EUSAGE, "cannot %s tensor '%s': it belongs to another graph", verb,
                       t->name);
    if (!g->prepared)
        return af_fail(err, AF_EUSAGE, "cannot %s tensor '%s' before the graph is prepared", verb,
                       t->name);
    if (bytes != af_tensor_bytes(t))
        return af_fail(err, AF_EUSAGE, "cannot %s %" PRIu64 " bytes: tensor '%s' has %" PRIu64,
                       verb, bytes, t->name, af_tensor_bytes(t));
    if (!t->data && !(t->cut && af_tensor_extent(t) == 0)) /* a rank may have none of it */
        return af_fail(err, AF_EUSAGE, "tensor '%s' has no memory: nothing in the graph uses it",
                       t->name);
    return AF_OK;
}

/* Numbers that ops index with, before an op does. */
static af_status check_values(const af_tensor *t, const int32_t *v, af_error *err)
{
    int64_t low = 0;
    const int64_t high = t->limit - (t->values != AF_VALUE_BOUNDS), n = af_count(t);
    for (int64_t i = 0; i < n; i++) {
        if (v[i] == -100 && t->values == AF_VALUE_LABELS)
            continue;
        if (v[i] < low || v[i] > high)
            return af_fail(err, AF_EUSAGE,
                           "element %" PRId64 " of tensor '%s' is %d; it must be %" PRId64
                           " to %" PRId64,
                           i, t->name, v[i], low, high);
        if (t->values == AF_VALUE_BOUNDS)
            low = v[i];
    }
    return AF_OK;
}

/* So many bytes of a tensor's memory, as a tensor. */
static af_tensor bytes_at(const af_tensor *t, uint64_t at, uint64_t bytes)
{
    af_tensor part = *t;
    part.dtype = AF_DTYPE_U8;
    part.ndim = 1;
    part.dim[0] = part.ld = (int64_t)bytes;
    part.data = (uint8_t *)t->data + at;
    return part;
}

af_status af_tensor_write_part(af_graph *g, af_tensor *t, uint64_t at, const void *data,
                               uint64_t bytes, af_error *err)
{
    uint64_t from, to;
    af_tensor_piece(t, &from, &to);
    const uint64_t a = AF_MAX(from, at), b = AF_MIN(to, at + bytes);
    if (a >= b)
        return AF_OK;
    af_tensor part = bytes_at(t, a - from, b - a);
    return g->device->ops->write(g->device, g, &part, (const uint8_t *)data + (a - at), err);
}

af_status af_tensor_write(af_graph *g, af_tensor *t, const void *data, uint64_t bytes,
                          af_error *err)
{
    AF_NEED(err, g, t, data);
    af_status st = check_copy(g, t, "write", bytes, err);
    if (st == AF_OK && t->values != AF_VALUE_ANY)
        st = check_values(t, data, err);
    if (st != AF_OK)
        return st;
    if (t->bound)
        return af_fail(err, AF_EUSAGE, "tensor '%s' is bound to memory of the caller", t->name);
    if (t->cut)
        return af_tensor_write_part(g, t, 0, data, bytes, err);
    return g->device->ops->write(g->device, g, t, data, err);
}

static af_status check_read(const af_graph *g, const af_tensor *t, uint64_t bytes, af_error *err)
{
    const af_status st = check_copy(g, t, "read", bytes, err);
    return st == AF_OK && t->cut ? af_fail(err, AF_EUSAGE, "tensor '%s' is split over %d ranks",
                                           t->name, g->shard.ranks)
                                 : st;
}

af_status af_tensor_read(af_graph *g, const af_tensor *t, void *data, uint64_t bytes, af_error *err)
{
    AF_NEED(err, g, t, data);
    const af_status st = check_read(g, t, bytes, err);
    return st == AF_OK ? g->device->ops->read(g->device, g, t, data, err) : st;
}

af_status af_tensor_read_piece(af_graph *g, const af_tensor *t, void *data, af_error *err)
{
    const af_status st = check_copy(g, t, "read", af_tensor_bytes(t), err);
    if (st != AF_OK || af_tensor_extent(t) == 0)
        return st;
    const af_tensor part = bytes_at(t, 0, af_tensor_extent(t));
    return g->device->ops->read(g->device, g, &part, data, err);
}

af_status af_tensor_read_live(af_graph *g, const af_tensor *t, void *data, af_error *err)
{
    af_status st = check_copy(g, t, "read", af_tensor_bytes(t), err);
    if (st != AF_OK || !t->live)
        return st == AF_OK ? g->device->ops->read(g->device, g, t, data, err) : st;
    af_tensor part = *t;
    part.dim[0] = *t->live;
    return part.dim[0] ? g->device->ops->read(g->device, g, &part, data, err) : AF_OK;
}

af_status af_tensor_read_rows(af_graph *g, const af_tensor *t, int64_t from, int64_t count,
                              void *data, af_error *err)
{
    const af_status st = check_copy(g, t, "read", af_tensor_bytes(t), err);
    if (st != AF_OK || count == 0)
        return st;
    assert(t->ndim == 2 && from >= 0 && count > 0 && from + count <= t->dim[0]);
    af_tensor part = *t;
    part.dim[0] = count;
    part.data = (uint8_t *)t->data + from * t->ld * (int64_t)af_dtype_get(t->dtype)->bytes;
    return g->device->ops->read(g->device, g, &part, data, err);
}

af_status af_tensor_read_later(af_graph *g, const af_tensor *t, void *data, uint64_t bytes,
                               af_error *err)
{
    AF_NEED(err, g, t, data);
    const af_status st = check_read(g, t, bytes, err);
    if (st != AF_OK)
        return st;
    const af_backend_ops *ops = g->device->ops;
    return (ops->read_later ? ops->read_later : ops->read)(g->device, g, t, data, err);
}

af_status af_graph_grad_norm(af_graph *g, double *norm, bool *finite, af_error *err)
{
    AF_NEED(err, g);
    float s[4];
    if (!g->stats)
        return af_fail(err, AF_EUSAGE, "the graph has no optimizer, so there is no gradient norm");
    const af_status st = af_tensor_read(g, g->stats, s, sizeof s, err);
    if (st == AF_OK && norm)
        *norm = s[0];
    if (st == AF_OK && finite)
        *finite = s[2] == 1.0f;
    return st;
}

const char *af_recompute_name(af_recompute mode)
{
    static const char *const name[] = {"none", "cheap", "wide", "most", "host", "block", "offload"};
    return (size_t)mode < AF_LEN(name) ? name[mode] : "?";
}

const char *af_device_kind(const af_device *d) { return d ? d->ops->kind : ""; }
const char *af_device_text(const af_device *d) { return d ? d->text : ""; }
const char *af_device_no_gpu(const af_device *d) { return d ? d->no_gpu : ""; }
uint64_t af_device_memory_free(const af_device *d) { return d ? d->ops->memory_free(d) : 0; }
af_counters af_device_counters(const af_device *d) { return d ? d->counters : (af_counters){0}; }

void af_device_close(af_device *d)
{
    if (d)
        d->ops->close(d);
}
