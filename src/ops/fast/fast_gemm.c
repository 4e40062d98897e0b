/* fast_gemm.c - matrix products: panels are packed on the way (fast_pack.c), one register tile does
 * the arithmetic, the sums leave through one store.
 *
 * A thread owns a range of columns, or of rows when that packs less. It walks C in blocks of NC
 * columns and K in steps of KC, packs that block of B once and then MC rows of A at a time. Every
 * element of C is one sum in the order of k, with the same tile code for edges (panels are padded
 * with zeros): results do not depend on the number of threads. */
#include "ops/fast/isa.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum { KC = AF_GEMM_KC, NC = AF_GEMM_NC, MC = AF_GEMM_MC, MS = AF_GEMM_MS };

typedef struct task {
    const af_gemm *g;
    uint8_t *work;
    bool by_rows, bf16;
    bool split; /* bf16 A, f32 B that must not be rounded: B as the sum of two bf16 numbers */
} task;

typedef struct buffers {
    float *a, *b, *c; /* panels of A and B, scratch of C */
    float *row;       /* AF_PACK_BUF */
} buffers;

static uint64_t share_bytes(void)
{
    return ((uint64_t)MC * KC + (uint64_t)NC * KC + (uint64_t)MS * NC + AF_PACK_BUF) *
           sizeof(float);
}

uint64_t AF_ISA_NAME(af_gemm_work)(int threads)
{
    return AF_MAX((uint64_t)threads * share_bytes(), AF_ISA_NAME(af_thin_work)(threads));
}

static buffers split_work(uint8_t *work, int share)
{
    buffers b;
    b.a = (float *)(work + (uint64_t)share * share_bytes());
    b.b = b.a + MC * KC;
    b.c = b.b + (int64_t)NC * KC;
    b.row = b.c + (int64_t)MS * NC;
    return b;
}

