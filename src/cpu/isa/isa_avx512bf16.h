/* isa_avx512bf16.h - AVX-512 with dot products of bytes and of pairs of bf16, and its conversions
 * (AMD's Zen 4 and later). */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/features.h"
#include "cpu/isa/isa_512.h"

#define AF_OWN_PAIRS
/* acc + x0 y0 + x1 y1 for every 32 bits of x and y. Denormals count as zero. */
AF_INLINE vec af_fma_pairs(vec acc, vec x, vec y)
{
    __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y));
    return acc;
}
#define AF_ISA_BF16_KERNEL &AF_ISA_NAME(af_gemm_bf16)
#define AF_ISA_SMALL       AF_ISA_NAME(af_gemm_small_run)
#include "cpu/isa/isa_generic.h"

#define AF_ISA_LABEL "avx512+bf16"
static inline bool af_isa_usable(void)
{
    return af_cpu_has_fast_bf16_pairs() && af_has_avx512() && af_has_avx512_vnni();
}

#endif
