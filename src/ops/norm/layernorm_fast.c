/* layernorm_fast.c - the norm of layernorm.c row by row in f32. Gradients of scales are summed over
 * fixed runs of rows first, then over the runs in order: threads do not change them. */
#include "ops/common/cpu_fast.h"
#include "ops/norm/norm_in.h"

#include <math.h>

enum { ROWS = 8, RUN = 64 }; /* f32 rows a thread needs; rows of one partial sum of dw and db */

typedef struct layernorm_fast_job {
    const af_node *n;
    const af_fast *f;
    float *work;
    int64_t D;
} layernorm_fast_job;

static layernorm_fast_job job_of(const af_node *n, const af_cpu *cpu)
{
    return (layernorm_fast_job){n, af_fast_get(), cpu->work, af_last(n->in[0])};
}

static void fill_ones(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = 1;
}

static void centre(float *to, const float *x, float mean, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = x[i] - mean;
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const layernorm_fast_job *j = arg;
    const af_fast *f = j->f;
    const af_node *n = j->n;
    const af_norm_inputs in = af_norm_in(n);
    const int64_t D = j->D;
    float *wbuf = j->work + share * ROWS * D, *bbuf = wbuf + D, *ones = bbuf + D, *xbuf = ones + D,
          *c = xbuf + D, *out = c + D;
    const float *w = af_fast_row(f, in.w, 0, D, wbuf), *b = af_fast_row(f, in.b, 0, D, bbuf);
    fill_ones(ones, D);
    for (int64_t r = from; r < to; r++) {
        const float *x = af_fast_row(f, in.x, r, D, xbuf);
        const float mean = f->dot(x, ones, D) / (float)D;
        centre(c, x, mean, D);
        const double square = (double)f->sum_squares(c, D) / (double)D;
        const float rstd = (float)(1.0 / sqrt(square + n->attr.norm.eps));
        ((float *)n->out[1]->data)[r] = mean;
        ((float *)n->out[2]->data)[r] = rstd;
        float *y = af_fast_out_row(n->out[0], r, D, out);
        f->norm(y, c, w, 0, rstd, D);
        f->add(y, y, b, D);
        af_fast_put_row(f, n->out[0], r, D, y);
    }
}

/* dx = rstd (q - mean q - h mean(q h)), q = dy w, h = (x - mean) rstd */
static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const layernorm_fast_job *j = arg;
    const af_fast *f = j->f;
    const af_node *n = j->n;
    const af_norm_inputs in = af_norm_in(n);
    const int64_t D = j->D;
    float *wbuf = j->work + share * ROWS * D, *ones = wbuf + D, *xbuf = ones + D, *dbuf = xbuf + D,
          *c = dbuf + D, *q = c + D, *out = q + D;
    const float *w = af_fast_row(f, in.w, 0, D, wbuf);
    fill_ones(ones, D);
    for (int64_t r = from; r < to; r++) {
        const float rstd = ((const float *)in.rstd->data)[r];
        centre(c, af_fast_row(f, in.x, r, D, xbuf), ((const float *)in.mean->data)[r], D);
        f->mul(q, af_fast_row(f, in.dy, r, D, dbuf), w, D);
        const float mean = f->dot(q, ones, D) / (float)D;
        const float slope = rstd * rstd * (f->dot(q, c, D) / (float)D);
        float *dx = af_fast_out_row(n->out[0], r, D, out);
        for (int64_t i = 0; i < D; i++)
            dx[i] = rstd * (q[i] - mean - c[i] * slope);
        af_fast_put_row(f, n->out[0], r, D, dx);
    }
}

/* dw and db: runs of rows into partial sums [runs][2][D] at the front of the workspace. */
static void scale_runs(void *arg, int64_t from, int64_t to, int share)
{
    const layernorm_fast_job *j = arg;
    const af_norm_inputs in = af_norm_in(j->n);
    const int64_t N = af_norm_rows(in.x), D = j->D, runs = (af_rows(in.x) + RUN - 1) / RUN;
    float *xbuf = j->work + (2 * runs + 3 * share) * D, *dbuf = xbuf + D, *c = dbuf + D;
    for (int64_t i = from; i < to; i++) {
        float *dw = j->work + 2 * i * D, *db = dw + D;
        memset(dw, 0, (size_t)(2 * D) * sizeof *dw);
        for (int64_t r = i * RUN; r < AF_MIN((i + 1) * RUN, N); r++) {
            const float *dy = af_fast_row(j->f, in.dy, r, D, dbuf);
            centre(c, af_fast_row(j->f, in.x, r, D, xbuf), ((const float *)in.mean->data)[r], D);
            j->f->norm_dw(dw, c, dy, ((const float *)in.rstd->data)[r], D);
            j->f->add(db, db, dy, D);
        }
    }
}

static void layernorm_run(const af_node *n, af_cpu *cpu)
{
    layernorm_fast_job j = job_of(n, cpu);
    af_pool_run(cpu->pool, af_norm_rows(n->in[0]), forward_rows, &j);
}

static void layernorm_bwd_run(const af_node *n, af_cpu *cpu)
{
    layernorm_fast_job j = job_of(n, cpu);
    const int64_t N = af_norm_rows(n->in[0]), runs = (N + RUN - 1) / RUN;
    af_pool_run(cpu->pool, N, backward_rows, &j);
    if (n->n_out == 1)
        return;
    af_pool_run(cpu->pool, runs, scale_runs, &j);
    for (int64_t d = 0; d < 2 * j.D; d++) {
        double sum = 0;
        for (int64_t i = 0; i < runs; i++)
            sum += (double)j.work[i * 2 * j.D + d];
        af_put(n, n->out[d < j.D ? 1 : 2], d % j.D, sum);
    }
}

static uint64_t work(const af_node *n, int threads)
{
    return (uint64_t)threads * ROWS * (uint64_t)af_last(n->in[0]) * sizeof(float);
}

static uint64_t bwd_work(const af_node *n, int threads)
{
    const int64_t runs = (af_rows(n->in[0]) + RUN - 1) / RUN;
    const uint64_t scales =
        (uint64_t)((2 * runs + 3 * threads) * af_last(n->in[0])) * sizeof(float);
    return AF_MAX(work(n, threads), scales);
}

static const af_cpu_op norm_op = {layernorm_run, work}, bwd_op = {layernorm_bwd_run, bwd_work};

const af_cpu_op *af_layernorm_fast(const af_node *n) { return af_fast_all(n) ? &norm_op : NULL; }
const af_cpu_op *af_layernorm_bwd_fast(const af_node *n) { return af_fast_all(n) ? &bwd_op : NULL; }
