/* neonbf16_blocks.c - a few rows of activations times rows of GGUF blocks with the int8 matrix
 * instructions of Armv8.6: one SMMLA multiplies two weight rows with two planes of bytes of the
 * activations (neon_planes.h). */
#include "cpu/gemm/gemm_blocks.h"

/* 4 x (8 of the second plane, 8 of the third), then 32 of the first; 32 where there is one */
AF_INLINE void put_digits(int8_t *p, int i, const int8x8_t *digit, bool rounded)
{
    vst1_s8(p + (rounded ? 0 : 64) + 8 * i, digit[0]);
    if (!rounded) {
        vst1_s8(p + 16 * i, digit[1]);
        vst1_s8(p + 16 * i + 8, digit[2]);
    }
}
#include "cpu/gemm/neon/neon_planes.h"

enum { PAIRS = 2 }; /* of stored rows taken together, to read the activations once */

/* Two rows of 32 codes as four matrices of 2 x 8. */
typedef struct codes {
    int8x16_t at[4];
} codes;

AF_INLINE codes pair_codes(af_dtype type, const uint8_t *w0, const uint8_t *w1, int j)
{
    af_i8v a, b, c, d;
    af_codes(type, w0, j, &a, &b);
    af_codes(type, w1, j, &c, &d);
    return (codes){{(int8x16_t)vzip1q_s64((int64x2_t)a, (int64x2_t)c),
                    (int8x16_t)vzip2q_s64((int64x2_t)a, (int64x2_t)c),
                    (int8x16_t)vzip1q_s64((int64x2_t)b, (int64x2_t)d),
                    (int8x16_t)vzip2q_s64((int64x2_t)b, (int64x2_t)d)}};
}

/* [row 0: mid * 256 + lo, hi; row 1: the same] over n of the four groups of 8, from the first;
 * rounded: [lo, 0; the same] */
AF_INLINE float32x4_t products(const codes *w, const int8_t *p, bool rounded, int from, int n)
{
    const int lo = rounded ? 0 : 64;
    int32x4_t s = vdupq_n_s32(0), t = s;
#pragma GCC unroll 4
    for (int i = from; i < from + n; i++) {
        t = vmmlaq_s32(t, w->at[i], vcombine_s8(vld1_s8(p + lo + 8 * i), vdup_n_s8(0)));
        if (!rounded)
            s = vmmlaq_s32(s, w->at[i], vld1q_s8(p + 16 * i));
    }
    return vcvtq_f32_s32(rounded ? t : vmlaq_s32(t, s, (int32x4_t){256, 1, 256, 1}));
}

AF_INLINE float32x4_t twice(float a, float b) { return (float32x4_t){a, a, b, b}; }

/* out [M] rows of ldo: 2 P stored rows, `bytes` apart. */
AF_INLINE void mul_rows(const af_block_x *x, af_dtype type, int64_t M, bool rounded, int P,
                        const uint8_t *w, int64_t bytes, float *out, int64_t ldo)
{
    const int groups = af_groups(type), size = (int)af_dtype_get(type)->bytes;
    const int64_t blocks = x->K / AF_BLOCK;
    const uint8_t *next = w + 2 * P * bytes; /* what is read next */
    float32x4_t total[AF_BLOCK_ROWS][PAIRS];
    float32x2_t rest[AF_BLOCK_ROWS][PAIRS];
    memset(total, 0, sizeof total);
    memset(rest, 0, sizeof rest);
    for (int64_t k = 0; k < blocks; w += size) {
        float d[2 * PAIRS][16], o[2 * PAIRS][8];
        for (int r = 0; r < 2 * P; r++)
            af_scales(type, w + r * bytes, d[r], o[r]);
        for (int i = 0; i < 2 * P * size; i += 64, next += 64)
            __builtin_prefetch(next);
        for (int j = 0; j < groups; j++, k++) {
            codes c[PAIRS];
            for (int q = 0; q < P; q++)
                c[q] = pair_codes(type, w + 2 * q * bytes, w + (2 * q + 1) * bytes, j);
            for (int64_t m = 0; m < M; m++) {
                const int8_t *p = x->planes + (k * M + m) * plane_bytes(rounded);
                const float32x4_t s = vld1q_f32(x->scale + (k * M + m) * 4);
#pragma GCC unroll 2
                for (int q = 0; q < P; q++) {
                    const float *d0 = d[2 * q] + 2 * j, *d1 = d[2 * q + 1] + 2 * j;
                    float32x4_t *t = &total[m][q];
                    if (af_by_16(type)) {
                        float32x4_t y =
                            vmulq_f32(products(&c[q], p, rounded, 0, 2), twice(d0[0], d1[0]));
                        y = vfmaq_f32(y, products(&c[q], p, rounded, 2, 2), twice(d0[1], d1[1]));
                        *t = vfmaq_f32(*t, y, s);
                    } else {
                        *t = vfmaq_f32(*t, products(&c[q], p, rounded, 0, 4),
                                       vmulq_f32(s, twice(d0[0], d1[0])));
                    }
                    if (af_has_offset(type))
                        rest[m][q] =
                            vfma_n_f32(rest[m][q], (float32x2_t){o[2 * q][j], o[2 * q + 1][j]},
                                       x->sums[k * M + m]);
                }
            }
        }
    }
    for (int64_t m = 0; m < M; m++)
        for (int q = 0; q < P; q++) {
            const float32x4_t t = total[m][q];
            vst1_f32(out + m * ldo + 2 * q,
                     vadd_f32(vpadd_f32(vget_low_f32(t), vget_high_f32(t)), rest[m][q]));
        }
}

#include "cpu/gemm/gemm_blocks_rows.h"
