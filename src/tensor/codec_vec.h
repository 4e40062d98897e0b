/* codec_vec.h - inside the codecs: vectors of floats, and the few operations the language lacks.
 *
 * An af_vec has as many lanes as the instruction set the file is built for; results never depend
 * on it, because a lane never meets another. */
#ifndef AF_CODEC_VEC_H
#define AF_CODEC_VEC_H

#include "base/base.h"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <math.h>

#if defined(__AVX2__)
enum { AF_LANES = 8 };
#else
enum { AF_LANES = 4 };
#endif

typedef float af_vec __attribute__((vector_size(4 * AF_LANES)));
typedef int32_t af_ivec __attribute__((vector_size(4 * AF_LANES)));
/* Four neighbours of one block. */
typedef float af_quad __attribute__((vector_size(16)));
typedef int32_t af_iquad __attribute__((vector_size(16)));

static inline af_vec af_vec_all(float x) { return x - (af_vec){0}; }
static inline af_quad af_quad_all(float x) { return (af_quad){x, x, x, x}; }

static inline af_quad af_quad_at(const float *x)
{
    af_quad q;
    memcpy(&q, x, sizeof q);
    return q;
}

static inline af_vec af_vec_pick(af_ivec mask, af_vec yes, af_vec no)
{
    return (af_vec)((mask & (af_ivec)yes) | (~mask & (af_ivec)no));
}

static inline af_vec af_vec_abs(af_vec x)
{
    return (af_vec)((af_ivec)x & (INT32_MAX - (af_ivec){0}));
}

static inline bool af_vec_any(af_ivec mask)
{
    int32_t any = 0;
    for (int k = 0; k < AF_LANES; k++)
        any |= mask[k];
    return any != 0;
}

/* The larger and the smaller; where x is NaN, y. The intrinsics are one instruction where the
 * portable form is four. */
static inline af_quad af_quad_max(af_quad x, af_quad y)
{
#if defined(__SSE2__)
    return (af_quad)_mm_max_ps((__m128)x, (__m128)y);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return (af_quad)vmaxnmq_f32((float32x4_t)x, (float32x4_t)y);
#else
    const af_iquad more = x > y;
    return (af_quad)((more & (af_iquad)x) | (~more & (af_iquad)y));
#endif
}

static inline af_quad af_quad_min(af_quad x, af_quad y)
{
#if defined(__SSE2__)
    return (af_quad)_mm_min_ps((__m128)x, (__m128)y);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return (af_quad)vminnmq_f32((float32x4_t)x, (float32x4_t)y);
#else
    const af_iquad less = x < y;
    return (af_quad)((less & (af_iquad)x) | (~less & (af_iquad)y));
#endif
}

static inline af_quad af_quad_clamp(af_quad x, float lo, float hi)
{
    return af_quad_min(af_quad_max(x, af_quad_all(lo)), af_quad_all(hi));
}

/* Nearest integer, halves away from zero, of |x| < 2^31. */
static inline af_iquad af_quad_away(af_quad x)
{
#if defined(__ARM_NEON) && defined(__aarch64__)
    return (af_iquad)vcvtaq_s32_f32((float32x4_t)x);
#else
    const af_iquad t = __builtin_convertvector(x, af_iquad);
    const af_quad rest = x - __builtin_convertvector(t, af_quad);
    return t - (rest >= 0.5f) + (rest <= -0.5f);
#endif
}

