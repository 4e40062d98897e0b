/* rows.c - loops over one row, in vectors. A row's tail goes through a padded vector, so that every
 * element has the same arithmetic wherever it stands; outputs may be their own inputs. */
#include "cpu/cpu_kernels.h"
#include "cpu/gemm/gemm_job.h"

#include <math.h>

static inline vec load(const float *p, int64_t left)
{
    if (left >= VL)
        return *(const vec *)p;
    vec v = {0};
    memcpy(&v, p, (size_t)left * sizeof *p);
    return v;
}

static inline void store(float *p, vec v, int64_t left)
{
    if (left >= VL)
        *(vec *)p = v;
    else
        memcpy(p, &v, (size_t)left * sizeof *p);
}

static void to_f32(float *restrict dst, const uint16_t *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = (uint32_t)src[i] << 16;
        memcpy(&dst[i], &u, 4);
    }
}

static float dot(const float *a, const float *b, int64_t n)
{
    vec s[4] = {0};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            s[u] += *(const vec *)(a + i + u * VL) * *(const vec *)(b + i + u * VL);
    for (; i < n; i += VL)
        s[0] += load(a + i, n - i) * load(b + i, n - i);
    return af_lanes((s[0] + s[1]) + (s[2] + s[3]));
}

static float sum_squares(const float *x, int64_t n) { return dot(x, x, n); }

static void add(float *y, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        *(vec *)(y + i) = *(const vec *)(a + i) + *(const vec *)(b + i);
    if (i < n)
        store(y + i, load(a + i, n - i) + load(b + i, n - i), n - i);
}

static void mul(float *y, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        *(vec *)(y + i) = *(const vec *)(a + i) * *(const vec *)(b + i);
    if (i < n)
        store(y + i, load(a + i, n - i) * load(b + i, n - i), n - i);
}

static void axpy(float *y, float alpha, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        *(vec *)(y + i) += *(const vec *)(x + i) * alpha;
    if (i < n)
        store(y + i, load(y + i, n - i) + load(x + i, n - i) * alpha, n - i);
}

static void scale(float *y, float alpha, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        *(vec *)(y + i) = *(const vec *)(x + i) * alpha;
    if (i < n)
        store(y + i, load(x + i, n - i) * alpha, n - i);
}

static void norm(float *y, const float *x, const float *w, float plus, float r, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        *(vec *)(y + i) = *(const vec *)(x + i) * r * (*(const vec *)(w + i) + plus);
    if (i < n)
        store(y + i, load(x + i, n - i) * r * (load(w + i, n - i) + plus), n - i);
}

static float norm_dot(const float *x, const float *w, float plus, const float *dy, int64_t n)
{
    vec s[2] = {0};
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL)
#pragma GCC unroll 2
        for (int u = 0; u < 2; u++) {
            const int64_t k = i + u * VL;
            s[u] += *(const vec *)(x + k) * *(const vec *)(dy + k) * (*(const vec *)(w + k) + plus);
        }
    for (; i < n; i += VL)
        s[0] += load(x + i, n - i) * load(dy + i, n - i) * (load(w + i, n - i) + plus);
    return af_lanes(s[0] + s[1]);
}

static void norm_bwd(float *dx, const float *x, const float *w, float plus, const float *dy,
                     const float *d, float r, float c, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) {
        const int64_t left = n - i;
        vec v = (load(dy + i, left) * (load(w + i, left) + plus) - load(x + i, left) * c) * r;
        if (d)
            v += load(d + i, left);
        store(dx + i, v, left);
    }
}

/* s += dy * x * r */
static void norm_dw(float *s, const float *x, const float *dy, float r, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) {
        const int64_t left = n - i;
        store(s + i, load(s + i, left) + load(x + i, left) * load(dy + i, left) * r, left);
    }
}

/* exp to about 1 ulp, in place, of one or four vectors: 2^n times a polynomial on [-ln2/2, ln2/2]
 * (coefficients: Cephes' expf). Four are done step by step together: one alone waits for
 * itself most of the time. */
