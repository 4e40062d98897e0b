/* test_cuda_speed.c - a LoRA training step at the shapes of real models, with random weights, and
 * where its time goes. Not part of an ordinary test run: it skips unless AF_SPEED lists what to
 * measure, as "MODEL:BATCHxSEQ" items: AF_SPEED="0.5b:4x2048 1.5b:4x512". AF_FULL=1 trains every
 * weight instead of adapters; AF_PROFILE=1 adds a table by op; AF_RECOMPUTE=1..3 recomputes;
 * AF_NO_LT=1 multiplies by own kernels, AF_FP8=1 with frozen weights in FP8. */
#define _GNU_SOURCE
#include "test.h"

#include "afinar/graph.h"
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/real_shapes.h"

#include <math.h>

enum { RANK = 16, LEAVES = 4096 };

typedef struct model {
    af_graph *g;
    const shape *s;
    bool full;
    af_tensor *leaf[LEAVES];
    double range[LEAVES];
    int n;
    af_tensor *ids, *labels, *at, *bounds, *freq, *scale, *loss;
    int64_t batch, seq;
} model;

static af_tensor *leaf(model *m, int ndim, int64_t a, int64_t b, double range)
{
    const int64_t dim[2] = {a, b};
    af_tensor *t = m->full ? af_graph_param(m->g, "w", AF_DTYPE_F32, ndim, dim)
                           : af_graph_weight(m->g, "w", AF_DTYPE_BF16, ndim, dim);
    assert_true(m->n < LEAVES);
    m->leaf[m->n] = t;
    m->range[m->n++] = range;
    return t;
}

static af_tensor *project(model *m, af_tensor *x, int pieces, const int64_t *out, bool bias)
{
    const int64_t I = af_tensor_dim(x, 1);
    af_linear_opts o = {
        .pieces = pieces, .parts = m->full ? 0 : pieces, .fp8 = !m->full && getenv("AF_FP8")};
    int64_t from = 0;
    for (int i = 0; i < pieces; i++) {
        o.weight[i] = leaf(m, 2, out[i], I, sqrt(3.0 / (double)I));
        o.bias[i] = bias ? leaf(m, 1, out[i], 1, 0.1) : NULL;
        o.part[i] = (af_adapter_part){from, out[i], i * RANK, RANK, 2.0f};
        from += out[i];
    }
    if (!m->full) {
        o.a = af_graph_param(m->g, "a", AF_DTYPE_F32, 2, (int64_t[]){pieces * RANK, I});
        o.b = af_graph_param(m->g, "b", AF_DTYPE_F32, 1, (int64_t[]){from * RANK});
        m->leaf[m->n] = o.a;
        m->range[m->n++] = sqrt(3.0 / (double)I);
        m->leaf[m->n] = o.b;
        m->range[m->n++] = 0.01;
    }
    return af_linear(m->g, x, &o);
}

static af_tensor *norm_weight(model *m) { return leaf(m, 1, m->s->D, 1, 1); }

static void build(model *m)
{
    const shape *s = m->s;
    const int64_t N = m->batch * m->seq, E = s->E;
    af_graph *g = m->g;
    m->ids = af_graph_input(g, "ids", AF_DTYPE_I32, 1, &N);
    m->labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, &N);
    m->at = af_graph_input(g, "at", AF_DTYPE_I32, 1, &N);
    m->bounds = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){m->batch + 1});
    m->freq = af_graph_input(g, "freq", AF_DTYPE_F32, 1, (int64_t[]){E / 2});
    m->scale = af_graph_input(g, "scale", AF_DTYPE_F32, 1, (int64_t[]){1});
    af_tensor *table = leaf(m, 2, s->V, s->D, 0.05), *sum = NULL;
    af_tensor *x = af_embedding(g, m->ids, table, AF_DTYPE_BF16), *h = NULL;
    const af_rope_opts rope = {.heads = (int)s->H, .kv_heads = (int)s->K, .head_dim = (int)E};
    const af_attention_opts att = {
        .heads = (int)s->H, .kv_heads = (int)s->K, .head_dim = (int)E, .causal = true};
    for (int64_t i = 0; i < s->layers; i++) {
        /* the norm that adds the last block's output belongs to that block: its sum is all the
         * next one needs */
        h = sum ? af_rmsnorm_add(g, h, sum, norm_weight(m), 1e-6, false, &sum)
                : af_rmsnorm(g, x, norm_weight(m), 1e-6, false);
        sum = sum ? sum : x;
        af_graph_set_block(g, (int)i);
        h = project(m, h, 3, (int64_t[]){s->H * E, s->K * E, s->K * E}, true);
        h = af_attention(g, af_rope(g, h, m->at, m->freq, &rope), m->bounds, &att);
        h = project(m, h, 1, &s->D, false);
        h = af_rmsnorm_add(g, h, sum, norm_weight(m), 1e-6, false, &sum);
        h = af_glu(g, project(m, h, 2, (int64_t[]){s->F, s->F}, false), AF_ACT_SILU);
        h = project(m, h, 1, &s->D, false);
    }
    h = af_rmsnorm_add(g, h, sum, norm_weight(m), 1e-6, false, &sum);
    af_graph_set_block(g, -1);
    af_tensor *head = s->tied ? table : leaf(m, 2, s->V, s->D, 0.05);
    m->loss = af_head_loss(g, h, head, m->labels, &(af_head_opts){.scale = m->scale});
    af_graph_backward(g, m->loss);
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .max_grad_norm = 1.0});
    af_graph_set_learning_rate(g, 1e-4);
}

