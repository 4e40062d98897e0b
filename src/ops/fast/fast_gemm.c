/* fast_gemm.c - matrix products: panels are packed on the way (weights of any type are decoded
 * there), one register tile does the arithmetic.
 *
 * A thread owns a range of columns (or of rows, when there are few columns). For each chunk of NC
 * columns and MS rows it keeps a f32 scratch, adds up K in steps of KC, and writes the result once.
 * Every element of C is one sum in the order of k, with the same tile code for edges (panels are
 * padded with zeros): results do not depend on the number of threads. */
#include "ops/fast/isa.h"

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
#define HAVE_BF16_TILE 1
#endif

enum { KC = 512, NC = 192, MS = 768, MC = 96 };

typedef struct task {
    const af_gemm *g;
    uint8_t *work;
    bool by_rows, bf16;
} task;

typedef struct buffers {
    float *a, *b, *c; /* panels of A and B, scratch of C */
    float *row;       /* one decoded row piece */
} buffers;

static uint64_t share_bytes(void)
{
    return ((uint64_t)(MC + MR) * KC + (uint64_t)(NC + NR) * KC + (uint64_t)MS * (NC + NR) + KC +
            NC + 64) *
           sizeof(float);
}

uint64_t AF_ISA_NAME(af_gemm_work)(int threads) { return (uint64_t)threads * share_bytes(); }

static buffers split_work(uint8_t *work, int share)
{
    float *p = (float *)(work + (uint64_t)share * share_bytes());
    buffers b;
    b.a = p;
    b.b = b.a + (MC + MR) * KC;
    b.c = b.b + (NC + NR) * KC;
    b.row = b.c + (int64_t)MS * (NC + NR);
    return b;
}

static float half_to_f32(uint16_t h) { return af_f32_from_f16(h); }

/* Stored row `r`, columns [from, from+n), as f32. Returns the place they are at (the matrix itself
 * when it is f32). */
static const float *stored_row(const af_operand *o, int64_t r, int64_t from, int64_t n, float *buf)
{
    if (o->weight) {
        af_ld_row_f32(o->weight, r * o->ld + from, n, buf);
        return buf;
    }
    if (o->dtype == AF_DTYPE_F32)
        return (const float *)o->data + r * o->ld + from;
    const uint16_t *h = (const uint16_t *)o->data + r * o->ld + from;
    if (o->dtype == AF_DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++) {
            const uint32_t u = (uint32_t)h[i] << 16;
            memcpy(&buf[i], &u, 4);
        }
    } else {
        for (int64_t i = 0; i < n; i++)
            buf[i] = half_to_f32(h[i]);
    }
    return buf;
}

/* Panels of `width` lines: line l of the logical operand becomes panel l/width, lane l%width, laid
 * out [k][width]. `along`: the stored rows are the lines (k runs inside a row); else they are the
 * k's. */
static void pack(float *dst, const af_operand *o, bool along, int64_t line, int64_t lines,
                 int64_t k0, int64_t kc, int width, float *buf)
{
    for (int64_t l = 0; l < lines; l += width) {
        const int64_t w = AF_MIN((int64_t)width, lines - l);
        float *p = dst + l * kc;
        if (w < width)
            memset(p, 0, (size_t)(kc * width) * sizeof *p);
        if (along) {
            for (int64_t i = 0; i < w; i++) {
                const float *s = stored_row(o, line + l + i, k0, kc, buf);
                for (int64_t k = 0; k < kc; k++)
                    p[k * width + i] = s[k];
            }
        }
    }
    if (along)
        return;
    for (int64_t k = 0; k < kc; k++) { /* one stored row feeds every panel */
        const float *s = stored_row(o, k0 + k, line, lines, buf);
        for (int64_t l = 0; l < lines; l += width) {
            const int64_t w = AF_MIN((int64_t)width, lines - l);
            float *p = dst + l * kc + k * width;
            for (int64_t i = 0; i < w; i++)
                p[i] = s[l + i];
        }
    }
}

/* c[MR][NR] (ld ldc) (+)= a[kc][MR] b[kc][NR] */
static void tile(int64_t kc, const float *restrict a, const float *restrict b, float *restrict c,
                 int64_t ldc, bool add)
{
    vec s[MR][NV];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int j = 0; j < NV; j++)
            s[i][j] = add ? *(const vec *)(c + i * ldc + j * VL) : (vec){0};
    for (int64_t k = 0; k < kc; k++, a += MR, b += NR) {
        const vec b0 = *(const vec *)b, b1 = *(const vec *)(b + VL);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            s[i][0] += b0 * a[i];
            s[i][1] += b1 * a[i];
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int j = 0; j < NV; j++)
            *(vec *)(c + i * ldc + j * VL) = s[i][j];
}

#if defined(HAVE_BF16_TILE)
enum { BM = 8, BN = 8 }; /* tile of the bf16 matrix instruction: 4 x 4 accumulators of 2 x 2 */

