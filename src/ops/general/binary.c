/* binary.c - y = a (+ - * /) b, element by element with broadcasting; and the sum that undoes a
 * broadcast.
 *
 * Shapes are aligned at the last axis; a 1 or a missing axis stretches. a, b, y have one float
 * type. d(a+b): da = dy, db = dy     d(a*b): da = dy*b, db = dy*a     d(a/b): da = dy/b, db =
 * -dy*y/b each summed over the axes along which that input was stretched (SUM_TO). */
#include "graph/node.h"
#include "tensor/dtype.h"

/* The broadcast shape of two; false when they do not fit. */
static bool broadcast(const af_tensor *a, const af_tensor *b, int *ndim, int64_t *dim)
{
    *ndim = AF_MAX(a->ndim, b->ndim);
    for (int i = 1; i <= *ndim; i++) {
        const int64_t x = i <= a->ndim ? a->dim[a->ndim - i] : 1,
                      y = i <= b->ndim ? b->dim[b->ndim - i] : 1;
        if (x != y && x != 1 && y != 1)
            return false;
        dim[*ndim - i] = x == 1 ? y : x;
    }
    return true;
}

static af_tensor *binary(af_graph *g, af_tensor *a, af_tensor *b, af_binary_kind kind,
                         const char *name)
{
    int ndim;
    int64_t dim[AF_NDIM_MAX];
    char ta[96], tb[96];
    if (af_graph_refuses(g, name, (af_tensor *[]){a, b}, 2))
        return af_graph_dummy(g);
    if (a->dtype != b->dtype || !af_dtype_is_float(a->dtype) || !broadcast(a, b, &ndim, dim))
        return af_graph_bad(g, "%s: %s and %s do not fit together", name,
                            af_shape_text(a, ta, sizeof ta), af_shape_text(b, tb, sizeof tb));
    af_node *n = af_node_new(g, AF_OP_BINARY, (af_tensor *[]){a, b}, 2);
    n->attr.binary.kind = kind;
    return af_node_output(g, n, a->dtype, ndim, dim);
}

af_tensor *af_add(af_graph *g, af_tensor *a, af_tensor *b)
{
    return binary(g, a, b, AF_BINARY_ADD, "add");
}
af_tensor *af_sub(af_graph *g, af_tensor *a, af_tensor *b)
{
    return binary(g, a, b, AF_BINARY_SUB, "sub");
}
af_tensor *af_mul(af_graph *g, af_tensor *a, af_tensor *b)
{
    return binary(g, a, b, AF_BINARY_MUL, "mul");
}
af_tensor *af_div(af_graph *g, af_tensor *a, af_tensor *b)
{
    return binary(g, a, b, AF_BINARY_DIV, "div");
}

static af_tensor *sum_to(af_graph *g, af_tensor *d, const af_tensor *like)
{
    if (af_same_shape(d, like) || af_graph_failed(g))
        return d;
    af_node *n = af_node_new(g, AF_OP_SUM_TO, (af_tensor *[]){d}, 1);
    af_tensor *y = af_node_output(g, n, d->dtype, like->ndim, like->dim);
    if (!af_graph_failed(g))
        y->live = like->live;
    return y;
}

static void binary_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_tensor *a = n->in[0], *b = n->in[1], *dy = dout[0], *y = n->out[0];
    af_tensor *da = NULL, *db = NULL;
    switch (n->attr.binary.kind) {
    case AF_BINARY_ADD:
        da = db = dy;
        break;
    case AF_BINARY_SUB:
        da = dy;
        db = b->needs_grad ? af_neg(g, dy) : NULL;
        break;
    case AF_BINARY_MUL:
        da = a->needs_grad ? af_mul(g, dy, b) : NULL;
        db = b->needs_grad ? af_mul(g, dy, a) : NULL;
        break;
    case AF_BINARY_DIV:
        da = a->needs_grad ? af_div(g, dy, b) : NULL;
        db = b->needs_grad ? af_neg(g, af_div(g, af_mul(g, dy, y), b)) : NULL;
        break;
    }
    if (a->needs_grad)
        af_grad_add(g, a, sum_to(g, da, a));
    if (b->needs_grad)
        af_grad_add(g, b, sum_to(g, db, b));
}

static void sum_to_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    /* only made inside backward passes; a stretched add of zeros is its gradient */
    af_tensor *zero = af_graph_constant(g, n->in[0]->dtype, n->in[0]->ndim, n->in[0]->dim, 0);
    af_grad_add(g, n->in[0], af_add(g, zero, dout[0]));
}

static double binary_flops(const af_node *n) { return (double)af_count(n->out[0]); }

const af_op_info af_op_binary = {
    .name = "binary", .grad = binary_grad, .flops = binary_flops, .inplace = 0, .cheap = true};
const af_op_info af_op_sum_to = {.name = "sum_to", .grad = sum_to_grad, .accum_out = 1};
const af_op_info af_op_accum = {.name = "accum", .effect = true};
const af_op_info af_op_fill = {.name = "fill"};
