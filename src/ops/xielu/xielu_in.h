/* xielu_in.h - the inputs of xielu nodes by name. */
#ifndef AF_XIELU_IN_H
#define AF_XIELU_IN_H

#include "graph/node.h"

#include <math.h>

/* The four scalars [1]; dy NULL in the forward. */
typedef struct af_xielu_inputs {
    af_tensor *x, *p, *n, *beta, *eps, *dy;
} af_xielu_inputs;

static inline af_xielu_inputs af_xielu_in(const af_node *n)
{
    return (af_xielu_inputs){n->in[0], n->in[1], n->in[2],
                             n->in[3], n->in[4], n->op == AF_OP_XIELU ? NULL : n->in[5]};
}

/* Of p and of n: the slopes of both sides. */
static inline double af_xielu_softplus(double x) { return x > 30 ? x : log1p(exp(x)); }
#endif