static inline __attribute__((always_inline)) void exp_vecs(vec *restrict x, const int count)
{
    static const float series[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                   1.6666665459e-1f, 5.0000001201e-1f};
    const vec zero = {0}, low = zero - 87.0f, high = zero + 88.0f;
    const vec magic = zero + 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vec shifted[4], p[4];
#pragma GCC unroll 4
    for (int u = 0; u < count; u++) {
        x[u] = af_vec_clamp(x[u], low, high);
        shifted[u] = x[u] * 1.44269504088896341f + magic;
    }
#pragma GCC unroll 4
    for (int u = 0; u < count; u++) {
        x[u] = x[u] - (shifted[u] - magic) * 0.693359375f;
        p[u] = zero + 1.9875691500e-4f;
    }
#pragma GCC unroll 4
    for (int u = 0; u < count; u++)
        x[u] = x[u] + (shifted[u] - magic) * 2.12194440e-4f;
#pragma GCC unroll 4
    for (int u = 0; u < count; u++) { /* pairs of terms: fewer steps that wait for one another */
        const vec x2 = x[u] * x[u], a = p[u] * x[u] + series[0], b = series[1] * x[u] + series[2],
                  c = series[3] * x[u] + series[4];
        p[u] = ((a * x2 + b) * x2 + c) * x2 + x[u];
    }
#pragma GCC unroll 4
    for (int u = 0; u < count; u++) /* n are the last bits of shifted */
        x[u] = (p[u] + 1.0f) * (vec)(((ivec)shifted[u] << 23) + (127 << 23));
}

static inline vec exp_vec(vec x)
{
    exp_vecs(&x, 1);
    return x;
}

static inline vec sigmoid_vec(vec x) { return af_reciprocal(1.0f + exp_vec(-x)); }

/* tanh through exp; small arguments by its series, where 1 - 2/(e+1) would cancel. */
static inline vec tanh_vec(vec x)
{
    const vec x2 = x * x;
    const vec small =
        x * (1.0f +
             x2 * (-0.33333333f + x2 * (0.13333333f + x2 * (-0.053968254f + x2 * 0.021869489f))));
    const vec large = 1.0f - 2.0f / (exp_vec(2.0f * x) + 1.0f);
    return af_pick(x2 < 0.0625f, small, large);
}

/* The normal distribution up to x, e = exp(-x^2 / 2): e t times a polynomial of t = 1 / (1 + 0.3
 * |x| / sqrt 2) for one tail, to about 5e-7. */
static inline vec normal_cdf(vec x, vec e)
{
    static const float series[] = {0.245599589f, -0.262151169f, 0.280995496f,  -0.0524684188f,
                                   0.109764101f, 0.0735465169f, 0.0854508401f, 0.0845881063f};
    const vec zero = {0}, t = 1.0f / (1.0f + 0.21213203f * af_pick(x < zero, -x, x));
    vec p = zero - 0.0653250742f;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        p = p * t + series[i];
    const vec tail = e * t * p;
    return af_pick(x < zero, tail, 1.0f - tail);
}

static const float gelu_a = 0.7978845608028654f, gelu_b = 0.044715f;

/* act(x), and its derivative when requested */
static inline vec act_vec(af_act act, vec x, vec *slope)
{
    const vec zero = {0};
    if (act == AF_ACT_SILU) {
        const vec s = sigmoid_vec(x);
        *slope = s * (1.0f + x * (1.0f - s));
        return x * s;
    }
    if (act == AF_ACT_GELU_TANH) {
        const vec t = tanh_vec(gelu_a * (x + gelu_b * x * x * x)), h = 0.5f * (1.0f + t);
        *slope = h + 0.5f * x * (1.0f - t * t) * gelu_a * (1.0f + 3.0f * gelu_b * x * x);
        return x * h;
    }
    if (act == AF_ACT_RELU) {
        *slope = af_pick(x > zero, zero + 1.0f, zero);
        return af_pick(x > zero, x, zero);
    }
    const vec e = exp_vec(-0.5f * x * x), cdf = normal_cdf(x, e);
    *slope = cdf + x * 0.39894228f * e;
    return x * cdf;
}

static inline void glu_rows(float *y, const float *gate, const float *up, af_act act, int64_t n)
{
    vec slope;
    for (int64_t i = 0; i < n; i += VL)
        store(y + i, act_vec(act, load(gate + i, n - i), &slope) * load(up + i, n - i), n - i);
}

