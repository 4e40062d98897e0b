/* row_adapter.h - adapters chosen per row: records row_adapter.c. */
#ifndef AF_ROW_ADAPTER_H
#define AF_ROW_ADAPTER_H

#include "graph/graph_access.h"

/* The adapters of one projection. C of them, each with a rank up to R in each of its parts. */
typedef struct af_row_adapter {
    af_tensor *a;     /* f32 [C][parts * R][I] */
    af_tensor *b;     /* f32 [C][sum of out_rows * R], part after part [out_rows][R] */
    af_tensor *scale; /* f32 [C * parts] */
    af_tensor *rank;  /* i32 [C * parts]: so many of the R; 0 = that adapter has no such part */
    /* f32 [C + 1][O] of every column, row c + 1 is adapter c's and row 0 that of none: y factor +
     * shift comes before the low-rank term (decode_columns.c); NULL = y */
    af_tensor *factor, *shift;
    af_adapter_part part[AF_ADAPTER_PARTS]; /* out_from, out_rows */
    int parts, ranks;                       /* ranks: R */
} af_row_adapter;

/* The adapter of every row, and the rows by their adapters. */
typedef struct af_row_choice {
    af_tensor *which; /* i32 [N], -100 = none */
    af_tensor *order; /* i32 [N]: every row once. Those of one adapter are read together where they
                         follow each other; results do not depend on it. */
} af_row_choice;

/* y [N][O] plus, in the columns of part p, scale B A x of the row's adapter. A row's sums do not
 * depend on other rows or other adapters. No gradient. */
af_tensor *af_row_adapters(af_graph *g, af_tensor *y, af_tensor *x, const af_row_choice *rows,
                           const af_row_adapter *o);
#endif
