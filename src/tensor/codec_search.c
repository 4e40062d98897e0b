/* codec_search.c - see codec_search.h. Order of operations is part of the contract here. */
#include "tensor/codec_search.h"

#include "tensor/codec_block.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

#define TINY 1e-15f /* blocks below it are zero */

void af_v4_load(af_v4 *x, const float *src, int n, int64_t count)
{
    const float *s[4];
    for (int k = 0; k < 4; k++)
        s[k] = src + AF_MIN(k, count - 1) * n;
    for (int i = 0; i < n; i++)
        x[i] = (af_v4){s[0][i], s[1][i], s[2][i], s[3][i]};
}

void af_v4_codes(uint8_t *dst, const af_v4 *code, int n, int lane)
{
    for (int i = 0; i < n; i++)
        dst[i] = (uint8_t)code[i][lane];
}

static inline af_v4 nearest(af_v4 x)
{
    const af_v4 magic = af_v4_all(0x1.8p23f);
    return (x + magic) - magic;
}

/* Into [lo, hi], NaN to lo. The intrinsics are one instruction each where the portable form is
 * four; results are the same. */
static inline af_v4 clamp(af_v4 x, float lo, float hi)
{
    const af_v4 l = af_v4_all(lo), h = af_v4_all(hi);
#if defined(__SSE2__)
    return (af_v4)_mm_min_ps(_mm_max_ps((__m128)x, (__m128)l), (__m128)h);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return (af_v4)vminnmq_f32(vmaxnmq_f32((float32x4_t)x, (float32x4_t)l), (float32x4_t)h);
#else
    return af_v4_pick(x > h, h, af_v4_pick(x >= l, x, l));
#endif
}

static inline af_v4 error_of(af_v4 diff, bool absolute)
{
    return absolute ? af_v4_abs(diff) : diff * diff;
}

typedef struct affine {
    af_v4 lo, hi, sum_w, sum_x; /* range and weighted sums of x */
} affine;

static affine affine_start(int n, const af_v4 *x, const af_v4 *w)
{
    affine a = {x[0], x[0], w[0], w[0] * x[0]};
    for (int i = 1; i < n; i++) {
        a.lo = af_v4_pick(x[i] < a.lo, x[i], a.lo);
        a.hi = af_v4_pick(x[i] > a.hi, x[i], a.hi);
        a.sum_w += w[i];
        a.sum_x += w[i] * x[i];
    }
    a.lo = af_v4_pick(a.lo > af_v4_all(0), af_v4_all(0), a.lo);
    return a;
}

/* Codes for one step size, then the least-squares scale and min for them. Mask: solvable. */
static af_i4 affine_fit(int n, float top, const af_v4 *x, const af_v4 *w, const affine *a,
                        af_v4 iscale, af_v4 *code, af_v4 *scale, af_v4 *lo)
{
    af_v4 sum_l = af_v4_all(0), sum_l2 = sum_l, sum_xl = sum_l;
    const af_v4 from = a->lo;
    for (int i = 0; i < n; i++) {
        const af_v4 l = clamp(nearest(iscale * (x[i] - from)), 0, top);
        code[i] = l;
        sum_l += w[i] * l;
        sum_l2 += w[i] * l * l;
        sum_xl += w[i] * l * x[i];
    }
    const af_v4 det = a->sum_w * sum_l2 - sum_l * sum_l, zero = af_v4_all(0);
    const af_v4 s = (a->sum_w * sum_xl - a->sum_x * sum_l) / det;
    const af_v4 m = (sum_l2 * a->sum_x - sum_l * sum_xl) / det;
    const af_i4 positive = m > zero;
    *scale = af_v4_pick(positive, sum_xl / sum_l2, s);
    *lo = af_v4_pick(positive, zero, m);
    return det > zero;
}

