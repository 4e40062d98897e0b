/* rank_cuda.h - messages between ranks as steps of a node. */
#ifndef AF_RANK_CUDA_H
#define AF_RANK_CUDA_H

#include "backend/cuda/cuda.h"

/* Every rank gets every piece of v: elements of `size` bytes, cut as in af_exchange. */
void af_cuda_gather_pieces(af_cuda *cu, af_node *n, void *v, uint64_t size, int rank, int ranks,
                           const int64_t *cut);
#endif
