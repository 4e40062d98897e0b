/* amx_tile.c - the bf16 tile of x86 machines with AMX, and the packing of its panels.
 *
 * Measured (docs/measurements/cpu.md): rows of A stay in the first-level cache and B passes by with
 * the read-once hint, all four loads come before the multiplications, and the sums of one tile are
 * rounded while the next one is computed. Without the hint, or with B prefetched, it takes half as
 * long again. */
#include "cpu/gemm/amx/amx.h"

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

_Atomic int af_amx_sums;
void af_amx_sums_at_once(int n) { atomic_store(&af_amx_sums, n); }

void af_amx_begin(void) { AF_AMX_CONFIG(tiles); }
void af_amx_end(void)
{
    AF_AMX_RELEASE();
    _mm_sfence(); /* non-temporal stores are visible to the readers that follow */
}

void af_amx_flush(af_amx_epilogue *l)
{
    const af_amx_epilogue_kind kind = af_amx_epilogue_kind_of(l);
    while (l->rows > 0)
        af_amx_store_rows(l, kind);
}

/* Eight lines of four rows of k's, side by side. */
AF_INLINE __m512i load_four_rows(const uint16_t *r, int64_t apart)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)r));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(r + apart)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(r + 2 * apart)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(r + 3 * apart)), 3);
}

/* Eight rows of eight 16-bit values, in each quarter, become columns. */
AF_INLINE void transpose_eight(uint16_t *to, __m512i r[8])
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
        _mm512_storeu_si512(to + 2 * j * BK, _mm512_unpacklo_epi64(r[j], r[4 + j]));
        _mm512_storeu_si512(to + (2 * j + 1) * BK, _mm512_unpackhi_epi64(r[j], r[4 + j]));
    }
}

/* 32 k's, half a line of the cache at a time, because rows may map to few sets of it. The lines
 * after these are asked for: rows are far apart, the hardware does not know what comes next. Half
 * as many shuffles as af_amx_columns takes. */
static __attribute__((noinline)) void transpose_block(af_amx_rows_bf16 *t)
{
    const int64_t ld = t->ld;
    for (int half = 0; half < 2; half++) {
        const uint16_t *from = t->from + 16 * half, *next = t->from + 16 * half * ld + BM;
        uint16_t *to = t->to + 16 * half * BK;
        __m512i a[8], b[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            a[i] = load_four_rows(from + i * ld, 8 * ld);
            b[i] = load_four_rows(from + i * ld + 8, 8 * ld);
        }
        transpose_eight(to, a);
        transpose_eight(to + 8 * BK, b);
        for (int i = 0; i < 16; i++)
            __builtin_prefetch(next + i * ld, 0, 2);
    }
    t->left--;
    t->from += BK * ld;
    t->to += BM * BK;
}

void af_amx_transpose_rest(af_amx_rows_bf16 *t)
{
    while (t->left > 0)
        transpose_block(t);
}

/* The sums of one span, all four or those of one half of the rows; two rows of the epilogue go with
 * each 32 k's, and, when they are read for the last time, 32 k's of the next rows of A, which may
 * lie where those are that were just multiplied. The kind is known beforehand so that all of it
 * stays in registers: stores between the tile loads, even if only to the stack, cost more than
 * they look (docs/measurements/cpu.md). */
AF_INLINE void sum_interleaved(const af_amx_span *s, af_amx_work *w, const bool two, int half,
                               const af_amx_epilogue_kind kind)
{
    const int64_t line = 64, row = s->row, step = s->step;
    const uint8_t *a = (const uint8_t *)s->a + half * 16 * row, *b = s->b,
                  *end = b + s->depth * BN * 2;
    const bool last = !two || half;
    af_amx_epilogue l = w->epilogue;
    for (; b < end; a += step, b += BK * BN * 2) {
        if (two) {
            AF_AMX_LOAD(3, b, line);
            AF_AMX_LOAD(2, a, row);
            AF_AMX_LOAD(4, b + 1024, line);
        } else {
            AF_AMX_STREAM(6, b, line);
            AF_AMX_LOAD(4, a, row);
            AF_AMX_STREAM(7, b + 1024, line);
            AF_AMX_LOAD(5, a + 16 * row, row);
        }
        if (l.rows > 0)
            af_amx_store_rows(&l, kind);
        if (two)
            af_amx_multiply_two();
        else
            af_amx_multiply();
        if (last && w->rows_bf16.left > 0)
            transpose_block(&w->rows_bf16);
    }
    w->epilogue = l;
}

