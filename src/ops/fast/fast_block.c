/* fast_block.c - a few rows of activations times pairs of rows of GGUF blocks.
 *
 * With i8mm the products are of integers and exact: 32 activations become 24-bit integers with one
 * scale, cut into three planes of signed bytes (x = s * (65536 hi + 256 mid + lo)), so that nothing
 * is lost against f32 (the largest of the 32 keeps 23 bits). One SMMLA multiplies two weight rows
 * with two planes. Elsewhere the codes are widened to f32 in registers.
 *
 * A row's sum is the same whatever row it is paired with. */
#include "ops/fast/fast_block.h"

enum { PLANES = 96 }; /* bytes of 32 activations: 4 x (8 mid, 8 hi), then 32 lo */

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define INTEGER 1
#endif

static const af_dtype served[] = {AF_DTYPE_Q8_0, AF_DTYPE_Q4_0,   AF_DTYPE_Q4_1,  AF_DTYPE_Q5_0,
                                  AF_DTYPE_Q5_1, AF_DTYPE_Q3_K,   AF_DTYPE_Q4_K,  AF_DTYPE_Q5_K,
                                  AF_DTYPE_Q6_K, AF_DTYPE_IQ4_NL, AF_DTYPE_IQ4_XS};

bool AF_ISA_NAME(af_block_serves)(af_dtype type, int64_t K)
{
    for (size_t i = 0; i < AF_LEN(served); i++)
        if (served[i] == type)
            return K % af_dtype_get(type)->elems == 0;
    return false;
}

uint64_t AF_ISA_NAME(af_block_work)(int64_t K)
{
    return (uint64_t)(AF_BLOCK_ROWS * (K / AF_BLOCK)) * (2 * sizeof(float) + PLANES);
}

#if defined(INTEGER)
/* Signed digits: lo and mid are the low bytes as they are, what they are too small or too large by
 * goes into the next. */
static float cut(int8_t *p, const float *x)
{
    const float top = 8355000; /* three signed digits reach 0x7f7f7f, and rounding needs room */
    float most = 0, all = 0;
    for (int i = 0; i < AF_BLOCK; i++) {
        all += fabsf(x[i]);
        most = AF_MAX(most, fabsf(x[i]));
    }
    const float by = most > 0 ? top / most : 0;
    if (!(all < INFINITY) || !(by < INFINITY)) { /* the scale tells: not a number, or nothing */
        memset(p, 0, PLANES);
        return all < INFINITY ? 0 : NAN;
    }
    for (int i = 0; i < AF_BLOCK; i++) {
        const int32_t v = (int32_t)lrintf(x[i] * by), lo = (int8_t)v, w = (v - lo) >> 8,
                      mid = (int8_t)w;
        p[16 * (i / 8) + i % 8] = (int8_t)mid;
        p[16 * (i / 8) + 8 + i % 8] = (int8_t)((w - mid) >> 8);
        p[64 + i] = (int8_t)lo;
    }
    return most / top;
}
#endif

void AF_ISA_NAME(af_block_prepare)(af_block_x *out, const float *x, int64_t M, int64_t K,
                                   void *work)
{
    const int64_t blocks = K / AF_BLOCK;
    float *sums = work, *scale = sums + AF_BLOCK_ROWS * blocks;
    int8_t *planes = (int8_t *)(scale + AF_BLOCK_ROWS * blocks);
    assert(M <= AF_BLOCK_ROWS);
    for (int64_t k = 0; k < M * blocks; k++) {
        float s = 0;
        for (int i = 0; i < AF_BLOCK; i++)
            s += x[k * AF_BLOCK + i];
        sums[k] = s;
#if defined(INTEGER)
        scale[k] = cut(planes + k * PLANES, x + k * AF_BLOCK);
#endif
    }
    *out = (af_block_x){.x = x, .sums = sums, .scale = scale, .planes = planes, .M = M, .K = K};
}

/* ---- one pair ---- */

#if defined(INTEGER)

/* Two rows of 16 codes as two matrices of 2 x 8. */
typedef struct rows16 {
    int8x16_t first, second;
} rows16;

AF_INLINE rows16 beside(af_i8v a, af_i8v b)
{
    const int64x2_t x = (int64x2_t)a, y = (int64x2_t)b;
    return (rows16){(int8x16_t)vzip1q_s64(x, y), (int8x16_t)vzip2q_s64(x, y)};
}

