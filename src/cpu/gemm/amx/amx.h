/* amx.h - the tile instructions of AMX and what its files share.
 *
 * They are written out: gcc 12's _tile_loadconfig tells the compiler of 8 of the 64 bytes it reads,
 * and the stores of the others were dropped. */
#ifndef AF_AMX_H
#define AF_AMX_H

#include "cpu/gemm/gemm_job.h"

#include <immintrin.h>
#include <stdatomic.h>

/* A tile of sums is BM x BN. Panels are [k/32][32 rows][32] of A and
 * [k/32][2][16 pairs of k][16 columns][2] of B, so that a tile is 1 KiB in a row. */
enum { BM = 32, BN = 32, BK = 32 };

/* ---- one tile of sums, and what the vector unit does meanwhile ---- */

/* k's of one tile's sums: 32 rows of A, packed or as they lie, and a panel of B. */
typedef struct af_amx_span {
    const void *a, *b;
    int64_t row, step; /* of A: bytes from row to row, and from 32 k's to the next */
    int64_t depth;
    int planes; /* of B, with three of A (amx_planes.c), or 0 */
} af_amx_span;
/* Rows of a finished tile of sums [BM][BN] that have not reached C yet, an even number. One of
 * `to` (rounded), `stream` (f32, past the caches) and `add_to` is set; streamed rows, and `to` with
 * `nontemporal`, are whole lines of the cache. */
typedef struct af_amx_epilogue {
    const float *from;
    uint16_t *to;
    float *stream, *add_to;
    int64_t ld, rows;
    bool nontemporal;
} af_amx_epilogue;
/* 32 f32 rows of A, or columns where those are its rows, that become planes a little at a time. */
typedef struct af_amx_rows_f32 {
    const float *from;
    int64_t ld;
    bool trans; /* stored rows are k's */
    int64_t lines, kc;
    uint16_t *to;
    float *block; /* [32][32], for transposed ones */
    int64_t k; /* progress: these 32 k's, this row of them, or, before the first row, a part of */
    int row;   /* the block's transpose (from -AF_TRANSPOSE_PARTS on) */
} af_amx_rows_f32;
enum { AF_TRANSPOSE_PARTS = 4 };
/* 32 lines of A from stored rows of k's, of bf16, 32 k's at a time. */
typedef struct af_amx_rows_bf16 {
    const uint16_t *from;
    uint16_t *to;
    int64_t ld, left; /* values from row to row; how many times 32 k's */
} af_amx_rows_bf16;
/* The four sums of a block are made at once or, with the same bits, two and two. Four at once load
 * less, but on a core whose other hyperthread is at work few registers are there to rename besides
 * the eight, and an instruction waits for one (decision 0018). Which state the core is in changes
 * at any time, so two turns of 32 are timed, one of each form. */
typedef struct af_amx_turns {
    int turn;
    bool two;    /* two and two is faster now */
    double cost; /* of the timed turn of four */
} af_amx_turns;
/* Interleaved with the tile instructions, a little after each group of four. Lines of memory are
 * prefetched one by one: the first-level cache waits for sixteen at most, and the tile loads need
 * some of these. */
typedef struct af_amx_work {
    int group;          /* of the tile */
    const float *fetch; /* rows of C that will be needed */
    int64_t fetch_ld, fetch_rows;
    af_prefetch *next_b;
    int lines; /* of it at once */
    af_amx_epilogue epilogue;
    af_amx_rows_f32 *rows_f32; /* the next of A, one per segment */
    int segments, each;        /* each: rows of 32 k's at once */
    af_amx_rows_bf16 rows_bf16;
    af_amx_turns turns;
} af_amx_work;
/* c [BM][BN] = or += the sums of the spans. */
void af_amx_tile(const af_amx_span *s, int spans, float *c, int64_t ldc, af_tile_mode mode,
                 af_amx_work *w);