static void fill(model *m, af_error *err)
{
    pool_of_values pool[16];
    memset(pool, 0, sizeof pool);
    for (int i = 0; i < m->n; i++) {
        af_tensor *t = m->leaf[i];
        const uint64_t n = (uint64_t)af_tensor_count(t);
        const void *v = values_of(pool, 16, (float)m->range[i], af_tensor_dtype(t), n);
        CHECK_OK(af_tensor_write(m->g, t, v, af_tensor_bytes(t), err), *err);
    }
    for (int i = 0; i < 16; i++)
        free(pool[i].data);
}

static void write_batch(model *m, af_error *err)
{
    const int64_t N = m->batch * m->seq;
    int32_t *v = malloc((size_t)N * 4), *bounds = malloc((size_t)(m->batch + 1) * 4);
    float freq[256], scale = 1.0f / (float)N;
    for (int64_t i = 0; i < N; i++)
        v[i] = (int32_t)((i * 7919 + 13) % m->s->V);
    CHECK_OK(af_tensor_write(m->g, m->ids, v, (uint64_t)N * 4, err), *err);
    for (int64_t i = 0; i < N; i++)
        v[i] = (int32_t)((i * 104729 + 7) % m->s->V);
    CHECK_OK(af_tensor_write(m->g, m->labels, v, (uint64_t)N * 4, err), *err);
    for (int64_t i = 0; i < N; i++)
        v[i] = (int32_t)(i % m->seq);
    CHECK_OK(af_tensor_write(m->g, m->at, v, (uint64_t)N * 4, err), *err);
    for (int64_t i = 0; i <= m->batch; i++)
        bounds[i] = (int32_t)(i * m->seq);
    CHECK_OK(af_tensor_write(m->g, m->bounds, bounds, (uint64_t)(m->batch + 1) * 4, err), *err);
    for (int64_t i = 0; i < m->s->E / 2; i++)
        freq[i] = (float)pow(1e6, -2.0 * (double)i / (double)m->s->E);
    CHECK_OK(af_tensor_write(m->g, m->freq, freq, (uint64_t)m->s->E / 2 * 4, err), *err);
    CHECK_OK(af_tensor_write(m->g, m->scale, &scale, 4, err), *err);
    free(v);
    free(bounds);
}

static double time_runs(model *m, int what, int repeats, float *loss, af_error *err)
{
    CHECK_OK(af_graph_run(m->g, what, err), *err);
    CHECK_OK(af_tensor_read(m->g, m->loss, loss, 4, err), *err);
    const double start = seconds();
    for (int i = 0; i < repeats; i++)
        CHECK_OK(af_graph_run(m->g, what, err), *err);
    CHECK_OK(af_tensor_read(m->g, m->loss, loss, 4, err), *err);
    return (seconds() - start) / repeats * 1e3;
}

typedef struct line { /* of the profile: nodes of one op and shape */
    af_op op;
    af_phase phase;
    int64_t in, out;
    int count;
    double ms;
} line;

static line *line_of(line *lines, int max, const af_node *n)
{
    const line key = {.op = n->op,
                      .phase = n->phase,
                      .in = n->n_in ? af_last(n->in[0]) : 0,
                      .out = n->n_out ? af_last(n->out[0]) : 0};
    int i = 0;
    while (i < max && lines[i].count &&
           (lines[i].op != key.op || lines[i].phase != key.phase || lines[i].in != key.in ||
            lines[i].out != key.out))
        i++;
    assert_true(i < max);
    if (lines[i].count == 0)
        lines[i] = key;
    return &lines[i];
}

