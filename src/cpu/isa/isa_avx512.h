/* isa_avx512.h - AVX-512 F, BW, VL and DQ; with dot products of bytes, only the loops over blocks
 * differ. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/isa_512.h"
#define AF_ISA_SMALL AF_ISA_NAME(af_gemm_small_run)
#include "cpu/isa/isa_generic.h"

#define AF_ISA_LABEL "avx512"
static inline bool af_isa_usable(void) { return af_has_avx512(); }

#define AF_ISA_ALSO       avx512vnni
#define AF_ISA_ALSO_LABEL "avx512+vnni"
static inline bool af_isa_also_usable(void) { return af_has_avx512() && af_has_avx512_vnni(); }

#endif
