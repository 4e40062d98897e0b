/* graph.c - recording: leaves, nodes, handles. A wrong argument is latched once and everything
 * after it is inert. */
#include "graph/backend.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdarg.h>

#define AF_DIM_MAX (INT64_C(1) << 40)

af_status af_graph_new(af_graph **out, af_error *err)
{
    AF_NEED(err, out);
    af_graph *g = af_calloc(1, sizeof *g);
    if (!g)
        return af_fail_nomem(err, "a graph", sizeof *g);
    g->block = -1;
    g->step = 1;
    g->beta1 = 0.9;
    g->beta2 = 0.999;
    *out = g;
    return AF_OK;
}

void af_graph_free(af_graph *g)
{
    if (!g)
        return;
    if (g->prepared)
        g->device->ops->release(g->device, g);
    free(g->tensors);
    free(g->nodes);
    free(g->taken);
    af_arena_clear(&g->mem);
    free(g);
}

af_status af_graph_status(const af_graph *g, af_error *err)
{
    AF_NEED(err, g);
    return g->err.code == AF_OK ? AF_OK : af_fail(err, g->err.code, "%s", g->err.msg);
}

/* The handle of a failed recording: a real tensor, so that callers need not test for NULL. */
af_tensor *af_graph_dummy(af_graph *g)
{
    if (!g)
        return NULL;
    g->none = (af_tensor){.name = "", .dim = {1}, .ndim = 1, .ld = 1};
    return &g->none;
}

af_tensor *af_graph_bad(af_graph *g, const char *fmt, ...)
{
    if (!af_graph_failed(g)) {
        char msg[512];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(msg, sizeof msg, fmt, ap);
        va_end(ap);
        af_fail(&g->err, AF_EUSAGE, "%s", msg);
    }
    return af_graph_dummy(g);
}

bool af_graph_refuses(af_graph *g, const char *op, af_tensor *const *in, int n)
{
    for (int i = 0; i < n && !af_graph_failed(g); i++) {
        if (!in[i])
            af_graph_bad(g, "%s: input %d of %d is NULL", op, i, n);
        else if (in[i]->graph != g)
            af_graph_bad(g, "%s: input %d of %d, '%s', belongs to another graph", op, i, n,
                         in[i]->name);
    }
    return af_graph_failed(g);
}

bool af_graph_refuses_opts(af_graph *g, const char *op, const void *o)
{
    if (!o)
        af_graph_bad(g, "%s: the options are NULL", op);
    return af_graph_failed(g);
}

void af_expect(af_tensor *t, af_value_rule values, int64_t limit)
{
    t = t->base ? t->base : t;
    if (t->role != AF_ROLE_INPUT)
        return; /* made by an op */
    t->limit = t->values == AF_VALUE_ANY ? limit : AF_MIN(t->limit, limit);
    t->values = values;
}

static af_tensor *no_memory(af_graph *g)
{
    if (g->err.code == AF_OK)
        af_fail_nomem(&g->err, "a graph", g->mem.bytes);
    return af_graph_dummy(g);
}

/* Space for one more pointer in a growing list; false when there is no memory. */
static bool grow(void ***list, int n, int *cap)
{
    if (n < *cap)
        return true;
    const int more = *cap ? *cap * 2 : 64;
    void **p = af_realloc(*list, (uint64_t)more, sizeof *p);
    if (!p)
        return false;
    *list = p;
    *cap = more;
    return true;
}

