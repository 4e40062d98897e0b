/* xielu_cpu.c - the twins of xielu.c. */
#include "backend/cpu/cpu.h"
#include "ops/xielu/xielu_in.h"

#include <math.h>

typedef struct xielu_job {
    const af_node *node;
    af_xielu_inputs in;
    double a, c, beta, eps;
    int64_t width;
    double *sums; /* [rows][2]: what a row adds to the slopes' gradients */
} xielu_job;

static xielu_job job_of(const af_node *n, void *work)
{
    const af_xielu_inputs in = af_xielu_in(n);
    const double beta = af_ld(in.beta, 0);
    return (xielu_job){.node = n,
                       .in = in,
                       .a = af_xielu_softplus(af_ld(in.p, 0)),
                       .c = beta + af_xielu_softplus(af_ld(in.n, 0)),
                       .beta = beta,
                       .eps = af_ld(in.eps, 0),
                       .width = af_last(in.x),
                       .sums = work};
}

static double curve(const xielu_job *j, double x) { return expm1(fmin(x, j->eps)) - x; }

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const xielu_job *j = arg;
    (void)share;
    for (int64_t i = from * j->width; i < to * j->width; i++) {
        const double x = af_ld(j->in.x, i);
        af_st(j->node->out[0], i, (x > 0 ? j->a * x * x : j->c * curve(j, x)) + j->beta * x);
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const xielu_job *j = arg;
    (void)share;
    for (int64_t i = from * j->width; i < to * j->width; i++) {
        const double x = af_ld(j->in.x, i), e = x < j->eps ? exp(x) : 0;
        const double slope = x > 0 ? 2 * j->a * x : j->c * (e - 1);
        af_st(j->node->out[0], i, af_ld(j->in.dy, i) * (slope + j->beta));
    }
}

static void slope_rows(void *arg, int64_t from, int64_t to, int share)
{
    const xielu_job *j = arg;
    (void)share;
    for (int64_t r = from; r < to; r++) {
        double p = 0, n = 0;
        for (int64_t i = r * j->width; i < (r + 1) * j->width; i++) {
            const double x = af_ld(j->in.x, i), dy = af_ld(j->in.dy, i);
            if (x > 0)
                p += dy * x * x;
            else
                n += dy * curve(j, x);
        }
        j->sums[2 * r] = p;
        j->sums[2 * r + 1] = n;
    }
}

static void xielu_run(const af_node *n, af_cpu *cpu)
{
    xielu_job j = job_of(n, cpu->work);
    af_pool_run(cpu->pool, af_live(j.in.x), forward_rows, &j);
}

static void xielu_bwd_run(const af_node *n, af_cpu *cpu)
{
    xielu_job j = job_of(n, cpu->work);
    af_pool_run(cpu->pool, af_live(j.in.x), backward_rows, &j);
}

static void xielu_dslope_run(const af_node *n, af_cpu *cpu)
{
    xielu_job j = job_of(n, cpu->work);
    const int64_t rows = af_live(j.in.x);
    double sum[2] = {0, 0};
    af_pool_run(cpu->pool, rows, slope_rows, &j);
    for (int64_t r = 0; r < 2 * rows; r++)
        sum[r % 2] += j.sums[r];
    af_st(n->out[0], 0, sum[0] / (1 + exp(-af_ld(j.in.p, 0))));
    af_st(n->out[1], 0, sum[1] / (1 + exp(-af_ld(j.in.n, 0))));
}

static uint64_t dslope_work(const af_node *n, int threads)
{
    (void)threads;
    return 2 * (uint64_t)af_rows(n->in[0]) * sizeof(double);
}

const af_cpu_op af_cpu_xielu = {xielu_run, NULL};
const af_cpu_op af_cpu_xielu_bwd = {xielu_bwd_run, NULL};
const af_cpu_op af_cpu_xielu_dslope = {xielu_dslope_run, dslope_work};
