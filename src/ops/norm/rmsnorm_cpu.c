/* rmsnorm_cpu.c - the twins of rmsnorm.c. Rows are read whole before they are written: in place
 * works. */
#include "backend/cpu/cpu.h"
#include "ops/norm/norm_in.h"

#include <math.h>

typedef struct rmsnorm_job {
    const af_node *n;
    double *work;
    int64_t D;
} rmsnorm_job;

static double factor(const af_node *n, const af_tensor *w, int64_t d)
{
    return (n->attr.norm.plus_one ? 1.0 : 0.0) + af_ld(w, d);
}

/* y = norm(row), rstd[r] */
static void norm_row(const af_node *n, const af_tensor *w, const double *x, int64_t D, int64_t r,
                     af_tensor *y, af_tensor *rstd)
{
    double ss = 0;
    for (int64_t d = 0; d < D; d++)
        ss += x[d] * x[d];
    const double s = 1.0 / sqrt(ss / (double)D + n->attr.norm.eps);
    af_st(rstd, r, s);
    for (int64_t d = 0; d < D; d++)
        af_st(y, r * D + d, x[d] * s * factor(n, w, d));
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rmsnorm_job *j = arg;
    const af_node *n = j->n;
    const af_norm_inputs in = af_norm_in(n);
    double *x = j->work + share * j->D;
    for (int64_t r = from; r < to; r++) {
        af_ld_row(in.x, r * j->D, j->D, x);
        norm_row(n, in.w, x, j->D, r, n->out[0], n->out[1]);
    }
}

static void add_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rmsnorm_job *j = arg;
    const af_node *n = j->n;
    const af_norm_inputs in = af_norm_in(n);
    double *x = j->work + share * j->D;
    for (int64_t r = from; r < to; r++) {
        for (int64_t d = 0; d < j->D; d++)
            x[d] = af_ld(in.x, r * j->D + d) + af_ld(in.residual, r * j->D + d);
        af_st_row(n->out[1], r * j->D, j->D, x);
        af_ld_row(n->out[1], r * j->D, j->D, x); /* the norm sees the rounded sum */
        norm_row(n, in.w, x, j->D, r, n->out[0], n->out[2]);
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rmsnorm_job *j = arg;
    const af_node *n = j->n;
    const af_norm_inputs in = af_norm_in(n);
    const int64_t D = j->D;
    double *x = j->work + share * 2 * D, *g = x + D;
    for (int64_t r = from; r < to; r++) {
        const double s = af_ld(in.rstd, r);
        double mean = 0;
        af_ld_row(in.x, r * D, D, x);
        for (int64_t d = 0; d < D; d++) {
            x[d] *= s;
            g[d] = af_ld(in.dy, r * D + d) * factor(n, in.w, d);
            mean += g[d] * x[d];
        }
        mean /= (double)D;
        for (int64_t d = 0; d < D; d++) {
            const double sum = in.dsum ? af_ld(in.dsum, r * D + d) : 0.0;
            af_st(n->out[0], r * D + d, s * (g[d] - x[d] * mean) + sum);
        }
    }
}

/* Columns, each over all rows in order. */
static void weight_columns(void *arg, int64_t from, int64_t to, int share)
{
    const rmsnorm_job *j = arg;
    const af_node *n = j->n;
    const af_norm_inputs in = af_norm_in(n);
    const int64_t N = af_norm_rows(in.x);
    double *sum = j->work;
    (void)share;
    memset(sum + from, 0, (size_t)(to - from) * sizeof *sum);
    for (int64_t r = 0; r < N; r++) {
        const double s = af_ld(in.rstd, r);
        for (int64_t d = from; d < to; d++)
            sum[d] += af_ld(in.dy, r * j->D + d) * af_ld(in.x, r * j->D + d) * s;
    }
    for (int64_t d = from; d < to; d++)
        af_put(n, n->out[0], d, sum[d]);
}

static void run(const af_node *n, af_cpu *cpu, af_pool_job *rows)
{
    rmsnorm_job j = {n, cpu->work, af_last(n->in[0])};
    af_pool_run(cpu->pool, rows == weight_columns ? j.D : af_norm_rows(n->in[0]), rows, &j);
}

static void rmsnorm_run(const af_node *n, af_cpu *cpu) { run(n, cpu, forward_rows); }
static void rmsnorm_add_run(const af_node *n, af_cpu *cpu) { run(n, cpu, add_rows); }
static void rmsnorm_bwd_run(const af_node *n, af_cpu *cpu) { run(n, cpu, backward_rows); }
static void rmsnorm_dw_run(const af_node *n, af_cpu *cpu) { run(n, cpu, weight_columns); }

static uint64_t norm_work(const af_node *n, int threads)
{
    return 2 * (uint64_t)threads * (uint64_t)af_last(n->in[0]) * sizeof(double);
}

const af_cpu_op af_cpu_rmsnorm = {rmsnorm_run, norm_work};
const af_cpu_op af_cpu_rmsnorm_add = {rmsnorm_add_run, norm_work};
const af_cpu_op af_cpu_rmsnorm_bwd = {rmsnorm_bwd_run, norm_work};
const af_cpu_op af_cpu_rmsnorm_dw = {rmsnorm_dw_run, norm_work};
