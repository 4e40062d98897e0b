/* reduce_fast.c - maxima and sums of rows in f32: what the groups of quantisation-aware training
 * need. The same bits as the twins: maxima are exact, sums are in double. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"

enum { ROWS = 256 }; /* of one piece of work */

static void put(const af_node *n, float *to, double v)
{
    *to = (float)(n->accumulate ? (double)*to + v : v);
}

/* NaN stays visible, as in the twin. */
static float row_max(const float *x, int64_t D)
{
    float most = x[0];
    for (int64_t i = 0; i < D; i++)
        if (x[i] > most || x[i] != x[i])
            most = x[i];
    return most;
}

static double row_sum(const float *x, int64_t D)
{
    double sum = 0;
    for (int64_t i = 0; i < D; i++)
        sum += (double)x[i];
    return sum;
}

/* Max and sum_to: x [R][D] -> y [R]. */
static void reduce_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const af_node *n = arg;
    const int64_t D = af_last(n->in[0]), R = af_live_count(n->in[0]) / D;
    const float *x = n->in[0]->data;
    float *y = n->out[0]->data;
    for (int64_t r = from * ROWS; r < AF_MIN(to * ROWS, R); r++)
        put(n, y + r,
            n->op == AF_OP_REDUCE ? (double)row_max(x + r * D, D) : row_sum(x + r * D, D));
}

/* The first maximum of a row takes its gradient. */
static void max_bwd_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const af_node *n = arg;
    const int64_t D = af_last(n->in[0]), R = af_live_count(n->in[0]) / D;
    const float *x = n->in[0]->data, *y = n->in[1]->data, *dy = n->in[2]->data;
    for (int64_t r = from * ROWS; r < AF_MIN(to * ROWS, R); r++) {
        float *dx = (float *)n->out[0]->data + r * D;
        int64_t at = 0;
        while (at < D && x[r * D + at] != y[r])
            at++;
        if (!n->accumulate)
            memset(dx, 0, (size_t)D * sizeof *dx);
        if (at < D)
            put(n, dx + at, (double)dy[r]);
    }
}

static void run_rows(const af_node *n, af_cpu *cpu, af_pool_job *rows)
{
    const int64_t R = af_live_count(n->in[0]) / af_last(n->in[0]);
    af_pool_run(cpu->pool, (R + ROWS - 1) / ROWS, rows, (void *)(uintptr_t)n);
}

static void reduce_run(const af_node *n, af_cpu *cpu) { run_rows(n, cpu, reduce_rows); }
static void max_bwd_run(const af_node *n, af_cpu *cpu) { run_rows(n, cpu, max_bwd_rows); }

static const af_cpu_op reduce_op = {reduce_run, NULL}, max_bwd_op = {max_bwd_run, NULL};

static bool all_f32(const af_node *n)
{
    bool all = n->out[0]->dtype == AF_DTYPE_F32;
    for (int i = 0; i < n->n_in; i++)
        all &= n->in[i]->dtype == AF_DTYPE_F32;
    return all && af_last(n->in[0]) > 0;
}

static bool is_row_max(const af_node *n)
{
    return n->attr.reduce.kind == AF_REDUCE_MAX && n->attr.reduce.axis == n->in[0]->ndim - 1;
}

const af_cpu_op *af_reduce_fast(const af_node *n)
{
    return all_f32(n) && is_row_max(n) ? &reduce_op : NULL;
}
const af_cpu_op *af_reduce_bwd_fast(const af_node *n)
{
    return all_f32(n) && is_row_max(n) ? &max_bwd_op : NULL;
}
const af_cpu_op *af_sum_to_fast(const af_node *n)
{
    const af_tensor *d = n->in[0], *y = n->out[0];
    const bool rows = y->ndim == d->ndim && af_last(y) == 1 && !d->live &&
                      af_count(y) * af_last(d) == af_count(d);
    return all_f32(n) && rows ? &reduce_op : NULL;
}
