/* unary_cpu.c - the twins of unary.c. */
#include "ops/common/twin.h"

#include <math.h>

#define SQRT_HALF    0.70710678118654752440
#define INV_SQRT_2PI 0.39894228040143267794
#define SQRT_2_BY_PI 0.79788456080286535588
#define GELU_CUBIC   0.044715

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double apply(af_unary_kind kind, double x, double value)
{
    switch (kind) {
    case AF_UNARY_SCALE:
        return x * value;
    case AF_UNARY_NEG:
        return -x;
    case AF_UNARY_EXP:
        return exp(x);
    case AF_UNARY_LOG:
        return log(x);
    case AF_UNARY_SQRT:
        return sqrt(x);
    case AF_UNARY_TANH:
        return tanh(x);
    case AF_UNARY_SIGMOID:
        return sigmoid(x);
    case AF_UNARY_RELU:
        return x > 0 || x != x ? x : 0; /* NaN stays visible */
    case AF_UNARY_GELU:
        return 0.5 * x * (1 + erf(x * SQRT_HALF));
    case AF_UNARY_GELU_TANH:
        return 0.5 * x * (1 + tanh(SQRT_2_BY_PI * (x + GELU_CUBIC * x * x * x)));
    case AF_UNARY_SILU:
        return x * sigmoid(x);
    case AF_UNARY_SOFTCAP:
        return value * tanh(x / value);
    case AF_UNARY_CLIP:
        return x > value ? value : x < -value ? -value : x;
    }
    return 0;
}

/* f'; v is x or y, whichever the backward gets (see unary.c). */
static double slope(af_unary_kind kind, double v, double value)
{
    switch (kind) {
    case AF_UNARY_SCALE:
        return value;
    case AF_UNARY_NEG:
        return -1;
    case AF_UNARY_EXP:
        return v;
    case AF_UNARY_LOG:
        return 1 / v;
    case AF_UNARY_SQRT:
        return 0.5 / v;
    case AF_UNARY_TANH:
        return 1 - v * v;
    case AF_UNARY_SIGMOID:
        return v * (1 - v);
    case AF_UNARY_RELU:
        return v > 0 ? 1 : 0;
    case AF_UNARY_GELU:
        return 0.5 * (1 + erf(v * SQRT_HALF)) + v * INV_SQRT_2PI * exp(-0.5 * v * v);
    case AF_UNARY_GELU_TANH: {
        const double t = tanh(SQRT_2_BY_PI * (v + GELU_CUBIC * v * v * v));
        return 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * SQRT_2_BY_PI * (1 + 3 * GELU_CUBIC * v * v);
    }
    case AF_UNARY_SILU: {
        const double s = sigmoid(v);
        return s * (1 + v * (1 - s));
    }
    case AF_UNARY_SOFTCAP:
        return 1 - v / value * (v / value);
    case AF_UNARY_CLIP:
        return v > value || v < -value ? 0 : 1;
    }
    return 0;
}

enum { ALONE = 4096 }; /* values that are not worth another thread */

static void forward_values(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    (void)share;
    for (int64_t i = from; i < to; i++)
        af_st(n->out[0], i, apply(n->attr.unary.kind, af_ld(n->in[0], i), n->attr.unary.value));
}

static void backward_values(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    (void)share;
    for (int64_t i = from; i < to; i++)
        af_st(n->out[0], i,
              af_ld(n->in[2], i) *
                  slope(n->attr.unary.kind, af_ld(n->in[0], i), n->attr.unary.value));
}

static void run_values(const af_node *n, const af_cpu *cpu, af_pool_job *values)
{
    const int64_t count = af_live_count(n->out[0]);
    if (count <= ALONE)
        values((void *)n, 0, count, 0);
    else
        af_pool_run(cpu->pool, count, values, (void *)n);
}

static void unary_run(const af_node *n, af_cpu *cpu) { run_values(n, cpu, forward_values); }
static void unary_bwd_run(const af_node *n, af_cpu *cpu) { run_values(n, cpu, backward_values); }

static void cast_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const int64_t count = af_live_count(n->out[0]);
    for (int64_t i = 0; i < count; i++)
        af_put(n, n->out[0], i, af_ld(n->in[0], i));
}

const af_cpu_op af_cpu_unary = {unary_run, NULL};
const af_cpu_op af_cpu_unary_bwd = {unary_bwd_run, NULL};
const af_cpu_op af_cpu_cast = {cast_run, NULL};
