/* isa_avx2.h - AVX2 with FMA and F16C. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/isa_256.h"
#include "cpu/isa/isa_generic.h"

#define AF_ISA_LABEL "avx2"
static inline bool af_isa_usable(void) { return af_has_avx2(); }

#endif
