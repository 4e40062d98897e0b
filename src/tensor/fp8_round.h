/* fp8_round.h - rows of numbers rounded to e4m3 with a scale: what FP8 products are made of.
 *
 * s is the least power of two with max|x| <= 448 s, and q = e4m3(x / s); a value then counts as q
 * s. Because s changes exponents only, a row that is rounded with a larger one, from a bound of its
 * magnitudes, counts as the same values, but for those below 2^-6 s. A row whose largest magnitude
 * is below AF_FP8_TINY is zero; one that has a NaN or an infinity is NaN, so that it shows in the
 * product. Kernels of a GPU (fp8_codes.cuh) make the same codes and scales. */
#ifndef AF_FP8_ROUND_H
#define AF_FP8_ROUND_H

#include "base/base.h"

#define AF_FP8_TINY 0x1p-100f /* 1 / s is finite from here on */

typedef struct af_fp8_scale {
    float scale, inverse; /* both 0 for a row of zeros, NaN where a value is not finite */
} af_fp8_scale;

/* The largest magnitude among n values and `so_far`; NaN or infinity where one of them is. */
float af_fp8_largest(const float *x, int64_t n, float so_far);
af_fp8_scale af_fp8_scale_of(float largest);
/* The nearest e4m3, ties to even, at most 448 in magnitude; NaN stays. */
float af_fp8_round(float x);
/* Its code. */
uint8_t af_fp8_code(float x);
/* x[i] becomes the value of its code with the scale of all. */
void af_fp8_round_row(float *x, int64_t n, af_fp8_scale s);
/* The same with a scale for each i. */
void af_fp8_round_columns(float *x, int64_t n, const af_fp8_scale *s);
/* largest[i] = max(largest[i], |x[i]|), with NaN and infinities as above. */
void af_fp8_largest_columns(float *largest, const float *x, int64_t n);
#endif
