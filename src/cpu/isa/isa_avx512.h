/* isa_avx512.h - AVX-512 F, BW, VL and DQ. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/isa_512.h"
#define AF_ISA_SMALL AF_ISA_NAME(af_gemm_small_run)
#include "cpu/isa/isa_generic.h"

#define AF_ISA_LABEL "avx512"
static inline bool af_isa_usable(void) { return af_has_avx512(); }

#endif
