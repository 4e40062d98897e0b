/* fast_pack.c - operands of a product into panels that the register tiles read in order.
 *
 * The only place that knows how operands lie in memory: plain or transposed, f32, bf16, f16, or a
 * weight of a block type, which is decoded here on the way. */
#include "cpu/isa.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__AVX512BF16__)
#include <immintrin.h>
#endif

typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));

static void bf16_up(float *restrict dst, const uint16_t *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = (uint32_t)src[i] << 16;
        memcpy(&dst[i], &u, 4);
    }
}

void AF_ISA_NAME(af_bf16_down)(uint16_t *restrict dst, const float *restrict src, int64_t n)
{
    int64_t i = 0;
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    for (; i + 4 <= n; i += 4)
        vst1_u16(dst + i, vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(src + i))));
#elif defined(__AVX512BF16__)
    for (; i < n; i += 16) { /* the last ones too: it makes zero of what is not normal */
        const __mmask16 there = (__mmask16)(n - i < 16 ? (1 << (n - i)) - 1 : 0xffff);
        const __m256bh h = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, src + i));
        _mm256_mask_storeu_epi16(dst + i, there, (__m256i)h);
    }
#endif
    for (; i < n; i++) {
        uint32_t u;
        memcpy(&u, &src[i], 4);
        const uint32_t nan = (u & 0x7fffffffu) > 0x7f800000u;
        const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
        dst[i] = (uint16_t)(nan ? (u >> 16 | 0x40u) : rounded);
    }
}

const float *AF_ISA_NAME(af_stored_row)(const af_operand *o, int64_t r, int64_t from, int64_t n,
                                        float *buf)
{
    if (o->weight) {
        af_ld_row_f32(o->weight, r * o->ld + from, n, buf);
        return buf;
    }
    if (o->dtype == AF_DTYPE_F32)
        return (const float *)o->data + r * o->ld + from;
    const uint16_t *h = (const uint16_t *)o->data + r * o->ld + from;
    if (o->dtype == AF_DTYPE_BF16)
        bf16_up(buf, h, n);
    else
        for (int64_t i = 0; i < n; i++)
            buf[i] = af_f32_from_f16(h[i]);
    return buf;
}

/* The same as bf16: the matrix itself, or rounded into `half` by way of buf. */
static const uint16_t *stored_row_bf16(const af_operand *o, int64_t r, int64_t from, int64_t n,
                                       float *buf, uint16_t *half)
{
    if (!o->weight && o->dtype == AF_DTYPE_BF16)
        return (const uint16_t *)o->data + r * o->ld + from;
    const float *x = AF_ISA_NAME(af_stored_row)(o, r, from, n, buf);
    AF_ISA_NAME(af_bf16_down)(half, x, n);
    if (o->rest) { /* what that rounding lost */
        for (int64_t i = 0; i < n; i++) {
            const uint32_t u = (uint32_t)half[i] << 16;
            float up;
            memcpy(&up, &u, 4);
            buf[i] = x[i] - up;
        }
        AF_ISA_NAME(af_bf16_down)(half, buf, n);
    }
    return half;
}

/* Four rows of n values become columns i .. i+3 of p [n][width]. */
static void transpose4(float *restrict p, int width, const float *const s[4], int64_t n)
{
    int64_t k = 0;
    for (; k + 4 <= n; k += 4, p += 4 * width) {
        const v4 a = *(const v4 *)(s[0] + k), b = *(const v4 *)(s[1] + k),
                 c = *(const v4 *)(s[2] + k), d = *(const v4 *)(s[3] + k);
        const v4 ab0 = __builtin_shufflevector(a, b, 0, 4, 2, 6),
                 ab1 = __builtin_shufflevector(a, b, 1, 5, 3, 7),
                 cd0 = __builtin_shufflevector(c, d, 0, 4, 2, 6),
                 cd1 = __builtin_shufflevector(c, d, 1, 5, 3, 7);
        *(v4 *)p = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
        *(v4 *)(p + width) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
        *(v4 *)(p + 2 * width) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
        *(v4 *)(p + 3 * width) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
    }
    for (; k < n; k++, p += width)
        for (int i = 0; i < 4; i++)
            p[i] = s[i][k];
}

#if defined(__AVX__) && defined(__x86_64__)
typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));

