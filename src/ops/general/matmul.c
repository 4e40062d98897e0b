/* matmul.c - c = op(a) op(b), batched, with either side transposed.
 *
 * a [.. M K] (T: [.. K M]), b [.. K N] (T: [.. N K]), c [.. M N]; one float type, sums in f32 or
 * better. Leading axes are batches and must be equal, or b has none and serves every batch.
 * Gradients are matmuls again:
 *   NN: da = dc b^T, db = a^T dc      NT: da = dc b,   db = dc^T a
 *   TN: da = b dc^T, db = a dc        TT: da = b^T dc^T, db = dc^T a^T
 * A shared b gets the sum over batches: batches and rows become one axis. */
#include "graph/node.h"
#include "tensor/dtype.h"

static bool transposed_a(af_matmul_kind kind) { return kind & AF_MATMUL_TN; }
static bool transposed_b(af_matmul_kind kind) { return kind & AF_MATMUL_NT; }

static bool batches_fit(const af_tensor *a, const af_tensor *b)
{
    if (a->ndim < 2 || b->ndim < 2)
        return false;
    if (b->ndim == 2)
        return true;
    if (a->ndim != b->ndim)
        return false;
    return memcmp(a->dim, b->dim, (size_t)(a->ndim - 2) * sizeof a->dim[0]) == 0;
}

af_tensor *af_matmul(af_graph *g, af_tensor *a, af_tensor *b, af_matmul_kind kind)
{
    static const char *const name[] = {"a b", "a b^T", "a^T b", "a^T b^T"};
    char ta[96], tb[96];
    if (af_graph_refuses(g, "matmul", (af_tensor *[]){a, b}, 2))
        return af_graph_dummy(g);
    if ((unsigned)kind > AF_MATMUL_TT)
        return af_graph_bad(g, "matmul: kind %d is not one of 0 to %d", (int)kind, AF_MATMUL_TT);
    bool fit = a->dtype == b->dtype && af_dtype_is_float(a->dtype) && batches_fit(a, b);
    int64_t dim[AF_NDIM_MAX] = {0};
    if (fit) {
        const int64_t *da = a->dim + a->ndim - 2, *db = b->dim + b->ndim - 2;
        memcpy(dim, a->dim, (size_t)a->ndim * sizeof dim[0]);
        dim[a->ndim - 2] = transposed_a(kind) ? da[1] : da[0];
        dim[a->ndim - 1] = transposed_b(kind) ? db[0] : db[1];
        fit = (transposed_a(kind) ? da[0] : da[1]) == (transposed_b(kind) ? db[1] : db[0]);
    }
    if (!fit)
        return af_graph_bad(g, "matmul (%s): %s and %s do not fit together", name[kind],
                            af_shape_text(a, ta, sizeof ta), af_shape_text(b, tb, sizeof tb));
    af_node *n = af_node_new(g, AF_OP_MATMUL, (af_tensor *[]){a, b}, 2);
    n->attr.matmul.kind = kind;
    af_tensor *c = af_node_output(g, n, a->dtype, a->ndim, dim);
    if (!af_graph_failed(g)) /* an equal length by chance does not make columns tokens */
        c->live = a->ndim == 2 && transposed_a(kind) ? NULL : a->live;
    return c;
}

/* The last two axes exchanged. */
static af_tensor *flip(af_graph *g, af_tensor *x)
{
    int perm[AF_NDIM_MAX];
    for (int i = 0; i < x->ndim; i++)
        perm[i] = i;
    perm[x->ndim - 2] = x->ndim - 1;
    perm[x->ndim - 1] = x->ndim - 2;
    return af_transpose(g, x, perm);
}

/* [.. M K] as [batches*M][K]. */
static af_tensor *flat(af_graph *g, af_tensor *x)
{
    return x->ndim == 2 ? x : af_reshape(g, x, 2, (int64_t[]){af_rows(x), af_last(x)});
}

static af_tensor *grad_a(af_graph *g, const af_node *n, af_tensor *dc)
{
    af_tensor *b = n->in[1];
    const bool shared = b->ndim < n->in[0]->ndim;
    switch (n->attr.matmul.kind) {
    case AF_MATMUL_NN:
        return af_matmul(g, dc, b, AF_MATMUL_NT);
    case AF_MATMUL_NT:
        return af_matmul(g, dc, b, AF_MATMUL_NN);
    case AF_MATMUL_TN:
        return shared ? flip(g, af_matmul(g, dc, b, AF_MATMUL_NT))
                      : af_matmul(g, b, dc, AF_MATMUL_NT);
    case AF_MATMUL_TT:
        return shared ? flip(g, af_matmul(g, dc, b, AF_MATMUL_NN))
                      : af_matmul(g, b, dc, AF_MATMUL_TT);
    }
    return dc;
}

static af_tensor *grad_b(af_graph *g, const af_node *n, af_tensor *dc)
{
    af_tensor *a = n->in[0];
    af_matmul_kind kind = n->attr.matmul.kind;
    if (n->in[1]->ndim < a->ndim) {
        a = flat(g, transposed_a(kind) ? flip(g, a) : a);
        dc = flat(g, dc);
        kind &= ~(unsigned)AF_MATMUL_TN;
    }
    switch (kind) {
    case AF_MATMUL_NN:
        return af_matmul(g, a, dc, AF_MATMUL_TN);
    case AF_MATMUL_NT:
        return af_matmul(g, dc, a, AF_MATMUL_TN);
    case AF_MATMUL_TN:
        return af_matmul(g, a, dc, AF_MATMUL_NN);
    case AF_MATMUL_TT:
        return af_matmul(g, dc, a, AF_MATMUL_TT);
    }
    return dc;
}

static void matmul_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    if (n->in[0]->needs_grad)
        af_grad_add(g, n->in[0], grad_a(g, n, dout[0]));
    if (n->in[1]->needs_grad)
        af_grad_add(g, n->in[1], grad_b(g, n, dout[0]));
}

static double matmul_flops(const af_node *n)
{
    const af_tensor *a = n->in[0];
    const int64_t K = transposed_a(n->attr.matmul.kind) ? a->dim[a->ndim - 2] : af_last(a);
    return 2.0 * (double)af_count(n->out[0]) * (double)K;
}

const af_op_info af_op_matmul = {
    .name = "matmul", .grad = matmul_grad, .flops = matmul_flops, .accum_out = 1, .wide = true};