static af_v4 affine_error(int n, const af_v4 *x, const af_v4 *w, const af_v4 *code, af_v4 scale,
                          af_v4 lo, bool absolute)
{
    af_v4 sum = af_v4_all(0);
    for (int i = 0; i < n; i++)
        sum += w[i] * error_of(scale * code[i] + lo - x[i], absolute);
    return sum;
}

void af_search_affine(int n, float top, const af_v4 *x, const af_v4 *w, af_v4 *code, af_v4 *scale,
                      af_v4 *min, const af_affine_plan *plan)
{
    af_v4 trial[AF_SEARCH_MAX];
    affine a = affine_start(n, x, w);
    const af_v4 first_lo = a.lo, zero = af_v4_all(0);
    const af_i4 flat = a.hi == a.lo;
    af_v4 iscale = af_v4_all(top) / (a.hi - a.lo), best_scale = af_v4_all(1) / iscale;
    for (int i = 0; i < n; i++)
        code[i] = clamp(nearest(iscale * (x[i] - a.lo)), 0, top);
    af_v4 best = affine_error(n, x, w, code, best_scale, a.lo, plan->absolute);
    for (int k = 0; k <= plan->steps; k++) {
        af_v4 s, lo;
        iscale = af_v4_all(plan->first + plan->step * (float)k + top) / (a.hi - a.lo);
        const af_i4 solved = affine_fit(n, top, x, w, &a, iscale, trial, &s, &lo);
        const af_v4 error = affine_error(n, x, w, trial, s, lo, plan->absolute);
        const af_i4 better = solved & (error < best);
        if (!af_v4_any(better))
            continue;
        for (int i = 0; i < n; i++)
            code[i] = af_v4_pick(better, trial[i], code[i]);
        best = af_v4_pick(better, error, best);
        best_scale = af_v4_pick(better, s, best_scale);
        a.lo = af_v4_pick(better, lo, a.lo); /* later steps measure from the better min */
    }
    for (int i = 0; i < n; i++)
        code[i] = af_v4_pick(flat, zero, code[i]);
    *scale = af_v4_pick(flat, zero, best_scale);
    *min = -af_v4_pick(flat, first_lo, a.lo);
}

/* The value of largest magnitude, with its sign. */
static af_v4 largest(int n, const af_v4 *x, af_v4 *amax)
{
    af_v4 big = af_v4_all(0), most = big;
    for (int i = 0; i < n; i++) {
        const af_v4 a = af_v4_abs(x[i]);
        const af_i4 more = a > most;
        most = af_v4_pick(more, a, most);
        big = af_v4_pick(more, x[i], big);
    }
    *amax = most;
    return big;
}

/* Sums of w*x*l and w*l*l for two step sizes at once: twice the work in flight. wx is w*x. */
typedef struct sums {
    af_v4 lx, l2;
} sums;

static inline void signed_sums(int n, float half, const af_v4 *x, const af_v4 *w, const af_v4 *wx,
                               const af_v4 iscale[2], sums out[2])
{
    sums a = {af_v4_all(0), af_v4_all(0)}, b = a;
    for (int i = 0; i < n; i++) {
        const af_v4 la = clamp(nearest(iscale[0] * x[i]), -half, half - 1);
        const af_v4 lb = clamp(nearest(iscale[1] * x[i]), -half, half - 1);
        a.lx += wx[i] * la;
        a.l2 += w[i] * la * la;
        b.lx += wx[i] * lb;
        b.l2 += w[i] * lb * lb;
    }
    out[0] = a;
    out[1] = b;
}

