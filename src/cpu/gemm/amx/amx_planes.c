/* amx_planes.c - GEMMs of f32 rows on the bf16 unit of machines with AMX, with more than the
 * accuracy of f32 (decision 0018).
 *
 * An f32 number is exactly the sum of three bf16 ones: its upper half, what that leaves rounded to
 * bf16, and the last bits. So f32 rows times a bf16 matrix are three bf16 multiplications, which
 * the unit sums in f32, and it is fourteen times as fast as the vector unit. Any other B has three
 * planes too: of the nine pairs of planes the six that matter are multiplied (the others are under
 * 2^-22 of the result and of either sign, where an f32 sum rounds K times).
 *
 * The vector unit has time while the other one multiplies: after every four tile instructions it
 * adds a few rows of the previous tile to C, splits a row of A for the next tile, or prefetches. On
 * an idle core that is a sixth faster than one after the other.
 *
 * Infinities become NaN (what they leave is not a number). A plane under 2^-126 counts as zero, so
 * values under 2^-110 lose their last bits.
 *
 * Panels are those of amx.h, plane after plane within 32 k's, but a pair is k and k + 16: then
 * two vectors of f32 become pairs without a shuffle. */
#include "cpu/gemm/amx/amx_split.h"

enum { PLANES = AF_GEMM_PLANES_A, PLANE = BM * BK * 2, HALF = PLANE / 2 }; /* bytes */

/* ---- packing ---- */

/* Sixteen rows of one block and the sixteen whose values are paired with theirs. */
typedef struct pair_block {
    const void *const *a, *const *b;
    int64_t at_a, at_b; /* values from the start of the rows */
    __mmask16 mask_a, mask_b;
} pair_block;

AF_INLINE __m512i words(const uint16_t *row, int64_t at, __mmask16 mask)
{
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row + at));
}

AF_INLINE __m512i floats(const float *row, int64_t at, __mmask16 mask)
{
    return _mm512_maskz_loadu_epi32(mask, row + at);
}

/* Sixteen rows of pairs: of the rows as they are, or of their columns. */
AF_INLINE void put(uint16_t *p, const pair_block *o, const bool trans)
{
    __m512i a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; trans && i < 16; i++)
        a[i] = floats(o->a[i], o->at_a, o->mask_a);
    if (trans)
        af_x86_columns(a);
#pragma GCC unroll 16
    for (int i = 0; trans && i < 16; i++)
        b[i] = floats(o->b[i], o->at_b, o->mask_b);
    if (trans)
        af_x86_columns(b);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++, p += 32)
        af_planes_row(p, trans ? a[i] : floats(o->a[i], o->at_a, o->mask_a),
                      trans ? b[i] : floats(o->b[i], o->at_b, o->mask_b));
}

