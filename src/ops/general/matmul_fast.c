/* matmul_fast.c - matmul.c through the packed product, batch after batch. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"

static const void *at(const af_tensor *t, int64_t i)
{
    return (const uint8_t *)t->data + i * (int64_t)af_dtype_get(t->dtype)->bytes;
}

static void matmul_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *a = n->in[0], *b = n->in[1], *c = n->out[0];
    const bool ta = n->attr.matmul.kind & AF_MATMUL_TN, tb = n->attr.matmul.kind & AF_MATMUL_NT;
    const int64_t M = c->dim[c->ndim - 2], N = af_last(c), rows = N ? af_live_count(c) / N : 0;
    const int64_t a_batch = a->dim[a->ndim - 2] * af_last(a);
    const int64_t b_batch = b->ndim == 2 ? 0 : b->dim[b->ndim - 2] * af_last(b);
    int64_t K = ta ? a->dim[a->ndim - 2] : af_last(a);
    /* live rows are summed over when axis 0 is the summed one, and else are the rows of c */
    if (ta && a->ndim == 2 && a->live)
        K = af_live_dim(a);
    if (!tb && b->ndim == 2 && b->live)
        K = AF_MIN(K, af_live_dim(b));
    for (int64_t r = 0; M > 0 && r < rows; r += M) {
        const int64_t batch = r / M;
        af_operand x = af_fast_operand(a, ta), y = af_fast_operand(b, tb);
        x.data = at(a, batch * a_batch);
        y.data = at(b, batch * b_batch);
        y.packed = b_batch ? NULL : af_cpu_packed(b, tb);
        const af_gemm g = {.M = AF_MIN(M, rows - r),
                           .N = N,
                           .K = K,
                           .a = x,
                           .b = y,
                           .c = (void *)at(c, r * N),
                           .ldc = N,
                           .c_dtype = c->dtype,
                           .alpha = 1,
                           .add = n->accumulate};
        af_fast_get()->gemm(&g, cpu->pool, cpu->work);
    }
}

static uint64_t work(const af_node *n, int threads)
{
    (void)n;
    return af_fast_get()->gemm_work(threads);
}

static const af_cpu_op matmul_op = {matmul_run, work};

const af_cpu_op *af_matmul_fast(const af_node *n) { return af_fast_all(n) ? &matmul_op : NULL; }
