/* x86_bytes.h - vectors of VL times four bytes, one group of four for each of VL stored rows: how
 * they are made, and how they are multiplied.
 *
 * VNNI multiplies unsigned quads with signed ones: codes are taken 128 too large, and a sum begins
 * with what that is too much. AVX2 and AVX-512 without it add pairs of products in 16 bits, which
 * holds two of 128 * 127 but not of 255 * 127: sizes of codes are multiplied with activations that
 * have the sign of the code. */
#ifndef AF_X86_BYTES_H
#define AF_X86_BYTES_H

#include "cpu/gemm/gemm_blocks.h"

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define HAS_VNNI 1
#else
#define HAS_VNNI 0
#endif

#ifdef __AVX512F__
typedef __m512i quads;
typedef __m512 floats;
#define WIDE(name) _mm512_##name
AF_INLINE quads xor_bits(quads a, quads b) { return _mm512_xor_si512(a, b); }
/* 16 quads of rows r, r + 4, r + 8, r + 12 */
AF_INLINE quads four_lanes(const af_i8v *row)
{
    const __m256i low =
        _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)row[0]), (__m128i)row[4], 1);
    const __m256i high =
        _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)row[8]), (__m128i)row[12], 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
/* x with the sign of w, where w is not zero */
AF_INLINE quads with_sign(quads x, quads w)
{
    return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
}
AF_INLINE vec halves_up(const uint64_t h[VL / 4])
{
    return (vec)_mm512_cvtph_ps(
        _mm256_set_epi64x((int64_t)h[3], (int64_t)h[2], (int64_t)h[1], (int64_t)h[0]));
}
#else
typedef __m256i quads;
typedef __m256 floats;
#define WIDE(name) _mm256_##name
AF_INLINE quads xor_bits(quads a, quads b) { return _mm256_xor_si256(a, b); }
AF_INLINE quads four_lanes(const af_i8v *row)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)row[0]), (__m128i)row[4], 1);
}
AF_INLINE quads with_sign(quads x, quads w) { return _mm256_sign_epi8(x, w); }
AF_INLINE vec halves_up(const uint64_t h[VL / 4])
{
    return (vec)_mm256_cvtph_ps(_mm_set_epi64x((int64_t)h[1], (int64_t)h[0]));
}
#endif

/* a b + c, rounded once: of two products that are added compilers choose either. */
AF_INLINE vec mul_add(vec a, vec b, vec c)
{
    return (vec)WIDE(fmadd_ps)((floats)a, (floats)b, (floats)c);
}

/* Groups 0 to 3 of 16 bytes of VL rows: out[i] has bytes 4i .. 4i+3 of every row. */
AF_INLINE void interleave(quads out[4], const af_i8v row[VL])
{
    const quads a = four_lanes(row), b = four_lanes(row + 1), c = four_lanes(row + 2),
                d = four_lanes(row + 3);
    const quads p = WIDE(unpacklo_epi32)(a, b), q = WIDE(unpackhi_epi32)(a, b),
                r = WIDE(unpacklo_epi32)(c, d), s = WIDE(unpackhi_epi32)(c, d);
    out[0] = WIDE(unpacklo_epi64)(p, r);
    out[1] = WIDE(unpackhi_epi64)(p, r);
    out[2] = WIDE(unpacklo_epi64)(q, s);
    out[3] = WIDE(unpackhi_epi64)(q, s);
}

/* Codes as `dot` takes them. */
AF_INLINE quads dot_codes(quads w) { return HAS_VNNI ? xor_bits(w, WIDE(set1_epi8)(-128)) : w; }

/* s + the sum of four products, for every row; x: four activations. */
AF_INLINE quads dot(quads s, quads w, const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    const quads v = WIDE(set1_epi32)(four);
#if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(s, w, v);
#elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(s, w, v);
#else
    const quads pairs = WIDE(maddubs_epi16)(WIDE(abs_epi8)(w), with_sign(v, w));
    return WIDE(add_epi32)(s, WIDE(madd_epi16)(pairs, WIDE(set1_epi16)(1)));
#endif
}

/* Where sums begin: over the first sixteen quads of a plane, over the others, over all. */
enum { STARTS = HAS_VNNI ? 3 : 0 };

AF_INLINE void put_starts(int32_t *start, const int8_t *p, bool rounded)
{
    for (int d = 0; STARTS && d < (rounded ? 1 : AF_PLANES); d++, p += AF_BLOCK, start += STARTS) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)p);
        const __m256i s =
            _mm256_sad_epu8(_mm256_xor_si256(v, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
        const int32_t too_much = 128 * 16; /* in both sums */
        const int32_t first = (int32_t)(_mm256_extract_epi64(s, 0) + _mm256_extract_epi64(s, 1)),
                      second = (int32_t)(_mm256_extract_epi64(s, 2) + _mm256_extract_epi64(s, 3));
        start[0] = -128 * (first - too_much);
        start[1] = -128 * (second - too_much);
        start[2] = start[0] + start[1];
    }
}
#include "cpu/gemm/gemm_planes.h"

/* 32 integers, each within a signed byte, as bytes. */
AF_INLINE __m256i narrow(const __m256i v[4])
{
    const __m256i a = _mm256_packs_epi32(v[0], v[1]), b = _mm256_packs_epi32(v[2], v[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static float cut(int8_t *p, const float *x, bool rounded)
{
    const __m256 size = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 most8 = _mm256_setzero_ps(), all8 = most8;
    __m256i v[4], digit[4];
    for (int i = 0; i < 4; i++) {
        const __m256 a = _mm256_and_ps(_mm256_loadu_ps(x + 8 * i), size);
        most8 = _mm256_max_ps(most8, a);
        all8 = _mm256_add_ps(all8, a);
    }
    float most = 0, all = 0, by, scale;
    for (int i = 0; i < 8; i++) {
        most = AF_MAX(most, most8[i]);
        all += all8[i];
    }
    if (!has_planes(most, all, rounded, &by, &scale)) {
        memset(p, 0, (size_t)plane_bytes(rounded));
        return scale;
    }
    for (int i = 0; i < 4; i++) /* to the nearest, ties to even */
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(by)));
    for (int d = 0; d < (rounded ? 1 : AF_PLANES); d++) {
        for (int i = 0; i < 4; i++) { /* what the low byte is too small or too large by stays */
            digit[i] = _mm256_srai_epi32(_mm256_slli_epi32(v[i], 24), 24);
            v[i] = _mm256_srai_epi32(_mm256_sub_epi32(v[i], digit[i]), 8);
        }
        _mm256_storeu_si256((__m256i *)(p + AF_BLOCK * d), narrow(digit));
    }
    return scale;
}
#endif