void af_search_signed(int n, float half, const af_v4 *x, const af_v4 *w, af_v4 *code, af_v4 *scale)
{
    const af_v4 zero = af_v4_all(0);
    af_v4 amax, wx[AF_SEARCH_MAX], best_scale = zero, best = zero;
    const af_v4 big = largest(n, x, &amax);
    af_v4 chosen = af_v4_all(-half) / big;
    for (int i = 0; i < n; i++)
        wx[i] = w[i] * x[i];
    /* the plain step first, then -9 .. 9 tenths without 0 */
    for (int try = 0; try < 20; try += 2) {
        af_v4 iscale[2];
        sums got[2];
        for (int k = 0; k < 2; k++) {
            const int j = try + k, tenth = j == 0 ? 0 : j <= 9 ? j - 10 : j - 9;
            iscale[k] = af_v4_all(-(half + 0.1f * (float)AF_MIN(tenth, 9))) / big;
        }
        signed_sums(n, half, x, w, wx, iscale, got);
        for (int k = 0; k < 2 && try + k < 19; k++) {
            const af_v4 lx = got[k].lx, l2 = got[k].l2, s = lx / l2;
            if (try + k == 0) {
                best_scale = af_v4_pick(l2 != zero, s, zero);
                best = best_scale * lx;
                continue;
            }
            const af_i4 better = (l2 > zero) & (lx * lx > best * l2);
            chosen = af_v4_pick(better, iscale[k], chosen);
            best_scale = af_v4_pick(better, s, best_scale);
            best = af_v4_pick(better, s * lx, best);
        }
    }
    const af_i4 tiny = amax < af_v4_all(TINY);
    for (int i = 0; i < n; i++) {
        const af_v4 l = clamp(nearest(chosen * x[i]), -half, half - 1) + af_v4_all(half);
        code[i] = af_v4_pick(tiny, zero, l);
    }
    *scale = af_v4_pick(tiny, zero, best_scale);
}

void af_search_stepwise(int n, float half, const af_v4 *x, af_v4 *code, af_v4 *scale)
{
    const af_v4 zero = af_v4_all(0);
    af_v4 amax, lx = zero, l2 = zero;
    const af_v4 iscale = af_v4_all(-half) / largest(n, x, &amax);
    for (int i = 0; i < n; i++) {
        const af_v4 l = clamp(nearest(iscale * x[i]), -half, half - 1), w = x[i] * x[i];
        code[i] = l;
        lx += w * x[i] * l;
        l2 += w * l * l;
    }
    for (int round = 0; round < 5; round++) {
        af_i4 changed = {0};
        for (int i = 0; i < n; i++) {
            const af_v4 w = x[i] * x[i], old = code[i];
            const af_v4 rest_lx = lx - w * x[i] * old, rest_l2 = l2 - w * old * old;
            const af_v4 l = clamp(nearest(x[i] * rest_l2 / rest_lx), -half, half - 1);
            const af_v4 new_lx = rest_lx + w * x[i] * l, new_l2 = rest_l2 + w * l * l;
            const af_i4 better = (rest_lx > zero) & (l != old) & (new_l2 > zero) &
                                 (new_lx * new_lx * l2 > lx * lx * new_l2);
            code[i] = af_v4_pick(better, l, old);
            lx = af_v4_pick(better, new_lx, lx);
            l2 = af_v4_pick(better, new_l2, l2);
            changed |= better;
        }
        if (!af_v4_any(changed))
            break;
    }
    const af_i4 tiny = amax < af_v4_all(TINY);
    for (int i = 0; i < n; i++)
        code[i] = af_v4_pick(tiny, zero, code[i] + af_v4_all(half));
    *scale = af_v4_pick(tiny | ~(l2 > zero), zero, lx / l2);
}

/* The reciprocal step among nine whose codes have the least weighted error. */
static float positive_start(int n, float top, const float *x, const float *w, float max)
{
    float iscale = top / max, scale = 1 / iscale, best = 0;
    for (int i = 0; i < n; i++) {
        const float diff = x[i] - scale * af_nearest(iscale * x[i]);
        best += w[i] * diff * diff;
    }
    for (int k = -4; k <= 4; k++) {
        if (k == 0)
            continue;
        const float trial = (0.1f * (float)k + top) / max, s = 1 / trial;
        float sum = 0;
        for (int i = 0; i < n; i++) {
            const float l = AF_MIN(top, af_nearest(trial * x[i])), diff = x[i] - s * l;
            sum += w[i] * diff * diff;
        }
        if (sum < best) {
            best = sum;
            iscale = trial;
        }
    }
    return iscale;
}

