/* test_graph_speed.c - what the graph itself costs: recording, differentiating and planning a
 * decoder with adapters, and running nodes that do nearly nothing. Processor time, so that a busy
 * machine does not matter; prints both numbers. */
#include "test.h"

#include "afinar/graph.h"

#include <stdbool.h>
#include <time.h>

enum { LAYERS = 32, ROWS = 4096, HEADS = 32, KV = 8, E = 128, D = HEADS * E, F = 14336, RANK = 16 };

enum { SLOW = 4 }; /* the limits are those of a machine that is this much faster */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

static af_tensor *linear(af_graph *g, af_tensor *x, int64_t out, int64_t in)
{
    const int64_t pair = out * RANK;
    const af_linear_opts o = {
        .weight = {af_graph_weight(g, "w", AF_DTYPE_BF16, 2, (int64_t[]){out, in})},
        .pieces = 1,
        .a = af_graph_param(g, "a", AF_DTYPE_F32, 2, (int64_t[]){RANK, in}),
        .b = af_graph_param(g, "b", AF_DTYPE_F32, 1, &pair),
        .part = {{0, out, 0, RANK, 2.0f}},
        .parts = 1,
    };
    return af_linear(g, af_dropout(g, x, 0.05, 1), &o);
}

static af_tensor *norm(af_graph *g, af_tensor *x)
{
    return af_rmsnorm(g, x, af_graph_weight(g, "norm", AF_DTYPE_BF16, 1, (int64_t[]){D}), 1e-6,
                      false);
}

static af_tensor *layer(af_graph *g, af_tensor *x, af_tensor *positions, af_tensor *freq,
                        af_tensor *bounds)
{
    const af_rope_opts rope = {.heads = HEADS, .kv_heads = KV, .head_dim = E};
    const af_attention_opts att = {.heads = HEADS, .kv_heads = KV, .head_dim = E, .causal = true};
    const int64_t q = HEADS * E, kv = KV * E;
    af_tensor *h = norm(g, x);
    af_tensor *parts[] = {linear(g, h, q, D), linear(g, h, kv, D), linear(g, h, kv, D)};
    h = af_rope(g, af_concat(g, parts, 3, 1), positions, freq, &rope);
    x = af_add(g, x, linear(g, af_attention(g, h, bounds, &att), D, q));
    h = norm(g, x);
    parts[0] = linear(g, h, F, D);
    parts[1] = linear(g, h, F, D);
    h = af_mul(g, af_silu(g, parts[0]), parts[1]);
    return af_add(g, x, linear(g, h, D, F));
}

static void decoder(af_graph *g)
{
    const int64_t rows = ROWS;
    af_tensor *ids = af_graph_input(g, "ids", AF_DTYPE_I32, 1, &rows);
    af_tensor *positions = af_graph_input(g, "positions", AF_DTYPE_I32, 1, &rows);
    af_tensor *labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, &rows);
    af_tensor *bounds = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){17});
    af_tensor *freq = af_graph_input(g, "freq", AF_DTYPE_F32, 1, (int64_t[]){E / 2});
    af_tensor *table = af_graph_weight(g, "table", AF_DTYPE_BF16, 2, (int64_t[]){32000, D});
    af_tensor *x = af_embedding(g, ids, table, AF_DTYPE_BF16);
    for (int i = 0; i < LAYERS; i++) {
        af_graph_set_block(g, i);
        x = layer(g, x, positions, freq, bounds);
    }
    af_graph_set_block(g, -1);
    af_graph_backward(g, af_head_loss(g, norm(g, x), table, labels, &(af_head_opts){0}));
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .max_grad_norm = 1});
}

static void test_planning_a_decoder_takes_less_than_50_ms(void **state)
{
    (void)state;
    af_error err = {0};
    af_device *d;
    af_plan_info info = {0};
    double best = 1e9;
    CHECK_OK(af_device_open(&d, "cpu", 1, &err), err);
    for (int i = 0; i < 4; i++) {
        af_graph *g;
        const double start = seconds();
        CHECK_OK(af_graph_new(&g, &err), err);
        decoder(g);
        af_graph_set_recompute(g, i % 2 ? AF_RECOMPUTE_BLOCK : AF_RECOMPUTE_NONE, LAYERS);
        CHECK_OK(af_graph_plan(g, d, &info, &err), err);
        const double took = seconds() - start;
        best = i % 2 && took < best ? took : best;
        if (i > 1)
            printf("%s: %d nodes, %.1f GiB of activations, %.1f ms\n",
                   i % 2 ? "recompute" : "keep all", info.nodes, (double)info.activations / 0x1p30,
                   took * 1e3);
        af_graph_free(g);
    }
    if (!sanitized())
        CHECK_MSG(best < SLOW * 0.050, "planning took %.1f ms", best * 1e3);
    af_device_close(d);
}

static void test_a_node_costs_less_than_a_microsecond(void **state)
{
    (void)state;
    enum { NODES = 2000, RUNS = 50 };
    af_error err = {0};
    af_device *d;
    af_graph *g;
    CHECK_OK(af_device_open(&d, "cpu", 1, &err), err);
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 1, (int64_t[]){1});
    for (int i = 0; i < NODES; i++)
        x = af_neg(g, x);
    af_graph_output(g, x);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    const double start = seconds();
    for (int i = 0; i < RUNS; i++)
        CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, &err), err);
    const double each = (seconds() - start) / (NODES * RUNS);
    printf("%.0f ns per node\n", each * 1e9);
    if (!sanitized())
        CHECK_MSG(each < SLOW * 1e-6, "a node takes %.0f ns", each * 1e9);
    af_graph_free(g);
    af_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planning_a_decoder_takes_less_than_50_ms),
        cmocka_unit_test(test_a_node_costs_less_than_a_microsecond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
