/* case_elements.h - elementwise.cu, glu.cu, cast.cu, loss.cu. */
#ifndef AF_CASE_ELEMENTS_H
#define AF_CASE_ELEMENTS_H

#include "host/case_rows.h"

/* ---- elements ---- */
static double activation(int kind, double x, double c) /* the order of op.h */
{
    switch (kind) {
    case 0:
        return x * c;
    case 1:
        return -x;
    case 2:
        return exp(x);
    case 3:
        return log(x);
    case 4:
        return sqrt(x);
    case 5:
        return tanh(x);
    case 6:
        return 1 / (1 + exp(-x));
    case 7:
        return fmax(x, 0);
    case 8:
        return x / 2 * (1 + erf(x / sqrt(2.0)));
    case 9:
        return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case 10:
        return x / (1 + exp(-x));
    default:
        return c * tanh(x / c);
    }
}
static double inverse(int kind, double y, double c) /* of those whose slope comes from y */
{
    switch (kind) {
    case 2:
        return log(y);
    case 4:
        return y * y;
    case 5:
        return atanh(y);
    case 6:
        return log(y / (1 - y));
    case 7:
        return y;
    default:
        return c * atanh(y / c);
    }
}
static void unary_case(int kind)
{
    using namespace elements;
    const bool from_y = kind == 2 || (kind >= 4 && kind <= 7) || kind == 11;
    const size_t n = 37 * AF_VEC;
    const float c = 1.5f;
    acts x(numbers(n, 3)), y(n), dy(numbers(n, 1)), dx(n);
    for (size_t i = 0; (kind == 3 || kind == 4) && i < n; i++)
        put(&x.v[i], 0.1 + fabs(get(&x.v[i])));
    launch({2, 1}, 32, unary, y.p(), x.p(), kind, c, n);
    launch({2, 1}, 32, unary_bwd, dx.p(), (from_y ? y : x).p(), dy.p(), kind, c, n);
    vec want(n), wdx(n);
    const vec xv = x.values(), yv = y.values(), g = dy.values();
    for (size_t i = 0; i < n; i++) {
        const double h = 1e-6, at = from_y ? inverse(kind, yv[i], c) : xv[i];
        want[i] = activation(kind, xv[i], c);
        wdx[i] = g[i] * (activation(kind, at + h, c) - activation(kind, at - h, c)) / (2 * h);
        if (kind == 7)
            wdx[i] = xv[i] > 0 ? g[i] : 0;
    }
    char name[32];
    snprintf(name, sizeof name, "unary %d", kind);
    same(name, y, want, 1e-4);
    snprintf(name, sizeof name, "unary_bwd %d", kind);
    same(name, dx, wdx, 1e-4);
}
static void clip_case()
{
    const size_t n = 37 * AF_VEC;
    const float c = 1.5f;
    acts x(numbers(n, 3)), y(n), dy(numbers(n, 1)), dx(n);
    launch({2, 1}, 32, clipped::clip_unary, y.p(), x.p(), 12, c, n);
    launch({2, 1}, 32, clipped::clip_unary_bwd, dx.p(), x.p(), dy.p(), 12, c, n);
    vec want(n), wdx(n);
    const vec xv = x.values(), g = dy.values();
    for (size_t i = 0; i < n; i++) {
        want[i] = fmax(fmin(xv[i], c), -c);
        wdx[i] = fabs(xv[i]) > c ? 0 : g[i];
    }
    same("clip", y, want, 1e-6);
    same("clip_bwd", dx, wdx, 1e-6);
}
static void glu_case(int kind)
{
    static const int unary_kind[] = {10, 9, 8, 7};
    const auto fwd = kind == 0   ? silu::silu_fwd
                     : kind == 1 ? gelu_tanh::gelu_tanh_fwd
                     : kind == 2 ? gelu::gelu_fwd
                                 : relu::relu_fwd;
    const auto bwd = kind == 0   ? silu::silu_bwd
                     : kind == 1 ? gelu_tanh::gelu_tanh_bwd
                     : kind == 2 ? gelu::gelu_bwd
                                 : relu::relu_bwd;
    const size_t ldg = 2 * D + AF_VEC;
    acts gu(numbers(ROWS * ldg, 3)), y(ROWS * LD), dy(numbers(ROWS * LD, 1)), d(ROWS * ldg),
        h(ROWS * LD);
    launch({ROWS * 2, 1}, 32, fwd, y.p(), gu.p(), D, 2, LD, ldg);
    launch({ROWS * 2, 1}, 32, bwd, d.p(), h.p(), gu.p(), dy.p(), D, 2, ldg, LD, ldg, LD);
    const auto f = [&](const vec &a) {
        vec r(D);
        for (size_t i = 0; i < D; i++)
            r[i] = activation(unary_kind[kind], a[i], 0) * a[D + i];
        return r;
    };
    vec wy = nothing(ROWS * LD), wd = nothing(ROWS * ldg);
    for (size_t r = 0; r < ROWS; r++) {
        const vec v = row_of(gu.values(), r, ldg, 2 * D);
        set_row(wy, r, LD, f(v));
        set_row(wd, r, ldg, gradient(f, v, row_of(dy.values(), r, LD, D)));
    }
    same("glu_fwd", y, wy, 1e-4);
    same("glu_bwd h", h, wy, 1e-4);
    same("glu_bwd", d, wd, 1e-4);
    /* the slots of pairs are their numbers in reverse; in place */
    const auto slots = kind == 0   ? moe_silu::silu_moe_bwd
                       : kind == 1 ? moe_gelu_tanh::gelu_tanh_moe_bwd
                       : kind == 2 ? moe_gelu::gelu_moe_bwd
                                   : moe_relu::relu_moe_bwd;
    floats w(ROWS), dw(ROWS);
    buf<int> slot(ROWS);
    vec wdw(ROWS);
    for (size_t p = 0; p < ROWS; p++) {
        const size_t s = ROWS - 1 - p;
        slot.v[p] = (int)s;
        w.v[p] = 0.25f + (float)p;
        const vec g = row_of(dy.values(), s, LD, D), v = row_of(wy, s, LD, D);
        for (size_t i = 0; i < D; i++)
            wdw[p] += g[i] * v[i];
        for (size_t i = 0; i < 2 * D; i++)
            wd[s * ldg + i] *= w.v[p];
        for (size_t i = 2 * D; i < ldg; i++)
            wd[s * ldg + i] = gu.values()[s * ldg + i];
    }
    launch({(ROWS + 1) / 2, 1}, 64, slots, gu.p(), ldg, dw.p(), gu.p(), ldg, dy.p(), LD, w.p(),
           slot.p(), ROWS, D);
    same("moe_glu_bwd", gu, wd, 1e-4);
    same("moe_glu_bwd weights", dw, wdw, 1e-3);
}
static void binary_case(int kind)
{
    using namespace elements;
    acts a(numbers(ROWS * LD, 1)), b(vec(D, 0.0)), y(ROWS * LD);
    vec want = nothing(ROWS * LD);
    for (size_t i = 0; i < D; i++)
        put(&b.v[i], 1.5 + number());
    for (size_t i = 0; i < ROWS * D; i++) {
        const double u = get(&a.v[i / D * LD + i % D]), v = get(&b.v[i % D]);
        want[i / D * LD + i % D] = kind == 0   ? u + v
                                   : kind == 1 ? u - v
                                   : kind == 2 ? u * v
                                               : u / v;
    }
    launch({ROWS * 2, 1}, 32, binary_rows, y.p(), a.p(), b.p(), kind, D, 2, LD, LD, 0);
    same("binary", y, want, 1e-6);
}
static void sums_case(int wide) /* x [3][4][5], over the middle axis in two parts */
{
    using namespace elements;
    acts x(numbers(60, 1)), y(numbers(15, 1)), top(15), dtop(numbers(60, 1)), spread(60);
    floats part(30);
    vec want = y.values(), tops(15, -9), hits = dtop.values(), wide_dy(60);
    const vec xv = x.values();
    launch({wide ? 15u : 1u, 2}, 32, sum_parts, part.p(), x.p(), 15, 1, 5, 1, 4, 1, 1, 20, 5, 1, 1,
           0, 4, 3, wide);
    launch({1, 1}, 32, reduce_parts, y.p(), part.p(), 15, 15, 2, 0.25f, 1);
    launch({1, 1}, 32, reduce_max, top.p(), x.p(), 15, 4, 5, 0);
    launch({1, 1}, 32, reduce_max_bwd, dtop.p(), x.p(), top.p(), y.p(), 15, 4, 5, 1);
    launch({1, 1}, 32, reduce_spread, spread.p(), y.p(), 60, 4, 5, 0.25f, 0);
    for (size_t i = 0; i < 60; i++) {
        const size_t o = i / 20 * 5 + i % 5;
        want[o] += xv[i] / 4;
        tops[o] = fmax(tops[o], xv[i]);
        wide_dy[i] = get(&y.v[o]) / 4;
    }
    vec left(15, 1.0); /* of equal maxima the first one has the gradient */
    for (size_t i = 0; i < 60; i++) {
        const size_t o = i / 20 * 5 + i % 5;
        const bool hit = xv[i] == tops[o] && left[o] > 0;
        hits[i] += hit ? get(&y.v[o]) : 0;
        left[o] -= hit;
    }
    same("sum", y, want, 3e-6); /* some nearly cancel */
    same("reduce_max", top, tops, 0);
    same("reduce_max_bwd", dtop, hits, 1e-6);
    same("reduce_spread", spread, wide_dy, 0);
}
static void columns_case() /* x [21][cols], in two parts */
{
    using namespace elements;
    const size_t rows = 21, cols = 5 * AF_VEC;
    acts x(numbers(rows * cols, 1));
    floats part(2 * cols);
    const vec xv = x.values();
    vec want(2 * cols);
    launch({1, 2}, 256, sum_columns, part.p(), x.p(), rows, cols, 11);
    for (size_t i = 0; i < rows * cols; i++)
        want[i / cols / 11 * cols + i % cols] += xv[i];
    same("sum_columns", part, want, 1e-6);
}
static void dropout_case(bool evaluating)
{
    using namespace elements;
    unsigned clock[4] = {5, 6, 7, evaluating ? 0x80000000u : 0};
    const u64 seed = 5 | 6ull << 32, stream = af_dropout_stream(99, 7);
    const size_t rows = 3, cols = AF_VEC == 1 ? 27 : 5 * AF_VEC, ld = cols + 2 * AF_VEC;
    acts x(numbers(rows * ld, 1)), y(rows * ld);
    vec want = nothing(rows * ld);
    for (size_t i = 0; i < rows * cols; i++) {
        const bool kept = evaluating || af_rng_f32(seed, stream, i) >= 0.25f;
        want[i / cols * ld + i % cols] = x.values()[i / cols * ld + i % cols] * (evaluating ? 1
                                                                                 : kept     ? 1.5
                                                                                            : 0);
    }
    launch({2, 1}, 32, dropout, y.p(), x.p(), (const unsigned *)clock, 99, 0.25f, 1.5f, rows * cols,
           cols, ld, ld);
    same("dropout", y, want, 1e-6);
}
template <class TO, class FROM> static void cast_case(int to, int from, int accumulate, double size)
{
    using namespace elements;
    buf<FROM> x(numbers(37, size));
    buf<TO> y(numbers(37, size)), z = y;
    const vec xv = x.values();
    vec want = y.values();
    for (size_t i = 0; i < 37; i++)
        want[i] = xv[i] + (accumulate ? want[i] : 0);
    launch({2, 1}, 32, cast_any, y.p(), to, x.p(), from, 37, accumulate);
    same("cast_any", y, want, 1e-6);
    if ((to == 0 || to == 2 || to == 3) && (from == 0 || from == 2 || from == 3)) {
        launch({2, 1}, 32, cast_float, z.p(), to, x.p(), from, 37, accumulate);
        same("cast_float", z, want, 1e-6);
    }
}
static void cast_cases()
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        cast_case<act, float>(sizeof(act) == 4          ? 0
                              : unit((act *)0) > 0x1p-9 ? 2
                                                        : 3,
                              0, accumulate, 1);
        cast_case<float, act>(0,
                              sizeof(act) == 4          ? 0
                              : unit((act *)0) > 0x1p-9 ? 2
                                                        : 3,
                              accumulate, 1);
        cast_case<double, i8>(1, 6, accumulate, 50);
        cast_case<i8, short>(6, 7, accumulate, 50);
        cast_case<short, i64>(7, 9, accumulate, 9000);
        cast_case<i64, int>(9, 8, accumulate, 2e9);
    }
}

