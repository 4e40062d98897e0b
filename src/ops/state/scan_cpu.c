/* scan_cpu.c - the twins of scan.c: the recurrence as it is written there, and its derivative row
 * by row from the last one with every state at hand.
 *
 * One item of work is one key head of one sequence with the heads that share it, in order. */
#include "backend/cpu/cpu.h"
#include "ops/state/state_in.h"

#include <math.h>

typedef struct scan_job {
    const af_node *n;
    af_scan_inputs in;
    const int32_t *bounds;
    double *work;
    int64_t scratch; /* doubles of one thread */
} scan_job;

/* Columns [from, from+count) of row r of x. */
static void load(const scan_job *j, int64_t r, int64_t from, int64_t count, double *out)
{
    af_ld_row(j->in.x, r * j->in.width + from, count, out);
}

/* The length's inverse, after x has been multiplied by it and by `factor`. */
static double normalise(double *x, int64_t n, double factor)
{
    double ss = 0;
    for (int64_t i = 0; i < n; i++)
        ss += x[i] * x[i];
    const double r = 1.0 / sqrt(ss + 1e-6);
    for (int64_t i = 0; i < n; i++)
        x[i] *= r * factor;
    return r;
}

/* q and k of key head `kh` in row r; *rq, *rk: what they were multiplied with, q's without its
 * constant factor. */
static void load_qk(const scan_job *j, int64_t r, int64_t kh, double *q, double *k, double *rq,
                    double *rk)
{
    const int64_t K = j->in.K;
    load(j, r, j->in.q_from + kh * K, K, q);
    load(j, r, j->in.k_from + kh * K, K, k);
    *rq = *rk = 1;
    if (j->n->attr.scan.delta) {
        *rq = normalise(q, K, 1.0 / sqrt((double)K));
        *rk = normalise(k, K, 1.0);
    }
}

/* exp(decay) of row i of a head's state. */
static double decay_of(const scan_job *j, int64_t r, int64_t h, int64_t i)
{
    return exp(af_ld(j->in.decay, (r * j->in.H + h) * j->in.D + i % j->in.D));
}

/* One row of one head: s becomes the next state; d and y are given; u = s^T k before the update. */
static void step(const scan_job *j, int64_t r, int64_t h, const double *q, const double *k,
                 const double *v, double *s, double *u, double *d, double *y)
{
    const int64_t K = j->in.K, V = j->in.V;
    const double beta = af_ld(j->in.beta, r * j->in.H + h);
    memset(u, 0, (size_t)V * sizeof *u);
    memset(y, 0, (size_t)V * sizeof *y);
    for (int64_t i = 0; i < K; i++) {
        const double e = decay_of(j, r, h, i);
        for (int64_t c = 0; c < V; c++) {
            s[i * V + c] *= e;
            u[c] += s[i * V + c] * k[i];
        }
    }
    for (int64_t c = 0; c < V; c++)
        d[c] = beta * (v[c] - (j->n->attr.scan.delta ? u[c] : 0.0));
    for (int64_t i = 0; i < K; i++)
        for (int64_t c = 0; c < V; c++) {
            s[i * V + c] += k[i] * d[c];
            y[c] += s[i * V + c] * q[i];
        }
    for (int64_t c = 0; c < V && j->in.skip; c++)
        y[c] += af_ld(j->in.skip, h) * v[c];
}

static void forward_item(const scan_job *j, int64_t seq, int64_t kh, double *w)
{
    const int64_t K = j->in.K, V = j->in.V, H = j->in.H, group = H / j->in.J;
    double *s = w, *q = s + K * V, *k = q + K, *v = k + K, *u = v + V, *d = u + V, *y = d + V, r0,
           r1;
    for (int64_t h = kh * group; h < (kh + 1) * group; h++) {
        const int64_t at = (seq * H + h) * K * V;
        memset(s, 0, (size_t)(K * V) * sizeof *s);
        if (j->in.state && ((const int32_t *)j->in.start->data)[seq] > 0)
            af_ld_row(j->in.state, at, K * V, s);
        for (int64_t r = j->bounds[seq]; r < j->bounds[seq + 1]; r++) {
            load_qk(j, r, kh, q, k, &r0, &r1);
            load(j, r, j->in.v_from + h * V, V, v);
            step(j, r, h, q, k, v, s, u, d, y);
            af_st_row(j->n->out[0], (r * H + h) * V, V, y);
        }
        if (j->in.state && j->bounds[seq] < j->bounds[seq + 1])
            af_st_row(j->in.state, at, K * V, s);
    }
}

