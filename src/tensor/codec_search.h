/* codec_search.h - the searches for scales that the encoders share, four blocks at a time.
 *
 * The reference adds its sums one element after the other in f32, and the bytes depend on it. So
 * the lanes of a vector are four different blocks, each with its own sums in that same order:
 * identical results, a quarter of the time. Codes are small integers kept as floats. */
#ifndef AF_CODEC_SEARCH_H
#define AF_CODEC_SEARCH_H

#include "base/base.h"

typedef float af_v4 __attribute__((vector_size(16)));
typedef int32_t af_i4 __attribute__((vector_size(16)));

enum { AF_SEARCH_MAX = 32 }; /* elements of a block */

static inline af_v4 af_v4_all(float x) { return (af_v4){x, x, x, x}; }
static inline af_v4 af_v4_pick(af_i4 mask, af_v4 yes, af_v4 no)
{
    return (af_v4)((mask & (af_i4)yes) | (~mask & (af_i4)no));
}
static inline af_v4 af_v4_abs(af_v4 x)
{
    return (af_v4)((af_i4)x & (af_i4){INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX});
}
static inline bool af_v4_any(af_i4 mask) { return (mask[0] | mask[1] | mask[2] | mask[3]) != 0; }

/* The largest |x| of n values, NaN ignored. Four at a time: compilers keep the order of a float
 * maximum, which does not matter here. */
static inline float af_amax(const float *x, int64_t n)
{
    af_v4 most[2] = {af_v4_all(0), af_v4_all(0)};
    const uint64_t count = (uint64_t)n, whole = count - count % 8;
    for (uint64_t i = 0; i < whole; i += 8) {
        af_v4 v[2];
        memcpy(v, x + i, sizeof v);
        for (int k = 0; k < 2; k++) {
            const af_v4 a = af_v4_abs(v[k]);
            most[k] = af_v4_pick(a > most[k], a, most[k]);
        }
    }
    most[0] = af_v4_pick(most[1] > most[0], most[1], most[0]);
    float max = 0;
    for (int k = 0; k < 4; k++)
        max = most[0][k] > max ? most[0][k] : max;
    for (uint64_t i = whole; i < count; i++) {
        const float a = x[i] < 0 ? -x[i] : x[i];
        max = a > max ? a : max;
    }
    return max;
}

/* x[i] = element i of `count` (1 to 4) blocks of n that lie one behind the other; missing blocks
 * repeat the last one. */
void af_v4_load(af_v4 *x, const float *src, int n, int64_t count);
/* The codes of lane k as bytes. */
void af_v4_codes(uint8_t *dst, const af_v4 *code, int n, int lane);

typedef struct af_affine_plan {
    float first, step; /* tried: top + first + step*k, k = 0 .. steps */
    int steps;
    bool absolute; /* sum of |error| instead of its square */
} af_affine_plan;

/* x ~ scale*code - min, codes 0 .. top, scale and min not negative. */
void af_search_affine(int n, float top, const af_v4 *x, const af_v4 *w, af_v4 *code, af_v4 *scale,
                      af_v4 *min, const af_affine_plan *plan);
/* x ~ scale*(code - half), codes 0 .. 2*half-1. */
void af_search_signed(int n, float half, const af_v4 *x, const af_v4 *w, af_v4 *code, af_v4 *scale);
/* The same by improving one code after the other; weights x*x. */
void af_search_stepwise(int n, float half, const af_v4 *x, af_v4 *code, af_v4 *scale);
/* x ~ scale*code for one row of positive values, codes 0 .. top: for rows of scales. */
float af_search_positive(int n, float top, const float *x, const float *w, uint8_t *code);
/* x ~ scale*value[code] with the table of iq4_nl; only the scale is wanted. */
void af_search_iq4(int n, const af_v4 *x, const af_v4 *w, af_v4 *scale);
/* The nearest entry of that table, as value and as code. */
void af_iq4_nearest(af_v4 x, af_v4 *value, af_v4 *code);
#endif
