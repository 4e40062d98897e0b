/* softmax.c - softmax and log-softmax over the last axis.
 *
 * x, y: [N][D], any float type; the row's maximum is subtracted first.
 *   softmax:      y = exp(x - max) / sum            dx = y (dy - sum_d y dy)
 *   log-softmax:  y = x - max - log(sum)            dx = dy - exp(y) sum_d dy */
#include "ops/general/unary.h"

af_tensor *af_softmax(af_graph *g, af_tensor *x)
{
    return af_unary_record(g, AF_OP_SOFTMAX, "softmax", x, (af_attr){0});
}

af_tensor *af_log_softmax(af_graph *g, af_tensor *x)
{
    return af_unary_record(g, AF_OP_SOFTMAX, "log_softmax", x, (af_attr){.softmax = {.log = true}});
}

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
