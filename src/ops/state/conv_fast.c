/* conv_fast.c - conv.c in f32, runs of rows at a time. The gradient of the taps is summed over
 * fixed runs of rows first, then over the runs in order: threads do not change it. */
#include "ops/common/cpu_fast.h"
#include "ops/state/state_in.h"

#include <math.h>

enum { RUN = 64 }; /* rows of one item of work */

typedef struct conv_fast_job {
    const af_node *n;
    const af_fast *f;
    af_conv_inputs in;
    const int32_t *bounds;
    float *taps;  /* [K][C] */
    float *bias;  /* [C], or NULL */
    float *parts; /* CONV_DW: partial sums [runs][K+1][C] */
    float *work;  /* of the threads, `share` floats each */
    int64_t share;
} conv_fast_job;

/* The sequence of row r, or -1. */
static int64_t sequence_of(const conv_fast_job *j, int64_t r)
{
    int64_t lo = 0, hi = j->in.S; /* the last s with bounds[s] <= r */
    if (hi == 0 || r < j->bounds[0] || r >= j->bounds[hi])
        return -1;
    while (hi - lo > 1) {
        const int64_t mid = (lo + hi) / 2;
        if (j->bounds[mid] <= r)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Row r + back of sequence s as it counts for row r: NULL for zeros. */
static const float *row_before(const conv_fast_job *j, int64_t s, int64_t r, float *buf)
{
    const int64_t C = j->in.C, at = r - j->bounds[s];
    if (at >= 0)
        return af_fast_row(j->f, j->in.x, r, C, buf);
    if (!j->in.window || ((const int32_t *)j->in.start->data)[s] == 0)
        return NULL;
    return af_fast_row(j->f, j->in.window, (s + 1) * (j->in.K - 1) + at, C, buf);
}

/* u of row r in sequence s. */
static void convolve(const conv_fast_job *j, int64_t s, int64_t r, float *u, float *buf)
{
    const int64_t C = j->in.C, K = j->in.K;
    if (j->bias)
        memcpy(u, j->bias, (size_t)C * sizeof *u);
    else
        memset(u, 0, (size_t)C * sizeof *u);
    for (int64_t k = 0; k < K; k++) {
        const float *x = row_before(j, s, r - K + 1 + k, buf), *w = j->taps + k * C;
        for (int64_t c = 0; x && c < C; c++)
            u[c] += w[c] * x[c];
    }
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const conv_fast_job *j = arg;
    const int64_t C = j->in.C;
    const af_tensor *y = j->n->out[0];
    float *w = j->work + share * j->share, *ones = w + 2 * C;
    for (int64_t c = 0; c < C; c++)
        ones[c] = 1.0f;
    for (int64_t r = from; r < to; r++) {
        const int64_t s = sequence_of(j, r);
        float *u = af_fast_out_row(y, r, C, w);
        if (s < 0)
            memset(u, 0, (size_t)C * sizeof *u);
        else
            convolve(j, s, r, u, w + C);
        if (j->n->attr.conv.silu)
            j->f->glu(u, u, ones, AF_ACT_SILU, C);
        af_fast_put_row(j->f, y, r, C, u);
    }
}

/* The gradient of u in row r; zeros outside the sequences. */
static void slope_row(const conv_fast_job *j, int64_t s, int64_t r, float *du, float *buf)
{
    const int64_t C = j->in.C;
    const float *dy = af_fast_row(j->f, j->in.dy, r, C, buf);
    if (!j->n->attr.conv.silu) {
        memcpy(du, dy, (size_t)C * sizeof *du);
        return;
    }
    convolve(j, s, r, du, buf + C);
    for (int64_t c = 0; c < C; c++) {
        const float z = 1.0f / (1.0f + expf(-du[c]));
        du[c] = dy[c] * z * (1.0f + du[c] * (1.0f - z));
    }
}

/* Runs of rows: a ring of the K latest du, from the last row of the run's reach down. */
static void backward_runs(void *arg, int64_t from, int64_t to, int share)
{
    const conv_fast_job *j = arg;
    const int64_t C = j->in.C, K = j->in.K, N = af_live(j->in.x);
    float *ring = j->work + share * j->share, *buf = ring + K * C, *out = buf + 2 * C;
    for (int64_t i = from; i < to; i++)
        for (int64_t r = AF_MIN((i + 1) * RUN, N) - 1, done = -1; r >= i * RUN; r--) {
            const int64_t s = sequence_of(j, r), end = s < 0 ? 0 : j->bounds[s + 1];
            float *dx = af_fast_out_row(j->n->out[0], r, C, out);
            memset(dx, 0, (size_t)C * sizeof *dx);
            /* rows r .. r+K-1 of the sequence; those above `done` are in the ring */
            const int64_t top = AF_MIN(r + K, end);
            for (int64_t t = done < 0 ? top - 1 : AF_MIN(top, done) - 1; s >= 0 && t >= r; t--)
                slope_row(j, s, t, ring + t % K * C, buf);
            for (int64_t t = r; s >= 0 && t < top; t++) {
                const float *w = j->taps + (K - 1 - (t - r)) * C, *du = ring + t % K * C;
                for (int64_t c = 0; c < C; c++)
                    dx[c] += w[c] * du[c];
            }
            done = r;
            af_fast_put_row(j->f, j->n->out[0], r, C, dx);
        }
}

static void dw_runs(void *arg, int64_t from, int64_t to, int share)
{
    const conv_fast_job *j = arg;
    const int64_t C = j->in.C, K = j->in.K, N = af_live(j->in.x);
    float *du = j->work + share * j->share, *buf = du + C;
    for (int64_t i = from; i < to; i++) {
        float *sum = j->parts + i * (K + 1) * C;
        memset(sum, 0, (size_t)((K + 1) * C) * sizeof *sum);
        for (int64_t r = i * RUN; r < AF_MIN((i + 1) * RUN, N); r++) {
            const int64_t s = sequence_of(j, r);
            if (s < 0)
                continue;
            slope_row(j, s, r, du, buf);
            for (int64_t k = 0; k < K; k++) {
                const float *x = row_before(j, s, r - K + 1 + k, buf);
                for (int64_t c = 0; x && c < C; c++)
                    sum[k * C + c] += du[c] * x[c];
            }
            j->f->add(sum + K * C, sum + K * C, du, C);
        }
    }
}

/* The windows after the run: the last rows of what was there and what came. */
static void store_windows(const conv_fast_job *j)
{
    const int64_t C = j->in.C, before = j->in.K - 1;
    float *row = j->work;
    for (int64_t s = 0; s < j->in.S; s++) {
        const int64_t len = j->bounds[s + 1] - j->bounds[s];
        for (int64_t k = 0; len > 0 && k < before;
             k++) { /* rising: reads what is not yet written */
            const float *x = row_before(j, s, j->bounds[s] + len - before + k, row);
            float *to = af_fast_out_row(j->in.window, s * before + k, C, row);
            if (!x)
                memset(to, 0, (size_t)C * sizeof *to);
            else if (x != to)
                memcpy(to, x, (size_t)C * sizeof *to);
            af_fast_put_row(j->f, j->in.window, s * before + k, C, to);
        }
    }
}

static int64_t share_floats(const af_node *n)
{
    const af_conv_inputs in = af_conv_in(n);
    return (in.K + 4) * in.C;
}
static int64_t runs_of(int64_t rows) { return (rows + RUN - 1) / RUN; }

static conv_fast_job job_of(const af_node *n, const af_cpu *cpu)
{
    conv_fast_job j = {.n = n, .f = af_fast_get(), .in = af_conv_in(n), .taps = cpu->work};
    const int64_t C = j.in.C, K = j.in.K;
    j.bounds = af_state_bounds(j.in.bounds, j.in.x);
    j.share = share_floats(n);
    j.parts = j.taps + (K + 1) * C;
    j.work = j.parts + (n->op == AF_OP_CONV_DW ? runs_of(af_rows(j.in.x)) * (K + 1) * C : 0);
    for (int64_t k = 0; k < K; k++)
        for (int64_t c = 0; c < C; c++)
            j.taps[k * C + c] = (float)af_ld(j.in.w, c * K + k);
    if (j.in.bias) {
        j.bias = j.taps + K * C;
        af_ld_row_f32(j.in.bias, 0, C, j.bias);
    }
    return j;
}

static void conv_run(const af_node *n, af_cpu *cpu)
{
    conv_fast_job j = job_of(n, cpu);
    af_pool_run(cpu->pool, af_live(j.in.x), forward_rows, &j);
    if (j.in.window)
        store_windows(&j);
}
static void conv_bwd_run(const af_node *n, af_cpu *cpu)
{
    conv_fast_job j = job_of(n, cpu);
    af_pool_run(cpu->pool, runs_of(af_live(j.in.x)), backward_runs, &j);
}
static void conv_dw_run(const af_node *n, af_cpu *cpu)
{
    conv_fast_job j = job_of(n, cpu);
    const int64_t runs = runs_of(af_live(j.in.x)), C = j.in.C, K = j.in.K;
    af_pool_run(cpu->pool, runs, dw_runs, &j);
    for (int64_t k = 0; k <= K; k++)
        for (int64_t c = 0; c < C; c++) {
            double sum = 0;
            for (int64_t i = 0; i < runs; i++)
                sum += (double)j.parts[(i * (K + 1) + k) * C + c];
            if (k < K)
                af_st(n->out[0], c * K + k, sum);
            else if (j.in.bias)
                af_st(n->out[1], c, sum);
        }
}

static uint64_t work(const af_node *n, int threads)
{
    const af_conv_inputs in = af_conv_in(n);
    const int64_t runs = n->op == AF_OP_CONV_DW ? runs_of(af_rows(in.x)) : 0;
    return (uint64_t)((in.K + 1) * in.C * (1 + runs) + threads * share_floats(n)) * sizeof(float);
}

static const af_cpu_op conv_op = {conv_run, work}, bwd_op = {conv_bwd_run, work},
                       dw_op = {conv_dw_run, work};

static bool serves(const af_node *n)
{
    const af_conv_inputs in = af_conv_in(n);
    return af_fast_type(in.x) && af_fast_type(in.w) && (!in.dy || af_fast_type(in.dy)) &&
           (!in.window || af_fast_type(in.window));
}
const af_cpu_op *af_conv_fast(const af_node *n) { return serves(n) ? &conv_op : NULL; }
const af_cpu_op *af_conv_cached_fast(const af_node *n) { return serves(n) ? &conv_op : NULL; }
const af_cpu_op *af_conv_bwd_fast(const af_node *n) { return serves(n) ? &bwd_op : NULL; }
const af_cpu_op *af_conv_dw_fast(const af_node *n) { return serves(n) ? &dw_op : NULL; }
