/* case_decode.h - graphs of the decoder: adapters chosen per row (row_adapter.c), and tokens
 * (token_draw.c). */
#ifndef AF_CASE_DECODE_H
#define AF_CASE_DECODE_H

#include "backend/cases.h"
#include "ops/head/token_draw.h"
#include "ops/linear/row_adapter.h"

/* Two parts of different ranks; rows of three adapters and of none. */
static void case_row_adapters(rec *r)
{
    enum { N = 9, I = 72, O = 50, R = 6, C = 3 };
    static const int32_t which[N] = {2, 0, -100, 1, 1, -100, 0, 2, 2},
                         rank[2 * C] = {6, 4, 0, 5, 1, 0};
    af_tensor *x = in_2(r, N, I), *y = in_2(r, N, O);
    const af_row_adapter o = {
        .a = rec_add(r, af_graph_weight(r->g, "a", AF_DTYPE_F32, 3, (int64_t[]){C, 2 * R, I}), -1,
                     1),
        .b = rec_add(r, af_graph_weight(r->g, "b", AF_DTYPE_F32, 2, (int64_t[]){C, 40 * R}), -1, 1),
        .scale = weight_1(r, AF_DTYPE_F32, 2 * C),
        .rank = ints(r, 2 * C, rank),
        .part = {{.out_from = 0, .out_rows = 12}, {.out_from = 22, .out_rows = 28}},
        .parts = 2,
        .ranks = R};
    out(r, af_row_adapters(r->g, af_scale(r->g, y, 0.5), x, ints(r, N, which), &o));
}
/* The largest, temperature, top-k, top-p, min-p, and a row that wants nothing. */
static void token_draw(rec *r, int64_t V, double scale)
{
    enum { N = 7 };
    static const double want[N][AF_DRAW_WANTS] = {
        {0, 0, 0, 0, 0.5, 5},    {1, 0, 0, 0, 0.3, 0},       {0.7, 40, 0, 0, 0.9, -1},
        {1, 0, 0.9, 0, 0.6, 20}, {1.5, 0, 0, 0.05, 0.7, -1}, {0.9, 500, 0.95, 0.01, 0.8, 1},
        {-1, 0, 0, 0, 0, -1}};
    af_tensor *top, *x = af_scale(r->g, in_2(r, N, V), scale);
    const int64_t dim[2] = {N, AF_DRAW_WANTS};
    af_tensor *w = rec_add(r, af_graph_input(r->g, "want", AF_DTYPE_F64, 2, dim), 0, 0);
    r->leaf[r->leaves - 1].bytes = want;
    out(r, af_token_draw(r->g, x, w, &top));
    out(r, top);
}
static void case_token_draw(rec *r) { token_draw(r, 5000, 9); }
/* Logits that are all equal or nearly. */
static void case_token_draw_flat(rec *r) { token_draw(r, 3001, 0.01); }
#endif