/* ---- losses: kinds of op.h ---- */
static void loss_case(int kind)
{
    using namespace losses;
    const float delta = 0.4f, g = 0.75f, over = 5.0f;
    const size_t n = 77;
    acts x(numbers(n, 2)), t(numbers(n, 1)), dx(n);
    floats part(2), loss(1), dloss(vec{g});
    for (size_t i = 0; kind >= 3 && i < n; i++)
        put(&t.v[i], i ? fabs(get(&t.v[i])) : 0);
    const vec xv = x.values(), tv = t.values();
    const auto f = [&](double a, double b) {
        const double d = a - b, e = fabs(d);
        return kind == 0   ? d * d
               : kind == 1 ? e
               : kind == 2 ? (e <= delta ? d * d / 2 : delta * (e - delta / 2))
               : kind == 3 ? -b * log(1 / (1 + exp(-a))) - (1 - b) * log(1 / (1 + exp(a)))
               : b > 0     ? b * (log(b) - a)
                           : 0;
    };
    vec wdx(n), sum(1);
    for (size_t i = 0; i < n; i++) {
        sum[0] += f(xv[i], tv[i]) / over;
        wdx[i] = g / over * (f(xv[i] + 1e-6, tv[i]) - f(xv[i] - 1e-6, tv[i])) / 2e-6;
    }
    launch({2, 1}, 32, loss_parts, part.p(), x.p(), t.p(), kind, delta, n);
    launch({1, 1}, 64, loss_final, loss.p(), part.p(), 2, over);
    launch({2, 1}, 32, loss_bwd, dx.p(), x.p(), t.p(), dloss.p(), kind, delta, n, over);
    same("loss", loss, sum, 1e-5);
    same("loss_bwd", dx, wdx, 1e-4);
}
static void loss_rows_case()
{
    floats rows(vec{1, 2, 0, 4, 0}), g(vec{3}), mean(1), scale(1);
    buf<int> labels(vec{5, 0, -100, 7, -100});
    launch({1, 1}, 32, losses::loss_rows, mean.p(), rows.p(), labels.p(), nullptr, 5);
    launch({1, 1}, 32, losses::loss_rows, scale.p(), nullptr, labels.p(), g.p(), 5);
    same("loss_rows", mean, vec{7.0 / 3}, 1e-6);
    same("loss_rows scale", scale, vec{1}, 1e-6);
}
#endif
