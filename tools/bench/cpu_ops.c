/* cpu_ops.c - the fused CPU kernels at the shapes of the 135M model, processor time of one thread:
 * the other half of cpu_ops.py. Development only, built by hand:
 *
 *   cc -O2 -Iinclude -Isrc tools/bench/cpu_ops.c build/libafinar.a -ljansson -lyaml -lm -lpthread
 * -ldl
 *
 *   cpu_ops [rows [f32|bf16 [name]]]     name: only ops whose name begins so
 *
 * One JSON object per line: op, rows, dtype, cpu_ms (best of about a second). */
#define _POSIX_C_SOURCE 200809L
#include "backend/cpu/cpu.h"
#include "base/rng.h"

#include <stdlib.h>
#include <time.h>

enum { D = 576, F = 1536, H = 9, K = 3, E = 64, V = 49152 };

static int64_t rows = 512;
static af_dtype type = AF_DTYPE_F32;

static double now(bool wall)
{
    struct timespec t;
    clock_gettime(wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef af_tensor *build(af_graph *g);

static af_tensor *input(af_graph *g, const char *name, int64_t cols)
{
    return af_graph_input(g, name, type, 2, (int64_t[]){rows, cols});
}
/* An activation that needs a gradient: its producer copies and adds no significant time. */
static af_tensor *rows_of(af_graph *g, int64_t cols)
{
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){rows, cols});
    return type == AF_DTYPE_F32 ? p : af_cast(g, p, type);
}
static af_tensor *build_rmsnorm(af_graph *g)
{
    return af_rmsnorm(g, rows_of(g, D), af_graph_param(g, "w", AF_DTYPE_F32, 1, (int64_t[]){D}),
                      1e-5, 0);
}
static af_tensor *build_glu(af_graph *g) { return af_glu(g, rows_of(g, 2 * F), AF_ACT_SILU); }
static af_tensor *build_rope(af_graph *g)
{
    af_tensor *p = af_graph_input(g, "positions", AF_DTYPE_I32, 1, (int64_t[]){rows}),
              *f = af_graph_input(g, "inv_freq", AF_DTYPE_F32, 1, (int64_t[]){E / 2});
    return af_rope(g, rows_of(g, (H + 2 * K) * E), p, f,
                   &(af_rope_opts){.heads = H, .kv_heads = K, .head_dim = E});
}
static af_tensor *build_attention(af_graph *g)
{
    af_tensor *b = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
    return af_attention(
        g, rows_of(g, (H + 2 * K) * E), b,
        &(af_attention_opts){.heads = H, .kv_heads = K, .head_dim = E, .causal = true});
}
static af_tensor *build_head(af_graph *g)
{
    af_tensor *w = af_graph_weight(g, "w", type, 2, (int64_t[]){V, D}),
              *l = af_graph_input(g, "labels", AF_DTYPE_I32, 1, (int64_t[]){rows});
    return af_head_loss(g, rows_of(g, D), w, l, &(af_head_opts){0});
}
static int64_t out_cols, in_cols;
static af_tensor *build_mm(af_graph *g)
{
    af_tensor *w = af_graph_weight(g, "w", type, 2, (int64_t[]){out_cols, in_cols});
    return af_matmul(g, input(g, "x", in_cols), w, AF_MATMUL_NT);
}

/* Where activations lie, and with work_apart the nodes' workspaces among them. */
static uint8_t *arena_of(const af_graph *g)
{
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *t = g->tensors[i];
        if (t->role == AF_ROLE_ACTIVATION && !t->base && !t->bound && t->first >= 0 && t->data)
            return (uint8_t *)t->data - t->offset;
    }
    exit(1);
}

/* Only the nodes of the op in question are timed: casts and sums of the frame are left out. */
static double time_nodes(af_graph *g, af_cpu *cpu, const af_op *ops, int n)
{
    double sum = 0;
    uint8_t *arena = arena_of(g);
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *node = g->nodes[i];
        const af_cpu_op *k = node->exec;
        for (int o = 0; k && o < n; o++)
            if (node->op == ops[o]) {
                cpu->work = arena + node->work_offset;
                const double t = now(false);
                k->run(node, cpu);
                sum += now(false) - t;
            }
    }
    return sum;
}

