/* neon_tile.c - the f32 register tile of NEON, in assembly: gcc spills accumulators or loses a
 * tenth of the speed (docs/measurements/cpu.md). Registers 8 to 31 hold the 8 x 12 sums, 0 to 7
 * what is loaded. */
#include "cpu/gemm/neon/neon.h"

/* Row i, vector j of the sums is v(8 + 3 i + j). */
#define FMLA(s, y, x, lane) "fmla v" #s ".4s, v" #y ".4s, v" #x ".s[" #lane "]\n"
#define FCOLUMN(y, lo, hi, a, b, c, d, e, f, g, h)                                                 \
    FMLA(a, y, lo, 0)                                                                              \
    FMLA(b, y, lo, 1)                                                                              \
    FMLA(c, y, lo, 2)                                                                              \
    FMLA(d, y, lo, 3) FMLA(e, y, hi, 0) FMLA(f, y, hi, 1) FMLA(g, y, hi, 2) FMLA(h, y, hi, 3)
#define FK(lo, hi, x, y, z)                                                                        \
    FCOLUMN(x, lo, hi, 8, 11, 14, 17, 20, 23, 26, 29)                                              \
    FCOLUMN(y, lo, hi, 9, 12, 15, 18, 21, 24, 27, 30)                                              \
    FCOLUMN(z, lo, hi, 10, 13, 16, 19, 22, 25, 28, 31)
/* The first k, with the loads of the second where they cost least. */
#define FK_LOADING                                                                                 \
    FMLA(8, 2, 0, 0)                                                                               \
    FMLA(11, 2, 0, 1)                                                                              \
    FMLA(14, 2, 0, 2)                                                                              \
    "ldp q5, q6, [%[a], #32]\n" FMLA(17, 2, 0, 3) FMLA(20, 2, 1, 0)                                \
        FMLA(23, 2, 1, 1) "ldr q7, [%[b], #48]\n" FMLA(26, 2, 1, 2) FMLA(29, 2, 1, 3)              \
            FMLA(9, 3, 0, 0) "ldr q2, [%[b], #64]\n" FMLA(12, 3, 0, 1) FMLA(15, 3, 0, 2)           \
                FMLA(18, 3, 0, 3) FMLA(21, 3, 1, 0) FMLA(24, 3, 1, 1) FMLA(27, 3, 1, 2)            \
                    FMLA(30, 3, 1, 3) FMLA(10, 4, 0, 0) "ldr q3, [%[b], #80]\n" FMLA(13, 4, 0, 1)  \
                        FMLA(16, 4, 0, 2) FMLA(19, 4, 0, 3) FMLA(22, 4, 1, 0) FMLA(25, 4, 1, 1)    \
                            FMLA(28, 4, 1, 2) FMLA(31, 4, 1, 3)
#define FROW(op, r0, r1, r2)                                                                       \
    op "p q" #r0 ", q" #r1 ", [%[c]]\n" op "r q" #r2 ", [%[c], #32]\n"                             \
       "add %[c], %[c], %[ld]\n"
#define FLOAD(r0, r1, r2)  FROW("ld", r0, r1, r2)
#define FSTORE(r0, r1, r2) FROW("st", r0, r1, r2)
#define FADD(r0, r1, r2)                                                                           \
    "ldp q0, q1, [%[c]]\n"                                                                         \
    "ldr q2, [%[c], #32]\n"                                                                        \
    "fadd v" #r0 ".4s, v" #r0 ".4s, v0.4s\n"                                                       \
    "fadd v" #r1 ".4s, v" #r1 ".4s, v1.4s\n"                                                       \
    "fadd v" #r2 ".4s, v" #r2 ".4s, v2.4s\n" FSTORE(r0, r1, r2)
#define FROWS(row)                                                                                 \
    row(8, 9, 10) row(11, 12, 13) row(14, 15, 16) row(17, 18, 19) row(20, 21, 22) row(23, 24, 25)  \
        row(26, 27, 28) row(29, 30, 31)

/* c [8][12], kc a multiple of 2 */
static void tile_f32(int64_t kc, const void *a, const void *b, float *c, int64_t ldc,
                     af_tile_mode mode, const af_tile_bf16 *rounded)
{
    const float *back = c;
    int64_t n = kc / 2;
    (void)rounded;
    /* clang-format off */
    __asm__ volatile(
        "cmp %w[mode], #1\n"
        "b.ne 1f\n"
        FROWS(FLOAD)
        "mov %[c], %[back]\n"
        "b 2f\n"
        "1:\n"
        ZERO_ALL
        ".p2align 5\n"
        "2:\n"
        "ldp q0, q1, [%[a]]\n"
        "ldp q2, q3, [%[b]]\n"
        "ldr q4, [%[b], #32]\n"
        FK_LOADING
        FK(5, 6, 7, 2, 3)
        "add %[a], %[a], #64\n"
        "add %[b], %[b], #96\n"
        "subs %[n], %[n], #1\n"
        "b.ne 2b\n"
        "cmp %w[mode], #2\n"
        "b.eq 3f\n"
        FROWS(FSTORE)
        "b 4f\n"
        "3:\n"
        FROWS(FADD)
        "4:\n"
        : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [c] "+&r"(c)
        : [ld] "r"(ldc * 4), [mode] "r"((int)mode), [back] "r"(back)
        : "memory", "cc", AF_ALL_V);
    /* clang-format on */
}

const af_gemm_kernel AF_ISA_NAME(af_gemm_f32) = {
    .mr = MR, .nr = NR, .kr = KR, .pack = AF_ISA_NAME(af_pack_f32), .tile = tile_f32};
