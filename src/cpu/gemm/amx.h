/* amx.h - the tile instructions of AMX and what its files share.
 *
 * They are written out: gcc 12's _tile_loadconfig tells the compiler of 8 of the 64 bytes it reads,
 * and the stores of the others were dropped. */
#ifndef AF_AMX_H
#define AF_AMX_H

#include "cpu/isa.h"

#include <immintrin.h>

#define AF_AMX_CONFIG(at) __asm__ volatile("ldtilecfg %0" : : "m"(at) : "memory")
#define AF_AMX_RELEASE()  __asm__ volatile("tilerelease" : : : "memory")
#define AF_AMX_LOAD(tile, at, stride)                                                              \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                                            \
                     :                                                                             \
                     : "r"(at), "r"((int64_t)(stride))                                             \
                     : "memory")
/* The same with a hint that it is read once: what passes by leaves the rows of A where they are. */
#define AF_AMX_PASS(tile, at, stride)                                                              \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #tile                                          \
                     :                                                                             \
                     : "r"(at), "r"((int64_t)(stride))                                             \
                     : "memory")
#define AF_AMX_STORE(tile, at, stride)                                                             \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                                        \
                     :                                                                             \
                     : "r"(at), "r"((int64_t)(stride))                                             \
                     : "memory")
#define AF_AMX_PRODUCT(sum, a, b)                                                                  \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")
#define AF_AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : : : "memory")

/* Four tiles of sums [32][32], of two tiles of rows of A (4, 5) and two of columns of B (6, 7). */
static inline __attribute__((always_inline)) void af_amx_zero(void)
{
    AF_AMX_ZERO(0);
    AF_AMX_ZERO(1);
    AF_AMX_ZERO(2);
    AF_AMX_ZERO(3);
}
static inline __attribute__((always_inline)) void af_amx_load(const float *c, int64_t ldc)
{
    AF_AMX_LOAD(0, c, ldc * 4);
    AF_AMX_LOAD(1, c + 16, ldc * 4);
    AF_AMX_LOAD(2, c + 16 * ldc, ldc * 4);
    AF_AMX_LOAD(3, c + 16 * ldc + 16, ldc * 4);
}
static inline __attribute__((always_inline)) void af_amx_store(float *c, int64_t ldc)
{
    AF_AMX_STORE(0, c, ldc * 4);
    AF_AMX_STORE(1, c + 16, ldc * 4);
    AF_AMX_STORE(2, c + 16 * ldc, ldc * 4);
    AF_AMX_STORE(3, c + 16 * ldc + 16, ldc * 4);
}
static inline __attribute__((always_inline)) void af_amx_products(void)
{
    AF_AMX_PRODUCT(0, 4, 6);
    AF_AMX_PRODUCT(1, 4, 7);
    AF_AMX_PRODUCT(2, 5, 6);
    AF_AMX_PRODUCT(3, 5, 7);
}

static inline void af_amx_round_row(const float *s, uint16_t *to, bool past)
{
    const __m512bh h = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(s + 16), _mm512_loadu_ps(s));
    __m512i r;
    memcpy(&r, &h, sizeof r);
    if (past)
        _mm512_stream_si512((__m512i *)to, r);
    else
        _mm512_storeu_si512(to, r);
}

static inline void af_amx_stream_row(const float *s, float *to)
{
    _mm512_stream_ps(to, _mm512_loadu_ps(s));
    _mm512_stream_ps(to + 16, _mm512_loadu_ps(s + 16));
}

static inline void af_amx_add_row(const float *s, float *to)
{
    _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_loadu_ps(s)));
    _mm512_storeu_ps(to + 16, _mm512_add_ps(_mm512_loadu_ps(to + 16), _mm512_loadu_ps(s + 16)));
}

/* What becomes of what was left for later. */
typedef enum af_amx_fate { AF_FATE_ADDED, AF_FATE_AWAY, AF_FATE_ROUNDED, AF_FATE_PAST } af_amx_fate;
static inline af_amx_fate af_amx_fate_of(const af_amx_later *l)
{
    return l->onto   ? AF_FATE_ADDED
           : l->away ? AF_FATE_AWAY
           : l->past ? AF_FATE_PAST
                     : AF_FATE_ROUNDED;
}

