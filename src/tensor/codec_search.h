/* codec_search.h - the searches for scales that the encoders share, many blocks at a time.
 *
 * The reference adds its sums one element after the other in f32, and the bytes depend on it. So
 * the lanes of a vector are different blocks, each with its own sums in that same order: identical
 * results in a fraction of the time. Codes are small integers kept as floats. */
#ifndef AF_CODEC_SEARCH_H
#define AF_CODEC_SEARCH_H

#include "tensor/codec_vec.h"

/* One element of AF_WIDE blocks: two vectors, because the sums of one alone leave the arithmetic
 * waiting for itself. */
typedef struct af_wide {
    af_vec v[2];
} af_wide;

enum { AF_SEARCH_MAX = 32, AF_WIDE = 2 * AF_LANES }; /* elements, and blocks, of one search */

/* x[i] = element i of `count` (1 to AF_LANES) blocks of n that lie one after the other, n a
 * multiple of 4; missing blocks repeat the last one. Elements of x are `stride` apart. */
void af_vec_load(af_vec *x, int stride, const float *src, int n, int64_t count);
/* The same of up to AF_WIDE blocks. */
void af_wide_load(af_wide *x, const float *src, int n, int64_t count);

typedef struct af_affine_plan {
    float first, step; /* tried: top + first + step*k, k = 0 .. steps */
    int steps;
    bool absolute; /* sum of |error| instead of its square */
} af_affine_plan;

/* x ~ scale*code - min with code = clamp(nearest(iscale*(x - from)), 0, top). */
typedef struct af_affine {
    float scale[AF_WIDE], min[AF_WIDE];
    float iscale[AF_WIDE], from[AF_WIDE];
} af_affine;

/* Codes 0 .. top, scale and min not negative; n a multiple of 4. One or two times AF_WIDE blocks,
 * x and w: [wides][n]. */
void af_search_affine(int n, float top, int wides, const af_wide *x, const af_wide *w,
                      af_affine *out, const af_affine_plan *plan);
/* x ~ scale*(code - half), code = clamp(nearest(iscale*x), -half, half-1) + half, of AF_WIDE
 * blocks; n a multiple of 2. An all but zero block has scale and iscale 0, and the code 0. */
void af_search_signed(int n, float half, const af_wide *x, const af_wide *w, float *scale,
                      float *iscale);
/* The same of sixteen blocks, by improving one code after the other; weights x*x. x and code:
 * [n][AF_STEPWISE], scale: [AF_STEPWISE]. */
enum { AF_STEPWISE = 16 / AF_LANES };
void af_search_stepwise(int n, float half, const af_vec *x, af_vec *code, af_vec *scale);
/* x ~ scale*code for one row of positive values, codes 0 .. top: for rows of scales. */
float af_search_positive(int n, float top, const float *x, const float *w, uint8_t *code);
/* x ~ scale*value[code] with the table of iq4_nl; only the scale is wanted. */
void af_search_iq4(int n, const af_vec *x, const af_vec *w, af_vec *scale);
/* The nearest entries of that table to inverse*x; n a multiple of AF_LANES. */
void af_iq4_codes(uint8_t *code, const float *x, int n, float inverse);
#endif
