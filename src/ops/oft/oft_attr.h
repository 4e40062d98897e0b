/* oft_attr.h - what the versions of oft.c share. */
#ifndef AF_OFT_ATTR_H
#define AF_OFT_ATTR_H

#include "graph/node.h"

/* The factor of Q^k in the series: PEFT doubles all but the first and, from three terms on, the
 * last. */
static inline double af_oft_factor(const af_node *n, int k)
{
    const int last = n->attr.oft.last;
    return k == 0 || (k == last && last > 2) ? 1 : 2;
}

/* Where row i of the upper triangle of an [n][n] matrix begins, less i + 1: add the column. */
static inline int64_t af_oft_row_at(int64_t i, int64_t n)
{
    return i * n - i * (i + 1) / 2 - i - 1;
}
#endif
