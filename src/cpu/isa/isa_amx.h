/* isa_amx.h - AVX-512 with its dot products of bytes and its bf16 conversions, and the bf16 tiles
 * of AMX. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/features.h"
#include "cpu/isa/isa_512.h"

#define AF_ISA_BF16_KERNEL   &AF_ISA_NAME(af_gemm_bf16)
#define AF_ISA_PLANES_KERNEL &AF_ISA_NAME(af_gemm_planes)
#define AF_ISA_SMALL         AF_ISA_NAME(af_gemm_small_run)
#define AF_ISA_LOWRANK_BF16  &AF_ISA_NAME(af_lowrank)
#define AF_ISA_ATTENTION     &AF_ISA_NAME(af_attention)
#define AF_ISA_SUMS_AT_ONCE  af_amx_sums_at_once
#include "cpu/isa/isa_generic.h"

void af_amx_sums_at_once(int n);

#define AF_ISA_LABEL "avx512+amx"
static inline bool af_isa_usable(void)
{
    return af_cpu_has_amx() && af_has_avx512() && af_has_avx512_vnni();
}

#endif
