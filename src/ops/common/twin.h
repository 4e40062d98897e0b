/* twin.h - shape helpers shared by the reference CPU twins of the general ops. */
#ifndef AF_TWIN_H
#define AF_TWIN_H

#include "backend/cpu/cpu.h"

/* How much of axis 0 is in use in this run. */
static inline int64_t af_live_dim(const af_tensor *t) { return t->live ? *t->live : t->dim[0]; }

/* Elements in use: they are the first ones, because the live axis is the outermost. */
static inline int64_t af_live_count(const af_tensor *t)
{
    return t->dim[0] ? af_count(t) / t->dim[0] * af_live_dim(t) : 0;
}

/* A tensor seen around one axis: [outer][len][inner]. */
typedef struct af_axis_view {
    int64_t outer, len, inner;
} af_axis_view;

/* With the live part of axis 0 only. */
static inline af_axis_view af_around(const af_tensor *t, int axis)
{
    af_axis_view v = {1, 1, 1};
    for (int i = 0; i < t->ndim; i++) {
        const int64_t d = i == 0 ? af_live_dim(t) : t->dim[i];
        if (i < axis)
            v.outer *= d;
        else if (i == axis)
            v.len = d;
        else
            v.inner *= d;
    }
    return v;
}
#endif
