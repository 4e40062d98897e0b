/* amx_lowrank.c - the GEMMs of adapters with the tiles of AMX: one side has a few columns, the
 * other passes by once, at the speed of memory.
 *
 * An f32 factor counts to 2^-16: it is taken as two bf16 numbers, whose tiles lie side by side. */
#include "cpu/gemm/amx/amx.h"

enum { TILE = 512, ROWS = 32 }; /* values of a tile; rows of x at a time */

/* Two vectors of f32 as bf16, and what the rounding lost. */
static inline void split(__m512 low, __m512 high, __m512i *hi, __m512i *lo)
{
    *hi = af_amx_round(low, high);
    const __m512 a = _mm512_castsi512_ps(
                     _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(*hi)), 16)),
                 b = _mm512_castsi512_ps(_mm512_slli_epi32(
                     _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(*hi, 1)), 16));
    *lo = af_amx_round(_mm512_sub_ps(low, a), _mm512_sub_ps(high, b));
}

/* Columns [c, c+16) and k's [k, k+32) of a w whose stored rows are the columns. */
static void pack_lines(uint16_t *to, const float *w, int64_t ld)
{
    __m512i hi[16], lo[16];
    for (int i = 0; i < 16; i++, w += ld)
        split(_mm512_loadu_ps(w), _mm512_loadu_ps(w + 16), &hi[i], &lo[i]);
    af_x86_columns(hi);
    af_x86_columns(lo);
    for (int i = 0; i < 16; i++) {
        _mm512_storeu_si512(to + i * 32, hi[i]);
        _mm512_storeu_si512(to + TILE + i * 32, lo[i]);
    }
}

/* Where value i of two rows of sixteen is when they are interleaved. */
static const uint16_t pair_order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

/* The same of a w whose stored rows are the k's. */
static void pack_pairs(uint16_t *to, const float *w, int64_t ld)
{
    const __m512i order = _mm512_loadu_si512(pair_order);
    for (int i = 0; i < 16; i++, w += 2 * ld) {
        __m512i hi, lo;
        split(_mm512_loadu_ps(w), _mm512_loadu_ps(w + ld), &hi, &lo);
        _mm512_storeu_si512(to + i * 32, _mm512_permutexvar_epi16(order, hi));
        _mm512_storeu_si512(to + TILE + i * 32, _mm512_permutexvar_epi16(order, lo));
    }
}

/* [n/16][cols/32][2][TILE] */
static void pack(af_lowrank *s, void *buffer, const float *w, int64_t ld, bool trans)
{
    uint16_t *to = buffer;
    s->factor = buffer;
    for (int64_t c = 0; c < s->rank; c += 16)
        for (int64_t k = 0; k < s->cols; k += 32, to += 2 * TILE)
            if (trans)
                pack_lines(to, w + c * ld + k, ld);
            else
                pack_pairs(to, w + k * ld + c, ld);
}

static uint64_t pack_bytes(int64_t n, int64_t cols) { return (uint64_t)(4 * n * cols); }

/* c [32][32] = x [32][K] times the two tiles of each k; the rows after these are fetched. */
static void pass_rows(float *c, const uint16_t *x, int64_t ld, int64_t K, const uint16_t *b,
                      const uint16_t *next)
{
    const int64_t line = 64, row = ld * 2;
    af_amx_zero();
    for (int64_t k = 0; k < K; k += 32, b += 2 * TILE) {
        AF_AMX_LOAD(6, b, line);
        AF_AMX_LOAD(4, x + k, row);
        AF_AMX_LOAD(7, b + TILE, line);
        AF_AMX_LOAD(5, x + k + 16 * ld, row);
        for (int i = 0; next && i < ROWS; i++)
            __builtin_prefetch(next + k + i * ld, 0, 2);
        af_amx_multiply();
    }
    af_amx_store(c, 32);
}

static uint64_t rows_bytes(int64_t cols) { return (uint64_t)(ROWS * cols) * sizeof(uint16_t); }

static void run_rows(const af_lowrank *s, int64_t from, int64_t to, void *buffer)
{
    uint16_t *edge = buffer;
    float c[ROWS * 32] __attribute__((aligned(64)));
    const __m512 alpha = _mm512_set1_ps(s->alpha);
    af_amx_begin();
    for (int64_t i = from * ROWS; i < AF_MIN(to * ROWS, s->rows); i += ROWS) {
        const int64_t rows = AF_MIN((int64_t)ROWS, s->rows - i);
        const uint16_t *x = (const uint16_t *)s->x + i * s->ldx,
                       *next = i + 2 * ROWS <= s->rows ? x + ROWS * s->ldx : NULL;
        int64_t ld = s->ldx;
        if (rows < ROWS) { /* a tile reads all its rows */
            memset(edge, 0, (size_t)(ROWS * s->cols) * sizeof *edge);
            for (int64_t r = 0; r < rows; r++)
                memcpy(edge + r * s->cols, x + r * ld, (size_t)s->cols * sizeof *edge);
            x = edge;
            ld = s->cols;
        }
        for (int64_t n = 0; n < s->rank; n += 16) {
            pass_rows(c, x, ld, s->cols, (const uint16_t *)s->factor + n * s->cols * 2,
                      n == 0 ? next : NULL);
            for (int64_t r = 0; r < rows; r++) {
                const __m512 sum =
                    _mm512_add_ps(_mm512_load_ps(c + r * 32), _mm512_load_ps(c + r * 32 + 16));
                const __m512i h = af_amx_round(_mm512_mul_ps(sum, alpha), sum);
                memcpy((uint16_t *)s->y + (i + r) * s->ldy + n, &h, 32);
            }
        }
    }
    af_amx_end();
}

