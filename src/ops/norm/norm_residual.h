/* norm_residual.h - the residual stream as the addend of a projection, on the GPU.
 *
 * RMSNORM_ADD reads a projection's result right after its GEMM has written it. Where nothing else
 * reads that, the GEMM adds the residual itself and writes the sum, and the node becomes an RMSNORM
 * of it: a pass over memory less, and one rounding less. It is decided by type, shape and readers
 * before nodes are copied for the backward pass, so that every memory mode has the same bits. */
#ifndef AF_NORM_RESIDUAL_H
#define AF_NORM_RESIDUAL_H

#include "backend/cuda/cuda.h"

/* Comes before the projections, which look at what is around them. */
extern const af_cuda_family af_cuda_norm_family;
#endif
