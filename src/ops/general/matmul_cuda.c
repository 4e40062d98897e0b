/* matmul_cuda.c - launcher of matmul.c: one batched GEMM. */
#include "backend/cuda/cuda.h"

/* The last two axes as a matrix. */
static af_mat plane(const af_tensor *t)
{
    return (af_mat){t->data, t->dim[t->ndim - 2], af_last(t), t->ld, t->dtype};
}

static int64_t batches(const af_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim - 2; i++)
        n *= t->dim[i];
    return n;
}

static af_status matmul_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *a = n->in[0], *b = n->in[1], *c = n->out[0];
    if (a->dtype != b->dtype)
        return af_fail(err, AF_EUNSUPPORTED, "matmul of %s by %s on the GPU: cast one of them",
                       af_dtype_name(a->dtype), af_dtype_name(b->dtype));
    const af_matmul_kind kind = n->attr.matmul.kind;
    const int64_t count = batches(c);
    if (count > INT32_MAX)
        return af_fail(err, AF_EUNSUPPORTED, "matmul of %" PRId64 " batches", count);
    af_cuda_gemm m = {.a = plane(a),
                      .b = plane(b),
                      .c = plane(c),
                      .ta = kind == AF_MATMUL_TN || kind == AF_MATMUL_TT,
                      .tb = kind == AF_MATMUL_NT || kind == AF_MATMUL_TT,
                      .alpha = 1,
                      .beta = n->accumulate ? 1 : 0,
                      .batch = (int)count};
    m.stride_a = batches(a) > 1 ? m.a.rows * m.a.ld : 0;
    m.stride_b = batches(b) > 1 ? m.b.rows * m.b.ld : 0;
    m.stride_c = m.c.rows * m.c.ld;
    af_cuda_add_gemm(cu, n, &m);
    return AF_OK;
}

const af_cuda_op af_cuda_matmul = {matmul_prepare, NULL, false};
