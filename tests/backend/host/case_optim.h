/* case_optim.h - updates of optimizer.cu and adafactor.cu. */
#ifndef AF_CASE_OPTIM_H
#define AF_CASE_OPTIM_H

#include "host/host_compare.h"
#include "host/host_kernels.h"

/* ---- optimizers: every constant matters (eps is as large as the moments) ---- */
static const float lr = 0.05f, fac = 0.5f, b1 = 0.875f, b2 = 0.9375f, b3 = 0.75f, eps = 0.03125f,
                   decay = 0.25f, clip = 0.5f, corr1 = 0.25f, corr2 = 0.375f, alpha = 3.0f,
                   num_a = 0.75f, num_b = 1.5f;
static const double rate = (double)lr * fac;

struct element {
    double w, g, m, v, s;
};
struct buffers {
    long long n;
    floats w, g, m, v, s, hyper, stats;
    explicit buffers(size_t count, bool finite)
        : n((long long)count), w(numbers(count, 1)), g(numbers(count, 0.25)),
          m(numbers(count, 0.1)), v(numbers(count, 0.01)), s(numbers(count, 0.1)),
          hyper(vec{lr, corr1, corr2, 7, num_a, num_b}), stats(vec{1, clip, finite ? 1.0 : 0.0, 1})
    {
        for (size_t i = 0; i < count; i++)
            v.v[i] = fabsf(v.v[i]);
    }
};

/* With a norm that is not finite nothing but the gradients changes. */
template <class RUN, class STEP>
static void optimizer_case(const char *name, RUN run, STEP step, double limit = 1e-5)
{
    for (int finite = 0; finite < 2; finite++) {
        buffers b(44, finite);
        vec w = b.w.values(), g = b.g.values(), m = b.m.values(), v = b.v.values(),
            s = b.s.values();
        run(b);
        for (size_t i = 0; finite && i < w.size(); i++) {
            element e = {w[i], g[i] * clip, m[i], v[i], s[i]};
            step(e);
            w[i] = e.w, m[i] = e.m, v[i] = e.v, s[i] = e.s;
        }
        same(name, b.w, w, limit);
        same(name, b.m, m, 1e-5);
        same(name, b.v, v, 1e-5);
        same(name, b.s, s, limit);
        same(name, b.g, vec(w.size(), 0.0), 0);
    }
}
static void moments(element &e)
{
    e.m = b1 * e.m + (1 - b1) * e.g;
    e.v = b2 * e.v + (1 - b2) * e.g * e.g;
}
static double adam_move(double m, double v) { return m / corr1 / (sqrt(v) / corr2 + eps); }

static void optimizer_cases()
{
    using namespace optimizers;
#define BUFS b.w.p(), b.g.p(), b.hyper.p(), b.stats.p()
    for (int coupled = 0; coupled < 2; coupled++)
        optimizer_case(
            "adam",
            [=](buffers &b) {
                launch({2, 1}, 32, adam, BUFS, b.m.p(), b.v.p(), b.n, b1, b2, 1 - b1, 1 - b2, eps,
                       decay, fac, coupled);
            },
            [=](element &e) {
                if (coupled)
                    e.g += decay * e.w;
                else
                    e.w *= 1 - rate * decay;
                moments(e);
                e.w -= rate * adam_move(e.m, e.v);
            });
    for (int kind = 0; kind < 3; kind++) /* plain, momentum, Nesterov */
        optimizer_case(
            "sgd",
            [=](buffers &b) {
                launch({2, 1}, 32, sgd, BUFS, kind ? b.m.p() : nullptr, b.n, b1, decay, fac,
                       kind == 2);
            },
            [=](element &e) {
                e.g += decay * e.w;
                if (kind)
                    e.m = b1 * e.m + e.g;
                e.w -= rate * (kind == 0 ? e.g : kind == 1 ? e.m : e.g + b1 * e.m);
            });
    optimizer_case(
        "lion",
        [](buffers &b) {
            launch({2, 1}, 32, lion, BUFS, b.m.p(), b.n, b1, b2, 1 - b1, 1 - b2, decay, fac);
        },
        [](element &e) {
            const double c = b1 * e.m + (1 - b1) * e.g;
            e.w -= rate * (decay * e.w + (c > 0) - (c < 0));
            e.m = b2 * e.m + (1 - b2) * e.g;
        });
    optimizer_case(
        "rmsprop",
        [](buffers &b) {
            launch({2, 1}, 32, rmsprop, BUFS, b.v.p(), b.n, b2, 1 - b2, eps, decay, fac);
        },
        [](element &e) {
            e.g += decay * e.w;
            e.v = b2 * e.v + (1 - b2) * e.g * e.g;
            e.w -= rate * e.g / (sqrt(e.v) + eps);
        });
    optimizer_case(
        "ademamix",
        [](buffers &b) {
            launch({2, 1}, 32, ademamix, BUFS, b.m.p(), b.v.p(), b.s.p(), b.n, b1, b2, 1 - b1,
                   1 - b2, eps, decay, fac, b3, 1 - b3, alpha);
        },
        [](element &e) {
            moments(e);
            e.s = b3 * e.s + (1 - b3) * e.g;
            e.w -= rate * ((e.m / corr1 + alpha * e.s) / (sqrt(e.v) / corr2 + eps) + decay * e.w);
        });
}

