/* gemm_skinny.c - GEMMs of few rows: each output column is a dot product with one stored row of B,
 * which is read once (per 64 rows) and never packed. Generation runs on this; it is bound
 * by memory, so weights are read as they are stored, row after row as one stream, and widened in
 * registers (GGUF blocks: gemm_blocks.c). Types without a kernel are decoded a piece at a time into
 * a buffer that stays in the first-level cache.
 *
 * A column is always one sum over all of K in a fixed order, whichever thread computes it and next
 * to whatever other columns and rows. */
#include "cpu/gemm/gemm_blocks.h"

enum {
    PIECE = 1024,
    K_MAX = 1 << 15,
    LANES = 4,
    CHUNK = 64,
    AHEAD = 2048,
    GROUPS = 8, /* of AF_SKINNY_ROWS rows at a time, where their K is short enough */
};

typedef uint32_t words __attribute__((vector_size(VL * 4), aligned(2), may_alias));

/* How the stored rows are read. */
typedef enum reader { READ_F32, READ_BF16, READ_F16, READ_BLOCKS, READ_DECODED } reader;

typedef struct skinny_job {
    const af_gemm *g;
    const af_block_kernels *blocks;
    reader reader;
    const float *a; /* [M][K] as f32; with bf16, even and odd elements of each 2 VL apart */
    af_block_x block;
    float *buf;   /* [threads][PIECE] */
    int64_t unit; /* shares begin at its multiples: what is computed together does not change */
} skinny_job;

uint64_t AF_ISA_NAME(af_skinny_work)(const af_block_kernels *blocks, int threads)
{
    return (AF_SKINNY_ROWS * K_MAX + (uint64_t)threads * PIECE) * sizeof(float) +
           blocks->work((int64_t)AF_SKINNY_ROWS * K_MAX);
}

bool AF_ISA_NAME(af_skinny_serves)(const af_gemm *g)
{
    return g->skinny && g->b.trans && !g->a.trans && !g->a.decode && g->K <= K_MAX;
}

/* Even elements of each 2 VL first, as dot_rows expects them with bf16; the last ones stay. */
static void deinterleave(float *a, int64_t n)
{
    float t[2 * VL];
    for (int64_t k = 0; k + 2 * VL <= n / (4 * VL) * (4 * VL); k += 2 * VL) {
        for (int i = 0; i < VL; i++) {
            t[i] = a[k + 2 * i];
            t[VL + i] = a[k + 2 * i + 1];
        }
        memcpy(a + k, t, sizeof t);
    }
}

AF_INLINE float value(reader r, const void *b, int64_t k)
{
    return r == READ_F32    ? ((const float *)b)[k]
           : r == READ_BF16 ? af_bf16_up(((const uint16_t *)b)[k])
                            : af_f16_up(((const uint16_t *)b)[k]);
}

/* One vector of a stored row: elements k + u VL and on, in the order of deinterleave. */
AF_INLINE vec stored_vec(reader r, const uint8_t *b, int64_t k, int u)
{
    const int64_t at = k + u * VL;
    const words *w = (const words *)((const uint16_t *)b + k + u / 2 * 2 * VL);
    return r == READ_F32   ? *(const vec *)((const float *)b + at)
           : r == READ_F16 ? af_f16_widen((const uint16_t *)b + at)
           : u % 2 == 0    ? (vec)(*w << 16) /* a word has two bf16 numbers */
                           : (vec)(*w & 0xffff0000u);
}

/* The last elements, which fill no vectors. One copy: compilers contract as they like, and a sum
 * must not depend on the loop it is in. */
static __attribute__((noinline)) float rest_of(reader r, const float *a, const void *b, int64_t k,
                                               int64_t n, float sum)
{
    for (; k < n; k++)
        sum += a[k] * value(r, b, k);
    return sum;
}

/* Stored rows b, b + ld, ... times a; with ld 0 the first only. A reader per copy. */
AF_INLINE void dot_rows(reader r, const float *restrict a, const void *rows, int64_t ld, int64_t n,
                        float out[LANES])
{
    const int size = r == READ_F32 ? 4 : 2;
    const uint8_t *b = rows;
    for (int row = 0; row < LANES; row++, b += ld * size) {
        vec s[4] = {0};
        int64_t k = 0;
        for (; k + 4 * VL <= n; k += 4 * VL) {
            __builtin_prefetch(b + k * size + AHEAD);
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++) {
                s[u] += *(const vec *)(a + k + u * VL) * stored_vec(r, b, k, u);
            }
        }
        out[row] = af_lanes((s[0] + s[1]) + (s[2] + s[3]));
        if (k < n)
            out[row] = rest_of(r, a, b, k, n, out[row]);
        if (ld == 0) /* the others are the same */
            return;
    }
}

/* LANES stored rows times a and a + lda: each sum as dot_rows makes it, two by two so that a vector
 * that was read is used twice. */