static inline void glu_bwd_rows(float *dgate, float *dup, const float *gate, const float *up,
                                const float *dy, af_act act, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) {
        const vec x = load(gate + i, n - i), u = load(up + i, n - i), d = load(dy + i, n - i);
        vec slope;
        const vec v = act_vec(act, x, &slope);
        store(dup + i, d * v, n - i);
        store(dgate + i, d * u * slope, n - i);
    }
}

/* The most used one, four vectors at a time. */
static void silu_rows(float *y, const float *gate, const float *up, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vec e[4];
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            e[u] = -*(const vec *)(gate + i + u * VL);
        exp_vecs(e, 4);
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            *(vec *)(y + i + u * VL) = *(const vec *)(gate + i + u * VL) *
                                       af_reciprocal(1.0f + e[u]) * *(const vec *)(up + i + u * VL);
    }
    glu_rows(y + i, gate + i, up + i, AF_ACT_SILU, n - i);
}

static void silu_bwd_rows(float *dgate, float *dup, const float *gate, const float *up,
                          const float *dy, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vec e[4];
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            e[u] = -*(const vec *)(gate + i + u * VL);
        exp_vecs(e, 4);
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
            const int64_t k = i + u * VL;
            const vec x = *(const vec *)(gate + k), d = *(const vec *)(dy + k),
                      s = af_reciprocal(1.0f + e[u]), du = d * *(const vec *)(up + k);
            *(vec *)(dup + k) = d * (x * s);
            *(vec *)(dgate + k) = du * (s * (1.0f + x * (1.0f - s)));
        }
    }
    glu_bwd_rows(dgate + i, dup + i, gate + i, up + i, dy + i, AF_ACT_SILU, n - i);
}

/* One copy of the loop per activation, so that the choice is not made inside. */
static void glu(float *y, const float *gate, const float *up, af_act act, int64_t n)
{
    if (act == AF_ACT_SILU)
        silu_rows(y, gate, up, n);
    else if (act == AF_ACT_GELU_TANH)
        glu_rows(y, gate, up, AF_ACT_GELU_TANH, n);
    else
        glu_rows(y, gate, up, act, n);
}

static void glu_bwd(float *dgate, float *dup, const float *gate, const float *up, const float *dy,
                    af_act act, int64_t n)
{
    if (act == AF_ACT_SILU)
        silu_bwd_rows(dgate, dup, gate, up, dy, n);
    else if (act == AF_ACT_GELU_TANH)
        glu_bwd_rows(dgate, dup, gate, up, dy, AF_ACT_GELU_TANH, n);
    else
        glu_bwd_rows(dgate, dup, gate, up, dy, act, n);
}

/* With e = exp(-|x|), log(1 + e) by the series of 2 atanh(e / (2 + e)). */
static void softplus(float *y, float *slope, const float *x, int64_t n)
{
    static const float series[] = {0.07692308f, 0.09090909f, 0.11111111f,
                                   0.14285715f, 0.2f,        0.33333334f};
    const vec zero = {0};
    for (int64_t i = 0; i < n; i += VL) {
        const vec v = load(x + i, n - i), e = exp_vec(af_pick(v > zero, -v, v)), w = e / (2.0f + e),
                  w2 = w * w;
        vec p = zero + 0.06666667f;
#pragma GCC unroll 6
        for (int k = 0; k < 6; k++)
            p = p * w2 + series[k];
        store(y + i, af_pick(v > zero, v, zero) + 2.0f * w * (1.0f + w2 * p), n - i);
        if (slope)
            store(slope + i, af_pick(v > zero, zero + 1.0f, e) / (1.0f + e), n - i);
    }
}

/* exp(x) - 1 for x <= 0; near 0 by its series, where the difference would cancel. */
static inline vec expm1_vec(vec x)
{
    const vec small =
        x * (1.0f + x * (0.5f + x * (0.16666667f + x * (0.041666668f +
                                                        x * (0.0083333338f + x * 0.0013888889f)))));
    return af_pick(x > -0.25f, small, exp_vec(x) - 1.0f);
}

