/* neon_planes.h - planes of bytes with NEON. A file defines, before it includes this, where eight
 * digits of each plane go:
 *   put_digits(p, i, digit, planes), i < 4 */
#ifndef AF_NEON_PLANES_H
#define AF_NEON_PLANES_H

enum { STARTS = 0 }; /* sums begin at zero */
AF_INLINE void put_starts(int32_t *start, const int8_t *p, bool rounded)
{
    (void)start, (void)p, (void)rounded;
}
#include "cpu/gemm/gemm_planes.h"

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

static float cut(int8_t *p, const float *x, bool rounded)
{
    float32x4_t v[8], most4 = vdupq_n_f32(0), all4 = most4;
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        most4 = vmaxq_f32(most4, vabsq_f32(v[i]));
        all4 = vaddq_f32(all4, vabsq_f32(v[i]));
    }
    float by, scale;
    if (!has_planes(vmaxvq_f32(most4), vaddvq_f32(all4), rounded, &by, &scale)) {
        memset(p, 0, (size_t)plane_bytes(rounded));
        return scale;
    }
    for (int i = 0; i < 4; i++) {
        int8x8_t digit[AF_PLANES];
        digits(digit, vcvtnq_s32_f32(vmulq_n_f32(v[2 * i], by)),
               vcvtnq_s32_f32(vmulq_n_f32(v[2 * i + 1], by)), rounded ? 1 : AF_PLANES);
        put_digits(p, i, digit, rounded);
    }
    return scale;
}

uint64_t AF_ISA_NAME(af_block_work)(int64_t values) { return planes_work(values); }

void AF_ISA_NAME(af_block_prepare)(af_block_x *out, const float *x, int64_t M, int64_t K,
                                   bool rounded, void *work)
{
    prepare_planes(out, x, M, K, rounded, work);
}
#endif
