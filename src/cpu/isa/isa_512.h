/* isa_512.h - what the builds for AVX-512 share. */
#ifndef AF_ISA_512_H
#define AF_ISA_512_H

enum { VL = 16, MR = 8, NV = 3 };
enum { LOWRANK_ROWS = 8, LOWRANK_VECS = 3, LOWRANK_NEAR = 6144 };
enum { TRANSPOSE_LINES = 8, PACK_PIECE = 64 };
#include "cpu/isa/isa_x86.h"

AF_INLINE vec af_f16_widen(const uint16_t *p)
{
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
AF_INLINE void af_widen16(af_i8v q, vec out[PER16])
{
    out[0] = (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)q));
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

AF_INLINE bool af_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

AF_INLINE bool af_has_avx512_vnni(void) { return __builtin_cpu_supports("avx512vnni"); }
#endif
