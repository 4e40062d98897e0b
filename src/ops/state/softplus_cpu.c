/* softplus_cpu.c - the twins of softplus.c. */
#include "backend/cpu/cpu.h"
#include "ops/state/softplus_in.h"

#include <math.h>

static double softplus(double z) { return z > 0 ? z + log1p(exp(-z)) : log1p(exp(z)); }

static double factor(const af_softplus_inputs *in, int64_t h)
{
    return in->a_log ? -exp(af_ld(in->a_log, h)) : 1.0;
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_softplus_inputs in = af_softplus_in(n);
    const int64_t H = af_last(in.x);
    (void)share;
    for (int64_t r = from; r < to; r++)
        for (int64_t h = 0; h < H; h++)
            af_st(n->out[0], r * H + h,
                  factor(&in, h) * softplus(af_ld(in.x, r * H + h) + af_ld(in.bias, h)));
}

/* Columns, each over all rows in order. */
static void backward_columns(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_softplus_inputs in = af_softplus_in(n);
    const int64_t H = af_last(in.x), N = af_live(in.x);
    (void)share;
    for (int64_t h = from; h < to; h++) {
        const double f = factor(&in, h), bias = af_ld(in.bias, h);
        double dbias = 0, da = 0;
        for (int64_t r = 0; r < N; r++) {
            const double z = af_ld(in.x, r * H + h) + bias, dy = af_ld(in.dy, r * H + h),
                         dz = dy * f / (1.0 + exp(-z));
            af_st(n->out[0], r * H + h, dz);
            dbias += dz;
            da += dy * f * softplus(z);
        }
        af_st(n->out[1], h, dbias);
        if (in.a_log)
            af_st(n->out[2], h, da);
    }
}

static void softplus_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), forward_rows, (void *)n);
}
static void softplus_bwd_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_last(n->in[0]), backward_columns, (void *)n);
}

const af_cpu_op af_cpu_softplus = {softplus_run, NULL};
const af_cpu_op af_cpu_softplus_bwd = {softplus_bwd_run, NULL};
