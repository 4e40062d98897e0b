/* gemm_machine.c - the constants of every instruction set, in one table each.
 *
 * kc, a_bytes and b_bytes were measured on a Neoverse V1 (NEON) and on Xeons (x86):
 * docs/measurements/cpu.md. A strip is 96 columns for the vector kernels, which keep a panel of B
 * in the first-level cache while rows pass; the matrix kernels keep rows of A there and let B pass,
 * as many panels as stay in the second-level cache. */
#include "cpu/gemm/gemm_plan.h"

#include <limits.h>

enum { KIB = 1 << 10 };

/* What the machines without AMX share. */
#define VECTOR                                                                                     \
    .a_bytes = 704 * KIB, .scratch_rows = 384, .scratch_cols = 768, .pack_floats = 13312,          \
    .planes_threads = INT_MAX
#define IN_PLACE VECTOR, .b_bytes = 2304 * KIB, .rows_in_place = true
#define PACKED   VECTOR, .b_bytes = 768 * KIB
/*                        mr  nr  kr  kc    group          strip */
#define F32(mr, nr)                                                                                \
    {                                                                                              \
        (mr), (nr), 4, 640, AF_GEMM_GROUP, 96 / (nr)                                               \
    }

const af_gemm_machine af_gemm_machine_portable = {IN_PLACE, .tile = {F32(8, 12)}};
const af_gemm_machine af_gemm_machine_sse2 = {IN_PLACE, .tile = {F32(4, 8)}};
const af_gemm_machine af_gemm_machine_avx2 = {IN_PLACE, .tile = {F32(4, 24)}};
const af_gemm_machine af_gemm_machine_avx512 = {IN_PLACE, .tile = {F32(8, 48)}};
const af_gemm_machine af_gemm_machine_avx512bf16 = {
    IN_PLACE, .tile = {F32(8, 48), {8, 48, 8, 1088, AF_GEMM_GROUP, 2}}};
const af_gemm_machine af_gemm_machine_neon = {PACKED, .tile = {F32(8, 12)}};
const af_gemm_machine af_gemm_machine_neondot = {PACKED, .tile = {F32(8, 12)}};
const af_gemm_machine af_gemm_machine_neonbf16 = {
    PACKED, .tile = {F32(8, 12), {8, 12, 8, 1088, AF_GEMM_GROUP, 8}}};

/* thread_bytes: two tiles of rows in planes (2 x 36 KiB) or the sums of a strip (24 x 4 KiB), and
 * after them one tile of bf16 rows (1088 k's x 64 bytes). */
const af_gemm_machine af_gemm_machine_amx = {
    .tile = {F32(8, 48), {32, 32, 32, 1088, 1, 24}, {32, 32, 32, 192, AF_GEMM_GROUP, 18}},
    .rows_in_place = true,
    .a_bytes = 704 * KIB,
    .b_bytes = 1856 * KIB,
    .scratch_rows = 512,
    .scratch_cols = 768,
    .thread_bytes = 96 * KIB + 1088 * 64,
    .pack_floats = 24576, /* 32 f32 rows of 768 */
    .kc_in_place = 4096,
    .alias = 4096,
    .planes_min = 32,
    .planes_threads = 8,
};
