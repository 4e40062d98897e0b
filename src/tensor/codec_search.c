/* codec_search.c - see codec_search.h. Order of operations is part of the contract here.
 *
 * Inner loops take four elements of two vectors through one operation at a time: written element
 * after element, each operation would wait for the one before it. */
#include "tensor/codec_search.h"

#include "tensor/codec_block.h"

#define TINY 1e-15f /* blocks below it are zero */

enum { STEP = 4, BATCH = 2 * STEP }; /* elements, and vectors, in flight */

void af_vec_load(af_vec *x, int stride, const float *src, int n, int64_t count)
{
    for (int lane = 0; lane < AF_LANES; lane += 4) {
        const float *s[4];
        for (int k = 0; k < 4; k++)
            s[k] = src + AF_MIN(lane + k, count - 1) * n;
        for (int i = 0; i < n; i += 4) {
            af_quad got[4];
            for (int k = 0; k < 4; k++)
                memcpy(&got[k], s[k], sizeof got[k]);
            af_quad_transpose(got);
            for (int k = 0; k < 4; k++) {
                memcpy((float *)(x + (i + k) * stride) + lane, &got[k], sizeof got[k]);
                s[k] += 4;
            }
        }
    }
}

void af_wide_load(af_wide *x, const float *src, int n, int64_t count)
{
    const int64_t first = AF_MIN(count, AF_LANES), rest = count - first;
    af_vec_load(&x->v[0], 2, src, n, first);
    af_vec_load(&x->v[1], 2, rest ? src + AF_LANES * n : src, n, rest ? rest : first);
}

typedef struct affine {
    af_wide lo, hi, sum_w, sum_x; /* range and weighted sums of x */
} affine;

static affine affine_start(int n, const af_wide *x, const af_wide *w)
{
    affine a;
    for (int p = 0; p < 2; p++) {
        af_vec lo = x[0].v[p], hi = lo, sum_w = w[0].v[p], sum_x = sum_w * lo;
        for (int i = 1; i < n; i++) {
            const af_vec v = x[i].v[p], u = w[i].v[p];
            lo = af_vec_pick(v < lo, v, lo);
            hi = af_vec_pick(v > hi, v, hi);
            sum_w += u;
            sum_x += u * v;
        }
        a.lo.v[p] = af_vec_pick(lo > af_vec_all(0), af_vec_all(0), lo);
        a.hi.v[p] = hi;
        a.sum_w.v[p] = sum_w;
        a.sum_x.v[p] = sum_x;
    }
    return a;
}

static inline void affine_codes(af_vec l[BATCH], const af_wide *x, const af_wide *iscale,
                                const af_wide *from, float top)
{
    for (int k = 0; k < BATCH; k++)
        l[k] = x[k / 2].v[k % 2] - from->v[k % 2];
    for (int k = 0; k < BATCH; k++)
        l[k] *= iscale->v[k % 2];
    for (int k = 0; k < BATCH; k++)
        l[k] += 0x1.8p23f;
    for (int k = 0; k < BATCH; k++)
        l[k] -= 0x1.8p23f;
    for (int k = 0; k < BATCH; k++)
        l[k] = af_vec_clamp(l[k], 0, top);
}

typedef struct affine_sums {
    af_wide l, l2, xl;
} affine_sums;

/* The codes for one step size, and their weighted sums. */
static affine_sums affine_try(int n, float top, const af_wide *x, const af_wide *w,
                              const af_wide *iscale, const af_wide *from, af_wide *code)
{
    const af_wide scale = *iscale, low = *from;
    af_vec s[6] = {{0}};
    for (int i = 0; i < n; i += STEP) {
        af_vec l[BATCH], u[BATCH];
        affine_codes(l, x + i, &scale, &low, top);
        for (int k = 0; k < BATCH; k++)
            code[i + k / 2].v[k % 2] = l[k];
        for (int k = 0; k < BATCH; k++)
            u[k] = w[i + k / 2].v[k % 2] * l[k];
        for (int k = 0; k < BATCH; k++)
            s[k % 2] += u[k];
        for (int k = 0; k < BATCH; k++)
            l[k] *= u[k];
        for (int k = 0; k < BATCH; k++)
            u[k] *= x[i + k / 2].v[k % 2];
        for (int k = 0; k < BATCH; k++)
            s[2 + k % 2] += l[k];
        for (int k = 0; k < BATCH; k++)
            s[4 + k % 2] += u[k];
    }
    return (affine_sums){{{s[0], s[1]}}, {{s[2], s[3]}}, {{s[4], s[5]}}};
}

