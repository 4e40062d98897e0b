/* isa_avx2.h - AVX2 with FMA and F16C; with its dot products of bytes, only the loops over blocks
 * differ. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/features.h"
#include "cpu/isa/isa_256.h"
#include "cpu/isa/isa_generic.h"

#define AF_ISA_LABEL "avx2"
static inline bool af_isa_usable(void) { return af_has_avx2(); }

#define AF_ISA_ALSO       avx2vnni
#define AF_ISA_ALSO_LABEL "avx2+vnni"
static inline bool af_isa_also_usable(void) { return af_has_avx2() && af_cpu_has_avx_vnni(); }

#endif
