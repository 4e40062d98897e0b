/* case_apollo.h - the kernels of apollo.cu. */
#ifndef AF_CASE_APOLLO_H
#define AF_CASE_APOLLO_H

#include "host/case_optim.h"

/* Numbers whose count is not one of whole blocks, of the third draw. */
static void apollo_draw_case()
{
    using namespace lowrank;
    const size_t n = 1023;
    const u64 seed = 42, stream = (u64)5 << 32;
    const float size = 0.25f;
    floats p(n), hyper(vec{lr, corr1, corr2, 7, 3, 0});
    vec want(n);
    for (size_t i = 0; i < n; i++) {
        const philox r = philox_block(seed, stream + 3, i / 4);
        const u32 *w = r.w + (i & 2);
        const double l = size * sqrt(-2 * log(((w[0] >> 8) + 1.0) * 0x1p-24)),
                     a = 2 * M_PI * (w[1] >> 8) * 0x1p-24;
        want[i] = l * (i % 2 ? sin(a) : cos(a));
    }
    launch({3, 1}, 32, apollo_draw, p.p(), hyper.p(), seed, stream, (long long)n, size);
    same("apollo_draw", p, want, 1e-4); /* relative to 1e-3 where a sine is near 0 */
}

struct apollo_numbers { /* in double */
    vec w, g, m, v, s;
    double kept, factor;
};

/* One update of a matrix whose channels are its rows or its columns, or all of it. */
static void apollo_step(apollo_numbers &a, const vec &low, size_t cols, int rank, bool by_row,
                        bool one, double root, double front)
{
    double all_d = 0, all_l = 0, sum = 0;
    for (size_t c = 0; c < a.s.size(); c++) {
        double of_d = 0, of_l = 0;
        for (size_t i = c * rank; i < (c + 1) * rank; i++) {
            const double l = low[i] * clip;
            a.m[i] = b1 * a.m[i] + (1 - b1) * l;
            a.v[i] = b2 * a.v[i] + (1 - b2) * l * l;
            of_d += pow(a.m[i] / (sqrt(a.v[i]) + eps), 2);
            of_l += l * l;
        }
        a.s[c] = sqrt(of_d) / (sqrt(of_l) + (double)num_a);
        all_d += of_d, all_l += of_l;
    }
    if (one)
        a.s[0] = sqrt(all_d) / (sqrt(all_l) + (double)num_a);
    const auto scale = [&](size_t i) { return a.s[one ? 0 : by_row ? i / cols : i % cols]; };
    for (size_t i = 0; i < a.w.size(); i++)
        sum += pow(a.g[i] * clip * scale(i), 2);
    const double z = sqrt(sum) * front,
                 limit = a.kept > 0 ? fmax(z / (a.kept + (double)num_a), 1.5) / 1.5 : 1;
    a.kept = z / limit;
    a.factor = root / limit;
    for (size_t i = 0; i < a.w.size(); i++) {
        a.w[i] -= rate * corr2 / corr1 * a.factor * scale(i) * a.g[i] * clip;
        a.w[i] -= rate * decay * a.w[i];
    }
}

/* With a norm that is not finite nothing but the gradients changes. */
static void apollo_case(bool by_row, bool one, int rank, float last, bool finite)
{
    using namespace lowrank;
    const size_t R = by_row ? 13 : 5, C = by_row ? 5 : 13, n = R * C, channels = 13;
    const float root = 3, front = 2;
    buffers b(n, finite);
    floats low(numbers(channels * rank, 0.5)), m(numbers(channels * rank, 0.1)),
        v(numbers(channels * rank, 0.01)), s(channels), squares(2 * channels), part(2), factor(1),
        kept(vec{last});
    for (size_t i = 0; i < v.n; i++)
        v.v[i] = fabsf(v.v[i]);
    apollo_numbers a = {b.w.values(),     b.g.values(), m.values(), v.values(),
                        vec(channels, 0), (double)last, 0};
    if (finite)
        apollo_step(a, low.values(), C, rank, by_row, one, root, front);
    launch({2, 1}, 64, apollo_moments, s.p(), squares.p(), low.p(), m.p(), v.p(), b.stats.p(),
           (long long)channels, rank, b1, 1 - b1, b2, 1 - b2, eps, num_a);
    if (one)
        launch({1, 1}, 64, apollo_one_scale, s.p(), squares.p(), (long long)channels, num_a);
    launch({2, 1}, 32, apollo_norm, part.p(), b.g.p(), s.p(), b.stats.p(), (long long)n,
           (long long)C, !one && by_row, !one && !by_row);
    launch({1, 1}, 32, apollo_limit, factor.p(), kept.p(), part.p(), b.stats.p(), 2, root, front,
           1.5f, num_a);
    launch({2, 1}, 32, apollo_apply, b.w.p(), b.g.p(), s.p(), factor.p(), b.hyper.p(), b.stats.p(),
           (long long)n, (long long)C, !one && by_row, !one && !by_row, decay, fac);
    same("apollo m", m, a.m, 1e-5);
    same("apollo v", v, a.v, 1e-5);
    if (finite && !one)
        same("apollo scale", s, a.s, 1e-5);
    same("apollo norm", kept, vec{a.kept}, 1e-5);
    same("apollo", b.w, a.w, 1e-5);
    same("apollo", b.g, vec(n, 0.0), 0);
}

static void apollo_cases()
{
    apollo_draw_case();
    for (int i = 0; i < 16; i++)
        apollo_case(i & 1, i & 2, i & 4 ? 1 : 40, i & 8 ? 0.125f : 0, true);
    apollo_case(true, false, 4, 0.125f, false);
    apollo_case(false, true, 4, 0.125f, false);
}
#endif