/* Milliseconds by op and shape: every node a few times in a row, with events around them. */
static void profile(model *m, af_cuda *cu, af_error *err)
{
    enum { AGAIN = 4, LINES = 128 };
    line lines[LINES] = {{0}};
    const af_graph *g = m->g;
    uint64_t steps = 0;
    void *event[2];
    double total = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(cu->drv->event_new(&event[i], 0), 0);
    for (int i = 0; i < g->n_nodes; i++) {
        const af_exec *e = af_exec_of(g->nodes[i], 0);
        float t = 0;
        cu->drv->event_record(event[0], cu->stream);
        for (int k = 0; k < AGAIN; k++)
            CHECK_OK(af_cuda_issue(cu, e, AF_RUN_STEP, AF_CHUNKS_MAX, &steps, err), *err);
        cu->drv->event_record(event[1], cu->stream);
        cu->drv->event_sync(event[1]);
        cu->drv->event_elapsed(&t, event[0], event[1]);
        line *l = line_of(lines, LINES, g->nodes[i]);
        l->count++;
        l->ms += (double)t / AGAIN;
        total += (double)t / AGAIN;
    }
    for (int i = 0; i < LINES && lines[i].count; i++)
        print_message("    %-14s phase %d %6ld -> %6ld %5d nodes %8.3f ms, %7.1f us each\n",
                      af_ops[lines[i].op]->name, lines[i].phase, (long)lines[i].in,
                      (long)lines[i].out, lines[i].count, lines[i].ms,
                      lines[i].ms / lines[i].count * 1e3);
    print_message("    sum %.2f ms\n", total);
    for (int i = 0; i < 2; i++)
        cu->drv->event_free(event[i]);
}

/* The GEMMs of one step alone: every projection forward and dX (and dW), head forward and dX. */
static double floor_ms(af_device *d, const shape *s, int64_t N, bool full, af_error *err)
{
    const int64_t in[] = {s->D, s->H * s->E, s->D, s->F};
    const int64_t out[] = {(s->H + 2 * s->K) * s->E, s->D, 2 * s->F, s->D};
    double total = 0;
    for (int i = 0; i < 5; i++) {
        af_graph *g = NULL;
        const int64_t I = i < 4 ? in[i] : s->D, O = i < 4 ? out[i] : s->V;
        CHECK_OK(af_graph_new(&g, err), *err);
        af_tensor *x = af_graph_input(g, "x", AF_DTYPE_BF16, 2, (int64_t[]){N, I});
        af_tensor *w = af_graph_input(g, "w", AF_DTYPE_BF16, 2, (int64_t[]){O, I});
        af_tensor *y = af_matmul(g, x, w, AF_MATMUL_NT);
        af_graph_output(g, y);
        af_graph_output(g, af_matmul(g, y, w, AF_MATMUL_NN));
        if (full)
            af_graph_output(g, af_matmul(g, y, x, AF_MATMUL_TN));
        CHECK_OK(af_graph_prepare(g, d, err), *err);
        pool_of_values pool[1];
        memset(pool, 0, sizeof pool);
        const void *v = values_of(pool, 1, 1, AF_DTYPE_BF16, (uint64_t)(AF_MAX(N, O) * I));
        CHECK_OK(af_tensor_write(g, x, v, (uint64_t)(N * I) * 2, err), *err);
        CHECK_OK(af_tensor_write(g, w, v, (uint64_t)(O * I) * 2, err), *err);
        CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, err), *err);
        ((af_cuda *)d)->drv->stream_sync(((af_cuda *)d)->stream);
        const double start = seconds();
        for (int k = 0; k < 10; k++)
            CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, err), *err);
        ((af_cuda *)d)->drv->stream_sync(((af_cuda *)d)->stream);
        const double ms = (seconds() - start) / 10 * 1e3;
        total += ms * (i < 4 ? (double)s->layers : 1.0);
        free(pool[0].data);
        af_graph_free(g);
    }
    return total;
}

/* A step with direct launches, or on one stream. */
static double time_way(model *m, af_cuda *cu, bool direct, bool one_stream, float *loss,
                       af_error *err)
{
    af_cuda_test_on(&cu->device)->no_capture = direct;
    af_cuda_test_on(&cu->device)->one_stream = one_stream;
    af_cuda_drop_captures(cu, m->g->backend);
    const double ms = time_runs(m, AF_RUN_STEP, 5, loss, err);
    af_cuda_test_on(&cu->device)->no_capture = af_cuda_test_on(&cu->device)->one_stream = false;
    return ms;
}

