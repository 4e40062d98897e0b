/* neon_planes.h - activations as planes of bytes, for the files that multiply the blocks of a
 * weight as integers: 32 activations become 24-bit integers with one scale, cut into three planes
 * of signed bytes (x = s * (65536 hi + 256 mid + lo)), so that nothing is lost against f32 (the
 * largest of the 32 keeps 23 bits) and sums of products are exact.
 *
 * A file defines, before it includes this, where eight bytes of the two upper planes lie:
 *   enum { STEP, HI }: mid at STEP i, hi at HI + STEP i, i < 4 */
#ifndef AF_NEON_PLANES_H
#define AF_NEON_PLANES_H

#include "cpu/gemm/gemm_blocks.h"

#include <math.h>

enum { PLANES = 96, LO = 64 }; /* bytes of 32 activations; lo at LO + 8 i */

/* Eight integers as signed digits: lo and mid are the low bytes as they are, what they are too
 * small or too large by goes into the next. */
AF_INLINE void digits(int8_t *lo, int8_t *mid, int8_t *hi, int32x4_t a, int32x4_t b)
{
    int8x8_t digit[3];
    for (int i = 0; i < 3; i++) {
        const int16x8_t low = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
        digit[i] = vmovn_s16(low);
        const int16x8_t back = vmovl_s8(digit[i]);
        a = vshrq_n_s32(vsubw_s16(a, vget_low_s16(back)), 8);
        b = vshrq_n_s32(vsubw_s16(b, vget_high_s16(back)), 8);
    }
    vst1_s8(lo, digit[0]);
    vst1_s8(mid, digit[1]);
    vst1_s8(hi, digit[2]);
}

/* The planes of 32 numbers; their scale. */
static float cut(int8_t *p, const float *x)
{
    const float top = 8355000; /* three signed digits reach 0x7f7f7f, and rounding needs a margin */
    float32x4_t v[8], most4 = vdupq_n_f32(0), all4 = most4;
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        most4 = vmaxq_f32(most4, vabsq_f32(v[i]));
        all4 = vaddq_f32(all4, vabsq_f32(v[i]));
    }
    const float most = vmaxvq_f32(most4), all = vaddvq_f32(all4);
    const float by = most > 0 ? top / most : 0;
    if (!(all < INFINITY) || !(by < INFINITY)) { /* the scale tells: not a number, or nothing */
        memset(p, 0, PLANES);
        return all < INFINITY ? 0 : NAN;
    }
    for (int i = 0; i < 4; i++)
        digits(p + LO + 8 * i, p + STEP * i, p + HI + STEP * i,
               vcvtnq_s32_f32(vmulq_n_f32(v[2 * i], by)),
               vcvtnq_s32_f32(vmulq_n_f32(v[2 * i + 1], by)));
    return most / top;
}

uint64_t AF_ISA_NAME(af_block_work)(int64_t K)
{
    return (uint64_t)(AF_BLOCK_ROWS * (K / AF_BLOCK)) * (5 * sizeof(float) + PLANES);
}

void AF_ISA_NAME(af_block_prepare)(af_block_x *out, const float *x, int64_t M, int64_t K,
                                   void *work)
{
    const int64_t blocks = K / AF_BLOCK;
    float *sums = work, *scale = sums + AF_BLOCK_ROWS * blocks;
    int8_t *planes = (int8_t *)(scale + 4 * AF_BLOCK_ROWS * blocks);
    assert(M <= AF_BLOCK_ROWS);
    for (int64_t k = 0; k < M * blocks; k++) {
        sums[k] = 0;
        for (int i = 0; i < AF_BLOCK; i++)
            sums[k] += x[k * AF_BLOCK + i];
        const float by = cut(planes + k * PLANES, x + k * AF_BLOCK);
        memcpy(scale + 4 * k, (float[]){by, 65536 * by, by, 65536 * by}, 4 * sizeof by);
    }
    *out = (af_block_x){.x = x, .sums = sums, .scale = scale, .planes = planes, .M = M, .K = K};
}
#endif
