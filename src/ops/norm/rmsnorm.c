/* rmsnorm.c - root mean square normalisation over the last axis, alone and with a residual add.
 *
 * RMSNORM      rstd[n] = 1 / sqrt(mean_d x[n][d]^2 + eps);   y[n][d] = x[n][d] * rstd[n] * W[d]
 *              W = w, or 1 + w with plus_one. x, y: [..][D]; w: [D]; rstd: f32 (f64 for f64) [N].
 * RMSNORM_ADD  sum = x + residual, rounded to its type; y = rmsnorm(sum as stored). The recompute
 *              transform rebuilds y from the stored sum, so this order is part of the contract.
 * RMSNORM_BWD  x, w, rstd, dy, [dsum] -> dx = rstd * (dy W - xhat * mean(dy W xhat)) [+ dsum]
 *              with xhat = x * rstd
 * RMSNORM_DW   x, rstd, dy -> dw[d] = sum_n dy[n][d] * xhat[n][d]; may be added to.
 * y may share x's memory; dx may share dy's. */
#include "graph/node.h"
#include "ops/norm/norm_in.h"
#include "tensor/dtype.h"

static af_dtype stat_type(const af_tensor *x)
{
    return x->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32;
}

/* False, with the error latched, when w does not fit x. */
static bool check(af_graph *g, const char *name, const af_tensor *x, const af_tensor *w)
{
    char a[96], b[96];
    if (af_dtype_is_float(x->dtype) && af_dtype_is_float(w->dtype) && w->ndim == 1 &&
        w->dim[0] == af_last(x))
        return true;
    af_graph_bad(g, "%s: x %s and weight %s do not fit together", name,
                 af_shape_text(x, a, sizeof a), af_shape_text(w, b, sizeof b));
    return false;
}

static void rstd_output(af_graph *g, af_node *n, const af_tensor *x)
{
    af_tensor *r = af_node_output(g, n, stat_type(x), 1, (int64_t[]){af_rows(x)});
    if (!af_graph_failed(g))
        r->needs_grad = false;
}

af_tensor *af_rmsnorm(af_graph *g, af_tensor *x, af_tensor *w, double eps, bool plus_one)
{
    if (af_graph_refuses(g, "rmsnorm", (af_tensor *[]){x, w}, 2) || !check(g, "rmsnorm", x, w))
        return af_graph_dummy(g);
    af_node *n = af_node_new(g, AF_OP_RMSNORM, (af_tensor *[]){x, w}, 2);
    n->attr.norm.eps = eps;
    n->attr.norm.plus_one = plus_one;
    af_tensor *y = af_node_output_like(g, n, x);
    rstd_output(g, n, x);
    return y;
}

af_tensor *af_rmsnorm_add(af_graph *g, af_tensor *x, af_tensor *residual, af_tensor *w, double eps,
                          bool plus_one, af_tensor **sum)
{
    char a[96], b[96];
    af_tensor *unused;
    sum = sum ? sum : &unused;
    *sum = af_graph_dummy(g);
    if (af_graph_refuses(g, "rmsnorm_add", (af_tensor *[]){x, residual, w}, 3) ||
        !check(g, "rmsnorm_add", x, w))
        return af_graph_dummy(g);
    if (!af_same_shape(x, residual) || x->dtype != residual->dtype)
        return af_graph_bad(g, "rmsnorm_add: x %s and residual %s do not fit together",
                            af_shape_text(x, a, sizeof a), af_shape_text(residual, b, sizeof b));
    af_node *n = af_node_new(g, AF_OP_RMSNORM_ADD, (af_tensor *[]){x, residual, w}, 3);
    n->attr.norm.eps = eps;
    n->attr.norm.plus_one = plus_one;
    af_tensor *y = af_node_output_like(g, n, x);
    *sum = af_node_output_like(g, n, x);
    rstd_output(g, n, x);
    return y;
}

/* The gradient through the norm of x, with dsum added where there is one. dw is accumulated. */
static af_tensor *norm_back(af_graph *g, const af_node *n, af_tensor *x, af_tensor *w,
                            af_tensor *rstd, af_tensor *dy, af_tensor *dsum, bool want_dx)
{
    af_tensor *dx = NULL;
    if (w->needs_grad) {
        af_node *d = af_node_new(g, AF_OP_RMSNORM_DW, (af_tensor *[]){x, rstd, dy}, 3);
        d->attr = n->attr;
        af_tensor *dw = af_node_output(g, d, af_grad_type(w), 1, w->dim);
        if (af_graph_failed(g))
            return dw;
        dw->live = NULL;
        af_grad_add(g, w, dw);
    }
    if (want_dx) {
        af_tensor *in[5] = {x, w, rstd, dy, dsum};
        af_node *b = af_node_new(g, AF_OP_RMSNORM_BWD, in, dsum ? 5 : 4);
        b->attr = n->attr;
        dx = af_node_output_like(g, b, x);
    }
    return dx;
}

static void rmsnorm_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_norm_inputs in = af_norm_in(n);
    af_tensor *x = in.x;
    if (!dout[0])
        return;
    af_tensor *dx = norm_back(g, n, x, in.w, n->out[1], dout[0], NULL, x->needs_grad);
    if (dx && !af_graph_failed(g))
        af_grad_add(g, x, dx);
}

static void rmsnorm_add_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_norm_inputs in = af_norm_in(n);
    af_tensor *x = in.x, *residual = in.residual, *d = dout[1];
    if (dout[0])
        d = norm_back(g, n, n->out[1], in.w, n->out[2], dout[0], dout[1],
                      x->needs_grad || residual->needs_grad);
    if (!d || af_graph_failed(g))
        return;
    af_grad_add(g, x, d);
    af_grad_add(g, residual, d);
}

static double norm_flops(const af_node *n) { return 4.0 * (double)af_count(n->in[0]); }

const af_op_info af_op_rmsnorm = {
    .name = "rmsnorm", .grad = rmsnorm_grad, .flops = norm_flops, .inplace = 1, .cheap = true};
const af_op_info af_op_rmsnorm_add = {.name = "rmsnorm_add",
                                      .grad = rmsnorm_add_grad,
                                      .flops = norm_flops,
                                      .inplace = 1,
                                      .cheap = true};
const af_op_info af_op_rmsnorm_bwd = {.name = "rmsnorm_bwd", .flops = norm_flops, .inplace = 4};
const af_op_info af_op_rmsnorm_dw = {.name = "rmsnorm_dw", .flops = norm_flops, .accum_out = 1};
