/* grid.h - the grid of a group of values (fakequant.c), for both CPU versions. */
#ifndef AF_GRID_H
#define AF_GRID_H

#include "base/base.h"

#include <math.h>

typedef struct af_grid {
    double scale, zero, low, high; /* y = scale * (clamp(round(x / scale) + zero) - zero) */
} af_grid;

/* min <= 0 <= max: the range of the values, with 0. */
static inline af_grid af_grid_of(int bits, bool symmetric, double min, double max)
{
    const double levels = (double)(1 << bits);
    af_grid q = {.scale = 1};
    if (symmetric) {
        q.low = -levels / 2;
        q.high = levels / 2 - 1;
        if (fmax(max, -min) > 0)
            q.scale = fmax(max, -min) / q.high;
    } else {
        q.high = levels - 1;
        if (max > min)
            q.scale = (max - min) / q.high;
        q.zero = rint(-min / q.scale);
    }
    return q;
}

/* *inside: 1 where the code was not clamped. */
static inline double af_grid_round(const af_grid *q, double x, uint8_t *inside)
{
    const double code = rint(x / q->scale) + q->zero;
    *inside = code >= q->low && code <= q->high;
    return q->scale * (fmin(fmax(code, q->low), q->high) - q->zero);
}
#endif
