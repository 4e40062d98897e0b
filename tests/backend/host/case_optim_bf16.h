/* case_optim_bf16.h - updates of optimizer_bf16.cu: the three roundings against the library's. */
#ifndef AF_CASE_OPTIM_BF16_H
#define AF_CASE_OPTIM_BF16_H

#include "host/case_optim.h"

enum rounding { NEAREST, STOCHASTIC, KAHAN };

/* The value x as the kernel must store it, of element `at` of all parameters. */
static double rounded(double x, rounding r, long long at)
{
    bf16 q;
    store(&q, (float)x);
    if (r != STOCHASTIC)
        return load(&q);
    int e;
    frexp(x, &e);
    const double step = ldexp(1, e - 8), low = floor(fabs(x) / step) * step;
    const u32 word = af_rng_u32(42, (0xb7ull << 56) + 7, (u64)at / 2);
    const double chance = (double)(at % 2 ? word >> 16 : word & 0xffff) / 65536;
    return copysign((fabs(x) - low) / step + chance >= 1 ? low + step : low, x);
}

/* Rounding may fall on either side where f32 arithmetic is on an edge: none of these is. */
static void bf16_adam_case(rounding r, bool coded, bool finite)
{
    const size_t n = coded ? 300 : 44;
    const long long from = 4096 + 8;
    buffers b(n, finite);
    buf<bf16> w(b.w.values()), rest(numbers(n, r == KAHAN ? 0x1p-10 : 0));
    buf<u8> m8(vec(n, 3.0)), v8(vec(n, 200.0));
    floats ms(vec{0.5, 0.25}), vs(vec{0.03125, 0.0625});
    vec want = w.values(), left = rest.values(), sum(n);
    for (size_t i = 0; i < n && finite; i++) {
        const size_t k = i / 256;
        double x = want[i] + (r == KAHAN ? left[i] : 0);
        element e = {x * (1 - rate * decay), b.g.v[i] * clip, b.m.v[i], b.v.v[i], 0};
        if (coded)
            e.m = af_bnb_map(true)[3] * ms.v[k], e.v = af_bnb_map(false)[200] * vs.v[k];
        moments(e);
        x = e.w - rate * adam_move(e.m, e.v);
        want[i] = rounded(x, r, from + (long long)i);
        sum[i] = x;
    }
    if (coded)
        launch({2, 1}, 256,
               r == NEAREST      ? nearest_bf16::adam_8bit_nearest_bf16
               : r == STOCHASTIC ? stochastic_bf16::adam_8bit_stochastic_bf16
                                 : kahan_bf16::adam_8bit_kahan_bf16,
               w.p(), b.g.p(), b.hyper.p(), b.stats.p(), m8.p(), v8.p(), ms.p(), vs.p(), rest.p(),
               b.n, b1, b2, 1 - b1, 1 - b2, eps, decay, fac, 42ll, from);
    else
        launch({2, 1}, 32,
               r == NEAREST      ? nearest_bf16::adam_nearest_bf16
               : r == STOCHASTIC ? stochastic_bf16::adam_stochastic_bf16
                                 : kahan_bf16::adam_kahan_bf16,
               w.p(), b.g.p(), b.hyper.p(), b.stats.p(), b.m.p(), b.v.p(), rest.p(), b.n, b1, b2,
               1 - b1, 1 - b2, eps, decay, fac, 0, 42ll, from);
    const vec got = w.values(), kept = rest.values();
    int others = 0;
    for (size_t i = 0; i < n; i++) {
        others += got[i] != want[i];
        if (r == KAHAN && finite && fabs(got[i] + kept[i] - sum[i]) > fabs(sum[i]) * 0x1p-15)
            others += 100;
        if (r != KAHAN && kept[i] != left[i])
            others += 100;
    }
    if (others > 1) {
        printf("adam in bf16, rounding %d, %d-bit moments, finite %d: %d values differ\n", r,
               coded ? 8 : 32, finite, others);
        failures++;
    }
    same("adam in bf16", b.g, vec(n, 0.0), 0);
}

/* A matrix of GaLore that begins anywhere among the parameters. */
static void bf16_galore_case(rounding r, bool finite)
{
    const size_t n = 77;
    const long long from = 4096 + 35;
    buffers b(n, finite);
    buf<bf16> w(b.w.values()), rest(numbers(n, r == KAHAN ? 0x1p-10 : 0));
    vec want = w.values(), left = rest.values(), sum(n);
    for (size_t i = 0; i < n && finite; i++) {
        double x = want[i] + (r == KAHAN ? left[i] : 0);
        x -= rate * corr2 / corr1 * 0.75 * b.g.v[i];
        x -= rate * decay * x;
        want[i] = rounded(x, r, from + (long long)i);
        sum[i] = x;
    }
    launch({2, 1}, 32,
           r == NEAREST      ? nearest_bf16::galore_apply_nearest_bf16
           : r == STOCHASTIC ? stochastic_bf16::galore_apply_stochastic_bf16
                             : kahan_bf16::galore_apply_kahan_bf16,
           w.p(), b.g.p(), b.hyper.p(), b.stats.p(), rest.p(), (long long)n, decay, fac, 0.75, 42ll,
           from);
    const vec got = w.values(), kept = rest.values();
    int others = 0;
    for (size_t i = 0; i < n; i++) {
        others += got[i] != want[i];
        if (r == KAHAN && finite && fabs(got[i] + kept[i] - sum[i]) > fabs(sum[i]) * 0x1p-15)
            others += 100;
        if (r != KAHAN && kept[i] != left[i])
            others += 100;
    }
    if (others > 1) {
        printf("galore in bf16, rounding %d, finite %d: %d values differ\n", r, finite, others);
        failures++;
    }
    same("galore in bf16", b.g, vec(n, 0.0), 0);
}

static void bf16_adam_cases()
{
    for (int k = 0; k < 6; k++)
        bf16_galore_case((rounding)(k % 3), k / 3);
    for (int k = 0; k < 12; k++)
        bf16_adam_case((rounding)(k % 3), k / 3 % 2, k / 6);
}
#endif