static void xielu(float *y, const float *x, const af_xielu_row *k, int64_t n)
{
    const vec zero = {0}, eps = zero + k->eps;
    for (int64_t i = 0; i < n; i += VL) {
        const vec v = load(x + i, n - i), low = expm1_vec(af_pick(v < eps, v, eps)) - v;
        store(y + i, af_pick(v > zero, k->a * v * v, k->c * low) + k->beta * v, n - i);
    }
}

static void xielu_bwd(float *dx, const float *x, const float *dy, const af_xielu_row *k, int64_t n)
{
    const vec zero = {0};
    for (int64_t i = 0; i < n; i += VL) {
        const vec v = load(x + i, n - i),
                  low = af_pick(v < k->eps, expm1_vec(af_pick(v < zero, v, zero)), zero - 1.0f);
        store(dx + i,
              load(dy + i, n - i) * (af_pick(v > zero, 2.0f * k->a * v, k->c * low) + k->beta),
              n - i);
    }
}

static void rotate(float *y, const float *x, const float *cs, const float *sn, int64_t half)
{
    for (int64_t i = 0; i < half; i += VL) {
        const int64_t left = half - i;
        const vec a = load(x + i, left), b = load(x + half + i, left), c = load(cs + i, left),
                  s = load(sn + i, left);
        store(y + i, a * c - b * s, left);
        store(y + half + i, b * c + a * s, left);
    }
}

static inline vec larger(vec a, vec b) { return af_pick(a > b, a, b); }

static float max_of(const float *x, int64_t n)
{
    vec m[4];
    int64_t i = 0;
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++)
        m[u] = (vec){0} - INFINITY;
    for (; i + 4 * VL <= n; i += 4 * VL)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            m[u] = larger(*(const vec *)(x + i + u * VL), m[u]);
    for (; i + VL <= n; i += VL)
        m[0] = larger(*(const vec *)(x + i), m[0]);
    if (i < n && n >= VL) { /* some of them again */
        m[1] = larger(*(const vec *)(x + n - VL), m[1]);
        i = n;
    }
    float best = af_lanes_max(larger(larger(m[0], m[1]), larger(m[2], m[3])));
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

static float exp_sum(float *y, const float *x, float factor, float shift, int64_t n)
{
    vec s[4] = {0};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vec e[4];
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            e[u] = *(const vec *)(x + i + u * VL) * factor - shift;
        exp_vecs(e, 4);
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
            *(vec *)(y + i + u * VL) = e[u];
            s[u] += e[u];
        }
    }
    for (; i + VL <= n; i += VL) {
        const vec e = exp_vec(*(const vec *)(x + i) * factor - shift);
        *(vec *)(y + i) = e;
        s[0] += e;
    }
    if (i < n) {
        store(y + i, exp_vec(load(x + i, n - i) * factor - shift), n - i);
        s[1] += load(y + i, n - i);
    }
    return af_lanes((s[0] + s[1]) + (s[2] + s[3]));
}

static void scale_half(uint16_t *y, const float *x, float factor, float minus, int64_t n)
{
    enum { RUN = 4 * VL };
    for (int64_t i = 0; i < n; i += RUN) {
        const int64_t m = AF_MIN((int64_t)RUN, n - i);
        float e[RUN];
        uint16_t h[RUN];
        for (int64_t k = 0; k < m; k += VL)
            store(e + k, load(x + i + k, m - k) * factor - minus, m - k);
        AF_ISA_NAME(af_bf16_down)(h, e, m);
        memcpy(y + i, h, (size_t)m * sizeof *h);
    }
}

static void softcap(float *y, const float *x, float cap, int64_t n)
{
    const float inv = 1.0f / cap;
    for (int64_t i = 0; i < n; i += VL)
        store(y + i, cap * tanh_vec(load(x + i, n - i) * inv), n - i);
}

/* ds = p * (dp - delta) * factor, times the slope of the soft cap when there is one: s holds the
 * capped scores */
