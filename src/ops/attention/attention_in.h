/* attention_in.h - the inputs and sizes of an attention node by name. */
#ifndef AF_ATTENTION_IN_H
#define AF_ATTENTION_IN_H

#include "graph/node.h"

/* NULL where the op has no such input. */
typedef struct af_attention_inputs {
    af_tensor *qkv, *bounds;
    af_tensor *cache, *start;  /* ATTENTION_CACHED */
    af_tensor *o, *lse, *dy;   /* ATTENTION_BWD */
    int64_t S, H, K, E, width; /* sequences; width: columns of qkv */
} af_attention_inputs;

static inline af_attention_inputs af_attention_in(const af_node *n)
{
    const bool cached = n->op == AF_OP_ATTENTION_CACHED, back = n->op == AF_OP_ATTENTION_BWD;
    af_attention_inputs in = {.qkv = n->in[0],
                              .bounds = n->in[cached ? 2 : 1],
                              .cache = cached ? n->in[1] : NULL,
                              .start = cached ? n->in[3] : NULL,
                              .o = back ? n->in[2] : NULL,
                              .lse = back ? n->in[3] : NULL,
                              .dy = back ? n->in[4] : NULL,
                              .H = n->attr.attention.heads,
                              .K = n->attr.attention.kv_heads,
                              .E = n->attr.attention.head_dim};
    in.S = in.bounds->dim[0] - 1;
    in.width = (in.H + 2 * in.K) * in.E;
    return in;
}

/* On the host: the bounds, which never fall and end within the live rows. */
static inline const int32_t *af_attention_bounds(const af_attention_inputs *in)
{
    const int32_t *bounds = in->bounds->data;
    for (int64_t s = 0; s < in->S; s++)
        assert(bounds[s] >= 0 && bounds[s] <= bounds[s + 1]);
    assert(bounds[in->S] <= af_live(in->qkv));
    return bounds;
}
#endif