/* As pack, in bf16: [k/4][width/2][2 lines][4 k]. */
static void pack_bf16(uint16_t *dst, const af_operand *o, bool along, int64_t line, int64_t lines,
                      int64_t k0, int64_t kc, float *buf)
{
    const int64_t k4 = (kc + 3) / 4;
    const int64_t padded = (lines + BM - 1) / BM * BM;
    if (padded != lines || kc % 4)
        memset(dst, 0, (size_t)(padded * k4 * 4) * sizeof *dst);
    const bool direct = !o->weight && o->dtype == AF_DTYPE_BF16;
    if (along) {
        for (int64_t l = 0; l < lines; l++) {
            uint16_t *p = dst + l / BM * (BM * k4 * 4) + l % BM / 2 * 8 + l % 2 * 4;
            const uint16_t *h = direct ? (const uint16_t *)o->data + (line + l) * o->ld + k0 : NULL;
            const float *s = direct ? NULL : stored_row(o, line + l, k0, kc, buf);
            for (int64_t k = 0; k < kc; k++)
                p[k / 4 * (BM * 4) + k % 4] = direct ? h[k] : af_bf16_from_f32(s[k]);
        }
        return;
    }
    for (int64_t k = 0; k < kc; k++) {
        const uint16_t *h = direct ? (const uint16_t *)o->data + (k0 + k) * o->ld + line : NULL;
        const float *s = direct ? NULL : stored_row(o, k0 + k, line, lines, buf);
        uint16_t *p = dst + k / 4 * (BM * 4) + k % 4;
        for (int64_t l = 0; l < lines; l++)
            p[l / BM * (BM * k4 * 4) + l % BM / 2 * 8 + l % 2 * 4] =
                direct ? h[l] : af_bf16_from_f32(s[l]);
    }
}

