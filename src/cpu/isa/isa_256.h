/* isa_256.h - what AVX2 and AVX2 with VNNI share. */
#ifndef AF_ISA_256_H
#define AF_ISA_256_H

#include <immintrin.h>

enum { VL = 8, MR = 4, NV = 3 };
enum { LOWRANK_ROWS = 4, LOWRANK_VECS = 3, LOWRANK_NEAR = 6144 };
enum { TRANSPOSE_LINES = 4, PACK_PIECE = 64 };
#include "cpu/isa/isa_vec.h"

#define AF_ISA_ROUNDS true

#define AF_OWN_F16
AF_INLINE float af_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}
AF_INLINE vec af_f16_widen(const uint16_t *p)
{
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static const bool af_has_f16 = true;

#define AF_OWN_BYTES
AF_INLINE af_i8v af_lookup16(af_i8v table, af_u8v code)
{
    return (af_i8v)_mm_shuffle_epi8((__m128i)table, (__m128i)code);
}
AF_INLINE void af_widen16(af_i8v q, vec out[PER16])
{
    out[0] = (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32((__m128i)q));
    out[1] = (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128((__m128i)q, 8)));
}

AF_INLINE bool af_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif
