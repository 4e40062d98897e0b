/* block_alibi.c - ALiBi without a kernel of its own: columns that queries and keys have more of.
 *
 * A score of query i and key j in head h is scale * q.k + b(j) - b(i), where b(p) = slope[h] * p;
 * the softmax does not see b(i), which keeps scores small. With b in units of the scale, heads are
 *
 *     q: [ q | 1..1  | -b(i) | 0.. ]      k: [ k | b(j) | 1..1 | 0.. ]      v: [ v | 0.. ]
 *
 * and every kernel of attention serves. b is cut into three pieces of 8 bits, each of which is a
 * bf16 number: the sum has the digits of an f32 in either type. Of heads that share a key each has
 * columns of its own there, and zeros in its query for those of the others. The columns are made
 * once per forward. docs/decisions/0062-alibi-columns.md. */
#include "model/arch/alibi.h"
#include "model/builder/blocks.h"

enum { PIECES_MAX = 3 };

/* b of all positions, [N][H] f32. */
static af_tensor *biases(const af_forward *f)
{
    af_graph *g = f->g;
    const bool rounded = f->s->alibi_kind == AF_ALIBI_ROUNDED;
    const int64_t column[2] = {af_tensor_dim(f->in->positions, 0), 1};
    af_tensor *p = af_cast(g, f->in->positions, AF_DTYPE_F32);
    if (rounded)
        p = af_cast(g, af_cast(g, p, AF_DTYPE_BF16), AF_DTYPE_F32);
    af_tensor *b = af_mul(g, af_reshape(g, p, 2, column), f->l->alibi);
    return rounded ? af_cast(g, af_cast(g, b, AF_DTYPE_BF16), AF_DTYPE_F32) : b;
}

af_tensor *af_alibi_record(const af_forward *f)
{
    af_graph *g = f->g;
    const af_dtype t = f->l->compute;
    const int P = af_alibi_pieces(f->s), X = af_alibi_columns(f->s);
    const int64_t H = f->s->heads, K = f->s->kv_heads, G = H / K;
    if (!X || af_graph_status(g, NULL) != AF_OK)
        return NULL;
    const int64_t N = af_tensor_dim(f->in->positions, 0), row[3] = {N, 1, 1};
    const int64_t rest = X - P * (G + 1), own[3] = {N, H, 1}, keys[3] = {N, K, G};
    af_tensor *q[PIECES_MAX + 2], *k[PIECES_MAX + 2], *left = biases(f);
    q[0] = af_add(g, af_as_type(g, f->l->alibi_pick, t), af_graph_constant(g, t, 3, row, 0));
    for (int i = 0; i < P; i++) {
        af_tensor *piece = af_cast(g, left, AF_DTYPE_BF16);
        left = i + 1 < P ? af_sub(g, left, af_cast(g, piece, AF_DTYPE_F32)) : NULL;
        piece = af_as_type(g, piece, t);
        q[i + 1] = af_scale(g, af_reshape(g, piece, 3, own), -1);
        k[i] = af_reshape(g, piece, 3, keys);
    }
    k[P] = af_graph_constant(g, t, 3, (int64_t[]){N, K, P}, 1);
    if (rest) {
        q[P + 1] = af_graph_constant(g, t, 3, (int64_t[]){N, H, rest}, 0);
        k[P + 1] = af_graph_constant(g, t, 3, (int64_t[]){N, K, rest}, 0);
    }
    const int parts = P + 1 + (rest > 0);
    af_tensor *all[] = {af_concat(g, q, parts, 2), af_concat(g, k, parts, 2),
                        af_graph_constant(g, t, 3, (int64_t[]){N, K, X}, 0)};
    return af_concat(g, all, 3, 1);
}

af_tensor *af_alibi_add(const af_forward *f, af_tensor *qkv)
{
    af_graph *g = f->g;
    const int64_t E = f->s->head_dim, X = af_alibi_columns(f->s);
    if (!f->alibi || af_graph_status(g, NULL) != AF_OK)
        return qkv;
    const int64_t N = af_tensor_dim(qkv, 0), heads = af_tensor_dim(qkv, 1) / E;
    qkv = af_reshape(g, qkv, 3, (int64_t[]){N, heads, E});
    qkv = af_concat(g, (af_tensor *[]){qkv, f->alibi}, 2, 2);
    return af_reshape(g, qkv, 2, (int64_t[]){N, heads * (E + X)});
}

af_tensor *af_alibi_cut(const af_forward *f, af_tensor *o)
{
    af_graph *g = f->g;
    const int64_t E = f->s->head_dim, H = f->s->heads;
    if (!f->alibi || af_graph_status(g, NULL) != AF_OK)
        return o;
    const int64_t N = af_tensor_dim(o, 0), dim[3] = {N, H, E + af_alibi_columns(f->s)};
    o = af_slice(g, af_reshape(g, o, 3, dim), 2, 0, E);
    return af_reshape(g, o, 2, (int64_t[]){N, H * E});
}
