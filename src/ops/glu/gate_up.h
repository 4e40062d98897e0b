/* gate_up.h - GEMMs with the matrices of gate and up on Hopper (gate_up_sm90.cu).
 *
 * A LINEAR whose result a gated unit reads is one launch of that kernel. It takes over the GLU that
 * follows it, with what that has taken over (glu_adapter.h): gate and up are not read again for h.
 * Where a backward pass recomputes gate and up, the same kernel computes them alone, so that they
 * have the same bits in every memory mode. */
#ifndef AF_GATE_UP_H
#define AF_GATE_UP_H

#include "ops/linear/linear_cuda.h"

/* Is n such a LINEAR? By type and shape alone. */
bool af_gate_up_fits(const af_cuda *cu, const af_graph *g, const af_node *n);
/* Strips of columns of h, each with a part of its low-rank GEMM: `wide` columns each, the last
 * `narrow` columns in strips of 64. */
typedef struct af_gate_up_cut {
    int64_t wide, narrow, strips;
} af_gate_up_cut;
/* Where h has M rows and F columns. */
af_gate_up_cut af_gate_up_cut_of(const af_cuda *cu, int64_t M, int64_t F);
/* Launches those LINEARs, with what they took over. */
extern const af_linear_epilogue af_gate_up_epilogue;
#endif