#if defined(__ARM_NEON)
/* t[8][12] = a[kc][8] b[kc][12] */
static void tile(int64_t kc, const float *restrict a, const float *restrict b, float *restrict t)
{
    float32x4_t s[24];
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++)
        s[i] = vdupq_n_f32(0);
    for (int64_t k = 0; k < kc; k++, a += 8, b += 12) {
        const float32x4_t lo = vld1q_f32(a), hi = vld1q_f32(a + 4);
        const float32x4_t x = vld1q_f32(b), y = vld1q_f32(b + 4), z = vld1q_f32(b + 8);
        s[0] = vfmaq_laneq_f32(s[0], x, lo, 0);
        s[3] = vfmaq_laneq_f32(s[3], x, lo, 1);
        s[6] = vfmaq_laneq_f32(s[6], x, lo, 2);
        s[9] = vfmaq_laneq_f32(s[9], x, lo, 3);
        s[12] = vfmaq_laneq_f32(s[12], x, hi, 0);
        s[15] = vfmaq_laneq_f32(s[15], x, hi, 1);
        s[18] = vfmaq_laneq_f32(s[18], x, hi, 2);
        s[21] = vfmaq_laneq_f32(s[21], x, hi, 3);
        s[1] = vfmaq_laneq_f32(s[1], y, lo, 0);
        s[4] = vfmaq_laneq_f32(s[4], y, lo, 1);
        s[7] = vfmaq_laneq_f32(s[7], y, lo, 2);
        s[10] = vfmaq_laneq_f32(s[10], y, lo, 3);
        s[13] = vfmaq_laneq_f32(s[13], y, hi, 0);
        s[16] = vfmaq_laneq_f32(s[16], y, hi, 1);
        s[19] = vfmaq_laneq_f32(s[19], y, hi, 2);
        s[22] = vfmaq_laneq_f32(s[22], y, hi, 3);
        s[2] = vfmaq_laneq_f32(s[2], z, lo, 0);
        s[5] = vfmaq_laneq_f32(s[5], z, lo, 1);
        s[8] = vfmaq_laneq_f32(s[8], z, lo, 2);
        s[11] = vfmaq_laneq_f32(s[11], z, lo, 3);
        s[14] = vfmaq_laneq_f32(s[14], z, hi, 0);
        s[17] = vfmaq_laneq_f32(s[17], z, hi, 1);
        s[20] = vfmaq_laneq_f32(s[20], z, hi, 2);
        s[23] = vfmaq_laneq_f32(s[23], z, hi, 3);
    }
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++)
        vst1q_f32(t + 4 * i, s[i]);
}
#else
/* t[MR][NR] = a[kc][MR] b[kc][NR] */
static void tile(int64_t kc, const float *restrict a, const float *restrict b, float *restrict t)
{
    vec s[MR][NV];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            s[i][j] = (vec){0};
    for (int64_t k = 0; k < kc; k++, a += MR, b += NR) {
        vec x[NV];
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            x[j] = *(const vec *)(b + j * VL);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
            for (int j = 0; j < NV; j++)
                s[i][j] += x[j] * a[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            *(vec *)(t + i * NR + j * VL) = s[i][j];
}
#endif

static float bias_at(const af_gemm *g, int64_t n)
{
    return g->bias_dtype == AF_DTYPE_F32 ? ((const float *)g->bias)[n]
                                         : (float)af_load_f64(g->bias, g->bias_dtype, (uint64_t)n);
}

static void store_row(const af_gemm *g, const float *restrict s, float *restrict d, int64_t n,
                      bool add)
{
    const float alpha = g->alpha;
    if (add)
        for (int64_t j = 0; j < n; j++)
            d[j] += s[j] * alpha;
    else if (alpha == 1.0f)
        memcpy(d, s, (size_t)n * sizeof *d);
    else
        for (int64_t j = 0; j < n; j++)
            d[j] = s[j] * alpha;
}

static void store_row_bf16(const af_gemm *g, const float *restrict s, uint16_t *restrict d,
                           int64_t n0, int64_t n)
{
    float t[NC];
    if (g->alpha == 1.0f && !g->add && !g->bias) {
        AF_ISA_NAME(af_bf16_down)(d, s, n);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        t[j] = s[j] * g->alpha;
    for (int64_t j = 0; g->add && j < n; j++) {
        const uint32_t u = (uint32_t)d[j] << 16;
        float old;
        memcpy(&old, &u, 4);
        t[j] += old;
    }
    for (int64_t j = 0; g->bias && j < n; j++)
        t[j] += bias_at(g, n0 + j);
    AF_ISA_NAME(af_bf16_down)(d, t, n);
}

void AF_ISA_NAME(af_gemm_store)(const af_gemm *g, const float *s, int64_t lds, int64_t m,
                                int64_t rows, int64_t n, int64_t cols, bool first)
{
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = (m + i) * g->ldc + n;
        if (g->c_dtype != AF_DTYPE_F32) {
            store_row_bf16(g, s + i * lds, (uint16_t *)g->c + at, n, cols);
            continue;
        }
        float *d = (float *)g->c + at;
        store_row(g, s + i * lds, d, cols, g->add || !first);
        for (int64_t j = 0; g->bias && first && j < cols; j++)
            d[j] += bias_at(g, n + j);
    }
}

/* A tile of sums into (or onto) the scratch. */
static void stage(float *restrict d, const float *restrict s, int64_t lds, int64_t rows,
                  int64_t cols, bool first)
{
    for (int64_t y = 0; y < rows; y++, d += NC, s += lds) {
        if (first)
            memcpy(d, s, (size_t)cols * sizeof *d);
        else
            for (int64_t x = 0; x < cols; x++)
                d[x] += s[x];
    }
}

/* One packed block of A against one of B. The sums go to C, or to the scratch when they are part of
 * a bf16 element. */
static void multiply(const task *t, const buffers *w, int64_t m, int64_t rows, int64_t n,
                     int64_t cols, int64_t kc, bool first, float *scratch)
{
    const int64_t tm = t->bf16 ? BM : MR, tn = t->bf16 ? BN : NR;
    float sums[BM * BN > MR * NR ? BM * BN : MR * NR] __attribute__((aligned(64)));
    for (int64_t j = 0; j < cols; j += tn)
        for (int64_t i = 0; i < rows; i += tm) {
            const int64_t r = AF_MIN(tm, rows - i), c = AF_MIN(tn, cols - j);
#if defined(AF_BF16_TILE)
            if (t->bf16)
                AF_ISA_NAME(af_tile_bf16)
                (kc, (const uint16_t *)w->a + i * kc, (const uint16_t *)w->b + j * kc, sums);
            else
#endif
                tile(kc, w->a + i * kc, w->b + j * kc, sums);
            if (!scratch) {
                AF_ISA_NAME(af_gemm_store)(t->g, sums, tn, m + i, r, n + j, c, first);
                continue;
            }
            stage(scratch + i * NC + j, sums, tn, r, c, first);
        }
}

static void pack_a(const task *t, const buffers *w, int64_t m, int64_t rows, int64_t k, int64_t kc)
{
    const af_operand *a = &t->g->a;
    if (t->bf16)
        AF_ISA_NAME(af_pack_bf16)((uint16_t *)w->a, a, !a->trans, m, rows, k, kc, BM, BGA, w->row);
    else
        AF_ISA_NAME(af_pack_f32)(w->a, a, !a->trans, m, rows, k, kc, MR, w->row);
}

static void pack_b(const task *t, const buffers *w, int64_t n, int64_t cols, int64_t k, int64_t kc,
                   bool rest)
{
    af_operand b = t->g->b;
    b.rest = rest;
    if (t->bf16)
        AF_ISA_NAME(af_pack_bf16)((uint16_t *)w->b, &b, b.trans, n, cols, k, kc, BN, BGB, w->row);
    else
        AF_ISA_NAME(af_pack_f32)(w->b, &b, b.trans, n, cols, k, kc, NR, w->row);
}

/* Steps along K: twice over when B is split in two bf16 halves. */
static int64_t steps_of(const task *t)
{
    const int64_t step = t->bf16 ? 2 * KC : KC;
    return (t->g->K + step - 1) / step * (t->split ? 2 : 1);
}

/* Rows [m0, m0+m) of columns [n, n+cols). */
static void block(const task *t, const buffers *w, int64_t m0, int64_t m, int64_t n, int64_t cols,
                  bool staged)
{
    const int64_t K = t->g->K, step = t->bf16 ? 2 * KC : KC, steps = steps_of(t);
    for (int64_t s = 0; s < steps; s++) {
        const bool rest = t->split && s >= steps / 2;
        const int64_t k = (rest ? s - steps / 2 : s) * step, kc = AF_MIN(step, K - k);
        const int64_t padded = t->bf16 ? (kc + BK - 1) / BK * BK : kc;
        pack_b(t, w, n, cols, k, kc, rest);
        for (int64_t i = 0; i < m; i += MC) {
            const int64_t rows = AF_MIN((int64_t)MC, m - i);
            pack_a(t, w, m0 + i, rows, k, kc);
            multiply(t, w, m0 + i, rows, n, cols, padded, s == 0, staged ? w->c + i * NC : NULL);
        }
    }
    if (staged)
        AF_ISA_NAME(af_gemm_store)(t->g, w->c, NC, m0, m, n, cols, true);
}

/* Rows [m0, m1) and columns [n0, n1) of C. */
static void region(const task *t, const buffers *w, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
{
    const bool staged = t->g->c_dtype != AF_DTYPE_F32 && steps_of(t) > 1;
    const int64_t rows = staged ? MS : AF_MAX(m1 - m0, INT64_C(1));
    for (int64_t n = n0; n < n1; n += NC)
        for (int64_t m = m0; m < m1; m += rows)
            block(t, w, m, AF_MIN(rows, m1 - m), n, AF_MIN((int64_t)NC, n1 - n), staged);
}

static int64_t split_unit(const task *t)
{
    if (t->by_rows)
        return t->bf16 ? BM : MR;
    return t->bf16 ? BN : NR;
}

static void run_share(void *arg, int64_t from, int64_t to, int share)
{
    const task *t = arg;
    const af_gemm *g = t->g;
    const buffers w = split_work(t->work, share);
    const int64_t unit = split_unit(t);
#if defined(AF_BF16_TILE)
    if (t->bf16)
        AF_ISA_NAME(af_tile_begin)();
#endif
    if (t->by_rows)
        region(t, &w, from * unit, AF_MIN(to * unit, g->M), 0, g->N);
    else
        region(t, &w, 0, g->M, from * unit, AF_MIN(to * unit, g->N));
#if defined(AF_BF16_TILE)
    if (t->bf16)
        AF_ISA_NAME(af_tile_end)();
#endif
}

/* No products: alpha * 0 (+ C) + bias. */
static void store_nothing(const af_gemm *g)
{
    static const float zeros[NC];
    for (int64_t n = 0; n < g->N; n += NC)
        AF_ISA_NAME(af_gemm_store)(g, zeros, 0, 0, g->M, n, AF_MIN((int64_t)NC, g->N - n), true);
}

void AF_ISA_NAME(af_gemm_run)(const af_gemm *g, af_pool *pool, void *work)
{
    task t = {.g = g, .work = work};
    if (g->M <= 0 || g->N <= 0)
        return;
    if (g->K <= 0) {
        store_nothing(g);
        return;
    }
    if (AF_ISA_NAME(af_thin_serves)(g)) {
        AF_ISA_NAME(af_thin_run)(g, pool, work);
        return;
    }
#if defined(AF_BF16_TILE)
    t.bf16 = g->a.dtype == AF_DTYPE_BF16 && !g->a.weight;
    t.split = t.bf16 && g->exact && (g->b.weight || g->b.dtype != AF_DTYPE_BF16);
#endif
    /* the operand that every thread packs for itself should be the cheap one */
    t.by_rows = g->M > (g->b.weight ? 4 * g->N : g->N);
    const int64_t unit = split_unit(&t), size = t.by_rows ? g->M : g->N;
    af_pool_run(pool, (size + unit - 1) / unit, run_share, &t);
}