static inline af_wide affine_error(int n, const af_wide *x, const af_wide *w, const af_wide *code,
                                   const af_wide *scale, const af_wide *lo, bool absolute)
{
    const af_wide s = *scale, low = *lo;
    af_wide sum = {{{0}}};
    for (int i = 0; i < n; i += STEP) {
        af_vec e[BATCH];
        for (int k = 0; k < BATCH; k++)
            e[k] = s.v[k % 2] * code[i + k / 2].v[k % 2];
        for (int k = 0; k < BATCH; k++)
            e[k] += low.v[k % 2];
        for (int k = 0; k < BATCH; k++)
            e[k] -= x[i + k / 2].v[k % 2];
        for (int k = 0; k < BATCH; k++)
            e[k] = absolute ? af_vec_abs(e[k]) : e[k] * e[k];
        for (int k = 0; k < BATCH; k++)
            e[k] *= w[i + k / 2].v[k % 2];
        for (int k = 0; k < BATCH; k++)
            sum.v[k % 2] += e[k];
    }
    return sum;
}

/* Least-squares scale and min of those sums. Mask: solvable. */
static inline af_ivec affine_solve(af_vec sum_w, af_vec sum_x, af_vec l, af_vec l2, af_vec xl,
                                   af_vec *scale, af_vec *lo)
{
    const af_vec det = sum_w * l2 - l * l, zero = af_vec_all(0);
    const af_vec s = (sum_w * xl - sum_x * l) / det, m = (l2 * sum_x - l * xl) / det;
    const af_ivec positive = m > zero;
    *scale = af_vec_pick(positive, xl / l2, s);
    *lo = af_vec_pick(positive, zero, m);
    return det > zero;
}

/* One search at work: what is known of the blocks, the trial, and the best so far. */
typedef struct affine_search {
    const af_wide *x, *w;
    affine a;
    af_wide first_lo, iscale, scale, lo; /* of the trial */
    af_ivec solved[2];
    af_wide best_error, best_scale, best_iscale, best_from;
    af_wide code[AF_SEARCH_MAX];
} affine_search;

static af_wide affine_error_by(const af_affine_plan *plan, int n, const affine_search *s)
{
    return plan->absolute ? affine_error(n, s->x, s->w, s->code, &s->scale, &s->lo, true)
                          : affine_error(n, s->x, s->w, s->code, &s->scale, &s->lo, false);
}

static void affine_begin(affine_search *s, int n, float top, const af_affine_plan *plan)
{
    s->a = affine_start(n, s->x, s->w);
    s->lo = s->first_lo = s->best_from = s->a.lo;
    for (int p = 0; p < 2; p++) {
        s->best_iscale.v[p] = af_vec_all(top) / (s->a.hi.v[p] - s->a.lo.v[p]);
        s->best_scale.v[p] = s->scale.v[p] = af_vec_all(1) / s->best_iscale.v[p];
    }
    (void)affine_try(n, top, s->x, s->w, &s->best_iscale, &s->best_from, s->code);
    s->best_error = affine_error_by(plan, n, s);
}

static void affine_fit(affine_search *s, int n, float top, float range)
{
    for (int p = 0; p < 2; p++)
        s->iscale.v[p] = af_vec_all(range) / (s->a.hi.v[p] - s->a.lo.v[p]);
    const affine_sums got = affine_try(n, top, s->x, s->w, &s->iscale, &s->a.lo, s->code);
    for (int p = 0; p < 2; p++)
        s->solved[p] = affine_solve(s->a.sum_w.v[p], s->a.sum_x.v[p], got.l.v[p], got.l2.v[p],
                                    got.xl.v[p], &s->scale.v[p], &s->lo.v[p]);
}

