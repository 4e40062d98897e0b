/* case_sink.h - the kernels of attention_sink.cu and bounds_cut.cu. */
#ifndef AF_CASE_SINK_H
#define AF_CASE_SINK_H

#include "host/host_compare.h"
#include "host/host_kernels.h"

/* Five rows of three heads, cut after the third; the first head's sink outweighs its keys. */
static void sink_case()
{
    using namespace attend;
    const size_t N = 5, H = 3, E = AF_VEC == 1 ? 5 : 2 * AF_VEC, ld = H * E + AF_VEC;
    acts o(numbers(N * ld, 1)), y(N * ld), dy(numbers(N * ld, 1)), sinks(vec{9.0, -1.0, 0.5});
    floats lse(numbers(N * H, 2)), both(N * H), part(2 * H);
    vec wy = nothing(N * ld), wboth(N * H), wpart(2 * H);
    launch({1, 1}, 64, attention_sink, y.p(), both.p(), o.p(), lse.p(), sinks.p(), N * H, H, E, ld,
           ld, 2);
    for (size_t i = 0; i < N * H; i++) {
        const double l = lse.v[i], s = sinks.values()[i % H], all = log(exp(l) + exp(s));
        double delta = 0;
        wboth[i] = all;
        for (size_t e = 0; e < E; e++) {
            const size_t at = i / H * ld + i % H * E + e;
            wy[at] = o.values()[at] * exp(l - all);
            delta += y.values()[at] * dy.values()[at];
        }
        wpart[i / H / 3 * H + i % H] -= exp(s - all) * delta;
    }
    launch({2, 1}, 256, attention_sink_bwd, part.p(), y.p(), both.p(), sinks.p(), dy.p(), N, H, E,
           ld, ld, 3);
    same("attention_sink", y, wy, 1e-5);
    same("attention_sink lse", both, wboth, 1e-5);
    same("attention_sink_bwd", part, wpart, 1e-5);
}

/* More sequences than lanes, empty ones and one of many pieces among them. */
static void cut_case()
{
    using namespace attend;
    const int S = 70, chunk = 5;
    buf<int> from(S + 1);
    std::vector<int> want;
    from.v[0] = 0;
    for (int s = 0; s < S; s++)
        from.v[(size_t)s + 1] = from.v[(size_t)s] + (s == 40 ? 333 : s * 7 % 12);
    for (int s = 0; s < S; s++)
        for (int r = from.v[(size_t)s]; r < from.v[(size_t)s + 1]; r += chunk)
            want.push_back(r);
    want.resize((size_t)(S + from.v[S] / chunk + 1), from.v[S]);
    buf<int> to(want.size());
    launch({1, 1}, 32, bounds_cut, to.p(), from.p(), S, want.size(), chunk);
    if (!std::equal(want.begin(), want.end(), to.v.begin()) || !to.rest_is_kept()) {
        printf("bounds_cut has other bounds\n");
        failures++;
    }
}
#endif
