/* norm_in.h - the inputs of the norm family by name. */
#ifndef AF_NORM_IN_H
#define AF_NORM_IN_H

#include "graph/node.h"

/* NULL where the op, or this node, has no such input. */
typedef struct af_norm_inputs {
    af_tensor *x, *residual, *w, *b, *mean, *rstd, *dy, *dsum;
} af_norm_inputs;

/* Live rows of x: one of a vector. */
static inline int64_t af_norm_rows(const af_tensor *x)
{
    return x->ndim == 1 ? x->dim[0] > 0 : af_live(x);
}

static inline af_norm_inputs af_norm_in(const af_node *n)
{
    af_tensor *const *in = n->in;
    switch (n->op) {
    case AF_OP_LAYERNORM:
        return (af_norm_inputs){.x = in[0], .w = in[1], .b = in[2]};
    case AF_OP_LAYERNORM_BWD:
        return (af_norm_inputs){.x = in[0], .w = in[1], .mean = in[2], .rstd = in[3], .dy = in[4]};
    case AF_OP_RMSNORM_ADD:
        return (af_norm_inputs){.x = in[0], .residual = in[1], .w = in[2]};
    case AF_OP_RMSNORM_BWD:
        return (af_norm_inputs){
            .x = in[0], .w = in[1], .rstd = in[2], .dy = in[3], .dsum = n->n_in > 4 ? in[4] : NULL};
    case AF_OP_RMSNORM_DW:
        return (af_norm_inputs){.x = in[0], .rstd = in[1], .dy = in[2]};
    default:
        return (af_norm_inputs){.x = in[0], .w = in[1]};
    }
}
#endif
