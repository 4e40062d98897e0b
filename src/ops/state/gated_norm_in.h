/* gated_norm_in.h - the inputs of the gated norm by name. */
#ifndef AF_GATED_NORM_IN_H
#define AF_GATED_NORM_IN_H

#include "graph/node.h"

/* NULL where the op has no such input. */
typedef struct af_gated_norm_inputs {
    af_tensor *x, *gate, *w, *rstd, *dy;
    int64_t D, E; /* columns of a row, of a group */
} af_gated_norm_inputs;

static inline af_gated_norm_inputs af_gated_norm_in(const af_node *n)
{
    const bool dw = n->op == AF_OP_GATED_NORM_DW, back = n->op == AF_OP_GATED_NORM_BWD;
    return (af_gated_norm_inputs){.x = n->in[0],
                                  .gate = n->in[1],
                                  .w = dw ? NULL : n->in[2],
                                  .rstd = dw     ? n->in[2]
                                          : back ? n->in[3]
                                                 : NULL,
                                  .dy = dw     ? n->in[3]
                                        : back ? n->in[4]
                                               : NULL,
                                  .D = af_last(n->in[0]),
                                  .E = dw ? n->out[0]->dim[0] : n->in[2]->dim[0]};
}
#endif
