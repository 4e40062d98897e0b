/* case_fp8.h - projections in FP8. */
#ifndef AF_CASE_FP8_H
#define AF_CASE_FP8_H

#include "backend/case_quant.h"

/* In FP8: kernels need bf16 and widths of 16; edges inside tiles, several stages of the inner
 * dimension. */
static void fp8_after(rec *r, double dropout, int64_t tokens, int64_t I, int64_t O, int rank,
                      af_tensor *w)
{
    const double small = 1.0 / sqrt((double)I);
    af_linear_opts o = {.weight = {w, weight_2(r, r->t, 32, I)},
                        .bias = {NULL, weight_1(r, r->t, 32)},
                        .pieces = 2,
                        .parts = rank > 0,
                        .fp8 = r->t == AF_DTYPE_BF16};
    if (rank) {
        o.a = param_n(r, 2, (int64_t[]){rank, I}, -small, small);
        o.b = param_n(r, 1, (int64_t[]){O * rank}, -0.3, 0.3);
        o.part[0] = (af_adapter_part){0, O, 0, rank, 0.5f};
    }
    af_tensor *x = normed(r, tokens, I);
    o.adapter_x = dropout > 0 ? af_dropout(r->g, x, dropout, 5) : NULL;
    af_tensor *y = af_linear(r->g, x, &o);
    finish(r, af_rmsnorm(r->g, y, weight_1(r, AF_DTYPE_F32, O + 32), 1e-6, false));
}
static void fp8(rec *r, int64_t tokens, int64_t I, int64_t O, int rank, af_tensor *w)
{
    fp8_after(r, 0, tokens, I, O, rank, w);
}
static void case_fp8_dropout(rec *r)
{
    fp8_after(r, 0.3, 150, 272, 224, 8, weight_2(r, r->t, 224, 272));
}
static void case_fp8(rec *r) { fp8(r, 37, 64, 96, 0, weight_2(r, r->t, 96, 64)); }
static void case_fp8_lora(rec *r) { fp8(r, 150, 272, 224, 8, weight_2(r, r->t, 224, 272)); }
static void case_fp8_high_rank(rec *r) { fp8(r, 21, 96, 64, 72, weight_2(r, r->t, 64, 96)); }
/* Sums of more than 512 codes, seven tiles. */
static void case_fp8_long(rec *r) { fp8(r, 20, 784, 1312, 16, weight_2(r, r->t, 1312, 784)); }
static void case_fp8_nf4(rec *r) { fp8(r, 130, 320, 160, 16, nf4_weight(r, 160, 320)); }
/* A gated unit between two of them; the norm and its gradient write their rows as codes. */
static void fp8_unit(rec *r, int64_t tokens, int64_t D, int64_t F)
{
    const bool fp8 = r->t == AF_DTYPE_BF16;
    af_linear_opts up = {.weight = {weight_2(r, r->t, F, D), weight_2(r, r->t, F, D)},
                         .pieces = 2,
                         .a = param_n(r, 2, (int64_t[]){32, D}, -0.2, 0.2),
                         .b = param_n(r, 1, (int64_t[]){F * 32}, -0.2, 0.2),
                         .part = {{0, F, 0, 16, 0.5f}, {F, F, 16, 16, 0.5f}},
                         .parts = 2,
                         .fp8 = fp8},
                   down = {.weight = {weight_2(r, r->t, D, F)},
                           .pieces = 1,
                           .a = param_n(r, 2, (int64_t[]){16, F}, -0.2, 0.2),
                           .b = param_n(r, 1, (int64_t[]){D * 16}, -0.2, 0.2),
                           .part = {{0, D, 0, 16, 0.5f}},
                           .parts = 1,
                           .fp8 = fp8};
    af_tensor *y = af_glu(r->g, af_linear(r->g, normed(r, tokens, D), &up), AF_ACT_SILU);
    finish(r,
           af_rmsnorm(r->g, af_linear(r->g, y, &down), weight_1(r, AF_DTYPE_F32, D), 1e-6, false));
}
static void case_fp8_glu(rec *r) { fp8_unit(r, 75, 48, 176); }
/* Several strips of columns, tiles of gate, of up and of both. */
static void case_fp8_glu_wide(rec *r) { fp8_unit(r, 140, 64, 1136); }

/* A code on an edge may round to either side. */
#define FP8_CASES                                                                                  \
    {"fp8", case_fp8, 2e-2}, {"fp8_lora", case_fp8_lora, 2e-2},                                    \
        {"fp8_dropout", case_fp8_dropout, 2e-2}, {"fp8_high_rank", case_fp8_high_rank, 2e-2},      \
        {"fp8_glu", case_fp8_glu, 4e-2}, {"fp8_glu_wide", case_fp8_glu_wide, 4e-2},                \
        {"fp8_long", case_fp8_long, 2e-2},                                                         \
    {                                                                                              \
        "fp8_nf4", case_fp8_nf4, 2e-2                                                              \
    }
#endif