/* Two rows of what was left for later. */
static inline __attribute__((always_inline)) void af_amx_bring(af_amx_later *l, af_amx_fate fate)
{
    if (fate == AF_FATE_ADDED) {
        af_amx_add_row(l->from, l->onto);
        af_amx_add_row(l->from + BN, l->onto + l->ld);
        l->onto += 2 * l->ld;
    } else if (fate == AF_FATE_AWAY) {
        af_amx_stream_row(l->from, l->away);
        af_amx_stream_row(l->from + BN, l->away + l->ld);
        l->away += 2 * l->ld;
    } else {
        af_amx_round_row(l->from, l->to, fate == AF_FATE_PAST);
        af_amx_round_row(l->from + BN, l->to + l->ld, fate == AF_FATE_PAST);
        l->to += 2 * l->ld;
    }
    l->from += 2 * BN;
    l->rows -= 2;
}

/* Rows of sixteen 32-bit values become columns. */
static inline __attribute__((always_inline)) void af_amx_transpose(__m512i r[16])
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

/* c [32][32] = or += A [32][32 steps] B [32 steps][32]: rows of A `row` bytes apart and `step_a`
 * from 32 k's to the next, tiles of B side by side and `step_b` from 32 k's to the next. */
static inline __attribute__((always_inline)) void af_amx_block(float *c, int64_t ldc, const void *a,
                                                               int64_t row, int64_t step_a,
                                                               const void *b, int64_t step_b,
                                                               int64_t steps, bool add)
{
    const uint8_t *x = a, *y = b;
    const int64_t line = 64;
    if (add)
        af_amx_load(c, ldc);
    else
        af_amx_zero();
    for (int64_t i = 0; i < steps; i++, x += step_a, y += step_b) {
        AF_AMX_LOAD(6, y, line);
        AF_AMX_LOAD(4, x, row);
        AF_AMX_LOAD(7, y + 1024, line);
        AF_AMX_LOAD(5, x + 16 * row, row);
        af_amx_products();
    }
    af_amx_store(c, ldc);
}

/* 2^x to about 1 ulp for x up to 127, and 2^-125 below that: what leaves the normal numbers takes a
 * hundred cycles (coefficients: Cephes' exp2f). */
static inline __m512 af_amx_exp2(__m512 x)
{
    x = _mm512_max_ps(x, _mm512_set1_ps(-125.0f));
    const __m512 n = _mm512_roundscale_ps(x, 0), f = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(1.535336188319500e-4f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.339887440266574e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.618437357674640e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.550332471162809e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402264791363012e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931472028550421e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* Two vectors rounded to 32 bf16. */
static inline __m512i af_amx_round(__m512 low, __m512 high)
{
    const __m512bh h = _mm512_cvtne2ps_pbh(high, low);
    __m512i r;
    memcpy(&r, &h, sizeof r);
    return r;
}

/* The first so many of 32 values. */
static inline __mmask32 af_amx_first(int64_t left)
{
    return left >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << AF_MAX(left, INT64_C(0))) - 1;
}

/* n values of a row, and zeros up to `padded`, which is a multiple of 32. */
static inline void af_amx_copy(uint16_t *to, const uint16_t *x, int64_t n, int64_t padded)
{
    for (int64_t e = 0; e < padded; e += 32)
        _mm512_storeu_si512(to + e, _mm512_maskz_loadu_epi16(af_amx_first(n - e), x + e));
}

/* n values times `factor`, rounded; x has room for a multiple of 32. */
static inline void af_amx_put(uint16_t *to, const float *x, __m512 factor, int64_t n)
{
    for (int64_t e = 0; e < n; e += 32)
        _mm512_mask_storeu_epi16(to + e, af_amx_first(n - e),
                                 af_amx_round(_mm512_mul_ps(_mm512_loadu_ps(x + e), factor),
                                              _mm512_mul_ps(_mm512_loadu_ps(x + e + 16), factor)));
}
#endif
