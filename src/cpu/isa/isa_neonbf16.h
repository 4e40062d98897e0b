/* isa_neonbf16.h - Armv8.6: the matrix instructions for bf16 and int8. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/features.h"
#include "cpu/isa/isa_arm.h"

#define AF_OWN_BF16_ROUND
AF_INLINE int64_t af_bf16_vecs(uint16_t *dst, const float *src, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1_u16(dst + i, vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(src + i))));
    return i;
}
#define AF_ISA_BF16_KERNEL  &AF_ISA_NAME(af_gemm_bf16)
#define AF_ISA_SMALL        AF_ISA_NAME(af_gemm_small_run)
#define AF_ISA_LOWRANK_BF16 NULL /* the packed GEMM is faster */
#define AF_ISA_ROUNDS       true
#include "cpu/isa/isa_generic.h"

#define AF_ISA_LABEL "neon+bf16"
static inline bool af_isa_usable(void) { return af_cpu_has_bf16(); }

#endif