AF_INLINE void dot_pairs(reader r, const float *restrict a, int64_t lda, const void *rows,
                         int64_t ld, int64_t n, float out[2][LANES])
{
    const int size = r == READ_F32 ? 4 : 2;
    const uint8_t *b = rows;
    for (int row = 0; row < LANES; row += 2, b += 2 * ld * size) {
        const uint8_t *pair[2] = {b, b + ld * size};
        vec s[2][2][4] = {0};
        int64_t k = 0;
        for (; k + 4 * VL <= n; k += 4 * VL) {
            __builtin_prefetch(pair[0] + k * size + AHEAD);
            __builtin_prefetch(pair[1] + k * size + AHEAD);
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++) {
                const vec x = *(const vec *)(a + k + u * VL),
                          y = *(const vec *)(a + lda + k + u * VL),
                          v = stored_vec(r, pair[0], k, u), w = stored_vec(r, pair[1], k, u);
                s[0][0][u] += x * v;
                s[0][1][u] += x * w;
                s[1][0][u] += y * v;
                s[1][1][u] += y * w;
            }
        }
        for (int m = 0; m < 2; m++)
            for (int i = 0; i < 2; i++) {
                const vec *t = s[m][i];
                float sum = af_lanes((t[0] + t[1]) + (t[2] + t[3]));
                out[m][row + i] = k < n ? rest_of(r, a + m * lda, pair[i], k, n, sum) : sum;
            }
    }
}

/* ---- columns ---- */

/* LANES stored rows from b on with rows m and m + 1 of A. */
static void pair_of_rows(const skinny_job *t, int64_t m, const uint8_t *b, float *s)
{
    const af_gemm *g = t->g;
    const float *a = t->a + m * g->K;
    float out[2][LANES];
    if (t->reader == READ_F32)
        dot_pairs(READ_F32, a, g->K, b, g->b.ld, g->K, out);
    else if (t->reader == READ_BF16)
        dot_pairs(READ_BF16, a, g->K, b, g->b.ld, g->K, out);
    else
        dot_pairs(READ_F16, a, g->K, b, g->b.ld, g->K, out);
    memcpy(s + m * CHUNK, out[0], sizeof out[0]);
    memcpy(s + (m + 1) * CHUNK, out[1], sizeof out[1]);
}

/* The first stored row, or with ld LANES of them, with row m. */
static void one_row(const skinny_job *t, int64_t m, const uint8_t *b, int64_t ld, float *s)
{
    const int64_t K = t->g->K;
    const float *a = t->a + m * K;
    float out[LANES];
    if (t->reader == READ_F32)
        dot_rows(READ_F32, a, b, ld, K, out);
    else if (t->reader == READ_BF16)
        dot_rows(READ_BF16, a, b, ld, K, out);
    else
        dot_rows(READ_F16, a, b, ld, K, out);
    memcpy(s + m * CHUNK, out, (ld ? LANES : 1) * sizeof *out);
}

/* Stored rows [n, n+cols) as floats, cols up to LANES; s [M][CHUNK]. */
static void floats(const skinny_job *t, int64_t n, int64_t cols, float *s)
{
    const af_gemm *g = t->g;
    const int64_t size = t->reader == READ_F32 ? 4 : 2, row = g->b.ld * size;
    const uint8_t *b = (const uint8_t *)g->b.data + n * row;
    int64_t m = 0;
    for (; cols == LANES && m + 2 <= g->M; m += 2)
        pair_of_rows(t, m, b, s);
    for (; m < g->M; m++) {
        if (cols == LANES)
            one_row(t, m, b, g->b.ld, s);
        else
            for (int64_t i = 0; i < cols; i++)
                one_row(t, m, b + i * row, 0, s + i);
    }
}

/* A type without a kernel: one decoded piece serves every row of A. */
static void decoded(const skinny_job *t, int64_t n, float *buf, float *s)
{
    const af_gemm *g = t->g;
    for (int64_t k = 0; k < g->K; k += PIECE) {
        const int64_t kc = AF_MIN((int64_t)PIECE, g->K - k);
        const float *b = AF_ISA_NAME(af_stored_row)(&g->b, n, k, kc, buf);
        for (int64_t m = 0; m < g->M; m++) {
            float out[LANES];
            dot_rows(READ_F32, t->a + m * g->K + k, b, 0, kc, out);
            s[m * CHUNK] = k ? s[m * CHUNK] + out[0] : out[0];
        }
    }
}

static void blocks(const skinny_job *t, int64_t n, int64_t cols, float *s)
{
    const af_operand *b = &t->g->b;
    const af_dtype_info *info = af_dtype_get(b->dtype);
    const int64_t row = b->ld / info->elems * info->bytes;
    t->blocks->rows(&t->block, b->dtype, (const uint8_t *)b->data + n * row, cols, s, CHUNK);
}

