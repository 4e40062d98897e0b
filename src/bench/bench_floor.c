/* bench_floor.c - the time of the GEMMs of a step alone, and of attention alone, through the same
 * ops. */
#include "bench/bench_floor.h"
#include "afinar/bench.h"
#include "base/rng.h"
#include "graph/graph_access.h"
#include "model/arch/arch.h"
#include "ops/attention/attention_both.h"
#include "tensor/dtype.h"

enum { HEAD_ROWS = 1280, LAYER_ROWS = 32768, PATTERN = 4099, SAMPLES = 512 };

/* Of runs of one part: before they count, and those that count. A GPU at its power limit lowers its
 * clock within a fraction of a second, and steps run at that clock: so must what they are compared
 * with. */
static const double warm_seconds = 0.2, most_seconds = 1;
static const double sample_seconds = 0.002; /* between two readings of the clock, at least */

typedef struct floor_graph {
    af_graph *g;
    af_tensor *done; /* one number: reading it waits for the device */
    af_dtype type;
    double seconds;      /* of runs, at least */
    const int32_t *ints; /* what inputs of integers hold */
} floor_graph;

/* y = x W^T, dx = dy W, and dW = dy^T x; `batch` of them at once, 0 = one without an axis. */
static void add_gemms(floor_graph *f, int64_t batch, int64_t rows, int64_t out, int64_t in,
                      bool full)
{
    af_graph *g = f->g;
    const int64_t dims[3][3] = {{batch, rows, in}, {batch, rows, out}, {batch, out, in}};
    const int n = batch ? 3 : 2, skip = batch ? 0 : 1;
    af_tensor *x = af_graph_input(g, "x", f->type, n, dims[0] + skip),
              *dy = af_graph_input(g, "dy", f->type, n, dims[1] + skip),
              *w = af_graph_weight(g, "w", f->type, n, dims[2] + skip);
    af_graph_output(g, af_matmul(g, x, w, AF_MATMUL_NT));
    af_graph_output(g, af_matmul(g, dy, w, AF_MATMUL_NN));
    if (full)
        af_graph_output(g, af_matmul(g, dy, x, AF_MATMUL_TN));
}

static const af_slot expert_slot[] = {AF_SLOT_EXPERTS_GATE_UP, AF_SLOT_EXPERTS_DOWN,
                                      AF_SLOT_EXPERTS_UP};

/* Routers are small, and experts counted by their slots. */
static bool counts(int group)
{
    return group != AF_GROUP_ROUTER && group != AF_GROUP_ATTN_ROUTER && !af_group_is_experts(group);
}

/* Columns a group of linears makes of its input; 0 = the layer has no such group. */
static int64_t group_out(const af_model_spec *s, int layer, int group, int64_t *in)
{
    const af_layer_spec *l = &s->layer[layer];
    int64_t out = 0;
    for (int p = 0; p < l->pieces[group] && counts(group); p++) {
        const af_module_spec *m = &s->module[l->module[group][p]];
        out += m->out;
        *in = m->in;
    }
    return out;
}

/* Whether two layers have the same GEMMs. */
static bool same_gemms(const af_model_spec *s, int a, int b)
{
    for (int g = 0; g < AF_GROUP_LAYER_COUNT; g++) {
        int64_t in_a = 0, in_b = 0;
        if (group_out(s, a, g, &in_a) != group_out(s, b, g, &in_b) || in_a != in_b)
            return false;
    }
    return (s->layer[a].tensor[expert_slot[1]] < 0) == (s->layer[b].tensor[expert_slot[1]] < 0);
}

static void add_layer(floor_graph *f, const af_bench_floor_opts *o, int64_t rows, int layer)
{
    const af_model_spec *s = o->spec;
    for (int g = 0; g < AF_GROUP_LAYER_COUNT; g++) {
        int64_t in = 0;
        const int64_t out = group_out(s, layer, g, &in);
        if (out)
            add_gemms(f, 0, rows, out, in, o->full);
    }
    for (size_t i = 0; i < AF_LEN(expert_slot); i++) {
        const int t = s->layer[layer].tensor[expert_slot[i]];
        if (t < 0)
            continue;
        const int64_t *dim = s->tensor[t].dim, X = dim[0];
        add_gemms(f, X, (rows * s->experts_used + X - 1) / X, dim[1], dim[2], o->full);
    }
}

