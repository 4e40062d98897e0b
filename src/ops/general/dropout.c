/* dropout.c - y = x with probability-p zeros, the rest times 1/(1-p).
 *
 * The mask is never stored: it is a pure function of (seed, stream, micro-batch, element), read
 * from the clock input, so the backward is the same node applied to dy and a recomputed forward
 * sees the same mask. In a graph without a backward pass the plan sets p to 0: the identity. */
#include "graph/node.h"
#include "tensor/dtype.h"

static af_tensor *dropout(af_graph *g, af_tensor *x, double p, uint64_t stream)
{
    if (!g->clock)
        g->clock = af_leaf(g, AF_ROLE_INPUT, "clock", AF_DTYPE_I32, 1, (int64_t[]){4});
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    af_node *n = af_node_new(g, AF_OP_DROPOUT, (af_tensor *[]){x, g->clock}, 2);
    n->attr.dropout.p = p;
    n->attr.dropout.stream = stream;
    return af_node_output_like(g, n, x);
}

af_tensor *af_dropout(af_graph *g, af_tensor *x, double p, uint64_t stream)
{
    char text[96];
    if (af_graph_refuses(g, "dropout", (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (!(p >= 0 && p < 1))
        return af_graph_bad(g, "dropout: the probability is %g, it must be from 0 up to below %g",
                            p, 1.0);
    if (!af_dtype_is_float(x->dtype))
        return af_graph_bad(g, "dropout: %s is not of a float type (f32, f64, bf16, f16)",
                            af_shape_text(x, text, sizeof text));
    return p == 0 ? x : dropout(g, x, p, stream);
}

static void dropout_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_grad_add(g, n->in[0], dropout(g, dout[0], n->attr.dropout.p, n->attr.dropout.stream));
}

const af_op_info af_op_dropout = {
    .name = "dropout", .grad = dropout_grad, .inplace = 1, .cheap = true};