static void columns(void *arg, int64_t from, int64_t to, int share)
{
    const skinny_job *t = arg;
    const int64_t last = AF_MIN(to * t->unit, t->g->N);
    float s[GROUPS * AF_SKINNY_ROWS * CHUNK];
    for (int64_t c = from * t->unit; c < last; c += CHUNK) {
        const int64_t width = AF_MIN((int64_t)CHUNK, last - c);
        if (t->reader == READ_BLOCKS)
            blocks(t, c, width, s);
        else if (t->reader == READ_DECODED)
            for (int64_t i = 0; i < width; i++)
                decoded(t, c + i, t->buf + (int64_t)share * PIECE, s + i);
        else
            for (int64_t i = 0; i < width; i += LANES)
                floats(t, c + i, AF_MIN((int64_t)LANES, width - i), s + i);
        AF_ISA_NAME(af_gemm_store)(t->g, s, CHUNK, 0, t->g->M, c, width, true);
    }
}

static reader reader_of(const af_gemm *g)
{
    const af_operand *b = &g->b;
    if (b->decode)
        return af_block_serves(b->dtype, g->K) && b->ld == g->K ? READ_BLOCKS : READ_DECODED;
    if (b->dtype == AF_DTYPE_F32)
        return READ_F32;
    if (b->dtype == AF_DTYPE_BF16)
        return READ_BF16;
    return b->dtype == AF_DTYPE_F16 && af_has_f16 ? READ_F16 : READ_DECODED;
}

/* At most GROUPS * AF_SKINNY_ROWS rows, whose values fit into AF_SKINNY_ROWS of K_MAX. */
static void run_rows(const af_block_kernels *blocks, const af_gemm *g, af_pool *pool, void *work)
{
    float *a = work, *buf = a + AF_SKINNY_ROWS * K_MAX;
    void *block_work = buf + (int64_t)af_pool_threads(pool) * PIECE;
    skinny_job t = {
        .g = g, .blocks = blocks, .reader = reader_of(g), .a = a, .buf = buf, .unit = LANES};
    for (int64_t m = 0; m < g->M; m++) {
        const float *x = AF_ISA_NAME(af_stored_row)(&g->a, m, 0, g->K, a + m * g->K);
        if (x != a + m * g->K)
            memcpy(a + m * g->K, x, (size_t)g->K * sizeof *a);
        if (t.reader == READ_BF16)
            deinterleave(a + m * g->K, g->K);
    }
    if (t.reader == READ_BLOCKS) {
        blocks->prepare(&t.block, a, g->M, g->K, g->rounded, block_work);
        t.unit = VL; /* a multiple of LANES */
    }
    af_pool_run(pool, (g->N + t.unit - 1) / t.unit, columns, &t);
}

void AF_ISA_NAME(af_skinny_run)(const af_block_kernels *blocks, const af_gemm *g, af_pool *pool,
                                void *work)
{
    const int64_t step = AF_SKINNY_ROWS * AF_MIN((int64_t)GROUPS, K_MAX / g->K);
    const int64_t size_c = (int64_t)af_dtype_get(g->c_dtype)->bytes;
    af_gemm part = *g;
    for (int64_t m = 0; m < g->M; m += step) {
        part.M = AF_MIN(step, g->M - m);
        part.a.data =
            (const uint8_t *)g->a.data + m * g->a.ld * (int64_t)af_dtype_get(g->a.dtype)->bytes;
        part.c = (uint8_t *)g->c + m * g->ldc * size_c;
        run_rows(blocks, &part, pool, work);
    }
}

/* ---- sums of rows ---- */

AF_INLINE vec up(const uint8_t *row, af_dtype type, int64_t i)
{
    if (type == AF_DTYPE_F32)
        return *(const vec *)((const float *)row + i);
    vec v;
    for (int k = 0; k < VL; k++)
        v[k] = af_bf16_up(((const uint16_t *)row)[i + k]);
    return v;
}

AF_INLINE void weigh(float *restrict y, const float *p, const uint8_t *rows, af_dtype type,
                     int64_t stride, int64_t n, int64_t E)
{
    enum { WIDE = 8 }; /* vectors kept in registers */
    int64_t i = 0;
    for (; i + WIDE * VL <= E; i += WIDE * VL) {
        vec s[WIDE];
        for (int k = 0; k < WIDE; k++)
            s[k] = *(const vec *)(y + i + k * VL);
        for (int64_t j = 0; j < n; j++)
#pragma GCC unroll 8
            for (int k = 0; k < WIDE; k++)
                s[k] += p[j] * up(rows + j * stride, type, i + k * VL);
        for (int k = 0; k < WIDE; k++)
            *(vec *)(y + i + k * VL) = s[k];
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t e = i; e < E; e++) {
            const uint8_t *row = rows + j * stride;
            y[e] += p[j] * (type == AF_DTYPE_F32 ? ((const float *)row)[e]
                                                 : af_bf16_up(((const uint16_t *)row)[e]));
        }
}

void AF_ISA_NAME(af_weigh)(float *y, const float *p, const af_operand *b, int64_t n, int64_t E)
{
    if (b->dtype == AF_DTYPE_F32)
        weigh(y, p, b->data, AF_DTYPE_F32, b->ld * 4, n, E);
    else
        weigh(y, p, b->data, AF_DTYPE_BF16, b->ld * 2, n, E);
}
