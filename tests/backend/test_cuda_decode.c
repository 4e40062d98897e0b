/* test_cuda_decode.c - time of a run of the graph of generation at the shapes of real models, with
 * random 4-bit (or, AF_DENSE=1, bf16) weights, by the number of live rows. Not part of an ordinary
 * test run: it skips unless AF_DECODE lists models, as in AF_DECODE="1.5b 7b". AF_PROFILE=1 adds a
 * table by op for one row. */
#define _GNU_SOURCE
#include "test.h"

#include "afinar/graph.h"
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/real_shapes.h"

#include <math.h>

enum { ROWS = 1024, LENGTH = 2048, LEAVES = 4096, RANK = 16 };

typedef struct model {
    af_graph *g;
    const shape *s;
    bool dense, adapter;
    struct {
        af_tensor *t;
        double range; /* 0: bytes of any value */
    } leaf[LEAVES];
    int n;
    af_tensor *ids, *at, *bounds, *start, *last, *freq, *logits;
    double bytes; /* of weights */
} model;

static af_tensor *add(model *m, af_tensor *t, double range)
{
    assert_true(m->n < LEAVES);
    m->leaf[m->n].t = t;
    m->leaf[m->n++].range = range;
    m->bytes += (double)af_tensor_bytes(t);
    return t;
}

static af_tensor *weight(model *m, int64_t O, int64_t I)
{
    const int64_t dim[] = {O, I}, blocks = O * I / 64, nests = (blocks + 255) / 256;
    if (m->dense)
        return add(m, af_graph_weight(m->g, "w", AF_DTYPE_BF16, 2, dim), sqrt(3.0 / (double)I));
    af_quant *q = af_arena_take(&m->g->mem, sizeof *q);
    *q = (af_quant){.block = 64, .nested_block = 256, .offset = 0.05f, .round = AF_DTYPE_BF16};
    q->absmax = add(m, af_graph_weight(m->g, "absmax", AF_DTYPE_U8, 1, &blocks), 0);
    q->nested = add(m, af_graph_weight(m->g, "nested", AF_DTYPE_F32, 1, &nests), 0.02);
    af_tensor *w = add(m, af_graph_weight(m->g, "w", AF_DTYPE_NF4, 2, dim), 0);
    w->quant = q;
    return w;
}

static af_tensor *project(model *m, af_tensor *x, int pieces, const int64_t *out, bool bias)
{
    const int64_t I = af_tensor_dim(x, 1);
    af_linear_opts o = {.pieces = pieces, .parts = m->adapter ? pieces : 0};
    int64_t from = 0;
    for (int i = 0; i < pieces; i++) {
        o.weight[i] = weight(m, out[i], I);
        o.bias[i] =
            bias ? add(m, af_graph_weight(m->g, "b", AF_DTYPE_BF16, 1, &out[i]), 0.1) : NULL;
        o.part[i] = (af_adapter_part){from, out[i], i * RANK, RANK, 2.0f};
        from += out[i];
    }
    if (m->adapter) {
        o.a = add(m, af_graph_weight(m->g, "a", AF_DTYPE_F32, 2, (int64_t[]){pieces * RANK, I}),
                  0.01);
        o.b = add(m, af_graph_weight(m->g, "b", AF_DTYPE_F32, 1, (int64_t[]){from * RANK}), 0.01);
    }
    return af_linear(m->g, x, &o);
}

static af_tensor *norm_weight(model *m)
{
    return add(m, af_graph_weight(m->g, "n", AF_DTYPE_BF16, 1, &m->s->D), 1);
}