AF_INLINE void sum_by_kind(const af_amx_span *s, af_amx_work *w, const bool two, int half)
{
    switch (af_amx_epilogue_kind_of(&w->epilogue)) {
    case AF_EPILOGUE_ADD:
        sum_interleaved(s, w, two, half, AF_EPILOGUE_ADD);
        break;
    case AF_EPILOGUE_STREAM_F32:
        sum_interleaved(s, w, two, half, AF_EPILOGUE_STREAM_F32);
        break;
    case AF_EPILOGUE_ROUND:
        sum_interleaved(s, w, two, half, AF_EPILOGUE_ROUND);
        break;
    case AF_EPILOGUE_STREAM_BF16:
        sum_interleaved(s, w, two, half, AF_EPILOGUE_STREAM_BF16);
        break;
    }
}

static void sum_span(const af_amx_span *s, af_amx_work *w) { sum_by_kind(s, w, false, 0); }

static void sum_span_of_two(const af_amx_span *s, int half, af_amx_work *w)
{
    sum_by_kind(s, w, true, half);
}

static void sums_of_four(const af_amx_span *s, int spans, float *to, int64_t ld, bool on,
                         af_amx_work *w)
{
    if (on)
        af_amx_load(to, ld);
    else
        af_amx_zero();
    for (; spans > 0; spans--, s++)
        if (s->planes > 0)
            af_planes_span(s, w);
        else
            sum_span(s, w);
    af_amx_flush(&w->epilogue); /* before its rows become these sums */
    af_amx_store(to, ld);
}

static void sums_of_two(const af_amx_span *s, int spans, float *to, int64_t ld, bool on,
                        af_amx_work *w)
{
    const uintptr_t from = (uintptr_t)w->epilogue.from, at = (uintptr_t)to;
    if (from >= at && from < at + BM * BN * sizeof(float))
        af_amx_flush(&w->epilogue); /* its rows become these sums before the second half */
    af_amx_begin_two();
    for (int half = 0; half < 2; half++, to += 16 * ld) {
        if (on)
            af_amx_load_two(to, ld);
        else
            af_amx_zero_two();
        for (int i = 0; i < spans; i++)
            if (s[i].planes > 0)
                af_planes_span_of_two(&s[i], half, w);
            else
                sum_span_of_two(&s[i], half, w);
        af_amx_store_two(to, ld);
    }
    af_amx_flush(&w->epilogue);
}

void af_amx_tile(const af_amx_span *s, int spans, float *c, int64_t ldc, af_tile_mode mode,
                 af_amx_work *w)
{
    float sums[BM * BN] __attribute__((aligned(64))), *to = mode == AF_TILE_ADD ? sums : c;
    const int64_t lds = mode == AF_TILE_ADD ? BN : ldc;
    int64_t work = 1;
    uint64_t start;
    for (int i = 0; i < spans; i++)
        work += s[i].depth * AF_MAX(s[i].planes, 1);
    w->group = 0;
    if (af_amx_turn(&w->turns, &start))
        sums_of_two(s, spans, to, lds, mode == AF_TILE_CONTINUE, w);
    else
        sums_of_four(s, spans, to, lds, mode == AF_TILE_CONTINUE, w);
    w->fetch_rows = 0;
    af_amx_turn_end(&w->turns, start, work);
    for (int64_t i = 0; mode == AF_TILE_ADD && i < BM; i++)
        for (int64_t j = 0; j < BN; j++)
            c[i * ldc + j] += sums[i * BN + j];
}