static af_tensor *new_tensor(af_graph *g, af_role role, const char *name, af_dtype t, int ndim,
                             const int64_t *dim)
{
    uint64_t count = 1, bytes;
    if (ndim < 1 || ndim > AF_NDIM_MAX)
        return af_graph_bad(g, "tensor '%s' has %d dimensions, not 1 to %d", name, ndim,
                            AF_NDIM_MAX);
    if (!af_dtype_known(t))
        return af_graph_bad(g, "tensor '%s': unknown dtype %d", name, (int)t);
    if (!dim)
        return af_graph_bad(g, "tensor '%s': dim is NULL, but it has %d dimensions", name, ndim);
    for (int i = 0; i < ndim; i++)
        if (dim[i] < 0 || dim[i] > AF_DIM_MAX)
            return af_graph_bad(g, "tensor '%s': dimension %d is %" PRId64 "; it must be 0 to 2^40",
                                name, i, dim[i]);
        else if (!af_mul_ok(count, (uint64_t)dim[i], &count))
            return af_graph_bad(g, "tensor '%s' has more than 2^63 elements", name);
    if (count > (uint64_t)INT64_MAX / 16 || !af_dtype_bytes(t, count, &bytes))
        return af_graph_bad(g, "tensor '%s': %" PRIu64 " elements do not fill whole blocks of %s",
                            name, count, af_dtype_name(t));
    af_tensor *x = af_arena_take(&g->mem, sizeof *x);
    const char *copy = name[0] ? af_arena_strdup(&g->mem, name) : "";
    if (!x || !copy || !grow((void ***)&g->tensors, g->n_tensors, &g->cap_tensors))
        return no_memory(g);
    *x = (af_tensor){.name = copy,
                     .graph = g,
                     .ndim = ndim,
                     .dtype = t,
                     .role = role,
                     .id = g->n_tensors,
                     .lr_factor = 1,
                     .decay = true,
                     .first = -1,
                     .last = -1};
    memcpy(x->dim, dim, (size_t)ndim * sizeof dim[0]);
    x->ld = dim[ndim - 1];
    g->tensors[g->n_tensors++] = x;
    return x;
}

af_tensor *af_leaf(af_graph *g, af_role role, const char *name, af_dtype t, int ndim,
                   const int64_t *dim)
{
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    if (g->planned)
        return af_graph_bad(g, "tensor '%s' is recorded after the plan was made", name ? name : "");
    af_tensor *x = new_tensor(g, role, name ? name : "", t, ndim, dim);
    if (af_graph_failed(g))
        return x;
    if (g->rows && dim[0] == g->rows && role == AF_ROLE_INPUT)
        x->live = &g->live_rows;
    return x;
}

af_tensor *af_graph_input(af_graph *g, const char *name, af_dtype t, int ndim, const int64_t *dim)
{
    return af_leaf(g, AF_ROLE_INPUT, name, t, ndim, dim);
}

af_tensor *af_graph_weight(af_graph *g, const char *name, af_dtype t, int ndim, const int64_t *dim)
{
    return af_leaf(g, AF_ROLE_WEIGHT, name, t, ndim, dim);
}

af_tensor *af_graph_param(af_graph *g, const char *name, af_dtype t, int ndim, const int64_t *dim)
{
    if (t != AF_DTYPE_F32 && t != AF_DTYPE_F64 && t != AF_DTYPE_BF16)
        return af_graph_bad(g, "parameter '%s' is %s; parameters are f32, f64 or bf16",
                            name ? name : "", af_dtype_name(t));
    af_tensor *x = af_leaf(g, AF_ROLE_PARAM, name, t, ndim, dim);
    if (!af_graph_failed(g))
        x->needs_grad = true;
    return x;
}

af_tensor *af_graph_state(af_graph *g, const char *name, af_dtype t, int ndim, const int64_t *dim)
{
    return af_leaf(g, AF_ROLE_STATE, name, t, ndim, dim);
}

af_tensor *af_graph_constant(af_graph *g, af_dtype t, int ndim, const int64_t *dim, double value)
{
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    af_node *n = af_node_new(g, AF_OP_FILL, NULL, 0);
    n->attr.fill.value = value;
    return af_node_output(g, n, t, ndim, dim);
}

af_node *af_node_new(af_graph *g, af_op op, af_tensor *const *in, int n_in)
{
    assert(n_in <= AF_NODE_IN_MAX);
    if (g->planned) {
        af_graph_bad(g, "op '%s' is recorded after the plan was made", af_ops[op]->name);
        g->spare = (af_node){0};
        return &g->spare;
    }
    af_node *n = af_arena_take(&g->mem, sizeof *n);
    if (!n || !grow((void ***)&g->nodes, g->n_nodes, &g->cap_nodes)) {
        no_memory(g);
        g->spare = (af_node){0};
        return &g->spare;
    }
    *n = (af_node){.op = op, .n_in = n_in, .phase = g->phase, .block = g->block, .at = g->n_nodes};
    for (int i = 0; i < n_in; i++) {
        assert(in[i]);
        n->in[i] = in[i];
    }
    g->nodes[g->n_nodes++] = n;
    return n;
}

