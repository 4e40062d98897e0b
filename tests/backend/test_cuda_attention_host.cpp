/* test_cuda_attention_host.cpp - attention.cu (tensor cores without Hopper's instructions) with
 * tiles of attention_cost.c, both directions, compiled for the host (host/dev.cuh) next to
 * attention in double. As test_cuda_tensor.cpp. */
#include "host/host_compare.h"

#include <algorithm>

#include "ops/attention/attention.cuh"

#define NAME       f64
#define AF_BWD     0
#define AF_EP      64
#define AF_WARPS   8
#define AF_MT      1
#define AF_BN      64
#define AF_SOFTCAP 0
#include "host/attention_variant.h"
#define NAME       f128w4
#define AF_BWD     0
#define AF_EP      128
#define AF_WARPS   4
#define AF_MT      1
#define AF_BN      32
#define AF_SOFTCAP 0
#include "host/attention_variant.h"
#define NAME       f128w8
#define AF_BWD     0
#define AF_EP      128
#define AF_WARPS   8
#define AF_MT      1
#define AF_BN      64
#define AF_SOFTCAP 0
#include "host/attention_variant.h"
#define NAME       f128
#define AF_BWD     0
#define AF_EP      128
#define AF_WARPS   4
#define AF_MT      2
#define AF_BN      64
#define AF_SOFTCAP 1
#include "host/attention_variant.h"
#define NAME       b64
#define AF_BWD     1
#define AF_EP      64
#define AF_WARPS   8
#define AF_MT      1
#define AF_BN      64
#define AF_SOFTCAP 0
#include "host/attention_variant.h"
#define NAME       b128
#define AF_BWD     1
#define AF_EP      128
#define AF_WARPS   8
#define AF_MT      1
#define AF_BN      32
#define AF_SOFTCAP 0
#include "host/attention_variant.h"
#define NAME       b256
#define AF_BWD     1
#define AF_EP      256
#define AF_WARPS   3
#define AF_MT      1
#define AF_BN      16
#define AF_SOFTCAP 1
#include "host/attention_variant.h"

struct attention_case {
    int H, K, E, rows; /* rows after the last bound see nothing */
    std::vector<int> bounds;
    bool causal;
    int window;
    float softcap;
};

/* The operands, and what attention in double makes of them. */
struct attention_operands {
    attention_case c;
    int width, wide; /* of a row of qkv, and of o */
    float scale;
    acts qkv, dy;
    vec x, g; /* their values */
    vec o, lse, delta, dx;
    explicit attention_operands(const attention_case &z)
        : c(z), width((z.H + 2 * z.K) * z.E), wide(z.H * z.E), scale(1 / sqrtf((float)z.E)),
          qkv(numbers((size_t)(z.rows * width), 1)), dy(numbers((size_t)(z.rows * wide), 1)),
          x(qkv.values()), g(dy.values()), o((size_t)(z.rows * wide)), lse((size_t)(z.rows * z.H)),
          delta((size_t)(z.rows * z.H)), dx((size_t)(z.rows * width))
    {
        for (size_t s = 0; s + 1 < c.bounds.size(); s++)
            for (int n = c.bounds[s]; n < c.bounds[s + 1]; n++)
                for (int h = 0; h < c.H; h++)
                    row(c.bounds[s], c.bounds[s + 1], n, h);
    }
    size_t at(int n, int head) const { return (size_t)n * width + (size_t)head * c.E; }
    double dot(const vec &a, size_t i, const vec &b, size_t j) const
    {
        double v = 0;
        for (int e = 0; e < c.E; e++)
            v += a[i + e] * b[j + e];
        return v;
    }
    void row(int from, int to, int n, int h)
    {
        const int kh = c.H + h / (c.H / c.K), vh = kh + c.K, E = c.E;
        const int lo = c.window ? std::max(from, n - c.window + 1) : from,
                  hi = c.causal ? n + 1 : to;
        const size_t y = (size_t)n * wide + (size_t)h * E;
        vec p, slope;
        double top = -1e30, sum = 0, d = 0;
        for (int k = lo; k < hi; k++) {
            double s = scale * dot(x, at(n, h), x, at(k, kh));
            const double t = c.softcap > 0 ? tanh(s / c.softcap) : 0;
            p.push_back(c.softcap > 0 ? c.softcap * t : s);
            slope.push_back(1 - t * t);
            top = fmax(top, p.back());
        }
        for (double &v : p)
            sum += v = exp(v - top);
        for (int k = lo; k < hi; k++)
            for (int e = 0; e < E; e++)
                o[y + e] += (p[k - lo] /= e ? 1 : sum) * x[at(k, vh) + e];
        lse[(size_t)n * c.H + h] = top + log(sum);
        delta[(size_t)n * c.H + h] = d = dot(o, y, g, y);
        for (int k = lo; k < hi; k++) {
            const double w = p[k - lo],
                         ds = w * (dot(g, y, x, at(k, vh)) - d) * slope[k - lo] * scale;
            for (int e = 0; e < E; e++) {
                dx[at(n, h) + e] += ds * x[at(k, kh) + e];
                dx[at(k, kh) + e] += ds * x[at(n, h) + e];
                dx[at(k, vh) + e] += w * g[y + e];
            }
        }
    }
    unsigned tiles(int rows) const { return (unsigned)(c.rows / rows) + (unsigned)c.bounds.size(); }
};

