/* half.h - conversions of 16-bit floats without a branch, so that loops over them vectorise.
 *
 * Same contract as the single-value functions of dtype.h, which are these. */
#ifndef AF_HALF_H
#define AF_HALF_H

#include "base/base.h"

static inline uint32_t af_bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float af_float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float af_bf16_up(uint16_t x) { return af_float_of((uint32_t)x << 16); }

static inline uint16_t af_bf16_down(float x)
{
    const uint32_t u = af_bits_of(x);
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    const uint32_t quiet = u >> 16 | 0x40; /* NaN keeps its top bits */
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* The half's bits, read as a float, are 2^-112 times its value, subnormals included: one exact
 * multiplication. Infinity and NaN only need the larger exponent put back. */
static inline float af_f16_up(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, mag = (uint32_t)(x & 0x7fffu) << 13;
    const uint32_t finite = af_bits_of(af_float_of(mag) * 0x1p112f);
    const uint32_t quiet = mag > 0x0f800000u ? 0x400000u : 0;
    return af_float_of(sign | (mag >= 0x0f800000u ? mag | 0x7f800000u | quiet : finite));
}

/* Subnormal results are rounded by adding 0.5, whose last bit is the smallest half. */
static inline uint16_t af_f16_down(float x)
{
    const uint32_t u = af_bits_of(x), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    const uint32_t normal = (mag - 0x38000000u + 0xfffu + (mag >> 13 & 1)) >> 13;
    const uint32_t small =
        af_bits_of(af_float_of(mag < 0x38800000u ? mag : 0) + 0.5f) - 0x3f000000u;
    const uint32_t nan = 0x7e00u | (mag >> 13 & 0x1ffu);
    uint32_t r = mag < 0x38800000u ? small : normal;
    r = mag >= 0x477ff000u ? 0x7c00u : r; /* 65520 and more round to infinity */
    r = mag > 0x7f800000u ? nan : r;
    return (uint16_t)(sign | r);
}

/* A half or bfloat at an address of any alignment. */
static inline float af_f16_at(const uint8_t *p) { return af_f16_up((uint16_t)(p[0] | p[1] << 8)); }

static inline void af_f16_put(uint8_t *p, float x)
{
    const uint16_t h = af_f16_down(x);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}
#endif
