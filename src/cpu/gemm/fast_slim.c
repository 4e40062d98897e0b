/* fast_slim.c - the products of adapters in f32: one side has a few columns, the other is read
 * where it lies, once, and is never packed.
 *
 * Every result is a sum of pieces of at most DEEP or K_MOST products, cut in the same places
 * whichever thread makes it. bf16 rows are widened a piece at a time. */
#include "cpu/isa.h"
#include "tensor/half.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* Rows and vectors of columns whose sums run_rows keeps in registers, and rows of its blocks: each
 * piece of the factor is read once for them. */
#if defined(AF_ISA_avx512) || defined(AF_ISA_amx)
enum { SM = 8, SV = 3, ROWS = 16 };
#elif defined(AF_ISA_avx2)
enum { SM = 4, SV = 3, ROWS = 16 };
#elif defined(AF_ISA_sse2)
enum { SM = 4, SV = 2, ROWS = 16 };
#else
enum { SM = 5, SV = 4, ROWS = 20 };
#endif

enum {
    COLUMNS = 48, /* of one of run_sums' blocks: whole tiles of every instruction set */
    /* floats of a piece of the factor: a part of the first-level cache */
    NEAR = VL == 4 ? 8192 : 6144,
    K_MOST = 256, /* k's of such a piece */
    DEEP = 64,    /* rows of a piece of run_sums */
    LINE = 16,    /* floats of a line of the cache */
};

static int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static void widen(float *to, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = af_bf16_up(x[i]);
}

/* Row r of x from column c. */
static const float *row_f32(const af_slim *s, int64_t r, int64_t c)
{
    return (const float *)s->x + r * s->ldx + c;
}
static const uint16_t *row_bf16(const af_slim *s, int64_t r, int64_t c)
{
    return (const uint16_t *)s->x + r * s->ldx + c;
}

/* ---- y = alpha x B ---- */

/* c [m][nv VL] += x [m][kc] b [kc][nv VL] */
static inline __attribute__((always_inline)) void rows_tile(int m, int nv, int64_t kc,
                                                            const float *x, int64_t ldx,
                                                            const float *b, int64_t ldb, float *c,
                                                            int64_t ldc)
{
    vec s[SM][SV];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            s[i][j] = (vec){0};
    int64_t k = 0;
#if defined(__ARM_NEON)
    for (; k + 4 <= kc; k += 4) {
        vec f[SM];
#pragma GCC unroll 8
        for (int i = 0; i < m; i++)
            f[i] = *(const vec *)(x + i * ldx + k);
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++, b += ldb)
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++) {
                const vec w = *(const vec *)(b + j * VL);
#pragma GCC unroll 8
                for (int i = 0; i < m; i++)
                    s[i][j] = vfmaq_laneq_f32(s[i][j], w, f[i], l);
            }
    }
