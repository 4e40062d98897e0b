/* softplus_in.h - the inputs of the softplus ops by name. */
#ifndef AF_SOFTPLUS_IN_H
#define AF_SOFTPLUS_IN_H

#include "graph/node.h"

/* NULL where the op, or this node, has no such input. */
typedef struct af_softplus_inputs {
    af_tensor *x, *bias, *a_log, *dy;
} af_softplus_inputs;

static inline af_softplus_inputs af_softplus_in(const af_node *n)
{
    const int back = n->op == AF_OP_SOFTPLUS_BWD;
    return (af_softplus_inputs){.x = n->in[0],
                                .bias = n->in[1],
                                .dy = back ? n->in[2] : NULL,
                                .a_log = n->n_in > 2 + back ? n->in[2 + back] : NULL};
}
#endif