af_tensor *af_node_output(af_graph *g, af_node *n, af_dtype t, int ndim, const int64_t *dim)
{
    assert(n->n_out < AF_NODE_OUT_MAX);
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    af_tensor *x = new_tensor(g, AF_ROLE_ACTIVATION, "", t, ndim, dim);
    if (af_graph_failed(g))
        return x;
    x->producer = n;
    for (int i = 0; i < n->n_in; i++) {
        x->needs_grad |= n->in[i]->needs_grad && af_ops[n->op]->grad;
        if (n->in[i]->live && n->in[i]->dim[0] == dim[0])
            x->live = n->in[i]->live;
    }
    n->out[n->n_out++] = x;
    return x;
}

af_tensor *af_node_output_like(af_graph *g, af_node *n, const af_tensor *x)
{
    return af_node_output(g, n, x->dtype, x->ndim, x->dim);
}

af_tensor *af_node_view(af_graph *g, af_node *n, int ndim, const int64_t *dim)
{
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    af_tensor *of = n->in[0], *x = af_node_output(g, n, of->dtype, ndim, dim);
    if (!af_graph_failed(g)) {
        x->base = of->base ? of->base : of;
        x->base_offset = of->base_offset;
    }
    return x;
}

void af_graph_output(af_graph *g, af_tensor *t)
{
    if (af_graph_refuses(g, "output", &t, 1))
        return;
    t->keep = true;
    if (t->base)
        t->base->keep = true;
}

void af_graph_set_block(af_graph *g, int index)
{
    if (g)
        g->block = index;
}

void af_graph_set_recompute(af_graph *g, af_recompute mode, int blocks)
{
    if ((unsigned)mode > AF_RECOMPUTE_OFFLOAD)
        af_graph_bad(g, "recompute mode %d is not in 0 to %d", (int)mode, AF_RECOMPUTE_OFFLOAD);
    if (!g)
        return;
    g->recompute = mode;
    g->recompute_blocks = blocks;
}

void af_graph_set_recompute_rest(af_graph *g, af_recompute mode)
{
    if ((unsigned)mode > AF_RECOMPUTE_OFFLOAD)
        af_graph_bad(g, "recompute mode %d is not in 0 to %d", (int)mode, AF_RECOMPUTE_OFFLOAD);
    if (g)
        g->recompute_rest = mode;
}

void af_graph_set_rebuilt(af_graph *g, int first)
{
    if (first <= 0)
        af_graph_bad(g, "block %d cannot be the first of those that are rebuilt", first);
    if (g)
        g->rebuilt_from = first;
}

void af_graph_set_one_pass(af_graph *g)
{
    if (g)
        g->one_pass = true;
}

void af_graph_set_rows(af_graph *g, int64_t rows)
{
    if (rows < 0)
        af_graph_bad(g, "the token dimension cannot have %" PRId64 " rows", rows);
    else if (g)
        g->rows = g->live_rows = rows;
}

void af_graph_set_live_rows(af_graph *g, int64_t rows)
{
    if (!g)
        return;
    if (rows < 0 || rows > g->rows)
        af_graph_bad(g, "%" PRId64 " live rows are not in 0 to %" PRId64, rows, g->rows);
    else
        g->live_rows = rows;
}

af_tensor *af_graph_picks(af_graph *g, const char *name, int64_t rows)
{
    af_tensor *x = af_leaf(g, AF_ROLE_INPUT, name, AF_DTYPE_I32, 1, &rows);
    if (!af_graph_failed(g)) {
        x->live = &g->live_picks;
        g->picks = g->live_picks = rows;
    }
    return x;
}

void af_graph_set_one_token(af_graph *g, bool on, int64_t least)
{
    g->one_token = on;
    g->least_rows = least;
}

void af_graph_set_round_activations(af_graph *g, bool on) { g->round_activations = on; }

void af_graph_set_live_picks(af_graph *g, int64_t rows)
{
    if (rows < 0 || rows > g->picks)
        af_graph_bad(g, "%" PRId64 " picked rows are not in 0 to %" PRId64, rows, g->picks);
    else
        g->live_picks = rows;
}

void af_graph_set_learning_rate(af_graph *g, double lr)
{
    if (g)
        g->learning_rate = lr;
}

void af_graph_set_step(af_graph *g, int64_t step)
{
    if (g)
        g->step = step;
}

void af_graph_set_seed(af_graph *g, uint64_t seed)
{
    if (!g)
        return;
    g->seed = seed;
    g->clock_count = 0;
}

void af_graph_set_training(af_graph *g, bool on)
{
    if (g)
        g->evaluating = !on;
}

