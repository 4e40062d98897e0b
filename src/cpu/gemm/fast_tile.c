/* fast_tile.c - the register tiles: f32 for every instruction set, bf16 where there is a matrix
 * instruction for it (BFMMLA of Armv8.6). f32 sums.
 *
 * The hot NEON tiles are assembly: gcc spills accumulators or leaves a tenth of the speed behind
 * (measured: docs/measurements/cpu.md). Registers 8 to 31 hold the 8 x 12 sums, 0 to 7 what is
 * loaded. The AMX tile is fast_amx.c. */
#include "cpu/isa.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>

#define AF_ALL_V                                                                                   \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", \
        "v28", "v29", "v30", "v31"
#define ZERO(r) "movi v" #r ".4s, #0\n"
#define ZERO8(a, b, c, d, e, f, g, h)                                                              \
    ZERO(a) ZERO(b) ZERO(c) ZERO(d) ZERO(e) ZERO(f) ZERO(g) ZERO(h)
#define ZERO_ALL                                                                                   \
    ZERO8(8, 9, 10, 11, 12, 13, 14, 15)                                                            \
    ZERO8(16, 17, 18, 19, 20, 21, 22, 23) ZERO8(24, 25, 26, 27, 28, 29, 30, 31)

/* ---- f32: row i, vector j of the sums is v(8 + 3 i + j) ---- */
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
                     af_tile_way way, const af_tile_half *half)
{
    const float *back = c;
    int64_t n = kc / 2;
    (void)half;
    /* clang-format off */
    __asm__ volatile(
        "cmp %w[way], #1\n"
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
        "cmp %w[way], #2\n"
        "b.eq 3f\n"
        FROWS(FSTORE)
        "b 4f\n"
        "3:\n"
        FROWS(FADD)
        "4:\n"
        : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [c] "+&r"(c)
        : [ld] "r"(ldc * 4), [way] "r"((int)way), [back] "r"(back)
        : "memory", "cc", AF_ALL_V);
    /* clang-format on */
}