/* Eight rows of eight values become columns of p [8][width]. */
static inline void transpose8x8(float *restrict p, int width, const float *const s[8], int64_t k)
{
    v8 r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = *(const v8 *)(s[i] + k);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) { /* pairs of rows, in both halves */
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) /* fours: columns 0 and 4, 1 and 5, ... */
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] =
                __builtin_shufflevector(t[i + j], t[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
            r[i + 2 * j + 1] =
                __builtin_shufflevector(t[i + j], t[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
        }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        *(v8 *)(p + c * width) = __builtin_shufflevector(r[c], r[4 + c], 0, 1, 2, 3, 8, 9, 10, 11);
        *(v8 *)(p + (4 + c) * width) =
            __builtin_shufflevector(r[c], r[4 + c], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

enum { LINES_TOGETHER = MR % 8 == 0 && NR % 8 == 0 ? 8 : 4 };
#else
enum { LINES_TOGETHER = 4 };
#endif

/* Four or eight rows of n values become columns of p [n][width]. */
static void transpose(float *restrict p, int width, const float *const *s, int64_t n)
{
    int64_t k = 0;
#if defined(__AVX__) && defined(__x86_64__)
    for (; LINES_TOGETHER == 8 && k + 8 <= n; k += 8)
        transpose8x8(p + k * width, width, s, k);
#endif
    const float *rest[LINES_TOGETHER];
    for (int u = 0; u < LINES_TOGETHER; u++)
        rest[u] = s[u] + k;
    for (int u = 0; u < LINES_TOGETHER; u += 4)
        transpose4(p + k * width + u, width, rest + u, n - k);
}

/* k's of all lines of a wide f32 panel that are packed before the next ones: it is written a
 * few lines at a time, and what is written shall stay in the first-level cache until it is whole.
 */
enum { PIECE = VL == 4 ? AF_GEMM_KC : 64 };

/* Stored rows are lines: one panel, a few lines at a time. */
static void panel_along(float *p, const af_operand *o, int64_t line, int64_t w, int64_t k0,
                        int64_t kc, int width, float *buf)
{
    static const float zeros[AF_GEMM_KC];
    const int64_t piece = o->weight ? AF_GEMM_KC : PIECE; /* blocks are decoded whole */
    for (int64_t k = 0; k < kc; k += piece, p += piece * width)
        for (int64_t i = 0; i < width; i += LINES_TOGETHER) {
            const int64_t n = AF_MIN(piece, kc - k);
            const float *s[LINES_TOGETHER];
            for (int u = 0; u < LINES_TOGETHER; u++)
                s[u] = i + u < w
                           ? AF_ISA_NAME(af_stored_row)(o, line + i + u, k0 + k, n, buf + u * piece)
                           : zeros;
            transpose(p + i, width, s, n);
        }
}

/* One stored row of `lines` values into row k of every panel; the panels are `step` apart. */
static inline void spread_by(float *restrict p, const float *restrict s, int64_t lines,
                             const int width, int64_t step)
{
    int64_t l = 0;
    for (; l + width <= lines; l += width, p += step)
#pragma GCC unroll 8
        for (int i = 0; i < width; i += 4)
            *(v4 *)(p + i) = *(const v4 *)(s + l + i);
    for (int i = 0; l < lines && i < width; i++)
        p[i] = l + i < lines ? s[l + i] : 0.0f;
}

/* A known width makes these plain moves; else they become calls of memcpy for 48 bytes. */
static void spread(float *p, const float *s, int64_t lines, int width, int64_t step)
{
    if (width == NR)
        spread_by(p, s, lines, NR, step);
    else if (width == MR)
        spread_by(p, s, lines, MR, step);
    else if (width == VL)
        spread_by(p, s, lines, VL, step);
    else
        spread_by(p, s, lines, width, step);
}

void AF_ISA_NAME(af_pack_f32)(const af_panels *p, const af_operand *o, bool along, int64_t line,
                              int64_t lines, int64_t k0, int64_t kc, float *buf)
{
    const int64_t padded = (kc + KR - 1) / KR * KR, panel = p->depth * p->width;
    const int width = p->width;
    float *dst = (float *)p->to + p->at * width;
    for (int64_t l = 0; along && l < lines; l += width)
        panel_along(dst + l / width * panel, o, line + l, AF_MIN((int64_t)width, lines - l), k0, kc,
                    width, buf);
    for (int64_t k = 0; !along && k < kc; k++)
        spread(dst + k * width, AF_ISA_NAME(af_stored_row)(o, k0 + k, line, lines, buf), lines,
               width, panel);
    for (int64_t l = 0; kc < padded && l < lines; l += width)
        memset(dst + l / width * panel + kc * width, 0,
               (size_t)((padded - kc) * width) * sizeof *dst);
}

/* One line into its place: groups of `group` values, `step` apart; the tail is zero. */
static void line_groups(uint16_t *restrict p, const uint16_t *restrict h, int64_t kc,
                        int64_t padded, int group, int64_t step)
{
    int64_t k = 0;
    if (group == 4)
        for (; k + 4 <= kc; k += 4, p += step)
            memcpy(p, h + k, 8);
    else if (group == 32)
        for (; k + 32 <= kc; k += 32, p += step)
            memcpy(p, h + k, 64);
    else
        for (; k + 2 <= kc; k += 2, p += step)
            memcpy(p, h + k, 4);
    for (; k < padded; k += group, p += step)
        for (int i = 0; i < group; i++)
            p[i] = k + i < kc ? h[k + i] : 0;
}

#if defined(__ARM_NEON)
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
    line_groups(p, h + k, kc - k, padded - k, 4, step);
    line_groups(p + 4, i + k, kc - k, padded - k, 4, step);
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
#endif

#if !defined(AF_ISA_amx)
/* Stored rows are the k's: `group` of them are interleaved, line by line. */
static void interleave(uint16_t *restrict p, const uint16_t *const *h, int64_t lines, int width,
                       int group, int64_t step)
{
    for (int64_t l = 0; l < lines; l += width, p += step) {
        int64_t i = 0;
        const int64_t w = AF_MIN((int64_t)width, lines - l);
#if defined(__ARM_NEON)
        for (; group == 4 && i + 8 <= w; i += 8)
            eight_lines(p + i * 4, h, l + i);
        for (; group == 4 && i + 4 <= w; i += 4)
            four_lines(p + i * 4, h, l + i);
#endif
        if (group == 2)
            for (; i < w; i++) {
                p[2 * i] = h[0][l + i];
                p[2 * i + 1] = h[1][l + i];
            }
        for (; i < w; i++)
            for (int u = 0; u < group; u++)
                p[i * group + u] = h[u][l + i];
        memset(p + w * group, 0, (size_t)((width - w) * group) * sizeof *p);
    }
}
#endif

/* Lines that are packed together. */
#if defined(AF_ISA_amx)
enum { TOGETHER = 16 };
#else
enum { TOGETHER = 2 };
#endif

static void together(uint16_t *p, const uint16_t *const *h, int64_t kc, int64_t padded, int group,
                     int64_t step)
{
#if defined(AF_ISA_amx)
    if (group == BGB) {
        AF_ISA_NAME(af_amx_lines)(p, h, kc, padded);
        return;
    }
#elif defined(__ARM_NEON)
    if (group == 4) {
        two_lines(p, h[0], h[1], kc, padded, step);
        return;
    }
#endif
#if defined(AF_ISA_amx)
    /* block after block: a whole line at once would write to two sets of the cache */
    for (int64_t k = 0; k < padded; k += group, p += step)
        for (int u = 0; u < TOGETHER; u++)
            line_groups(p + u * group, h[u] + k, AF_MIN(kc - k, (int64_t)group), group, group,
                        step);
#else
    for (int u = 0; u < TOGETHER; u++)
        line_groups(p + u * group, h[u], kc, padded, group, step);
#endif
}

/* Stored rows are the lines. */
static void lines_bf16(const af_panels *p, const af_operand *o, int64_t line, int64_t lines,
                       int64_t k0, int64_t kc, int64_t padded, float *buf)
{
    static const uint16_t zeros[AF_GEMM_KC_BF16];
    uint16_t *half = (uint16_t *)(buf + kc), *dst = (uint16_t *)p->to + p->at * p->width;
    const int64_t all = (lines + p->width - 1) / p->width * p->width;
    for (int64_t l = 0; l < all; l += TOGETHER) {
        const uint16_t *h[TOGETHER];
        for (int u = 0; u < TOGETHER; u++)
            h[u] = l + u < lines ? stored_row_bf16(o, line + l + u, k0, kc, buf, half + u * kc)
                                 : zeros;
        /* AMX: sixteen lines of 32 k's are a tile of 16 x 32, of B as of A */
        const int64_t first = l % p->width * (TOGETHER == 16 ? BK : p->group);
        together(dst + l / p->width * p->depth * p->width + first, h, kc, padded, p->group,
                 (int64_t)p->width * p->group);
    }
}

void AF_ISA_NAME(af_pack_bf16)(const af_panels *p, const af_operand *o, bool along, int64_t line,
                               int64_t lines, int64_t k0, int64_t kc, float *buf)
{
    static const uint16_t zeros[AF_GEMM_WIDE];
    const int64_t padded = (kc + BK - 1) / BK * BK, panel = p->depth * p->width;
    if (along) {
        lines_bf16(p, o, line, lines, k0, kc, padded, buf);
        return;
    }
    uint16_t *half = (uint16_t *)(buf + lines), *dst = (uint16_t *)p->to + p->at * p->width;
    const int group = TOGETHER == 16 ? BK : p->group; /* rows of k's that are packed together */
    for (int64_t k = 0; k < padded; k += group) {
        const uint16_t *h[AF_MAX(BK, BGA)];
        for (int u = 0; u < group; u++)
            h[u] = k + u < kc ? stored_row_bf16(o, k0 + k + u, line, lines, buf, half + u * lines)
                              : zeros;
#if defined(AF_ISA_amx)
        if (p->group == BGA)
            AF_ISA_NAME(af_amx_columns)(dst + k * p->width, h, lines, panel);
        else
            AF_ISA_NAME(af_amx_pairs)(dst + k * p->width, h, lines, panel);
#else
        interleave(dst + k * p->width, h, lines, p->width, p->group, panel);
#endif
    }
}
