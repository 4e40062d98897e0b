/* gated_norm_fast.c - gated_norm.c row by row in f32. The weight's gradient is summed over fixed
 * runs of rows first, then over the runs in order: threads do not change it. */
#include "ops/common/cpu_fast.h"
#include "ops/state/gated_norm_in.h"

#include <math.h>

enum { ROWS = 8, RUN = 64 }; /* f32 rows a thread needs; rows of one partial sum of dw */

typedef struct gated_fast_job {
    const af_node *n;
    const af_fast *f;
    af_gated_norm_inputs in;
    float *work;
    int64_t shares; /* where the threads' rows begin */
    bool first;
} gated_fast_job;

/* A row of what is read: x, gate, dy; ones for the gated unit that gives silu. */
typedef struct gated_row {
    const float *x, *z, *dy;
    float *h, *gate, *ones; /* h: what is normalised; gate = silu(z) */
} gated_row;

static gated_row load_row(const gated_fast_job *j, int64_t r, float *w)
{
    const int64_t D = j->in.D;
    gated_row g = {.x = af_fast_row(j->f, j->in.x, r, D, w),
                   .z = af_fast_row(j->f, j->in.gate, r, D, w + D),
                   .dy = j->in.dy ? af_fast_row(j->f, j->in.dy, r, D, w + 2 * D) : NULL,
                   .h = w + 3 * D,
                   .gate = w + 4 * D,
                   .ones = w + 5 * D};
    for (int64_t d = 0; d < D; d++)
        g.ones[d] = 1.0f;
    j->f->glu(g.gate, g.z, g.ones, AF_ACT_SILU, D);
    if (j->first)
        j->f->mul(g.h, g.x, g.gate, D);
    else
        memcpy(g.h, g.x, (size_t)D * sizeof *g.h);
    return g;
}

static void forward_row(const gated_fast_job *j, int64_t r, float *buf, const float *w)
{
    const af_gated_norm_inputs *in = &j->in;
    const int64_t groups = in->D / in->E;
    const gated_row g = load_row(j, r, buf);
    float *y = af_fast_out_row(j->n->out[0], r, in->D, buf + 6 * in->D);
    for (int64_t i = 0; i < groups; i++) {
        const int64_t at = i * in->E;
        const double mean = (double)j->f->sum_squares(g.h + at, in->E) / (double)in->E;
        const float s = (float)(1.0 / sqrt(mean + j->n->attr.norm.eps));
        ((float *)j->n->out[1]->data)[r * groups + i] = s;
        j->f->norm(y + at, g.h + at, w, 0, s, in->E);
    }
    if (!j->first)
        j->f->mul(y, y, g.gate, in->D);
    af_fast_put_row(j->f, j->n->out[0], r, in->D, y);
}

static void backward_row(const gated_fast_job *j, int64_t r, float *buf, const float *w)
{
    const af_gated_norm_inputs *in = &j->in;
    const int64_t D = in->D, E = in->E, groups = D / E;
    const gated_row g = load_row(j, r, buf);
    float *dx = af_fast_out_row(j->n->out[0], r, D, buf + 6 * D),
          *dz = af_fast_out_row(j->n->out[1], r, D, buf + 7 * D), *a = g.ones;
    const float *rstd = (const float *)in->rstd->data + r * groups;
    if (!j->first) { /* the gate's gradient needs dy and what it multiplied */
        for (int64_t i = 0; i < groups; i++)
            j->f->norm(dz + i * E, g.h + i * E, w, 0, rstd[i], E);
        j->f->mul(a, g.dy, dz, D); /* dy * normed, times silu' below */
        for (int64_t d = 0; d < D; d++) {
            const float s = 1.0f / (1.0f + expf(-g.z[d]));
            dz[d] = a[d] * s * (1.0f + g.z[d] * (1.0f - s));
        }
        j->f->mul(a, g.dy, g.gate, D);
    } else
        memcpy(a, g.dy, (size_t)D * sizeof *a);
    for (int64_t i = 0; i < groups; i++) {
        const int64_t at = i * E;
        const float c = rstd[i] * rstd[i] * j->f->norm_dot(g.h + at, w, 0, a + at, E) / (float)E;
        j->f->norm_bwd(dx + at, g.h + at, w, 0, a + at, NULL, rstd[i], c, E);
    }
    for (int64_t d = 0; j->first && d < D; d++) {
        const float s = 1.0f / (1.0f + expf(-g.z[d])), dh = dx[d];
        dz[d] = dh * g.x[d] * s * (1.0f + g.z[d] * (1.0f - s));
        dx[d] = dh * g.gate[d];
    }
    af_fast_put_row(j->f, j->n->out[0], r, D, dx);
    af_fast_put_row(j->f, j->n->out[1], r, D, dz);
}

