/* small_float.h - blocks of values rounded to small float types (fake_float.c), in f32, for both
 * CPU versions. Loops without calls: they become vector code. */
#ifndef AF_SMALL_FLOAT_H
#define AF_SMALL_FLOAT_H

#include "graph/node.h"
#include "ops/fakequant/fake_float.h"
#include "tensor/half.h"

#include <math.h>

#define AF_FLOAT_TINY 0x1p-100f

/* Values that share a scale. */
static inline int64_t af_float_block(af_qat_type type, int64_t columns)
{
    return type == AF_QAT_NVFP4 ? 16 : type == AF_QAT_MXFP4 ? 32 : columns;
}

/* The nearest number with `bits` bits after the point, exponents from `least` (as bits of a float)
 * and magnitudes up to `top`, ties to even: the sum with 2^23 steps has no room for more digits.
 * NaN stays. */
static inline float af_small_round(float x, int bits, uint32_t least, float top)
{
    const float mag = fabsf(x), a = mag > top ? top : mag;
    const uint32_t e = af_bits_of(a) & 0x7f800000u;
    const float far = af_float_of((e > least ? e : least) + ((23u - (uint32_t)bits) << 23));
    return copysignf(a + far - far, x);
}
static inline float af_round_e2m1(float x) { return af_small_round(x, 1, 0x3f800000u, 6.0f); }
static inline float af_round_e4m3(float x) { return af_small_round(x, 3, 0x3c800000u, 448.0f); }

/* The largest magnitude of n values and `most`, as bits of a float: NaN is above all. */
static inline uint32_t af_float_most(const float *x, int64_t n, uint32_t most)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t mag = af_bits_of(x[i]) & 0x7fffffffu;
        most = mag > most ? mag : most;
    }
    return most;
}

/* y = e2m1(x by) s */
static inline void af_round_e2m1_block(float *y, const float *x, int64_t n, float by, float s)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = af_round_e2m1(x[i] * by) * s;
}

/* all: M; x_type: the type of x, in which fp8 has its scale. */
static inline void af_round_float_block(float *y, const float *x, int64_t n, af_qat_type type,
                                        float all, af_dtype x_type)
{
    const float m = af_float_of(af_float_most(x, n, 0));
    if ((type == AF_QAT_NVFP4 ? all : m) < AF_FLOAT_TINY) {
        memset(y, 0, (size_t)n * sizeof *y);
    } else if (type == AF_QAT_NVFP4) {
        const float t = all / 2688.0f, v = m / 6.0f / t;
        const float s = af_round_e4m3(v < 0x1p-6f ? 0x1p-6f : v);
        af_round_e2m1_block(y, x, n, 1.0f / t / s, t * s);
    } else if (type == AF_QAT_MXFP4) {
        const float s = af_float_of((af_bits_of(m / 6.0f) + 0x7fffffu) & 0xff800000u);
        af_round_e2m1_block(y, x, n, 1.0f / s, s);
    } else {
        float s = m / 448.0f;
        s = x_type == AF_DTYPE_BF16  ? af_bf16_up(af_bf16_down(s))
            : x_type == AF_DTYPE_F16 ? af_f16_up(af_f16_down(s))
                                     : s;
        for (int64_t i = 0; i < n; i++) /* in f16 a small scale is 0 */
            y[i] = s == 0 ? 0 : af_round_e4m3(x[i] / s) * s;
    }
}

/* A row of the node, of n values. */
static inline void af_round_float_row(const af_node *node, float *y, const float *x, int64_t n,
                                      float all)
{
    const af_qat_type type = node->attr.fake_float.type;
    const int64_t len = af_float_block(type, n);
    for (int64_t at = 0; at < n; at += len)
        af_round_float_block(y + at, x + at, len, type, all, node->in[0]->dtype);
}
#endif
