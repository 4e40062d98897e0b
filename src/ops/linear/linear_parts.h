/* linear_parts.h - where the pieces of a linear node lie, for its twins and its fast versions. */
#ifndef AF_LINEAR_PARTS_H
#define AF_LINEAR_PARTS_H

#include "graph/node.h"

/* First element of adapter part p in b. */
static inline int64_t af_linear_part_at(const af_node *n, int p)
{
    int64_t at = 0;
    for (int i = 0; i < p; i++)
        at += n->attr.linear.part[i].out_rows * n->attr.linear.part[i].rank;
    return at;
}

/* The bias of a piece of the weight, or NULL. */
static inline const af_tensor *af_linear_bias(const af_node *n, int piece)
{
    int at = 1 + n->attr.linear.pieces;
    for (int i = 0; i < piece; i++)
        at += n->attr.linear.biases >> i & 1;
    return n->attr.linear.biases >> piece & 1 ? n->in[at] : NULL;
}
#endif
