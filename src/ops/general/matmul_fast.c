/* matmul_fast.c - matmul.c through the packed GEMM, batch after batch. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"

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
        af_operand y = af_fast_operand(b, batch * b_batch, tb);
        y.packed = b_batch ? NULL : af_cpu_packed(b, tb);
        af_gemm g = af_fast_gemm(AF_MIN(M, rows - r), N, K, af_fast_operand(a, batch * a_batch, ta),
                                 y, c, r * N);
        g.add = n->accumulate;
        af_fast_gemm_run(&g, cpu);
    }
}

static const af_cpu_op matmul_op = {matmul_run, af_fast_gemm_work};

const af_cpu_op *af_matmul_fast(const af_node *n) { return af_fast_all(n) ? &matmul_op : NULL; }
