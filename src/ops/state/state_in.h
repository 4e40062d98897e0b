/* state_in.h - the inputs of the ops with a state by name. */
#ifndef AF_STATE_IN_H
#define AF_STATE_IN_H

#include "graph/node.h"

/* NULL where the op, or this node, has no such input. */
typedef struct af_conv_inputs {
    af_tensor *x, *w, *bounds, *bias;
    af_tensor *window, *start; /* CONV_CACHED */
    af_tensor *dy;             /* CONV_BWD, CONV_DW */
    int64_t S, C, K;           /* sequences, columns, taps */
} af_conv_inputs;

static inline af_conv_inputs af_conv_in(const af_node *n)
{
    const bool cached = n->op == AF_OP_CONV_CACHED, back = !cached && n->op != AF_OP_CONV;
    return (af_conv_inputs){.x = n->in[0],
                            .w = n->in[1],
                            .bounds = n->in[2],
                            .bias = n->attr.conv.bias ? n->in[n->n_in - 1] : NULL,
                            .window = cached ? n->in[3] : NULL,
                            .start = cached ? n->in[4] : NULL,
                            .dy = back ? n->in[3] : NULL,
                            .S = n->in[2]->dim[0] - 1,
                            .C = n->in[1]->dim[0],
                            .K = n->in[1]->dim[1]};
}

typedef struct af_scan_inputs {
    af_tensor *x, *decay, *beta, *bounds, *skip;
    af_tensor *state, *start;       /* SCAN_CACHED */
    af_tensor *dy;                  /* SCAN_BWD */
    int64_t S, H, J, K, V;          /* sequences; heads, key heads, their sizes */
    int64_t D;                      /* decays of a head: 1, or K */
    int64_t width;                  /* columns of x */
    int64_t q_from, k_from, v_from; /* where they begin */
} af_scan_inputs;

static inline af_scan_inputs af_scan_in(const af_node *n)
{
    const bool cached = n->op == AF_OP_SCAN_CACHED, back = n->op == AF_OP_SCAN_BWD;
    af_scan_inputs in = {.x = n->in[0],
                         .decay = n->in[1],
                         .beta = n->in[2],
                         .bounds = n->in[3],
                         .skip = n->attr.scan.skip ? n->in[n->n_in - 1] : NULL,
                         .state = cached ? n->in[4] : NULL,
                         .start = cached ? n->in[5] : NULL,
                         .dy = back ? n->in[4] : NULL,
                         .S = n->in[3]->dim[0] - 1,
                         .H = n->attr.scan.heads,
                         .J = n->attr.scan.key_heads,
                         .K = n->attr.scan.key_dim,
                         .V = n->attr.scan.head_dim};
    in.D = in.decay->dim[1] / in.H;
    in.width = 2 * in.J * in.K + in.H * in.V;
    const bool delta = n->attr.scan.delta;
    in.q_from = delta ? 0 : in.H * in.V + in.J * in.K;
    in.k_from = delta ? in.J * in.K : in.H * in.V;
    in.v_from = delta ? 2 * in.J * in.K : 0;
    return in;
}

/* On the host: the bounds, which never fall and end within the live rows. */
static inline const int32_t *af_state_bounds(const af_tensor *bounds, const af_tensor *x)
{
    const int32_t *b = bounds->data;
    const int64_t S = bounds->dim[0] - 1;
    for (int64_t s = 0; s < S; s++)
        assert(b[s] >= 0 && b[s] <= b[s + 1]);
    assert(b[S] <= af_live(x));
    (void)x;
    return b;
}
#endif
