/* softmax_cpu.c - the twins of softmax.c. */
#include "ops/common/twin.h"

#include <math.h>

static void softmax_row(const af_node *n, int64_t at, int64_t D)
{
    const af_tensor *x = n->in[0];
    double max = -INFINITY, sum = 0;
    for (int64_t d = 0; d < D; d++)
        max = fmax(max, af_ld(x, at + d));
    for (int64_t d = 0; d < D; d++)
        sum += exp(af_ld(x, at + d) - max);
    for (int64_t d = 0; d < D; d++) { /* x may be y: each value is read before it is written */
        const double v = af_ld(x, at + d) - max;
        af_st(n->out[0], at + d, n->attr.softmax.log ? v - log(sum) : exp(v) / sum);
    }
}

static void softmax_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const int64_t D = af_last(n->in[0]), count = af_live_count(n->in[0]);
    for (int64_t at = 0; at < count; at += D)
        softmax_row(n, at, D);
}

static void softmax_bwd_row(const af_node *n, int64_t at, int64_t D)
{
    const af_tensor *y = n->in[0], *dy = n->in[1];
    const bool log = n->attr.softmax.log;
    double sum = 0;
    for (int64_t d = 0; d < D; d++)
        sum += af_ld(dy, at + d) * (log ? 1 : af_ld(y, at + d));
    for (int64_t d = 0; d < D; d++) {
        const double v = af_ld(y, at + d), g = af_ld(dy, at + d);
        af_st(n->out[0], at + d, log ? g - exp(v) * sum : v * (g - sum));
    }
}

static void softmax_bwd_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const int64_t D = af_last(n->in[0]), count = af_live_count(n->in[0]);
    for (int64_t at = 0; at < count; at += D)
        softmax_bwd_row(n, at, D);
}

const af_cpu_op af_cpu_softmax = {softmax_run, NULL};
const af_cpu_op af_cpu_softmax_bwd = {softmax_bwd_run, NULL};
