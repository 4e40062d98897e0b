/* fast_amx.c - the bf16 tile of x86 machines with AMX, and its panels: [k/32][32 rows][32] of A,
 * [k/32][2][16 pairs of k][16 columns][2] of B, so that a tile is 1 KiB in a row. Rows of A that
 * lie as the instruction reads them anyway are not packed.
 *
 * Measured (docs/measurements/cpu.md): rows of A stay in the first-level cache and B passes by with
 * the read-once hint, all four loads come before the products, and the sums of one tile are rounded
 * while the next one is multiplied. Without the hint, or with B prefetched, it takes half as long
 * again. */
#include "cpu/isa.h"

#if defined(AF_ISA_amx)
#include "cpu/gemm/amx.h"

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

void AF_ISA_NAME(af_tile_begin)(void) { AF_AMX_CONFIG(tiles); }
void AF_ISA_NAME(af_tile_end)(void)
{
    AF_AMX_RELEASE();
    _mm_sfence(); /* what went past the caches is there for whoever comes after */
}

void AF_ISA_NAME(af_amx_flush)(af_amx_later *l)
{
    const af_amx_fate fate = af_amx_fate_of(l);
    while (l->rows > 0)
        af_amx_bring(l, fate);
}

/* Eight lines of four rows of k's, side by side. */
static inline __attribute__((always_inline)) __m512i four_rows(const uint16_t *r, int64_t apart)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)r));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(r + apart)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(r + 2 * apart)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(r + 3 * apart)), 3);
}

