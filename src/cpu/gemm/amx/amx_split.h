/* amx_split.h - f32 values as three planes of bf16 (amx_planes.c), in vectors. */
#ifndef AF_AMX_SPLIT_H
#define AF_AMX_SPLIT_H

#include "cpu/gemm/amx/amx.h"

/* Sixteen values: the upper halves of these words are their planes. */
typedef struct af_planes {
    __m512i upper, middle, low;
} af_planes;

/* What the upper half leaves. */
AF_INLINE __m512i af_planes_rest(__m512i x, __m512i upper)
{
    const __m512i up = _mm512_and_si512(upper, _mm512_set1_epi32((int)0xffff0000u));
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(up)));
}

AF_INLINE af_planes af_planes_of(__m512i x)
{
    const __m512i r = af_planes_rest(x, x), middle = _mm512_add_epi32(r, _mm512_set1_epi32(0x8000));
    return (af_planes){x, middle, af_planes_rest(r, middle)};
}

/* The upper halves of two vectors, as pairs. */
AF_INLINE __m512i af_planes_uppers(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(a, 16), b);
}

/* One row of pairs, in three planes. */
AF_INLINE void af_planes_put(uint16_t *p, const af_planes *a, const af_planes *b)
{
    _mm512_storeu_si512(p, af_planes_uppers(a->upper, b->upper));
    _mm512_storeu_si512(p + BM * BK, af_planes_uppers(a->middle, b->middle));
    _mm512_storeu_si512(p + 2 * BM * BK, af_planes_uppers(a->low, b->low));
}

AF_INLINE void af_planes_row(uint16_t *p, __m512i a, __m512i b)
{
    const af_planes x = af_planes_of(a), y = af_planes_of(b);
    af_planes_put(p, &x, &y);
}
#endif
