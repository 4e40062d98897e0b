/* case_rows.h - kernels that reduce rows: rmsnorm.cu, softmax.cu, rope.cu. */
#ifndef AF_CASE_ROWS_H
#define AF_CASE_ROWS_H

#include "host/host_compare.h"
#include "host/host_kernels.h"

/* ---- norms: the mean square is about eps, one row is zero ---- */
static const size_t D = AF_VEC == 1 ? 37 : 5 * AF_VEC, LD = D + AF_VEC, ROWS = 3;
static const float norm_eps = 0x1p-10f;

static vec rmsnorm(const vec &x, const vec &w, double plus)
{
    double sum = 0;
    for (double v : x)
        sum += v * v;
    vec y(x.size());
    for (size_t i = 0; i < x.size(); i++)
        y[i] = x[i] / sqrt(sum / (double)x.size() + norm_eps) * (w[i] + plus);
    return y;
}
static acts small_rows()
{
    vec x = numbers(ROWS * LD, 0.05);
    set_row(x, 1, LD, vec(D, 0.0));
    return acts(x);
}
/* The rows that were stored, as codes: to the bit, where kernels make them. */
static void same_codes(acts &x, buf<u8> &codes, floats &scale)
{
    const vec v = x.values();
    for (size_t r = 0; r < ROWS && std::is_same<act, bf16>::value && AF_VEC == 8; r++) {
        std::vector<float> row(v.begin() + (long)(r * LD), v.begin() + (long)(r * LD + D));
        const af_fp8_scale f = af_fp8_scale_of(af_fp8_largest(row.data(), (int64_t)D, 0));
        bool equal = scale.v[r] == f.scale;
        for (size_t i = 0; i < D; i++)
            equal &= codes.v[r * D + i] == af_fp8_code(row[i] * f.inverse);
        if (!equal) {
            printf("row %zu of a norm has other codes\n", r);
            failures++;
        }
    }
}
static void rmsnorm_case(float plus)
{
    using namespace norms;
    acts x = small_rows(), more = small_rows(), dy(numbers(ROWS * LD, 1)), w(numbers(D, 1)),
         y(ROWS * LD), sum(ROWS * LD), y2(ROWS * LD), dx(ROWS * LD);
    floats rstd(ROWS), rstd2(ROWS), part(2 * D),
        scale[3] = {floats(ROWS), floats(ROWS), floats(ROWS)};
    buf<u8> codes[3] = {buf<u8>(ROWS * D), buf<u8>(ROWS * D), buf<u8>(ROWS * D)};
    vec wy = nothing(ROWS * LD), wsum = wy, wy2 = wy, wdx = wy, wr(ROWS), wdw(2 * D);
    const vec wv = w.values();
    for (size_t r = 0; r < ROWS; r++) {
        const vec xr = row_of(x.values(), r, LD, D), gr = row_of(dy.values(), r, LD, D);
        vec both = row_of(more.values(), r, LD, D);
        for (size_t i = 0; i < D; i++)
            both[i] = rounded<act>((float)(both[i] + xr[i]));
        set_row(wy, r, LD, rmsnorm(xr, wv, plus));
        set_row(wsum, r, LD, both);
        set_row(wy2, r, LD, rmsnorm(both, wv, plus));
        vec d = gradient([&](const vec &a) { return rmsnorm(a, wv, plus); }, xr, gr);
        for (size_t i = 0; i < D; i++)
            d[i] += more.values()[r * LD + i];
        set_row(wdx, r, LD, d);
        const vec unit_row = rmsnorm(xr, vec(D, 1.0), 0);
        for (size_t i = 0; i < D; i++)
            wdw[r / 2 * D + i] += gr[i] * unit_row[i];
        double squares = 0;
        for (double v : xr)
            squares += v * v;
        wr[r] = 1 / sqrt(squares / (double)D + norm_eps);
    }
    launch({2, 1}, 32, rmsnorm_fwd, y.p(), rstd.p(), x.p(), w.p(), ROWS, D, LD, LD, norm_eps, plus,
           codes[0].p(), scale[0].p());
    launch({2, 1}, 32, rmsnorm_add_fwd, y2.p(), sum.p(), rstd2.p(), x.p(), more.p(), w.p(), ROWS, D,
           LD, LD, LD, LD, norm_eps, plus, codes[1].p(), scale[1].p());
    launch({2, 1}, 32, rmsnorm_bwd, dx.p(), x.p(), w.p(), rstd.p(), dy.p(), more.p(), ROWS, D, LD,
           LD, LD, LD, plus, codes[2].p(), scale[2].p());
    launch({2, 2}, 256, rmsnorm_dw, part.p(), x.p(), rstd.p(), dy.p(), ROWS, D, LD, LD, 2);
    same("rmsnorm rstd", rstd, wr, 1e-5);
    same("rmsnorm", y, wy, 1e-5);
    same("rmsnorm_add sum", sum, wsum, 0);
    same("rmsnorm_add", y2, wy2, 1e-5);
    same("rmsnorm_bwd", dx, wdx, 1e-4);
    same("rmsnorm_dw", part, wdw, 1e-5);
    acts *const of[3] = {&y, &y2, &dx};
    for (int i = 0; i < 3; i++)
        same_codes(*of[i], codes[i], scale[i]);
}

