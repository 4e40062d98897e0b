/* norm_stats.h - how GRAD_NORM ends on the CPU: partial sums in their order to the four numbers. */
#ifndef AF_NORM_STATS_H
#define AF_NORM_STATS_H

#include "backend/cpu/cpu.h"
#include "ops/optim/optimizer.h"

#include <math.h>

static inline void af_norm_stats(const af_node *n, const double *part, int64_t parts)
{
    double sum = 0;
    for (int64_t p = 0; p < parts; p++)
        sum += part[p];
    const double norm = sqrt(sum), max = n->attr.optim.max_norm;
    const double clip = max > 0 && isfinite(norm) ? fmin(1, max / (norm + AF_CLIP_EPS)) : 1;
    af_st(n->out[0], AF_STATS_NORM, norm);
    af_st(n->out[0], AF_STATS_CLIP, clip);
    af_st(n->out[0], AF_STATS_FINITE, isfinite(norm) ? 1 : 0);
    af_st(n->out[0], AF_STATS_SUM, sum);
}
#endif
