/* fakequant.c - rounding to a small range of integers and back, for quantisation-aware training.
 *
 * Groups share a scale: the whole tensor (group 0), each row (-1), or each `group` columns of a
 * row. symmetric:  s = max|x| / (2^(bits-1) - 1);  q = clamp(round(x / s), -2^(bits-1), 2^(bits-1)
 * - 1) else:       s = (max - min) / (2^bits - 1) with 0 inside [min, max]; z = round(-min / s); q
 * = clamp(round(x / s) + z, 0, 2^bits - 1) y = s (q - z); ties round to even. mask: u8, 1 where q
 * was not clamped; dx = dy there, else 0.
 *
 * TERNARY  m = max(mean |w|, 1e-5);  y = m clamp(round(w / m), -1, 1);  dw = dy: weights of BitNet
 * (Ma et al. 2024) as they are trained. */
#include "graph/node.h"
#include "tensor/dtype.h"

af_tensor *af_fake_quant(af_graph *g, af_tensor *x, int bits, int64_t group, bool symmetric)
{
    char text[96];
    if (af_graph_refuses(g, "fake_quant", (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype))
        return af_graph_bad(g, "fake_quant: %s is not of a float type (f32, f64, bf16, f16)",
                            af_shape_text(x, text, sizeof text));
    if (bits < 2 || bits > 16)
        return af_graph_bad(g, "fake_quant: %d bits, not 2 to %d", bits, 16);
    if (group < -1 || (group > 0 && af_last(x) % group != 0))
        return af_graph_bad(g, "fake_quant: groups of %" PRId64 " do not divide the rows of %s",
                            group, af_shape_text(x, text, sizeof text));
    af_node *n = af_node_new(g, AF_OP_FAKE_QUANT, (af_tensor *[]){x}, 1);
    n->attr.fake_quant.bits = bits;
    n->attr.fake_quant.group = group;
    n->attr.fake_quant.symmetric = symmetric;
    af_tensor *y = af_node_output_like(g, n, x);
    if (!af_graph_failed(g))
        af_node_output(g, n, AF_DTYPE_U8, x->ndim, x->dim);
    return y;
}

static void fake_quant_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    if (!dout[0])
        return;
    af_node *b = af_node_new(g, AF_OP_FAKE_QUANT_BWD, (af_tensor *[]){n->out[1], dout[0]}, 2);
    b->attr = n->attr;
    af_grad_add(g, n->in[0], af_node_output_like(g, b, n->in[0]));
}

af_tensor *af_ternary(af_graph *g, af_tensor *w, af_dtype out)
{
    char text[96];
    if (af_graph_refuses(g, "ternary", (af_tensor *[]){w}, 1))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(w->dtype) || !af_dtype_is_float(out))
        return af_graph_bad(g, "ternary: %s or the result is not of a float type",
                            af_shape_text(w, text, sizeof text));
    af_node *n = af_node_new(g, AF_OP_TERNARY, (af_tensor *[]){w}, 1);
    return af_node_output(g, n, out, w->ndim, w->dim);
}

static void ternary_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_grad_add(g, n->in[0], dout[0]);
}

const af_op_info af_op_ternary = {.name = "ternary", .grad = ternary_grad};
const af_op_info af_op_fake_quant = {.name = "fake_quant", .grad = fake_quant_grad};
const af_op_info af_op_fake_quant_bwd = {.name = "fake_quant_bwd", .inplace = 2};
