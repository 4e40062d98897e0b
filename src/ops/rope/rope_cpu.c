/* rope_cpu.c - the twins of rope.c. A row is read whole before it is written. */
#include "backend/cpu/cpu.h"
#include "ops/rope/rope_in.h"

#include <math.h>

typedef struct rope_job {
    const af_node *n;
    af_rope_inputs in;
    double *work;
} rope_job;

static rope_job rope_of(const af_node *n, void *work)
{
    return (rope_job){.n = n, .in = af_rope_in(n), .work = work};
}

/* Rotates every q and k head of a row by sign * its angle. */
static void rotate_row(const rope_job *r, double *x, int64_t row, double sign)
{
    for (int64_t i = 0; r->in.inv_freq && i < r->in.half; i++) {
        const double angle = af_ld(r->in.positions, row) * af_ld(r->in.inv_freq, i);
        const double c = r->n->attr.rope.scale * cos(angle),
                     s = sign * r->n->attr.rope.scale * sin(angle);
        for (int64_t h = 0; h < r->in.H + r->in.K; h++) {
            double *p = x + h * r->in.E + af_rope_first(r->n, i);
            double *q = x + h * r->in.E + af_rope_second(r->n, i);
            const double a = *p, b = *q;
            *p = a * c - b * s;
            *q = b * c + a * s;
        }
    }
    const double by = af_rope_query_factor(r->n, (int64_t)af_ld(r->in.positions, row));
    for (int64_t i = 0; by != 1 && i < r->in.H * r->in.E; i++)
        x[i] *= by;
}

static double factor(const rope_job *r, const af_tensor *w, int64_t i)
{
    return (r->n->attr.rope.plus_one ? 1.0 : 0.0) + af_ld(w, i);
}

static double rstd_of(const rope_job *r, const double *x, int64_t len)
{
    double ss = 0;
    for (int64_t i = 0; i < len; i++)
        ss += x[i] * x[i];
    return 1.0 / sqrt(ss / (double)len + r->n->attr.rope.eps);
}

static void norm_span(const rope_job *r, double *x, const af_tensor *w, int64_t len)
{
    const double s = rstd_of(r, x, len);
    for (int64_t i = 0; i < len; i++)
        x[i] *= s * factor(r, w, i);
}

/* g: gradient of the normed span, replaced by the gradient of x. */
static void norm_span_back(const rope_job *r, double *g, const double *x, const af_tensor *w,
                           int64_t len)
{
    const double s = rstd_of(r, x, len);
    double mean = 0;
    for (int64_t i = 0; i < len; i++) {
        g[i] *= factor(r, w, i);
        mean += g[i] * x[i] * s;
    }
    mean /= (double)len;
    for (int64_t i = 0; i < len; i++)
        g[i] = s * (g[i] - x[i] * s * mean);
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rope_job *r = arg;
    double *x = r->work + share * 2 * r->in.width;
    int64_t at, len;
    bool is_q;
    for (int64_t row = from; row < to; row++) {
        af_ld_row(r->in.qkv, row * r->in.width, r->in.width, x);
        for (int64_t i = 0; r->in.q_norm && af_rope_span(r->n, i, &at, &len, &is_q); i++)
            norm_span(r, x + at, is_q ? r->in.q_norm : r->in.k_norm, len);
        rotate_row(r, x, row, 1);
        af_st_row(r->n->out[0], row * r->in.width, r->in.width, x);
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rope_job *r = arg;
    double *g = r->work + share * 2 * r->in.width, *x = g + r->in.width;
    int64_t at, len;
    bool is_q;
    for (int64_t row = from; row < to; row++) {
        af_ld_row(r->in.dy, row * r->in.width, r->in.width, g);
        rotate_row(r, g, row, -1);
        if (r->in.q_norm)
            af_ld_row(r->in.qkv, row * r->in.width, r->in.width, x);
        for (int64_t i = 0; r->in.q_norm && af_rope_span(r->n, i, &at, &len, &is_q); i++)
            norm_span_back(r, g + at, x + at, is_q ? r->in.q_norm : r->in.k_norm, len);
        af_st_row(r->n->out[0], row * r->in.width, r->in.width, g);
    }
}

static void rope_run(const af_node *n, af_cpu *cpu)
{
    rope_job r = rope_of(n, cpu->work);
    af_pool_run(cpu->pool, af_live(r.in.qkv), forward_rows, &r);
}

static void rope_bwd_run(const af_node *n, af_cpu *cpu)
{
    rope_job r = rope_of(n, cpu->work);
    af_pool_run(cpu->pool, af_live(r.in.qkv), backward_rows, &r);
}

static void rope_dnorm_run(const af_node *n, af_cpu *cpu)
{
    const rope_job r = rope_of(n, cpu->work);
    const int64_t nq = af_count(r.in.q_norm), nk = af_count(r.in.k_norm), N = af_live(r.in.qkv);
    double *g = r.work, *x = g + r.in.width, *dq = x + r.in.width, *dk = dq + nq;
    int64_t at, len;
    bool is_q;
    memset(dq, 0, (size_t)(nq + nk) * sizeof *dq);
    for (int64_t row = 0; row < N; row++) {
        af_ld_row(r.in.dy, row * r.in.width, r.in.width, g);
        rotate_row(&r, g, row, -1);
        af_ld_row(r.in.qkv, row * r.in.width, r.in.width, x);
        for (int64_t i = 0; af_rope_span(n, i, &at, &len, &is_q); i++) {
            const double s = rstd_of(&r, x + at, len);
            double *d = is_q ? dq : dk;
            for (int64_t e = 0; e < len; e++)
                d[e] += g[at + e] * x[at + e] * s;
        }
    }
    af_st_row(n->out[0], 0, nq, dq);
    af_st_row(n->out[1], 0, nk, dk);
}

static uint64_t rope_work(const af_node *n, int threads)
{
    /* a thread's two rows; DNORM: one thread's, and sums no wider than a row */
    return (2 * (uint64_t)threads + 1) * (uint64_t)af_last(n->in[0]) * sizeof(double);
}

const af_cpu_op af_cpu_rope = {rope_run, rope_work};
const af_cpu_op af_cpu_rope_bwd = {rope_bwd_run, rope_work};
const af_cpu_op af_cpu_rope_dnorm = {rope_dnorm_run, rope_work};
