/* case_dense.h - xielu.cu, and of rope.cu neighbours that turn together and scaled queries. */
#ifndef AF_CASE_DENSE_H
#define AF_CASE_DENSE_H

#include "host/case_rows.h"

static double xielu_value(double x, double p, double n, double beta, double eps)
{
    const double a = log1p(exp(p)), c = beta + log1p(exp(n));
    return (x > 0 ? a * x * x : c * (expm1(fmin(x, eps)) - x)) + beta * x;
}

/* eps far from zero: the flat part is seen, too */
static void xielu_case(double eps)
{
    using namespace xielus;
    floats p(vec{0.4}), n(vec{-0.7}), beta(vec{0.5}), e(vec{eps}), part(4);
    acts x(numbers(ROWS * LD, 3)), y(ROWS * LD), dy(numbers(ROWS * LD, 1)), dx(ROWS * LD);
    vec wy = nothing(ROWS * LD), wdx = wy, wpart(4);
    const double pv = p.v[0], nv = n.v[0], ev = e.v[0];
    for (size_t r = 0; r < ROWS; r++) {
        const vec v = row_of(x.values(), r, LD, D), g = row_of(dy.values(), r, LD, D);
        const auto at = [&](const vec &in, double up, double low) {
            vec o(in.size());
            for (size_t i = 0; i < in.size(); i++)
                o[i] = xielu_value(in[i], up, low, 0.5, ev);
            return o;
        };
        set_row(wy, r, LD, at(v, pv, nv));
        set_row(wdx, r, LD, gradient([&](const vec &a) { return at(a, pv, nv); }, v, g));
        const vec d = gradient([&](const vec &a) { return at(v, a[0], a[1]); }, vec{pv, nv}, g);
        wpart[r / 2 * 2] += d[0];
        wpart[r / 2 * 2 + 1] += d[1];
    }
    launch({ROWS * 2, 1}, 32, xielu_fwd, y.p(), x.p(), p.p(), n.p(), beta.p(), e.p(), D, 2, LD, LD);
    launch({ROWS * 2, 1}, 32, xielu_bwd, dx.p(), x.p(), p.p(), n.p(), beta.p(), e.p(), dy.p(), D, 2,
           LD, LD, LD);
    launch({2, 1}, 32, xielu_dslope, part.p(), x.p(), p.p(), n.p(), e.p(), dy.p(), ROWS, D, LD, LD,
           2);
    same("xielu_fwd", y, wy, 1e-4);
    same("xielu_bwd", dx, wdx, 1e-4);
    same("xielu_dslope", part, wpart, 2e-4);
}

/* ROT of E dimensions turn, 2i with 2i+1. */
static void rope_pairs_case()
{
    using namespace pairs;
    enum { H = 2, K = 1, HALF = 3, ROT = 2 * HALF, E = ROT + 2, N = 5 };
    const size_t width = (H + 2 * K) * E;
    const float scale = 1.25f, plus = 1.0f;
    acts x(numbers(N * width, 0.05)), q(numbers(E, 1)), k(numbers(E, 1)), y(N * width),
        dy(numbers(N * width, 1)), dx(N * width);
    buf<int> at(vec{0, 1, 2, 0, 9});
    floats freq(vec{1.0, 0.3, 0.1}), part(2 * 2 * E);
    size_t row = 0;
    const auto f = [&](const vec &v, const vec &norm) {
        vec r = v;
        for (size_t h = 0; h < H + K; h++) {
            double sum = 0, *o = r.data() + h * E;
            const double *w = norm.data() + (h < H ? 0 : E);
            for (size_t i = 0; i < E; i++)
                sum += o[i] * o[i] / E;
            for (size_t i = 0; i < E; i++)
                o[i] *= (w[i] + plus) / sqrt(sum + norm_eps);
            for (size_t i = 0; i < HALF; i++) {
                const double t = (double)at.v[row] * freq.v[i], a = o[2 * i], b = o[2 * i + 1];
                o[2 * i] = scale * (a * cos(t) - b * sin(t));
                o[2 * i + 1] = scale * (b * cos(t) + a * sin(t));
            }
        }
        return r;
    };
    vec norm = q.values(), wy(N * width), wdx(N * width), wpart(2 * 2 * E);
    const vec kv = k.values();
    norm.insert(norm.end(), kv.begin(), kv.end());
    for (row = 0; row < N; row++) {
        const vec v = row_of(x.values(), row, width, width),
                  g = row_of(dy.values(), row, width, width);
        set_row(wy, row, width, f(v, norm));
        set_row(wdx, row, width, gradient([&](const vec &a) { return f(a, norm); }, v, g));
        const vec d = gradient([&](const vec &a) { return f(v, a); }, norm, g);
        for (size_t i = 0; i < d.size(); i++)
            wpart[row / 3 * d.size() + i] += d[i];
    }
    launch({2, 1}, 64, pairs_fwd, y.p(), x.p(), at.p(), freq.p(), q.p(), k.p(), N, H, K, E, ROT,
           width, width, scale, norm_eps, plus, 0);
    launch({2, 1}, 64, pairs_bwd, dx.p(), dy.p(), x.p(), at.p(), freq.p(), q.p(), k.p(), N, H, K, E,
           ROT, width, width, width, scale, norm_eps, plus, 0);
    launch({2, 1}, 64, pairs_dnorm, part.p(), dy.p(), x.p(), at.p(), freq.p(), q.p(), k.p(), N, H,
           K, E, ROT, width, width, scale, norm_eps, plus, 0, 3);
    same("rope_fwd in pairs", y, wy, 4e-5);
    same("rope_bwd in pairs", dx, wdx, 1e-4);
    same("rope_dnorm in pairs", part, wpart, 5e-4);
}

static void rope_query_case()
{
    enum { N = 3, QUERIES = 40, ROW = 56 };
    acts y(numbers(N * ROW, 1));
    buf<int> at(vec{0, 7, 100});
    vec want = y.values();
    for (size_t r = 0; r < N; r++)
        for (size_t i = 0; i < QUERIES; i++)
            want[r * ROW + i] *= 1 + 0.3f * log(1 + (double)((at.v[r] + 1) / 4));
    launch({N, 2}, 32, ropes::rope_query, y.p(), at.p(), QUERIES, ROW, 0.3f, 4, 1);
    same("rope_query", y, want, 1e-5);
}

static void dense_cases()
{
    xielu_case(-1e-6);
    xielu_case(-0.8);
    rope_pairs_case();
    rope_query_case();
}
#endif