/* Kinds 0 to 3: Adagrad, NAdam, RAdam, ADOPT; in a step where `a` is 0, too. */
static void adaptive_case(int kind, float a)
{
    using namespace optimizers;
    static const char *const names[] = {"adagrad", "nadam", "radam", "adopt"};
    optimizer_case(
        names[kind],
        [=](buffers &b) {
            b.hyper.v[4] = a;
            launch({2, 1}, 32, adaptive, BUFS, b.v.p(), kind ? b.m.p() : nullptr, b.n, b1, b2,
                   1 - b1, 1 - b2, eps, decay, fac, kind);
        },
        [=](element &e) {
            if (kind == 3) {
                const double x = e.g / fmax(sqrt(e.v), eps);
                if (a > 0) {
                    e.m = b1 * e.m + (1 - b1) * fmin(fmax(x, -a), a);
                    e.w -= rate * decay * e.w + rate * e.m;
                }
                e.v = a > 0 ? b2 * e.v + (1 - b2) * e.g * e.g : e.g * e.g;
                return;
            }
            e.g += decay * e.w;
            if (kind == 0) {
                e.v += e.g * e.g;
                e.w -= rate * a * e.g / (sqrt(e.v) + eps);
                return;
            }
            moments(e);
            if (kind == 1)
                e.w -= rate * (a * e.g + num_b * e.m) / (sqrt(e.v) / corr2 + eps);
            else
                e.w -= rate / corr1 * e.m * (a > 0 ? a * corr2 / (sqrt(e.v) + eps) : 1);
        });
}

/* The code of x / top is one of the nearest. */
template <class MAP> static void nearest(const char *what, int code, double x, MAP map, int codes)
{
    double best = 9;
    for (int k = 0; k < codes; k++)
        best = fmin(best, fabs(map(k) - x));
    if (fabs(map(code) - x) > best + 1e-6) {
        printf("%s: code %d is not the nearest to %g\n", what, code, x);
        failures++;
    }
}
static double code_at(const buf<u8> &b, size_t i, bool four)
{
    return !four ? b.v[i] : i % 2 ? b.v[i / 2] & 15 : b.v[i / 2] >> 4;
}

/* adam_8bit with a last block cut short, adam_4bit with whole ones. */
static void coded_adam_case(bool four)
{
    using namespace optimizers;
    const char *name = four ? "adam_4bit" : "adam_8bit";
    const size_t n = four ? 256 : 300, size = four ? 128 : 256, bytes = four ? n / 2 : n;
    const auto m_map = [=](int k) { return four ? four_m[k] : af_bnb_map(true)[k]; };
    const auto v_map = [=](int k) { return four ? (k + 1) / 16.0f : af_bnb_map(false)[k]; };
    buffers b(n, true);
    buf<u8> m8(numbers(bytes, 0)), v8(numbers(bytes, 0));
    for (size_t i = 0; i < bytes; i++)
        m8.v[i] = (u8)af_rng_below(3, 0, i, 256), v8.v[i] = (u8)af_rng_below(3, 1, i, 256);
    floats ms(vec{0.5, 0.25}), vs(vec{0.03125, 0.0625});
    vec w = b.w.values(), m(n), v(n), tops = {0, 0}, v_tops = {0, 0};
    for (size_t i = 0; i < n; i++) {
        const size_t k = i / size;
        element e = {w[i] * (1 - rate * decay), b.g.v[i] * clip,
                     m_map((int)code_at(m8, i, four)) * ms.v[k],
                     v_map((int)code_at(v8, i, four)) * vs.v[k], 0};
        moments(e);
        w[i] = e.w - rate * adam_move(m[i] = e.m, v[i] = e.v);
        tops[k] = fmax(tops[k], fabs(e.m));
        v_tops[k] = fmax(v_tops[k], e.v);
    }
    launch({2, 1}, (unsigned)size, four ? adam_4bit : adam_8bit, BUFS, m8.p(), v8.p(), ms.p(),
           vs.p(), b.n, b1, b2, 1 - b1, 1 - b2, eps, decay, fac);
    same(name, b.w, w, 2e-5);
    same(name, b.g, vec(n, 0.0), 0);
    same(name, ms, tops, 2e-5);
    same(name, vs, v_tops, 2e-5);
    for (size_t i = 0; i < n; i++) {
        nearest(name, (int)code_at(m8, i, four), m[i] / tops[i / size], m_map, four ? 16 : 256);
        nearest(name, (int)code_at(v8, i, four), v[i] / v_tops[i / size], v_map, four ? 16 : 256);
    }
}