static void tile_bf16(int64_t k4, const uint16_t *a, const uint16_t *b, float *c, int64_t ldc,
                      bool add)
{
    float32x4_t s[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            s[i][j] = add ? vcombine_f32(vld1_f32(c + 2 * i * ldc + 2 * j),
                                         vld1_f32(c + (2 * i + 1) * ldc + 2 * j))
                          : vdupq_n_f32(0);
    for (int64_t k = 0; k < k4; k++, a += BM * 4, b += BN * 4) {
        bfloat16x8_t x[4], y[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            x[i] = vreinterpretq_bf16_u16(vld1q_u16(a + 8 * i));
            y[i] = vreinterpretq_bf16_u16(vld1q_u16(b + 8 * i));
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                s[i][j] = vbfmmlaq_f32(s[i][j], x[i], y[j]);
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            vst1_f32(c + 2 * i * ldc + 2 * j, vget_low_f32(s[i][j]));
            vst1_f32(c + (2 * i + 1) * ldc + 2 * j, vget_high_f32(s[i][j]));
        }
}

static void block_bf16(const task *t, const buffers *w, int64_t m0, int64_t m, int64_t n0,
                       int64_t n, int64_t ldc)
{
    const af_gemm *g = t->g;
    for (int64_t k0 = 0; k0 < g->K; k0 += 2 * KC) {
        const int64_t kc = AF_MIN((int64_t)2 * KC, g->K - k0), k4 = (kc + 3) / 4;
        pack_bf16((uint16_t *)w->b, &g->b, g->b.trans, n0, n, k0, kc, w->row);
        for (int64_t i = 0; i < m; i += MC) {
            const int64_t rows = AF_MIN((int64_t)MC, m - i);
            pack_bf16((uint16_t *)w->a, &g->a, !g->a.trans, m0 + i, rows, k0, kc, w->row);
            for (int64_t j = 0; j < n; j += BN)
                for (int64_t r = 0; r < rows; r += BM)
                    tile_bf16(k4, (const uint16_t *)w->a + r * k4 * 4,
                              (const uint16_t *)w->b + j * k4 * 4, w->c + (i + r) * ldc + j, ldc,
                              k0 > 0);
        }
    }
}
#endif

static void block_f32(const task *t, const buffers *w, int64_t m0, int64_t m, int64_t n0, int64_t n,
                      int64_t ldc)
{
    const af_gemm *g = t->g;
    for (int64_t k0 = 0; k0 < g->K; k0 += KC) {
        const int64_t kc = AF_MIN((int64_t)KC, g->K - k0);
        pack(w->b, &g->b, g->b.trans, n0, n, k0, kc, NR, w->row);
        for (int64_t i = 0; i < m; i += MC) {
            const int64_t rows = AF_MIN((int64_t)MC, m - i);
            pack(w->a, &g->a, !g->a.trans, m0 + i, rows, k0, kc, MR, w->row);
            for (int64_t j = 0; j < n; j += NR)
                for (int64_t r = 0; r < rows; r += MR)
                    tile(kc, w->a + r * kc, w->b + j * kc, w->c + (i + r) * ldc + j, ldc, k0 > 0);
        }
    }
}

static float bias_at(const af_gemm *g, int64_t n)
{
    return g->bias_dtype == AF_DTYPE_F32 ? ((const float *)g->bias)[n]
                                         : (float)af_load_f64(g->bias, g->bias_dtype, (uint64_t)n);
}

static void store(const af_gemm *g, const float *c, int64_t ldc, int64_t m0, int64_t m, int64_t n0,
                  int64_t n)
{
    for (int64_t i = 0; i < m; i++) {
        const float *s = c + i * ldc;
        if (g->c_dtype == AF_DTYPE_F32) {
            float *d = (float *)g->c + (m0 + i) * g->ldc + n0;
            for (int64_t j = 0; j < n; j++)
                d[j] = s[j] * g->alpha + (g->add ? d[j] : 0.0f) +
                       (g->bias ? bias_at(g, n0 + j) : 0.0f);
        } else {
            uint16_t *d = (uint16_t *)g->c + (m0 + i) * g->ldc + n0;
            for (int64_t j = 0; j < n; j++)
                d[j] = af_bf16_from_f32(s[j] * g->alpha + (g->add ? af_f32_from_bf16(d[j]) : 0.0f) +
                                        (g->bias ? bias_at(g, n0 + j) : 0.0f));
        }
    }
}

/* Rows [m0, m1) and columns [n0, n1) of C. */
static void region(const task *t, const buffers *w, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
{
    const int64_t ldc = NC + NR;
    for (int64_t n = n0; n < n1; n += NC) {
        const int64_t cols = AF_MIN((int64_t)NC, n1 - n);
        for (int64_t m = m0; m < m1; m += MS) {
            const int64_t rows = AF_MIN((int64_t)MS, m1 - m);
#if defined(HAVE_BF16_TILE)
            if (t->bf16)
                block_bf16(t, w, m, rows, n, cols, ldc);
            else
#endif
                block_f32(t, w, m, rows, n, cols, ldc);
            store(t->g, w->c, ldc, m, rows, n, cols);
        }
    }
}

static void run_share(void *arg, int64_t from, int64_t to, int share)
{
    const task *t = arg;
    const af_gemm *g = t->g;
    const buffers w = split_work(t->work, share);
    const int64_t unit = t->by_rows ? MC : NR; /* whole tiles */
    if (t->by_rows)
        region(t, &w, from * unit, AF_MIN(to * unit, g->M), 0, g->N);
    else
        region(t, &w, 0, g->M, from * unit, AF_MIN(to * unit, g->N));
}

/* Few rows: each output column is a handful of dot products with one stored row; no packing. */
static void thin_share(void *arg, int64_t from, int64_t to, int share)
{
    const task *t = arg;
    const af_gemm *g = t->g;
    const buffers w = split_work(t->work, share);
    for (int64_t n = from; n < to; n++) {
        float s[4] = {0};
        for (int64_t k0 = 0; k0 < g->K; k0 += KC) {
            const int64_t kc = AF_MIN((int64_t)KC, g->K - k0);
            const float *b = stored_row(&g->b, n, k0, kc, w.row);
            for (int64_t m = 0; m < g->M; m++) {
                const float *a = (const float *)g->a.data + m * g->a.ld + k0;
                vec acc[4] = {0};
                int64_t k = 0;
                for (; k + 4 * VL <= kc; k += 4 * VL)
                    for (int u = 0; u < 4; u++)
                        acc[u] += *(const vec *)(a + k + u * VL) * *(const vec *)(b + k + u * VL);
                const vec sum = (acc[0] + acc[1]) + (acc[2] + acc[3]);
                float total = 0;
                for (int u = 0; u < VL; u++)
                    total += sum[u];
                for (; k < kc; k++)
                    total += a[k] * b[k];
                s[m] += total;
            }
        }
        for (int64_t m = 0; m < g->M; m++)
            store(g, &s[m], 1, m, 1, n, 1);
    }
}

void AF_ISA_NAME(af_gemm_run)(const af_gemm *g, af_pool *pool, void *work)
{
    task t = {.g = g, .work = work};
    if (g->M <= 0 || g->N <= 0)
        return;
    if (g->K == 0) {
        const float zero[NC] = {0};
        for (int64_t n = 0; n < g->N; n += NC)
            for (int64_t m = 0; m < g->M; m++)
                store(g, zero, 0, m, 1, n, AF_MIN((int64_t)NC, g->N - n));
        return;
    }
    if (g->M <= 4 && g->b.trans && !g->a.trans && g->a.dtype == AF_DTYPE_F32 && !g->a.weight) {
        af_pool_run(pool, g->N, thin_share, &t);
        return;
    }
#if defined(HAVE_BF16_TILE)
    t.bf16 = !g->exact && g->a.dtype == AF_DTYPE_BF16 && !g->a.weight && g->M >= 8 && g->N >= 8;
#endif
    t.by_rows = g->M > g->N;
    const int64_t unit = t.by_rows ? MC : NR, size = t.by_rows ? g->M : g->N;
    af_pool_run(pool, (size + unit - 1) / unit, run_share, &t);
}
