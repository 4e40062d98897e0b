/* case_grouped.h - attention_grouped.cu next to attention in double. */
#ifndef AF_CASE_GROUPED_H
#define AF_CASE_GROUPED_H

#include "host/case_products.h"

/* Sequences of a cache in pages: bounds of the new rows, and positions before them. */
struct grouped_shape {
    int H, K, E, window;
    float softcap;
    std::vector<int> bounds, start;
    int rows; /* those after the last bound give 0 */
    bool rotated = false;
};

/* Heads of x, each rotated by the row's position: rounded as the kernel does. */
static vec rotated(const vec &x, size_t ldx, int heads, int E, const std::vector<int> &at,
                   const vec &freq, double scale)
{
    vec y = x;
    for (size_t n = 0; n < at.size(); n++)
        for (int h = 0; h < heads; h++)
            for (int e = 0; e < E / 2; e++) {
                const size_t i = n * ldx + h * E + e;
                const double a = at[n] * freq[e], c = cos(a) * scale, s = sin(a) * scale;
                y[i] = x[i] * c - x[i + E / 2] * s;
                y[i + E / 2] = x[i + E / 2] * c + x[i] * s;
            }
    return acts(y).values();
}

template <class F> static void grouped_case(const grouped_shape &z, F kernel)
{
    const int S = (int)z.start.size(), M = 5, L = 48, width = 2 * z.K * z.E, group = z.H / z.K;
    const size_t N = (size_t)z.rows, ldx = (size_t)(z.H + 2 * z.K) * z.E, ldo = (size_t)z.H * z.E;
    std::vector<int> pages;
    for (int i = 0; i < S * M; i++)
        pages.push_back((i * 7 + 3) % (S * M)); /* S * M is not a multiple of 7 */
    acts qkv(numbers(N * ldx, 1)), cache(numbers((size_t)(S * M * L * width), 1)), o(N * ldo);
    floats lse(N * z.H);
    const vec before = cache.values();
    const float scale = 1 / sqrtf((float)z.E);
    std::vector<int> bounds = z.bounds, start = z.start, positions(N);
    floats freq((size_t)z.E / 2);
    for (int e = 0; e < z.E / 2; e++)
        freq.p()[e] = (float)pow(1e3, -2.0 * e / z.E);
    for (int s = 0; s < S; s++)
        for (int n = bounds[s]; n < bounds[s + 1]; n++)
            positions[n] = start[s] + n - bounds[s];
    launch({(unsigned)z.K, (unsigned)N}, z.rotated ? 256 : 128, kernel, o.p(), lse.p(), qkv.p(),
           cache.p(), bounds.data(), start.data(), pages.data(), S, M, L, z.H, z.K, ldo, ldx, scale,
           z.softcap, z.window, positions.data(), freq.p(), 1.25f);
    const vec q = z.rotated
                      ? rotated(qkv.values(), ldx, z.H + z.K, z.E, positions, freq.values(), 1.25)
                      : qkv.values();
    vec kv = before;
    for (int s = 0; s < S; s++)
        for (int n = z.bounds[s]; n < z.bounds[s + 1]; n++) {
            const int at = z.start[s] + n - z.bounds[s];
            for (int c = 0; c < width; c++)
                kv[((size_t)pages[s * M + at / L] * L + at % L) * width + c] =
                    q[n * ldx + z.H * z.E + c];
        }
    near_to("attention_grouped cache", cache, kv, 1, z.rotated ? 4e-3 : 0);
    vec wo(N * ldo), wlse(N * z.H);
    for (int s = 0; s < S; s++)
        for (int n = z.bounds[s]; n < z.bounds[s + 1]; n++)
            for (int h = 0; h < z.H; h++) {
                const int at = z.start[s] + n - z.bounds[s];
                double sum = 0;
                for (int p = z.window ? std::max(0, at - z.window + 1) : 0; p <= at; p++) {
                    const double *row = &kv[((size_t)pages[s * M + p / L] * L + p % L) * width];
                    const double *k = row + h / group * z.E, *v = k + z.K * z.E;
                    double d = 0;
                    for (int e = 0; e < z.E; e++)
                        d += q[n * ldx + h * z.E + e] * k[e];
                    d *= scale;
                    d = exp(z.softcap > 0 ? z.softcap * tanh(d / z.softcap) : d);
                    sum += d;
                    for (int e = 0; e < z.E; e++)
                        wo[n * ldo + h * z.E + e] += d * v[e];
                }
                for (int e = 0; e < z.E; e++)
                    wo[n * ldo + h * z.E + e] /= sum;
                wlse[n * z.H + h] = log(sum);
            }
    near_to("attention_grouped", o, wo, 1, 4e-3); /* weights are rounded to bf16 */
    near_to("attention_grouped lse", lse, wlse, 1, 1e-5);
}

static void grouped_cases()
{
    const auto few = grouped_8::attention_grouped_8;
    const auto many = grouped_16::attention_grouped_16;
    grouped_case({7, 1, 128, 0, 0, {0, 1, 2, 2, 4}, {200, 0, 9, 62}, 5}, few);
    grouped_case({4, 2, 128, 37, 2.5f, {0, 1, 3}, {130, 15}, 3}, few);
    grouped_case({24, 2, 64, 0, 0, {0, 1, 2}, {77, 3}, 2}, many);
    grouped_case({3, 3, 64, 20, 0, {0, 2}, {100}, 2}, many);
    grouped_case({14, 2, 128, 0, 0, {0, 1, 1, 2}, {201, 7, 0}, 3, true},
                 rotating::attention_rotated);
}
#endif