/* c [8][8], for the last columns */
static void tile_f32_narrow(int64_t kc, const void *pa, const void *pb, float *c, int64_t ldc,
                            af_tile_way way, const af_tile_half *half)
{
    (void)half;
    const float *a = pa, *b = pb;
    float32x4_t s[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        s[i] = way == AF_TILE_CONTINUE ? vld1q_f32(c + i / 2 * ldc + i % 2 * 4) : vdupq_n_f32(0);
    for (int64_t k = 0; k < kc; k++, a += 8, b += 8) {
        const float32x4_t x = vld1q_f32(b), y = vld1q_f32(b + 4);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            s[2 * i] = vfmaq_n_f32(s[2 * i], x, a[i]);
            s[2 * i + 1] = vfmaq_n_f32(s[2 * i + 1], y, a[i]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        float *at = c + i / 2 * ldc + i % 2 * 4;
        vst1q_f32(at, way == AF_TILE_ADD ? vaddq_f32(vld1q_f32(at), s[i]) : s[i]);
    }
}
#else
/* c [MR][NR] (+)= a [kc][MR] b [kc][NR] */
static void tile_f32(int64_t kc, const void *pa, const void *pb, float *c, int64_t ldc,
                     af_tile_way way, const af_tile_half *half)
{
    (void)half;
    const float *restrict a = pa, *restrict b = pb;
    vec s[MR][NV];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            s[i][j] = way == AF_TILE_CONTINUE ? *(const vec *)(c + i * ldc + j * VL) : (vec){0};
    for (int64_t k = 0; k < kc; k++, a += MR, b += NR) {
        vec x[NV];
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            x[j] = *(const vec *)(b + j * VL);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            vec y = a[i] - (vec){0};
#if defined(__AVX512F__)
            __asm__("" : "+v"(y)); /* in a register: else it is loaded again for each of NV */
#endif
#pragma GCC unroll 3
            for (int j = 0; j < NV; j++)
                s[i][j] += x[j] * y;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++) {
            vec *at = (vec *)(c + i * ldc + j * VL);
            if (way == AF_TILE_ADD)
                s[i][j] += *at;
            *at = s[i][j];
        }
}
#if defined(AF_ISA_avx512) || defined(AF_ISA_amx)
/* c [MR][VL], for the last columns */
static void tile_f32_narrow(int64_t kc, const void *pa, const void *pb, float *c, int64_t ldc,
                            af_tile_way way, const af_tile_half *half)
{
    (void)half;
    const float *restrict a = pa, *restrict b = pb;
    vec s[MR];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
        s[i] = way == AF_TILE_CONTINUE ? *(const vec *)(c + i * ldc) : (vec){0};
    for (int64_t k = 0; k < kc; k++, a += MR, b += VL) {
        const vec x = *(const vec *)b;
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++)
            s[i] += x * a[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        vec *at = (vec *)(c + i * ldc);
        if (way == AF_TILE_ADD)
            s[i] += *at;
        *at = s[i];
    }
}
#endif
#endif

#if defined(AF_ISA_neonbf16)
/* ---- bf16: rows 2i, 2i+1 and columns 2j, 2j+1 of the sums are v(8 + 6 i + j): {row, row, row + 1,
 * row + 1} ---- */
#define MMLA(s, x, y)            "bfmmla v" #s ".4s, v" #x ".8h, v" #y ".8h\n"
#define BPAIR(y, s0, s1, s2, s3) MMLA(s0, 0, y) MMLA(s1, 1, y) MMLA(s2, 2, y) MMLA(s3, 3, y)
/* Four k's, from these byte offsets of a and b. Where the loads stand is worth a sixteenth. */
#define BSTEP(a0, a1, b0, b1, b2)                                                                  \
    "ldp q0, q1, [%[a], #" a0 "]\n"                                                                \
    "ldp q4, q5, [%[b], #" b0 "]\n"                                                                \
    "ldp q2, q3, [%[a], #" a1 "]\n" MMLA(8, 0, 4)                                                  \
        MMLA(14, 1, 4) "ldp q6, q7, [%[b], #" b1 "]\n" MMLA(20, 2, 4) MMLA(26, 3, 4)               \
            BPAIR(5, 9, 15, 21, 27) MMLA(10, 0, 6)                                                 \
                MMLA(16, 1, 6) "ldp q4, q5, [%[b], #" b2 "]\n" MMLA(22, 2, 6) MMLA(28, 3, 6)       \
                    BPAIR(7, 11, 17, 23, 29) BPAIR(4, 12, 18, 24, 30) BPAIR(5, 13, 19, 25, 31)
#define ZIP(d, half, x, y) "zip" half " v" d ".2d, v" x ".2d, v" y ".2d\n"
/* Two rows of sums in, and out. */
#define BIN2(r0, r1, at)                                                                           \
    "ldr q0, [%[c], #" at "]\n"                                                                    \
    "ldr q1, [x9, #" at "]\n" ZIP(#r0, "1", "0", "1") ZIP(#r1, "2", "0", "1")
#define BOUT2(r0, r1, at)                                                                          \
    ZIP("0", "1", #r0, #r1)                                                                        \
    ZIP("1", "2", #r0, #r1)                                                                        \
    "str q0, [%[c], #" at "]\n"                                                                    \
    "str q1, [x9, #" at "]\n"
/* The same added to c, or rounded. */
#define BADD2(r0, r1, at)                                                                          \
    "ldr q2, [%[c], #" at "]\n"                                                                    \
    "ldr q3, [x9, #" at "]\n" ZIP("0", "1", #r0, #r1)                                              \
        ZIP("1", "2", #r0, #r1) "fadd v0.4s, v0.4s, v2.4s\n"                                       \
                                "fadd v1.4s, v1.4s, v3.4s\n"                                       \
                                "str q0, [%[c], #" at "]\n"                                        \
                                "str q1, [x9, #" at "]\n"
#define BHALF2(r0, r1, at)                                                                         \
    ZIP("0", "1", #r0, #r1)                                                                        \
    ZIP("1", "2", #r0, #r1)                                                                        \
    "bfcvtn v0.4h, v0.4s\n"                                                                        \
    "bfcvtn v1.4h, v1.4s\n"                                                                        \
    "str d0, [%[c], #" at "]\n"                                                                    \
    "str d1, [x9, #" at "]\n"
#define BROWS(two, at1, at2, r0, r1, r2, r3, r4, r5)                                               \
    "add x9, %[c], %[ld]\n" two(r0, r1, "0") two(r2, r3, at1)                                      \
        two(r4, r5, at2) "add %[c], x9, %[ld]\n"
#define BALL(two, at1, at2)                                                                        \
    BROWS(two, at1, at2, 8, 9, 10, 11, 12, 13)                                                     \
    BROWS(two, at1, at2, 14, 15, 16, 17, 18, 19)                                                   \
    BROWS(two, at1, at2, 20, 21, 22, 23, 24, 25) BROWS(two, at1, at2, 26, 27, 28, 29, 30, 31)

/* c [8][12], kc a multiple of 8 */
static void tile_bf16(int64_t kc, const void *a, const void *b, float *c, int64_t ldc,
                      af_tile_way way, const af_tile_half *half)
{
    void *to = half ? (void *)half->to : c;
    const int64_t ld = half ? half->ld * 2 : ldc * 4;
    const int out = half ? 3 : (int)way;
    int64_t n = kc / 8, in = ldc * 4;
    /* clang-format off */
    __asm__ volatile(
        "cmp %w[way], #1\n"
        "b.ne 1f\n"
        BALL(BIN2, "16", "32")
        "b 2f\n"
        "1:\n"
        ZERO_ALL
        ".p2align 5\n"
        "2:\n"
        BSTEP("0", "32", "0", "32", "64")
        BSTEP("64", "96", "96", "128", "160")
        "add %[a], %[a], #128\n"
        "add %[b], %[b], #192\n"
        "subs %[n], %[n], #1\n"
        "b.ne 2b\n"
        "mov %[c], %[to]\n"
        "mov %[ld], %[outld]\n"
        "cmp %w[out], #2\n"
        "b.eq 3f\n"
        "b.gt 4f\n"
        BALL(BOUT2, "16", "32")
        "b 5f\n"
        "3:\n"
        BALL(BADD2, "16", "32")
        "b 5f\n"
        "4:\n"
        BALL(BHALF2, "8", "16")
        "5:\n"
        : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [c] "+&r"(c), [ld] "+&r"(in)
        : [way] "r"((int)way), [to] "r"(to), [outld] "r"(ld), [out] "r"(out)
        : "memory", "cc", "x9", AF_ALL_V);
    /* clang-format on */
}

/* c [8][8], for the last columns */
static void tile_bf16_narrow(int64_t kc, const void *pa, const void *pb, float *c, int64_t ldc,
                             af_tile_way way, const af_tile_half *half)
{
    (void)half;
    const uint16_t *a = pa, *b = pb;
    float32x4_t s[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const float *at = c + i / 4 * 2 * ldc + i % 4 * 2;
        s[i] = way == AF_TILE_CONTINUE ? vcombine_f32(vld1_f32(at), vld1_f32(at + ldc))
                                       : vdupq_n_f32(0);
    }
    for (int64_t k = 0; k < kc; k += 4, a += 32, b += 32) {
        bfloat16x8_t x[4], y[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            x[i] = vreinterpretq_bf16_u16(vld1q_u16(a + 8 * i));
            y[i] = vreinterpretq_bf16_u16(vld1q_u16(b + 8 * i));
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            s[i] = vbfmmlaq_f32(s[i], x[i / 4], y[i % 4]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        float *at = c + i / 4 * 2 * ldc + i % 4 * 2;
        if (way == AF_TILE_ADD)
            s[i] = vaddq_f32(s[i], vcombine_f32(vld1_f32(at), vld1_f32(at + ldc)));
        vst1_f32(at, vget_low_f32(s[i]));
        vst1_f32(at + ldc, vget_high_f32(s[i]));
    }
}
#endif

#if !defined(AF_ISA_amx)
void AF_ISA_NAME(af_tile_begin)(void) {}
void AF_ISA_NAME(af_tile_end)(void) {}
#endif

af_tile *AF_ISA_NAME(af_tile_for)(bool bf16, int width)
{
#if defined(AF_ISA_neonbf16)
    if (bf16)
        return width == BN ? tile_bf16 : tile_bf16_narrow;
#endif
#if defined(__ARM_NEON) || defined(AF_ISA_avx512) || defined(AF_ISA_amx)
    if (width != NR)
        return tile_f32_narrow;
#endif
    (void)bf16, (void)width;
    return tile_f32;
}

bool AF_ISA_NAME(af_tile_rounds)(bool bf16, int width)
{
#if defined(AF_BF16_TILE)
    return bf16 && width == BN;
#else
    (void)bf16, (void)width;
    return false;
#endif
}
