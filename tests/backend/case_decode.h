/* case_decode.h - graphs of the decoder: adapters chosen per row (row_adapter.c), and tokens
 * (token_draw.c). */
#ifndef AF_CASE_DECODE_H
#define AF_CASE_DECODE_H

#include "backend/cases.h"
#include "ops/head/token_draw.h"
#include "ops/linear/row_adapter.h"

/* Two parts of O columns out of 50, of different ranks, of three adapters. */
static void row_adapters(rec *r, int64_t N, int64_t I, int R, const int32_t *which,
                         const int32_t *order, const int32_t *rank)
{
    enum { O = 50, C = 3 };
    af_tensor *x = in_2(r, N, I), *y = in_2(r, N, O);
    const int64_t a[3] = {C, 2 * R, I}, b[2] = {C, 40 * R};
    const af_row_adapter o = {
        .a = rec_add(r, af_graph_weight(r->g, "a", AF_DTYPE_F32, 3, a), -1, 1),
        .b = rec_add(r, af_graph_weight(r->g, "b", AF_DTYPE_F32, 2, b), -1, 1),
        .scale = weight_1(r, AF_DTYPE_F32, 2 * C),
        .rank = ints(r, 2 * C, rank),
        .part = {{.out_from = 0, .out_rows = 12}, {.out_from = 22, .out_rows = 28}},
        .parts = 2,
        .ranks = R};
    const af_row_choice rows = {ints(r, N, which), ints(r, N, order)};
    out(r, af_row_adapters(r->g, af_scale(r->g, y, 0.5), x, &rows, &o));
}
/* Rows of three adapters and of none; ranks that no wide access has. */
static void case_row_adapters(rec *r)
{
    static const int32_t which[9] = {2, 0, -100, 1, 1, -100, 0, 2, 2},
                         order[9] = {8, 7, 6, 5, 4, 3, 2, 1, 0}, rank[6] = {6, 4, 0, 5, 1, 0};
    row_adapters(r, 9, 72, 6, which, order, rank);
}
/* Wide accesses, rows longer than what a block asks for at once, ranks of more than one round; a
 * block of one row, of four and of eight, whose rows have one adapter, none, or several. */
static void row_adapters_wide(rec *r, int64_t N, int64_t I)
{
    static const int32_t rank[6] = {20, 17, 0, 8, 3, 16};
    static int32_t which[77], order[77];
    for (int n = 0; n < N; n++) {
        order[n] = n < N / 8 * 8 ? n ^ 5 : n;
        which[order[n]] = n < 3    ? 0
                          : n < 16 ? 1
                          : n < 24 ? -100
                          : n < 40 ? n % 3
                          : n < 64 ? 2
                          : n % 4  ? 0
                                   : -100;
    }
    row_adapters(r, N, I, 20, which, order, rank);
}
static void case_row_adapters_1(rec *r) { row_adapters_wide(r, 1, 9212); }
static void case_row_adapters_7(rec *r) { row_adapters_wide(r, 7, 1500); }
static void case_row_adapters_46(rec *r) { row_adapters_wide(r, 46, 2600); }
static void case_row_adapters_77(rec *r) { row_adapters_wide(r, 77, 2600); }
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
