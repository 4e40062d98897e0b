/* row_filter.h - records that are left out for their length, or because they came before. */
#ifndef AF_ROW_FILTER_H
#define AF_ROW_FILTER_H

#include "data/render/renderer.h"

/* All zero but for the first two is an empty filter. */
typedef struct af_row_filter {
    int64_t shortest; /* tokens */
    bool unique;
    uint8_t (*seen)[32]; /* digests, open addressing; all zero = free */
    uint64_t room, count;
} af_row_filter;

/* *keep: whether the row is new and long enough. Two rows are the same when `size` bytes of `more`,
 * which is what they have besides tokens and labels, are the same, too. */
AF_CHECKED af_status af_row_filter_take(af_row_filter *f, const af_row *r, const void *more,
                                        uint64_t size, bool *keep, af_error *err);
void af_row_filter_clear(af_row_filter *f);
#endif
