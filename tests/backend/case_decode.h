/* case_decode.h - a graph of adapters chosen per row (row_adapter.c). */
#ifndef AF_CASE_DECODE_H
#define AF_CASE_DECODE_H

#include "backend/cases.h"
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
#endif
