/* shape.c - values moved, not changed: transpose, reshape, slice, concat. Any unquantised type.
 *
 *   transpose: axis i of y is axis perm[i] of x          dx = dy transposed back
 *   reshape:   a view of x's memory, no kernel           dx = dy reshaped back
 *   detach:    the same                                  no dx
 *   slice:     y = x[.., from : from+count, ..]          dx = dy there, zeros elsewhere
 *   concat:    x[0], x[1] .. one after another on axis   dx[i] = its slice of dy */
#include "graph/node.h"
#include "tensor/dtype.h"

static af_tensor *blocked(af_graph *g, const char *name, const af_tensor *x)
{
    char text[96];
    return af_graph_bad(g, "%s: %s is of a block type, which only whole rows of weights have", name,
                        af_shape_text(x, text, sizeof text));
}

af_tensor *af_transpose(af_graph *g, af_tensor *x, const int *perm)
{
    int64_t dim[AF_NDIM_MAX];
    unsigned seen = 0;
    if (af_graph_refuses(g, "transpose", (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (!perm)
        return af_graph_bad(g, "transpose: the order of the %d axes is NULL", x->ndim);
    if (af_dtype_is_block(x->dtype))
        return blocked(g, "transpose", x);
    for (int i = 0; i < x->ndim; i++) {
        if (perm[i] < 0 || perm[i] >= x->ndim || seen & 1u << perm[i])
            return af_graph_bad(g, "transpose: axis %d of %d occurs twice or does not exist",
                                perm[i], x->ndim);
        seen |= 1u << perm[i];
        dim[i] = x->dim[perm[i]];
    }
    af_node *n = af_node_new(g, AF_OP_TRANSPOSE, (af_tensor *[]){x}, 1);
    memcpy(n->attr.transpose.perm, perm, (size_t)x->ndim * sizeof perm[0]);
    af_tensor *y = af_node_output(g, n, x->dtype, x->ndim, dim);
    if (!af_graph_failed(g))
        y->live = perm[0] == 0 ? x->live : NULL;
    return y;
}

static void transpose_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    int back[AF_NDIM_MAX];
    for (int i = 0; i < n->in[0]->ndim; i++)
        back[n->attr.transpose.perm[i]] = i;
    af_grad_add(g, n->in[0], af_transpose(g, dout[0], back));
}

af_tensor *af_reshape(af_graph *g, af_tensor *x, int ndim, const int64_t *dim)
{
    char text[96];
    if (af_graph_refuses(g, "reshape", (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (!dim)
        return af_graph_bad(g, "reshape: the new shape of %d axes is NULL", ndim);
    uint64_t count = 1;
    bool ok = ndim >= 1 && ndim <= AF_NDIM_MAX;
    for (int i = 0; ok && i < ndim; i++)
        ok = dim[i] >= 0 && af_mul_ok(count, (uint64_t)dim[i], &count);
    if (!ok || count != (uint64_t)af_count(x))
        return af_graph_bad(g, "reshape: %s has %" PRId64 " elements, the new shape %" PRIu64,
                            af_shape_text(x, text, sizeof text), af_count(x), ok ? count : 0);
    if (af_dtype_is_block(x->dtype))
        return blocked(g, "reshape", x);
    af_node *n = af_node_new(g, AF_OP_RESHAPE, (af_tensor *[]){x}, 1);
    return af_node_view(g, n, ndim, dim);
}

static void reshape_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_tensor *x = n->in[0];
    af_grad_add(g, n->in[0], af_reshape(g, dout[0], x->ndim, x->dim));
}

af_tensor *af_detach(af_graph *g, af_tensor *x)
{
    if (af_graph_refuses(g, "detach", (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (af_dtype_is_block(x->dtype))
        return blocked(g, "detach", x);
    af_node *n = af_node_new(g, AF_OP_DETACH, (af_tensor *[]){x}, 1);
    return af_node_view(g, n, x->ndim, x->dim);
}

af_tensor *af_slice(af_graph *g, af_tensor *x, int axis, int64_t from, int64_t count)
{
    char text[96];
    int64_t dim[AF_NDIM_MAX];
    if (af_graph_refuses(g, "slice", (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    const int at = axis < 0 ? axis + x->ndim : axis;
    if (at < 0 || at >= x->ndim)
        return af_graph_bad(g, "slice: axis %d of %s does not exist", axis,
                            af_shape_text(x, text, sizeof text));
    if (from < 0 || count < 1 || from > x->dim[at] - count)
        return af_graph_bad(g, "slice: %" PRId64 " from %" PRId64 " is outside axis %d of %s",
                            count, from, at, af_shape_text(x, text, sizeof text));
    if (af_dtype_is_block(x->dtype))
        return blocked(g, "slice", x);
    af_node *n = af_node_new(g, AF_OP_SLICE, (af_tensor *[]){x}, 1);
    n->attr.slice.axis = at;
    n->attr.slice.from = from;
    n->attr.slice.count = count;
    memcpy(dim, x->dim, sizeof dim);
    dim[at] = count;
    return af_node_output(g, n, x->dtype, x->ndim, dim);
}

static void slice_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_node *b = af_node_new(g, AF_OP_SLICE_BWD, (af_tensor *[]){dout[0]}, 1);
    b->attr = n->attr;
    af_tensor *dx = af_node_output_like(g, b, n->in[0]);
    if (!af_graph_failed(g))
        dx->live = n->in[0]->live;
    af_grad_add(g, n->in[0], dx);
}

af_tensor *af_concat(af_graph *g, af_tensor *const *x, int count, int axis)
{
    char ta[96], tb[96];
    int64_t dim[AF_NDIM_MAX];
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    if (!x)
        return af_graph_bad(g, "concat: the list of %d tensors is NULL", count);
    if (count < 1 || count > AF_NODE_IN_MAX)
        return af_graph_bad(g, "concat: %d tensors, not 1 to %d", count, AF_NODE_IN_MAX);
    if (af_graph_refuses(g, "concat", x, count))
        return af_graph_dummy(g);
    const int at = axis < 0 ? axis + x[0]->ndim : axis;
    if (at < 0 || at >= x[0]->ndim)
        return af_graph_bad(g, "concat: axis %d of %s does not exist", axis,
                            af_shape_text(x[0], ta, sizeof ta));
    if (af_dtype_is_block(x[0]->dtype))
        return blocked(g, "concat", x[0]);
    memcpy(dim, x[0]->dim, sizeof dim);
    for (int i = 1; i < count; i++) {
        bool fit = x[i]->dtype == x[0]->dtype && x[i]->ndim == x[0]->ndim;
        for (int k = 0; fit && k < x[0]->ndim; k++)
            fit = k == at || x[i]->dim[k] == x[0]->dim[k];
        if (!fit)
            return af_graph_bad(g, "concat on axis %d: %s and %s do not fit together", at,
                                af_shape_text(x[0], ta, sizeof ta),
                                af_shape_text(x[i], tb, sizeof tb));
        dim[at] += x[i]->dim[at];
    }
    af_node *n = af_node_new(g, AF_OP_CONCAT, x, count);
    n->attr.slice.axis = at;
    af_tensor *y = af_node_output(g, n, x[0]->dtype, x[0]->ndim, dim);
    if (!af_graph_failed(g) && at == 0)
        y->live = NULL; /* pieces follow each other at their full length */
    return y;
}

static void concat_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const int axis = n->attr.slice.axis;
    int64_t from = 0;
    for (int i = 0; i < n->n_in; i++) {
        const int64_t count = n->in[i]->dim[axis];
        if (n->in[i]->needs_grad)
            af_grad_add(g, n->in[i],
                        n->n_in == 1 ? dout[0] : af_slice(g, dout[0], axis, from, count));
        from += count;
    }
}

const af_op_info af_op_transpose = {
    .name = "transpose", .grad = transpose_grad, .accum_out = 1, .cheap = true};
const af_op_info af_op_detach = {.name = "detach", .view = true};
const af_op_info af_op_reshape = {.name = "reshape", .grad = reshape_grad, .view = true};
const af_op_info af_op_slice = {.name = "slice", .grad = slice_grad, .accum_out = 1, .cheap = true};
const af_op_info af_op_slice_bwd = {.name = "slice_bwd", .accum_out = 1};
const af_op_info af_op_concat = {.name = "concat", .grad = concat_grad, .cheap = true};
