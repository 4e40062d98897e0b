/* moe_linear_cpu.c - the twins of moe_linear.c: sums in double over rows in order, so that nothing
 * depends on the number of threads. */
#include "backend/cpu/cpu.h"
#include "ops/general/activation.h"
#include "ops/moe/moe_in.h"

typedef struct linear_job {
    const af_node *n;
    af_moe_inputs in;
    int64_t X, O, I, k, R; /* R: rank, 0 = no adapter */
    const int32_t *list, *start;
    double *sum;  /* DX: [N][k][I] */
    double *rows; /* [threads][stride] */
    int64_t stride;
} linear_job;

static uint64_t layout(linear_job *j, const af_node *n, int threads, double *work)
{
    const af_moe_inputs in = af_moe_in(n);
    *j = (linear_job){.n = n, .in = in, .k = n->attr.moe.k};
    const af_tensor *w = in.w ? in.w : n->out[0];
    j->X = w->dim[0];
    j->O = w->dim[1];
    j->I = w->ndim == 3 ? w->dim[2] : 1;
    j->R = in.a ? in.a->dim[1] : 0;
    j->list = in.list->data;
    j->start = in.start->data;
    j->stride = 2 * AF_MAX(j->I, j->R);
    const int64_t sums = n->op == AF_OP_MOE_LINEAR_DX ? af_count(n->out[0]) : 0;
    j->sum = work;
    j->rows = work ? work + sums : NULL;
    return (uint64_t)(sums + threads * j->stride) * sizeof(double);
}

static uint64_t linear_work(const af_node *n, int threads)
{
    linear_job j;
    return layout(&j, n, threads, NULL);
}

/* Where x of slot s begins. */
static int64_t row_of(const linear_job *j, int64_t s)
{
    return j->n->attr.moe.by_token ? j->list[s] / j->k : s;
}

static double dot(const double *w, const af_tensor *x, int64_t row, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += w[i] * af_ld(x, row * n + i);
    return sum;
}

/* Column `item` % O of the slots of expert item / O: its row of w is decoded once. */
static void output_columns(void *arg, int64_t from, int64_t to, int share)
{
    const linear_job *j = arg;
    double *w = j->rows + share * j->stride, *b = w + j->stride / 2;
    for (int64_t item = from; item < to; item++) {
        const int64_t e = item / j->O, o = item % j->O;
        if (j->start[e] == j->start[e + 1])
            continue;
        af_ld_row(j->in.w, item * j->I, j->I, w);
        if (j->R)
            af_ld_row(j->in.b, item * j->R, j->R, b);
        for (int64_t s = j->start[e]; s < j->start[e + 1]; s++)
            af_st(j->n->out[0], s * j->O + o,
                  j->n->attr.moe.alpha * dot(w, j->in.x, row_of(j, s), j->I) +
                      (j->in.bias ? af_ld(j->in.bias, item) : 0) +
                      (j->R ? dot(b, j->in.xa, s, j->R) : 0));
    }
}

/* h of the slots, from y. */
static void gated_slots(void *arg, int64_t from, int64_t to, int share)
{
    const linear_job *j = arg;
    const int64_t F = j->O / 2;
    (void)share;
    for (int64_t s = from; s < to; s++)
        for (int64_t f = 0; f < F; f++)
            af_st(j->n->out[1], s * F + f,
                  af_act_value(j->n->attr.moe.act, af_ld(j->n->out[0], s * j->O + f)) *
                      af_ld(j->n->out[0], s * j->O + F + f));
}

static void moe_linear_run(const af_node *n, af_cpu *cpu)
{
    linear_job j;
    (void)layout(&j, n, cpu->threads, cpu->work);
    af_pool_run(cpu->pool, j.X * j.O, output_columns, &j);
    if (n->attr.moe.glu)
        af_pool_run(cpu->pool, j.start[j.X], gated_slots, &j);
}

/* sum[s] += by * d(s)[row] * w[e][row] over rows and the slots of e; d(s) may be by token */
static void add_rows(const linear_job *j, const af_tensor *w, int64_t rows, const af_tensor *d,
                     double by, int64_t e, double *row)
{
    for (int64_t r = 0; r < rows; r++) {
        af_ld_row(w, (e * rows + r) * j->I, j->I, row);
        for (int64_t s = j->start[e]; s < j->start[e + 1]; s++) {
            const double f = by * af_ld(d, (d->ndim == 2 ? row_of(j, s) : s) * rows + r);
            for (int64_t i = 0; i < j->I; i++)
                j->sum[s * j->I + i] += f * row[i];
        }
    }
}

static void dx_experts(void *arg, int64_t from, int64_t to, int share)
{
    const linear_job *j = arg;
    double *row = j->rows + share * j->stride;
    for (int64_t e = from; e < to; e++) {
        const int64_t first = j->start[e] * j->I, count = (j->start[e + 1] - j->start[e]) * j->I;
        if (count == 0)
            continue;
        memset(j->sum + first, 0, (size_t)count * sizeof *j->sum);
        add_rows(j, j->in.w, j->O, j->in.dy, j->n->attr.moe.alpha, e, row);
        if (j->R)
            add_rows(j, j->in.a, j->R, j->in.g, 1, e, row);
        af_st_row(j->n->out[0], first, count, j->sum + first);
    }
}

static void moe_linear_dx_run(const af_node *n, af_cpu *cpu)
{
    linear_job j;
    (void)layout(&j, n, cpu->threads, cpu->work);
    af_pool_run(cpu->pool, j.X, dx_experts, &j);
}

static void dw_rows(void *arg, int64_t from, int64_t to, int share)
{
    const linear_job *j = arg;
    double *sum = j->rows + share * j->stride;
    for (int64_t item = from; item < to; item++) {
        const int64_t e = item / j->O, o = item % j->O;
        memset(sum, 0, (size_t)j->I * sizeof *sum);
        for (int64_t s = j->start[e]; s < j->start[e + 1]; s++) {
            const double d = af_ld(j->in.dy, s * j->O + o);
            const int64_t row = j->in.x ? row_of(j, s) : 0;
            for (int64_t i = 0; i < j->I; i++)
                sum[i] += j->in.x ? d * af_ld(j->in.x, row * j->I + i) : d;
        }
        for (int64_t i = 0; i < j->I; i++)
            af_put(j->n, j->n->out[0], item * j->I + i, sum[i]);
    }
}

/* A bias is a column whose x is 1. */
static void moe_linear_dw_run(const af_node *n, af_cpu *cpu)
{
    linear_job j;
    (void)layout(&j, n, cpu->threads, cpu->work);
    af_pool_run(cpu->pool, j.X * j.O, dw_rows, &j);
}

const af_cpu_op af_cpu_moe_linear = {moe_linear_run, linear_work};
const af_cpu_op af_cpu_moe_linear_dx = {moe_linear_dx_run, linear_work};
const af_cpu_op af_cpu_moe_linear_dw = {moe_linear_dw_run, linear_work};
const af_cpu_op af_cpu_moe_linear_dbias = {moe_linear_dw_run, linear_work};