static void build(model *m)
{
    const shape *s = m->s;
    const int64_t N = ROWS, E = s->E, one = 1;
    af_graph *g = m->g;
    af_graph_set_rows(g, N);
    m->ids = af_graph_input(g, "ids", AF_DTYPE_I32, 1, &N);
    m->at = af_graph_input(g, "at", AF_DTYPE_I32, 1, &N);
    m->bounds = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
    m->start = af_graph_input(g, "start", AF_DTYPE_I32, 1, &one);
    m->last = af_graph_input(g, "last", AF_DTYPE_I32, 1, &one);
    m->freq = af_graph_input(g, "freq", AF_DTYPE_F32, 1, (int64_t[]){E / 2});
    af_tensor *table =
        add(m, af_graph_weight(g, "e", AF_DTYPE_BF16, 2, (int64_t[]){s->V, s->D}), 0.05);
    af_tensor *x = af_embedding(g, m->ids, table, AF_DTYPE_BF16), *h = NULL, *sum = NULL;
    const af_rope_opts rope = {.heads = (int)s->H, .kv_heads = (int)s->K, .head_dim = (int)E};
    const af_attention_opts att = {
        .heads = (int)s->H, .kv_heads = (int)s->K, .head_dim = (int)E, .causal = true};
    for (int64_t i = 0; i < s->layers; i++) {
        h = sum ? af_rmsnorm_add(g, h, sum, norm_weight(m), 1e-6, false, &sum)
                : af_rmsnorm(g, x, norm_weight(m), 1e-6, false);
        sum = sum ? sum : x;
        h = project(m, h, 3, (int64_t[]){s->H * E, s->K * E, s->K * E}, true);
        af_tensor *cache =
            af_graph_state(g, "cache", AF_DTYPE_BF16, 3, (int64_t[]){1, LENGTH, 2 * s->K * E});
        h = af_attention_cached(g, af_rope(g, h, m->at, m->freq, &rope), cache, m->bounds, m->start,
                                &att);
        h = project(m, h, 1, &s->D, false);
        h = af_rmsnorm_add(g, h, sum, norm_weight(m), 1e-6, false, &sum);
        h = af_glu(g, project(m, h, 2, (int64_t[]){s->F, s->F}, false), AF_ACT_SILU);
        h = project(m, h, 1, &s->D, false);
    }
    h = af_rmsnorm_add(g, h, sum, norm_weight(m), 1e-6, false, &sum);
    h = af_embedding(g, m->last, h, AF_DTYPE_BF16);
    const af_linear_opts head = {.weight = {table}, .pieces = 1};
    m->logits = af_linear(g, h, &head);
    af_graph_output(g, m->logits);
}

static void fill(model *m, af_error *err)
{
    pool_of_values pool[16];
    memset(pool, 0, sizeof pool);
    for (int i = 0; i < m->n; i++) {
        af_tensor *t = m->leaf[i].t;
        const uint64_t bytes = af_tensor_bytes(t);
        const bool any = m->leaf[i].range == 0; /* bytes of bf16 noise: as good as others */
        const void *v = any ? values_of(pool, 16, 1, AF_DTYPE_F32, bytes / 4 + 1)
                            : values_of(pool, 16, (float)m->leaf[i].range, af_tensor_dtype(t),
                                        (uint64_t)af_tensor_count(t));
        CHECK_OK(af_tensor_write(m->g, t, v, bytes, err), *err);
    }
    for (int i = 0; i < 16; i++)
        free(pool[i].data);
}

static void write_rows(model *m, int32_t live, int32_t from, af_error *err)
{
    static int32_t ids[ROWS], at[ROWS];
    float freq[256];
    const int32_t bounds[] = {0, live}, last = live - 1;
    for (int32_t i = 0; i < ROWS; i++) {
        ids[i] = i * 7919 % (int32_t)m->s->V;
        at[i] = from + i;
    }
    for (int64_t i = 0; i < m->s->E / 2; i++)
        freq[i] = (float)pow(1e6, -2.0 * (double)i / (double)m->s->E);
    CHECK_OK(af_tensor_write(m->g, m->ids, ids, sizeof ids, err), *err);
    CHECK_OK(af_tensor_write(m->g, m->at, at, sizeof at, err), *err);
    CHECK_OK(af_tensor_write(m->g, m->bounds, bounds, sizeof bounds, err), *err);
    CHECK_OK(af_tensor_write(m->g, m->start, &from, sizeof from, err), *err);
    CHECK_OK(af_tensor_write(m->g, m->last, &last, sizeof last, err), *err);
    CHECK_OK(af_tensor_write(m->g, m->freq, freq, (uint64_t)m->s->E / 2 * 4, err), *err);
    af_graph_set_live_rows(m->g, live);
}