/* [n/32][rows/32][2][TILE]: rows of g as columns. */
static void transpose(af_lowrank *s, void *buffer, const void *g, int64_t ld)
{
    static const uint16_t zeros[32];
    uint16_t *to = buffer;
    s->factor = buffer;
    for (int64_t c = 0; c < s->rank; c += 32)
        for (int64_t i = 0; i < s->rows; i += 32, to += 2 * TILE) {
            const uint16_t *h[32];
            for (int64_t j = 0; j < 32; j++)
                h[j] = i + j < s->rows ? (const uint16_t *)g + (i + j) * ld + c : zeros;
            af_amx_columns(to, h, AF_MIN(s->rank - c, INT64_C(32)), 2 * TILE);
        }
}

static uint64_t transpose_bytes(int64_t n, int64_t rows)
{
    return AF_ALIGN_UP((uint64_t)n, UINT64_C(32)) * AF_ALIGN_UP((uint64_t)rows, UINT64_C(32)) *
           sizeof(uint16_t);
}

/* 32 rows of x from row i, 32 columns from c, as two tiles of pairs; the next ones are fetched. */
static inline void interleave(uint16_t *to, const af_lowrank *s, int64_t i, int64_t c)
{
    static const uint16_t even[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = _mm512_loadu_si512(even),
                  high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const uint16_t *x = (const uint16_t *)s->x + i * s->ldx + c;
    const int64_t rows = AF_MIN(s->rows - i, INT64_C(32));
    for (int64_t r = 0; r < 32; r += 2, to += 32, x += 2 * s->ldx) {
        const __m512i a = r < rows ? _mm512_loadu_si512(x) : _mm512_set1_epi32(0),
                      b = r + 1 < rows ? _mm512_loadu_si512(x + s->ldx) : _mm512_set1_epi32(0);
        if (r < rows)
            __builtin_prefetch(x + 32, 0, 2);
        if (r + 1 < rows)
            __builtin_prefetch(x + s->ldx + 32, 0, 2);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
        _mm512_storeu_si512(to + TILE, _mm512_permutex2var_epi16(a, high, b));
    }
}

/* c [32][32]: 32 rows of the turned g with columns from `col` of x, over all rows. */
static void sum_rows(float *c, const af_lowrank *s, const uint16_t *g, int64_t col)
{
    uint16_t b[2][2 * TILE] __attribute__((aligned(64)));
    const int64_t line = 64, groups = (s->rows + 31) / 32;
    af_amx_zero();
    interleave(b[0], s, 0, col);
    for (int64_t i = 0; i < groups; i++, g += 2 * TILE) {
        if (i + 1 < groups) /* one ahead, so that no tile waits for what was just stored */
            interleave(b[(i + 1) & 1], s, (i + 1) * 32, col);
        const uint16_t *t = b[i & 1];
        AF_AMX_LOAD(6, t, line);
        AF_AMX_LOAD(4, g, line);
        AF_AMX_LOAD(7, t + TILE, line);
        AF_AMX_LOAD(5, g + TILE, line);
        af_amx_multiply();
    }
    af_amx_store(c, 32);
}

static void put(float *to, __m512 v, bool add)
{
    _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), v) : v);
}

/* Rows [n, n+16) of the sums, at column col of x. */
static void put_sums(const af_lowrank *s, const float *c, int64_t n, int64_t col)
{
    for (int64_t half = 0; half < 32; half += 16) {
        __m512i r[16];
        for (int i = 0; i < 16; i++)
            r[i] = _mm512_loadu_si512(c + i * 32 + half);
        if (s->trans)
            af_x86_columns(r);
        for (int i = 0; i < 16; i++)
            put(s->trans ? s->c + (col + half + i) * s->ldc + n
                         : s->c + (n + i) * s->ldc + col + half,
                _mm512_castsi512_ps(r[i]), s->add);
    }
}

static void run_sums(const af_lowrank *s, int64_t from, int64_t to)
{
    float c[32 * 32] __attribute__((aligned(64)));
    const int64_t deep = (s->rows + 31) / 32 * 2 * TILE;
    af_amx_begin();
    for (int64_t p = from; p < to; p++)
        for (int64_t n = 0; n < s->rank; n += 32) {
            sum_rows(c, s, (const uint16_t *)s->factor + n / 32 * deep, p * 32);
            for (int64_t half = 0; half < AF_MIN(s->rank - n, INT64_C(32)); half += 16)
                put_sums(s, c + half * 32, n + half, p * 32);
        }
    af_amx_end();
}

const af_lowrank_kernels AF_ISA_NAME(af_lowrank) = {.rows = ROWS,
                                                    .cols = 32,
                                                    .unit = 16,
                                                    .rank_max = INT64_MAX,
                                                    .even = 32,
                                                    .pack_bytes = pack_bytes,
                                                    .pack = pack,
                                                    .rows_bytes = rows_bytes,
                                                    .run_rows = run_rows,
                                                    .transpose_bytes = transpose_bytes,
                                                    .transpose = transpose,
                                                    .run_sums = run_sums};