/* Row r of the backward: s the state before it (after its decay), s1 the one after it. ds is the
 * gradient of s1 and becomes that of the state before. dq, dk are added to. */
static void step_back(const scan_job *j, int64_t r, int64_t h, const double *q, const double *k,
                      const double *s, const double *s1, double *ds, double *dq, double *dk,
                      double *w)
{
    const int64_t K = j->in.K, V = j->in.V, H = j->in.H, D = j->in.D;
    const bool delta = j->n->attr.scan.delta;
    double *v = w, *dy = v + V, *u = dy + V, *dd = u + V, dbeta = 0, ddecay = 0;
    const double beta = af_ld(j->in.beta, r * H + h);
    load(j, r, j->in.v_from + h * V, V, v);
    af_ld_row(j->in.dy, (r * H + h) * V, V, dy);
    memset(u, 0, 2 * (size_t)V * sizeof *u);
    for (int64_t i = 0; i < K; i++)
        for (int64_t c = 0; c < V; c++) {
            ds[i * V + c] += q[i] * dy[c];
            dq[i] += s1[i * V + c] * dy[c];
            u[c] += s[i * V + c] * k[i];
            dd[c] += ds[i * V + c] * k[i];
        }
    for (int64_t c = 0; c < V; c++) {
        const double error = v[c] - (delta ? u[c] : 0.0);
        dbeta += dd[c] * error;
        u[c] = beta * error; /* d */
    }
    for (int64_t i = 0; i < K; i++) {
        const double e = decay_of(j, r, h, i);
        for (int64_t c = 0; c < V; c++) {
            dk[i] += ds[i * V + c] * u[c];
            if (delta) {
                dk[i] -= s[i * V + c] * beta * dd[c];
                ds[i * V + c] -= k[i] * beta * dd[c];
            }
            ddecay += ds[i * V + c] * s[i * V + c];
            ds[i * V + c] *= e;
        }
        if (D > 1 || i + 1 == K) {
            af_st(j->n->out[1], (r * H + h) * D + i % D, ddecay);
            ddecay = 0;
        }
    }
    for (int64_t c = 0; c < V; c++)
        v[c] = beta * dd[c] + (j->in.skip ? af_ld(j->in.skip, h) * dy[c] : 0.0);
    af_st_row(j->n->out[0], r * j->in.width + j->in.v_from + h * V, V, v);
    af_st(j->n->out[2], r * H + h, dbeta);
}

/* dx of x = (what was read) * r * factor, from the gradient of y = x; in place. */
static void unnormalise(const double *y, double r, double factor, int64_t n, double *d)
{
    double dot = 0;
    for (int64_t i = 0; i < n; i++)
        dot += y[i] / factor * d[i];
    for (int64_t i = 0; i < n; i++)
        d[i] = r * factor * (d[i] - y[i] / factor * dot);
}

static void put_dqk(const scan_job *j, int64_t r, int64_t kh, double *dq, double *dk, double *w)
{
    const int64_t K = j->in.K;
    double *q = w, *k = q + K, rq, rk;
    if (j->n->attr.scan.delta) {
        load_qk(j, r, kh, q, k, &rq, &rk);
        unnormalise(q, rq, 1.0 / sqrt((double)K), K, dq);
        unnormalise(k, rk, 1.0, K, dk);
    }
    af_st_row(j->n->out[0], r * j->in.width + j->in.q_from + kh * K, K, dq);
    af_st_row(j->n->out[0], r * j->in.width + j->in.k_from + kh * K, K, dk);
}

