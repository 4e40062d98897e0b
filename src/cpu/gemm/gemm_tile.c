/* gemm_tile.c - the f32 register tile, in vectors of any width. NEON has its own (neon_tile.c). */
#include "cpu/gemm/gemm_job.h"

enum {
    AHEAD = 8, /* k's that B is fetched from the second-level cache before they are needed */
    FEW = 4,   /* of the last rows, at once */
};

/* Sums (+)= a b [kc][NR], kc a multiple of KR, where a(i, k) is a[i * row + k * step]. Lines
 * [*line, end) are fetched meanwhile. */
AF_INLINE void add_part(vec s[MR][NV], const af_tile_part *p, int64_t row, const int step,
                        const int rows, const uint8_t **line, const uint8_t *end)
{
    const float *x = p->a, *b = p->b, *const last = b + p->kc * NR;
    for (; b < last; b += KR * NR, x += KR * step) {
        __builtin_prefetch(*line, 0, 2);
        *line += *line < end ? AF_LINE : 0;
#pragma GCC unroll 4
        for (int u = 0; u < KR; u++) {
            /* three rows have one address: there are not registers for all */
            const float *three = x + u * step;
            vec y[NV];
#pragma GCC unroll 3
            for (int j = 0; j < NV; j++) {
                y[j] = *(const vec *)(b + u * NR + j * VL);
                if ((u * NR + j * VL) * (int)sizeof(float) % AF_LINE < VL * (int)sizeof(float))
                    __builtin_prefetch(b + (u + AHEAD) * NR + j * VL, 0, 3);
            }
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const vec v = af_pin(three[i % 3 * row] - (vec){0});
#pragma GCC unroll 3
                for (int j = 0; j < NV; j++)
                    s[i][j] = af_fma(s[i][j], y[j], v);
                three += i % 3 == 2 ? 3 * row : 0;
            }
        }
    }
}

/* c [rows][NR] (+)= the sum of the parts, rows at most MR. */
AF_INLINE void tile(const af_tile_part *part, int parts, const int rows, float *c, int64_t ldc,
                    af_tile_mode mode, af_prefetch *next)
{
    const int64_t ahead = AF_MAX(next->bytes, INT64_C(0)); /* 0: a line that is near anyway */
    const uint8_t *line = ahead ? next->at : part->b, *const end = line + ahead;
    vec s[MR][NV];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            s[i][j] = mode == AF_TILE_CONTINUE ? *(const vec *)(c + i * ldc + j * VL) : (vec){0};
    for (const af_tile_part *p = part; p < part + parts; p++)
        if (p->ld)
            add_part(s, p, p->ld, 1, rows, &line, end);
        else
            add_part(s, p, 1, MR, rows, &line, end);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++) {
            vec *to = (vec *)(c + i * ldc + j * VL);
            if (mode == AF_TILE_ADD)
                s[i][j] += *to;
            *to = s[i][j];
        }
    if (ahead) {
        next->bytes = end - AF_MIN(line, end);
        next->at = line;
    }
}

static void tile_f32(const af_tile_part *part, int parts, int64_t rows, float *c, int64_t ldc,
                     af_tile_mode mode, af_prefetch *next)
{
    if (rows >= MR) {
        tile(part, parts, MR, c, ldc, mode, next);
        return;
    }
    af_tile_part rest[AF_GEMM_SEGMENTS];
    memcpy(rest, part, (size_t)parts * sizeof *part);
    for (int64_t i = 0, n; i < rows; i += n) {
        n = rows - i < FEW ? 1 : FEW;
        if (n == FEW)
            tile(rest, parts, FEW, c + i * ldc, ldc, mode, next);
        else
            tile(rest, parts, 1, c + i * ldc, ldc, mode, next);
        for (int q = 0; q < parts; q++)
            rest[q].a = (const float *)rest[q].a + n * (rest[q].ld ? rest[q].ld : 1);
    }
}

const af_gemm_kernel AF_ISA_NAME(af_gemm_f32) = {
    .mr = MR, .nr = NR, .kr = KR, .pack = AF_ISA_NAME(af_pack_f32), .tile_parts = tile_f32};
