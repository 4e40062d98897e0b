/* loss_cpu.c - the twins of loss.c. */
#include "ops/common/twin.h"
#include "ops/head/head_in.h"

#include <math.h>

enum { IGNORED = -100 };

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* The loss of one element. */
static double value_of(const af_node *n, double x, double t)
{
    const double d = x - t, delta = n->attr.loss.value;
    switch (n->attr.loss.kind) {
    case AF_LOSS_MSE:
        return d * d;
    case AF_LOSS_L1:
        return fabs(d);
    case AF_LOSS_HUBER:
        return fabs(d) <= delta ? 0.5 * d * d : delta * (fabs(d) - 0.5 * delta);
    case AF_LOSS_BCE:
        return fmax(x, 0) - x * t + log1p(exp(-fabs(x)));
    case AF_LOSS_KL:
        return t > 0 ? t * (log(t) - x) : 0;
    case AF_LOSS_CE:
        break; /* by rows, below */
    }
    return 0;
}

/* Its derivative by x. */
static double slope_of(const af_node *n, double x, double t)
{
    const double d = x - t, delta = n->attr.loss.value, sign = d > 0 ? 1 : d < 0 ? -1 : 0;
    switch (n->attr.loss.kind) {
    case AF_LOSS_MSE:
        return 2 * d;
    case AF_LOSS_L1:
        return sign;
    case AF_LOSS_HUBER:
        return fabs(d) <= delta ? d : delta * sign;
    case AF_LOSS_BCE:
        return sigmoid(x) - t;
    case AF_LOSS_KL:
        return -t;
    case AF_LOSS_CE:
        break;
    }
    return 0;
}

/* What the sum is divided by: elements, rows (KL), rows with a label (cross-entropy). */
static double divisor(const af_node *n)
{
    const af_loss_inputs in = af_loss_in(n);
    const af_tensor *x = in.x;
    const int64_t count = af_live_count(x);
    if (n->attr.loss.kind == AF_LOSS_KL)
        return (double)(count / af_last(x));
    if (n->attr.loss.kind != AF_LOSS_CE)
        return (double)count;
    int64_t rows = 0;
    for (int64_t r = 0; r < af_live_dim(x); r++)
        rows += ((const int32_t *)in.target->data)[r] != IGNORED;
    return (double)rows;
}

static double row_lse(const af_tensor *x, int64_t at, int64_t V)
{
    assert(V > 0);
    double max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < V; v++)
        max = fmax(max, af_ld(x, at + v));
    for (int64_t v = 0; v < V; v++)
        sum += exp(af_ld(x, at + v) - max);
    return max + log(sum); // cppcheck-suppress invalidFunctionArg ; V > 0
}

/* The weight of class v in a row with this label. */
static double target_of(const af_node *n, int32_t label, int64_t v, int64_t V)
{
    const double s = n->attr.loss.value;
    return (v == label ? 1 - s : 0) + s / (double)V;
}

/* A label outside the classes is a fault of the data: the loss becomes NaN. */
static double ce_row(const af_node *n, int64_t r, int64_t V)
{
    const af_loss_inputs in = af_loss_in(n);
    const af_tensor *x = in.x;
    const int32_t label = ((const int32_t *)in.target->data)[r];
    if (label == IGNORED)
        return 0;
    if (label < 0 || label >= V)
        return NAN;
    const double lse = row_lse(x, r * V, V);
    double sum = 0;
    for (int64_t v = 0; v < V; v++) {
        const double p = target_of(n, label, v, V);
        if (p > 0)
            sum += p * (lse - af_ld(x, r * V + v));
    }
    return sum;
}

static void loss_run(const af_node *n, af_cpu *cpu)
{
    const af_loss_inputs in = af_loss_in(n);
    (void)cpu;
    const af_tensor *x = in.x;
    double sum = 0;
    if (n->attr.loss.kind == AF_LOSS_CE) {
        for (int64_t r = 0; r < af_live_dim(x); r++)
            sum += ce_row(n, r, af_last(x));
    } else {
        const int64_t count = af_live_count(x);
        for (int64_t i = 0; i < count; i++)
            sum += value_of(n, af_ld(x, i), af_ld(in.target, i));
    }
    const double over = divisor(n);
    af_st(n->out[0], 0, over > 0 ? sum / over : 0);
}

static void ce_bwd_row(const af_node *n, int64_t r, double scale)
{
    const af_loss_inputs in = af_loss_in(n);
    const af_tensor *x = in.x;
    const int64_t V = af_last(x);
    const int32_t label = ((const int32_t *)in.target->data)[r];
    const double lse = label == IGNORED ? 0 : row_lse(x, r * V, V);
    for (int64_t v = 0; v < V; v++) {
        const double d = exp(af_ld(x, r * V + v) - lse) - target_of(n, label, v, V);
        af_st(n->out[0], r * V + v, label == IGNORED ? 0 : scale * d);
    }
}

static void loss_bwd_run(const af_node *n, af_cpu *cpu)
{
    const af_loss_inputs in = af_loss_in(n);
    (void)cpu;
    const af_tensor *x = in.x;
    const double over = divisor(n), scale = over > 0 ? af_ld(in.dloss, 0) / over : 0;
    if (n->attr.loss.kind == AF_LOSS_CE) {
        for (int64_t r = 0; r < af_live_dim(x); r++)
            ce_bwd_row(n, r, scale);
        return;
    }
    const int64_t count = af_live_count(x);
    for (int64_t i = 0; i < count; i++)
        af_st(n->out[0], i, scale * slope_of(n, af_ld(x, i), af_ld(in.target, i)));
}

const af_cpu_op af_cpu_loss = {loss_run, NULL};
const af_cpu_op af_cpu_loss_bwd = {loss_bwd_run, NULL};
