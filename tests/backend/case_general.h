/* case_general.h - ops of any network: elements, products, sums, norms, losses. */
#ifndef AF_CASE_GENERAL_H
#define AF_CASE_GENERAL_H

#include "backend/cases.h"

static void case_binary(rec *r)
{
    af_tensor *a = act_2(r, 5, 37), *b = act_2(r, 5, 37);
    af_tensor *row = param_n(r, 1, (int64_t[]){37}, 0.5, 1.5);
    row = r->t == AF_DTYPE_F32 ? row : af_cast(r->g, row, r->t);
    af_tensor *y = af_sub(r->g, af_mul(r->g, af_add(r->g, a, b), a), b);
    finish(r, af_div(r->g, y, row));
}
static void case_unary(rec *r)
{
    af_tensor *x = act_2(r, 3, 67);
    af_graph *g = r->g;
    af_tensor *y = af_gelu(g, x);
    y = af_add(g, y, af_gelu_tanh(g, x));
    y = af_add(g, y, af_silu(g, x));
    y = af_add(g, y, af_relu(g, x));
    y = af_add(g, y, af_tanh(g, x));
    y = af_add(g, y, af_sigmoid(g, x));
    y = af_add(g, y, af_softcap(g, x, 0.7));
    y = af_add(g, y, af_clip(g, x, 0.4));
    y = af_add(g, y, af_neg(g, af_scale(g, x, 0.3)));
    finish(r, y);
}
static void case_unary_positive(rec *r)
{
    af_tensor *x = param_n(r, 2, (int64_t[]){4, 33}, 0.5, 2);
    x = r->t == AF_DTYPE_F32 ? x : af_cast(r->g, x, r->t);
    af_tensor *y = af_log(r->g, x);
    y = af_add(r->g, y, af_sqrt(r->g, x));
    finish(r, af_add(r->g, y, af_exp(r->g, x)));
}
static void case_matmul(rec *r)
{
    af_tensor *a = act_2(r, 37, 50), *b = act_2(r, 50, 41), *c = act_2(r, 29, 41);
    finish(r, af_matmul(r->g, af_matmul(r->g, a, b, AF_MATMUL_NN), c, AF_MATMUL_NT));
}
static void case_matmul_tn(rec *r)
{
    af_tensor *a = act_2(r, 37, 50), *b = act_2(r, 37, 24), *c = act_2(r, 16, 50);
    finish(r, af_matmul(r->g, af_matmul(r->g, a, b, AF_MATMUL_TN), c, AF_MATMUL_TT));
}
/* Rows aligned to 16 bytes, more than one tile in each dimension, edges inside tiles; gradients use
 * every layout. */
