/* noise.c - y = x + uniform noise in +- alpha / sqrt(L D): NEFTune (Jain et al. 2023).
 *
 * x, y: [N][D]; L is the number of rows of the row's own sequence, so that a sequence sees the same
 * noise strength in any batch. Like dropout's mask the noise is a pure function of (seed, stream,
 * micro-batch, element): a recomputed forward sees the same. The gradient passes unchanged. */
#include "graph/node.h"
#include "tensor/dtype.h"

af_tensor *af_neftune_noise(af_graph *g, af_tensor *x, af_tensor *bounds, double alpha,
                            uint64_t stream)
{
    char text[96];
    if (af_graph_refuses(g, "noise", (af_tensor *[]){x, bounds}, 2))
        return af_graph_dummy(g);
    if (!(alpha >= 0))
        return af_graph_bad(g, "noise: alpha is %g, it must be at least %g", alpha, 0.0);
    if (!af_dtype_is_float(x->dtype) || x->ndim != 2)
        return af_graph_bad(g, "noise: %s is not a matrix of a float type",
                            af_shape_text(x, text, sizeof text));
    if (bounds->dtype != AF_DTYPE_I32 || bounds->ndim != 1)
        return af_graph_bad(g, "noise: %s are not bounds (i32 [S+1])",
                            af_shape_text(bounds, text, sizeof text));
    if (alpha == 0)
        return x;
    af_expect(bounds, AF_VALUE_BOUNDS, x->dim[0]);
    if (!g->clock)
        g->clock = af_leaf(g, AF_ROLE_INPUT, "clock", AF_DTYPE_I32, 1, (int64_t[]){4});
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    af_node *n = af_node_new(g, AF_OP_NOISE, (af_tensor *[]){x, bounds, g->clock}, 3);
    n->attr.noise.alpha = alpha;
    n->attr.noise.stream = stream;
    return af_node_output_like(g, n, x);
}

static void noise_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_grad_add(g, n->in[0], dout[0]);
}

const af_op_info af_op_noise = {.name = "noise", .grad = noise_grad, .inplace = 1, .cheap = true};