/* Lion, RMSprop, AdEMAMix; the last block is cut short. */
static void states_8bit_case(int kind)
{
    using namespace coded;
    static const char *const names[] = {"lion_8bit", "rmsprop_8bit", "ademamix_8bit"};
    const size_t n = 300, states = kind == 2 ? 3 : 1;
    buffers b(n, true);
    buf<u8> codes[3] = {buf<u8>(n), buf<u8>(n), buf<u8>(n)};
    floats scale[3] = {floats(vec{0.5, 0.25}), floats(vec{0.03125, 0.0625}),
                       floats(vec{0.125, 0.5})};
    vec w = b.w.values(), s[3] = {vec(n), vec(n), vec(n)};
    const auto map = [=](size_t k, int code) { return af_bnb_map(!(states == 3 && k == 1))[code]; };
    for (size_t k = 0; k < states; k++)
        for (size_t i = 0; i < n; i++) {
            const u32 least = kind == 1 ? 128 : 0; /* squares are not below 0 */
            codes[k].v[i] = (u8)(least + af_rng_below(3, k, i, 256 - least));
            s[k][i] = map(k, codes[k].v[i]) * scale[k].v[i / 256];
        }
    for (size_t i = 0; i < n; i++) {
        double g = b.g.v[i] * clip;
        if (kind == 0) {
            const double c = b1 * s[0][i] + (1 - b1) * g;
            w[i] -= rate * (decay * w[i] + (c > 0) - (c < 0));
            s[0][i] = b2 * s[0][i] + (1 - b2) * g;
        } else if (kind == 1) {
            g += decay * w[i];
            s[0][i] = b2 * s[0][i] + (1 - b2) * g * g;
            w[i] -= rate * g / (sqrt(s[0][i]) + eps);
        } else {
            s[0][i] = b1 * s[0][i] + (1 - b1) * g;
            s[1][i] = b2 * s[1][i] + (1 - b2) * g * g;
            s[2][i] = b3 * s[2][i] + (1 - b3) * g;
            w[i] -= rate * ((s[0][i] / corr1 + alpha * s[2][i]) / (sqrt(s[1][i]) / corr2 + eps) +
                            decay * w[i]);
        }
    }
    if (kind == 0)
        launch({2, 1}, 256, lion_8bit, BUFS, codes[0].p(), scale[0].p(), b.n, b1, b2, 1 - b1,
               1 - b2, decay, fac);
    else if (kind == 1)
        launch({2, 1}, 256, rmsprop_8bit, BUFS, codes[0].p(), scale[0].p(), b.n, b2, 1 - b2, eps,
               decay, fac);
    else
        launch({2, 1}, 256, ademamix_8bit, BUFS, codes[0].p(), codes[1].p(), codes[2].p(),
               scale[0].p(), scale[1].p(), scale[2].p(), b.n, b1, b2, 1 - b1, 1 - b2, eps, decay,
               fac, b3, 1 - b3, alpha);
    same(names[kind], b.w, w, 1e-4); /* weights near 0, too */
    same(names[kind], b.g, vec(n, 0.0), 0);
    for (size_t k = 0; k < states; k++) {
        vec tops = {0, 0};
        for (size_t i = 0; i < n; i++)
            tops[i / 256] = fmax(tops[i / 256], fabs(s[k][i]));
        same(names[kind], scale[k], tops, 2e-5);
        for (size_t i = 0; i < n; i++)
            nearest(
                names[kind], codes[k].v[i], s[k][i] / tops[i / 256],
                [=](int c) { return map(k, c); }, 256);
    }
}

