/* isa_512.h - what the builds for AVX-512 share. */
#ifndef AF_ISA_512_H
#define AF_ISA_512_H

enum { VL = 16, MR = 8, NV = 3 };
enum { LOWRANK_ROWS = 8, LOWRANK_VECS = 3, LOWRANK_NEAR = 6144 };
enum { TRANSPOSE_LINES = 16, PACK_PIECE = 64 };
#include "cpu/isa/isa_x86.h"

AF_INLINE vec af_f16_widen(const uint16_t *p)
{
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
AF_INLINE void af_widen16(af_i8v q, vec out[PER16])
{
    out[0] = (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)q));
}

/* Rows of sixteen 32-bit values become columns. */
AF_INLINE void af_x86_columns(__m512i r[16])
{
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* r[4i+j]: column j of each quarter, rows 4i .. 4i+3 */
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        t[8 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        r[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
        r[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
        r[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
        r[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd);
    }
}

#define AF_OWN_COLUMNS
/* `lines` rows of n values become columns of p [n][width]. */
AF_INLINE void af_columns(float *restrict p, int width, const float *const *s, int lines, int64_t n)
{
    const __mmask16 column = (__mmask16)((1 << lines) - 1);
    for (int64_t k = 0; k < n; k += 16) {
        const int m = n - k < 16 ? (int)(n - k) : 16;
        const __mmask16 there = (__mmask16)((1 << m) - 1);
        __m512i r[16];
#pragma GCC unroll 16
        for (int u = 0; u < 16; u++)
            r[u] = u < lines ? _mm512_maskz_loadu_epi32(there, s[u] + k) : _mm512_setzero_si512();
        af_x86_columns(r);
#pragma GCC unroll 16
        for (int c = 0; c < 16; c++)
            if (c < m)
                _mm512_mask_storeu_epi32(p + (k + c) * width, column, r[c]);
    }
}

#define AF_OWN_RECIPROCAL
/* A division takes longer than everything around it: an estimate and one step of Newton's rule. */
AF_INLINE vec af_reciprocal(vec x)
{
    const vec r = (vec)_mm512_rcp14_ps((__m512)x);
    return r + r * (1.0f - x * r);
}

#define AF_OWN_PIN
AF_INLINE vec af_pin(vec v)
{
    __asm__("" : "+v"(v));
    return v;
}
/* gcc takes forms of this instruction that overwrite x or y, and then copies registers. */
#define AF_OWN_FMA
AF_INLINE vec af_fma(vec acc, vec x, vec y)
{
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y));
    return acc;
}

#ifdef __AVX512BF16__
#define AF_OWN_BF16_ROUND
/* The last ones too: the instruction makes zero of denormals, so that all must go through it. */
AF_INLINE int64_t af_bf16_vecs(uint16_t *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 there = (__mmask16)(n - i < 16 ? (1 << (n - i)) - 1 : 0xffff);
        const __m256bh h = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, src + i));
        _mm256_mask_storeu_epi16(dst + i, there, (__m256i)h);
    }
    return n;
}
#endif

AF_INLINE bool af_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

AF_INLINE bool af_has_avx512_vnni(void) { return __builtin_cpu_supports("avx512vnni"); }
#endif
