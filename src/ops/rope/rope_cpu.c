/* rope_cpu.c - the twins of rope.c. A row is read whole before it is written. */
#include "backend/cpu/cpu.h"
#include "ops/rope/rope_span.h"

#include <math.h>

/* What a rope node reads, by name; `in` points behind dy where there is one. */
typedef struct rope {
    const af_node *n;
    const af_tensor *qkv, *positions, *inv_freq, *q_norm, *k_norm;
    int64_t H, K, E, width, half;
    double *work;
} rope;

static rope rope_of(const af_node *n, int first, void *work)
{
    af_tensor *const *in = n->in + first;
    rope r = {.n = n, .qkv = in[0], .positions = in[1], .work = work};
    int k = 2;
    r.inv_freq = n->attr.rope.rotate ? in[k++] : NULL;
    r.q_norm = n->attr.rope.norm ? in[k++] : NULL;
    r.k_norm = n->attr.rope.norm ? in[k] : NULL;
    r.H = n->attr.rope.heads;
    r.K = n->attr.rope.kv_heads;
    r.E = n->attr.rope.head_dim;
    r.width = (r.H + 2 * r.K) * r.E;
    r.half = n->attr.rope.rotary_dim / 2;
    return r;
}

/* Rotates every q and k head of a row by sign * its angle. */
static void rotate_row(const rope *r, double *x, int64_t row, double sign)
{
    for (int64_t i = 0; r->inv_freq && i < r->half; i++) {
        const double angle = af_ld(r->positions, row) * af_ld(r->inv_freq, i);
        const double c = r->n->attr.rope.scale * cos(angle),
                     s = sign * r->n->attr.rope.scale * sin(angle);
        for (int64_t h = 0; h < r->H + r->K; h++) {
            double *p = x + h * r->E + i;
            const double a = p[0], b = p[r->half];
            p[0] = a * c - b * s;
            p[r->half] = b * c + a * s;
        }
    }
}

static double factor(const rope *r, const af_tensor *w, int64_t i)
{
    return (r->n->attr.rope.plus_one ? 1.0 : 0.0) + af_ld(w, i);
}

static double rstd_of(const rope *r, const double *x, int64_t len)
{
    double ss = 0;
    for (int64_t i = 0; i < len; i++)
        ss += x[i] * x[i];
    return 1.0 / sqrt(ss / (double)len + r->n->attr.rope.eps);
}

static void norm_span(const rope *r, double *x, const af_tensor *w, int64_t len)
{
    const double s = rstd_of(r, x, len);
    for (int64_t i = 0; i < len; i++)
        x[i] *= s * factor(r, w, i);
}

/* g: gradient of the normed span, replaced by the gradient of x. */
static void norm_span_back(const rope *r, double *g, const double *x, const af_tensor *w,
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
    const rope *r = arg;
    double *x = r->work + share * 2 * r->width;
    int64_t at, len;
    bool is_q;
    for (int64_t row = from; row < to; row++) {
        af_ld_row(r->qkv, row * r->width, r->width, x);
        for (int64_t i = 0; r->q_norm && af_rope_span(r->n, i, &at, &len, &is_q); i++)
            norm_span(r, x + at, is_q ? r->q_norm : r->k_norm, len);
        rotate_row(r, x, row, 1);
        af_st_row(r->n->out[0], row * r->width, r->width, x);
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rope *r = arg;
    double *g = r->work + share * 2 * r->width, *x = g + r->width;
    int64_t at, len;
    bool is_q;
    for (int64_t row = from; row < to; row++) {
        af_ld_row(r->n->in[0], row * r->width, r->width, g);
        rotate_row(r, g, row, -1);
        if (r->q_norm)
            af_ld_row(r->qkv, row * r->width, r->width, x);
        for (int64_t i = 0; r->q_norm && af_rope_span(r->n, i, &at, &len, &is_q); i++)
            norm_span_back(r, g + at, x + at, is_q ? r->q_norm : r->k_norm, len);
        af_st_row(r->n->out[0], row * r->width, r->width, g);
    }
}

static void rope_run(const af_node *n, af_cpu *cpu)
{
    rope r = rope_of(n, 0, cpu->work);
    af_pool_run(cpu->pool, af_live(r.qkv), forward_rows, &r);
}

static void rope_bwd_run(const af_node *n, af_cpu *cpu)
{
    rope r = rope_of(n, 1, cpu->work);
    af_pool_run(cpu->pool, af_live(r.qkv), backward_rows, &r);
}

static void rope_dnorm_run(const af_node *n, af_cpu *cpu)
{
    const rope r = rope_of(n, 1, cpu->work);
    const int64_t nq = af_count(r.q_norm), nk = af_count(r.k_norm), N = af_live(r.qkv);
    double *g = r.work, *x = g + r.width, *dq = x + r.width, *dk = dq + nq;
    int64_t at, len;
    bool is_q;
    memset(dq, 0, (size_t)(nq + nk) * sizeof *dq);
    for (int64_t row = 0; row < N; row++) {
        af_ld_row(n->in[0], row * r.width, r.width, g);
        rotate_row(&r, g, row, -1);
        af_ld_row(r.qkv, row * r.width, r.width, x);
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