/* Eight rows of eight 16-bit values, in each quarter, become columns. */
static inline __attribute__((always_inline)) void turn_eight(uint16_t *to, __m512i r[8])
{
    __m512i t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_epi16(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi16(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* r[i+j]: columns 2j and 2j+1 of rows i .. i+3 */
        r[i] = _mm512_unpacklo_epi32(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi32(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi32(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi32(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        _mm512_storeu_si512(to + 2 * j * BGA, _mm512_unpacklo_epi64(r[j], r[4 + j]));
        _mm512_storeu_si512(to + (2 * j + 1) * BGA, _mm512_unpackhi_epi64(r[j], r[4 + j]));
    }
}

/* 32 k's, half a line of the cache at a time, because rows may fall on few sets of it. The lines
 * after these are asked for: rows are far apart, the hardware does not know what comes next. Half
 * as many shuffles as af_amx_columns takes. */
static __attribute__((noinline)) void turn_block(af_amx_turn *t)
{
    const int64_t ld = t->ld;
    for (int half = 0; half < 2; half++) {
        const uint16_t *from = t->from + 16 * half, *next = t->from + 16 * half * ld + BM;
        uint16_t *to = t->to + 16 * half * BGA;
        __m512i a[8], b[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            a[i] = four_rows(from + i * ld, 8 * ld);
            b[i] = four_rows(from + i * ld + 8, 8 * ld);
        }
        turn_eight(to, a);
        turn_eight(to + 8 * BGA, b);
        for (int i = 0; i < 16; i++)
            __builtin_prefetch(next + i * ld, 0, 2);
    }
    t->left--;
    t->from += BK * ld;
    t->to += BM * BK;
}

void AF_ISA_NAME(af_amx_turned)(af_amx_turn *t)
{
    while (t->left > 0)
        turn_block(t);
}

/* The products of one span; two rows of what is left for later go with each, and 32 k's of the next
 * rows of A, which may lie where those are that were just multiplied. The fate is known beforehand
 * so that all of `later` stays in registers: stores between the tile loads, be it only to the
 * stack, cost more than they look (docs/measurements/cpu.md). */
static inline __attribute__((always_inline)) void sum_beside(const af_amx_span *s, af_amx_beside *w,
                                                             const af_amx_fate fate)
{
    const uint8_t *a = s->a, *b = s->b, *end = b + s->depth * BN * 2;
    const int64_t line = 64, row = s->row, step = s->step;
    af_amx_later l = w->later;
    for (; b < end; a += step, b += BK * BN * 2) {
        AF_AMX_PASS(6, b, line);
        AF_AMX_LOAD(4, a, row);
        AF_AMX_PASS(7, b + 1024, line);
        AF_AMX_LOAD(5, a + 16 * row, row);
        if (l.rows > 0)
            af_amx_bring(&l, fate);
        af_amx_products();
        if (w->turn.left > 0)
            turn_block(&w->turn);
    }
    w->later = l;
}

static void sum_span(const af_amx_span *s, af_amx_beside *w)
{
    switch (af_amx_fate_of(&w->later)) {
    case AF_FATE_ADDED:
        sum_beside(s, w, AF_FATE_ADDED);
        break;
    case AF_FATE_AWAY:
        sum_beside(s, w, AF_FATE_AWAY);
        break;
    case AF_FATE_ROUNDED:
        sum_beside(s, w, AF_FATE_ROUNDED);
        break;
    case AF_FATE_PAST:
        sum_beside(s, w, AF_FATE_PAST);
        break;
    }
}

void AF_ISA_NAME(af_amx_tile)(const af_amx_span *s, int spans, float *c, int64_t ldc,
                              af_tile_way way, af_amx_beside *w)
{
    float sums[BM * BN] __attribute__((aligned(64))), *to = way == AF_TILE_ADD ? sums : c;
    const int64_t lds = way == AF_TILE_ADD ? BN : ldc;
    w->group = 0;
    if (way == AF_TILE_CONTINUE)
        af_amx_load(c, ldc);
    else
        af_amx_zero();
    for (; spans > 0; spans--, s++)
        if (s->planes > 0)
            AF_ISA_NAME(af_planes_span)(s, w);
        else
            sum_span(s, w);
    AF_ISA_NAME(af_amx_flush)(&w->later); /* before c becomes what is left */
    w->fetch_rows = 0;
    af_amx_store(to, lds);
    for (int64_t i = 0; way == AF_TILE_ADD && i < BM; i++)
        for (int64_t j = 0; j < BN; j++)
            c[i * ldc + j] += sums[i * BN + j];
}

void AF_ISA_NAME(af_amx_lines)(uint16_t *p, const uint16_t *const h[16], int64_t kc, int64_t padded)
{
    for (int64_t k = 0; k < padded; k += 32, p += BK * BN) {
        const int64_t left = AF_MAX(AF_MIN(kc - k, INT64_C(32)), INT64_C(0));
        const __mmask32 mask = left == 32 ? ~(__mmask32)0 : ((__mmask32)1 << left) - 1;
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            r[i] = _mm512_maskz_loadu_epi16(mask, h[i] + k);
        af_amx_transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            _mm512_storeu_si512(p + i * 32, r[i]);
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

/* Two rows of k's of a panel of B; whole lines of the cache are read, which counts when they come
 * from far away. */
static inline void pair_rows(uint16_t *p, __m512i even, __m512i odd)
{
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), /* unpacking takes quarters */
        e = _mm512_permutexvar_epi64(order, even), o = _mm512_permutexvar_epi64(order, odd);
    _mm512_storeu_si512(p, _mm512_unpacklo_epi16(e, o));
    _mm512_storeu_si512(p + 16 * 32, _mm512_unpackhi_epi16(e, o));
}

enum { PAIRS = 4 };

/* Some of the pairs of rows of a panel, for all panels; where they lie is kept in registers. */
static inline __attribute__((always_inline)) void some_pairs(uint16_t *p, const uint16_t *const *h,
                                                             int64_t lines, int64_t step)
{
    const uint16_t *r[2 * PAIRS];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * PAIRS; i++)
        r[i] = h[i];
    int64_t l = 0;
    for (; l + BN <= lines; l += BN, p += step)
#pragma GCC unroll 4
        for (int i = 0; i < PAIRS; i++)
            pair_rows(p + i * 32, _mm512_loadu_si512(r[2 * i] + l),
                      _mm512_loadu_si512(r[2 * i + 1] + l));
    const __mmask32 rest = af_amx_first(lines - l);
    if (l < lines)
#pragma GCC unroll 4
        for (int i = 0; i < PAIRS; i++)
            pair_rows(p + i * 32, _mm512_maskz_loadu_epi16(rest, r[2 * i] + l),
                      _mm512_maskz_loadu_epi16(rest, r[2 * i + 1] + l));
}

/* Eight rows at a time: the hardware fetches the lines that follow in so many, not in 32. */
void AF_ISA_NAME(af_amx_pairs)(uint16_t *p, const uint16_t *const h[32], int64_t lines,
                               int64_t step)
{
    for (int i = 0; i < 16; i += PAIRS)
        some_pairs(p + i * 32, h + 2 * i, lines, step);
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
        af_amx_transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            _mm512_storeu_si512(d + i * BGA, r[i]);
    }
}

#else
typedef int af_no_amx; /* a file must declare something */
#endif
