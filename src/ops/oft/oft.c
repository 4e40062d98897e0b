/* oft.c - orthogonal fine-tuning (Qiu et al. 2023, 2025) as PEFT has it.
 *
 * OFT_BLOCKS      q [B][n (n-1) / 2] -> r [B][n][n]. Q is skew-symmetric with q above its diagonal:
 *                 r = I + 2 Q + 2 Q^2 + .. + Q^last, a series of (I + Q) (I - Q)^-1, or with
 *                 attr.oft.exact r = (I - Q) (I + Q)^-1 = 2 (I + Q)^-1 - I
 * OFT_BLOCKS_BWD  q, r, dr -> dq, where dQ = sum over i + j = k - 1 of c_k (Q^T)^i dr (Q^T)^j of
 *                 the series, dQ = -1/2 (r + I)^T dr (r + I)^T of the exact one, and
 *                 dq[i, j] = dQ[i][j] - dQ[j][i]. It may be added to.
 * OFT_ROTATE      x [..][I], r -> y[.., b n + c] = sum_k x[.., b n + k] r[b][k][c], with
 *                 attr.oft.turned r[b][c][k]; b is 0 in r where B = 1
 * OFT_ROTATE_DR   x, dy -> dr[b][k][c] = sum_rows x[.., b n + k] dy[.., b n + c], over all blocks
 *                 where B = 1 */
#include "ops/oft/oft.h"
#include "ops/oft/oft_attr.h"
#include "tensor/dtype.h"

static af_tensor *blocks_output(af_graph *g, af_node *n, af_dtype type, int64_t count, int64_t size)
{
    af_tensor *r = af_node_output(g, n, type, 3, (int64_t[]){count, size, size});
    if (!af_graph_failed(g))
        r->live = NULL; /* there may be as many blocks as tokens */
    return r;
}

af_tensor *af_oft_blocks(af_graph *g, af_tensor *q, const af_oft_opts *o)
{
    char a[96];
    if (af_graph_refuses_opts(g, "oft_blocks", o) ||
        af_graph_refuses(g, "oft_blocks", (af_tensor *[]){q}, 1))
        return af_graph_dummy(g);
    const int64_t n = o->block;
    if (n < 2 || q->ndim != 2 || q->dim[1] != n * (n - 1) / 2 ||
        (q->dtype != AF_DTYPE_F32 && q->dtype != AF_DTYPE_F64) || o->terms < 0)
        return af_graph_bad(g, "oft_blocks: q is %s, not triangles of %" PRId64 " x %" PRId64,
                            af_shape_text(q, a, sizeof a), n, n);
    af_node *k = af_node_new(g, AF_OP_OFT_BLOCKS, (af_tensor *[]){q}, 1);
    k->attr.oft.exact = o->exact;
    k->attr.oft.last = o->exact || o->terms < 2 ? 0 : o->terms == 2 ? 1 : AF_MAX(o->terms - 1, 3);
    return blocks_output(g, k, q->dtype, q->dim[0], n);
}

static void blocks_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_tensor *q = n->in[0];
    if (!q->needs_grad)
        return;
    af_node *b = af_node_new(g, AF_OP_OFT_BLOCKS_BWD, (af_tensor *[]){q, n->out[0], dout[0]}, 3);
    b->attr = n->attr;
    af_tensor *dq = af_node_output(g, b, q->dtype, 2, q->dim);
    if (af_graph_failed(g))
        return;
    dq->live = NULL;
    af_grad_add(g, q, dq);
}

static af_tensor *rotate(af_graph *g, af_tensor *x, af_tensor *r, bool turned)
{
    af_node *n = af_node_new(g, AF_OP_OFT_ROTATE, (af_tensor *[]){x, r}, 2);
    n->attr.oft.turned = turned;
    return af_node_output_like(g, n, x);
}

af_tensor *af_oft_rotate(af_graph *g, af_tensor *x, af_tensor *r)
{
    char a[96], b[96];
    if (af_graph_refuses(g, "oft_rotate", (af_tensor *[]){x, r}, 2))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype) || x->ndim < 2 || r->ndim != 3 || r->dim[1] != r->dim[2] ||
        r->dim[1] < 1 || af_last(x) % r->dim[1] != 0 ||
        (r->dim[0] != 1 && r->dim[0] * r->dim[1] != af_last(x)) ||
        r->dtype != (x->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32))
        return af_graph_bad(g, "oft_rotate: blocks %s do not fit x %s",
                            af_shape_text(r, a, sizeof a), af_shape_text(x, b, sizeof b));
    return rotate(g, x, r, false);
}

static void rotate_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_tensor *x = n->in[0], *r = n->in[1], *dy = dout[0];
    if (x->needs_grad)
        af_grad_add(g, x, rotate(g, dy, r, !n->attr.oft.turned));
    if (!r->needs_grad || af_graph_failed(g))
        return;
    af_node *k = af_node_new(g, AF_OP_OFT_ROTATE_DR, (af_tensor *[]){x, dy}, 2);
    af_grad_add(g, r, blocks_output(g, k, r->dtype, r->dim[0], r->dim[1]));
}

static double blocks_flops(const af_node *n)
{
    const bool back = n->op == AF_OP_OFT_BLOCKS_BWD;
    const int64_t *dim = back ? n->in[1]->dim : n->out[0]->dim;
    const double products = n->attr.oft.exact ? 2 : AF_MAX(n->attr.oft.last - 1, 0);
    return 2.0 * (double)(dim[0] * dim[1]) * (double)(dim[1] * dim[1]) *
           (back && !n->attr.oft.exact ? 3 * products + 1 : products);
}

static double rotate_flops(const af_node *n)
{
    const af_tensor *r = n->op == AF_OP_OFT_ROTATE ? n->in[1] : n->out[0];
    return 2.0 * (double)af_count(n->in[0]) * (double)af_last(r);
}

const af_op_info af_op_oft_blocks = {
    .name = "oft_blocks", .grad = blocks_grad, .flops = blocks_flops};
const af_op_info af_op_oft_blocks_bwd = {
    .name = "oft_blocks_bwd", .flops = blocks_flops, .accum_out = 1};
const af_op_info af_op_oft_rotate = {
    .name = "oft_rotate", .grad = rotate_grad, .flops = rotate_flops};
const af_op_info af_op_oft_rotate_dr = {.name = "oft_rotate_dr", .flops = rotate_flops};
