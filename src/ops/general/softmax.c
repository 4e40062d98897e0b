/* softmax.c - softmax and log-softmax over the last axis.
 *
 * x, y: [N][D], any float type; the row's maximum is subtracted first.
 *   softmax:      y = exp(x - max) / sum            dx = y (dy - sum_d y dy)
 *   log-softmax:  y = x - max - log(sum)            dx = dy - exp(y) sum_d dy */
#include "graph/node.h"
#include "tensor/dtype.h"

static af_tensor *softmax(af_graph *g, af_tensor *x, bool log, const char *name)
{
    char text[96];
    if (af_graph_refuses(g, name, (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype))
        return af_graph_bad(g, "%s: %s is not of a float type (f32, f64, bf16, f16)", name,
                            af_shape_text(x, text, sizeof text));
    af_node *n = af_node_new(g, AF_OP_SOFTMAX, (af_tensor *[]){x}, 1);
    n->attr.softmax.log = log;
    return af_node_output_like(g, n, x);
}

af_tensor *af_softmax(af_graph *g, af_tensor *x) { return softmax(g, x, false, "softmax"); }
af_tensor *af_log_softmax(af_graph *g, af_tensor *x) { return softmax(g, x, true, "log_softmax"); }

static void softmax_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_node *b = af_node_new(g, AF_OP_SOFTMAX_BWD, (af_tensor *[]){n->out[0], dout[0]}, 2);
    b->attr = n->attr;
    af_grad_add(g, n->in[0], af_node_output_like(g, b, n->in[0]));
}

static double softmax_flops(const af_node *n) { return 4.0 * (double)af_count(n->out[0]); }

const af_op_info af_op_softmax = {
    .name = "softmax", .grad = softmax_grad, .flops = softmax_flops, .inplace = 1, .cheap = true};
const af_op_info af_op_softmax_bwd = {.name = "softmax_bwd", .flops = softmax_flops, .inplace = 2};
