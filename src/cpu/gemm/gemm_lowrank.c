/* gemm_lowrank.c - the GEMMs of adapters in f32: one side has a few columns, the other is read
 * where it lies, once, and is never packed.
 *
 * Every result is a sum of partial sums of at most DEEP or K_MAX terms, cut in the same places
 * whichever thread computes it. bf16 rows are widened a piece at a time. */
#include "cpu/gemm/gemm_job.h"

/* Rows and vectors of columns whose sums run_rows keeps in registers, and rows of its blocks: each
 * piece of the factor is read once for them. */
enum { SM = LOWRANK_ROWS, SV = LOWRANK_VECS, ROWS = SM == 5 ? 20 : 16 };

enum {
    COLUMNS = 48,        /* of one of run_sums' blocks: whole tiles of every instruction set */
    NEAR = LOWRANK_NEAR, /* floats of a piece of the factor: a part of the first-level cache */
    K_MAX = 256,         /* k's of such a piece */
    DEEP = 64,           /* rows of a piece of run_sums */
    LINE = 16,           /* floats of a line of the cache */
};

static int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static void widen(float *to, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = af_bf16_up(x[i]);
}

/* Row r of x from column c. */
static const float *row_f32(const af_lowrank *s, int64_t r, int64_t c)
{
    return (const float *)s->x + r * s->ldx + c;
}
static const uint16_t *row_bf16(const af_lowrank *s, int64_t r, int64_t c)
{
    return (const uint16_t *)s->x + r * s->ldx + c;
}

/* ---- y = alpha x B ---- */

