/* case_quant.h - the cases with frozen weights in blocks; part of case_list.h. */
#ifndef AF_CASE_QUANT_H
#define AF_CASE_QUANT_H

#include "backend/cases.h"

/* x is the output of a norm and the input of one, as in a block: its rows may be padded. */
static af_tensor *normed(rec *r, int64_t n, int64_t d)
{
    return af_rmsnorm(r->g, act_2(r, n, d), weight_1(r, AF_DTYPE_F32, d), 1e-6, false);
}

/* The scales alone: their mean is an argument of launches. */
static void block_maxima(const float *x, int64_t n, int block, float *absmax)
{
    for (int64_t i = 0; i < n; i++)
        absmax[i / block] = fmaxf(absmax[i / block], fabsf(x[i]));
}

/* A frozen weight in 4 bits made of random values; nested: scales are quantised too. */
static af_tensor *bnb_weight(rec *r, af_dtype t, int64_t O, int64_t I, int block, bool twice)
{
    const int64_t n = O * I, blocks = (n + block - 1) / block, nests = (blocks + 255) / 256;
    float *x = calloc((size_t)n, 4), *absmax = calloc((size_t)blocks, 4);
    float *nested = calloc((size_t)nests, 4);
    uint8_t *codes = calloc((size_t)n / 2, 1), *q = calloc((size_t)blocks, 1);
    af_quant *quant = af_arena_take(&r->g->mem, sizeof *quant);
    uint32_t h = 7;
    for (int64_t i = 0; i < n; i++) {
        h = h * 1664525 + 1013904223;
        x[i] = (float)(h >> 8) / 16777216.0f - 0.5f;
    }
    if (r->blank)
        block_maxima(x, n, block, absmax);
    else
        af_bnb_encode(t, x, n, block, codes, absmax);
    *quant = (af_quant){.block = block, .nested_block = twice ? 256 : 0, .round = r->t};
    quant->offset = twice ? af_bnb_offset(absmax, blocks) : 0;
    if (twice)
        af_bnb_nest(absmax, blocks, quant->offset, q, nested);
    quant->absmax = rec_add(
        r, af_graph_weight(r->g, "absmax", twice ? AF_DTYPE_U8 : AF_DTYPE_F32, 1, &blocks), 0, 0);
    r->leaf[r->leaves - 1].bytes = twice ? (void *)q : (void *)absmax;
    if (twice) {
        quant->nested = rec_add(r, af_graph_weight(r->g, "nested", AF_DTYPE_F32, 1, &nests), 0, 0);
        r->leaf[r->leaves - 1].bytes = nested;
    }
    af_tensor *w = rec_add(r, af_graph_weight(r->g, "four", t, 2, (int64_t[]){O, I}), 0, 0);
    r->leaf[r->leaves - 1].bytes = codes;
    w->quant = quant;
    free(x);
    r->owned[r->n_owned++] = absmax;
    r->owned[r->n_owned++] = codes;
    r->owned[r->n_owned++] = q;
    r->owned[r->n_owned++] = nested;
    return w;
}
static af_tensor *nf4_weight(rec *r, int64_t O, int64_t I)
{
    return bnb_weight(r, AF_DTYPE_NF4, O, I, 64, true);
}
/* int8 rows as LLM.int8 has them. */
static af_tensor *int8_weight(rec *r, int64_t O, int64_t I)
{
    float *x = calloc((size_t)I, 4), *absmax = calloc((size_t)O, 4);
    int8_t *codes = calloc((size_t)(O * I), 1);
    af_quant *quant = af_arena_take(&r->g->mem, sizeof *quant);
    uint32_t h = 5;
    for (int64_t o = 0; o < O; o++) {
        for (int64_t i = 0; i < I; i++) {
            h = h * 1664525 + 1013904223;
            x[i] = (float)(h >> 8) / 16777216.0f - 0.5f;
        }
        absmax[o] = af_int8_encode_row(x, I, codes + o * I);
    }
    *quant = (af_quant){.round = r->t};
    quant->absmax = rec_add(r, af_graph_weight(r->g, "absmax", AF_DTYPE_F32, 1, &O), 0, 0);
    r->leaf[r->leaves - 1].bytes = absmax;
    af_tensor *w =
        rec_add(r, af_graph_weight(r->g, "int8", AF_DTYPE_I8, 2, (int64_t[]){O, I}), 0, 0);
    r->leaf[r->leaves - 1].bytes = codes;
    w->quant = quant;
    free(x);
    r->owned[r->n_owned++] = absmax;
    r->owned[r->n_owned++] = codes;
    return w;
}
static af_tensor *gguf_weight(rec *r, af_dtype t, int64_t O, int64_t I)
{
    const int64_t n = O * I;
    float *x = calloc((size_t)n, 4);
    af_tensor *w = rec_add(r, af_graph_weight(r->g, "q", t, 2, (int64_t[]){O, I}), 0, 0);
    uint8_t *data = calloc(af_tensor_bytes(w) + 1, 1);
    uint32_t h = 11;
    for (int64_t i = 0; i < n; i++) {
        h = h * 1664525 + 1013904223;
        x[i] = (float)(h >> 8) / 16777216.0f - 0.5f;
    }
    for (int64_t o = 0; o < O && !r->blank; o++)
        af_codec_encode_row(t, x + o * I, data + (uint64_t)o * (af_tensor_bytes(w) / (uint64_t)O),
                            I, NULL);
    r->leaf[r->leaves - 1].bytes = data;
    r->owned[r->n_owned++] = data;
    free(x);
    return w;
}
static void quantised(rec *r, af_tensor *w0, af_tensor *w1, int64_t I)
{
    af_linear_opts o = {.weight = {w0, w1}, .pieces = 2, .parts = 2};
    o.a = param_n(r, 2, (int64_t[]){16, I}, -0.1, 0.1);
    o.b = param_n(r, 1, (int64_t[]){48 * 8}, -0.1, 0.1);
    o.part[0] = (af_adapter_part){0, 32, 0, 8, 0.5f};
    o.part[1] = (af_adapter_part){32, 16, 8, 8, 0.5f};
    af_tensor *y = af_linear(r->g, normed(r, 21, I), &o);
    finish(r, af_rmsnorm(r->g, y, weight_1(r, AF_DTYPE_F32, 48), 1e-6, false));
}
static void case_nf4(rec *r)
{
    af_tensor *a = nf4_weight(r, 32, 128);
    quantised(r, a, nf4_weight(r, 16, 128), 128);
}
static void case_int8(rec *r)
{
    af_tensor *a = int8_weight(r, 32, 128);
    quantised(r, a, int8_weight(r, 16, 128), 128);
}
/* No adapter, rows that are not whole groups of eight; the gradient passes through. */
static void case_int8_odd(rec *r)
{
    const af_linear_opts o = {.weight = {int8_weight(r, 37, 60), int8_weight(r, 20, 60)},
                              .bias = {NULL, weight_1(r, r->t, 20)},
                              .pieces = 2};
    finish(r, af_linear(r->g, act_2(r, 3, 60), &o));
}
static void case_gguf(rec *r)
{
    af_tensor *a = gguf_weight(r, AF_DTYPE_Q4_K, 32, 256);
    quantised(r, a, gguf_weight(r, AF_DTYPE_Q6_K, 16, 256), 256);
}
static void case_gguf_fp4(rec *r)
{
    af_tensor *a = gguf_weight(r, AF_DTYPE_MXFP4, 32, 256);
    quantised(r, a, gguf_weight(r, AF_DTYPE_NVFP4, 16, 256), 256);
}
static void case_gguf_iq3(rec *r)
{
    af_tensor *a = gguf_weight(r, AF_DTYPE_IQ3_S, 32, 256);
    quantised(r, a, gguf_weight(r, AF_DTYPE_IQ3_XXS, 16, 256), 256);
}
static void case_gguf_iq2(rec *r)
{
    af_tensor *a = gguf_weight(r, AF_DTYPE_IQ2_S, 32, 256);
    quantised(r, a, gguf_weight(r, AF_DTYPE_IQ4_XS, 16, 256), 256);
}
static void case_gguf_ternary(rec *r)
{
    af_tensor *a = gguf_weight(r, AF_DTYPE_TQ1_0, 32, 256);
    quantised(r, a, gguf_weight(r, AF_DTYPE_TQ2_0, 16, 256), 256);
}
/* Three pieces whose borders lie inside tiles, a bias, ranks that are not a multiple of 16: what
 * few tokens read directly from 4 bits (bnb_linear.cu). */
