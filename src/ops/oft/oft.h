/* oft.h - orthogonal fine-tuning: rotations of a linear's input, block by block; records oft.c. */
#ifndef AF_OFT_H
#define AF_OFT_H

#include "graph/graph_access.h"

typedef struct af_oft_opts {
    int64_t block; /* n */
    int terms;     /* of the Cayley-Neumann series (PEFT's num_cayley_neumann_terms) */
    bool exact;    /* the Cayley transform itself instead */
} af_oft_opts;

/* q [blocks][n (n - 1) / 2], the upper triangles of skew-symmetric matrices Q row by row, to the
 * rotations r [blocks][n][n] that PEFT makes of them. */
af_tensor *af_oft_blocks(af_graph *g, af_tensor *q, const af_oft_opts *o);
/* y[.., b n + c] = sum over k of x[.., b n + k] r[b][k][c]; a single r serves all blocks of x. */
af_tensor *af_oft_rotate(af_graph *g, af_tensor *x, af_tensor *r);
/* r = (I - Q) (I + Q)^-1 = 2 (I + Q)^-1 - I by elimination; the symmetric part of I + Q is I, so no
 * pivot is small. Destroys q. */
void af_oft_invert(double *r, double *q, int64_t n);
#endif