void af_amx_lines(uint16_t *p, const uint16_t *const h[16], int64_t kc, int64_t padded)
{
    for (int64_t k = 0; k < padded; k += 32, p += BK * BN) {
        const int64_t left = AF_MAX(AF_MIN(kc - k, INT64_C(32)), INT64_C(0));
        const __mmask32 mask = left == 32 ? ~(__mmask32)0 : ((__mmask32)1 << left) - 1;
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            r[i] = _mm512_maskz_loadu_epi16(mask, h[i] + k);
        af_x86_columns(r);
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
AF_INLINE void some_pairs(uint16_t *p, const uint16_t *const *h, int64_t lines, int64_t step)
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

/* Eight rows at a time: the hardware prefetches the lines that follow in eight rows, not in 32. */
void af_amx_pairs(uint16_t *p, const uint16_t *const h[32], int64_t lines, int64_t step)
{
    for (int i = 0; i < 16; i += PAIRS)
        some_pairs(p + i * 32, h + 2 * i, lines, step);
}

void af_amx_columns(uint16_t *p, const uint16_t *const h[32], int64_t lines, int64_t step)
{
    const int64_t all = (lines + BM - 1) / BM * BM;
    for (int64_t l = 0; l < all; l += 16) {
        uint16_t *d = p + l / BM * step + l % BM * BK;
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            r[i] = pairs(h[2 * i], h[2 * i + 1], l, lines);
        af_x86_columns(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            _mm512_storeu_si512(d + i * BK, r[i]);
    }
}

/* Stored rows are the lines: sixteen lines of 32 k's are a tile of 16 x 32, of B as of A. */
static void pack_lines(const af_panels *p, const af_operand *o, int64_t line, int64_t lines,
                       int64_t k0, int64_t kc, float *buf)
{
    static const uint16_t zeros[AF_PACK_K];
    const int64_t padded = af_ceil_div(kc, BK) * BK, all = af_ceil_div(lines, BM) * BM;
    uint16_t *half = (uint16_t *)(buf + kc), *dst = (uint16_t *)p->to + p->at * BM;
    for (int64_t l = 0; l < all; l += 16) {
        const uint16_t *h[16];
        uint16_t *d = dst + l / BM * p->depth * BM + l % BM * BK;
        for (int u = 0; u < 16; u++)
            h[u] = l + u < lines ? AF_ISA_NAME(af_stored_row_bf16)(o, p->residual, line + l + u, k0,
                                                                   kc, buf, half + u * kc)
                                 : zeros;
        if (p->b)
            af_amx_lines(d, h, kc, padded);
        /* block by block: a whole line at once would write to two sets of the cache */
        for (int64_t k = 0; !p->b && k < padded; k += BK, d += BM * BK)
            for (int u = 0; u < 16; u++)
                af_amx_copy(d + u * BK, h[u] + k, kc - k, BK);
    }
}

void af_pack_amx(const af_panels *p, const af_operand *o, bool along, int64_t line, int64_t lines,
                 int64_t k0, int64_t kc, float *buf)
{
    static const uint16_t zeros[AF_PACK_LINES];
    uint16_t *half = (uint16_t *)(buf + lines), *dst = (uint16_t *)p->to + p->at * BM;
    if (along)
        pack_lines(p, o, line, lines, k0, kc, buf);
    for (int64_t k = 0; !along && k < kc; k += BK, dst += BK * BM) {
        const uint16_t *h[BK];
        for (int u = 0; u < BK; u++)
            h[u] = k + u < kc ? AF_ISA_NAME(af_stored_row_bf16)(o, p->residual, k0 + k + u, line,
                                                                lines, buf, half + u * lines)
                              : zeros;
        (p->b ? af_amx_pairs : af_amx_columns)(dst, h, lines, p->depth * BM);
    }
}
