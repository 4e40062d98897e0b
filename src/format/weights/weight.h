/* weight.h - one tensor as a file stores it: what every reader of weights returns.
 *
 * A view: it owns nothing and lives as long as the reader it came from. */
#ifndef AF_WEIGHT_H
#define AF_WEIGHT_H

#include "tensor/dtype.h"

enum { AF_WEIGHT_NDIM_MAX = 8 };

typedef struct af_stored {
    const char *name;
    af_dtype dtype;
    int ndim;                        /* 0 = a scalar, one element */
    int64_t dim[AF_WEIGHT_NDIM_MAX]; /* row-major: the last one is contiguous; unused ones are 1 */
    const void *data;                /* mapped and read-only, aligned for the dtype's elements */
    uint64_t bytes;
    int file; /* which file of the reader: 0 .. files-1 */
} af_stored;

/* Elements; checked at open, so it cannot overflow. */
static inline int64_t af_weight_count(const af_stored *w)
{
    int64_t n = 1;
    for (int i = 0; i < w->ndim; i++)
        n *= w->dim[i];
    return n;
}
/* Elements of one row (the last dimension), and the number of rows. A scalar is one row of one. */
static inline int64_t af_weight_cols(const af_stored *w)
{
    return w->ndim ? w->dim[w->ndim - 1] : 1;
}
static inline int64_t af_weight_rows(const af_stored *w)
{
    const int64_t c = af_weight_cols(w);
    return c ? af_weight_count(w) / c : 0;
}
#endif
