/* fast_thin.c - products of one to four rows: each output column is a dot product with one stored
 * row of B, which is read once and never packed. This is what generation runs on; it is bound by
 * memory, so the common weight types are decoded in registers, the others a piece at a time into a
 * buffer that stays in the first cache.
 *
 * A column is always one sum over the whole of K in a fixed order, whoever computes it. */
#include "ops/fast/isa.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum { PIECE = 1024, K_MAX = 1 << 15, QBLOCK = 32 };

/* sixteen numbers at once, whatever the width of the registers */
typedef float f16v __attribute__((vector_size(64), aligned(4), may_alias));
typedef int8_t i8v __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t u8v __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t h16v __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t w16v __attribute__((vector_size(64), aligned(4), may_alias));

typedef struct task {
    const af_gemm *g;
    const float *a;    /* [M][K] as f32 */
    const float *sums; /* [M][K/32]: sums of its blocks */
    float *buf;        /* [threads][PIECE] */
} task;

uint64_t AF_ISA_NAME(af_thin_work)(int threads)
{
    return (AF_THIN_ROWS * (K_MAX + K_MAX / QBLOCK) + (uint64_t)threads * PIECE) * sizeof(float);
}

bool AF_ISA_NAME(af_thin_serves)(const af_gemm *g)
{
    return g->M <= AF_THIN_ROWS && g->b.trans && !g->a.trans && !g->a.weight && g->K <= K_MAX;
}

#if !defined(__ARM_NEON)
static float lanes(f16v v)
{
    float s = 0;
    for (int i = 0; i < 16; i++)
        s += v[i];
    return s;
}
#endif

static float dot_f32(const float *restrict a, const float *restrict b, int64_t n)
{
    vec s[4] = {0};
    int64_t k = 0;
    for (; k + 4 * VL <= n; k += 4 * VL)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            s[u] += *(const vec *)(a + k + u * VL) * *(const vec *)(b + k + u * VL);
    const vec sum = (s[0] + s[1]) + (s[2] + s[3]);
    float t = 0;
    for (int i = 0; i < VL; i++)
        t += sum[i];
    for (; k < n; k++)
        t += a[k] * b[k];
    return t;
}

static float dot_bf16(const float *restrict a, const uint16_t *restrict b, int64_t n)
{
    int64_t k = 0;
#if defined(__ARM_NEON)
    float32x4_t s[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    for (; k + 16 <= n; k += 16)
#pragma GCC unroll 2
        for (int u = 0; u < 2; u++) {
            const uint16x8_t h = vld1q_u16(b + k + 8 * u);
            const float32x4_t x = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                              y = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(h), 16));
            s[2 * u] = vfmaq_f32(s[2 * u], x, vld1q_f32(a + k + 8 * u));
            s[2 * u + 1] = vfmaq_f32(s[2 * u + 1], y, vld1q_f32(a + k + 8 * u + 4));
        }
    float t = vaddvq_f32(vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3])));
#else
    f16v s = {0};
    for (; k + 16 <= n; k += 16) {
        const w16v w = __builtin_convertvector(*(const h16v *)(b + k), w16v) << 16;
        s += *(const f16v *)(a + k) * (f16v)w;
    }
    float t = lanes(s);
#endif
    for (; k < n; k++) {
        const uint32_t u = (uint32_t)b[k] << 16;
        float x;
        memcpy(&x, &u, 4);
        t += a[k] * x;
    }
    return t;
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return af_f32_from_f16(h);
}

#if defined(__ARM_NEON)
/* s += the sixteen numbers of q times a */
static inline void fma_i8(float32x4_t s[4], const float *a, int8x16_t q)
{
    const int16x8_t lo = vmovl_s8(vget_low_s8(q)), hi = vmovl_s8(vget_high_s8(q));
    s[0] = vfmaq_f32(s[0], vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vld1q_f32(a));
    s[1] = vfmaq_f32(s[1], vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo))), vld1q_f32(a + 4));
    s[2] = vfmaq_f32(s[2], vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vld1q_f32(a + 8));
    s[3] = vfmaq_f32(s[3], vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi))), vld1q_f32(a + 12));
}

/* sum of 32 products of a with the integers of a block, lane by lane */
static inline float32x4_t block_sum(const float *a, int8x16_t lo, int8x16_t hi)
{
    float32x4_t s[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    fma_i8(s, a, lo);
    fma_i8(s, a + 16, hi);
    return vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3]));
}

