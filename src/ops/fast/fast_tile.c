/* fast_tile.c - the tile of bf16 products, on machines that have a matrix instruction for it:
 * BFMMLA of Armv8.6. f32 sums. */
#include "ops/fast/isa.h"

#if defined(AF_ISA_neonbf16)
#include <arm_neon.h>

void AF_ISA_NAME(af_tile_begin)(void) {}
void AF_ISA_NAME(af_tile_end)(void) {}

/* Row pair i and column pair j of the sums is s[6*i+j]: {row 0, row 0, row 1, row 1}. */
void AF_ISA_NAME(af_tile_bf16)(int64_t kc, const uint16_t *restrict a, const uint16_t *restrict b,
                               float *restrict t)
{
    float32x4_t s[24];
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++)
        s[i] = vdupq_n_f32(0);
    for (int64_t k = 0; k < kc; k += 4, a += 32, b += 48) {
        const bfloat16x8_t p = vreinterpretq_bf16_u16(vld1q_u16(a)),
                           q = vreinterpretq_bf16_u16(vld1q_u16(a + 8)),
                           r = vreinterpretq_bf16_u16(vld1q_u16(a + 16)),
                           u = vreinterpretq_bf16_u16(vld1q_u16(a + 24));
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            const bfloat16x8_t y = vreinterpretq_bf16_u16(vld1q_u16(b + 8 * j));
            s[j] = vbfmmlaq_f32(s[j], p, y);
            s[6 + j] = vbfmmlaq_f32(s[6 + j], q, y);
            s[12 + j] = vbfmmlaq_f32(s[12 + j], r, y);
            s[18 + j] = vbfmmlaq_f32(s[18 + j], u, y);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            vst1_f32(t + 2 * i * BN + 2 * j, vget_low_f32(s[6 * i + j]));
            vst1_f32(t + (2 * i + 1) * BN + 2 * j, vget_high_f32(s[6 * i + j]));
        }
}

#else
typedef int af_no_bf16_tile; /* a file must declare something */
#endif
