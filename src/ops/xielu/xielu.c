/* xielu.c - the activation of Huang et al. 2024 with two trained slopes.
 *
 * XIELU         a = softplus(p), c = beta + softplus(n):
 *                 x > 0:  y = a x^2 + beta x
 *                 else    y = c (expm1(min(x, eps)) - x) + beta x
 * XIELU_BWD     x, p, n, beta, eps, dy -> dx = dy (2 a x + beta), or
 *                 dy (c (e - 1) + beta) with e = exp(x) for x < eps and 0 between eps and 0
 * XIELU_DSLOPE  x, p, n, beta, eps, dy -> dp = sigmoid(p) sum dy x^2 over x > 0,
 *                 dn = sigmoid(n) sum dy (expm1(min(x, eps)) - x) over the others
 * x, y: any shape; p, n, beta, eps: [1], f32 (f64 for f64). beta and eps have no gradient. */
#include "graph/node.h"
#include "ops/xielu/xielu_in.h"
#include "tensor/dtype.h"

static bool is_scalar(const af_tensor *t)
{
    return af_count(t) == 1 && (t->dtype == AF_DTYPE_F32 || t->dtype == AF_DTYPE_F64);
}

af_tensor *af_xielu(af_graph *g, af_tensor *x, af_tensor *p, af_tensor *n, af_tensor *beta,
                    af_tensor *eps)
{
    char a[96];
    af_tensor *in[5] = {x, p, n, beta, eps};
    if (af_graph_refuses(g, "xielu", in, 5))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype))
        return af_graph_bad(g, "xielu: %s is not of a float type", af_shape_text(x, a, sizeof a));
    for (int i = 1; i < 5; i++)
        if (!is_scalar(in[i]))
            return af_graph_bad(g, "xielu: %s is not one number in f32",
                                af_shape_text(in[i], a, sizeof a));
    af_node *y = af_node_new(g, AF_OP_XIELU, in, 5);
    return af_node_output_like(g, y, x);
}

static af_node *back_node(af_graph *g, af_op op, const af_node *n, af_tensor *dy)
{
    af_tensor *in[6];
    memcpy(in, n->in, 5 * sizeof *in);
    in[5] = dy;
    return af_node_new(g, op, in, 6);
}

static void xielu_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_xielu_inputs in = af_xielu_in(n);
    if (in.p->needs_grad || in.n->needs_grad) {
        af_node *b = back_node(g, AF_OP_XIELU_DSLOPE, n, dout[0]);
        af_tensor *dp = af_node_output(g, b, in.p->dtype, 1, (int64_t[]){1});
        af_tensor *dn = af_node_output(g, b, in.n->dtype, 1, (int64_t[]){1});
        if (af_graph_failed(g))
            return;
        dp->live = dn->live = NULL;
        af_grad_add(g, in.p, dp);
        af_grad_add(g, in.n, dn);
    }
    if (in.x->needs_grad) {
        af_node *b = back_node(g, AF_OP_XIELU_BWD, n, dout[0]);
        af_tensor *d = af_node_output_like(g, b, in.x);
        if (!af_graph_failed(g))
            af_grad_add(g, in.x, d);
    }
}

static double xielu_flops(const af_node *n) { return 8.0 * (double)af_count(n->in[0]); }

const af_op_info af_op_xielu = {
    .name = "xielu", .grad = xielu_grad, .flops = xielu_flops, .cheap = true};
const af_op_info af_op_xielu_bwd = {.name = "xielu_bwd", .flops = xielu_flops};
const af_op_info af_op_xielu_dslope = {.name = "xielu_dslope", .flops = xielu_flops};
