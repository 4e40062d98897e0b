/* fp8_round.c - see fp8_round.h. */
#include "tensor/fp8_round.h"

#include "tensor/dtype.h"
#include "tensor/half.h"

#include <math.h>

static uint32_t magnitude(float x) { return af_bits_of(x) & 0x7fffffffu; }

/* As integers magnitudes have the same order, with NaN above all. */
float af_fp8_largest(const float *x, int64_t n, float so_far)
{
    uint32_t most = magnitude(so_far);
    for (int64_t i = 0; i < n; i++)
        most = AF_MAX(most, magnitude(x[i]));
    return af_float_of(most);
}

void af_fp8_largest_columns(float *largest, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        largest[i] = af_float_of(AF_MAX(magnitude(largest[i]), magnitude(x[i])));
}

af_fp8_scale af_fp8_scale_of(float largest)
{
    if (!isfinite(largest))
        return (af_fp8_scale){NAN, NAN};
    if (largest < AF_FP8_TINY)
        return (af_fp8_scale){0, 0};
    /* the exponent, one more where the mantissa is above that of 448 */
    const uint32_t e = ((af_bits_of(largest) + 0x1fffffu) >> 23) - 8;
    return (af_fp8_scale){af_float_of(e << 23), af_float_of((254 - e) << 23)};
}

/* Half to even on the last of three bits of the mantissa; below 2^-6 to a multiple of 2^-9, which
 * is the last bit of a float near 1.5 * 2^14. */
float af_fp8_round(float x)
{
    const uint32_t u = af_bits_of(x), mag = u & 0x7fffffffu;
    const uint32_t normal = (mag + 0x7ffffu + (mag >> 20 & 1)) & 0xfff00000u;
    const float shifted = af_float_of(mag) + 24576.0f;
    const uint32_t small = af_bits_of(shifted - 24576.0f);
    uint32_t r = mag < 0x3c800000u ? small : normal;
    r = r > 0x43e00000u ? 0x43e00000u : r; /* 448 */
    r = mag > 0x7f800000u ? 0x7fc00000u : r;
    return af_float_of(r | (u & 0x80000000u));
}

uint8_t af_fp8_code(float x) { return af_e4m3_from_f32(af_fp8_round(x)); }

void af_fp8_round_row(float *x, int64_t n, af_fp8_scale s)
{
    for (int64_t i = 0; i < n; i++) {
        const float scaled = x[i] * s.inverse;
        x[i] = af_fp8_round(scaled) * s.scale;
    }
}

void af_fp8_round_columns(float *x, int64_t n, const af_fp8_scale *s)
{
    for (int64_t i = 0; i < n; i++) {
        const float scaled = x[i] * s[i].inverse;
        x[i] = af_fp8_round(scaled) * s[i].scale;
    }
}
