/* head_in.h - the inputs of the loss ops by name. */
#ifndef AF_HEAD_IN_H
#define AF_HEAD_IN_H

#include "graph/node.h"

typedef struct af_head_inputs {
    af_tensor *h, *w, *labels, *scale; /* scale: NULL unless attr.head.scaled */
    af_tensor *weights;                /* NULL unless attr.head.weights */
} af_head_inputs;

static inline af_head_inputs af_head_in(const af_node *n)
{
    return (af_head_inputs){n->in[0], n->in[1], n->in[2], n->attr.head.scaled ? n->in[3] : NULL,
                            n->attr.head.weights ? n->in[3] : NULL};
}

typedef struct af_loss_inputs {
    af_tensor *x, *target, *dloss; /* dloss: LOSS_BWD */
} af_loss_inputs;

static inline af_loss_inputs af_loss_in(const af_node *n)
{
    return (af_loss_inputs){n->in[0], n->in[1], n->op == AF_OP_LOSS_BWD ? n->in[2] : NULL};
}
#endif