void af_amx_flush(af_amx_epilogue *l);
void af_amx_transpose_rest(af_amx_rows_bf16 *t);
/* Around the tiles of one thread. */
void af_amx_begin(void);
void af_amx_end(void);
/* amx_planes.c: one span of planes, added to the tiles; all that is left of the next rows. */
void af_planes_span(const af_amx_span *s, af_amx_work *w);
void af_planes_span_of_two(const af_amx_span *s, int half, af_amx_work *w);
void af_planes_finish(af_amx_work *w);

/* ---- packing ---- */
/* Sixteen stored lines into their half of a panel of B. */
void af_amx_lines(uint16_t *p, const uint16_t *const h[16], int64_t kc, int64_t padded);
/* 32 stored rows of k's into panels of B or of A, which are `step` apart. */
void af_amx_pairs(uint16_t *p, const uint16_t *const h[32], int64_t lines, int64_t step);
void af_amx_columns(uint16_t *p, const uint16_t *const h[32], int64_t lines, int64_t step);
af_gemm_pack af_pack_amx, af_pack_planes;
/* 32 rows of f32 as planes: rows that are lines of A or of B, and rows of k's of B or of A. Tiles
 * of A are the rows as they lie, with `trans` of B; of k's the other way round. */
void af_planes_lines(uint16_t *p, const void *const h[32], int64_t kc, bool trans);
void af_planes_pairs(uint16_t *p, const void *const h[32], int64_t lines, bool trans);

/* ---- instructions ---- */

#define AF_AMX_CONFIG(at) __asm__ volatile("ldtilecfg %0" : : "m"(at) : "memory")
#define AF_AMX_RELEASE()  __asm__ volatile("tilerelease" : : : "memory")
#define AF_AMX_LOAD(tile, at, stride)                                                              \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                                            \
                     :                                                                             \
                     : "r"(at), "r"((int64_t)(stride))                                             \
                     : "memory")
/* The same with a hint that it is read once: what passes by leaves the rows of A where they are. */
#define AF_AMX_STREAM(tile, at, stride)                                                            \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #tile                                          \
                     :                                                                             \
                     : "r"(at), "r"((int64_t)(stride))                                             \
                     : "memory")
#define AF_AMX_STORE(tile, at, stride)                                                             \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                                        \
                     :                                                                             \
                     : "r"(at), "r"((int64_t)(stride))                                             \
                     : "memory")
#define AF_AMX_MULTIPLY(sum, a, b)                                                                 \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")
/* A register of zeros takes none of those that are renamed. */
#define AF_AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : : : "memory")

enum { AF_TURN_OF_FOUR = 1, AF_TURN_OF_TWO = 2, AF_TURNS = 32 }; /* timed, of so many */
extern _Atomic int af_amx_sums; /* 4 or 2 at once, or 0: what is faster now */
/* Whether this turn makes its sums two and two; *start goes to af_amx_turn_end. */
static inline bool af_amx_turn(const af_amx_turns *t, uint64_t *start)
{
    const int fixed = atomic_load_explicit(&af_amx_sums, memory_order_relaxed);
    const bool timed = !fixed && (t->turn == AF_TURN_OF_FOUR || t->turn == AF_TURN_OF_TWO);
    *start = timed ? __rdtsc() : 0;
    return fixed ? fixed == 2 : timed ? t->turn == AF_TURN_OF_TWO : t->two;
}
/* work: in proportion to what the turn had to do. */
static inline void af_amx_turn_end(af_amx_turns *t, uint64_t start, int64_t work)
{
    const double cost = start ? (double)(__rdtsc() - start) / (double)work : 0;
    if (start && t->turn == AF_TURN_OF_FOUR)
        t->cost = cost;
    else if (start)
        t->two = cost < t->cost;
    t->turn = (t->turn + 1) % AF_TURNS;
}