/* [row 0: mid * 256 + lo, hi; row 1: the same] over 16 elements of both */
AF_INLINE int32x4_t products(int32x4_t s, rows16 w, const int8_t *p, const int8_t *lo)
{
    const int8x8_t none = vdup_n_s8(0);
    int32x4_t t = vdupq_n_s32(0);
    s = vmmlaq_s32(s, w.first, vld1q_s8(p));
    t = vmmlaq_s32(t, w.first, vcombine_s8(vld1_s8(lo), none));
    s = vmmlaq_s32(s, w.second, vld1q_s8(p + 16));
    t = vmmlaq_s32(t, w.second, vcombine_s8(vld1_s8(lo + 8), none));
    return vmlaq_s32(t, s, (int32x4_t){256, 1, 256, 1});
}

AF_INLINE float32x4_t scale_of(float a, float b)
{
    return vcombine_f32(vmul_n_f32((float32x2_t){1, 65536}, a),
                        vmul_n_f32((float32x2_t){1, 65536}, b));
}

AF_INLINE void pair(const af_block_x *x, af_dtype type, int64_t M, const uint8_t *w0,
                    const uint8_t *w1, float *out)
{
    const int groups = af_groups(type), bytes = af_block_bytes(type);
    const int64_t blocks = x->K / AF_BLOCK;
    float32x4_t total[AF_BLOCK_ROWS];
    float32x2_t rest[AF_BLOCK_ROWS];
    for (int64_t m = 0; m < M; m++) {
        total[m] = vdupq_n_f32(0);
        rest[m] = vdup_n_f32(0);
    }
    const int64_t next = 2 * (w1 - w0); /* where the next pair lies: one line ahead of need */
    for (int64_t k = 0; k < blocks; w0 += bytes, w1 += bytes) {
        float d0[16], d1[16], m0[8], m1[8];
        __builtin_prefetch(w0 + next);
        __builtin_prefetch(w1 + next);
        af_scales(type, w0, d0, m0);
        af_scales(type, w1, d1, m1);
        for (int j = 0; j < groups; j++, k++) {
            af_i8v a0, a1, b0, b1;
            af_codes(type, w0, j, &a0, &a1);
            af_codes(type, w1, j, &b0, &b1);
            const rows16 lo = beside(a0, b0), hi = beside(a1, b1);
            const float32x4_t d = scale_of(d0[2 * j], d1[2 * j]);
            for (int64_t m = 0; m < M; m++) {
                const int8_t *p = x->planes + (m * blocks + k) * PLANES;
                const float s = x->scale[m * blocks + k];
                if (af_by_16(type)) {
                    const float32x4_t e = scale_of(d0[2 * j + 1], d1[2 * j + 1]);
                    const float32x4_t u = vcvtq_f32_s32(products(vdupq_n_s32(0), lo, p, p + 64));
                    const float32x4_t v =
                        vcvtq_f32_s32(products(vdupq_n_s32(0), hi, p + 32, p + 80));
                    total[m] = vfmaq_n_f32(total[m], vfmaq_f32(vmulq_f32(u, d), v, e), s);
                    continue;
                }
                int32x4_t u = products(vdupq_n_s32(0), lo, p, p + 64);
                u = vaddq_s32(u, products(vdupq_n_s32(0), hi, p + 32, p + 80));
                total[m] = vfmaq_f32(total[m], vcvtq_f32_s32(u), vmulq_n_f32(d, s));
                if (af_has_offset(type))
                    rest[m] =
                        vfma_n_f32(rest[m], (float32x2_t){m0[j], m1[j]}, x->sums[m * blocks + k]);
            }
        }
    }
    for (int64_t m = 0; m < M; m++) {
        const float32x2_t t = vpadd_f32(vget_low_f32(total[m]), vget_high_f32(total[m]));
        vst1_f32(out + 2 * m, vadd_f32(t, rest[m]));
    }
}
#else

/* Sixteen codes as vectors of f32. */
enum { PER16 = VL < 16 ? 16 / VL : 1 };

AF_INLINE void widen(af_i8v q, vec out[PER16])
{
#if defined(__AVX512F__)
    out[0] = (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)q));
#elif defined(__AVX2__)
    out[0] = (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32((__m128i)q));
    out[1] = (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128((__m128i)q, 8)));
