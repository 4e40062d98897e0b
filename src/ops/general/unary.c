/* unary.c - y = f(x), element by element, and conversions between types.
 *
 * x, y: any float type, the same shape. The backward reads only what the derivative is made of:
 * UNARY_BWD always has three inputs, but both of its first two are y where f' follows from y
 * (exp, sqrt, tanh, sigmoid, relu, softcap), and both are x where it does not (log, gelu, silu,
 * clip). The one that is not needed can then be freed or overwritten. CAST rounds to nearest even.
 */
#include "ops/general/unary.h"
#include "tensor/dtype.h"

af_tensor *af_unary_record(af_graph *g, af_op op, const char *name, af_tensor *x, af_attr attr)
{
    char text[96];
    if (af_graph_refuses(g, name, (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype))
        return af_graph_bad(g, "%s: %s is not of a float type (f32, f64, bf16, f16)", name,
                            af_shape_text(x, text, sizeof text));
    af_node *n = af_node_new(g, op, (af_tensor *[]){x}, 1);
    n->attr = attr;
    return af_node_output_like(g, n, x);
}

static af_tensor *unary(af_graph *g, af_tensor *x, af_unary_kind kind, double value,
                        const char *name)
{
    return af_unary_record(g, AF_OP_UNARY, name, x,
                           (af_attr){.unary = {.kind = kind, .value = value}});
}

af_tensor *af_scale(af_graph *g, af_tensor *x, double factor)
{
    return unary(g, x, AF_UNARY_SCALE, factor, "scale");
}
af_tensor *af_neg(af_graph *g, af_tensor *x) { return unary(g, x, AF_UNARY_NEG, 0, "neg"); }
af_tensor *af_exp(af_graph *g, af_tensor *x) { return unary(g, x, AF_UNARY_EXP, 0, "exp"); }
af_tensor *af_log(af_graph *g, af_tensor *x) { return unary(g, x, AF_UNARY_LOG, 0, "log"); }
af_tensor *af_sqrt(af_graph *g, af_tensor *x) { return unary(g, x, AF_UNARY_SQRT, 0, "sqrt"); }
af_tensor *af_tanh(af_graph *g, af_tensor *x) { return unary(g, x, AF_UNARY_TANH, 0, "tanh"); }
af_tensor *af_sigmoid(af_graph *g, af_tensor *x)
{
    return unary(g, x, AF_UNARY_SIGMOID, 0, "sigmoid");
}
af_tensor *af_relu(af_graph *g, af_tensor *x) { return unary(g, x, AF_UNARY_RELU, 0, "relu"); }
af_tensor *af_gelu(af_graph *g, af_tensor *x) { return unary(g, x, AF_UNARY_GELU, 0, "gelu"); }
af_tensor *af_gelu_tanh(af_graph *g, af_tensor *x)
{
    return unary(g, x, AF_UNARY_GELU_TANH, 0, "gelu_tanh");
}
af_tensor *af_silu(af_graph *g, af_tensor *x) { return unary(g, x, AF_UNARY_SILU, 0, "silu"); }
af_tensor *af_softcap(af_graph *g, af_tensor *x, double cap)
{
    if (!af_graph_failed(g) && !(cap > 0))
        return af_graph_bad(g, "softcap: the cap is %g, it must be above %g", cap, 0.0);
    return unary(g, x, AF_UNARY_SOFTCAP, cap, "softcap");
}
af_tensor *af_clip(af_graph *g, af_tensor *x, double limit)
{
    if (!af_graph_failed(g) && !(limit > 0))
        return af_graph_bad(g, "clip: the limit is %g, it must be above %g", limit, 0.0);
    return unary(g, x, AF_UNARY_CLIP, limit, "clip");
}

static bool derivative_from_y(af_unary_kind kind)
{
    switch (kind) {
    case AF_UNARY_EXP:
    case AF_UNARY_SQRT:
    case AF_UNARY_TANH:
    case AF_UNARY_SIGMOID:
    case AF_UNARY_RELU:
    case AF_UNARY_SOFTCAP:
        return true;
    default:
        return false;
    }
}

static void unary_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_unary_kind kind = n->attr.unary.kind;
    if (kind == AF_UNARY_SCALE) {
        af_grad_add(g, n->in[0], af_scale(g, dout[0], n->attr.unary.value));
        return;
    }
    if (kind == AF_UNARY_NEG) {
        af_grad_add(g, n->in[0], af_neg(g, dout[0]));
        return;
    }
    af_tensor *of = derivative_from_y(kind) ? n->out[0] : n->in[0];
    af_node *b = af_node_new(g, AF_OP_UNARY_BWD, (af_tensor *[]){of, of, dout[0]}, 3);
    b->attr = n->attr;
    af_grad_add(g, n->in[0], af_node_output_like(g, b, n->in[0]));
}

static double unary_flops(const af_node *n) { return (double)af_count(n->out[0]); }

af_tensor *af_cast(af_graph *g, af_tensor *x, af_dtype t)
{
    char text[96];
    if (af_graph_refuses(g, "cast", (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (x->dtype == t)
        return x;
    if (!af_dtype_known(t))
        return af_graph_bad(g, "cast: there is no dtype %d for %s", (int)t,
                            af_shape_text(x, text, sizeof text));
    if (af_dtype_is_block(x->dtype) || af_dtype_is_block(t))
        return af_graph_bad(g, "cast: %s cannot become %s: one of them is a block type",
                            af_shape_text(x, text, sizeof text), af_dtype_name(t));
    af_node *n = af_node_new(g, AF_OP_CAST, (af_tensor *[]){x}, 1);
    return af_node_output(g, n, t, x->ndim, x->dim);
}

/* Integers stop gradients. */
static void cast_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    if (af_dtype_is_float(n->in[0]->dtype) && af_dtype_is_float(n->out[0]->dtype))
        af_grad_add(g, n->in[0], af_cast(g, dout[0], n->in[0]->dtype));
}

const af_op_info af_op_unary = {
    .name = "unary", .grad = unary_grad, .flops = unary_flops, .inplace = 1, .cheap = true};
const af_op_info af_op_unary_bwd = {.name = "unary_bwd", .flops = unary_flops, .inplace = 3};
const af_op_info af_op_cast = {.name = "cast", .grad = cast_grad, .accum_out = 1, .cheap = true};