static const char *only = ""; /* ops whose name begins so */

static void measure(const char *name, build *make, const af_op *ops, int n, double flops)
{
    if (strncmp(name, only, strlen(only)) != 0)
        return;
    af_error err = {0};
    af_graph *g;
    af_device *d;
    if (af_graph_new(&g, &err) != AF_OK || af_cpu_open(&d, 1, &err) != AF_OK)
        exit(1);
    ((af_cpu *)d)->work_apart = true;
    af_tensor *y = make(g);
    af_graph_output(g, y);
    if (make != build_mm) { /* with an optimizer, as in training: memory in large pages */
        af_graph_backward(g, make == build_head ? y : af_sum_all(g, y));
        af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW});
    }
    if (af_graph_prepare(g, d, &err) != AF_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        const bool leaf = t->role != AF_ROLE_ACTIVATION && t->role != AF_ROLE_GRADIENT;
        for (int64_t k = 0; leaf && t->data && af_dtype_is_float(t->dtype) && k < af_count(t); k++)
            af_st(t, k, af_rng_f64(1, (uint64_t)t->id, (uint64_t)k) - 0.5);
        for (int64_t k = 0; t->dtype == AF_DTYPE_I32 && t->role == AF_ROLE_INPUT && k < af_count(t);
             k++)
            ((int32_t *)t->data)[k] = strcmp(t->name, "bounds") ? (int32_t)k : (int32_t)(k * rows);
    }
    double best = 1e9;
    (void)!af_graph_run(g, make == build_mm ? AF_RUN_FORWARD : AF_RUN_GRAD, &err);
    const double begin = now(true);
    for (int i = 0; i < 3 || now(true) - begin < 1.5; i++) {
        const double t = time_nodes(g, (af_cpu *)d, ops, n);
        best = t < best ? t : best;
    }
    printf("{\"by\": \"afinar\", \"op\": \"%s\", \"rows\": %d, \"dtype\": \"%s\", \"cpu_ms\": %.4f",
           name, (int)rows, af_dtype_name(type), best * 1e3);
    if (flops > 0)
        printf(", \"gflops\": %.1f", flops / best * 1e-9);
    printf("}\n");
    af_graph_free(g);
    af_device_close(d);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int64_t out, in;
    } gemms[] = {
        {"mm qkv", 960, D}, {"mm gate_up", 2 * F, D}, {"mm down", D, F}, {"mm head", V, D}};
    rows = argc > 1 ? strtol(argv[1], NULL, 10) : rows;
    type = argc > 2 && strcmp(argv[2], "bf16") == 0 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    only = argc > 3 ? argv[3] : only;
    measure("rmsnorm forward+backward", build_rmsnorm,
            (af_op[]){AF_OP_RMSNORM, AF_OP_RMSNORM_BWD, AF_OP_RMSNORM_DW}, 3, 0);
    measure("swiglu forward+backward", build_glu, (af_op[]){AF_OP_GLU, AF_OP_GLU_BWD}, 2, 0);
    measure("rope forward+backward", build_rope, (af_op[]){AF_OP_ROPE, AF_OP_ROPE_BWD}, 2, 0);
    measure("attention forward+backward", build_attention,
            (af_op[]){AF_OP_ATTENTION, AF_OP_ATTENTION_BWD}, 2, 0);
    measure("head and loss forward+backward", build_head, (af_op[]){AF_OP_HEAD_LOSS}, 1, 0);
    for (size_t i = 0; i < AF_LEN(gemms); i++) {
        out_cols = gemms[i].out;
        in_cols = gemms[i].in;
        measure(gemms[i].name, build_mm, (af_op[]){AF_OP_MATMUL}, 1,
                2.0 * (double)rows * (double)out_cols * (double)in_cols);
    }
    return 0;
}
