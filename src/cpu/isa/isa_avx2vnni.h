/* isa_avx2vnni.h - AVX2 and its dot products of bytes. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/features.h"
#include "cpu/isa/isa_256.h"
#include "cpu/isa/isa_generic.h"

#define AF_ISA_LABEL "avx2+vnni"
static inline bool af_isa_usable(void) { return af_has_avx2() && af_cpu_has_avx_vnni(); }

#endif
