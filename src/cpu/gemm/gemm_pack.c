/* gemm_pack.c - operands of a GEMM into panels that the f32 tiles read in order, and stored rows as
 * f32 or bf16 for all other packing.
 *
 * The only place that knows how operands lie in memory: plain or transposed, f32, bf16, f16, or a
 * weight of a block type, which is decoded here. */
#include "cpu/gemm/gemm_job.h"

void AF_ISA_NAME(af_bf16_down)(uint16_t *restrict dst, const float *restrict src, int64_t n)
{
    for (int64_t i = af_bf16_vecs(dst, src, n); i < n; i++)
        dst[i] = af_bf16_down(src[i]);
}

const float *AF_ISA_NAME(af_stored_row)(const af_operand *o, int64_t r, int64_t from, int64_t n,
                                        float *buf)
{
    const int64_t at = r * o->ld + from;
    if (o->decode)
        o->decode(o->weight, at, n, buf);
    else if (o->dtype == AF_DTYPE_F32)
        return (const float *)o->data + at;
    else if (o->dtype == AF_DTYPE_BF16)
        for (int64_t i = 0; i < n; i++)
            buf[i] = af_bf16_up(((const uint16_t *)o->data)[at + i]);
    else
        for (int64_t i = 0; i < n; i++)
            buf[i] = af_f32_from_f16(((const uint16_t *)o->data)[at + i]);
    return buf;
}

const uint16_t *AF_ISA_NAME(af_stored_row_bf16)(const af_operand *o, bool residual, int64_t r,
                                                int64_t from, int64_t n, float *buf, uint16_t *half)
{
    if (af_operand_is(o, AF_DTYPE_BF16))
        return (const uint16_t *)o->data + r * o->ld + from;
    const float *x = AF_ISA_NAME(af_stored_row)(o, r, from, n, buf);
    AF_ISA_NAME(af_bf16_down)(half, x, n);
    if (residual) {
        for (int64_t i = 0; i < n; i++)
            buf[i] = x[i] - af_bf16_up(half[i]);
        AF_ISA_NAME(af_bf16_down)(half, buf, n);
    }
    return half;
}

#ifndef AF_OWN_COLUMNS
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));

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

/* `lines` rows of n values become columns of p [n][width]. */
static void af_columns(float *restrict p, int width, const float *const *s, int lines, int64_t n)
{
    for (int u = 0; u < lines; u += 4)
        transpose4(p + u, width, s + u, n);
}
#endif

enum {
    KC = 640,       /* k's of one call at most */
    SPREAD = 4,     /* stored rows that are k's, at once */
    ROWS_AHEAD = 8, /* of them, fetched from memory before they are needed */
};

/* Stored rows are lines: one panel, a few lines and PACK_PIECE k's at a time, so that what is
 * written stays in the first-level cache until all lines are there. */
static void panel_along(float *p, const af_operand *o, int64_t line, int64_t w, int64_t k0,
                        int64_t kc, int width, float *buf)
{
    static const float zeros[KC];
    const int64_t piece = o->decode ? KC : PACK_PIECE; /* blocks are decoded whole */
    const int lines = AF_MIN(width, (int)TRANSPOSE_LINES);
    for (int64_t k = 0; k < kc; k += piece, p += piece * width)
        for (int64_t i = 0; i < width; i += lines) {
            const int64_t n = AF_MIN(piece, kc - k);
            const float *s[TRANSPOSE_LINES] = {NULL};
            for (int u = 0; u < lines; u++)
                s[u] = i + u < w
                           ? AF_ISA_NAME(af_stored_row)(o, line + i + u, k0 + k, n, buf + u * piece)
                           : zeros;
            af_columns(p + i, width, s, lines, n);
        }
}

/* Stored rows of `lines` values into rows k, k+1, .. of every panel; the panels are `step` apart.
 * Several rows at once: the same rows of many panels may share a set of the cache, and each line
 * there is then written as a whole. */
AF_INLINE void spread_by(float *restrict p, const float *const *s, const int rows, int64_t lines,
                         const int width, const int move, int64_t step)
{
    int64_t l = 0;
    for (; l + width <= lines; l += width, p += step)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 6
            for (int i = 0; i < width; i += move)
                memcpy(p + r * width + i, s[r] + l + i, (size_t)move * sizeof *p);
    for (int i = 0; l < lines && i < rows * width; i++)
        p[i] = l + i % width < lines ? s[i / width][l + i % width] : 0.0f;
}

/* A known width makes these plain moves; else they become calls of memcpy for 48 bytes. */
static void spread(float *p, const float *const *s, int rows, int64_t lines, int width,
                   int64_t step)
{
    if (width == NR && rows == SPREAD)
        spread_by(p, s, SPREAD, lines, NR, VL, step);
    else if (width == MR && rows == SPREAD)
        spread_by(p, s, SPREAD, lines, MR, AF_MIN(VL, MR), step);
    else
        spread_by(p, s, rows, lines, width, 4, step);
}

/* Stored rows are k's. */
static void panels_across(float *p, const af_operand *o, int64_t line, int64_t lines, int64_t k0,
                          int64_t kc, int width, int64_t step, float *buf)
{
    const bool plain = af_operand_is(o, AF_DTYPE_F32);
    const float *s[SPREAD];
    for (int64_t k = 0, n; k < kc; k += n) {
        n = AF_MIN((int64_t)SPREAD, kc - k);
        for (int64_t r = 0; r < n; r++) {
            s[r] = AF_ISA_NAME(af_stored_row)(o, k0 + k + r, line, lines, buf + r * lines);
            for (int64_t at = 0; plain && k + r + ROWS_AHEAD < kc && at < lines; at += AF_LINE / 4)
                __builtin_prefetch(s[r] + ROWS_AHEAD * o->ld + at);
        }
        spread(p + k * width, s, (int)n, lines, width, step);
    }
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
    if (!along)
        panels_across(dst, o, line, lines, k0, kc, width, panel, buf);
    for (int64_t l = 0; kc < padded && l < lines; l += width)
        memset(dst + l / width * panel + kc * width, 0,
               (size_t)((padded - kc) * width) * sizeof *dst);
}
