/* split_norm.h - GRAD_NORM of gradients that are split over ranks: the pieces of a single process
 * and their order, so that the bits are the same. */
#ifndef AF_SPLIT_NORM_H
#define AF_SPLIT_NORM_H

#include "backend/cpu/cpu.h"

/* The sum of squares of a piece. */
typedef double af_norm_piece_sum(const float *grads, int64_t count);

static inline bool af_norm_is_split(const af_node *n)
{
    return n->in[0]->graph->shard.split >= AF_SHARD_GRADIENTS;
}
void af_split_norm_run(const af_node *n, af_cpu *cpu, af_norm_piece_sum *sum);
uint64_t af_split_norm_work(const af_node *n);
#endif
