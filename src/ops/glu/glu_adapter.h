/* glu_adapter.h - gated units on the GPU that do the low-rank products next to them.
 *
 * A pass over the graph before offsets are assigned. GLU takes over the ADAPTER_DOWN that reads its
 * result; GLU_BWD takes over ADAPTER_G and ADAPTER_DB of the projection before it, and the
 * ADAPTER_DA of the one after it, for which it makes h once more. Those nodes leave the graph, the
 * unit gets their inputs and, after its own one, their outputs. On the CPU nothing is joined: the
 * nodes are the reference. */
#ifndef AF_GLU_ADAPTER_H
#define AF_GLU_ADAPTER_H

#include "backend/cuda/cuda.h"

extern const af_cuda_family af_cuda_glu_family;

/* Appends the launches when n, a GLU or GLU_BWD, does more than its own work; else false. *rows:
 * whether the rows of its result are written, or only their codes for a product in FP8. */
bool af_glu_adapter_launch(af_cuda *cu, af_graph *g, af_node *n, bool *rows);
/* Bytes of workspace that takes. */
uint64_t af_glu_adapter_work(const af_cuda *cu, const af_node *n);
#endif
