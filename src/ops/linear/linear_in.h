/* linear_in.h - the inputs of the linear family by name, and where an adapter's parts lie. */
#ifndef AF_LINEAR_IN_H
#define AF_LINEAR_IN_H

#include "graph/node.h"

/* NULL where the op, or this node, has no such input. */
typedef struct af_linear_inputs {
    af_tensor *x, *dy;
    af_tensor *const *w; /* [attr.linear.pieces] */
    af_tensor *bias[AF_LINEAR_PIECES];
    af_tensor *a, *b, *xa, *g;
    af_tensor *add;
} af_linear_inputs;

af_linear_inputs af_linear_in(const af_node *n);

/* First element of adapter part p in b. */
static inline int64_t af_linear_part_at(const af_node *n, int p)
{
    int64_t at = 0;
    for (int i = 0; i < p; i++)
        at += n->attr.linear.part[i].out_rows * n->attr.linear.part[i].rank;
    return at;
}
#endif
