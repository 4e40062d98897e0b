/* rope.c - rotary position embedding on the fused q|k|v buffer, with the norm of q and k that some
 * models put before it.
 *
 * ROPE        for every q and k head of a row: x = norm(x) if there are norm weights, then for
 *             i < rotary_dim/2, with angle = position * inv_freq[i], c = scale cos, s = scale sin:
 *               y[i] = x[i] c - x[i+half] s,   y[i+half] = x[i+half] c + x[i] s
 *             (`pairs`: the same with 2i and 2i+1 in the place of i and i+half)
 *             With query_beta the whole of q is then multiplied by
 *             1 + query_beta ln(1 + floor((position + query_from) / query_length)).
 *             The rest of the head, and v, pass unchanged. Norm weights [E] serve every head; [H*E]
 *             and [K*E] mean one norm over the whole q, or k, row (norm_whole).
 * ROPE_BWD    dy, qkv, positions, .. -> dqkv: the inverse rotation, then back through the norm
 *             (without norms dy stands in for qkv, which is not read)
 * ROPE_DNORM  dy, qkv, positions, .. -> dq_norm, dk_norm: sums over rows (and heads)
 * y may share qkv's memory: a row's two halves are read before either is written. */
#include "graph/node.h"
#include "ops/rope/rope_in.h"
#include "tensor/dtype.h"

#include <math.h>

af_rope_inputs af_rope_in(const af_node *n)
{
    af_rope_inputs in = {.H = n->attr.rope.heads,
                         .K = n->attr.rope.kv_heads,
                         .E = n->attr.rope.head_dim,
                         .half = n->attr.rope.rotary_dim / 2};
    int at = 0;
    in.width = (in.H + 2 * in.K) * in.E;
    in.dy = n->op == AF_OP_ROPE ? NULL : n->in[at++];
    in.qkv = n->in[at++];
    in.positions = n->in[at++];
    in.inv_freq = n->attr.rope.rotate ? n->in[at++] : NULL;
    in.q_norm = n->attr.rope.norm ? n->in[at++] : NULL;
    in.k_norm = n->attr.rope.norm ? n->in[at] : NULL;
    return in;
}

static bool check_shapes(af_graph *g, const af_tensor *qkv, const af_tensor *positions,
                         const af_tensor *inv_freq, const af_rope_opts *o)
{
    char a[96], b[96];
    if (af_graph_refuses_opts(g, "rope", o))
        return false;
    const int64_t width = af_qkv_columns(o->heads, o->kv_heads, o->head_dim);
    const int rotary = o->rotary_dim ? o->rotary_dim : o->head_dim;
    if (!af_dtype_is_float(qkv->dtype) || qkv->ndim != 2 || af_last(qkv) != width)
        af_graph_bad(g, "rope: qkv is %s, but (%d + 2*%d) heads of %d make %" PRId64 " columns",
                     af_shape_text(qkv, a, sizeof a), o->heads, o->kv_heads, o->head_dim, width);
    else if (positions->dtype != AF_DTYPE_I32 || positions->ndim != 1 ||
             positions->dim[0] != qkv->dim[0])
        af_graph_bad(g, "rope: positions %s do not fit qkv %s",
                     af_shape_text(positions, a, sizeof a), af_shape_text(qkv, b, sizeof b));
    else if (rotary % 2 || rotary < 0 || rotary > o->head_dim)
        af_graph_bad(g, "rope: %d rotary dimensions do not fit a head of %d", rotary, o->head_dim);
    else if (o->query_beta != 0 &&
             (!isfinite(o->query_beta) || o->query_length < 1 || o->query_from < 0))
        af_graph_bad(g, "rope: query_beta %g with query_length %" PRId64, o->query_beta,
                     o->query_length);
    else if (inv_freq && (!af_dtype_is_float(inv_freq->dtype) || inv_freq->ndim != 1 ||
                          inv_freq->dim[0] != rotary / 2))
        af_graph_bad(g, "rope: inv_freq is %s, not [%d]", af_shape_text(inv_freq, a, sizeof a),
                     rotary / 2);
    return !af_graph_failed(g);
}

