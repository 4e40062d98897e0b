/* gemm_planes.h - activations as planes of bytes, for the files that multiply the blocks of a
 * weight as integers: 32 activations become 24-bit integers with one scale, cut into three planes
 * of signed bytes (x = s * (65536 digit[2] + 256 digit[1] + digit[0])), so that nothing is lost
 * against f32 (the largest of the 32 keeps 23 bits) and sums of products are exact. Rounded ones
 * are bytes with one scale.
 *
 * A file defines, before it includes this, with what number sums begin where that is not zero:
 *   put_starts(start, p, rounded): STARTS numbers for each plane
 * and afterwards cut. */
#ifndef AF_GEMM_PLANES_H
#define AF_GEMM_PLANES_H

#include "cpu/gemm/gemm_blocks.h"

#include <math.h>

/* The planes of 32 numbers; their scale. */
static float cut(int8_t *p, const float *x, bool rounded);

/* Signed digits reach 0x7f7f7f or 0x7f, and rounding needs a margin. */
AF_INLINE float largest_integer(bool rounded) { return rounded ? 127 : 8355000; }

/* Bytes of 32 activations. */
AF_INLINE int plane_bytes(bool rounded) { return AF_BLOCK * (rounded ? 1 : AF_PLANES); }

/* Of 32 numbers, by the largest and the sum of their sizes: whether they have planes; else *scale
 * tells: not a number, or nothing. */
AF_INLINE bool has_planes(float most, float all, bool rounded, float *by, float *scale)
{
    const float top = largest_integer(rounded);
    *by = most > 0 ? top / most : 0;
    *scale = most / top;
    if (all < INFINITY && *by < INFINITY)
        return true;
    *scale = all < INFINITY ? 0 : NAN;
    return false;
}

AF_INLINE uint64_t planes_work(int64_t values)
{
    return (uint64_t)(values / AF_BLOCK) *
           (5 * sizeof(float) + AF_PLANES * (AF_BLOCK + STARTS * sizeof(int32_t)));
}

AF_INLINE void prepare_planes(af_block_x *out, const float *x, int64_t M, int64_t K, bool rounded,
                              void *work)
{
    const int64_t blocks = K / AF_BLOCK, bytes = plane_bytes(rounded);
    const int64_t starts = STARTS * (rounded ? 1 : AF_PLANES);
    float *scale = work, *sums = scale + 4 * M * blocks;
    int32_t *start = (int32_t *)(sums + M * blocks);
    int8_t *planes = (int8_t *)(start + starts * M * blocks);
    assert(M <= AF_BLOCK_ROWS);
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < blocks; k++) {
            const int64_t to = k * M + m;
            const float *from = x + m * K + k * AF_BLOCK;
            float sum = 0;
            for (int i = 0; i < AF_BLOCK; i++)
                sum += from[i];
            sums[to] = sum;
            const float by = cut(planes + to * bytes, from, rounded), up = 65536 * by;
            memcpy(scale + 4 * to, (float[]){by, up, by, up}, 4 * sizeof by);
            put_starts(start + starts * to, planes + to * bytes, rounded);
        }
    *out = (af_block_x){.x = x,
                        .sums = sums,
                        .scale = scale,
                        .planes = planes,
                        .start = start,
                        .M = M,
                        .K = K,
                        .rounded = rounded};
}
#endif
