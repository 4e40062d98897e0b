/* apollo.h - APOLLO (apollo_cpu.c): its constants, and the shape of one update. */
#ifndef AF_APOLLO_H
#define AF_APOLLO_H

#include "ops/optim/optim_in.h"

/* Random projections: the stream of matrix i in draw d is this + (i << 32) + d. */
#define AF_APOLLO_STREAM (UINT64_C(0xa9) << 56)

/* A scaled gradient is at most so many times as long as the last one; what is added to norms that
 * are divided by. */
#define AF_APOLLO_GROWTH 1.01
#define AF_APOLLO_EPS    1e-8

/* A matrix [R][C] of `channels` = max(R, C) rows (tall) or columns, each of `width` = min(R, C)
 * values that the projection [width][rank] makes `rank` numbers of. */
typedef struct af_apollo_shape {
    int64_t R, C, channels, width, rank;
    bool tall;
} af_apollo_shape;

static inline af_apollo_shape af_apollo_shape_of(const af_node *n)
{
    const int64_t R = n->in[0]->dim[0], C = n->in[0]->dim[1];
    return (af_apollo_shape){.R = R,
                             .C = C,
                             .channels = AF_MAX(R, C),
                             .width = AF_MIN(R, C),
                             .rank = n->attr.optim.rank,
                             .tall = R >= C};
}

/* The stream of this node's projection without the number of the draw. */
static inline uint64_t af_apollo_stream(const af_node *n)
{
    return AF_APOLLO_STREAM + ((uint64_t)n->attr.optim.number << 32);
}

/* Values [4 first, 4 (first + blocks)) of the projection, of which those below `count` are stored:
 * normal numbers divided by sqrt(rank). */
void af_apollo_draw(const af_node *n, float *projection, int64_t first, int64_t blocks,
                    int64_t count);
#endif