static bool check_norms(af_graph *g, const af_rope_opts *o, bool *whole)
{
    char a[96], b[96];
    *whole = false;
    if (!o->q_norm && !o->k_norm)
        return true;
    if (!o->q_norm || !o->k_norm) {
        af_graph_bad(g, "rope: q has %s norm weight and k has %s: both or neither",
                     o->q_norm ? "a" : "no", o->k_norm ? "one" : "none");
        return false;
    }
    const int64_t q = af_count(o->q_norm), k = af_count(o->k_norm), E = o->head_dim;
    const bool heads = q == E && k == E;
    *whole = !heads && q == E * o->heads && k == E * o->kv_heads;
    if ((heads || *whole) && o->q_norm->ndim == 1 && o->k_norm->ndim == 1 &&
        af_dtype_is_float(o->q_norm->dtype) && af_dtype_is_float(o->k_norm->dtype))
        return true;
    af_graph_bad(g, "rope: norm weights %s and %s fit neither a head of %" PRId64 " nor whole rows",
                 af_shape_text(o->q_norm, a, sizeof a), af_shape_text(o->k_norm, b, sizeof b), E);
    return false;
}

af_tensor *af_rope(af_graph *g, af_tensor *qkv, af_tensor *positions, af_tensor *inv_freq,
                   const af_rope_opts *o)
{
    bool whole;
    if (af_graph_refuses(g, "rope", (af_tensor *[]){qkv, positions}, 2) ||
        !check_shapes(g, qkv, positions, inv_freq, o) || !check_norms(g, o, &whole))
        return af_graph_dummy(g);
    af_tensor *in[5] = {qkv, positions};
    int n_in = 2;
    if (inv_freq)
        in[n_in++] = inv_freq;
    if (o->q_norm) {
        in[n_in++] = o->q_norm;
        in[n_in++] = o->k_norm;
    }
    af_node *n = af_node_new(g, AF_OP_ROPE, in, n_in);
    n->attr.rope.heads = o->heads;
    n->attr.rope.kv_heads = o->kv_heads;
    n->attr.rope.head_dim = o->head_dim;
    n->attr.rope.rotary_dim = o->rotary_dim ? o->rotary_dim : o->head_dim;
    n->attr.rope.scale = o->scale != 0 ? o->scale : 1;
    n->attr.rope.eps = o->norm_eps;
    n->attr.rope.plus_one = o->norm_plus_one;
    n->attr.rope.rotate = inv_freq != NULL;
    n->attr.rope.norm = o->q_norm != NULL;
    n->attr.rope.norm_whole = whole;
    n->attr.rope.pairs = o->pairs;
    n->attr.rope.query_beta = o->query_beta;
    n->attr.rope.query_length = o->query_length;
    n->attr.rope.query_from = o->query_from;
    return af_node_output_like(g, n, qkv);
}

/* A backward node: dy, then everything the forward read. */
static af_node *back_node(af_graph *g, af_op op, const af_node *n, af_tensor *dy)
{
    af_tensor *in[6] = {dy};
    memcpy(in + 1, n->in, (size_t)n->n_in * sizeof *in);
    af_node *b = af_node_new(g, op, in, n->n_in + 1);
    b->attr = n->attr;
    return b;
}

static void rope_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_rope_inputs in = af_rope_in(n);
    if (in.q_norm) {
        af_tensor *q = in.q_norm, *k = in.k_norm;
        if (q->needs_grad || k->needs_grad) {
            af_node *b = back_node(g, AF_OP_ROPE_DNORM, n, dout[0]);
            af_tensor *dq = af_node_output(g, b, q->dtype, 1, q->dim);
            af_tensor *dk = af_node_output(g, b, k->dtype, 1, k->dim);
            if (af_graph_failed(g))
                return;
            dq->live = dk->live = NULL;
            af_grad_add(g, q, dq);
            af_grad_add(g, k, dk);
        }
    }
    if (in.qkv->needs_grad) {
        af_node *b = back_node(g, AF_OP_ROPE_BWD, n, dout[0]);
        if (!in.q_norm) /* the rotation alone needs no values: qkv can be overwritten */
            b->in[1] = dout[0];
        af_tensor *d = af_node_output_like(g, b, in.qkv);
        if (!af_graph_failed(g))
            af_grad_add(g, in.qkv, d);
    }
}

static double rope_flops(const af_node *n) { return 3.0 * (double)af_count(n->in[0]); }

const af_op_info af_op_rope = {
    .name = "rope", .grad = rope_grad, .flops = rope_flops, .inplace = 1, .cheap = true};
const af_op_info af_op_rope_bwd = {.name = "rope_bwd", .flops = rope_flops};
const af_op_info af_op_rope_dnorm = {.name = "rope_dnorm", .flops = rope_flops};
