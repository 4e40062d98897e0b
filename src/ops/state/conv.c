/* conv.c - causal depthwise convolution over packed sequences, and with a window for generation.
 *
 * CONV         x [N][C], w [C][K], bounds i32 [S+1], [bias [C]] -> y [N][C]. Within a sequence
 *              u[t][c] = bias[c] + sum_j w[c][j] x[t-K+1+j][c], x = 0 before its first row;
 *              y = u, or u sigmoid(u) with silu. Rows outside every sequence: y = 0, no gradient.
 * CONV_BWD     x, w, bounds, dy, [bias] -> dx; u is computed again
 * CONV_DW      x, w, bounds, dy, [bias] -> dw, [dbias]: fixed order
 * CONV_CACHED  x, w, bounds, window [S][max(K-1, 1)][C] (in place), start i32 [S], [bias] -> y. The
 * window holds the inputs before the new rows, the latest last; start[s] = 0: zeros. */
#include "ops/state/state_in.h"
#include "tensor/dtype.h"

enum { TAPS_MAX = 64 };

static bool check(af_graph *g, const char *name, const af_tensor *x, const af_tensor *w,
                  const af_tensor *bias, const af_tensor *bounds)
{
    char a[96], b[96];
    if (!af_dtype_is_float(x->dtype) || !af_dtype_is_float(w->dtype) || x->ndim != 2 ||
        w->ndim != 2 || w->dim[0] != x->dim[1])
        af_graph_bad(g, "%s: x %s and weight %s do not fit together", name,
                     af_shape_text(x, a, sizeof a), af_shape_text(w, b, sizeof b));
    else if (w->dim[1] < 1 || w->dim[1] > TAPS_MAX)
        af_graph_bad(g, "%s: a kernel of %" PRId64 " is not one of 1 to %d", name, w->dim[1],
                     TAPS_MAX);
    else if (bias &&
             (!af_dtype_is_float(bias->dtype) || bias->ndim != 1 || bias->dim[0] != x->dim[1]))
        af_graph_bad(g, "%s: x %s and bias %s do not fit together", name,
                     af_shape_text(x, a, sizeof a), af_shape_text(bias, b, sizeof b));
    else if (bounds->dtype != AF_DTYPE_I32 || bounds->ndim != 1 || bounds->dim[0] < 1)
        af_graph_bad(g, "%s: bounds are %s, not i32 [S+1]", name,
                     af_shape_text(bounds, a, sizeof a));
    return !af_graph_failed(g);
}

af_tensor *af_conv(af_graph *g, af_tensor *x, af_tensor *w, af_tensor *bias, af_tensor *bounds,
                   bool silu)
{
    af_tensor *in[] = {x, w, bounds, bias};
    const int n_in = bias ? 4 : 3;
    if (af_graph_refuses(g, "conv", in, n_in) || !check(g, "conv", x, w, bias, bounds))
        return af_graph_dummy(g);
    af_expect(bounds, AF_VALUE_BOUNDS, x->dim[0]);
    af_node *n = af_node_new(g, AF_OP_CONV, in, n_in);
    n->attr.conv.silu = silu;
    n->attr.conv.bias = bias != NULL;
    return af_node_output_like(g, n, x);
}

af_tensor *af_conv_cached(af_graph *g, af_tensor *x, af_tensor *w, af_tensor *bias,
                          af_tensor *window, af_tensor *bounds, af_tensor *start, bool silu)
{
    char a[96], b[96];
    af_tensor *in[] = {x, w, bounds, window, start, bias};
    const int n_in = bias ? 6 : 5;
    if (af_graph_refuses(g, "conv_cached", in, n_in) ||
        !check(g, "conv_cached", x, w, bias, bounds))
        return af_graph_dummy(g);
    af_expect(bounds, AF_VALUE_BOUNDS, x->dim[0]);
    const int64_t S = bounds->dim[0] - 1;
    if (start->dtype != AF_DTYPE_I32 || start->ndim != 1 || start->dim[0] != S)
        return af_graph_bad(g, "conv_cached: start %s does not fit bounds %s",
                            af_shape_text(start, a, sizeof a), af_shape_text(bounds, b, sizeof b));
    if (window->role != AF_ROLE_STATE || !af_dtype_is_float(window->dtype) || window->ndim != 3 ||
        window->dim[0] != S || window->dim[1] != AF_MAX(w->dim[1] - 1, 1) ||
        window->dim[2] != x->dim[1])
        return af_graph_bad(g, "conv_cached: window %s is not a state of %" PRId64 " sequences",
                            af_shape_text(window, a, sizeof a), S);
    af_node *n = af_node_new(g, AF_OP_CONV_CACHED, in, n_in);
    n->attr.conv.silu = silu;
    n->attr.conv.bias = bias != NULL;
    return af_node_output_like(g, n, x);
}

static void conv_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_conv_inputs f = af_conv_in(n);
    af_tensor *in[] = {f.x, f.w, f.bounds, dout[0], f.bias};
    const int n_in = f.bias ? 5 : 4;
    if (!dout[0])
        return;
    if (f.x->needs_grad) {
        af_node *b = af_node_new(g, AF_OP_CONV_BWD, in, n_in);
        b->attr = n->attr;
        af_tensor *dx = af_node_output_like(g, b, f.x);
        if (!af_graph_failed(g))
            af_grad_add(g, f.x, dx);
    }
    if (f.w->needs_grad || (f.bias && f.bias->needs_grad)) {
        af_node *b = af_node_new(g, AF_OP_CONV_DW, in, n_in);
        b->attr = n->attr;
        af_tensor *dw = af_node_output_like(g, b, f.w);
        af_tensor *dbias = f.bias ? af_node_output_like(g, b, f.bias) : NULL;
        if (af_graph_failed(g))
            return;
        dw->live = NULL;
        af_grad_add(g, f.w, dw);
        if (dbias) {
            dbias->live = NULL;
            af_grad_add(g, f.bias, dbias);
        }
    }
}

static double conv_flops(const af_node *n)
{
    return 2.0 * (double)af_count(n->in[0]) * (double)n->in[1]->dim[1];
}
static double conv_bwd_flops(const af_node *n) { return 2 * conv_flops(n); }

const af_op_info af_op_conv = {
    .name = "conv", .grad = conv_grad, .flops = conv_flops, .cheap = true};
const af_op_info af_op_conv_bwd = {.name = "conv_bwd", .flops = conv_bwd_flops};
const af_op_info af_op_conv_dw = {.name = "conv_dw", .flops = conv_bwd_flops};
const af_op_info af_op_conv_cached = {.name = "conv_cached", .effect = true};
