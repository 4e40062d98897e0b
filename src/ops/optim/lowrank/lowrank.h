/* lowrank.h - what APOLLO and GaLore share: the stream of a matrix's random numbers, and drawing
 * them (lowrank.c; on a GPU apollo_draw of apollo.cu). */
#ifndef AF_LOWRANK_H
#define AF_LOWRANK_H

#include "base/pool.h"
#include "ops/optim/optim_in.h"

/* The stream of matrix i in draw d is this + (i << 32) + d; hyper has the number of the draw. */
#define AF_LOWRANK_STREAM (UINT64_C(0xa9) << 56)

/* The stream of this node's matrix without the number of the draw. */
static inline uint64_t af_lowrank_stream(const af_node *n)
{
    return AF_LOWRANK_STREAM + ((uint64_t)n->attr.optim.number << 32);
}

/* Values [4 first, 4 (first + blocks)) of the draw, of which those below `count` are stored: `size`
 * times normal numbers. */
void af_lowrank_draw(const af_node *n, float size, float *values, int64_t first, int64_t blocks,
                     int64_t count);

/* All `count` of them, in pieces for the threads. */
void af_lowrank_draw_all(const af_node *n, af_pool *pool, float size, float *values, int64_t count);
#endif
