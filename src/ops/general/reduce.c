/* reduce.c - sum, mean or max over one axis.
 *
 * x [outer][len][inner] -> y [outer][inner], or [outer][1][inner] when the axis is kept; float
 * types, sums in f32 or better, in a fixed order. REDUCE_BWD has three inputs (x, y, dy); sum and
 * mean need dy only, and get it three times so that x can be freed.
 *   sum: dx = dy    mean: dx = dy / len    max: dx = dy at the first maximum, 0 elsewhere */
#include "graph/node.h"
#include "tensor/dtype.h"

static af_tensor *reduce(af_graph *g, af_tensor *x, int axis, bool keep, af_reduce_kind kind,
                         const char *name)
{
    char text[96];
    int64_t dim[AF_NDIM_MAX];
    if (af_graph_refuses(g, name, (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    const int at = axis < 0 ? axis + x->ndim : axis;
    if (at < 0 || at >= x->ndim)
        return af_graph_bad(g, "%s: axis %d of %s does not exist", name, axis,
                            af_shape_text(x, text, sizeof text));
    if (!af_dtype_is_float(x->dtype))
        return af_graph_bad(g, "%s: %s is not of a float type (f32, f64, bf16, f16)", name,
                            af_shape_text(x, text, sizeof text));
    if (x->dim[at] == 0 && kind != AF_REDUCE_SUM)
        return af_graph_bad(g, "%s: axis %d of %s is empty", name, at,
                            af_shape_text(x, text, sizeof text));
    int ndim = 0;
    for (int i = 0; i < x->ndim; i++)
        if (i != at)
            dim[ndim++] = x->dim[i];
        else if (keep || x->ndim == 1)
            dim[ndim++] = 1;
    af_node *n = af_node_new(g, AF_OP_REDUCE, (af_tensor *[]){x}, 1);
    n->attr.reduce.kind = kind;
    n->attr.reduce.axis = at;
    af_tensor *y = af_node_output(g, n, x->dtype, ndim, dim);
    if (!af_graph_failed(g))
        y->live = at == 0 ? NULL : x->live;
    return y;
}

af_tensor *af_sum(af_graph *g, af_tensor *x, int axis, bool keep)
{
    return reduce(g, x, axis, keep, AF_REDUCE_SUM, "sum");
}
af_tensor *af_mean(af_graph *g, af_tensor *x, int axis, bool keep)
{
    return reduce(g, x, axis, keep, AF_REDUCE_MEAN, "mean");
}
af_tensor *af_max(af_graph *g, af_tensor *x, int axis, bool keep)
{
    return reduce(g, x, axis, keep, AF_REDUCE_MAX, "max");
}

/* One long axis; axis by axis where the outermost has live rows, which flattening would lose. */
static af_tensor *reduce_all(af_graph *g, af_tensor *x, af_reduce_kind kind, const char *name)
{
    if (af_graph_refuses(g, name, (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (!x->live)
        x = x->ndim == 1 ? x : af_reshape(g, x, 1, (int64_t[]){af_count(x)});
    while (!af_graph_failed(g) && x->ndim > 1)
        x = reduce(g, x, -1, false, kind, name);
    return reduce(g, x, 0, false, kind, name);
}

af_tensor *af_sum_all(af_graph *g, af_tensor *x) { return reduce_all(g, x, AF_REDUCE_SUM, "sum"); }
af_tensor *af_mean_all(af_graph *g, af_tensor *x)
{
    return reduce_all(g, x, AF_REDUCE_MEAN, "mean");
}

static void reduce_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_tensor *x = n->in[0], *dy = dout[0];
    const bool max = n->attr.reduce.kind == AF_REDUCE_MAX;
    af_node *b = af_node_new(g, AF_OP_REDUCE_BWD,
                             (af_tensor *[]){max ? x : dy, max ? n->out[0] : dy, dy}, 3);
    b->attr = n->attr;
    af_tensor *dx = af_node_output_like(g, b, x);
    if (!af_graph_failed(g))
        dx->live = x->live;
    af_grad_add(g, x, dx);
}

static double reduce_flops(const af_node *n) { return (double)af_count(n->in[0]); }

const af_op_info af_op_reduce = {
    .name = "reduce", .grad = reduce_grad, .flops = reduce_flops, .accum_out = 1, .cheap = true};
const af_op_info af_op_reduce_bwd = {.name = "reduce_bwd", .accum_out = 1};
