/* neonbf16_tile.c - the bf16 kernel of Armv8.6: a register tile of 8 x 12 on BFMMLA, and its
 * panels, [k/4][lines][4]. Sums are f32; where the loads stand is worth a sixteenth. */
#include "cpu/gemm/neon/neon.h"

enum { BM = 8, BN = 12, BG = 4, BK = 8 };

/* Rows 2i, 2i+1 and columns 2j, 2j+1 of the sums are v(8 + 6 i + j): {row, row, row + 1,
 * row + 1}. */
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
                      af_tile_mode mode, const af_tile_bf16 *rounded)
{
    void *to = rounded ? (void *)rounded->to : c;
    const int64_t ld = rounded ? rounded->ld * 2 : ldc * 4;
    const int out = rounded ? 3 : (int)mode;
    int64_t n = kc / 8, in = ldc * 4;
    /* clang-format off */
    __asm__ volatile(
        "cmp %w[mode], #1\n"
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
        : [mode] "r"((int)mode), [to] "r"(to), [outld] "r"(ld), [out] "r"(out)
        : "memory", "cc", "x9", AF_ALL_V);
    /* clang-format on */
}

/* ---- packing ---- */

/* One line into its place: groups of four values, `step` apart; the tail is zero. */
static void line_groups(uint16_t *restrict p, const uint16_t *restrict h, int64_t kc,
                        int64_t padded, int64_t step)
{
    int64_t k = 0;
    for (; k + BG <= kc; k += BG, p += step)
        memcpy(p, h + k, 8);
    for (; k < padded; k += BG, p += step)
        for (int i = 0; i < BG; i++)
            p[i] = k + i < kc ? h[k + i] : 0;
}

/* Two lines at once, in groups of four. */
static void two_lines(uint16_t *restrict p, const uint16_t *restrict h, const uint16_t *restrict i,
                      int64_t kc, int64_t padded, int64_t step)
{
    int64_t k = 0;
    for (; k + 8 <= kc; k += 8, p += 2 * step) {
        const uint64x2_t x = vreinterpretq_u64_u16(vld1q_u16(h + k)),
                         y = vreinterpretq_u64_u16(vld1q_u16(i + k));
        vst1q_u16(p, vreinterpretq_u16_u64(vzip1q_u64(x, y)));
        vst1q_u16(p + step, vreinterpretq_u16_u64(vzip2q_u64(x, y)));
    }
    line_groups(p, h + k, kc - k, padded - k, step);
    line_groups(p + 4, i + k, kc - k, padded - k, step);
}

/* Four rows of k's become groups of four: eight lines at once. */
static inline void eight_lines(uint16_t *p, const uint16_t *const *h, int64_t at)
{
    const uint16x8_t a = vld1q_u16(h[0] + at), b = vld1q_u16(h[1] + at), c = vld1q_u16(h[2] + at),
                     d = vld1q_u16(h[3] + at);
    const uint32x4_t ab0 = vreinterpretq_u32_u16(vzip1q_u16(a, b)),
                     ab1 = vreinterpretq_u32_u16(vzip2q_u16(a, b)),
                     cd0 = vreinterpretq_u32_u16(vzip1q_u16(c, d)),
                     cd1 = vreinterpretq_u32_u16(vzip2q_u16(c, d));
    vst1q_u16(p, vreinterpretq_u16_u32(vzip1q_u32(ab0, cd0)));
    vst1q_u16(p + 8, vreinterpretq_u16_u32(vzip2q_u32(ab0, cd0)));
    vst1q_u16(p + 16, vreinterpretq_u16_u32(vzip1q_u32(ab1, cd1)));
    vst1q_u16(p + 24, vreinterpretq_u16_u32(vzip2q_u32(ab1, cd1)));
}
static inline void four_lines(uint16_t *p, const uint16_t *const *h, int64_t at)
{
    const uint16x4_t a = vld1_u16(h[0] + at), b = vld1_u16(h[1] + at), c = vld1_u16(h[2] + at),
                     d = vld1_u16(h[3] + at);
    const uint32x4_t ab = vreinterpretq_u32_u16(vcombine_u16(vzip1_u16(a, b), vzip2_u16(a, b))),
                     cd = vreinterpretq_u32_u16(vcombine_u16(vzip1_u16(c, d), vzip2_u16(c, d)));
    vst1q_u16(p, vreinterpretq_u16_u32(vzip1q_u32(ab, cd)));
    vst1q_u16(p + 8, vreinterpretq_u16_u32(vzip2q_u32(ab, cd)));
}

/* Four stored rows of k's are interleaved, line by line. */
static void interleave(uint16_t *restrict p, const uint16_t *const *h, int64_t lines, int width,
                       int64_t step)
{
    for (int64_t l = 0; l < lines; l += width, p += step) {
        int64_t i = 0;
        const int64_t w = AF_MIN((int64_t)width, lines - l);
        for (; i + 8 <= w; i += 8)
            eight_lines(p + i * 4, h, l + i);
        for (; i + 4 <= w; i += 4)
            four_lines(p + i * 4, h, l + i);
        for (; i < w; i++)
            for (int u = 0; u < BG; u++)
                p[i * BG + u] = h[u][l + i];
        memset(p + w * BG, 0, (size_t)((width - w) * BG) * sizeof *p);
    }
}

static void pack(const af_panels *p, const af_operand *o, bool along, int64_t line, int64_t lines,
                 int64_t k0, int64_t kc, float *buf)
{
    static const uint16_t zeros[AF_PACK_K > AF_PACK_LINES ? AF_PACK_K : AF_PACK_LINES];
    const int64_t padded = af_ceil_div(kc, BK) * BK, panel = p->depth * p->width,
                  all = af_ceil_div(lines, p->width) * p->width, n = along ? kc : lines;
    uint16_t *half = (uint16_t *)(buf + n), *dst = (uint16_t *)p->to + p->at * p->width;
    const uint16_t *h[BG];
    for (int64_t l = 0; along && l < all; l += 2) {
        for (int u = 0; u < 2; u++)
            h[u] = l + u < lines ? AF_ISA_NAME(af_stored_row_bf16)(o, p->residual, line + l + u, k0,
                                                                   kc, buf, half + u * kc)
                                 : zeros;
        two_lines(dst + l / p->width * panel + l % p->width * BG, h[0], h[1], kc, padded,
                  (int64_t)p->width * BG);
    }
    for (int64_t k = 0; !along && k < padded; k += BG) {
        for (int u = 0; u < BG; u++)
            h[u] = k + u < kc ? AF_ISA_NAME(af_stored_row_bf16)(o, p->residual, k0 + k + u, line,
                                                                lines, buf, half + u * lines)
                              : zeros;
        interleave(dst + k * p->width, h, lines, p->width, panel);
    }
}

const af_gemm_kernel AF_ISA_NAME(af_gemm_bf16) = {
    .mr = BM, .nr = BN, .kr = BK, .pack = pack, .tile = tile_bf16, .rounds = true};