/* ---- rows: softmax, layer norm, fake quantisation ---- */
static void softmax_case(int log)
{
    using namespace rows;
    acts x(numbers(ROWS * D, 4)), y(ROWS * D), dy(numbers(ROWS * D, 1)), dx(ROWS * D);
    launch({ROWS, 1}, 64, softmax_fwd, y.p(), x.p(), D, log);
    launch({ROWS, 1}, 64, softmax_bwd, dx.p(), y.p(), dy.p(), D, log);
    vec want(ROWS * D), wdx(ROWS * D);
    for (size_t r = 0; r < ROWS; r++) {
        const vec v = row_of(x.values(), r, D, D), s = row_of(y.values(), r, D, D),
                  g = row_of(dy.values(), r, D, D);
        double sum = 0, dot = 0;
        for (size_t i = 0; i < D; i++)
            sum += exp(v[i]), dot += g[i] * (log ? 1 : s[i]);
        for (size_t i = 0; i < D; i++) {
            want[r * D + i] = log ? v[i] - ::log(sum) : exp(v[i]) / sum;
            wdx[r * D + i] = log ? g[i] - exp(s[i]) * dot : s[i] * (g[i] - dot);
        }
    }
    same("softmax", y, want, 1e-5);
    same("softmax_bwd", dx, wdx, 1e-4);
}
static vec layernorm(const vec &x, const vec &w, const vec &b)
{
    double m = 0, q = 0;
    for (double v : x)
        m += v / (double)x.size();
    for (double v : x)
        q += (v - m) * (v - m) / (double)x.size();
    vec y(x.size());
    for (size_t i = 0; i < x.size(); i++)
        y[i] = (x[i] - m) / sqrt(q + norm_eps) * w[i] + b[i];
    return y;
}
static void layernorm_case()
{
    using namespace rows;
    acts x(numbers(ROWS * D, 0.05)), w(numbers(D, 1)), b(numbers(D, 1)), y(ROWS * D),
        dy(numbers(ROWS * D, 1)), dx(ROWS * D);
    floats mean(ROWS), rstd(ROWS), part(2 * 2 * D);
    launch({ROWS, 1}, 64, layernorm_fwd, y.p(), mean.p(), rstd.p(), x.p(), w.p(), b.p(), D,
           norm_eps);
    launch({ROWS, 1}, 64, layernorm_bwd, dx.p(), x.p(), w.p(), mean.p(), rstd.p(), dy.p(), D);
    launch({2, 2}, 32, layernorm_dw, part.p(), x.p(), mean.p(), rstd.p(), dy.p(), ROWS, D, 2);
    vec wy(ROWS * D), wdx(ROWS * D), wpart(4 * D);
    for (size_t r = 0; r < ROWS; r++) {
        const vec v = row_of(x.values(), r, D, D), g = row_of(dy.values(), r, D, D);
        set_row(wy, r, D, layernorm(v, w.values(), b.values()));
        const auto f = [&](const vec &a) { return layernorm(a, w.values(), b.values()); };
        set_row(wdx, r, D, gradient(f, v, g));
        const vec h = layernorm(v, vec(D, 1.0), vec(D, 0.0));
        for (size_t i = 0; i < D; i++) {
            wpart[r / 2 * 2 * D + i] += g[i] * h[i];
            wpart[r / 2 * 2 * D + D + i] += g[i];
        }
    }
    same("layernorm", y, wy, 6e-5);
    same("layernorm_bwd", dx, wdx, 1e-4);
    same("layernorm_dw", part, wpart, 6e-5);
}
static void fake_quant_case(int symmetric)
{
    using namespace rows;
    vec in = numbers(2 * D, 1);
    for (size_t i = D; i < 2 * D; i++)
        in[i] = rint(in[i] * 16) / 16; /* as weights in bf16: some lie between two codes */
    acts x(in), y(2 * D), dy(numbers(2 * D, 1)), dx(2 * D);
    buf<u8> mask(2 * D);
    launch({2, 1}, 64, fake_quant, y.p(), mask.p(), x.p(), D, 16.0f, symmetric);
    launch({2, 1}, 32, fake_quant_bwd, dx.p(), mask.p(), dy.p(), 2 * D);
    vec wy(2 * D), wm(2 * D), wdx = dy.values();
    for (size_t r = 0; r < 2; r++) {
        double low = 0, high = 0;
        const vec v = row_of(x.values(), r, D, D);
        for (double a : v)
            low = fmin(low, a), high = fmax(high, a);
        const double scale = symmetric ? fmax(high, -low) / 7 : (high - low) / 15;
        const double zero = symmetric ? 0 : rint(-low / scale), from = symmetric ? -8 : 0;
        for (size_t i = 0; i < D; i++) {
            const double q = rint(v[i] / scale) + zero, kept = fmin(fmax(q, from), from + 15);
            wy[r * D + i] = scale * (kept - zero);
            wm[r * D + i] = kept == q;
            wdx[r * D + i] *= kept == q;
        }
    }
    same("fake_quant", y, wy, 1e-5);
    same("fake_quant mask", mask, wm, 0);
    same("fake_quant_bwd", dx, wdx, 0);
}
/* The nearest of the codes 0, 1, ..; of two the even one. */
static double nearest_code(const vec &codes, double x)
{
    size_t best = 0;
    for (size_t i = 1; i < codes.size(); i++) {
        const double gap = fabs(fabs(x) - codes[i]) - fabs(fabs(x) - codes[best]);
        best = gap < 0 || (gap == 0 && i % 2 == 0) ? i : best;
    }
    return copysign(codes[best], x);
}
/* All of x but its last row count in the scale of nvfp4. */
static void fake_float_case()
{
    using namespace rows;
    enum { SIDE = 64, HEIGHT = 5, N = SIDE * HEIGHT, BLOCKS = 2 };
    const vec e2m1 = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    vec e4m3;
    for (int i = 0; i < 127; i++)
        e4m3.push_back(i < 8 ? ldexp(i, -9) : ldexp(8 + i % 8, i / 8 - 10));
    acts x(numbers(N, 1));
    floats nv(N), mx(N), fp8(N);
    buf<u32> part(BLOCKS);
    buf<int> count(vec{HEIGHT - 1});
    launch({BLOCKS, 1}, 64, float_most, part.p(), x.p(), N, SIDE, count.p());
    launch({BLOCKS, 1}, 64, fake_float4, nv.p(), x.p(), part.p(), BLOCKS, N, 16);
    launch({BLOCKS, 1}, 64, fake_float4, mx.p(), x.p(), (const u32 *)nullptr, 0, N, 32);
    launch({HEIGHT, 1}, 64, fake_float8, fp8.p(), x.p(), SIDE);
    const vec v = x.values();
    const auto most = [&](size_t from, size_t n) {
        double m = 0;
        for (size_t i = from; i < from + n; i++)
            m = fmax(m, fabs(v[i]));
        return m;
    };
    vec want[3] = {vec(N), vec(N), vec(N)};
    const double t = most(0, N - SIDE) / 2688;
    for (size_t i = 0; i < N; i++) {
        const double s[3] = {t * nearest_code(e4m3, fmax(most(i / 16 * 16, 16) / 6 / t, 0x1p-6)),
                             exp2(ceil(log2(most(i / 32 * 32, 32) / 6))),
                             (double)rounded<AF_T>((float)(most(i / SIDE * SIDE, SIDE) / 448))};
        for (int k = 0; k < 3; k++)
            want[k][i] = s[k] * nearest_code(k == 2 ? e4m3 : e2m1, v[i] / s[k]);
    }
    same("fake_float nvfp4", nv, want[0], 1e-6);
    same("fake_float mxfp4", mx, want[1], 0);
    same("fake_float fp8", fp8, want[2], 1e-6);
}
static void ternary_case()
{
    using namespace rows;
    enum { N = 333, BLOCKS = 3 };
    acts w(numbers(N, 1));
    floats y(N), part(BLOCKS);
    launch({BLOCKS, 1}, 32, ternary_sum, part.p(), w.p(), N);
    launch({BLOCKS, 1}, 32, ternary, y.p(), w.p(), part.p(), BLOCKS, N);
    const vec v = w.values();
    vec want(N), sums(BLOCKS);
    double mean = 0;
    for (size_t i = 0; i < N; i++) {
        mean += fabs(v[i]) / N;
        sums[i / 32 % BLOCKS] += fabs(v[i]);
    }
    for (size_t i = 0; i < N; i++)
        want[i] = mean * fmin(fmax(rint(v[i] / mean), -1), 1);
    same("ternary_sum", part, sums, 1e-5);
    same("ternary", y, want, 1e-5);
}