float af_search_positive(int n, float top, const float *x, const float *w, uint8_t *code)
{
    float max = 0, lx = 0, l2 = 0, l[16];
    assert(n <= 16);
    for (int i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    if (!(max >= TINY)) {
        memset(code, 0, (size_t)n);
        return 0;
    }
    const float iscale = positive_start(n, top, x, w, max);
    for (int i = 0; i < n; i++) {
        l[i] = af_clamp(af_nearest(iscale * x[i]), 0, top);
        lx += w[i] * x[i] * l[i];
        l2 += w[i] * l[i] * l[i];
    }
    for (int round = 0, changed = 1; round < 5 && changed; round++) {
        changed = 0;
        for (int i = 0; i < n; i++) {
            float new_lx = lx - w[i] * x[i] * l[i], new_l2 = l2 - w[i] * l[i] * l[i];
            if (!(new_lx > 0 && new_l2 > 0))
                continue;
            const float v = af_clamp(af_nearest(x[i] * new_l2 / new_lx), 0, top);
            if (v == l[i])
                continue;
            new_lx += w[i] * x[i] * v;
            new_l2 += w[i] * v * v;
            if (new_lx * new_lx * l2 > lx * lx * new_l2) {
                l[i] = v;
                lx = new_lx;
                l2 = new_l2;
                changed = 1;
            }
        }
    }
    for (int i = 0; i < n; i++)
        code[i] = (uint8_t)l[i];
    return l2 > 0 ? lx / l2 : 0;
}

const int8_t af_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

/* Half-way points are exact in f32, and a tie takes the upper entry. */
void af_iq4_nearest(af_v4 x, af_v4 *value, af_v4 *code)
{
    af_v4 v = af_v4_all(af_iq4_values[0]), c = af_v4_all(0);
    for (int t = 0; t < 15; t++) {
        const float low = af_iq4_values[t], high = af_iq4_values[t + 1];
        const af_i4 up = x >= af_v4_all((low + high) * 0.5f);
        v += (af_v4)(up & (af_i4)af_v4_all(high - low));
        c += (af_v4)(up & (af_i4)af_v4_all(1));
    }
    *value = v;
    *code = c;
}

static void iq4_sums(int n, const af_v4 *x, const af_v4 *w, af_v4 iscale, af_v4 *qx, af_v4 *q2)
{
    af_v4 sum_qx = af_v4_all(0), sum_q2 = sum_qx;
    for (int i = 0; i < n; i++) {
        af_v4 q, c;
        af_iq4_nearest(iscale * x[i], &q, &c);
        sum_qx += w[i] * q * x[i];
        sum_q2 += w[i] * q * q;
    }
    *qx = sum_qx;
    *q2 = sum_q2;
}

void af_search_iq4(int n, const af_v4 *x, const af_v4 *w, af_v4 *scale)
{
    const af_v4 zero = af_v4_all(0), first = af_v4_all(af_iq4_values[0]);
    af_v4 amax, qx, q2;
    const af_v4 big = largest(n, x, &amax);
    const af_v4 start = -big / first;
    iq4_sums(n, x, w, af_v4_all(1) / start, &qx, &q2);
    af_v4 d = qx / q2, best = d * qx;
    for (int k = -7; k <= 7; k++) {
        iq4_sums(n, x, w, (af_v4_all((float)k) + first) / big, &qx, &q2);
        const af_i4 better = (q2 > zero) & (qx * qx > best * q2);
        const af_v4 s = qx / q2;
        d = af_v4_pick(better, s, d);
        best = af_v4_pick(better, s * qx, best);
    }
    *scale = af_v4_pick(amax < af_v4_all(TINY), zero, d);
}