static void softmax_bwd(float *ds, const float *p, const float *dp, const float *s, float delta,
                        float factor, float cap, int64_t n)
{
    const float inv = cap > 0 ? 1.0f / cap : 0.0f;
    for (int64_t i = 0; i < n; i += VL) {
        const int64_t left = n - i;
        vec d = load(p + i, left) * (load(dp + i, left) - delta) * factor;
        if (cap > 0) {
            const vec t = load(s + i, left) * inv;
            d *= 1.0f - t * t;
        }
        store(ds + i, d, left);
    }
}

/* spent: g is only read. */
static inline __attribute__((always_inline)) void adam_row(float *restrict w, float *restrict g,
                                                           float *restrict m, float *restrict v,
                                                           const af_adam_row k, int64_t n,
                                                           bool spent)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] * k.clip + k.l2 * w[i];
        const float mm = k.beta1 * m[i] + k.new1 * x, vv = k.beta2 * v[i] + k.new2 * (x * x);
        m[i] = mm;
        v[i] = vv;
        w[i] = w[i] * k.keep - k.rate * mm / (sqrtf(vv) * k.root + k.eps);
        if (!spent)
            g[i] = 0;
    }
}

static void adam(float *restrict w, float *restrict g, float *restrict m, float *restrict v,
                 const af_adam_row *row, int64_t n)
{
    if (row->spent)
        adam_row(w, g, m, v, *row, n, true);
    else
        adam_row(w, g, m, v, *row, n, false);
}

/* Of the instruction set `isa`, whose GEMMs of blocks alone are its own. */
#define TABLE(isa, label, test, base)                                                              \
    extern const af_fast AF_ISA_JOIN(af_fast_table, isa);                                          \
    const af_fast AF_ISA_JOIN(af_fast_table, isa) = {                                              \
        .name = label,                                                                             \
        .usable = test,                                                                            \
        .same = base,                                                                              \
        .machine = &AF_ISA_NAME(af_gemm_machine),                                                  \
        .gemm_work = AF_ISA_JOIN(af_gemm_work, isa),                                               \
        .gemm = AF_ISA_JOIN(af_gemm_run, isa),                                                     \
        .rounds = AF_ISA_ROUNDS,                                                                   \
        .packed_bytes = AF_ISA_NAME(af_packed_bytes),                                              \
        .pack_frozen = AF_ISA_NAME(af_pack_frozen),                                                \
        .to_f32 = to_f32,                                                                          \
        .to_bf16 = AF_ISA_NAME(af_bf16_down),                                                      \
        .dot = dot,                                                                                \
        .sum_squares = sum_squares,                                                                \
        .add = add,                                                                                \
        .mul = mul,                                                                                \
        .axpy = axpy,                                                                              \
        .scale = scale,                                                                            \
        .norm = norm,                                                                              \
        .norm_bwd = norm_bwd,                                                                      \
        .norm_dot = norm_dot,                                                                      \
        .norm_dw = norm_dw,                                                                        \
        .glu = glu,                                                                                \
        .glu_bwd = glu_bwd,                                                                        \
        .softplus = softplus,                                                                      \
        .xielu = xielu,                                                                            \
        .xielu_bwd = xielu_bwd,                                                                    \
        .rotate = rotate,                                                                          \
        .weigh = AF_ISA_NAME(af_weigh),                                                            \
        .max = max_of,                                                                             \
        .exp_sum = exp_sum,                                                                        \
        .scale_half = scale_half,                                                                  \
        .softcap = softcap,                                                                        \
        .softmax_bwd = softmax_bwd,                                                                \
        .adam = adam,                                                                              \
        .gemm_small = AF_ISA_SMALL,                                                                \
        .attention = AF_ISA_ATTENTION,                                                             \
        .lowrank = &AF_ISA_NAME(af_lowrank_vector),                                                \
        .lowrank_bf16 = AF_ISA_LOWRANK_BF16,                                                       \
        .sums_at_once = AF_ISA_SUMS_AT_ONCE,                                                       \
    }
TABLE(AF_ISA, AF_ISA_LABEL, af_isa_usable, NULL);
#ifdef AF_ISA_ALSO
TABLE(AF_ISA_ALSO, AF_ISA_ALSO_LABEL, af_isa_also_usable, &AF_ISA_NAME(af_fast_table));
#endif