/* The same of bf16, in its one plane. */
AF_INLINE void put_half(uint16_t *p, const pair_block *o, const bool trans)
{
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_or_si512(words(o->a[i], o->at_a, o->mask_a),
                               _mm512_slli_epi32(words(o->b[i], o->at_b, o->mask_b), 16));
    if (trans)
        af_x86_columns(r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(p + i * 32, r[i]);
}

/* A copy per case: gcc would make one with branches of them. */
static void put_any(uint16_t *p, const pair_block *o, bool trans, int planes)
{
    if (planes == 1 && trans)
        put_half(p, o, true);
    else if (planes == 1)
        put_half(p, o, false);
    else if (trans)
        put(p, o, true);
    else
        put(p, o, false);
}

static inline __mmask16 first(int64_t n)
{
    return (__mmask16)(((uint32_t)1 << AF_MAX(AF_MIN(n, INT64_C(16)), INT64_C(0))) - 1);
}

/* Stored row r from column `from`: bf16 and f32 as they lie, others as f32 in `buf`. */
static const void *row_of(const af_operand *o, bool half, int64_t r, int64_t from, int64_t n,
                          float *buf)
{
    if (half)
        return (const uint16_t *)o->data + r * o->ld + from;
    return AF_ISA_NAME(af_stored_row)(o, r, from, n, buf);
}

/* Of rows that are far apart, what comes next. */
static inline void fetch_rows(const void *const h[32], int64_t at, bool half)
{
    for (int u = 0; u < 32; u++) {
        const uint8_t *p = (const uint8_t *)h[u] + at * (half ? 2 : 4);
        __builtin_prefetch(p);
        if (!half)
            __builtin_prefetch(p + AF_LINE);
    }
}

/* What a panel is packed from. */
typedef struct plane_source {
    const af_operand *o;
    int64_t line, lines, k0, kc;
    bool half, trans, plain; /* plain: not decoded */
    int planes;
} plane_source;

/* A panel whose lines are stored rows. */
static void pack_lines(uint16_t *d, const plane_source *s, int64_t l, float *buf)
{
    static const float zeros[AF_PACK_K];
    const void *h[32];
    const bool on = s->plain && l + 64 <= s->lines; /* another panel follows, as wide */
    for (int u = 0; u < 32; u++)
        h[u] = l + u < s->lines
                   ? row_of(s->o, s->half, s->line + l + u, s->k0, s->kc, buf + u * s->kc)
                   : zeros;
    for (int64_t k = 0; k < s->kc; k += BK, d += s->planes * BK * 32) {
        const __mmask16 a = first(s->kc - k), b = first(s->kc - k - 16);
        if (k + 3 * BK <= s->kc)
            fetch_rows(h, k + 2 * BK, s->half);
        else if (on)
            fetch_rows(h, 32 * s->o->ld + AF_MAX(k + 2 * BK - s->kc, INT64_C(0)), s->half);
        put_any(d, &(pair_block){h, h, k, k + 16, a, b}, s->trans, s->planes);
        put_any(d + 16 * BK, &(pair_block){h + 16, h + 16, k, k + 16, a, b}, s->trans, s->planes);
    }
}

/* 32 k's of a panel whose k's are stored rows, which begin with this panel's lines. */
static void pack_ks(uint16_t *d, const plane_source *s, int64_t l, const void *const h[32],
                    int64_t at)
{
    const __mmask16 a = first(s->lines - l), b = first(s->lines - l - 16);
    put_any(d, &(pair_block){h, h + 16, at, at, a, a}, s->trans, s->planes);
    put_any(d + 16 * BK, &(pair_block){h, h + 16, at + 16, at + 16, b, b}, s->trans, s->planes);
}

/* 32 stored rows from k on, where they begin with the panel of line l. */
static void down_rows(const void *h[32], const plane_source *s, int64_t k, int64_t l)
{
    static const float zeros[32];
    for (int u = 0; u < 32; u++)
        h[u] = k + u < s->kc ? row_of(s->o, s->half, s->k0 + k + u, s->line + l, 32, NULL) : zeros;
}

/* All of a panel whose k's are stored rows that need not be decoded. */
static void pack_down(uint16_t *d, const plane_source *s, int64_t l)
{
    const void *h[32], *next[32];
    down_rows(next, s, 0, l);
    for (int64_t k = 0; k < s->kc; k += BK, d += s->planes * BK * 32) {
        memcpy(h, next, sizeof h);
        if (k + BK < s->kc)
            down_rows(next, s, k + BK, l);
        else if (l + 32 < s->lines)
            down_rows(next, s, 0, l + 32);
        fetch_rows(next, 0, s->half);
        pack_ks(d, s, l, h, 0);
    }
}

/* The same of rows that are decoded, each for all panels. */
static void pack_decoded(uint16_t *d, const plane_source *s, int64_t panel, float *buf)
{
    static const float zeros[AF_PACK_LINES];
    const void *h[32];
    for (int64_t k = 0; k < s->kc; k += BK, d += s->planes * BK * 32) {
        for (int u = 0; u < BK; u++)
            h[u] = k + u < s->kc
                       ? row_of(s->o, false, s->k0 + k + u, s->line, s->lines, buf + u * s->lines)
                       : zeros;
        for (int64_t l = 0; l < s->lines; l += 32)
            pack_ks(d + l / 32 * panel, s, l, h, l);
    }
}

void af_pack_planes(const af_panels *p, const af_operand *o, bool along, int64_t line,
                    int64_t lines, int64_t k0, int64_t kc, float *buf)
{
    const bool half = p->planes == 1, plain = half || af_operand_is(o, AF_DTYPE_F32);
    const plane_source s = {
        o, line, lines, k0, kc, half, along == p->b, plain, p->planes,
    };
    uint16_t *d = (uint16_t *)p->to + p->at * p->width;
    const int64_t panel = p->depth * p->width;
    for (int64_t l = 0; along && l < lines; l += 32)
        pack_lines(d + l / 32 * panel, &s, l, buf);
    for (int64_t l = 0; !along && plain && l < lines; l += 32)
        pack_down(d + l / 32 * panel, &s, l);
    if (!along && !plain)
        pack_decoded(d, &s, panel, buf);
}

void af_planes_lines(uint16_t *p, const void *const h[32], int64_t kc, bool trans)
{
    for (int64_t k = 0; k < kc; k += BK, p += PLANES * BK * 32) {
        const __mmask16 a = first(kc - k), b = first(kc - k - 16);
        put_any(p, &(pair_block){h, h, k, k + 16, a, b}, trans, PLANES);
        put_any(p + 16 * BK, &(pair_block){h + 16, h + 16, k, k + 16, a, b}, trans, PLANES);
    }
}

void af_planes_pairs(uint16_t *p, const void *const h[32], int64_t lines, bool trans)
{
    for (int64_t l = 0; l < lines; l += 32, p += PLANES * BK * 32)
        pack_ks(p, &(plane_source){.lines = lines, .trans = trans, .planes = PLANES}, l, h, l);
}

/* ---- interleaved with the tile instructions ---- */

/* Sixteen k's of sixteen lines, as rows of the block. */
static void turn_part(const af_amx_rows_f32 *r, int part)
{
    const int64_t k = r->k + part % 2 * 16, line = part / 2 * 16;
    const __mmask16 mask = first(r->lines - line);
    const float *from = r->from + k * r->ld + line;
    __m512i x[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        x[i] = k + i < r->kc ? floats(from + i * r->ld, 0, mask) : _mm512_setzero_si512();
    af_x86_columns(x);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(r->block + (line + i) * BK + part % 2 * 16, x[i]);
}

/* 32 k's of one row, or a part of what comes before. */
static void split_row(af_amx_rows_f32 *r)
{
    uint16_t *d = r->to + (r->k * PLANES + r->row) * BM;
    if (r->row < 0) {
        turn_part(r, r->row + AF_TRANSPOSE_PARTS);
    } else if (r->trans) {
        const float *x = r->block + r->row * BK, *next = r->from + (r->k + BK + r->row) * r->ld;
        if (r->k + BK + r->row < r->kc) {
            __builtin_prefetch(next);
            if (r->lines > 16)
                __builtin_prefetch(next + 16);
        }
        af_planes_row(d, floats(x, 0, 0xffff), floats(x, 16, 0xffff));
    } else {
        const int64_t left = r->row < r->lines ? r->kc - r->k : 0;
        const float *x = r->from + (left ? r->row * r->ld + r->k : 0);
        if (left > BK)
            __builtin_prefetch(x + BK);
        if (left > BK + 16)
            __builtin_prefetch(x + BK + 16);
        af_planes_row(d, floats(x, 0, first(left)), floats(x, 16, first(left - 16)));
    }
    if (++r->row == BM) {
        r->row = r->trans ? -AF_TRANSPOSE_PARTS : 0;
        r->k += BK;
    }
}

static void split_some(af_amx_work *w, int64_t rows)
{
    while (w->segments > 0 && rows-- > 0) {
        split_row(w->rows_f32);
        if (w->rows_f32->k >= w->rows_f32->kc) {
            w->rows_f32++;
            w->segments--;
        }
    }
}

void af_planes_finish(af_amx_work *w) { split_some(w, INT64_MAX); }

/* A little of the interleaved work after each group of four: all of it should be done
 * when `pace` is 1 and the tile has 36. Sums that have just been stored rest for a while. */
static __attribute__((noinline)) void do_some(af_amx_work *w, int pace)
{
    const int group = w->group++;
    for (int i = 0; i < pace && w->fetch_rows > 0; i++, w->fetch_rows--, w->fetch += w->fetch_ld) {
        __builtin_prefetch(w->fetch, 1, 2);
        __builtin_prefetch(w->fetch + BN / 2, 1, 2);
    }
    af_prefetch_some(w->next_b, w->lines);
    if (group % 2 == 0)
        split_some(w, w->each);
    else if (group > 4 / pace)
        for (int i = 0; i < pace && w->epilogue.rows > 0; i++)
            af_amx_store_rows(&w->epilogue, af_amx_epilogue_kind_of(&w->epilogue));
}

/* ---- tile instructions ---- */

#define LOAD_A(plane)                                                                              \
    AF_AMX_LOAD(4, a + (plane)*PLANE, line);                                                       \
    AF_AMX_LOAD(5, a + (plane)*PLANE + HALF, line)
#define STREAM_B(plane)                                                                            \
    AF_AMX_STREAM(6, b + (plane)*PLANE, line);                                                     \
    AF_AMX_STREAM(7, b + (plane)*PLANE + HALF, line)

AF_INLINE void multiply(af_amx_work *w, const int pace)
{
    af_amx_multiply();
    do_some(w, pace);
}

/* Of the six, any two neighbours share an operand, and B is loaded once. */
static void three_planes(const af_amx_span *s, af_amx_work *w)
{
    const uint8_t *a = s->a, *b = s->b, *end = b + s->depth * BN * 2 * 3;
    const int64_t line = AF_LINE;
    for (; b < end; a += 3 * PLANE, b += 3 * PLANE) {
        STREAM_B(2);
        LOAD_A(0);
        multiply(w, 1);
        STREAM_B(1);
        multiply(w, 1);
        LOAD_A(1);
        multiply(w, 1);
        STREAM_B(0);
        multiply(w, 1);
        LOAD_A(2);
        multiply(w, 1);
        LOAD_A(0);
        multiply(w, 1);
    }
}

/* In the order of the others: a bf16 B has the same sums as its values in f32. */
static void one_plane(const af_amx_span *s, af_amx_work *w)
{
    const uint8_t *a = s->a, *b = s->b, *end = b + s->depth * BN * 2;
    const int64_t line = AF_LINE;
    for (; b < end; a += 3 * PLANE, b += PLANE) {
        STREAM_B(0);
        LOAD_A(1);
        multiply(w, 2);
        LOAD_A(2);
        multiply(w, 2);
        LOAD_A(0);
        multiply(w, 2);
    }
}

void af_planes_span(const af_amx_span *s, af_amx_work *w)
{
    if (s->planes == PLANES)
        three_planes(s, w);
    else
        one_plane(s, w);
}

/* ---- the same products in the same order, for the sums of one half of the rows ---- */

#define LOAD_A_TWO(plane) AF_AMX_LOAD(2, a + (plane)*PLANE, line)
#define LOAD_B_TWO(plane)                                                                          \
    AF_AMX_LOAD(3, b + (plane)*PLANE, line);                                                       \
    AF_AMX_LOAD(4, b + (plane)*PLANE + HALF, line)

static void three_planes_of_two(const af_amx_span *s, int half, af_amx_work *w)
{
    const uint8_t *a = (const uint8_t *)s->a + half * HALF, *b = s->b,
                  *end = b + s->depth * BN * 2 * 3;
    const int64_t line = AF_LINE;
    for (; b < end; a += 3 * PLANE, b += 3 * PLANE) {
        LOAD_B_TWO(2);
        LOAD_A_TWO(0);
        do_some(w, 1);
        af_amx_multiply_two();
        LOAD_B_TWO(1);
        af_amx_multiply_two();
        LOAD_A_TWO(1);
        do_some(w, 1);
        af_amx_multiply_two();
        LOAD_B_TWO(0);
        af_amx_multiply_two();
        LOAD_A_TWO(2);
        do_some(w, 1);
        af_amx_multiply_two();
        LOAD_A_TWO(0);
        af_amx_multiply_two();
    }
}

static void one_plane_of_two(const af_amx_span *s, int half, af_amx_work *w)
{
    const uint8_t *a = (const uint8_t *)s->a + half * HALF, *b = s->b, *end = b + s->depth * BN * 2;
    const int64_t line = AF_LINE;
    for (; b < end; a += 3 * PLANE, b += PLANE) {
        LOAD_B_TWO(0);
        LOAD_A_TWO(1);
        do_some(w, 2);
        af_amx_multiply_two();
        LOAD_A_TWO(2);
        af_amx_multiply_two();
        LOAD_A_TWO(0);
        do_some(w, 2);
        af_amx_multiply_two();
    }
}

void af_planes_span_of_two(const af_amx_span *s, int half, af_amx_work *w)
{
    if (s->planes == PLANES)
        three_planes_of_two(s, half, w);
    else
        one_plane_of_two(s, half, w);
}