static void rows(void *arg, int64_t from, int64_t to, int share)
{
    const gated_fast_job *j = arg;
    float *buf = j->work + share * (ROWS * j->in.D + j->in.E), *wbuf = buf + ROWS * j->in.D;
    const float *w = af_fast_row(j->f, j->in.w, 0, j->in.E, wbuf);
    for (int64_t r = from; r < to; r++)
        (j->in.dy ? backward_row : forward_row)(j, r, buf, w);
}

/* dw: runs of rows into partial sums [runs][E] at the front of the workspace. */
static void dw_runs(void *arg, int64_t from, int64_t to, int share)
{
    const gated_fast_job *j = arg;
    const af_gated_norm_inputs *in = &j->in;
    const int64_t N = af_live(in->x), D = in->D, E = in->E, groups = D / E;
    float *buf = j->work + j->shares + share * ROWS * D;
    for (int64_t i = from; i < to; i++) {
        float *sum = j->work + i * E;
        memset(sum, 0, (size_t)E * sizeof *sum);
        for (int64_t r = i * RUN; r < AF_MIN((i + 1) * RUN, N); r++) {
            const gated_row g = load_row(j, r, buf);
            const float *rstd = (const float *)in->rstd->data + r * groups;
            float *a = g.ones;
            if (j->first)
                memcpy(a, g.dy, (size_t)D * sizeof *a);
            else
                j->f->mul(a, g.dy, g.gate, D);
            for (int64_t k = 0; k < groups; k++)
                j->f->norm_dw(sum, g.h + k * E, a + k * E, rstd[k], E);
        }
    }
}

static gated_fast_job job_of(const af_node *n, const af_cpu *cpu)
{
    gated_fast_job j = {.n = n,
                        .f = af_fast_get(),
                        .in = af_gated_norm_in(n),
                        .work = cpu->work,
                        .first = n->attr.norm.gate_first};
    j.shares = (af_rows(j.in.x) + RUN - 1) / RUN * j.in.E;
    return j;
}

static void gated_norm_run(const af_node *n, af_cpu *cpu)
{
    gated_fast_job j = job_of(n, cpu);
    af_pool_run(cpu->pool, af_live(n->in[0]), rows, &j);
}

static void gated_norm_dw_run(const af_node *n, af_cpu *cpu)
{
    gated_fast_job j = job_of(n, cpu);
    const int64_t runs = (af_live(n->in[0]) + RUN - 1) / RUN;
    af_pool_run(cpu->pool, runs, dw_runs, &j);
    for (int64_t e = 0; e < j.in.E; e++) {
        double sum = 0;
        for (int64_t i = 0; i < runs; i++)
            sum += (double)j.work[i * j.in.E + e];
        af_put(n, n->out[0], e, sum);
    }
}

static uint64_t work(const af_node *n, int threads)
{
    const af_gated_norm_inputs in = af_gated_norm_in(n);
    return (uint64_t)threads * (uint64_t)(ROWS * in.D + in.E) * sizeof(float);
}
static uint64_t dw_work(const af_node *n, int threads)
{
    const af_gated_norm_inputs in = af_gated_norm_in(n);
    const int64_t runs = (af_rows(in.x) + RUN - 1) / RUN;
    return (uint64_t)(runs * in.E + threads * ROWS * in.D) * sizeof(float);
}

static const af_cpu_op norm_op = {gated_norm_run, work}, dw_op = {gated_norm_dw_run, dw_work};

const af_cpu_op *af_gated_norm_fast(const af_node *n) { return af_fast_all(n) ? &norm_op : NULL; }
const af_cpu_op *af_gated_norm_bwd_fast(const af_node *n)
{
    return af_fast_all(n) ? &norm_op : NULL;
}
const af_cpu_op *af_gated_norm_dw_fast(const af_node *n) { return af_fast_all(n) ? &dw_op : NULL; }