/* c [m][nv VL] += x [m][kc] b [kc][nv VL] */
AF_INLINE void rows_tile(int m, int nv, int64_t kc, const float *x, int64_t ldx, const float *b,
                         int64_t ldb, float *c, int64_t ldc)
{
    vec s[SM][SV];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            s[i][j] = (vec){0};
    int64_t k = 0;
    for (; AF_K_LANES > 1 && k + AF_K_LANES <= kc; k += AF_K_LANES) {
        vec f[SM];
#pragma GCC unroll 8
        for (int i = 0; i < m; i++)
            f[i] = af_load_lanes(x + i * ldx + k);
#pragma GCC unroll 4
        for (int l = 0; l < AF_K_LANES; l++, b += ldb)
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++) {
                const vec w = *(const vec *)(b + j * VL);
#pragma GCC unroll 8
                for (int i = 0; i < m; i++)
                    s[i][j] = af_fma_lane(s[i][j], w, f[i], l);
            }
    }
    for (; k < kc; k++, b += ldb) {
        vec w[SV];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            w[j] = *(const vec *)(b + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            vec f = x[i * ldx + k] - (vec){0};
            if (nv > 1)
                f = af_pin(f);
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

AF_INLINE void rows_wide(int m, int64_t kc, const float *x, int64_t ldx, const float *b,
                         int64_t ldb, float *c)
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

/* The sums of `rows` rows; a row.s are the same with any others. */
static void rows_sums(const af_lowrank *s, int64_t row, int64_t rows, float *c)
{
    float wide[ROWS * K_MAX];
    const int64_t ld = padded(s->rank, VL), most = AF_MIN(NEAR / ld, (int64_t)K_MAX);
    memset(c, 0, (size_t)(rows * ld) * sizeof *c);
    for (int64_t k = 0; k < s->cols; k += most) {
        const int64_t kc = AF_MIN(most, s->cols - k);
        const float *b = (const float *)s->factor + k * ld, *x;
        int64_t ldx = s->ldx, i = 0;
        if (s->bf16) {
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

static void run_rows(const af_lowrank *s, int64_t from, int64_t to, void *buffer)
{
    float c[ROWS * (AF_LOWRANK_MAX + VL)];
    const int64_t ld = padded(s->rank, VL);
    (void)buffer;
    for (int64_t i = from * ROWS; i < AF_MIN(to * ROWS, s->rows); i += ROWS) {
        const int64_t rows = AF_MIN((int64_t)ROWS, s->rows - i);
        rows_sums(s, i, rows, c);
        for (int64_t r = 0; r < rows; r++) {
            float *sum = c + r * ld;
            for (int64_t k = 0; k < s->rank; k++)
                sum[k] *= s->alpha;
            if (s->bf16)
                AF_ISA_NAME(af_bf16_down)((uint16_t *)s->y + (i + r) * s->ldy, sum, s->rank);
            else
                memcpy((float *)s->y + (i + r) * s->ldy, sum, (size_t)s->rank * sizeof *sum);
        }
    }
}

/* [cols][n padded to VL]: in place where it lies so, else a single panel. */
static void pack(af_lowrank *s, void *buffer, const float *b, int64_t ld, bool trans)
{
    const int64_t wide = padded(s->rank, VL);
    const bool in_place = !trans && s->rank == wide && ld == wide;
    s->factor = in_place ? (const void *)b : buffer;
    if (in_place)
        return;
    const af_operand o = {.data = b, .ld = ld, .dtype = AF_DTYPE_F32, .trans = trans};
    const af_panels p = {
        .to = buffer, .width = (int)wide, .depth = padded(s->cols, KR), .planes = 1};
    AF_ISA_NAME(af_pack_f32)
    (&p, &o, trans, 0, s->rank, 0, s->cols, buffer); /* f32 needs no buffer */
}

static uint64_t pack_bytes(int64_t rank, int64_t cols)
{
    return (uint64_t)(padded(rank, VL) * padded(cols, KR)) * sizeof(float);
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
#pragma GCC unroll(AF_K_LANES > 1 ? 2 : 1) /* half as fast again on NEON; AVX-512 would spill */
    for (int64_t k = 0; k < kc; k++, g += ldg, x += COLUMNS) {
        vec w[NV];
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            w[j] = *(const vec *)(x + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i += AF_K_LANES) {
            const vec f = af_pin(af_load_lanes(g + i));
#pragma GCC unroll 4
            for (int l = 0; l < AF_K_LANES; l++)
#pragma GCC unroll 3
                for (int j = 0; j < NV; j++)
                    s[i + l][j] = af_fma_lane(s[i + l][j], w[j], f, l);
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
static void copy_near(float *restrict near, const af_lowrank *s, int64_t row, int64_t rows,
                      int64_t col, int64_t cols)
{
    const int64_t end = padded(cols, NR), last = s->rows - 1;
    for (int64_t r = row; r < row + rows; r++, near += COLUMNS) {
        const int64_t next_row = AF_MIN(r + DEEP, last);
        if (s->bf16) {
            __builtin_prefetch(row_bf16(s, next_row, col), 0, 2);
            widen(near, row_bf16(s, r, col), cols);
        } else {
            const float *x = row_f32(s, r, col), *next = row_f32(s, next_row, col);
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

static void put_sums(const af_lowrank *s, const float *c, int64_t col, int64_t cols)
{
    for (int64_t n = 0; n < s->rank; n++, c += COLUMNS) {
        float *to = s->trans ? s->c + col * s->ldc + n : s->c + n * s->ldc + col;
        const int64_t step = s->trans ? s->ldc : 1;
        for (int64_t i = 0; i < cols; i++)
            to[i * step] = s->add ? to[i * step] + c[i] : c[i];
    }
}

static void run_sums(const af_lowrank *s, int64_t from, int64_t to)
{
    float near[DEEP * COLUMNS], c[AF_LOWRANK_MAX * COLUMNS];
    const float *g = s->factor;
    for (int64_t col = from * COLUMNS; col < AF_MIN(to * COLUMNS, s->cols); col += COLUMNS) {
        const int64_t cols = AF_MIN((int64_t)COLUMNS, s->cols - col);
        memset(c, 0, sizeof c);
        for (int64_t t = 0; t < s->rows; t += DEEP) {
            const int64_t rows = AF_MIN((int64_t)DEEP, s->rows - t);
            copy_near(near, s, t, rows, col, cols);
            for (int64_t n = 0; n < s->rank; n += MR)
                for (int64_t i = 0; i < cols; i += NR)
                    sums_tile(rows, g + t * s->ldf + n, s->ldf, near + i, c + n * COLUMNS + i);
        }
        put_sums(s, c, col, cols);
    }
}

/* [rows][n padded to MR]: in place where it lies so. */
static void transpose(af_lowrank *s, void *buffer, const void *g, int64_t ld)
{
    const int64_t n = s->rank, wide = padded(n, MR);
    float *to = buffer;
    s->factor = s->bf16 || n != wide ? buffer : g;
    s->ldf = s->bf16 || n != wide ? wide : ld;
    for (int64_t r = 0; s->factor == buffer && r < s->rows; r++, to += wide) {
        if (s->bf16)
            widen(to, (const uint16_t *)g + r * ld, n);
        else
            memcpy(to, (const float *)g + r * ld, (size_t)n * sizeof *to);
        memset(to + n, 0, (size_t)(wide - n) * sizeof *to);
    }
}

static uint64_t transpose_bytes(int64_t rank, int64_t rows)
{
    return (uint64_t)(padded(rank, MR) * rows) * sizeof(float);
}

const af_lowrank_kernels AF_ISA_NAME(af_lowrank_vector) = {.rows = ROWS,
                                                           .cols = COLUMNS,
                                                           .unit = 1,
                                                           .rank_max = AF_LOWRANK_MAX,
                                                           .even = 1,
                                                           .pack_bytes = pack_bytes,
                                                           .pack = pack,
                                                           .run_rows = run_rows,
                                                           .transpose_bytes = transpose_bytes,
                                                           .transpose = transpose,
                                                           .run_sums = run_sums};
