/* layernorm.c - layer normalisation over the last axis.
 *
 *   mean[n] = mean_d x;  rstd[n] = 1 / sqrt(mean_d (x - mean)^2 + eps)
 *   y[n][d] = (x[n][d] - mean[n]) * rstd[n] * w[d] + b[d]
 * x, y: [N][D]; w, b: [D], any float type (the output has x's); mean, rstd: [N] f32 (f64 for f64),
 * kept for the backward. With h = (x - mean) rstd and q = dy w:
 *   dx = rstd (q - mean_d q - h mean_d(q h));  dw = sum_n dy h;  db = sum_n dy
 * LAYERNORM_BWD has the last two only where one of them is wanted. */
#include "graph/node.h"
#include "ops/norm/norm_in.h"
#include "tensor/dtype.h"

static af_dtype stats_type(af_dtype t) { return t == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32; }

static bool is_scale(const af_tensor *t, const af_tensor *x)
{
    return t->ndim == 1 && t->dim[0] == af_last(x) && af_dtype_is_float(t->dtype);
}

af_tensor *af_layernorm(af_graph *g, af_tensor *x, af_tensor *w, af_tensor *b, double eps)
{
    char tx[96], tw[96];
    if (af_graph_refuses(g, "layernorm", (af_tensor *[]){x, w, b}, 3))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype))
        return af_graph_bad(g, "layernorm: %s is not of a float type (f32, f64, bf16, f16)",
                            af_shape_text(x, tx, sizeof tx));
    if (!is_scale(w, x) || !is_scale(b, x))
        return af_graph_bad(g, "layernorm: %s and %s do not fit together",
                            af_shape_text(x, tx, sizeof tx),
                            af_shape_text(is_scale(w, x) ? b : w, tw, sizeof tw));
    af_node *n = af_node_new(g, AF_OP_LAYERNORM, (af_tensor *[]){x, w, b}, 3);
    n->attr.norm.eps = eps;
    af_tensor *y = af_node_output_like(g, n, x);
    for (int i = 0; i < 2 && !af_graph_failed(g); i++) /* mean, rstd: one per row, axes as in x */
        af_node_output(g, n, stats_type(x->dtype), x->ndim == 1 ? 1 : x->ndim - 1,
                       x->ndim == 1 ? (int64_t[]){1, 1, 1, 1} : x->dim);
    return y;
}

static void layernorm_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_norm_inputs in = af_norm_in(n);
    af_tensor *x = in.x, *w = in.w, *b = in.b;
    if (!dout[0])
        return;
    af_node *d = af_node_new(g, AF_OP_LAYERNORM_BWD,
                             (af_tensor *[]){x, w, n->out[1], n->out[2], dout[0]}, 5);
    d->attr = n->attr;
    af_tensor *dx = af_node_output_like(g, d, x);
    if (!af_graph_failed(g))
        af_grad_add(g, x, dx);
    if (!w->needs_grad && !b->needs_grad)
        return;
    af_tensor *dw = af_node_output_like(g, d, w);
    af_tensor *db = af_node_output_like(g, d, b);
    if (af_graph_failed(g))
        return;
    dw->live = db->live = NULL;
    af_grad_add(g, w, dw);
    af_grad_add(g, b, db);
}

static double layernorm_flops(const af_node *n) { return 8.0 * (double)af_count(n->out[0]); }

const af_op_info af_op_layernorm = {
    .name = "layernorm", .grad = layernorm_grad, .flops = layernorm_flops, .cheap = true};
const af_op_info af_op_layernorm_bwd = {.name = "layernorm_bwd", .flops = layernorm_flops};