static void affine_judge(affine_search *s, const af_wide *error)
{
    for (int p = 0; p < 2; p++) {
        const af_ivec better = s->solved[p] & (error->v[p] < s->best_error.v[p]);
        s->best_error.v[p] = af_vec_pick(better, error->v[p], s->best_error.v[p]);
        s->best_scale.v[p] = af_vec_pick(better, s->scale.v[p], s->best_scale.v[p]);
        s->best_iscale.v[p] = af_vec_pick(better, s->iscale.v[p], s->best_iscale.v[p]);
        s->best_from.v[p] = af_vec_pick(better, s->a.lo.v[p], s->best_from.v[p]);
        /* later steps measure from the better min */
        s->a.lo.v[p] = af_vec_pick(better, s->lo.v[p], s->a.lo.v[p]);
    }
}

static void affine_found(const affine_search *s, af_affine *out)
{
    for (int j = 0; j < AF_WIDE; j++) {
        const int p = j / AF_LANES, k = j % AF_LANES;
        const bool flat = s->a.hi.v[p][k] == s->first_lo.v[p][k];
        out->scale[j] = flat ? 0 : s->best_scale.v[p][k];
        out->min[j] = -(flat ? s->first_lo : s->a.lo).v[p][k];
        out->iscale[j] = flat ? 0 : s->best_iscale.v[p][k];
        out->from[j] = flat ? 0 : s->best_from.v[p][k];
    }
}

/* Two searches take turns: while one solves its sums, the other computes. */
void af_search_affine(int n, float top, int wides, const af_wide *x, const af_wide *w,
                      af_affine *out, const af_affine_plan *plan)
{
    affine_search s[2];
    af_wide error[2];
    assert(wides == 1 || wides == 2);
    for (int q = 0; q < wides; q++) {
        s[q].x = x + q * n;
        s[q].w = w + q * n;
        affine_begin(&s[q], n, top, plan);
    }
    for (int k = 0; k <= plan->steps; k++) {
        const float range = plan->first + plan->step * (float)k + top;
        for (int q = 0; q < wides; q++)
            affine_fit(&s[q], n, top, range);
        for (int q = 0; q < wides; q++)
            error[q] = affine_error_by(plan, n, &s[q]);
        for (int q = 0; q < wides; q++)
            affine_judge(&s[q], &error[q]);
    }
    for (int q = 0; q < wides; q++)
        affine_found(&s[q], &out[q]);
}

/* The value of largest magnitude, with its sign; elements of x are `stride` apart. */
static inline af_vec largest(int n, const af_vec *x, int stride, af_vec *amax)
{
    af_vec big = af_vec_all(0), most = big;
    for (int i = 0; i < n; i++) {
        const af_vec v = x[i * stride], a = af_vec_abs(v);
        const af_ivec more = a > most;
        most = af_vec_pick(more, a, most);
        big = af_vec_pick(more, v, big);
    }
    *amax = most;
    return big;
}

/* Sums of w*x*l and w*l*l for two step sizes, [2 * try + vector]; wx is w*x. */
typedef struct fit_sums {
    af_vec lx[4], l2[4];
} fit_sums;

/* `low`: codes below -half are possible, which takes a step beyond half + 0.4. */
static inline fit_sums signed_sums(int n, float half, const af_wide *x, const af_wide *w,
                                   const af_wide *wx, const af_vec step[4], bool low)
{
    fit_sums s = {{{0}}, {{0}}};
    for (int i = 0; i < n; i += BATCH / 4) {
        af_vec l[BATCH], u[BATCH];
        for (int k = 0; k < BATCH; k++)
            l[k] = step[k % 4] * x[i + k / 4].v[k % 2];
        for (int k = 0; k < BATCH; k++)
            l[k] += 0x1.8p23f;
        for (int k = 0; k < BATCH; k++)
            l[k] -= 0x1.8p23f;
        for (int k = 0; k < BATCH; k++)
            l[k] = low ? af_vec_clamp(l[k], -half, half - 1) : af_vec_min(l[k], half - 1);
        for (int k = 0; k < BATCH; k++)
            u[k] = wx[i + k / 4].v[k % 2] * l[k];
        for (int k = 0; k < BATCH; k++)
            s.lx[k % 4] += u[k];
        for (int k = 0; k < BATCH; k++)
            u[k] = w[i + k / 4].v[k % 2] * l[k];
        for (int k = 0; k < BATCH; k++)
            u[k] *= l[k];
        for (int k = 0; k < BATCH; k++)
            s.l2[k % 4] += u[k];
    }
    return s;
}

