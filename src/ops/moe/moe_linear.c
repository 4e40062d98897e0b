/* moe_linear.c - the linears of experts over slots (moe.c says what slots and LISTS are).
 *
 * MOE_LINEAR        x, LISTS, w [X][O][I], [bias [X][O]], [a [X][r][I], b [X][O][r], xa [N][k][r]]
 *                   -> y [N][k][O]: y[s] = alpha * w[e] x(s) + bias[e] + b[e] xa[s]; x(s) =
 *                   x[list[s] / k] of x [N][I] (by_token), or x[s] of x [N][k][I]
 *                   attr.moe.glu: -> y, h [N][k][O/2]: h[s] = GLU of y[s]
 * MOE_LINEAR_DX     dy, LISTS, w, [a, g [N][k][r]] -> dx [N][k][I]: dx[s] = alpha * w[e]^T dy(s) +
 *                   a[e]^T g[s]; dy(s) as x(s)
 * MOE_LINEAR_DW     x, LISTS, dy -> dw [X][O][I] = sum over the slots of e of dy[s] x(s)^T, in
 *                   order; 0 for an expert without slots
 * MOE_LINEAR_DBIAS  dy, LISTS -> dbias [X][O]
 * The adapter uses the same ops: xa is MOE_LINEAR of a with alpha = scale, g is MOE_LINEAR_DX of b
 * with it. w may have any type while frozen. */
#include "ops/common/weight_type.h"
#include "ops/moe/moe_in.h"

static bool fits(af_graph *g, const af_tensor *x, const af_expert_linear *o)
{
    char a[96], b[96];
    const af_tensor *w = o->weight;
    if (!af_is_weight(w->dtype) || w->ndim != 3 || w->dim[2] != af_last(x))
        af_graph_bad(g, "moe_ffn: experts %s cannot be read with x %s",
                     af_shape_text(w, a, sizeof a), af_shape_text(x, b, sizeof b));
    else if (o->bias && (o->bias->ndim != 2 || o->bias->dim[0] != w->dim[0] ||
                         o->bias->dim[1] != w->dim[1] || !af_dtype_is_float(o->bias->dtype)))
        af_graph_bad(g, "moe_ffn: bias %s does not fit experts %s",
                     af_shape_text(o->bias, a, sizeof a), af_shape_text(w, b, sizeof b));
    else if (!o->a != !o->b)
        af_graph_bad(g, "moe_ffn: an adapter of experts %s lacks one of a and b",
                     af_shape_text(w, a, sizeof a));
    else if (o->a && (o->a->ndim != 3 || o->b->ndim != 3 || o->a->dim[0] != w->dim[0] ||
                      o->b->dim[0] != w->dim[0] || o->a->dim[2] != w->dim[2] ||
                      o->b->dim[1] != w->dim[1] || o->a->dim[1] != o->b->dim[2] ||
                      !af_dtype_is_float(o->a->dtype) || !af_dtype_is_float(o->b->dtype)))
        af_graph_bad(g, "moe_ffn: adapter a %s and b %s do not fit the experts",
                     af_shape_text(o->a, a, sizeof a), af_shape_text(o->b, b, sizeof b));
    return !af_graph_failed(g);
}

static af_attr attr_of(const af_tensor *x, const af_moe_lists *l, double alpha)
{
    af_attr a = {0};
    a.moe.k = (int)l->list->dim[1];
    a.moe.by_token = x->ndim == 2;
    a.moe.alpha = (float)alpha;
    return a;
}

/* A node with `width` columns by slot. */
static af_tensor *slots_output(af_graph *g, af_node *n, const af_tensor *list, af_dtype t,
                               int64_t width)
{
    return af_node_output(g, n, t, 3, (int64_t[]){list->dim[0], list->dim[1], width});
}

/* xa = scale * a x */
static af_tensor *adapter_down(af_graph *g, af_tensor *x, const af_moe_lists *l, af_tensor *w,
                               double alpha)
{
    af_node *n =
        af_node_new(g, AF_OP_MOE_LINEAR, (af_tensor *[]){x, l->list, l->slot, l->start, w}, 5);
    n->attr = attr_of(x, l, alpha);
    n->attr.moe.half = true;
    return slots_output(g, n, l->list, x->dtype, w->dim[1]);
}