bool af_graph_is_training(const af_graph *g) { return !g->evaluating; }
uint64_t af_graph_clock(const af_graph *g) { return g ? g->clock_count : 0; }
void af_graph_set_clock(af_graph *g, uint64_t count)
{
    if (g)
        g->clock_count = count;
}

void af_tensor_set_group(af_tensor *param, double lr_factor, bool decay)
{
    if (!param || !param->graph)
        return; /* the handle of a failed recording */
    if (param->role != AF_ROLE_PARAM)
        af_graph_bad(param->graph, "set_group: tensor '%s' is not a parameter", param->name);
    else if (param->graph->optimized)
        af_graph_bad(param->graph, "set_group: '%s' comes after af_graph_optimizer", param->name);
    else if (!isfinite(lr_factor))
        af_graph_bad(param->graph, "set_group: the factor of '%s' is %g", param->name, lr_factor);
    param->lr_factor = lr_factor;
    param->decay = decay;
}

void af_tensor_bind(af_tensor *t, const void *data)
{
    if (!t || !t->graph)
        return; /* the handle of a failed recording */
    if (t->role != AF_ROLE_WEIGHT)
        af_graph_bad(t->graph, "tensor_bind: tensor '%s' is not a weight", t->name);
    else if (!data)
        af_graph_bad(t->graph, "tensor_bind: the values of tensor '%s' are NULL", t->name);
    else
        t->bound = data;
}

void af_tensor_bind_file(af_tensor *t, const void *data)
{
    af_tensor_bind(t, data);
    if (t && t->graph)
        t->mapped = t->bound == data;
}

af_dtype af_tensor_dtype(const af_tensor *t) { return t ? t->dtype : AF_DTYPE_F32; }
int af_tensor_ndim(const af_tensor *t) { return t ? t->ndim : 0; }
int64_t af_tensor_dim(const af_tensor *t, int axis)
{
    return axis >= 0 && axis < af_tensor_ndim(t) ? t->dim[axis] : 0;
}
int64_t af_tensor_count(const af_tensor *t) { return t ? af_count(t) : 0; }
const char *af_tensor_name(const af_tensor *t) { return t ? t->name : ""; }
af_tensor *af_tensor_gradient(const af_tensor *param) { return param ? param->grad : NULL; }

int64_t af_count(const af_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->dim[i];
    return n;
}

uint64_t af_tensor_bytes(const af_tensor *t)
{
    uint64_t bytes = 0;
    if (!t)
        return 0;
    (void)af_dtype_bytes(t->dtype, (uint64_t)af_count(t), &bytes); /* checked when it was made */
    return bytes;
}

uint64_t af_tensor_extent(const af_tensor *t)
{
    if (t->cut)
        return (uint64_t)(t->cut[t->graph->shard.rank + 1] - t->cut[t->graph->shard.rank]);
    if (t->ld == af_last(t))
        return af_tensor_bytes(t);
    return (uint64_t)af_rows(t) * (uint64_t)t->ld * (uint64_t)af_dtype_get(t->dtype)->bytes;
}

static bool share_memory(const af_tensor *a, const af_tensor *b)
{
    const af_tensor *of_a = a->base ? a->base : a, *of_b = b->base ? b->base : b;
    return of_a == of_b && a->base_offset < b->base_offset + af_tensor_extent(b) &&
           b->base_offset < a->base_offset + af_tensor_extent(a);
}

bool af_node_touches(const af_node *n, const af_tensor *t)
{
    bool found = false;
    for (int k = 0; k < n->n_in; k++)
        found |= share_memory(n->in[k], t);
    for (int k = 0; k < n->n_out; k++)
        found |= share_memory(n->out[k], t);
    return found;
}

bool af_same_shape(const af_tensor *a, const af_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0;
}

const char *af_shape_text(const af_tensor *t, char *buf, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < t->ndim && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%" PRId64, i ? " x " : "[", t->dim[i]);
    if (at < size)
        snprintf(buf + at, size - at, "] %s", af_dtype_name(t->dtype));
    return buf;
}

af_node *af_only_reader(const af_graph *g, const af_tensor *t)
{
    af_node *reader = NULL;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            if (g->nodes[i]->in[k] != t && g->nodes[i]->in[k]->base != t)
                continue;
            if (reader && reader != g->nodes[i])
                return NULL;
            reader = g->nodes[i];
        }
    return reader;
}