typedef struct signed_best {
    af_wide big, amax, scale, iscale, fit;
} signed_best;

static inline void signed_judge(signed_best *b, const fit_sums *got, const af_vec step[4],
                                bool first)
{
    const af_vec zero = af_vec_all(0);
    af_vec s[4];
    for (int k = 0; k < 4; k++)
        s[k] = got->lx[k] / got->l2[k];
    for (int k = 0; k < 4; k++) {
        const af_vec lx = got->lx[k], l2 = got->l2[k];
        const int p = k % 2;
        if (first && k < 2) {
            b->scale.v[p] = af_vec_pick(l2 != zero, s[k], zero);
            b->fit.v[p] = b->scale.v[p] * lx;
            continue;
        }
        const af_ivec better = (l2 > zero) & (lx * lx > b->fit.v[p] * l2);
        b->iscale.v[p] = af_vec_pick(better, step[k], b->iscale.v[p]);
        b->scale.v[p] = af_vec_pick(better, s[k], b->scale.v[p]);
        b->fit.v[p] = af_vec_pick(better, s[k] * lx, b->fit.v[p]);
    }
}

void af_search_signed(int n, float half, const af_wide *x, const af_wide *w, float *scale,
                      float *iscale)
{
    /* the plain step first, then all others; the twentieth is there to fill the last pair */
    static const int8_t tenths[20] = {0, -9, -8, -7, -6, -5, -4, -3, -2, -1,
                                      1, 2,  3,  4,  5,  6,  7,  8,  9,  9};
    const af_vec zero = af_vec_all(0);
    af_wide wx[AF_SEARCH_MAX];
    signed_best b;
    for (int p = 0; p < 2; p++) {
        b.big.v[p] = largest(n, &x->v[p], 2, &b.amax.v[p]);
        b.iscale.v[p] = af_vec_all(-half) / b.big.v[p];
    }
    for (int i = 0; i < n; i++)
        for (int p = 0; p < 2; p++)
            wx[i].v[p] = w[i].v[p] * x[i].v[p];
    for (int try = 0; try < 20; try += 2) {
        af_vec step[4];
        for (int k = 0; k < 4; k++)
            step[k] = af_vec_all(-(half + 0.1f * (float)tenths[try + k / 2])) / b.big.v[k % 2];
        const fit_sums got = tenths[try + 1] <= 4 ? signed_sums(n, half, x, w, wx, step, false)
                                                  : signed_sums(n, half, x, w, wx, step, true);
        signed_judge(&b, &got, step, try == 0);
    }
    for (int p = 0; p < 2; p++) {
        const af_ivec tiny = b.amax.v[p] < af_vec_all(TINY);
        b.iscale.v[p] = af_vec_pick(tiny, zero, b.iscale.v[p]);
        b.scale.v[p] = af_vec_pick(tiny, zero, b.scale.v[p]);
    }
    memcpy(scale, &b.scale, sizeof b.scale);
    memcpy(iscale, &b.iscale, sizeof b.iscale);
}

/* One code of each of the vectors' blocks improved, where that helps; mask: where it did. */
static inline af_ivec improve(af_vec x, float half, af_vec *code, af_vec *lx, af_vec *l2)
{
    const af_vec zero = af_vec_all(0), w = x * x, old = *code;
    const af_vec rest_lx = *lx - w * x * old, rest_l2 = *l2 - w * old * old;
    const af_vec l = af_vec_clamp(af_vec_nearest(x * rest_l2 / rest_lx), -half, half - 1);
    const af_vec new_lx = rest_lx + w * x * l, new_l2 = rest_l2 + w * l * l;
    const af_ivec better = (rest_lx > zero) & (l != old) & (new_l2 > zero) &
                           (new_lx * new_lx * *l2 > *lx * *lx * new_l2);
    *code = af_vec_pick(better, l, old);
    *lx = af_vec_pick(better, new_lx, *lx);
    *l2 = af_vec_pick(better, new_l2, *l2);
    return better;
}