/* Random numbers, because zeros run faster; a prime number of them, over and over. */
static af_status fill_one(af_graph *g, af_tensor *t, af_error *err)
{
    const uint64_t n = (uint64_t)af_tensor_count(t), bytes = af_tensor_bytes(t);
    uint8_t *data = malloc(bytes);
    if (!data)
        return af_fail_nomem(err, "random operands", bytes);
    const uint64_t drawn = AF_MIN(n, (uint64_t)PATTERN);
    for (uint64_t k = 0; k < drawn; k++)
        af_store_f64(data, af_tensor_dtype(t), k, af_rng_f64(4, 5, k) - 0.5);
    for (uint64_t at = bytes / n * drawn; at < bytes; at *= 2)
        memcpy(data + at, data, AF_MIN(at, bytes - at));
    const af_status st = af_tensor_write(g, t, data, bytes, err);
    free(data);
    return st;
}

static af_status fill_inputs(floor_graph *f, af_error *err)
{
    static const af_role role[] = {AF_ROLE_INPUT, AF_ROLE_WEIGHT};
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(role); i++)
        for (af_tensor *t = NULL; st == AF_OK && (t = af_graph_next(f->g, role[i], t));)
            st = af_dtype_is_float(af_tensor_dtype(t))
                     ? fill_one(f->g, t, err)
                     : af_tensor_write(f->g, t, f->ints, af_tensor_bytes(t), err);
    return st;
}

