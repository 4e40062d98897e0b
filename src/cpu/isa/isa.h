/* isa.h - the vector type, the register tiles and the few intrinsics of the instruction set this
 * build is for. The files of src/cpu are compiled once per instruction set; AF_ISA_HEADER (from
 * cmake/cpu.cmake) names the header that holds everything that differs between them. */
#ifndef AF_ISA_H
#define AF_ISA_H

#include "base/base.h"
#include "tensor/half.h"

#include <assert.h>
#include <string.h>

/* AF_ISA_NAME(gemm) is gemm_neon, gemm_avx2, ... */
#define AF_ISA_JOIN2(a, b) a##_##b
#define AF_ISA_JOIN(a, b)  AF_ISA_JOIN2(a, b)
#define AF_ISA_NAME(a)     AF_ISA_JOIN(a, AF_ISA)
/* Always: types and counts of rows are then constants, and of their cases one is left. The
 * sanitizers' compilers need ten times as long for that, so that there the cases are run instead.
 */
#ifdef __has_feature /* of clang, which lacks gcc's macros */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AF_SANITIZED 1
#endif
#endif
#if defined AF_SANITIZED || defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define AF_INLINE static inline
#else
#define AF_INLINE static inline __attribute__((always_inline))
#endif

#include AF_ISA_HEADER

/* Sum of the lanes: the halves, then the halves of that. */
static inline float af_lanes(vec v)
{
    float s[VL];
    memcpy(s, &v, sizeof s);
#pragma GCC unroll 4
    for (int n = VL / 2; n > 0; n /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            s[i] += s[i + n];
    return s[0];
}
/* The largest lane, in the same way. */
static inline float af_lanes_max(vec v)
{
    float s[VL];
    memcpy(s, &v, sizeof s);
#pragma GCC unroll 4
    for (int n = VL / 2; n > 0; n /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            s[i] = s[i] > s[i + n] ? s[i] : s[i + n];
    return s[0];
}
#endif
