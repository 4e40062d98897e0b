/* selective_in.h - the inputs and sizes of a node of selective.c by name. */
#ifndef AF_SELECTIVE_IN_H
#define AF_SELECTIVE_IN_H

#include "graph/node.h"

/* NULL where the op has no such input. */
typedef struct af_selective_inputs {
    af_tensor *x, *dt, *a, *b, *c, *bounds;
    af_tensor *state, *start; /* SELECTIVE_CACHED */
    af_tensor *dy;            /* SELECTIVE_BWD */
    int64_t S, I, n;          /* sequences, channels, states of a channel */
} af_selective_inputs;

static inline af_selective_inputs af_selective_in(const af_node *n)
{
    const bool cached = n->op == AF_OP_SELECTIVE_CACHED;
    return (af_selective_inputs){.x = n->in[0],
                                 .dt = n->in[1],
                                 .a = n->in[2],
                                 .b = n->in[3],
                                 .c = n->in[4],
                                 .bounds = n->in[5],
                                 .state = cached ? n->in[6] : NULL,
                                 .start = cached ? n->in[7] : NULL,
                                 .dy = n->op == AF_OP_SELECTIVE_BWD ? n->in[6] : NULL,
                                 .S = n->in[5]->dim[0] - 1,
                                 .I = n->in[2]->dim[0],
                                 .n = n->in[2]->dim[1]};
}
#endif
