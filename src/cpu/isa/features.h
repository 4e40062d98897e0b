/* features.h - what this machine can do beyond the base of its architecture. */
#ifndef AF_FEATURES_H
#define AF_FEATURES_H

#include <stdbool.h>

/* Columns of a panel of af_gemm_small. */
#if defined(__aarch64__)
enum { AF_SMALL_COLS = 16 };
#else
enum { AF_SMALL_COLS = 32 };
#endif

/* True when the machine has the dot products of bytes of Armv8.2. */
bool af_cpu_has_dotprod(void);
/* True when the machine has the bf16 matrix instructions of Armv8.6. */
bool af_cpu_has_bf16(void);
/* True when the machine has the dot products of bytes of AVX2. */
bool af_cpu_has_avx_vnni(void);
/* True when the machine has AVX512-BF16 with dot products at twice the speed of f32: AMD's since
 * Zen 4. Intel's cores begin them half as often as multiply-adds of f32. */
bool af_cpu_has_fast_bf16_pairs(void);

/* True when the machine has AMX tiles for bf16 and the system lets this process use them (asks). */
bool af_cpu_has_amx(void);
#endif