static float dot_block(af_dtype type, const float *a, const float *sums, const uint8_t *b,
                       int64_t n)
{
    float32x4_t total = vdupq_n_f32(0);
    float rest = 0;
    for (int64_t k = 0; k < n / QBLOCK; k++, a += QBLOCK) {
        if (type == AF_DTYPE_Q8_0) {
            const int8x16_t lo = vld1q_s8((const int8_t *)b + 2),
                            hi = vld1q_s8((const int8_t *)b + 18);
            total = vfmaq_n_f32(total, block_sum(a, lo, hi), half_at(b));
            b += 34;
            continue;
        }
        const bool offset = type == AF_DTYPE_Q4_1;
        const uint8x16_t q = vld1q_u8(b + (offset ? 4 : 2));
        const int8x16_t lo = vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15))),
                        hi = vreinterpretq_s8_u8(vshrq_n_u8(q, 4));
        const float d = half_at(b);
        total = vfmaq_n_f32(total, block_sum(a, lo, hi), d);
        rest += (offset ? half_at(b + 2) : -8 * d) * sums[k];
        b += offset ? 20 : 18;
    }
    return vaddvq_f32(total) + rest;
}
#else
static float dot_block(af_dtype type, const float *a, const float *sums, const uint8_t *b,
                       int64_t n)
{
    f16v total = {0};
    float rest = 0;
    for (int64_t k = 0; k < n / QBLOCK; k++, a += QBLOCK) {
        const f16v x = *(const f16v *)a, y = *(const f16v *)(a + 16);
        const float d = half_at(b);
        if (type == AF_DTYPE_Q8_0) {
            total += (__builtin_convertvector(*(const i8v *)(b + 2), f16v) * x +
                      __builtin_convertvector(*(const i8v *)(b + 18), f16v) * y) *
                     d;
            b += 34;
            continue;
        }
        const bool offset = type == AF_DTYPE_Q4_1;
        const u8v q = *(const u8v *)(b + (offset ? 4 : 2));
        total += (__builtin_convertvector(q & 15, f16v) * x +
                  __builtin_convertvector(q >> 4, f16v) * y) *
                 d;
        rest += (offset ? half_at(b + 2) : -8 * d) * sums[k];
        b += offset ? 20 : 18;
    }
    return lanes(total) + rest;
}
#endif

static bool in_registers(const af_operand *b)
{
    const af_dtype t = b->weight ? b->weight->dtype : b->dtype;
    return (t == AF_DTYPE_Q8_0 || t == AF_DTYPE_Q4_0 || t == AF_DTYPE_Q4_1) && b->ld % QBLOCK == 0;
}

/* Row m of A times stored row n of B. */
static float column(const task *t, int64_t m, int64_t n, float *buf)
{
    const af_gemm *g = t->g;
    const float *a = t->a + m * g->K;
    if (in_registers(&g->b)) {
        const af_dtype_info *info = af_dtype_get(g->b.weight->dtype);
        const uint8_t *b =
            (const uint8_t *)g->b.weight->data + n * g->b.ld / info->elems * info->bytes;
        return dot_block(g->b.weight->dtype, a, t->sums + m * (g->K / QBLOCK), b, g->K);
    }
    if (!g->b.weight && g->b.dtype == AF_DTYPE_BF16)
        return dot_bf16(a, (const uint16_t *)g->b.data + n * g->b.ld, g->K);
    if (!g->b.weight && g->b.dtype == AF_DTYPE_F32)
        return dot_f32(a, (const float *)g->b.data + n * g->b.ld, g->K);
    float s = 0;
    for (int64_t k = 0; k < g->K; k += PIECE) {
        const int64_t kc = AF_MIN((int64_t)PIECE, g->K - k);
        if (m == 0 || g->K > PIECE) /* one decoded piece serves every row */
            AF_ISA_NAME(af_stored_row)(&g->b, n, k, kc, buf);
        s += dot_f32(a + k, buf, kc);
    }
    return s;
}

static void columns(void *arg, int64_t from, int64_t to, int share)
{
    const task *t = arg;
    float *buf = t->buf + (int64_t)share * PIECE;
    for (int64_t n = from; n < to; n++)
        for (int64_t m = 0; m < t->g->M; m++) {
            const float s = column(t, m, n, buf);
            AF_ISA_NAME(af_gemm_store)(t->g, &s, 1, m, 1, n, 1, true);
        }
}

void AF_ISA_NAME(af_thin_run)(const af_gemm *g, af_pool *pool, void *work)
{
    float *a = work, *sums = a + AF_THIN_ROWS * K_MAX;
    for (int64_t m = 0; m < g->M; m++) {
        const float *x = AF_ISA_NAME(af_stored_row)(&g->a, m, 0, g->K, a + m * g->K);
        if (x != a + m * g->K)
            memcpy(a + m * g->K, x, (size_t)g->K * sizeof *a);
        for (int64_t k = 0; in_registers(&g->b) && k < g->K / QBLOCK; k++) {
            float s = 0;
            for (int i = 0; i < QBLOCK; i++)
                s += a[m * g->K + k * QBLOCK + i];
            sums[m * (g->K / QBLOCK) + k] = s;
        }
    }
    task t = {.g = g, .a = a, .sums = sums, .buf = sums + AF_THIN_ROWS * (K_MAX / QBLOCK)};
    af_pool_run(pool, g->N, columns, &t);
}
