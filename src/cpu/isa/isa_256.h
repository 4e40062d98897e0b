/* isa_256.h - what AVX2 and AVX2 with VNNI share. */
#ifndef AF_ISA_256_H
#define AF_ISA_256_H

enum { VL = 8, MR = 4, NV = 3 };
enum { LOWRANK_ROWS = 4, LOWRANK_VECS = 3, LOWRANK_NEAR = 6144 };
enum { TRANSPOSE_LINES = 4, PACK_PIECE = 64 };
#include "cpu/isa/isa_x86.h"

AF_INLINE vec af_f16_widen(const uint16_t *p)
{
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
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
