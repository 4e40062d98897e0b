/* moe_fuse.h - rewrites the backward pass of mixtures of experts: see moe_fuse.c. */
#ifndef AF_MOE_FUSE_H
#define AF_MOE_FUSE_H

#include "backend/cuda/cuda.h"

/* Between recording and planning. Dead nodes are left for af_graph_drop_dead. */
void af_moe_fuse(af_graph *g);
extern const af_cuda_family af_cuda_experts_family;
#endif