#endif
    for (; k < kc; k++, b += ldb) {
        vec w[SV];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            w[j] = *(const vec *)(b + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            vec f = x[i * ldx + k] - (vec){0};
#if defined(__AVX512F__)
            if (nv > 1)
                __asm__("" : "+v"(f)); /* in a register: else it is loaded again for each of nv */
#endif
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                s[i][j] += w[j] * f;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            *(vec *)(c + i * ldc + j * VL) += s[i][j];
}

static inline __attribute__((always_inline)) void
rows_wide(int m, int64_t kc, const float *x, int64_t ldx, const float *b, int64_t ldb, float *c)
{
    for (int64_t n = 0; n < ldb; n += SV * VL) {
        const int64_t left = (ldb - n) / VL;
        if (left >= SV)
            rows_tile(m, SV, kc, x, ldx, b + n, ldb, c + n, ldb);
        else if (left == 3)
            rows_tile(m, 3 < SV ? 3 : SV, kc, x, ldx, b + n, ldb, c + n, ldb);
        else if (left == 2)
            rows_tile(m, 2, kc, x, ldx, b + n, ldb, c + n, ldb);
        else
            rows_tile(m, 1, kc, x, ldx, b + n, ldb, c + n, ldb);
    }
}

/* The sums of `rows` rows; a row's are the same beside any others. */
static void rows_sums(const af_slim *s, int64_t row, int64_t rows, float *c)
{
    float wide[ROWS * K_MOST];
    const int64_t ld = padded(s->n, VL), most = AF_MIN(NEAR / ld, (int64_t)K_MOST);
    memset(c, 0, (size_t)(rows * ld) * sizeof *c);
    for (int64_t k = 0; k < s->cols; k += most) {
        const int64_t kc = AF_MIN(most, s->cols - k);
        const float *b = (const float *)s->few + k * ld, *x;
        int64_t ldx = s->ldx, i = 0;
        if (s->half) {
            for (int64_t r = 0; r < rows; r++)
                widen(wide + r * kc, row_bf16(s, row + r, k), kc);
            x = wide;
            ldx = kc;
        } else
            x = row_f32(s, row, k);
        for (; i + SM <= rows; i += SM)
            rows_wide(SM, kc, x + i * ldx, ldx, b, ld, c + i * ld);
        for (; i < rows; i++)
            rows_wide(1, kc, x + i * ldx, ldx, b, ld, c + i * ld);
    }
}

static void run_rows(const af_slim *s, int64_t from, int64_t to, void *room)
{
    float c[ROWS * (AF_SLIM_MOST + VL)];
    const int64_t ld = padded(s->n, VL);
    (void)room;
    for (int64_t i = from * ROWS; i < AF_MIN(to * ROWS, s->rows); i += ROWS) {
        const int64_t rows = AF_MIN((int64_t)ROWS, s->rows - i);
        rows_sums(s, i, rows, c);
        for (int64_t r = 0; r < rows; r++) {
            float *sum = c + r * ld;
            for (int64_t k = 0; k < s->n; k++)
                sum[k] *= s->alpha;
            if (s->half)
                AF_ISA_NAME(af_bf16_down)((uint16_t *)s->y + (i + r) * s->ldy, sum, s->n);
            else
                memcpy((float *)s->y + (i + r) * s->ldy, sum, (size_t)s->n * sizeof *sum);
        }
    }
}

/* [cols][n padded to VL]: in place where it lies so, else a single panel. */
static void pack(af_slim *s, void *room, const float *b, int64_t ld, bool trans)
{
    const int64_t wide = padded(s->n, VL);
    const bool in_place = !trans && s->n == wide && ld == wide;
    s->few = in_place ? (const void *)b : room;
    if (in_place)
        return;
    const af_operand o = {.data = b, .ld = ld, .dtype = AF_DTYPE_F32, .trans = trans};
    const af_panels p = {.to = room, .width = (int)wide, .depth = padded(s->cols, KR)};
    AF_ISA_NAME(af_pack_f32)(&p, &o, trans, 0, s->n, 0, s->cols, room); /* f32 needs no buffer */
}

static uint64_t pack_bytes(int64_t n, int64_t cols)
{
    return (uint64_t)(padded(n, VL) * padded(cols, KR)) * sizeof(float);
}

/* ---- c = or += g^T x ---- */

/* c [MR][NR] += g [kc][MR]^T x [kc][NR] */
static void sums_tile(int64_t kc, const float *restrict g, int64_t ldg, const float *restrict x,
                      float *restrict c)
{
    vec s[MR][NV];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            s[i][j] = (vec){0};
#if defined(__ARM_NEON)
#pragma GCC unroll 2 /* half as fast again; with AVX-512 it would spill */
#endif
    for (int64_t k = 0; k < kc; k++, g += ldg, x += COLUMNS) {
        vec w[NV];
#if defined(__ARM_NEON)
        const vec few[2] = {*(const vec *)g, *(const vec *)(g + 4)};
#endif
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            w[j] = *(const vec *)(x + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
#if defined(__ARM_NEON)
#pragma GCC unroll 3
            for (int j = 0; j < NV; j++)
                s[i][j] = vfmaq_laneq_f32(s[i][j], w[j], few[i / 4], i % 4);
#else
            vec f = g[i] - (vec){0};
#if defined(__AVX512F__)
            __asm__("" : "+v"(f));
#endif
#pragma GCC unroll 3
            for (int j = 0; j < NV; j++)
                s[i][j] += w[j] * f;
#endif
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            *(vec *)(c + i * COLUMNS + j * VL) += s[i][j];
}

/* Rows [row, row+rows) and columns [col, col+cols) of x into `near`, up to a whole tile: rows may
 * be apart so that they meet in the cache. The rows after them, on other pages, are fetched. */
static void bring(float *restrict near, const af_slim *s, int64_t row, int64_t rows, int64_t col,
                  int64_t cols)
{
    const int64_t end = padded(cols, NR), last = s->rows - 1;
    for (int64_t r = row; r < row + rows; r++, near += COLUMNS) {
        const int64_t later = AF_MIN(r + DEEP, last);
        if (s->half) {
            __builtin_prefetch(row_bf16(s, later, col), 0, 2);
            widen(near, row_bf16(s, r, col), cols);
        } else {
            const float *x = row_f32(s, r, col), *next = row_f32(s, later, col);
            for (int64_t i = 0; i < cols; i += LINE)
                __builtin_prefetch(next + i, 0, 2);
            if (cols == COLUMNS) /* moves, not a call */
                for (int i = 0; i < COLUMNS; i += VL)
                    *(vec *)(near + i) = *(const vec *)(x + i);
            else
                memcpy(near, x, (size_t)cols * sizeof *near);
        }
        for (int64_t i = cols; i < end; i++)
            near[i] = 0;
    }
}

static void put_sums(const af_slim *s, const float *c, int64_t col, int64_t cols)
{
    for (int64_t n = 0; n < s->n; n++, c += COLUMNS) {
        float *to = s->trans ? s->c + col * s->ldc + n : s->c + n * s->ldc + col;
        const int64_t step = s->trans ? s->ldc : 1;
        for (int64_t i = 0; i < cols; i++)
            to[i * step] = s->add ? to[i * step] + c[i] : c[i];
    }
}

static void run_sums(const af_slim *s, int64_t from, int64_t to)
{
    float near[DEEP * COLUMNS], c[AF_SLIM_MOST * COLUMNS];
    const float *g = s->few;
    for (int64_t col = from * COLUMNS; col < AF_MIN(to * COLUMNS, s->cols); col += COLUMNS) {
        const int64_t cols = AF_MIN((int64_t)COLUMNS, s->cols - col);
        memset(c, 0, sizeof c);
        for (int64_t t = 0; t < s->rows; t += DEEP) {
            const int64_t rows = AF_MIN((int64_t)DEEP, s->rows - t);
            bring(near, s, t, rows, col, cols);
            for (int64_t n = 0; n < s->n; n += MR)
                for (int64_t i = 0; i < cols; i += NR)
                    sums_tile(rows, g + t * s->ldf + n, s->ldf, near + i, c + n * COLUMNS + i);
        }
        put_sums(s, c, col, cols);
    }
}

/* [rows][n padded to MR]: in place where it lies so. */
static void turn(af_slim *s, void *room, const void *g, int64_t ld)
{
    const int64_t n = s->n, wide = padded(n, MR);
    float *to = room;
    s->few = s->half || n != wide ? room : g;
    s->ldf = s->half || n != wide ? wide : ld;
    for (int64_t r = 0; s->few == room && r < s->rows; r++, to += wide) {
        if (s->half)
            widen(to, (const uint16_t *)g + r * ld, n);
        else
            memcpy(to, (const float *)g + r * ld, (size_t)n * sizeof *to);
        memset(to + n, 0, (size_t)(wide - n) * sizeof *to);
    }
}

static uint64_t turn_bytes(int64_t n, int64_t rows)
{
    return (uint64_t)(padded(n, MR) * rows) * sizeof(float);
}

const af_slim_way AF_ISA_NAME(af_slim_plain) = {.rows = ROWS,
                                                .cols = COLUMNS,
                                                .unit = 1,
                                                .most = AF_SLIM_MOST,
                                                .even = 1,
                                                .pack_bytes = pack_bytes,
                                                .pack = pack,
                                                .run_rows = run_rows,
                                                .turn_bytes = turn_bytes,
                                                .turn = turn,
                                                .run_sums = run_sums};
