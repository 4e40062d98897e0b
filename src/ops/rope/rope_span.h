/* rope_span.h - the spans of a q|k|v row that are normed by themselves. */
#ifndef AF_ROPE_SPAN_H
#define AF_ROPE_SPAN_H

#include "graph/node.h"

/* The i-th span: a head, or the whole q or k row. False behind the last. */
static inline bool af_rope_span(const af_node *n, int64_t i, int64_t *at, int64_t *len, bool *is_q)
{
    const int64_t H = n->attr.rope.heads, K = n->attr.rope.kv_heads, E = n->attr.rope.head_dim;
    if (n->attr.rope.norm_whole) {
        *is_q = i == 0;
        *at = i == 0 ? 0 : H * E;
        *len = (i == 0 ? H : K) * E;
        return i < 2;
    }
    *is_q = i < H;
    *at = i * E;
    *len = E;
    return i < H + K;
}
#endif