static void three_after(rec *r, double dropout, int64_t tokens, int64_t I, int64_t wide)
{
    const int64_t from[] = {0, wide, wide + 24};
    const int ranks[] = {8, 5, 11};
    af_linear_opts o = {
        .weight = {nf4_weight(r, wide, I), nf4_weight(r, 24, I), nf4_weight(r, 32, I)},
        .bias = {weight_1(r, r->t, wide), NULL, weight_1(r, r->t, 32)},
        .pieces = 3,
        .parts = 3};
    const int64_t rows[] = {wide, 24, 32};
    int64_t b = 0;
    for (int i = 0, at = 0; i < 3; at += ranks[i++]) {
        o.part[i] = (af_adapter_part){from[i], rows[i], at, ranks[i], 0.5f};
        b += rows[i] * ranks[i];
    }
    o.a = param_n(r, 2, (int64_t[]){24, I}, -0.1, 0.1);
    o.b = param_n(r, 1, &b, -0.1, 0.1);
    af_tensor *x = normed(r, tokens, I);
    o.adapter_x = dropout > 0 ? af_dropout(r->g, x, dropout, 5) : NULL;
    af_tensor *y = af_linear(r->g, x, &o);
    finish(r, af_rmsnorm(r->g, y, weight_1(r, AF_DTYPE_F32, wide + 56), 1e-6, false));
}
static void three(rec *r, int64_t tokens, int64_t I, int64_t wide)
{
    three_after(r, 0, tokens, I, wide);
}
static void case_nf4_dropout(rec *r) { three_after(r, 0.3, 7, 192, 40); }
static void case_nf4_three(rec *r) { three(r, 7, 192, 40); }
static void case_nf4_64_tokens(rec *r) { three(r, 64, 320, 40); }
static void case_nf4_long(rec *r) { three(r, 5, 1088, 136); }
/* Enough rows that several blocks share a column of dx. */
static void case_nf4_many_rows(rec *r) { three(r, 29, 128, 1000); }
/* No adapter, 37 + 20 rows, scales in f32, blocks of 128; the gradient passes through. */
static void case_nf4_odd(rec *r)
{
    af_tensor *w = bnb_weight(r, AF_DTYPE_NF4, 37, 64, 128, false);
    const af_linear_opts o = {.weight = {w, bnb_weight(r, AF_DTYPE_NF4, 20, 64, 128, false)},
                              .bias = {NULL, weight_1(r, r->t, 20)},
                              .pieces = 2};
    finish(r, af_linear(r->g, act_2(r, 3, 64), &o));
}
/* No adapter: what Hopper multiplies from 4 bits (bnb_linear_sm90.cu). Pieces end
 * inside tiles of 64 rows, rows inside boxes of 256 values. */
