/* case_bf16.h - full fine-tuning of weights in bf16; part of case_list.h. */
#ifndef AF_CASE_BF16_H
#define AF_CASE_BF16_H

#include "backend/case_optimizers.h"

static af_tensor *bf16_param(rec *r, int ndim, const int64_t *dim, double lo, double hi)
{
    return rec_add(r, af_graph_param(r->g, "w", AF_DTYPE_BF16, ndim, dim), lo, hi);
}

static af_tensor *bf16_matrix(rec *r, int64_t rows, int64_t cols)
{
    return bf16_param(r, 2, (int64_t[]){rows, cols}, -0.2, 0.2);
}

static af_tensor *bf16_vector(rec *r, int64_t n) { return bf16_param(r, 1, &n, 0.5, 1); }

/* A block of a tied model: q, k and v are three weights with biases. Gradients are compared, or
 * the weights after an update. */
static void train_bf16(rec *r, bool update)
{
    enum { N = 48, D = 64, H = 4, K = 2, E = 16, F = 96, V = 53 };
    static int32_t id[N], at[N], label[N];
    static const int32_t bounds[] = {0, 20, 48};
    for (int i = 0; i < N; i++) {
        id[i] = i * 7 % V;
        at[i] = i < 20 ? i : i - 20;
        label[i] = i % 5 == 0 ? -100 : (i * 11 + 3) % V;
    }
    af_graph *g = r->g;
    const af_dtype t = r->t == AF_DTYPE_F16 ? AF_DTYPE_F32 : r->t; /* f16 has no bf16 norms */
    af_tensor *table = bf16_matrix(r, V, D), *res;
    af_tensor *x = af_embedding(g, ints(r, N, id), table, t);
    af_tensor *f = rec_add(r, af_graph_input(g, "f", AF_DTYPE_F32, 1, (int64_t[]){E / 2}), 0.01, 1);
    af_tensor *pos = ints(r, N, at), *b = ints(r, 3, bounds), *labels = ints(r, N, label);
    af_linear_opts qkv_opts = {.pieces = 3}, gate_up = {.pieces = 2};
    for (int i = 0; i < 3; i++) {
        const int64_t rows = (i ? K : H) * E;
        qkv_opts.weight[i] = bf16_matrix(r, rows, D);
        qkv_opts.bias[i] = bf16_vector(r, rows);
    }
    for (int i = 0; i < 2; i++)
        gate_up.weight[i] = bf16_matrix(r, F, D);
    af_graph_set_block(g, 0);
    af_tensor *h = af_rmsnorm(g, x, bf16_vector(r, D), 1e-6, false);
    af_tensor *qkv = af_linear(g, h, &qkv_opts);
    qkv = af_rope(g, qkv, pos, f, &(af_rope_opts){.heads = H, .kv_heads = K, .head_dim = E});
    h = af_attention(
        g, qkv, b, &(af_attention_opts){.heads = H, .kv_heads = K, .head_dim = E, .causal = true});
    h = af_linear(g, h, &(af_linear_opts){.weight = {bf16_matrix(r, D, H * E)}, .pieces = 1});
    h = af_rmsnorm_add(g, h, x, bf16_vector(r, D), 1e-6, false, &res);
    h = af_glu(g, af_linear(g, h, &gate_up), AF_ACT_SILU);
    h = af_linear(g, h, &(af_linear_opts){.weight = {bf16_matrix(r, D, F)}, .pieces = 1});
    af_graph_set_block(g, -1);
    h = af_rmsnorm_add(g, h, res, bf16_vector(r, D), 1e-6, false, &res);
    af_tensor *loss = af_head_loss(g, h, table, labels, &(af_head_opts){.chunk_rows = 32});
    out(r, loss);
    af_graph_backward(g, loss);
    if (update)
        af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW,
                                                   .max_grad_norm = 1.0,
                                                   .rounding = AF_ROUNDING_KAHAN});
    af_graph_set_learning_rate(g, 1e-3);
    r->step = update;
    for (int i = 0; i < r->leaves; i++)
        if (r->leaf[i].t->role == AF_ROLE_PARAM)
            r->out[r->outs++] = update ? r->leaf[i].t : r->leaf[i].t->grad;
}
static void case_block_bf16(rec *r) { train_bf16(r, false); }
static void case_train_bf16(rec *r) { train_bf16(r, true); }
#endif
