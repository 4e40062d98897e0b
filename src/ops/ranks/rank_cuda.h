/* rank_cuda.h - messages between ranks as steps of a node. */
#ifndef AF_RANK_CUDA_H
#define AF_RANK_CUDA_H

#include "backend/cuda/cuda.h"

/* Elements of `size` bytes, cut as in af_exchange. */
typedef struct af_pieces {
    void *v;
    uint64_t size;
    const int64_t *cut;
} af_pieces;

/* Every rank gets every piece of all of them; what goes to one rank is one message. */
void af_cuda_gather_pieces(af_cuda *cu, af_node *n, const af_pieces *p, int count, int rank,
                           int ranks);
#endif