static void plain(rec *r, af_dtype t, int64_t tokens, int64_t I, int64_t wide, int64_t block)
{
    const bool nested = block == 64;
    const af_linear_opts o = {.weight = {bnb_weight(r, t, wide, I, block, nested),
                                         bnb_weight(r, t, 24, I, block, nested),
                                         bnb_weight(r, t, 70, I, block, nested)},
                              .bias = {weight_1(r, r->t, wide), NULL, weight_1(r, r->t, 70)},
                              .pieces = 3};
    finish(r, af_linear(r->g, act_2(r, tokens, I), &o));
}
/* bnb_linear_few.cu: tiles of 8 rows, units of 256 values. */
static void case_plain_nf4_1(rec *r) { plain(r, AF_DTYPE_NF4, 1, 1792, 2000, 64); }
static void case_plain_fp4_2(rec *r) { plain(r, AF_DTYPE_FP4, 2, 768, 137, 64); }
static void case_plain_nf4_1_wide(rec *r) { plain(r, AF_DTYPE_NF4, 1, 5120, 4111, 64); }
static void case_plain_nf4_5(rec *r) { plain(r, AF_DTYPE_NF4, 5, 704, 100, 64); }
static void case_plain_nf4_12(rec *r) { plain(r, AF_DTYPE_NF4, 12, 512, 136, 256); }
static void case_plain_nf4_17(rec *r) { plain(r, AF_DTYPE_NF4, 17, 64, 64, 64); }
static void case_plain_nf4_33(rec *r) { plain(r, AF_DTYPE_NF4, 33, 448, 200, 64); }
static void case_plain_nf4_64(rec *r) { plain(r, AF_DTYPE_NF4, 64, 1088, 333, 128); }
static void case_plain_nf4_100(rec *r) { plain(r, AF_DTYPE_NF4, 100, 576, 130, 64); }
static void case_plain_nf4_250(rec *r) { plain(r, AF_DTYPE_NF4, 250, 832, 129, 64); }
static void case_plain_fp4_256(rec *r) { plain(r, AF_DTYPE_FP4, 256, 320, 72, 64); }
/* More tiles than multiprocessors, so that blocks take one after another. */
static void case_plain_nf4_many(rec *r) { plain(r, AF_DTYPE_NF4, 40, 64, 17100, 64); }
/* A second launch for what a round of all multiprocessors leaves. */
static void case_plain_nf4_rest(rec *r) { plain(r, AF_DTYPE_NF4, 130, 1088, 17100, 64); }
static void case_fp4(rec *r)
{
    const af_linear_opts o = {.weight = {bnb_weight(r, AF_DTYPE_FP4, 64, 256, 64, true)},
                              .pieces = 1};
    finish(r, af_linear(r->g, act_2(r, 17, 256), &o));
}
#endif