/* ---- rope with norms of q and k: all of each head is rotated, or all but REST columns ---- */
template <int REST> static void rope_case(int whole)
{
    using namespace ropes;
    enum { H = 2, K = 1, HALF = AF_VEC * 2, ROT = 2 * HALF, E = ROT + REST, N = 5 };
    const size_t width = (H + 2 * K) * E, ld = width + AF_VEC, wq = whole ? H * E : E,
                 wk = whole ? K * E : E;
    const float scale = 1.25f, plus = 1.0f;
    acts x(numbers(N * ld, 0.05)), q(numbers(wq, 1)), k(numbers(wk, 1)), y(N * ld),
        dy(numbers(N * ld, 1)), dx(N * ld);
    buf<int> at(vec{0, 1, 2, 0, 9});
    floats freq(HALF), part(2 * (wq + wk));
    for (int i = 0; i < HALF; i++)
        freq.v[i] = powf(0.1f, (float)i / HALF);
    size_t row = 0;
    const auto f = [&](const vec &v,
                       const vec &norm) { /* norm: of q, then of k */
                                          vec r = v;
                                          for (size_t h = 0; h < H + K; h++) {
                                              const size_t from = !whole  ? h
                                                                  : h < H ? 0
                                                                          : H,
                                                           to = !whole  ? h + 1
                                                                : h < H ? H
                                                                        : H + K;
                                              double sum = 0;
                                              for (size_t i = from * E; i < to * E; i++)
                                                  sum += v[i] * v[i] / (double)((to - from) * E);
                                              const double *w =
                                                  norm.data() + (h < H ? 0 : wq) +
                                                  (whole ? (h < H ? h : h - H) * E : 0);
                                              double *o = r.data() + h * E;
                                              for (size_t i = 0; i < E; i++)
                                                  o[i] *= (w[i] + plus) / sqrt(sum + norm_eps);
                                              for (size_t i = 0; i < HALF; i++) {
                                                  const double t = (double)at.v[row] * freq.v[i],
                                                               a = o[i], b = o[i + HALF];
                                                  o[i] = scale * (a * cos(t) - b * sin(t));
                                                  o[i + HALF] = scale * (b * cos(t) + a * sin(t));
                                              }
                                          }
                                          return r;
    };
    vec norm = q.values(), wy = nothing(N * ld), wdx = wy, wpart(2 * (wq + wk));
    const vec kv = k.values();
    norm.insert(norm.end(), kv.begin(), kv.end());
    for (row = 0; row < N; row++) {
        const vec v = row_of(x.values(), row, ld, width), g = row_of(dy.values(), row, ld, width);
        set_row(wy, row, ld, f(v, norm));
        set_row(wdx, row, ld, gradient([&](const vec &a) { return f(a, norm); }, v, g));
        const vec d = gradient([&](const vec &a) { return f(v, a); }, norm, g);
        for (size_t i = 0; i < d.size(); i++)
            wpart[row / 3 * d.size() + i] += d[i];
    }
    memset(shared, 255, sizeof shared);
    launch({2, 1}, 64, rope_fwd, y.p(), x.p(), at.p(), freq.p(), q.p(), k.p(), N, H, K, E, ROT, ld,
           ld, scale, norm_eps, plus, whole);
    launch({2, 1}, 64, rope_bwd, dx.p(), dy.p(), x.p(), at.p(), freq.p(), q.p(), k.p(), N, H, K, E,
           ROT, ld, ld, ld, scale, norm_eps, plus, whole);
    launch({2, 1}, 64, rope_dnorm, part.p(), dy.p(), x.p(), at.p(), freq.p(), q.p(), k.p(), N, H, K,
           E, ROT, ld, ld, scale, norm_eps, plus, whole, 3);
    same("rope_fwd", y, wy, 4e-5);
    same("rope_bwd", dx, wdx, 1e-4);
    same("rope_dnorm", part, wpart, 5e-4);
}
#endif