#elif defined(__ARM_NEON)
    const int16x8_t a = vmovl_s8(vget_low_s8((int8x16_t)q)), b = vmovl_high_s8((int8x16_t)q);
    out[0] = (vec)vcvtq_f32_s32(vmovl_s16(vget_low_s16(a)));
    out[1] = (vec)vcvtq_f32_s32(vmovl_high_s16(a));
    out[2] = (vec)vcvtq_f32_s32(vmovl_s16(vget_low_s16(b)));
    out[3] = (vec)vcvtq_f32_s32(vmovl_high_s16(b));
#else
    for (int i = 0; i < 16; i++)
        out[i / VL][i % VL] = (float)q[i];
#endif
}

AF_INLINE vec products(const vec w[PER16], const float *x)
{
    vec s = w[0] * *(const vec *)x;
    for (int i = 1; i < PER16; i++)
        s += w[i] * *(const vec *)(x + i * VL);
    return s;
}

AF_INLINE float lanes(vec v)
{
    float s = 0;
    for (int i = 0; i < VL; i++)
        s += v[i];
    return s;
}

AF_INLINE void one(const af_block_x *x, af_dtype type, int64_t M, const uint8_t *w, float *out)
{
    const int groups = af_groups(type), bytes = af_block_bytes(type);
    const int64_t blocks = x->K / AF_BLOCK;
    vec total[AF_BLOCK_ROWS] = {0};
    float rest[AF_BLOCK_ROWS] = {0};
    for (int64_t k = 0; k < blocks; w += bytes) {
        float d[16], o[8];
        af_scales(type, w, d, o);
        for (int j = 0; j < groups; j++, k++) {
            af_i8v q, r;
            vec lo[PER16], hi[PER16];
            af_codes(type, w, j, &q, &r);
            widen(q, lo);
            widen(r, hi);
            for (int64_t m = 0; m < M; m++) {
                const float *a = x->x + m * x->K + k * AF_BLOCK;
                if (af_by_16(type))
                    total[m] += products(lo, a) * d[2 * j] + products(hi, a + 16) * d[2 * j + 1];
                else
                    total[m] += (products(lo, a) + products(hi, a + 16)) * d[2 * j];
                if (af_has_offset(type))
                    rest[m] += o[j] * x->sums[m * blocks + k];
            }
        }
    }
    for (int64_t m = 0; m < M; m++)
        out[2 * m] = lanes(total[m]) + rest[m];
}

AF_INLINE void pair(const af_block_x *x, af_dtype type, int64_t M, const uint8_t *w0,
                    const uint8_t *w1, float *out)
{
    one(x, type, M, w0, out);
    one(x, type, M, w1, out + 1);
}
#endif

AF_INLINE void all(const af_block_x *x, af_dtype type, int64_t M, const uint8_t *w, int64_t rows,
                   float *out, int64_t ldo)
{
    const int64_t bytes = x->K / (AF_BLOCK * af_groups(type)) * af_block_bytes(type);
    for (int64_t n = 0; n < rows; n += 2, w += 2 * bytes) {
        float s[2 * AF_BLOCK_ROWS];
        const bool two = n + 1 < rows;
        pair(x, type, M, w, two ? w + bytes : w, s);
        for (int64_t m = 0; m < M; m++) {
            out[m * ldo + n] = s[2 * m];
            if (two)
                out[m * ldo + n + 1] = s[2 * m + 1];
        }
    }
}

/* The type and the single row are constants of the loops. */
#define CASE(T)                                                                                    \
    case T:                                                                                        \
        if (x->M == 1)                                                                             \
            all(x, T, 1, w, rows, out, ldo);                                                       \
        else                                                                                       \
            all(x, T, x->M, w, rows, out, ldo);                                                    \
        return

void AF_ISA_NAME(af_block_rows)(const af_block_x *x, af_dtype type, const uint8_t *w, int64_t rows,
                                float *out, int64_t ldo)
{
    switch (type) {
        CASE(AF_DTYPE_Q8_0);
        CASE(AF_DTYPE_Q4_0);
        CASE(AF_DTYPE_Q4_1);
        CASE(AF_DTYPE_Q5_0);
        CASE(AF_DTYPE_Q5_1);
        CASE(AF_DTYPE_Q3_K);
        CASE(AF_DTYPE_Q4_K);
        CASE(AF_DTYPE_Q5_K);
        CASE(AF_DTYPE_Q6_K);
        CASE(AF_DTYPE_IQ4_NL);
        CASE(AF_DTYPE_IQ4_XS);
    default:
        assert(!"a type af_block_serves refused");
    }
}
