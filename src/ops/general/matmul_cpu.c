/* matmul_cpu.c - the twin of matmul.c: dot products in double. */
#include "ops/common/twin.h"

typedef struct matmul_job {
    const af_node *n;
    int64_t M, N, K;          /* of one batch */
    int64_t a_row, a_col;     /* steps in a along M and along K */
    int64_t b_row, b_col;     /* steps in b along K and along N */
    int64_t a_batch, b_batch; /* 0: shared */
} matmul_job;

/* Rows of c, all batches one after another. */
static void matmul_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const matmul_job *j = arg;
    const af_tensor *a = j->n->in[0], *b = j->n->in[1];
    for (int64_t r = from; r < to; r++) {
        const int64_t batch = r / j->M, m = r % j->M;
        for (int64_t c = 0; c < j->N; c++) {
            double sum = 0;
            for (int64_t k = 0; k < j->K; k++)
                sum += af_ld(a, batch * j->a_batch + m * j->a_row + k * j->a_col) *
                       af_ld(b, batch * j->b_batch + k * j->b_row + c * j->b_col);
            af_put(j->n, j->n->out[0], r * j->N + c, sum);
        }
    }
}

static void matmul_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *a = n->in[0], *b = n->in[1], *c = n->out[0];
    const bool ta = n->attr.matmul.kind & AF_MATMUL_TN, tb = n->attr.matmul.kind & AF_MATMUL_NT;
    const int64_t a_cols = af_last(a), b_cols = af_last(b);
    matmul_job j = {.n = n, .M = c->dim[c->ndim - 2], .N = af_last(c)};
    j.K = ta ? a->dim[a->ndim - 2] : a_cols;
    j.a_row = ta ? 1 : a_cols;
    j.a_col = ta ? a_cols : 1;
    j.b_row = tb ? 1 : b_cols;
    j.b_col = tb ? b_cols : 1;
    j.a_batch = a->dim[a->ndim - 2] * a_cols;
    j.b_batch = b->ndim == 2 ? 0 : b->dim[b->ndim - 2] * b_cols;
    /* live rows are summed over when axis 0 is the summed one, and else are the rows of c */
    if (ta && a->ndim == 2 && a->live)
        j.K = af_live_dim(a);
    if (!tb && b->ndim == 2 && b->live)
        j.K = AF_MIN(j.K, af_live_dim(b));
    if (j.M > 0 && j.N > 0)
        af_pool_run(cpu->pool, af_live_count(c) / j.N, matmul_rows, &j);
}

const af_cpu_op af_cpu_matmul = {matmul_run, NULL};