static af_status run_times(floor_graph *f, int times, af_error *err)
{
    af_status st = AF_OK;
    float value;
    for (int i = 0; i < times && st == AF_OK; i++)
        st = af_graph_run(f->g, AF_RUN_FORWARD, err);
    return st == AF_OK ? af_tensor_read(f->g, f->done, &value, sizeof value, err) : st;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* Runs that do not count, and how many are one sample after them: 1 where one takes longer than
 * all samples may. */
static af_status warm_up(floor_graph *f, int *repeat, af_error *err)
{
    const double warm = AF_MIN(warm_seconds, f->seconds);
    double begin = af_bench_now(false), one;
    int runs = 0;
    af_status st = run_times(f, 1, err); /* it may load kernels */
    *repeat = 1;
    if (st != AF_OK || af_bench_now(false) - begin > f->seconds)
        return st;
    begin = af_bench_now(false);
    do {
        st = run_times(f, 1, err);
        one = (af_bench_now(false) - begin) / ++runs;
    } while (st == AF_OK && one * runs < warm);
    *repeat = (int)AF_MAX(4.0, sample_seconds / one);
    return st;
}

/* Median of runs over f->seconds, at least three samples, or one run where that took longer. */
static af_status measure(floor_graph *f, af_device *d, double *ms, double *cpu_ms, af_error *err)
{
    double wall[SAMPLES], processor[SAMPLES];
    int n = 0, repeat;
    af_status st = AF_OK;
    af_tensor *one = af_graph_input(f->g, "one", AF_DTYPE_F32, 1, (int64_t[]){1});
    f->done = af_scale(f->g, one, 1);
    af_graph_output(f->g, f->done);
    AF_TRY(af_graph_prepare(f->g, d, err));
    AF_TRY(fill_inputs(f, err));
    AF_TRY(warm_up(f, &repeat, err));
    const double end = af_bench_now(false) + f->seconds;
    const int least = repeat == 1 ? 1 : 3;
    while (n < SAMPLES && (n < least || af_bench_now(false) < end)) {
        const double at = af_bench_now(false), used = af_bench_now(true);
        AF_TRY(run_times(f, repeat, err));
        wall[n] = (af_bench_now(false) - at) * 1e3 / repeat;
        processor[n++] = (af_bench_now(true) - used) * 1e3 / repeat;
    }
    *ms = median(wall, n);
    *cpu_ms = median(processor, n);
done:
    return st;
}

static af_status run_part(floor_graph *f, af_device *d, double factor, double *ms, double *cpu_ms,
                          af_error *err)
{
    double wall = 0, processor = 0;
    const af_status st = measure(f, d, &wall, &processor, err);
    *ms += wall * factor;
    *cpu_ms += processor * factor;
    af_graph_free(f->g);
    return st;
}

af_status af_bench_floor(const af_bench_floor_opts *o, af_device *d, double *ms, double *cpu_ms,
                         af_error *err)
{
    const af_model_spec *s = o->spec;
    const int64_t head = AF_MIN(o->rows, (int64_t)HEAD_ROWS),
                  rows = AF_MIN(o->rows, (int64_t)LAYER_ROWS);
    floor_graph f = {.type = o->type, .seconds = AF_MIN(o->seconds, most_seconds)};
    af_status st = AF_OK;
    *ms = *cpu_ms = 0;
    for (int i = 0; i < s->layers; i++) {
        int first = 0, count = 1;
        while (!same_gemms(s, first, i))
            first++;
        if (first < i)
            continue;
        for (int k = i + 1; k < s->layers; k++)
            count += same_gemms(s, i, k);
        AF_TRY(af_graph_new(&f.g, err));
        add_layer(&f, o, rows, i);
        AF_TRY(run_part(&f, d, count * (double)o->rows / (double)rows, ms, cpu_ms, err));
    }
    AF_TRY(af_graph_new(&f.g, err));
    add_gemms(&f, 0, head, s->vocab, s->embed_width, o->full);
    AF_TRY(run_part(&f, d, (double)o->rows / (double)head, ms, cpu_ms, err));
done:
    return st;
}

/* ---- attention ---- */

static bool attends(const af_layer_spec *l)
{
    return l->mixer == AF_MIXER_ATTENTION || l->mixer == AF_MIXER_HYBRID ||
           l->mixer == AF_MIXER_SHARED;
}

static bool same_attention(const af_layer_spec *a, const af_layer_spec *b)
{
    return attends(a) && attends(b) && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->head_dim == b->head_dim && a->window == b->window;
}

static void add_attention(floor_graph *f, const af_bench_floor_opts *o, int layer)
{
    const af_model_spec *s = o->spec;
    const af_layer_spec *l = &s->layer[layer];
    const af_attention_opts a = {.heads = l->heads,
                                 .kv_heads = l->kv_heads,
                                 .head_dim = l->head_dim,
                                 .scale = s->attn_scale,
                                 .softcap = s->attn_softcap,
                                 .window = l->window,
                                 .causal = true};
    const int64_t E = l->head_dim, out[2] = {o->rows, l->heads * E},
                  qkv[2] = {o->rows, (l->heads + 2 * l->kv_heads) * E}, bounds = o->batch + 1;
    af_tensor *at = af_graph_input(f->g, "bounds", AF_DTYPE_I32, 1, &bounds);
    af_graph_output(f->g, af_attention_both(f->g, af_graph_input(f->g, "qkv", f->type, 2, qkv), at,
                                            af_graph_input(f->g, "dy", f->type, 2, out), &a));
}

af_status af_bench_attention(const af_bench_floor_opts *o, af_device *d, double *ms, af_error *err)
{
    const af_model_spec *s = o->spec;
    floor_graph f = {.type = o->type, .seconds = AF_MIN(o->seconds, most_seconds)};
    double cpu_ms = 0;
    af_status st = AF_OK;
    int32_t *bounds = af_calloc((uint64_t)o->batch + 1, sizeof *bounds);
    if (!bounds)
        return af_fail_nomem(err, "bounds", (uint64_t)(o->batch + 1) * 4);
    for (int64_t i = 0; i <= o->batch; i++)
        bounds[i] = (int32_t)(i * (o->rows / o->batch));
    f.ints = bounds;
    *ms = 0;
    for (int i = 0; i < s->layers; i++) {
        int count = 0, before = 0;
        for (int k = 0; k < s->layers; k++) {
            count += same_attention(&s->layer[i], &s->layer[k]);
            before += k < i && same_attention(&s->layer[i], &s->layer[k]);
        }
        if (count == 0 || before > 0)
            continue;
        AF_TRY(af_graph_new(&f.g, err));
        add_attention(&f, o, i);
        AF_TRY(run_part(&f, d, count, ms, &cpu_ms, err));
    }
done:
    free(bounds);
    return st;
}

af_status af_bench_gemm(const char *device, int threads, double *f32, double *bf16, af_error *err)
{
    AF_NEED(err, device, f32, bf16);
    enum { SIZE = 1024 };
    af_device *d = NULL;
    af_status st = af_device_open(&d, device, threads, err);
    for (int i = 0; st == AF_OK && i < 2; i++) {
        floor_graph f = {.type = i ? AF_DTYPE_BF16 : AF_DTYPE_F32, .seconds = 0.05};
        double ms = 0, processor = 0;
        st = af_graph_new(&f.g, err);
        if (st != AF_OK)
            break;
        add_gemms(&f, 0, SIZE, SIZE, SIZE, false);
        st = run_part(&f, d, 1, &ms, &processor, err);
        *(i ? bf16 : f32) = 4.0 * SIZE * SIZE * SIZE / ms * 1e-6;
    }
    af_device_close(d);
    return st;
}