static void adafactor_case(bool vector)
{
    using namespace factors;
    const size_t B = vector ? 1 : 2, R = vector ? 1 : 19, C = vector ? 40 : 24, n = B * R * C;
    const float power = 0.75f, tiny = 0.0078125f, most = 0.5f;
    buffers b(n, true);
    floats row(vec(vector ? C : B * R, 0.02)), col(vec(B * C, 0.03)), by_row(B * R), by_col(B * C),
        sums(2 * B * C), part(2);
    const double f = pow(7, -power);
    vec w = b.w.values(), g = b.g.values(), r(row.n, (1 - f) * row.v[0]), u(n),
        c(B * C, vector ? col.v[0] : (1 - f) * col.v[0]), mid(B, 0);
    for (size_t i = 0; i < n; i++) {
        const double q = f * (g[i] * clip * g[i] * clip + tiny);
        r[vector ? i : i / C] += vector ? q : q / (double)C;
        c[i / (R * C) * C + i % C] += vector ? 0 : q / (double)R;
    }
    for (size_t i = 0; !vector && i < B * R; i++)
        mid[i / R] += r[i] / (double)R;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t k = i / (R * C);
        u[i] = g[i] * clip / (vector ? sqrt(r[i]) : sqrt(r[i / C] / mid[k] * c[k * C + i % C]));
        sum += u[i] * u[i];
    }
    const double cut = fmax(1, sqrt(sum / (double)n) / most);
    for (size_t i = 0; i < n; i++)
        w[i] -= rate * decay * w[i] + rate * u[i] / cut;
    if (vector)
        launch({2, 1}, 32, adafactor_squares, row.p(), b.g.p(), b.hyper.p(), b.stats.p(), C, power,
               tiny);
    else {
        launch({(unsigned)(B * R), 1}, 32, adafactor_rows, row.p(), b.g.p(), b.hyper.p(),
               b.stats.p(), C, power, tiny);
        launch({1, 2, (unsigned)B}, 256, adafactor_cols, sums.p(), b.g.p(), b.stats.p(), R, C, 10,
               tiny);
        launch({2, 1}, 32, adafactor_join, col.p(), by_col.p(), sums.p(), 2, b.hyper.p(),
               b.stats.p(), B * C, R, power);
        launch({(unsigned)B, 1}, 32, adafactor_by_row, by_row.p(), row.p(), R);
    }
    launch({2, 1}, 32, adafactor_parts, part.p(), b.g.p(), row.p(), by_row.p(), by_col.p(),
           b.stats.p(), B * R, R, C, vector);
    launch({2, 1}, 32, adafactor_apply, b.w.p(), b.g.p(), row.p(), by_row.p(), by_col.p(), part.p(),
           2, b.hyper.p(), b.stats.p(), B * R, R, C, decay, fac, most, vector);
    same("adafactor row", row, r, 1e-5);
    same("adafactor col", col, c, 1e-5);
    same("adafactor", b.w, w, 1e-5);
    same("adafactor", b.g, vec(n, 0.0), 0);
}

/* Three blocks of 40 values in ranges of 24; with a norm that is not finite no value changes. */
static void adam_mini_case(bool finite)
{
    using namespace minis;
    const size_t blocks = 3, size = 40, n = blocks * size;
    buffers b(n, finite);
    floats second(vec{0.01, 0.02, 0.03}), part(2 * blocks);
    vec w = b.w.values(), g = b.g.values(), m = b.m.values(), v = second.values();
    for (size_t k = 0; finite && k < blocks; k++) {
        double sum = 0;
        for (size_t i = k * size; i < (k + 1) * size; i++)
            sum += g[i] * clip * g[i] * clip;
        v[k] = b2 * v[k] + (1 - b2) * sum / (double)size;
        for (size_t i = k * size; i < (k + 1) * size; i++) {
            m[i] = b1 * m[i] + (1 - b1) * g[i] * clip;
            w[i] = w[i] * (1 - rate * decay) - rate * adam_move(m[i], v[k]);
        }
    }
    launch({2 * blocks, 1}, 32, adam_mini_parts, part.p(), b.g.p(), b.stats.p(), size, 24, 2);
    launch({1, 1}, 32, adam_mini_moments, second.p(), part.p(), b.stats.p(), blocks, size, 2, b2,
           1 - b2);
    launch({2 * blocks, 1}, 32, adam_mini_apply, BUFS, b.m.p(), second.p(), size, 24, 2, b1, 1 - b1,
           eps, decay, fac);
    same("adam_mini v", second, v, 1e-5);
    same("adam_mini m", b.m, m, 1e-5);
    same("adam_mini", b.w, w, 1e-5);
    same("adam_mini", b.g, vec(n, 0.0), 0);
}

