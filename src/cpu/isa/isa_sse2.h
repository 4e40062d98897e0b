/* isa_sse2.h - every x86_64. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#define AF_ISA_LABEL "sse2"
enum { VL = 4, MR = 4, NV = 2 };
enum { LOWRANK_ROWS = 4, LOWRANK_VECS = 2, LOWRANK_NEAR = 8192 };
enum { TRANSPOSE_LINES = 4, PACK_PIECE = 640 };
#include "cpu/isa/isa_vec.h"

#include "cpu/isa/isa_generic.h"

static inline bool af_isa_usable(void) { return true; }
#endif
