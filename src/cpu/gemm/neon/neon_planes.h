/* neon_planes.h - activations as planes of bytes, for the files that multiply the blocks of a
 * weight as integers: 32 activations become 24-bit integers with one scale, cut into three planes
 * of signed bytes (x = s * (65536 digit[2] + 256 digit[1] + digit[0])), so that nothing is lost
 * against f32 (the largest of the 32 keeps 23 bits) and sums of products are exact. Rounded ones
 * are bytes with one scale.
 *
 * A file defines, before it includes this, where eight digits of each plane go:
 *   put_digits(p, i, digit, planes), i < 4 */
#ifndef AF_NEON_PLANES_H
#define AF_NEON_PLANES_H

#include "cpu/gemm/gemm_blocks.h"

#include <math.h>

/* Bytes of 32 activations. */
AF_INLINE int plane_bytes(bool rounded) { return AF_BLOCK * (rounded ? 1 : AF_PLANES); }

/* Eight integers as signed digits: the lower ones are the low bytes as they are, what they are too
 * small or too large by goes into the next. */
AF_INLINE void digits(int8x8_t digit[AF_PLANES], int32x4_t a, int32x4_t b, int planes)
{
    for (int i = 0; i < planes; i++) {
        const int16x8_t low = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
        digit[i] = vmovn_s16(low);
        const int16x8_t back = vmovl_s8(digit[i]);
        a = vshrq_n_s32(vsubw_s16(a, vget_low_s16(back)), 8);
        b = vshrq_n_s32(vsubw_s16(b, vget_high_s16(back)), 8);
    }
}

/* The planes of 32 numbers; their scale. */
static float cut(int8_t *p, const float *x, bool rounded)
{
    /* signed digits reach 0x7f7f7f or 0x7f, and rounding needs a margin */
    const float top = rounded ? 127 : 8355000;
    float32x4_t v[8], most4 = vdupq_n_f32(0), all4 = most4;
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        most4 = vmaxq_f32(most4, vabsq_f32(v[i]));
        all4 = vaddq_f32(all4, vabsq_f32(v[i]));
    }
    const float most = vmaxvq_f32(most4), all = vaddvq_f32(all4);
    const float by = most > 0 ? top / most : 0;
    if (!(all < INFINITY) || !(by < INFINITY)) { /* the scale tells: not a number, or nothing */
        memset(p, 0, (size_t)plane_bytes(rounded));
        return all < INFINITY ? 0 : NAN;
    }
    for (int i = 0; i < 4; i++) {
        int8x8_t digit[AF_PLANES];
        digits(digit, vcvtnq_s32_f32(vmulq_n_f32(v[2 * i], by)),
               vcvtnq_s32_f32(vmulq_n_f32(v[2 * i + 1], by)), rounded ? 1 : AF_PLANES);
        put_digits(p, i, digit, rounded);
    }
    return most / top;
}

uint64_t AF_ISA_NAME(af_block_work)(int64_t values)
{
    return (uint64_t)(values / AF_BLOCK) * (5 * sizeof(float) + AF_BLOCK * AF_PLANES);
}

void AF_ISA_NAME(af_block_prepare)(af_block_x *out, const float *x, int64_t M, int64_t K,
                                   bool rounded, void *work)
{
    const int64_t blocks = K / AF_BLOCK, bytes = plane_bytes(rounded);
    float *scale = work, *sums = scale + 4 * M * blocks;
    int8_t *planes = (int8_t *)(sums + M * blocks);
    assert(M <= AF_BLOCK_ROWS);
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < blocks; k++) {
            const int64_t to = k * M + m;
            const float *from = x + m * K + k * AF_BLOCK;
            float sum = 0;
            for (int i = 0; i < AF_BLOCK; i++)
                sum += from[i];
            sums[to] = sum;
            const float by = cut(planes + to * bytes, from, rounded), up = 65536 * by;
            memcpy(scale + 4 * to, (float[]){by, up, by, up}, 4 * sizeof by);
        }
    *out = (af_block_x){x, sums, scale, planes, M, K, rounded};
}
#endif