/* Four tiles of sums [32][32], of two tiles of rows of A (4, 5) and two of columns of B (6, 7). */
AF_INLINE void af_amx_zero(void)
{
    AF_AMX_ZERO(0);
    AF_AMX_ZERO(1);
    AF_AMX_ZERO(2);
    AF_AMX_ZERO(3);
}
AF_INLINE void af_amx_load(const float *c, int64_t ldc)
{
    AF_AMX_LOAD(0, c, ldc * 4);
    AF_AMX_LOAD(1, c + 16, ldc * 4);
    AF_AMX_LOAD(2, c + 16 * ldc, ldc * 4);
    AF_AMX_LOAD(3, c + 16 * ldc + 16, ldc * 4);
}
AF_INLINE void af_amx_store(float *c, int64_t ldc)
{
    AF_AMX_STORE(0, c, ldc * 4);
    AF_AMX_STORE(1, c + 16, ldc * 4);
    AF_AMX_STORE(2, c + 16 * ldc, ldc * 4);
    AF_AMX_STORE(3, c + 16 * ldc + 16, ldc * 4);
}
AF_INLINE void af_amx_multiply(void)
{
    AF_AMX_MULTIPLY(0, 4, 6);
    AF_AMX_MULTIPLY(1, 4, 7);
    AF_AMX_MULTIPLY(2, 5, 6);
    AF_AMX_MULTIPLY(3, 5, 7);
}

/* Two of them, of a tile of rows of A (2) and two of columns of B (3, 4); no other register is in
 * use from af_amx_begin_two on. */
AF_INLINE void af_amx_begin_two(void)
{
    AF_AMX_ZERO(5);
    AF_AMX_ZERO(6);
    AF_AMX_ZERO(7);
}
AF_INLINE void af_amx_zero_two(void)
{
    AF_AMX_ZERO(0);
    AF_AMX_ZERO(1);
}
AF_INLINE void af_amx_load_two(const float *c, int64_t ldc)
{
    AF_AMX_LOAD(0, c, ldc * 4);
    AF_AMX_LOAD(1, c + 16, ldc * 4);
}
AF_INLINE void af_amx_store_two(float *c, int64_t ldc)
{
    AF_AMX_STORE(0, c, ldc * 4);
    AF_AMX_STORE(1, c + 16, ldc * 4);
}
AF_INLINE void af_amx_multiply_two(void)
{
    AF_AMX_MULTIPLY(0, 2, 3);
    AF_AMX_MULTIPLY(1, 2, 4);
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

/* What happens to the rows of an epilogue. */
typedef enum af_amx_epilogue_kind {
    AF_EPILOGUE_ADD,
    AF_EPILOGUE_STREAM_F32,
    AF_EPILOGUE_ROUND,
    AF_EPILOGUE_STREAM_BF16
} af_amx_epilogue_kind;
static inline af_amx_epilogue_kind af_amx_epilogue_kind_of(const af_amx_epilogue *l)
{
    return l->add_to        ? AF_EPILOGUE_ADD
           : l->stream      ? AF_EPILOGUE_STREAM_F32
           : l->nontemporal ? AF_EPILOGUE_STREAM_BF16
                            : AF_EPILOGUE_ROUND;
}

/* Two rows of an epilogue. */
AF_INLINE void af_amx_store_rows(af_amx_epilogue *l, af_amx_epilogue_kind kind)
{
    if (kind == AF_EPILOGUE_ADD) {
        af_amx_add_row(l->from, l->add_to);
        af_amx_add_row(l->from + BN, l->add_to + l->ld);
        l->add_to += 2 * l->ld;
    } else if (kind == AF_EPILOGUE_STREAM_F32) {
        af_amx_stream_row(l->from, l->stream);
        af_amx_stream_row(l->from + BN, l->stream + l->ld);
        l->stream += 2 * l->ld;
    } else {
        af_amx_round_row(l->from, l->to, kind == AF_EPILOGUE_STREAM_BF16);
        af_amx_round_row(l->from + BN, l->to + l->ld, kind == AF_EPILOGUE_STREAM_BF16);
        l->to += 2 * l->ld;
    }
    l->from += 2 * BN;
    l->rows -= 2;
}

/* 2^x to about 1 ulp for x up to 127, and 2^-125 below that: what leaves the normal numbers takes a
 * hundred cycles (coefficients: Cephes' exp2f). */
static inline __m512 af_amx_exp2(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-125.0f), x); /* not a number stays so */
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

/* The first `left` of 32 values. */
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
#endif
