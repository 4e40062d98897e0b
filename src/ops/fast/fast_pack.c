/* fast_pack.c - operands of a product into panels that the register tiles read in order.
 *
 * The only place that knows how operands lie in memory: plain or transposed, f32, bf16, f16, or a
 * weight of a block type, which is decoded here on the way. */
#include "ops/fast/isa.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
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

/* Stored rows are lines: one panel, four lines at a time. */
static void panel_along(float *p, const af_operand *o, int64_t line, int64_t w, int64_t k0,
                        int64_t kc, int width, float *buf)
{
    static const float zeros[2 * AF_GEMM_KC];
    for (int64_t i = 0; i < width; i += 4) {
        const float *s[4];
        for (int u = 0; u < 4; u++)
            s[u] = i + u < w ? AF_ISA_NAME(af_stored_row)(o, line + i + u, k0, kc, buf + u * kc)
                             : zeros;
        transpose4(p + i, width, s, kc);
    }
}

/* One stored row of `lines` values into row k of every panel; the panels are `step` apart. */
static void spread(float *restrict p, const float *restrict s, int64_t lines, int width,
                   int64_t step)
{
    int64_t l = 0;
    for (; l + width <= lines; l += width, p += step)
        for (int i = 0; i < width; i += 4)
            *(v4 *)(p + i) = *(const v4 *)(s + l + i);
    for (int i = 0; l < lines && i < width; i++)
        p[i] = l + i < lines ? s[l + i] : 0.0f;
}

void AF_ISA_NAME(af_pack_f32)(float *dst, const af_operand *o, bool along, int64_t line,
                              int64_t lines, int64_t k0, int64_t kc, int width, float *buf)
{
    if (along) {
        for (int64_t l = 0; l < lines; l += width)
            panel_along(dst + l * kc, o, line + l, AF_MIN((int64_t)width, lines - l), k0, kc, width,
                        buf);
        return;
    }
    for (int64_t k = 0; k < kc; k++)
        spread(dst + k * width, AF_ISA_NAME(af_stored_row)(o, k0 + k, line, lines, buf), lines,
               width, kc * width);
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

/* Stored rows are the k's: `group` of them are interleaved, line by line. */
static void interleave(uint16_t *restrict p, const uint16_t *const *h, int64_t lines, int width,
                       int group, int64_t step)
{
    for (int64_t l = 0; l < lines; l += width, p += step) {
        int64_t i = 0;
        const int64_t w = AF_MIN((int64_t)width, lines - l);
#if defined(__ARM_NEON)
        for (; group == 4 && i + 4 <= w; i += 4) {
            const uint16x4x4_t x = {{vld1_u16(h[0] + l + i), vld1_u16(h[1] + l + i),
                                     vld1_u16(h[2] + l + i), vld1_u16(h[3] + l + i)}};
            vst4_u16(p + i * 4, x);
        }
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

void AF_ISA_NAME(af_pack_bf16)(uint16_t *dst, const af_operand *o, bool along, int64_t line,
                               int64_t lines, int64_t k0, int64_t kc, int width, int group,
                               float *buf)
{
    static const uint16_t zeros[AF_GEMM_NC];
    const int64_t padded = (kc + BK - 1) / BK * BK, panel = padded * width;
    uint16_t *half = (uint16_t *)(buf + (along ? kc : lines));
    if (along) {
        const int64_t all = (lines + width - 1) / width * width;
        for (int64_t l = 0; l < all; l++) {
            uint16_t *p = dst + l / width * panel + l % width * group;
            const uint16_t *h = zeros;
            if (l < lines)
                h = stored_row_bf16(o, line + l, k0, kc, buf, half);
            line_groups(p, h, l < lines ? kc : 0, padded, group, (int64_t)width * group);
        }
        return;
    }
    for (int64_t k = 0; k < padded; k += group) {
        const uint16_t *h[BGA > BGB ? BGA : BGB];
        for (int u = 0; u < group; u++)
            h[u] = k + u < kc ? stored_row_bf16(o, k0 + k + u, line, lines, buf, half + u * lines)
                              : zeros;
        interleave(dst + k * width, h, lines, width, group, panel);
    }
}
