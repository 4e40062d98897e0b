/* attention_in.h - the inputs and sizes of an attention node by name. */
#ifndef AF_ATTENTION_IN_H
#define AF_ATTENTION_IN_H

#include "graph/node.h"

/* NULL where the op has no such input. */
typedef struct af_attention_inputs {
    af_tensor *qkv, *bounds;
    af_tensor *cache, *start;  /* ATTENTION_CACHED */
    af_tensor *pages;          /* of these, or NULL */
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
                              .pages = cached && n->attr.attention.paged ? n->in[4] : NULL,
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

/* Positions that the cache may hold of one sequence. */
static inline int64_t af_cache_length(const af_attention_inputs *in)
{
    return in->cache->dim[1] * (in->pages ? in->pages->dim[1] : 1);
}

/* On the host: the row of the cache, counted through all pages, of position p of sequence s. */
static inline int64_t af_cache_row(const af_attention_inputs *in, int64_t s, int64_t p)
{
    const int64_t L = in->cache->dim[1];
    const int64_t page =
        in->pages ? ((const int32_t *)in->pages->data)[s * in->pages->dim[1] + p / L] : s;
    return page * L + p % L;
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
