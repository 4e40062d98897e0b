/* gated_norm.c - RMS norm with a gate, over groups of columns as wide as the weight.
 *
 * GATED_NORM      x, gate [N][D], w [E], E divides D -> y [N][D], rstd f32 (f64 for f64) [N][D/E]
 *                 h = x, or x silu(gate) with gate_first; over each group of E columns
 *                 rstd = 1 / sqrt(mean h^2 + eps);  y = h rstd w, times silu(gate) unless
 *                 gate_first
 * GATED_NORM_BWD  x, gate, w, rstd, dy -> dx, dgate
 * GATED_NORM_DW   x, gate, rstd, dy -> dw: two stages, fixed order; may be added to */
#include "ops/state/gated_norm_in.h"
#include "tensor/dtype.h"

af_tensor *af_gated_norm(af_graph *g, af_tensor *x, af_tensor *gate, af_tensor *w, double eps,
                         bool gate_first)
{
    char a[96], b[96];
    af_tensor *in[] = {x, gate, w};
    if (af_graph_refuses(g, "gated_norm", in, 3))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype) || x->ndim != 2 || gate->dtype != x->dtype ||
        !af_same_shape(x, gate))
        return af_graph_bad(g, "gated_norm: x %s and gate %s do not fit together",
                            af_shape_text(x, a, sizeof a), af_shape_text(gate, b, sizeof b));
    if (!af_dtype_is_float(w->dtype) || w->ndim != 1 || w->dim[0] < 1 || x->dim[1] % w->dim[0])
        return af_graph_bad(g, "gated_norm: x %s and weight %s do not fit together",
                            af_shape_text(x, a, sizeof a), af_shape_text(w, b, sizeof b));
    af_node *n = af_node_new(g, AF_OP_GATED_NORM, in, 3);
    n->attr.norm.eps = eps;
    n->attr.norm.gate_first = gate_first;
    af_tensor *y = af_node_output_like(g, n, x);
    af_tensor *r = af_node_output(g, n, x->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32, 2,
                                  (int64_t[]){x->dim[0], x->dim[1] / w->dim[0]});
    if (!af_graph_failed(g))
        r->needs_grad = false;
    return y;
}

static void gated_norm_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_gated_norm_inputs f = af_gated_norm_in(n);
    if (!dout[0])
        return;
    af_node *b = af_node_new(g, AF_OP_GATED_NORM_BWD,
                             (af_tensor *[]){f.x, f.gate, f.w, n->out[1], dout[0]}, 5);
    b->attr = n->attr;
    af_tensor *dx = af_node_output_like(g, b, f.x), *dgate = af_node_output_like(g, b, f.gate);
    if (!af_graph_failed(g)) {
        af_grad_add(g, f.x, dx);
        af_grad_add(g, f.gate, dgate);
    }
    if (!f.w->needs_grad)
        return;
    b = af_node_new(g, AF_OP_GATED_NORM_DW, (af_tensor *[]){f.x, f.gate, n->out[1], dout[0]}, 4);
    b->attr = n->attr;
    af_tensor *dw = af_node_output_like(g, b, f.w);
    if (af_graph_failed(g))
        return;
    dw->live = NULL;
    af_grad_add(g, f.w, dw);
}

static double norm_flops(const af_node *n) { return 10.0 * (double)af_count(n->in[0]); }

const af_op_info af_op_gated_norm = {
    .name = "gated_norm", .grad = gated_norm_grad, .flops = norm_flops, .cheap = true};
const af_op_info af_op_gated_norm_bwd = {.name = "gated_norm_bwd", .flops = norm_flops};
const af_op_info af_op_gated_norm_dw = {
    .name = "gated_norm_dw", .flops = norm_flops, .accum_out = 1};
