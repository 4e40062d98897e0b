/* fast_rows.c - loops over one row, written so that the compiler vectorises them. */
#include "ops/fast/isa.h"

#include <math.h>

static void to_f32(float *restrict dst, const uint16_t *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = (uint32_t)src[i] << 16;
        memcpy(&dst[i], &u, 4);
    }
}

static void to_bf16(uint16_t *restrict dst, const float *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &src[i], 4);
        const uint32_t nan = (u & 0x7fffffffu) > 0x7f800000u;
        const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
        dst[i] = (uint16_t)(nan ? (u >> 16 | 0x40u) : rounded);
    }
}

static float lanes(vec v)
{
    float s = 0;
    for (int i = 0; i < VL; i++)
        s += v[i];
    return s;
}

static float dot(const float *a, const float *b, int64_t n)
{
    vec s[4] = {0};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL)
        for (int u = 0; u < 4; u++)
            s[u] += *(const vec *)(a + i + u * VL) * *(const vec *)(b + i + u * VL);
    float t = lanes((s[0] + s[1]) + (s[2] + s[3]));
    for (; i < n; i++)
        t += a[i] * b[i];
    return t;
}

static float sum_squares(const float *x, int64_t n) { return dot(x, x, n); }

static void add(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void axpy(float *restrict y, float alpha, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += alpha * x[i];
}

static void scale(float *y, float alpha, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = alpha * x[i];
}

static void norm(float *y, const float *x, const float *w, float plus, float r, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * r * (w[i] + plus);
}

static float norm_dot(const float *x, const float *w, float plus, const float *dy, int64_t n)
{
    vec s[2] = {0};
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL)
        for (int u = 0; u < 2; u++) {
            const int64_t k = i + u * VL;
            s[u] += *(const vec *)(x + k) * *(const vec *)(dy + k) * (*(const vec *)(w + k) + plus);
        }
    float t = lanes(s[0] + s[1]);
    for (; i < n; i++)
        t += x[i] * dy[i] * (w[i] + plus);
    return t;
}

static void norm_bwd(float *dx, const float *x, const float *w, float plus, const float *dy,
                     const float *d, float r, float c, int64_t n)
{
    if (d)
        for (int64_t i = 0; i < n; i++)
            dx[i] = r * (dy[i] * (w[i] + plus) - x[i] * c) + d[i];
    else
        for (int64_t i = 0; i < n; i++)
            dx[i] = r * (dy[i] * (w[i] + plus) - x[i] * c);
}

/* exp to about 1 ulp: 2^n times a polynomial on [-ln2/2, ln2/2] (coefficients: Cephes' expf). */
static inline float exp_one(float x)
{
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float z = x * 1.44269504088896341f;
    const float n = (float)(int32_t)(z + (z < 0 ? -0.5f : 0.5f));
    x = x - n * 0.693359375f;
    x = x - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * x + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    p = p * x * x + x + 1.0f;
    const uint32_t u = (uint32_t)((int32_t)n + 127) << 23;
    float two;
    memcpy(&two, &u, 4);
    return p * two;
}

static inline float sigmoid_one(float x) { return 1.0f / (1.0f + exp_one(-x)); }

/* tanh through exp; small arguments by its series, where 1 - 2/(e+1) would cancel. */
static inline float tanh_one(float x)
{
    const float x2 = x * x;
    const float small = x * (1.0f + x2 * (-0.33333333f + x2 * (0.13333333f + x2 * -0.053968254f)));
    const float large = 1.0f - 2.0f / (exp_one(2.0f * x) + 1.0f);
    return x2 < 0.0625f ? small : large;
}

static void glu_silu(float *y, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = gate[i] * sigmoid_one(gate[i]) * up[i];
}

static const float gelu_a = 0.7978845608028654f, gelu_b = 0.044715f;

static void glu_gelu_tanh(float *y, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = gate[i];
        y[i] = 0.5f * x * (1.0f + tanh_one(gelu_a * (x + gelu_b * x * x * x))) * up[i];
    }
}

