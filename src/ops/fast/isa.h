/* isa.h - the vector type and the tile of the instruction set this build is for. */
#ifndef AF_FAST_ISA_H
#define AF_FAST_ISA_H

#include "ops/fast/fast.h"

/* NAME(gemm) is gemm_neon, gemm_avx2, ... */
#define AF_ISA_JOIN2(a, b) a##_##b
#define AF_ISA_JOIN(a, b)  AF_ISA_JOIN2(a, b)
#define AF_ISA_NAME(a)     AF_ISA_JOIN(a, AF_ISA)

#if defined(AF_ISA_avx512)
enum { VL = 16, MR = 12, NV = 2 };
#elif defined(AF_ISA_avx2)
enum { VL = 8, MR = 6, NV = 2 };
#elif defined(AF_ISA_sse2)
enum { VL = 4, MR = 4, NV = 2 };
#else
enum { VL = 4, MR = 8, NV = 2 };
#endif
enum { NR = VL * NV };

typedef float vec __attribute__((vector_size(VL * 4), aligned(4), may_alias));

uint64_t AF_ISA_NAME(af_gemm_work)(int threads);
void AF_ISA_NAME(af_gemm_run)(const af_gemm *g, af_pool *pool, void *work);
#endif
