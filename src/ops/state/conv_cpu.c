/* conv_cpu.c - the twins of conv.c, column by column: nothing is shared between threads. */
#include "backend/cpu/cpu.h"
#include "ops/general/activation.h"
#include "ops/state/state_in.h"

typedef struct conv_job {
    const af_node *n;
    af_conv_inputs in;
    const int32_t *bounds;
    double *work;
    int64_t scratch; /* doubles of one thread */
} conv_job;

/* The taps of a column. */
static double load_taps(const conv_job *j, int64_t c, double *w)
{
    for (int64_t k = 0; k < j->in.K; k++)
        w[k] = af_ld(j->in.w, c * j->in.K + k);
    return j->in.bias ? af_ld(j->in.bias, c) : 0.0;
}

/* u of `len` rows; x has the K-1 rows before them first. */
static void convolve(const double *x, const double *w, double bias, int64_t K, int64_t len,
                     double *u)
{
    for (int64_t t = 0; t < len; t++) {
        u[t] = bias;
        for (int64_t k = 0; k < K; k++)
            u[t] += w[k] * x[t + k];
    }
}

static void put_values(const conv_job *j, int64_t row, int64_t c, const double *u, int64_t len)
{
    for (int64_t t = 0; t < len; t++)
        af_st(j->n->out[0], (row + t) * j->in.C + c,
              j->n->attr.conv.silu ? af_act_value(AF_ACT_SILU, u[t]) : u[t]);
}

/* What column c sees before sequence s: zeros, or its window. */
static void load_before(const conv_job *j, int64_t s, int64_t c, double *x)
{
    const int64_t before = j->in.K - 1;
    const bool carried = j->in.window && ((const int32_t *)j->in.start->data)[s] > 0;
    for (int64_t k = 0; k < before; k++)
        x[k] = carried ? af_ld(j->in.window, (s * before + k) * j->in.C + c) : 0.0;
}

static void forward_column(const conv_job *j, int64_t c, double *s0)
{
    const int64_t K = j->in.K, C = j->in.C;
    double *w = s0, *x = w + K, *u = x + K + j->in.x->dim[0];
    const double bias = load_taps(j, c, w);
    for (int64_t s = 0; s < j->in.S; s++) {
        const int64_t row = j->bounds[s], len = j->bounds[s + 1] - row;
        if (len == 0)
            continue;
        load_before(j, s, c, x);
        for (int64_t t = 0; t < len; t++)
            x[K - 1 + t] = af_ld(j->in.x, (row + t) * C + c);
        convolve(x, w, bias, K, len, u);
        put_values(j, row, c, u, len);
        for (int64_t k = 0; j->in.window && k < K - 1; k++)
            af_st(j->in.window, (s * (K - 1) + k) * C + c, x[len + k]);
    }
}

static void backward_column(const conv_job *j, int64_t c, double *s0)
{
    const int64_t K = j->in.K, C = j->in.C, N = j->in.x->dim[0];
    double *w = s0, *dw = w + K, *x = dw + K, *u = x + K + N, bias = load_taps(j, c, w), db = 0;
    memset(dw, 0, (size_t)K * sizeof *dw);
    for (int64_t s = 0; s < j->in.S; s++) {
        const int64_t row = j->bounds[s], len = j->bounds[s + 1] - row;
        memset(x, 0, (size_t)(K - 1) * sizeof *x);
        for (int64_t t = 0; t < len; t++)
            x[K - 1 + t] = af_ld(j->in.x, (row + t) * C + c);
        convolve(x, w, bias, K, len, u);
        for (int64_t t = 0; t < len; t++) {
            u[t] = af_ld(j->in.dy, (row + t) * C + c) *
                   (j->n->attr.conv.silu ? af_act_slope(AF_ACT_SILU, u[t]) : 1.0);
            db += u[t];
            for (int64_t k = 0; k < K; k++)
                dw[k] += u[t] * x[t + k];
        }
        for (int64_t t = 0; t < len && j->n->op == AF_OP_CONV_BWD; t++) {
            double d = 0;
            for (int64_t k = 0; k < K && t + k < len; k++)
                d += w[K - 1 - k] * u[t + k];
            af_st(j->n->out[0], (row + t) * C + c, d);
        }
    }
    if (j->n->op == AF_OP_CONV_BWD)
        return;
    for (int64_t k = 0; k < K; k++)
        af_st(j->n->out[0], c * K + k, dw[k]);
    if (j->in.bias)
        af_st(j->n->out[1], c, db);
}

static void columns(void *arg, int64_t from, int64_t to, int share)
{
    const conv_job *j = arg;
    double *w = j->work + share * j->scratch;
    for (int64_t c = from; c < to; c++)
        (j->in.dy ? backward_column : forward_column)(j, c, w);
}

static int64_t scratch_of(const af_node *n)
{
    const af_conv_inputs in = af_conv_in(n);
    return 3 * in.K + 2 * in.x->dim[0];
}

static void conv_run(const af_node *n, af_cpu *cpu)
{
    conv_job j = {.n = n, .in = af_conv_in(n), .work = cpu->work, .scratch = scratch_of(n)};
    j.bounds = af_state_bounds(j.in.bounds, j.in.x);
    const int64_t N = af_live(j.in.x), C = j.in.C;
    for (int64_t i = 0; i < N * C && n->op != AF_OP_CONV_DW; i++)
        if (i / C < j.bounds[0] || i / C >= j.bounds[j.in.S])
            af_st(n->out[0], i, 0);
    af_pool_run(cpu->pool, C, columns, &j);
}

static uint64_t conv_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)scratch_of(n) * sizeof(double);
}

const af_cpu_op af_cpu_conv = {conv_run, conv_work};
const af_cpu_op af_cpu_conv_bwd = {conv_run, conv_work};
const af_cpu_op af_cpu_conv_dw = {conv_run, conv_work};
const af_cpu_op af_cpu_conv_cached = {conv_run, conv_work};
