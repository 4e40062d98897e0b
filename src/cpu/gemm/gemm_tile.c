/* gemm_tile.c - the register tile in vectors of any width: of f32, and of bf16 where an instruction
 * multiplies pairs. NEON has its own (neon_tile.c).
 *
 * A unit is what lies in 32 bits: one f32, or two k's of a bf16 line. Panels are [unit][lines]. */
#include "cpu/gemm/gemm_job.h"

enum {
    AHEAD = 8, /* units that B is fetched from the second-level cache before they are needed */
    FEW = 4,   /* of the last rows, at once */
};

#ifdef AF_OWN_PAIRS
typedef int32_t pair __attribute__((may_alias));
AF_INLINE vec broadcast(const float *x, const bool pairs)
{
    return pairs ? (vec)(*(const pair *)x - (ivec){0}) : (vec)(*x - (vec){0});
}
AF_INLINE vec add_product(vec acc, vec x, vec y, const bool pairs)
{
    return pairs ? af_fma_pairs(acc, x, y) : af_fma(acc, x, y);
}
#else
AF_INLINE vec broadcast(const float *x, const bool pairs)
{
    (void)pairs;
    return *x - (vec){0};
}
AF_INLINE vec add_product(vec acc, vec x, vec y, const bool pairs)
{
    (void)pairs;
    return af_fma(acc, x, y);
}
#endif

/* Sums (+)= a b [units][NR], a multiple of KR of them, where unit k of row i is at
 * a[i * row + k * step]. Lines [*line, end) are fetched meanwhile. */
AF_INLINE void add_part(vec s[MR][NV], const af_tile_part *p, int64_t row, const int step,
                        const int rows, const bool pairs, const uint8_t **line, const uint8_t *end)
{
    const float *x = p->a, *b = p->b, *const last = b + p->kc / (1 + pairs) * NR;
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
                const vec v = af_pin(broadcast(three + i % 3 * row, pairs));
#pragma GCC unroll 3
                for (int j = 0; j < NV; j++)
                    s[i][j] = add_product(s[i][j], y[j], v, pairs);
                three += i % 3 == 2 ? 3 * row : 0;
            }
        }
    }
}

/* c [rows][NR] (+)= the sum of the parts, rows at most MR. */
AF_INLINE void tile(const af_tile_part *part, int parts, const int rows, const bool pairs, float *c,
                    int64_t ldc, af_tile_mode mode, af_prefetch *next)
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
            add_part(s, p, p->ld / (1 + pairs), 1, rows, pairs, &line, end);
        else
            add_part(s, p, 1, MR, rows, pairs, &line, end);
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

AF_INLINE void tile_rows(const af_tile_part *part, int parts, int64_t rows, const bool pairs,
                         float *c, int64_t ldc, af_tile_mode mode, af_prefetch *next)
{
    if (rows >= MR) {
        tile(part, parts, MR, pairs, c, ldc, mode, next);
        return;
    }
    af_tile_part rest[AF_GEMM_SEGMENTS];
    memcpy(rest, part, (size_t)parts * sizeof *part);
    for (int64_t i = 0, n; i < rows; i += n) {
        n = rows - i < FEW ? 1 : FEW;
        if (n == FEW)
            tile(rest, parts, FEW, pairs, c + i * ldc, ldc, mode, next);
        else
            tile(rest, parts, 1, pairs, c + i * ldc, ldc, mode, next);
        for (int q = 0; q < parts; q++)
            rest[q].a = (const float *)rest[q].a + n * (rest[q].ld ? rest[q].ld / (1 + pairs) : 1);
    }
}

static void tile_f32(const af_tile_part *part, int parts, int64_t rows, float *c, int64_t ldc,
                     af_tile_mode mode, af_prefetch *next)
{
    tile_rows(part, parts, rows, false, c, ldc, mode, next);
}

const af_gemm_kernel AF_ISA_NAME(af_gemm_f32) = {
    .mr = MR, .nr = NR, .kr = KR, .pack = AF_ISA_NAME(af_pack_f32), .tile_parts = tile_f32};

#ifdef AF_OWN_PAIRS
static void tile_pairs(const af_tile_part *part, int parts, int64_t rows, float *c, int64_t ldc,
                       af_tile_mode mode, af_prefetch *next)
{
    tile_rows(part, parts, rows, true, c, ldc, mode, next);
}

const af_gemm_kernel AF_ISA_NAME(af_gemm_bf16) = {
    .mr = MR, .nr = NR, .kr = 2 * KR, .pack = AF_ISA_NAME(af_pack_pairs), .tile_parts = tile_pairs};
#endif