static void backward_item(const scan_job *j, int64_t seq, int64_t kh, double *w)
{
    const int64_t K = j->in.K, V = j->in.V, KV = K * V, group = j->in.H / j->in.J,
                  row = j->bounds[seq], len = j->bounds[seq + 1] - row;
    double *all = w, *ds = all + (len + 1) * KV, *s = ds + KV, *dq = s + KV, *dk = dq + len * K,
           *q = dk + len * K, *k = q + K, *small = k + K, r0, r1;
    memset(dq, 0, (size_t)(2 * len * K) * sizeof *dq);
    for (int64_t h = kh * group; h < (kh + 1) * group; h++) {
        memset(all, 0, (size_t)KV * sizeof *all);
        memset(ds, 0, (size_t)KV * sizeof *ds);
        for (int64_t t = 0; t < len; t++) {
            double *next = all + (t + 1) * KV, *v = small;
            memcpy(next, all + t * KV, (size_t)KV * sizeof *next);
            load_qk(j, row + t, kh, q, k, &r0, &r1);
            load(j, row + t, j->in.v_from + h * V, V, v);
            step(j, row + t, h, q, k, v, next, v + V, v + 2 * V, v + 3 * V);
        }
        for (int64_t t = len - 1; t >= 0; t--) {
            for (int64_t i = 0; i < KV; i++)
                s[i] = decay_of(j, row + t, h, i / V) * all[t * KV + i];
            load_qk(j, row + t, kh, q, k, &r0, &r1);
            step_back(j, row + t, h, q, k, s, all + (t + 1) * KV, ds, dq + t * K, dk + t * K,
                      small);
        }
    }
    for (int64_t t = 0; t < len; t++)
        put_dqk(j, row + t, kh, dq + t * K, dk + t * K, q);
}

static void items(void *arg, int64_t from, int64_t to, int share)
{
    const scan_job *j = arg;
    double *w = j->work + share * j->scratch;
    for (int64_t i = from; i < to; i++)
        (j->in.dy ? backward_item : forward_item)(j, i / j->in.J, i % j->in.J, w);
}

/* dskip of heads, each over all rows in order. */
static void skip_heads(void *arg, int64_t from, int64_t to, int share)
{
    const scan_job *j = arg;
    const int64_t V = j->in.V, H = j->in.H;
    (void)share;
    for (int64_t h = from; h < to; h++) {
        double sum = 0;
        for (int64_t r = j->bounds[0]; r < j->bounds[j->in.S]; r++)
            for (int64_t c = 0; c < V; c++)
                sum += af_ld(j->in.dy, (r * H + h) * V + c) *
                       af_ld(j->in.x, r * j->in.width + j->in.v_from + h * V + c);
        af_st(j->n->out[3], h, sum);
    }
}

static int64_t scratch_of(const af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    const int64_t N = in.dy ? in.x->dim[0] : 0;
    return (N + 3) * in.K * in.V + (2 * N + 4) * in.K + 6 * in.V;
}

static void scan_run(const af_node *n, af_cpu *cpu)
{
    scan_job j = {.n = n, .in = af_scan_in(n), .work = cpu->work, .scratch = scratch_of(n)};
    j.bounds = af_state_bounds(j.in.bounds, j.in.x);
    const int64_t N = af_live(j.in.x);
    for (int k = 0; k < AF_MIN(n->n_out, 3); k++) { /* rows outside every sequence */
        const int64_t w = af_last(n->out[k]);
        for (int64_t i = 0; i < N * w; i++)
            if (i / w < j.bounds[0] || i / w >= j.bounds[j.in.S])
                af_st(n->out[k], i, 0);
    }
    af_pool_run(cpu->pool, j.in.S * j.in.J, items, &j);
    if (n->n_out > 3)
        af_pool_run(cpu->pool, j.in.H, skip_heads, &j);
}

static uint64_t scan_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)scratch_of(n) * sizeof(double);
}

const af_cpu_op af_cpu_scan = {scan_run, scan_work};
const af_cpu_op af_cpu_scan_bwd = {scan_run, scan_work};
const af_cpu_op af_cpu_scan_cached = {scan_run, scan_work};