/* Rows become columns. */
static inline void af_quad_transpose(af_quad r[4])
{
    const af_quad a = __builtin_shufflevector(r[0], r[1], 0, 4, 2, 6);
    const af_quad b = __builtin_shufflevector(r[0], r[1], 1, 5, 3, 7);
    const af_quad c = __builtin_shufflevector(r[2], r[3], 0, 4, 2, 6);
    const af_quad d = __builtin_shufflevector(r[2], r[3], 1, 5, 3, 7);
    r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    r[2] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

typedef uint8_t af_bytes __attribute__((vector_size(16)));
typedef uint16_t af_words __attribute__((vector_size(16)));

/* The low bytes of sixteen numbers. */
static inline af_bytes af_bytes_of(const af_iquad n[4])
{
    const af_words a =
        __builtin_shufflevector((af_words)n[0], (af_words)n[1], 0, 2, 4, 6, 8, 10, 12, 14);
    const af_words b =
        __builtin_shufflevector((af_words)n[2], (af_words)n[3], 0, 2, 4, 6, 8, 10, 12, 14);
    return __builtin_shufflevector((af_bytes)a, (af_bytes)b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20,
                                   22, 24, 26, 28, 30);
}

/* The bits of value 16 of sixteen bytes, side by side. */
static inline uint16_t af_bytes_fifth(af_bytes x)
{
#if defined(__SSE2__)
    return (uint16_t)_mm_movemask_epi8(_mm_slli_epi16((__m128i)x, 3));
#elif defined(__ARM_NEON) && defined(__aarch64__)
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t own = vandq_u8(vtstq_u8((uint8x16_t)x, vdupq_n_u8(16)), vld1q_u8(bit));
    own = vpaddq_u8(own, own);
    own = vpaddq_u8(own, own);
    own = vpaddq_u8(own, own);
    return vgetq_lane_u16(vreinterpretq_u16_u8(own), 0);
#else
    unsigned bits = 0;
    for (int i = 0; i < 16; i++)
        bits |= (x[i] >> 4 & 1u) << i;
    return (uint16_t)bits;
#endif
}

/* Sixteen codes lo .. hi: nearest((x + add) / by), less lo. */
static inline void af_round_16(uint8_t *code, const float *x, float add, float by, float lo,
                               float hi)
{
    af_iquad c[4];
    for (int k = 0; k < 4; k++) {
        const af_quad y = (af_quad_at(x + 4 * k) + add) / by;
        const af_quad l = af_quad_clamp((y + 0x1.8p23f) - 0x1.8p23f, lo, hi);
        c[k] = __builtin_convertvector(l - lo, af_iquad);
    }
    const af_bytes all = af_bytes_of(c);
    memcpy(code, &all, sizeof all);
}

/* Into [lo, hi], NaN to lo. */
static inline af_vec af_vec_clamp(af_vec x, float lo, float hi)
{
#if defined(__AVX2__)
    const __m256 l = _mm256_set1_ps(lo), h = _mm256_set1_ps(hi);
    return (af_vec)_mm256_min_ps(_mm256_max_ps((__m256)x, l), h);
#else
    return af_quad_clamp(x, lo, hi);
#endif
}

/* The smaller; where x is NaN, hi. */
static inline af_vec af_vec_min(af_vec x, float hi)
{
#if defined(__AVX2__)
    return (af_vec)_mm256_min_ps((__m256)x, _mm256_set1_ps(hi));
#else
    return af_quad_min(x, af_quad_all(hi));
#endif
}

static inline af_vec af_vec_sqrt(af_vec x)
{
#if defined(__AVX2__)
    return (af_vec)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (af_vec)_mm_sqrt_ps((__m128)x);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return (af_vec)vsqrtq_f32((float32x4_t)x);
#else
    for (int k = 0; k < AF_LANES; k++)
        x[k] = sqrtf(x[k]);
    return x;
#endif
}

/* Nearest integer, ties to even, as af_nearest. */
static inline af_vec af_vec_nearest(af_vec x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

/* The largest |x| of n values, NaN ignored. Compilers keep the order of a float maximum, which
 * does not matter here. */
static inline float af_amax(const float *x, int64_t n)
{
    const af_iquad clear = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    af_quad most[4] = {{0}};
    const uint64_t count = (uint64_t)n, whole = count - count % 16;
    for (uint64_t i = 0; i < whole; i += 16) {
        for (int k = 0; k < 4; k++) {
            const af_iquad v = (af_iquad)af_quad_at(x + i + 4 * k);
            most[k] = af_quad_max((af_quad)(v & clear), most[k]);
        }
    }
    most[0] = af_quad_max(af_quad_max(most[0], most[1]), af_quad_max(most[2], most[3]));
    float max = 0;
    for (int k = 0; k < 4; k++)
        max = most[0][k] > max ? most[0][k] : max;
    for (uint64_t i = whole; i < count; i++) {
        const float a = x[i] < 0 ? -x[i] : x[i];
        max = a > max ? a : max;
    }
    return max;
}
#endif
