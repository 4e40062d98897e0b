/* activation.h - the activations of gated units in double: what glu and moe twins share. */
#ifndef AF_ACTIVATION_H
#define AF_ACTIVATION_H

#include "afinar/graph.h"

#include <math.h>

/* act(x) and its derivative. */
static inline double af_act_value(af_act act, double x)
{
    switch (act) {
    case AF_ACT_SILU:
        return x / (1.0 + exp(-x));
    case AF_ACT_GELU_TANH: {
        const double c = 0.79788456080286535588; /* sqrt(2/pi) */
        return 0.5 * x * (1.0 + tanh(c * (x + 0.044715 * x * x * x)));
    }
    case AF_ACT_GELU:
        return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case AF_ACT_RELU:
        return x > 0 ? x : 0;
    }
    return 0;
}

static inline double af_act_slope(af_act act, double x)
{
    switch (act) {
    case AF_ACT_SILU: {
        const double s = 1.0 / (1.0 + exp(-x));
        return s * (1.0 + x * (1.0 - s));
    }
    case AF_ACT_GELU_TANH: {
        const double c = 0.79788456080286535588;
        const double t = tanh(c * (x + 0.044715 * x * x * x));
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3 * 0.044715 * x * x);
    }
    case AF_ACT_GELU:
        return 0.5 * erfc(-x * 0.70710678118654752440) +
               x * 0.39894228040143267794 * exp(-0.5 * x * x); /* 1/sqrt(2 pi) */
    case AF_ACT_RELU:
        return x > 0 ? 1 : 0;
    }
    return 0;
}

/* The clamped unit of gpt-oss: its value, and its slopes along gate and up. */
static inline double af_glu_clamped_value(double gate, double up, double limit)
{
    gate = fmin(gate, limit);
    up = fmax(fmin(up, limit), -limit);
    return (up + 1.0) * gate / (1.0 + exp(-1.702 * gate));
}

static inline void af_glu_clamped_slopes(double gate, double up, double limit, double *dgate,
                                         double *dup)
{
    const double g = fmin(gate, limit), u = fmax(fmin(up, limit), -limit);
    const double s = 1.0 / (1.0 + exp(-1.702 * g));
    *dgate = gate <= limit ? (u + 1.0) * s * (1.0 + 1.702 * g * (1.0 - s)) : 0;
    *dup = fabs(up) <= limit ? g * s : 0;
}
#endif
