/* isa_arm.h - what the two NEON builds share. */
#ifndef AF_ISA_ARM_H
#define AF_ISA_ARM_H

#include <arm_neon.h>

enum { VL = 4, MR = 8, NV = 3 };
enum { LOWRANK_ROWS = 5, LOWRANK_VECS = 4, LOWRANK_NEAR = 8192 };
enum { TRANSPOSE_LINES = 4, PACK_PIECE = 640 };
#include "cpu/isa/isa_vec.h"

#define AF_OWN_F16
AF_INLINE float af_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}
AF_INLINE vec af_f16_widen(const uint16_t *p)
{
    return (vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static const bool af_has_f16 = true;

#define AF_OWN_BYTES
AF_INLINE af_i8v af_lookup16(af_i8v table, af_u8v code)
{
    return (af_i8v)vqtbl1q_s8((int8x16_t)table, (uint8x16_t)code);
}
AF_INLINE void af_widen16(af_i8v q, vec out[PER16])
{
    const int16x8_t a = vmovl_s8(vget_low_s8((int8x16_t)q)), b = vmovl_high_s8((int8x16_t)q);
    out[0] = (vec)vcvtq_f32_s32(vmovl_s16(vget_low_s16(a)));
    out[1] = (vec)vcvtq_f32_s32(vmovl_high_s16(a));
    out[2] = (vec)vcvtq_f32_s32(vmovl_s16(vget_low_s16(b)));
    out[3] = (vec)vcvtq_f32_s32(vmovl_high_s16(b));
}

#define AF_OWN_RECIPROCAL
/* A division takes longer than everything around it: an estimate and Newton's rule. */
AF_INLINE vec af_reciprocal(vec x)
{
    float32x4_t r = vrecpeq_f32((float32x4_t)x);
    r = vmulq_f32(r, vrecpsq_f32((float32x4_t)x, r));
    return (vec)vmulq_f32(r, vrecpsq_f32((float32x4_t)x, r));
}

#define AF_OWN_CLAMP
AF_INLINE vec af_vec_clamp(vec x, vec low, vec high)
{
    return (vec)vmaxq_f32(vminq_f32((float32x4_t)x, (float32x4_t)high), (float32x4_t)low);
}

#define AF_OWN_LANE
enum { AF_K_LANES = 4 };
AF_INLINE vec af_load_lanes(const float *p) { return *(const vec *)p; }
/* The instruction has the lane in it: loops over lanes are unrolled, and one case is left. */
AF_INLINE vec af_fma_lane(vec acc, vec w, vec f, int lane)
{
    switch (lane) {
    case 0:
        return vfmaq_laneq_f32(acc, w, f, 0);
    case 1:
        return vfmaq_laneq_f32(acc, w, f, 1);
    case 2:
        return vfmaq_laneq_f32(acc, w, f, 2);
    default:
        return vfmaq_laneq_f32(acc, w, f, 3);
    }
}
#endif
