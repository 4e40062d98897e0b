/* moe_in.h - the inputs of the mixture-of-experts ops by name. */
#ifndef AF_MOE_IN_H
#define AF_MOE_IN_H

#include "graph/node.h"

enum { AF_ROUTE_NEAR_MAX = 8 }; /* experts a token, of AF_ROUTE_NEAR */

/* NULL where the op has no such input. */
typedef struct af_moe_inputs {
    af_tensor *logits, *choice, *scores;   /* the router's; choice: what is added for choices */
    af_tensor *index, *weights, *dweights; /* [N][k], by pair */
    af_tensor *list, *slot, *start;        /* MOE_LIST's */
    af_tensor *x, *dy;                     /* rows of a linear: by slot, or by token */
    af_tensor *w, *bias, *a, *b, *xa, *g;  /* of a linear; g = scale * dy b */
    af_tensor *out, *plus;                 /* [N][k][D], what is combined; [N][D], and added */
    af_tensor *gate_up;                    /* [N][k][2F] */
} af_moe_inputs;

static inline af_moe_inputs af_moe_in(const af_node *n)
{
    af_tensor *const *in = n->in;
    af_moe_inputs r = {0};
    if (n->op == AF_OP_MOE_ROUTE)
        return (af_moe_inputs){.logits = in[0], .choice = n->attr.route.bias ? in[1] : NULL};
    if (n->op == AF_OP_MOE_ROUTE_BWD)
        return (af_moe_inputs){.scores = in[0], .index = in[1], .dweights = in[2]};
    if (n->op == AF_OP_MOE_PICK)
        return (af_moe_inputs){.scores = in[0], .index = in[1]};
    if (n->op == AF_OP_MOE_PICK_BWD)
        return (af_moe_inputs){.index = in[0], .dweights = in[1]};
    if (n->op == AF_OP_MOE_LIST)
        return (af_moe_inputs){.index = in[0]};
    r.list = in[1];
    r.slot = in[2];
    r.start = in[3];
    int i = 4;
    switch (n->op) {
    case AF_OP_MOE_LINEAR:
        r.x = in[0];
        r.w = in[i++];
        r.bias = n->attr.moe.bias ? in[i++] : NULL;
        if (n->attr.moe.lora)
            r.a = in[i], r.b = in[i + 1], r.xa = in[i + 2];
        break;
    case AF_OP_MOE_LINEAR_DX:
        r.dy = in[0];
        r.w = in[i++];
        if (n->attr.moe.lora)
            r.a = in[i], r.g = in[i + 1];
        break;
    case AF_OP_MOE_LINEAR_DW:
        r.x = in[0];
        r.dy = in[i];
        break;
    case AF_OP_MOE_LINEAR_DBIAS:
        r.dy = in[0];
        break;
    case AF_OP_MOE_GLU_BWD:
        r.gate_up = in[0];
        r.weights = in[i++];
        r.dy = in[i];
        break;
    default: /* MOE_COMBINE, MOE_COMBINE_BWD */
        r.out = in[0];
        r.weights = n->n_in > i + n->attr.moe.plus ? in[i++] : NULL;
        r.plus = n->attr.moe.plus ? in[i] : NULL;
        r.dy = n->op == AF_OP_MOE_COMBINE_BWD ? in[i] : NULL;
    }
    return r;
}

/* [N][k] lists of a routing (moe.c). */
typedef struct af_moe_lists {
    af_tensor *list, *slot, *start;
} af_moe_lists;

/* moe_linear.c: y by slot [N][k][O]; x [N][I] by token, or [N][k][I]. */
af_tensor *af_moe_linear(af_graph *g, af_tensor *x, const af_moe_lists *lists,
                         const af_expert_linear *o);
/* moe.c: sum over the experts of each token; weights [N][k] or NULL. */
af_tensor *af_moe_combine(af_graph *g, af_tensor *out, const af_moe_lists *lists,
                          af_tensor *weights);
#endif
