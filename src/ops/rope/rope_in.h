/* rope_in.h - the inputs and sizes of a rope node by name, and the spans its norm works on. */
#ifndef AF_ROPE_IN_H
#define AF_ROPE_IN_H

#include "graph/node.h"

#include <math.h>

/* NULL where the node has no such input. */
typedef struct af_rope_inputs {
    af_tensor *dy, *qkv, *positions, *inv_freq, *q_norm, *k_norm;
    int64_t H, K, E, width, half; /* width: columns of qkv; half: rotary_dim / 2 */
} af_rope_inputs;

af_rope_inputs af_rope_in(const af_node *n);

/* Columns of queries, keys and values; -1 for sizes that cannot be. */
static inline int64_t af_qkv_columns(int heads, int kv_heads, int head_dim)
{
    const int64_t all = (int64_t)heads + 2 * (int64_t)kv_heads;
    return heads < 0 || kv_heads < 0 || head_dim < 1 || all > INT64_MAX / head_dim ? -1
                                                                                   : all * head_dim;
}

/* Where the i-th rotated pair of a head lies. */
static inline int64_t af_rope_first(const af_node *n, int64_t i)
{
    return n->attr.rope.pairs ? 2 * i : i;
}
static inline int64_t af_rope_second(const af_node *n, int64_t i)
{
    return n->attr.rope.pairs ? 2 * i + 1 : i + n->attr.rope.rotary_dim / 2;
}

/* What queries at a position are multiplied with. */
static inline double af_rope_query_factor(const af_node *n, int64_t position)
{
    const double beta = n->attr.rope.query_beta;
    const int64_t at = position + n->attr.rope.query_from;
    return beta == 0 ? 1 : 1 + beta * log(1 + (double)(at / n->attr.rope.query_length));
}

/* The i-th span that is normalised on its own: a head, or the whole q or k row. False after the
 * last. */
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