static void glu(float *y, const float *gate, const float *up, af_act act, int64_t n)
{
    if (act == AF_ACT_SILU)
        glu_silu(y, gate, up, n);
    else if (act == AF_ACT_GELU_TANH)
        glu_gelu_tanh(y, gate, up, n);
    else if (act == AF_ACT_RELU)
        for (int64_t i = 0; i < n; i++)
            y[i] = (gate[i] > 0 ? gate[i] : 0.0f) * up[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = 0.5f * gate[i] * (1.0f + erff(gate[i] * 0.70710678f)) * up[i];
}

static void glu_bwd(float *dgate, float *dup, const float *gate, const float *up, const float *dy,
                    af_act act, int64_t n)
{
    if (act == AF_ACT_SILU)
        for (int64_t i = 0; i < n; i++) {
            const float x = gate[i], s = sigmoid_one(x), u = up[i], d = dy[i];
            dup[i] = d * x * s;
            dgate[i] = d * u * s * (1.0f + x * (1.0f - s));
        }
    else if (act == AF_ACT_GELU_TANH)
        for (int64_t i = 0; i < n; i++) {
            const float x = gate[i], u = up[i], d = dy[i];
            const float t = tanh_one(gelu_a * (x + gelu_b * x * x * x));
            dup[i] = d * 0.5f * x * (1.0f + t);
            dgate[i] = d * u *
                       (0.5f * (1.0f + t) +
                        0.5f * x * (1.0f - t * t) * gelu_a * (1.0f + 3.0f * gelu_b * x * x));
        }
    else
        for (int64_t i = 0; i < n; i++) {
            const float x = gate[i], u = up[i], d = dy[i];
            const bool relu = act == AF_ACT_RELU;
            const float cdf = 0.5f * (1.0f + erff(x * 0.70710678f)),
                        pdf = 0.39894228f * expf(-0.5f * x * x);
            dup[i] = d * (relu ? (x > 0 ? x : 0.0f) : x * cdf);
            dgate[i] = d * u * (relu ? (x > 0 ? 1.0f : 0.0f) : cdf + x * pdf);
        }
}

static void rotate(float *y, const float *x, const float *cs, const float *sn, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        y[i] = a * cs[i] - b * sn[i];
        y[i + half] = b * cs[i] + a * sn[i];
    }
}

static float max_of(const float *x, int64_t n)
{
    float m = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

static float exp_sum(float *y, const float *x, float factor, float shift, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = exp_one(x[i] * factor - shift);
    vec s[2] = {0};
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL)
        for (int u = 0; u < 2; u++)
            s[u] += *(const vec *)(y + i + u * VL);
    float t = lanes(s[0] + s[1]);
    for (; i < n; i++)
        t += y[i];
    return t;
}

static void softcap(float *y, const float *x, float cap, int64_t n)
{
    const float inv = 1.0f / cap;
    for (int64_t i = 0; i < n; i++)
        y[i] = cap * tanh_one(x[i] * inv);
}

static void adam(float *restrict w, float *restrict g, float *restrict m, float *restrict v,
                 const float k[8], int64_t n)
{
    const float rate = k[0], decay = k[1], b1 = k[2], b2 = k[3], eps = k[4], c2 = k[5], clip = k[6],
                l2 = k[7];
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] * clip + l2 * w[i];
        const float mm = b1 * m[i] + (1.0f - b1) * x, vv = b2 * v[i] + (1.0f - b2) * x * x;
        m[i] = mm;
        v[i] = vv;
        w[i] = w[i] * decay - rate * mm / (sqrtf(vv) * c2 + eps);
        g[i] = 0;
    }
}

static bool usable(void)
{
#if defined(AF_ISA_avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#elif defined(AF_ISA_avx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(AF_ISA_neonbf16)
    return af_cpu_has_bf16();
#else
    return true;
#endif
}

extern const af_fast AF_ISA_NAME(af_fast_table);
const af_fast AF_ISA_NAME(af_fast_table) = {
#if defined(AF_ISA_neonbf16)
    .name = "neon+bf16",
#elif defined(AF_ISA_neon)
    .name = "neon",
#elif defined(AF_ISA_avx512)
    .name = "avx512",
#elif defined(AF_ISA_avx2)
    .name = "avx2",
#elif defined(AF_ISA_sse2)
    .name = "sse2",
#else
    .name = "portable",
#endif
    .usable = usable,
    .gemm_work = AF_ISA_NAME(af_gemm_work),
    .gemm = AF_ISA_NAME(af_gemm_run),
    .to_f32 = to_f32,
    .to_bf16 = to_bf16,
    .dot = dot,
    .sum_squares = sum_squares,
    .add = add,
    .axpy = axpy,
    .scale = scale,
    .norm = norm,
    .norm_bwd = norm_bwd,
    .norm_dot = norm_dot,
    .glu = glu,
    .glu_bwd = glu_bwd,
    .rotate = rotate,
    .max = max_of,
    .exp_sum = exp_sum,
    .softcap = softcap,
    .adam = adam,
};
