/* fast_amx.c - the bf16 tile of x86 machines with AMX, and its panels: [k/32][32 rows][32] of A,
 * [k/2][32 columns][2] of B, made of 16 x 16 pairs at a time.
 *
 * The tile instructions are written out: gcc 12's _tile_loadconfig tells the compiler of 8 of the
 * 64 bytes it reads, and the stores of the others were dropped. */
#include "ops/fast/isa.h"

#if defined(AF_ISA_amx)
#include <immintrin.h>

typedef struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} config;
_Static_assert(sizeof(config) == 64, "the tile configuration is 64 bytes");

/* Eight tiles of 16 rows of 64 bytes: 0-3 the sums, 4 and 5 rows of A, 6 and 7 columns of B. */
static const config tiles __attribute__((aligned(64))) = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

void AF_ISA_NAME(af_tile_begin)(void)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(tiles) : "memory");
}
void AF_ISA_NAME(af_tile_end)(void) { __asm__ volatile("tilerelease" : : : "memory"); }

#define LOAD(tile, at, stride)                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(at), "r"(stride) : "memory")
/* The same with a hint that it is read once: what streams past leaves the panel of B where it is.
 */
#define PASS(tile, at, stride)                                                                     \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #tile : : "r"(at), "r"(stride) : "memory")
#define STORE(tile, at, stride)                                                                    \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(at), "r"(stride) : "memory")
#define PRODUCT(sum, a, b)                                                                         \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")
#define ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : : : "memory")

/* c [32][32] (+)= a b, kc a multiple of 32 */
void AF_ISA_NAME(af_tile_amx)(int64_t kc, const void *pa, const void *pb, float *c, int64_t ldc,
                              af_tile_way way, const af_tile_half *half)
{
    float sums[BM * BN] __attribute__((aligned(64))), *to = way == AF_TILE_ADD ? sums : c;
    const uint16_t *a = pa, *b = pb;
    const int64_t line = 64, row = BN * 4, lds = way == AF_TILE_ADD ? BN : ldc, ld = lds * 4;
    if (way == AF_TILE_CONTINUE) {
        LOAD(0, c, ld);
        LOAD(1, c + 16, ld);
        LOAD(2, c + 16 * ldc, ld);
        LOAD(3, c + 16 * ldc + 16, ld);
    } else {
        ZERO(0);
        ZERO(1);
        ZERO(2);
        ZERO(3);
    }
    for (int64_t k = 0; k < kc; k += BK, a += BK * BM, b += BK * BN) {
        PASS(4, a, line);
        LOAD(6, b, row);
        PRODUCT(0, 4, 6);
        LOAD(7, b + 32, row);
        PRODUCT(1, 4, 7);
        PASS(5, a + 16 * BK, line);
        PRODUCT(2, 5, 6);
        PRODUCT(3, 5, 7);
    }
    STORE(0, to, ld);
    STORE(1, to + 16, ld);
    STORE(2, to + 16 * lds, ld);
    STORE(3, to + 16 * lds + 16, ld);
    for (int64_t i = 0; half && i < BM; i++) {
        const __m512 lo = _mm512_loadu_ps(c + i * ldc), hi = _mm512_loadu_ps(c + i * ldc + 16);
        const __m512bh h = _mm512_cvtne2ps_pbh(hi, lo);
        memcpy(half->to + i * half->ld, &h, sizeof h);
    }
    for (int64_t i = 0; way == AF_TILE_ADD && i < BM; i++)
        for (int64_t j = 0; j < BN; j++)
            c[i * ldc + j] += sums[i * BN + j];
}

/* Rows of sixteen 32-bit values become columns. */
static inline void transpose16(__m512i r[16])
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

void AF_ISA_NAME(af_amx_lines)(uint16_t *p, const uint16_t *const h[16], int64_t kc, int64_t padded)
{
    for (int64_t k = 0; k < padded; k += 32, p += 16 * BN * 2) {
        const int64_t left = AF_MAX(AF_MIN(kc - k, INT64_C(32)), INT64_C(0));
        const __mmask32 mask = left == 32 ? ~(__mmask32)0 : ((__mmask32)1 << left) - 1;
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            r[i] = _mm512_maskz_loadu_epi16(mask, h[i] + k);
        transpose16(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            _mm512_storeu_si512(p + i * BN * 2, r[i]);
    }
}

/* Sixteen lines, from l, of two rows of k's as pairs. */
static inline __m512i pairs(const uint16_t *even, const uint16_t *odd, int64_t l, int64_t lines)
{
    const int64_t left = AF_MAX(AF_MIN(lines - l, INT64_C(16)), INT64_C(0));
    const __mmask16 mask = (__mmask16)(((uint32_t)1 << left) - 1);
    const __m512i lo = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + l)),
                  hi = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, odd + l));
    return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
}

void AF_ISA_NAME(af_amx_pairs)(uint16_t *p, const uint16_t *const h[2], int64_t lines, int64_t step)
{
    for (int64_t l = 0; l < lines; l += BN, p += step) {
        _mm512_storeu_si512(p, pairs(h[0], h[1], l, lines));
        _mm512_storeu_si512(p + 32, pairs(h[0], h[1], l + 16, lines));
    }
}

void AF_ISA_NAME(af_amx_columns)(uint16_t *p, const uint16_t *const h[32], int64_t lines,
                                 int64_t step)
{
    const int64_t all = (lines + BM - 1) / BM * BM;
    for (int64_t l = 0; l < all; l += 16) {
        uint16_t *d = p + l / BM * step + l % BM * BGA;
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            r[i] = pairs(h[2 * i], h[2 * i + 1], l, lines);
        transpose16(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            _mm512_storeu_si512(d + i * BGA, r[i]);
    }
}

#else
typedef int af_no_amx; /* a file must declare something */
#endif
