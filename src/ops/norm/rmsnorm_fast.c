/* rmsnorm_fast.c - the norms of rmsnorm.c row by row in f32. The weight's gradient is summed over
 * fixed runs of rows first, then over the runs in order: threads do not change it. */
#include "ops/common/cpu_fast.h"
#include "ops/norm/norm_in.h"

#include <math.h>

enum { ROWS = 5, RUN = 64 }; /* f32 rows a thread needs; rows of one partial sum of dw */

typedef struct rmsnorm_fast_job {
    const af_node *n;
    const af_fast *f;
    float *work;
    int64_t D;
    float plus;
} rmsnorm_fast_job;

static uint64_t work(const af_node *n, int threads)
{
    return (uint64_t)threads * ROWS * (uint64_t)af_last(n->in[0]) * sizeof(float);
}

static float rstd_of(const rmsnorm_fast_job *j, const float *x)
{
    const double mean = (double)j->f->sum_squares(x, j->D) / (double)j->D;
    return (float)(1.0 / sqrt(mean + j->n->attr.norm.eps));
}

static void norm_row(const rmsnorm_fast_job *j, const float *x, const float *w, int64_t r,
                     const af_tensor *rstd, float *buf)
{
    const af_tensor *y = j->n->out[0];
    const float s = rstd_of(j, x);
    ((float *)rstd->data)[r] = s;
    float *out = af_fast_out_row(y, r, j->D, buf);
    j->f->norm(out, x, w, j->plus, s, j->D);
    af_fast_put_row(j->f, y, r, j->D, out);
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rmsnorm_fast_job *j = arg;
    const af_norm_inputs in = af_norm_in(j->n);
    float *wbuf = j->work + share * ROWS * j->D, *x = wbuf + j->D, *y = x + j->D;
    const float *w = af_fast_row(j->f, in.w, 0, j->D, wbuf);
    for (int64_t r = from; r < to; r++)
        norm_row(j, af_fast_row(j->f, in.x, r, j->D, x), w, r, j->n->out[1], y);
}

static void add_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rmsnorm_fast_job *j = arg;
    const af_node *n = j->n;
    const af_norm_inputs in = af_norm_in(n);
    const int64_t D = j->D;
    float *wbuf = j->work + share * ROWS * D, *a = wbuf + D, *b = a + D, *y = b + D;
    const float *w = af_fast_row(j->f, in.w, 0, D, wbuf);
    for (int64_t r = from; r < to; r++) {
        float *sum = af_fast_out_row(n->out[1], r, D, a);
        j->f->add(sum, af_fast_row(j->f, in.x, r, D, a), af_fast_row(j->f, in.residual, r, D, b),
                  D);
        af_fast_put_row(j->f, n->out[1], r, D, sum);
        /* the norm sees the rounded sum */
        norm_row(j, af_fast_row(j->f, n->out[1], r, D, a), w, r, n->out[2], y);
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rmsnorm_fast_job *j = arg;
    const af_node *n = j->n;
    const af_norm_inputs in = af_norm_in(n);
    const int64_t D = j->D;
    float *wbuf = j->work + share * ROWS * D, *xb = wbuf + D, *db = xb + D, *sb = db + D,
          *out = sb + D;
    const float *w = af_fast_row(j->f, in.w, 0, D, wbuf);
    for (int64_t r = from; r < to; r++) {
        const float *x = af_fast_row(j->f, in.x, r, D, xb);
        const float *dy = af_fast_row(j->f, in.dy, r, D, db);
        const float *ds = in.dsum ? af_fast_row(j->f, in.dsum, r, D, sb) : NULL;
        const float s = ((const float *)in.rstd->data)[r];
        const float c = s * s * j->f->norm_dot(x, w, j->plus, dy, D) / (float)D;
        float *dx = af_fast_out_row(n->out[0], r, D, out);
        j->f->norm_bwd(dx, x, w, j->plus, dy, ds, s, c, D);
        af_fast_put_row(j->f, n->out[0], r, D, dx);
    }
}

/* dw: runs of rows into partial sums [runs][D] at the front of the workspace. */
static void dw_runs(void *arg, int64_t from, int64_t to, int share)
{
    const rmsnorm_fast_job *j = arg;
    const af_node *n = j->n;
    const af_norm_inputs in = af_norm_in(n);
    const int64_t N = af_norm_rows(in.x), D = j->D, runs = (af_rows(in.x) + RUN - 1) / RUN;
    float *xb = j->work + (runs + 2 * share) * D, *db = xb + D;
    for (int64_t i = from; i < to; i++) {
        float *sum = j->work + i * D;
        memset(sum, 0, (size_t)D * sizeof *sum);
        for (int64_t r = i * RUN; r < AF_MIN((i + 1) * RUN, N); r++)
            j->f->norm_dw(sum, af_fast_row(j->f, in.x, r, D, xb),
                          af_fast_row(j->f, in.dy, r, D, db), ((const float *)in.rstd->data)[r], D);
    }
}

static rmsnorm_fast_job job_of(const af_node *n, const af_cpu *cpu)
{
    return (rmsnorm_fast_job){n, af_fast_get(), cpu->work, af_last(n->in[0]),
                              n->attr.norm.plus_one ? 1.0f : 0.0f};
}

static void rmsnorm_run(const af_node *n, af_cpu *cpu)
{
    rmsnorm_fast_job j = job_of(n, cpu);
    af_pool_run(cpu->pool, af_norm_rows(n->in[0]), forward_rows, &j);
}
static void rmsnorm_add_run(const af_node *n, af_cpu *cpu)
{
    rmsnorm_fast_job j = job_of(n, cpu);
    af_pool_run(cpu->pool, af_norm_rows(n->in[0]), add_rows, &j);
}
static void rmsnorm_bwd_run(const af_node *n, af_cpu *cpu)
{
    rmsnorm_fast_job j = job_of(n, cpu);
    af_pool_run(cpu->pool, af_norm_rows(n->in[0]), backward_rows, &j);
}

static void rmsnorm_dw_run(const af_node *n, af_cpu *cpu)
{
    rmsnorm_fast_job j = job_of(n, cpu);
    const int64_t N = af_norm_rows(n->in[0]), runs = (N + RUN - 1) / RUN;
    const af_tensor *dw = n->out[0];
    af_pool_run(cpu->pool, runs, dw_runs, &j);
    for (int64_t d = 0; d < j.D; d++) {
        double sum = 0;
        for (int64_t i = 0; i < runs; i++)
            sum += (double)j.work[i * j.D + d];
        af_put(n, (af_tensor *)dw, d, sum);
    }
}

static uint64_t dw_work(const af_node *n, int threads)
{
    const int64_t runs = (af_rows(n->in[0]) + RUN - 1) / RUN;
    return (uint64_t)((runs + 2 * threads) * af_last(n->in[0])) * sizeof(float);
}

static const af_cpu_op norm_op = {rmsnorm_run, work}, add_op = {rmsnorm_add_run, work},
                       bwd_op = {rmsnorm_bwd_run, work}, dw_op = {rmsnorm_dw_run, dw_work};

const af_cpu_op *af_rmsnorm_fast(const af_node *n) { return af_fast_all(n) ? &norm_op : NULL; }
const af_cpu_op *af_rmsnorm_add_fast(const af_node *n) { return af_fast_all(n) ? &add_op : NULL; }
const af_cpu_op *af_rmsnorm_bwd_fast(const af_node *n) { return af_fast_all(n) ? &bwd_op : NULL; }
const af_cpu_op *af_rmsnorm_dw_fast(const af_node *n) { return af_fast_all(n) ? &dw_op : NULL; }
