/* apollo.h - APOLLO (apollo_cpu.c): its constants, and the shape of one update. */
#ifndef AF_APOLLO_H
#define AF_APOLLO_H

#include "ops/optim/lowrank/lowrank.h"

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
#endif