void af_search_stepwise(int n, float half, const af_vec *x, af_vec *code, af_vec *scale)
{
    enum { V = AF_STEPWISE };
    const af_vec zero = af_vec_all(0);
    af_vec amax[V], lx[V], l2[V], iscale[V];
    for (int q = 0; q < V; q++) {
        iscale[q] = af_vec_all(-half) / largest(n, x + q, V, &amax[q]);
        lx[q] = l2[q] = zero;
    }
    for (int k = 0; k < n * V; k++) {
        const int q = k % V;
        const af_vec l = af_vec_clamp(af_vec_nearest(iscale[q] * x[k]), -half, half - 1);
        const af_vec w = x[k] * x[k];
        code[k] = l;
        lx[q] += w * x[k] * l;
        l2[q] += w * l * l;
    }
    for (int round = 0; round < 5; round++) {
        af_ivec changed = {0};
        for (int i = 0; i < n; i++)
            for (int q = 0; q < V; q++) /* V chains of divisions at once */
                changed |= improve(x[i * V + q], half, &code[i * V + q], &lx[q], &l2[q]);
        if (!af_vec_any(changed))
            break;
    }
    for (int q = 0; q < V; q++) {
        const af_ivec tiny = amax[q] < af_vec_all(TINY);
        for (int i = 0; i < n; i++)
            code[i * V + q] = af_vec_pick(tiny, zero, code[i * V + q] + af_vec_all(half));
        scale[q] = af_vec_pick(tiny | ~(l2[q] > zero), zero, lx[q] / l2[q]);
    }
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
static inline af_vec iq4_nearest(af_vec x, af_vec *code)
{
    af_vec v = af_vec_all(af_iq4_values[0]), c = af_vec_all(0);
    for (int t = 0; t < 15; t++) {
        const float low = af_iq4_values[t], high = af_iq4_values[t + 1];
        const af_ivec up = x >= af_vec_all((low + high) * 0.5f);
        v += (af_vec)(up & (af_ivec)af_vec_all(high - low));
        c += (af_vec)(up & (af_ivec)af_vec_all(1));
    }
    *code = c;
    return v;
}

void af_iq4_codes(uint8_t *code, const float *x, int n, float inverse)
{
    for (int i = 0; i < n; i += AF_LANES) {
        af_vec v, c;
        memcpy(&v, x + i, sizeof v);
        (void)iq4_nearest(v * inverse, &c);
        for (int k = 0; k < AF_LANES; k++)
            code[i + k] = (uint8_t)c[k];
    }
}

static void iq4_sums(int n, const af_vec *x, const af_vec *w, af_vec iscale, af_vec *qx, af_vec *q2)
{
    af_vec sum_qx = af_vec_all(0), sum_q2 = sum_qx;
    for (int i = 0; i < n; i++) {
        af_vec c;
        const af_vec q = iq4_nearest(iscale * x[i], &c);
        sum_qx += w[i] * q * x[i];
        sum_q2 += w[i] * q * q;
    }
    *qx = sum_qx;
    *q2 = sum_q2;
}

void af_search_iq4(int n, const af_vec *x, const af_vec *w, af_vec *scale)
{
    const af_vec zero = af_vec_all(0), first = af_vec_all(af_iq4_values[0]);
    af_vec amax, qx, q2;
    const af_vec big = largest(n, x, 1, &amax);
    const af_vec start = -big / first;
    iq4_sums(n, x, w, af_vec_all(1) / start, &qx, &q2);
    af_vec d = qx / q2, best = d * qx;
    for (int k = -7; k <= 7; k++) {
        iq4_sums(n, x, w, (af_vec_all((float)k) + first) / big, &qx, &q2);
        const af_ivec better = (q2 > zero) & (qx * qx > best * q2);
        const af_vec s = qx / q2;
        d = af_vec_pick(better, s, d);
        best = af_vec_pick(better, s * qx, best);
    }
    *scale = af_vec_pick(amax < af_vec_all(TINY), zero, d);
}
