/* x86_pairs.c - operands into panels of bf16 pairs, [k/2][lines][2], for the tiles of gemm_tile.c.
 */
#include "cpu/gemm/gemm_job.h"

enum {
    LINES = 16, /* at once, where stored rows are lines */
    ROWS = 8,   /* where they are k's: the k's of a tile's step */
};

static __mmask16 first16(int64_t n) { return (__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1); }
static __mmask32 first32(int64_t n) { return n >= 32 ? 0xffffffff : (1U << n) - 1; }

/* Stored rows are lines: `lines` of them, and zeros for the rest of `wide`, in a panel. */
static void pack_along(uint16_t *p, int width, int64_t wide, const uint16_t *const h[LINES],
                       int64_t lines, int64_t kc, int64_t padded)
{
    for (int64_t k = 0; k < padded; k += 32) {
        const __mmask32 there = first32(AF_MAX(kc - k, INT64_C(0)));
        const int64_t pairs = AF_MIN(padded - k, INT64_C(32)) / 2;
        __m512i r[LINES];
        for (int i = 0; i < LINES; i++)
            r[i] = i < lines ? _mm512_maskz_loadu_epi16(there, h[i] + k) : _mm512_setzero_si512();
        af_x86_columns(r);
        for (int64_t c = 0; c < pairs; c++)
            _mm512_mask_storeu_epi32(p + (k + 2 * c) * width, first16(wide), r[c]);
    }
}

/* Two stored rows of k's become pairs. */
AF_INLINE __m512i join(const uint16_t *x, const uint16_t *y, __mmask16 there)
{
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, x)),
                  high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, y));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* Stored rows are k's: ROWS of them into panels `step` values apart. */
static void pack_across(uint16_t *p, int width, const uint16_t *const h[ROWS], int64_t lines,
                        int64_t step)
{
    for (int64_t l = 0; l < lines; l += width, p += step)
        for (int r = 0; r < ROWS; r += 2)
            for (int i = 0; i < width; i += 16)
                _mm512_mask_storeu_epi32(p + r * width + 2 * i, first16(width - i),
                                         join(h[r] + l + i, h[r + 1] + l + i,
                                              first16(AF_MAX(lines - l - i, INT64_C(0)))));
}

void AF_ISA_NAME(af_pack_pairs)(const af_panels *p, const af_operand *o, bool along, int64_t line,
                                int64_t lines, int64_t k0, int64_t kc, float *buf)
{
    static const uint16_t zeros[AF_PACK_LINES];
    const int width = p->width;
    const int64_t padded = af_ceil_div(kc, ROWS) * ROWS, panel = p->depth * width,
                  all = af_ceil_div(lines, width) * width;
    uint16_t *dst = (uint16_t *)p->to + p->at * width,
             *half = (uint16_t *)(buf + (along ? kc : lines));
    const uint16_t *h[LINES];
    for (int64_t l = 0, wide; along && l < all; l += wide) {
        const int64_t in = l % width;
        wide = AF_MIN((int64_t)LINES, width - in);
        const int64_t n = AF_MIN(wide, lines - l);
        for (int64_t u = 0; u < n; u++)
            h[u] = AF_ISA_NAME(af_stored_row_bf16)(o, p->residual, line + l + u, k0, kc, buf,
                                                   half + u * kc);
        pack_along(dst + l / width * panel + 2 * in, width, wide, h, n, kc, padded);
    }
    for (int64_t k = 0; !along && k < padded; k += ROWS) {
        for (int u = 0; u < ROWS; u++)
            h[u] = k + u < kc ? AF_ISA_NAME(af_stored_row_bf16)(o, p->residual, k0 + k + u, line,
                                                                lines, buf, half + u * lines)
                              : zeros;
        pack_across(dst + k * width, width, h, lines, panel);
    }
}
