/* isa_neon.h - every aarch64. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/isa_arm.h"
#define AF_ISA_SMALL AF_ISA_NAME(af_gemm_small_run)
#include "cpu/isa/isa_generic.h"

#define AF_ISA_LABEL "neon"
static inline bool af_isa_usable(void) { return true; }

#endif