/* Largest difference in units of the largest value; weights and slopes are rounded to bf16. */
template <class T> static void check(const char *what, buf<T> &got, const vec &want, double limit)
{
    const vec g = got.values();
    double worst = 0, largest = 1e-9;
    for (double v : want)
        largest = fmax(largest, fabs(v));
    for (size_t i = 0; i < want.size(); i++) {
        const double e = fabs(g[i] - want[i]) / largest;
        worst = e <= worst ? worst : e == e ? e : 9;
    }
    if (getenv("AF_SHOW"))
        printf("%-12s %.2g of %.2g\n", what, worst, limit);
    if (worst > limit || !got.rest_is_kept()) {
        printf("%s: error %.3g, %.3g allowed%s\n", what, worst, limit,
               got.rest_is_kept() ? "" : "; wrote past the end");
        failures++;
    }
}

template <class F>
static void forward(const char *what, F kernel, int warps, int rows, const attention_case &c)
{
    attention_operands z(c);
    acts o(z.o.size());
    floats lse(z.lse.size());
    launch({(unsigned)c.H, z.tiles(rows)}, (unsigned)warps * 32, kernel, o.p(), lse.p(), z.qkv.p(),
           z.c.bounds.data(), (int)c.bounds.size() - 1, c.rows, c.H, c.K, c.E, (i64)z.wide,
           (i64)z.width, z.scale, c.softcap, c.window, (int)c.causal);
    check(what, o, z.o, 2e-2);
    check(what, lse, z.lse, 1e-5);
}

/* dq and dk|dv into one gradient of qkv; `splits` blocks share a kv head, their parts are added. */
template <class Q, class D>
static void backward(const char *what, Q dq, D dkv, int warps, int splits, const attention_case &c)
{
    attention_operands z(c);
    const int rows = warps * 16, wide = 2 * c.K * c.E, S = (int)c.bounds.size() - 1;
    acts dx(z.dx.size()), part((size_t)(splits * c.rows * wide));
    floats lse(z.lse), delta(z.delta);
    launch({(unsigned)c.H, z.tiles(rows)}, (unsigned)warps * 32, dq, dx.p(), z.qkv.p(), z.dy.p(),
           lse.p(), delta.p(), z.c.bounds.data(), S, c.rows, c.H, c.K, c.E, (i64)z.width,
           (i64)z.width, (i64)z.wide, z.scale, c.softcap, c.window, (int)c.causal);
    launch({(unsigned)(c.K * splits), z.tiles(rows)}, (unsigned)warps * 32, dkv, part.p(),
           z.qkv.p(), z.dy.p(), lse.p(), delta.p(), z.c.bounds.data(), S, c.rows, c.H, c.K, c.E,
           (i64)wide, (i64)z.width, (i64)z.wide, z.scale, c.softcap, c.window, (int)c.causal,
           splits, (i64)c.rows * wide);
    for (int n = 0; n < c.rows; n++)
        for (int i = 0; i < wide; i++) {
            double v = 0;
            for (int s = 0; s < splits; s++)
                v += get(&part.v[(size_t)((s * c.rows + n) * wide + i)]);
            put(&dx.v[(size_t)n * z.width + (size_t)c.H * c.E + i], v);
        }
    check(what, dx, z.dx, 2e-2);
}

int main()
{
    forward("fwd 64", f64::fwd_f64, 8, 128, {2, 1, 64, 75, {0, 9, 72}, true, 0, 0});
    forward("fwd 128, 4", f128w4::fwd_f128w4, 4, 64, {1, 1, 120, 70, {0, 67}, true, 33, 0});
    forward("fwd 128, 8", f128w8::fwd_f128w8, 8, 128, {1, 1, 128, 70, {0, 3, 70}, false, 0, 0});
    forward("fwd capped", f128::fwd_f128, 4, 128, {1, 1, 128, 67, {0, 67}, true, 0, 5});
    backward("bwd 64", b64::dq_b64, b64::dkv_b64, 8, 2, {2, 1, 64, 75, {0, 8, 71}, true, 0, 0});
    backward("bwd 128", b128::dq_b128, b128::dkv_b128, 8, 1, {2, 1, 120, 60, {0, 55}, true, 17, 0});
    backward("bwd 256", b256::dq_b256, b256::dkv_b256, 3, 1, {1, 1, 256, 53, {0, 50}, true, 0, 5});
    printf("%d failed\n", failures);
    return failures ? 1 : 0;
}
