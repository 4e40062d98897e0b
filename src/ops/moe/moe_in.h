/* moe_in.h - the inputs of the mixture-of-experts ops by name. */
#ifndef AF_MOE_IN_H
#define AF_MOE_IN_H

#include "graph/node.h"

/* NULL where the op has no such input. */
typedef struct af_moe_inputs {
    af_tensor *logits, *probs;             /* the router's */
    af_tensor *x, *gate_up, *down, *dy;    /* the experts' */
    af_tensor *weights, *index, *dweights; /* between them */
} af_moe_inputs;

static inline af_moe_inputs af_moe_in(const af_node *n)
{
    af_tensor *const *in = n->in;
    if (n->op == AF_OP_MOE_ROUTE)
        return (af_moe_inputs){.logits = in[0]};
    if (n->op == AF_OP_MOE_ROUTE_BWD)
        return (af_moe_inputs){.probs = in[0], .index = in[1], .weights = in[2], .dweights = in[3]};
    return (af_moe_inputs){.x = in[0],
                           .weights = in[1],
                           .index = in[2],
                           .gate_up = in[3],
                           .down = in[4],
                           .dy = n->op == AF_OP_MOE_FFN_BWD ? in[5] : NULL};
}
#endif