/* Kinds 0 to 2: AdamW, RAdam in a step of SGD, SGD; z is in s. */
static void free_case(int kind, bool first)
{
    using namespace frees;
    static const char *const names[] = {"free_adamw", "free_radam", "free_sgd"};
    const float from_weight = 0.375f, share = 0.625f;
    optimizer_case(
        names[kind],
        [=](buffers &b) {
            floats weight(vec{from_weight, share, first ? 1.0 : 0.0});
            b.hyper.v[4] = kind == 1 ? 0 : 1;
            launch({2, 1}, 32, free_update, BUFS, weight.p(), b.s.p(),
                   kind == 2 ? nullptr : b.v.p(), b.n, b1, b2, 1 - b2, eps, decay, fac, kind == 1);
        },
        [=](element &e) {
            const double y = e.w, z = first ? y : e.s, move = from_weight * fac;
            if (kind < 2)
                e.v = b2 * e.v + (1 - b2) * e.g * e.g;
            const double u = (kind ? e.g : e.g / (sqrt(e.v) / corr2 + eps)) + decay * y;
            e.w = y + share * (z - y) - move * (1 - b1 * (1 - share)) * u;
            e.s = z - move * u;
        },
        1e-4); /* some nearly cancel */
}

static void free_weight_case()
{
    using namespace frees;
    floats hyper(vec{lr, corr1, corr2, 7, num_a, num_b}), stats(vec{1, clip, 1, 1}), out(3);
    double sums[3] = {0.25, 2, 3};
    launch({1, 1}, 32, free_weight, out.p(), hyper.p(), stats.p(), sums, 2.0);
    const double weight = (double)num_b * 0.0625;
    same("free_weight", out, vec{(double)lr * num_a, weight / (2 + weight), 0}, 1e-6);
    if (sums[0] != 0.25 || fabs(sums[1] - 2 - weight) > 1e-12 || sums[2] != 4) {
        printf("free_weight: sums %g %g %g\n", sums[0], sums[1], sums[2]);
        failures++;
    }
    stats.v[2] = 0; /* not finite: nothing changes */
    launch({1, 1}, 32, free_weight, out.p(), hyper.p(), stats.p(), sums, 2.0);
    if (sums[2] != 4) {
        printf("free_weight: counts a step that is none\n");
        failures++;
    }
}

/* 100 values in ranges of 40; with a norm that is not finite no value changes. */
static void stable_adamw_case(bool finite)
{
    using namespace stable;
    const size_t n = 100;
    const float a = 0.25f, second = 0.375f;
    buffers b(n, finite);
    floats part(3), found(1);
    for (float &x : b.g.v)
        x *= 16; /* the moments do not expect such gradients */
    vec w = b.w.values(), g = b.g.values(), m = b.m.values(), v = b.v.values();
    double sum = 0;
    b.hyper.v[4] = a, b.hyper.v[5] = second;
    for (size_t i = 0; finite && i < n; i++) {
        const double d = g[i] * clip;
        m[i] = (1 - a) * m[i] + a * d;
        v[i] = (1 - second) * v[i] + second * d * d;
        sum += d * d / fmax(v[i], eps * eps);
    }
    const double own = rate / fmax(1, sqrt(sum / (double)n));
    for (size_t i = 0; finite && i < n; i++)
        w[i] = w[i] * (1 - own * decay) - own * m[i] / (sqrt(v[i]) + eps);
    launch({3, 1}, 32, stable_adamw_moments, part.p(), b.g.p(), b.hyper.p(), b.stats.p(), b.m.p(),
           b.v.p(), n, 40, eps);
    launch({1, 1}, 32, stable_adamw_rate, found.p(), part.p(), b.hyper.p(), 3, n, fac);
    launch({3, 1}, 32, stable_adamw_apply, b.w.p(), b.g.p(), b.stats.p(), b.m.p(), b.v.p(),
           found.p(), n, 40, eps, decay);
    if (finite && !(sum > (double)n)) {
        printf("stable_adamw: the rate is not cut\n");
        failures++;
    }
    same("stable_adamw m", b.m, m, 1e-5);
    same("stable_adamw v", b.v, v, 1e-5);
    same("stable_adamw", b.w, w, 1e-5);
    same("stable_adamw", b.g, vec(n, 0.0), 0);
}

static void norm_case(double size, float max_norm)
{
    using namespace optimizers;
    floats g(numbers(300, size)), stats(4);
    double part[3];
    double sum = 0;
    for (double x : g.values())
        sum += x * x;
    launch({3, 1}, 32, grad_norm_parts, part, g.p(), 300, 128);
    launch({1, 1}, 64, grad_norm_final, stats.p(), part, 3, max_norm, eps);
    const double norm = sqrt(sum), finite = norm == norm;
    same("grad_norm", stats,
         vec{norm, max_norm > 0 && finite ? fmin(1, max_norm / (norm + eps)) : 1, finite, sum},
         1e-5);
}
#endif