static void measure(const shape *s, int64_t batch, int64_t seq)
{
    af_error err = {0};
    af_device *d = NULL;
    float loss = 0;
    const char *recompute = getenv("AF_RECOMPUTE");
    const double start = seconds();
    CHECK_OK(af_device_open(&d, "cuda", 0, &err), err);
    const double opened = seconds();
    af_cuda_test_on(d)->no_low_rank = getenv("AF_NO_NARROW") != NULL;
    if (getenv("AF_CUDNN"))
        af_device_set_attention(d, AF_ATTENTION_CUDNN);
    af_cuda_test_on(d)->no_cublas = getenv("AF_NO_LT") != NULL;
    model m = {.s = s, .batch = batch, .seq = seq, .full = getenv("AF_FULL") != NULL};
    CHECK_OK(af_graph_new(&m.g, &err), err);
    if (recompute)
        af_graph_set_recompute(m.g, (af_recompute)(recompute[0] - '0'), (int)s->layers);
    build(&m);
    af_plan_info plan;
    CHECK_OK(af_graph_plan(m.g, d, &plan, &err), err);
    const uint64_t before = af_device_memory_free(d);
    CHECK_OK(af_graph_prepare(m.g, d, &err), err);
    const double prepared = seconds();
    fill(&m, &err);
    write_batch(&m, &err);
    const double written = seconds();
    CHECK_OK(af_graph_run(m.g, AF_RUN_STEP, &err), err);
    CHECK_OK(af_tensor_read(m.g, m.loss, &loss, 4, &err), err);
    const double first = seconds();
    const float loss0 = loss;
    const double ms = time_runs(&m, AF_RUN_STEP, s->layers > 24 ? 6 : 10, &loss, &err);
    const double fwd = time_runs(&m, AF_RUN_FORWARD, 5, &loss, &err);
    const double grad = time_runs(&m, AF_RUN_GRAD, 5, &loss, &err);
    const double used = (double)(before - af_device_memory_free(d)) / 0x1p30;
    const af_counters c = af_device_counters(d);
    const double one = time_way(&m, (af_cuda *)d, false, true, &loss, &err);
    const double direct = time_way(&m, (af_cuda *)d, true, false, &loss, &err);
    const double direct_one = time_way(&m, (af_cuda *)d, true, true, &loss, &err);
    double norm;
    bool finite;
    CHECK_OK(af_graph_grad_norm(m.g, &norm, &finite, &err), err);
    print_message("%s %ldx%ld%s: step %.2f ms (forward %.2f, backward %.2f), direct %.2f; one "
                  "stream %.2f, direct %.2f; open %.2f s, "
                  "prepare %.2f s, write %.2f s, first step %.3f s; %.2f GiB (weights %.2f, act "
                  "%.2f, work %.2f), measured %.2f; %d compiles, %d loads, %d allocations; loss "
                  "%.4f -> %.4f, norm %.3f %s\n",
                  s->name, (long)batch, (long)seq, m.full ? " full" : "", ms, fwd, grad - fwd,
                  direct, one, direct_one, opened - start, prepared - opened, written - prepared,
                  first - written, (double)plan.total / 0x1p30, (double)plan.weights / 0x1p30,
                  (double)plan.activations / 0x1p30, (double)plan.workspace / 0x1p30, used,
                  (int)c.compiles, (int)c.module_loads, (int)c.allocations, (double)loss0,
                  (double)loss, norm, finite ? "finite" : "NOT FINITE");
    if (getenv("AF_PROFILE"))
        profile(&m, (af_cuda *)d, &err);
    const bool full = m.full;
    af_graph_free(m.g);
    const double gemms = floor_ms(d, s, batch * seq, full, &err);
    print_message("    GEMMs alone %.2f ms: the step is %.2fx\n", gemms, ms / gemms);
    af_device_close(d);
}

static void test_steps_at_real_shapes(void **state)
{
    const char *list = getenv("AF_SPEED");
    (void)state;
    if (!list)
        skip_because("AF_SPEED is not set");
    for (const char *p = list; *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        char name[16];
        int batch, seq;
        assert_int_equal(sscanf(p, "%15[^:]:%dx%d", name, &batch, &seq), 3);
        for (size_t i = 0; i < AF_LEN(shapes); i++)
            if (strcmp(shapes[i].name, name) == 0)
                measure(&shapes[i], batch, seq);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps_at_real_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