static void case_matmul_tiles(rec *r)
{
    af_tensor *a = act_2(r, 203, 136), *b = act_2(r, 136, 152), *c = act_2(r, 144, 152);
    finish(r, af_matmul(r->g, af_matmul(r->g, a, b, AF_MATMUL_NN), c, AF_MATMUL_NT));
}
static void case_matmul_batched(rec *r)
{
    af_tensor *a = param_n(r, 3, (int64_t[]){3, 17, 24}, -1, 1);
    af_tensor *b = param_n(r, 3, (int64_t[]){3, 19, 24}, -1, 1);
    if (r->t != AF_DTYPE_F32) {
        a = af_cast(r->g, a, r->t);
        b = af_cast(r->g, b, r->t);
    }
    finish(r, af_matmul(r->g, a, b, AF_MATMUL_NT));
}
static void case_shape(rec *r)
{
    af_tensor *a = act_2(r, 6, 20), *b = act_2(r, 6, 12);
    af_tensor *y = af_concat(r->g, (af_tensor *[]){a, b}, 2, 1);
    y = af_slice(r->g, y, 1, 3, 24);
    y = af_transpose(r->g, y, (int[]){1, 0});
    finish(r, af_reshape(r->g, y, 2, (int64_t[]){12, 12}));
}
static void case_reduce(rec *r)
{
    af_tensor *x = act_2(r, 9, 65);
    af_tensor *y = af_sum(r->g, x, 1, true);
    y = af_add(r->g, y, af_mean(r->g, x, -1, true));
    finish(r, af_add(r->g, y, af_max(r->g, x, 1, true)));
}
/* Rows that are added up, with whole accesses and without, in several parts; and long rows. */
static void case_sums(rec *r)
{
    af_tensor *x = act_2(r, 200, 64), *y = act_2(r, 130, 37);
    af_tensor *s = af_sum(r->g, x, 0, true), *t = af_mean(r->g, y, 0, true);
    af_tensor *u = af_sum(r->g, act_2(r, 4100, 260), 1, true);
    finish(r, af_concat(r->g, (af_tensor *[]){s, t, af_reshape(r->g, u, 2, (int64_t[]){1, 4100})},
                        3, 1));
}
static void case_softmax(rec *r)
{
    af_tensor *x = act_2(r, 7, 301);
    af_tensor *y = af_softmax(r->g, x);
    finish(r, af_add(r->g, y, af_log_softmax(r->g, x)));
}
static void case_softmax_wide(rec *r)
{
    af_tensor *x = act_2(r, 5, 2112);
    af_tensor *y = af_softmax(r->g, x);
    finish(r, af_add(r->g, y, af_log_softmax(r->g, x)));
}
static void case_layernorm_wide(rec *r)
{
    af_tensor *x = act_2(r, 35, 2304), *w = param_1(r, 2304), *b = param_1(r, 2304);
    finish(r, af_layernorm(r->g, x, w, b, 1e-5));
}
/* Nobody wants the gradient of its scales. */
static void case_layernorm_frozen(rec *r)
{
    af_tensor *x = act_2(r, 7, 104);
    af_tensor *w = rec_add(r, af_graph_input(r->g, "w", r->t, 1, (int64_t[]){104}), -1, 1);
    af_tensor *b = rec_add(r, af_graph_input(r->g, "b", r->t, 1, (int64_t[]){104}), -1, 1);
    finish(r, af_layernorm(r->g, x, w, b, 1e-5));
}
static void case_layernorm(rec *r)
{
    af_tensor *x = act_2(r, 7, 100), *w = param_1(r, 100), *b = param_1(r, 100);
    finish(r, af_layernorm(r->g, x, w, b, 1e-5));
}
static void case_rmsnorm(rec *r)
{
    af_tensor *x = act_2(r, 13, 136), *w = param_1(r, 136);
    finish(r, af_rmsnorm(r->g, x, w, 1e-6, false));
}
static void case_rmsnorm_odd(rec *r)
{
    af_tensor *x = act_2(r, 5, 77), *w = param_1(r, 77);
    finish(r, af_rmsnorm(r->g, x, w, 1e-6, true));
}
static void case_rmsnorm_add(rec *r)
{
    af_tensor *sum, *x = act_2(r, 11, 128), *z = act_2(r, 11, 128),
                    *w = weight_1(r, AF_DTYPE_F32, 128);
    af_tensor *y = af_rmsnorm_add(r->g, x, z, w, 1e-6, false, &sum);
    finish(r, af_add(r->g, y, sum));
}
/* as at the end of a model's blocks: on the GPU the projection before a norm adds the residual */
static void case_residual(rec *r)
{
    enum { N = 4099, D = 64, F = 96, R = 16 };
    af_tensor *sum = act_2(r, N, D), *y = act_2(r, N, F);
    for (int i = 0; i < 2; i++) {
        af_linear_opts o = {.pieces = 1,
                            .weight = {weight_2(r, r->t, D, i ? D : F)},
                            .bias = {i ? NULL : weight_1(r, r->t, D)},
                            .parts = 1,
                            .a = param_n(r, 2, (int64_t[]){R, i ? D : F}, -0.2, 0.2),
                            .b = param_n(r, 1, (int64_t[]){D * R}, -0.2, 0.2),
                            .part = {{0, D, 0, R, 0.5f}}};
        y = af_rmsnorm_add(r->g, af_linear(r->g, y, &o), sum, weight_1(r, AF_DTYPE_F32, D), 1e-6,
                           false, &sum);
    }
    finish(r, af_add(r->g, y, sum));
}
static void case_residual_full(rec *r) /* weights that are trained: a GEMM for each piece */
{
    enum { N = 4096, D = 72 };
    af_tensor *sum = act_2(r, N, D);
    af_linear_opts o = {.pieces = 2, .weight = {param_2(r, 40, D), param_2(r, D - 40, D)}};
    af_tensor *y = af_rmsnorm_add(r->g, af_linear(r->g, act_2(r, N, D), &o), sum,
                                  weight_1(r, r->t, D), 1e-6, true, &sum);
    finish(r, af_add(r->g, y, sum));
}
static void case_embedding(rec *r)
{
    static const int32_t id[12] = {3, 0, 7, 3, 3, 12, 0, 1, 7, 5, 12, 3};
    finish(r, af_embedding(r->g, ints(r, 12, id), param_2(r, 13, 40), r->t));
}
static void case_dropout(rec *r)
{
    af_graph_set_seed(r->g, 99);
    finish(r, af_dropout(r->g, act_2(r, 10, 50), 0.3, 5));
}
static void case_noise(rec *r)
{
    static const int32_t bounds[] = {0, 3, 3, 8}; /* an empty sequence, two rows after the last */
    af_graph_set_seed(r->g, 12);
    finish(r, af_neftune_noise(r->g, act_2(r, 10, 50), ints(r, 4, bounds), 5, 9));
}
static void case_losses(rec *r)
{
    af_graph *g = r->g;
    af_tensor *x = act_2(r, 6, 21), *t = in_2(r, 6, 21);
    af_tensor *y = af_mse(g, x, t);
    y = af_add(g, y, af_l1(g, x, t));
    finish(r, af_add(g, y, af_huber(g, x, t, 0.5)));
}
static void case_cross_entropy(rec *r)
{
    static const int32_t label[9] = {3, -100, 7, 0, 54, 12, -100, 1, 20};
    finish(r, af_cross_entropy(r->g, act_2(r, 9, 55), ints(r, 9, label), 0.1));
}
static void case_fake_quant(rec *r)
{
    finish(r, af_fake_quant(r->g, act_2(r, 6, 64), 4, 32, true));
}
static void case_nvfp4(rec *r)
{
    static const int32_t rows = 5;
    af_tensor *x = act_2(r, 6, 64);
    finish(r, af_fake_float(r->g, x, AF_QAT_NVFP4, ints(r, 1, &rows), r->t));
}
static void case_mxfp4(rec *r)
{
    finish(r, af_fake_float(r->g, act_2(r, 6, 96), AF_QAT_MXFP4, NULL, AF_DTYPE_F32));
}
static void case_float8(rec *r)
{
    finish(r, af_fake_float(r->g, act_2(r, 6, 55), AF_QAT_FP8, NULL, r->t));
}
static void case_ternary(rec *r) { finish(r, af_ternary(r->g, act_2(r, 6, 64), AF_DTYPE_F32)); }
#endif
