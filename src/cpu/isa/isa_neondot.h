/* isa_neondot.h - Armv8.2 with the dot products of bytes. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/features.h"
#include "cpu/isa/isa_arm.h"
#define AF_ISA_SMALL  AF_ISA_NAME(af_gemm_small_run)
#define AF_ISA_ROUNDS true
#include "cpu/isa/isa_generic.h"

#define AF_ISA_LABEL "neon+dotprod"
static inline bool af_isa_usable(void) { return af_cpu_has_dotprod(); }

#endif
