/* isa_portable.h - four floats per vector, whatever the compiler makes of them. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#define AF_ISA_LABEL "portable"
enum { VL = 4, MR = 8, NV = 3 };                                  /* f32 tile: MR x NV VL */
enum { LOWRANK_ROWS = 5, LOWRANK_VECS = 4, LOWRANK_NEAR = 8192 }; /* gemm_lowrank.c */
enum { TRANSPOSE_LINES = 4, PACK_PIECE = 640 };                   /* gemm_pack.c */
#include "cpu/isa/isa_vec.h"

#include "cpu/isa/isa_generic.h"

static inline bool af_isa_usable(void) { return true; }
#endif