/* Milliseconds of a run with `live` rows after `from` cached ones. */
static double time_rows(model *m, af_cuda *cu, int32_t live, int32_t from, int repeats,
                        af_error *err)
{
    write_rows(m, live, from, err);
    CHECK_OK(af_graph_run(m->g, AF_RUN_FORWARD, err), *err);
    cu->drv->stream_sync(cu->stream);
    const double start = seconds();
    for (int i = 0; i < repeats; i++)
        CHECK_OK(af_graph_run(m->g, AF_RUN_FORWARD, err), *err);
    cu->drv->stream_sync(cu->stream);
    return (seconds() - start) / repeats * 1e3;
}

static void profile(model *m, af_cuda *cu, int level, af_error *err)
{
    double ms[AF_OP_COUNT] = {0};
    uint64_t steps = 0;
    void *event[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(cu->drv->event_new(&event[i], 0), 0);
    for (int i = 0; i < m->g->n_nodes; i++) {
        float t = 0;
        const af_exec *e = af_exec_of(m->g->nodes[i], level);
        cu->drv->event_record(event[0], cu->stream);
        for (int k = 0; k < 4; k++)
            CHECK_OK(af_cuda_issue(cu, e, AF_RUN_FORWARD, 0, &steps, err), *err);
        cu->drv->event_record(event[1], cu->stream);
        cu->drv->event_sync(event[1]);
        cu->drv->event_elapsed(&t, event[0], event[1]);
        ms[m->g->nodes[i]->op] += (double)t / 4;
    }
    for (int op = 0; op < AF_OP_COUNT; op++)
        if (ms[op] > 0)
            print_message("    level %d %-16s %8.3f ms\n", level, af_ops[op]->name, ms[op]);
    for (int i = 0; i < 2; i++)
        cu->drv->event_free(event[i]);
}

static void measure(const shape *s)
{
    static const int32_t live[] = {1, 8, 16, 32, 64, 1024};
    af_error err = {0};
    af_device *d = NULL;
    CHECK_OK(af_device_open(&d, "cuda", 0, &err), err);
    model m = {
        .s = s, .dense = getenv("AF_DENSE") != NULL, .adapter = getenv("AF_ADAPTER") != NULL};
    af_cuda *cu = (af_cuda *)d;
    af_cuda_test_on(&cu->device)->no_4bit_gemm = getenv("AF_NO_BNB") != NULL;
    CHECK_OK(af_graph_new(&m.g, &err), err);
    build(&m);
    const double start = seconds();
    CHECK_OK(af_graph_prepare(m.g, d, &err), err);
    const double prepared = seconds();
    fill(&m, &err);
    print_message("%s %s%s: %.2f GB of weights, prepare %.2f s, write %.2f s\n", s->name,
                  m.dense ? "bf16" : "nf4", m.adapter ? " adapter" : "", m.bytes * 1e-9,
                  prepared - start, seconds() - prepared);
    for (size_t i = 0; i < AF_LEN(live); i++) {
        const double ms = time_rows(&m, cu, live[i], live[i] == 1024 ? 0 : 1000, 20, &err);
        print_message("  %4d rows: %8.3f ms, %.2f TB/s of weights\n", live[i], ms,
                      m.bytes / ms * 1e-9);
    }
    if (getenv("AF_PROFILE")) {
        write_rows(&m, 1, 1000, &err);
        profile(&m, cu, 3, &err);
        write_rows(&m, 64, 1000, &err);
        profile(&m, cu, 1, &err);
    }
    af_graph_free(m.g);
    af_device_close(d);
}

static void test_runs_of_generation(void **state)
{
    const char *list = getenv("AF_DECODE");
    (void)state;
    if (!list)
        skip_because("AF_DECODE is not set");
    for (size_t i = 0; i < AF_LEN(shapes); i++)
        if (strstr(list, shapes[i].name))
            measure(&shapes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs_of_generation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