af_tensor *af_moe_linear(af_graph *g, af_tensor *x, const af_moe_lists *l,
                         const af_expert_linear *o)
{
    if (af_graph_failed(g) || !fits(g, x, o))
        return af_graph_dummy(g);
    af_tensor *in[AF_NODE_IN_MAX] = {x, l->list, l->slot, l->start, o->weight};
    int n_in = 5;
    if (o->bias)
        in[n_in++] = o->bias;
    if (o->a) {
        in[n_in++] = o->a;
        in[n_in++] = o->b;
        in[n_in++] = adapter_down(g, x, l, o->a, o->scale);
    }
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    af_node *n = af_node_new(g, AF_OP_MOE_LINEAR, in, n_in);
    n->attr = attr_of(x, l, 1);
    n->attr.moe.bias = o->bias != NULL;
    n->attr.moe.lora = o->a != NULL;
    n->attr.moe.scale = (float)o->scale;
    return slots_output(g, n, l->list, x->dtype, o->weight->dim[1]);
}

/* ---- gradients ---- */

static void param_grad(af_graph *g, af_op op, const af_node *n, af_tensor *const *in, int n_in,
                       af_tensor *param, bool half)
{
    if (!param || !param->needs_grad || af_graph_failed(g))
        return;
    af_node *b = af_node_new(g, op, in, n_in);
    b->attr = n->attr;
    b->attr.moe.by_token = in[0]->ndim == 2;
    b->attr.moe.half = half;
    af_tensor *d = af_node_output(g, b, af_grad_type(param), param->ndim, param->dim);
    if (af_graph_failed(g))
        return;
    d->live = NULL;
    af_grad_add(g, param, d);
}

static af_tensor *dx_node(af_graph *g, const af_node *n, af_tensor *dy, af_tensor *w, double alpha,
                          af_tensor *a, af_tensor *down)
{
    const af_moe_inputs in = af_moe_in(n);
    af_tensor *from[] = {dy, in.list, in.slot, in.start, w, a, down};
    af_node *b = af_node_new(g, AF_OP_MOE_LINEAR_DX, from, down ? 7 : 5);
    b->attr.moe.k = n->attr.moe.k;
    b->attr.moe.alpha = (float)alpha;
    b->attr.moe.lora = down != NULL;
    b->attr.moe.half = w != in.w;
    return slots_output(g, b, in.list, dy->dtype, w->dim[2]);
}

static void linear_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_moe_inputs in = af_moe_in(n);
    const af_moe_lists lists = {in.list, in.slot, in.start};
    af_tensor *dy = dout[0], *down = NULL, *x = in.x;
    if (in.a && (x->needs_grad || in.a->needs_grad))
        down = dx_node(g, n, dy, in.b, n->attr.moe.scale, NULL, NULL);
    if (af_graph_failed(g))
        return;
    if (x->needs_grad) {
        af_tensor *dx = dx_node(g, n, dy, in.w, n->attr.moe.alpha, in.a, down);
        dx = n->attr.moe.by_token ? af_moe_combine(g, dx, &lists, NULL) : dx;
        if (!af_graph_failed(g))
            af_grad_add(g, x, dx);
    }
    af_tensor *const lists_dy[] = {dy, in.list, in.slot, in.start};
    param_grad(g, AF_OP_MOE_LINEAR_DW, n, (af_tensor *[]){x, in.list, in.slot, in.start, dy}, 5,
               in.w, false);
    param_grad(g, AF_OP_MOE_LINEAR_DBIAS, n, lists_dy, 4, in.bias, false);
    param_grad(g, AF_OP_MOE_LINEAR_DW, n, (af_tensor *[]){x, in.list, in.slot, in.start, down}, 5,
               in.a, true);
    param_grad(g, AF_OP_MOE_LINEAR_DW, n, (af_tensor *[]){in.xa, in.list, in.slot, in.start, dy}, 5,
               in.b, true);
}

static double flops(const af_node *n)
{
    const af_moe_inputs in = af_moe_in(n);
    const double slots = (double)af_count(in.list);
    if (n->op == AF_OP_MOE_LINEAR_DW)
        return 2.0 * slots * (double)n->out[0]->dim[1] * (double)n->out[0]->dim[2];
    const double low = in.a ? (double)in.a->dim[1] * (double)af_last(n->out[0]) : 0;
    return 2.0 * slots * ((double)in.w->dim[1] * (double)in.w->dim[2] + low);
}

const af_op_info af_op_moe_linear = {
    .name = "moe_linear", .grad = linear_grad, .flops = flops, .wide = true};
const af_op_info af_op_moe_linear_dx = {.name = "moe_linear_dx", .flops = flops};
const af_op_info af_op_moe_linear_dw = {.name = "moe_linear_dw", .flops = flops, .accum_out = 1};
const af_op_info af_op_moe_linear_dbias = {.name = "moe_linear_dbias", .accum_out = 1};
