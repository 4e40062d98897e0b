/* host_compare.h - buffers that begin as NaN, comparisons, gradients by differences. */
#ifndef AF_HOST_COMPARE_H
#define AF_HOST_COMPARE_H

#include "host/host_library.h"

/* ---- buffers and comparisons ---- */
using vec = std::vector<double>;
typedef AF_T act; /* the type of activations */
static int failures;

template <class T> static double get(const T *p) { return (double)*p; }
DEV double get(const bf16 *p) { return load(p); }
DEV double get(const half *p) { return load(p); }
template <class T> static void put(T *p, double v) { *p = (T)v; }
DEV void put(bf16 *p, double v) { store(p, (float)v); }
DEV void put(half *p, double v) { store(p, (float)v); }

template <class T> struct buf {
    enum { AFTER = 64 };
    size_t n;
    std::vector<T> v;
    explicit buf(size_t count) : n(count), v(count + AFTER) { memset(v.data(), 255, bytes()); }
    explicit buf(const vec &x) : buf(x.size())
    {
        for (size_t i = 0; i < n; i++)
            put(&v[i], x[i]);
    }
    size_t bytes() const { return v.size() * sizeof(T); }
    T *p() { return v.data(); }
    vec values() const
    {
        vec r(n);
        for (size_t i = 0; i < n; i++)
            r[i] = get(&v[i]);
        return r;
    }
    bool rest_is_kept() const
    {
        const unsigned char *b = (const unsigned char *)(v.data() + n),
                            *end = b + AFTER * sizeof(T);
        while (b < end && *b == 255)
            b++;
        return b == end;
    }
};
using floats = buf<float>;
using acts = buf<act>;

template <class T> DEV double unit(const T *) { return 0.5; } /* integers */
DEV double unit(const float *) { return 0x1p-24; }
DEV double unit(const double *) { return 0x1p-53; }
DEV double unit(const bf16 *) { return 0x1p-8; }
DEV double unit(const half *) { return 0x1p-11; }

/* Each value within rel (of f32 arithmetic) and one rounding to T; NaN wants NaN (kept poison). */
template <class T> static void same(const char *what, buf<T> &got, const vec &want, double rel)
{
    const vec g = got.values();
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const double size = fmax(fabs(want[i]), 1e-3);
        double e = fabs(g[i] - want[i]) - unit(got.p()) * fmax(fabs(want[i]), 0x1p-14);
        e = want[i] != want[i] ? (g[i] != g[i] ? 0 : 9) : e == e ? e / size : 9;
        if (e > worst)
            worst = e, at = i;
    }
    if (getenv("AF_SHOW"))
        printf("%-28s %.2g of %.2g\n", what, worst, rel);
    if (worst > rel || !got.rest_is_kept()) {
        printf("%s [%zu]: %.9g, not %.9g (error %.2g, %.2g allowed)%s\n", what, at, g[at], want[at],
               worst, rel, got.rest_is_kept() ? "" : "; wrote past the end");
        failures++;
    }
}

static u64 drawn;
static double number() { return af_rng_f64(7, 1, drawn++) * 2 - 1; }
static vec numbers(size_t n, double size)
{
    vec r(n);
    for (double &x : r)
        x = number() * size;
    return r;
}
/* dx from dy by central differences of f. */
template <class F> static vec gradient(F f, vec x, const vec &dy)
{
    vec dx(x.size());
    const double h = 1e-6;
    for (size_t j = 0; j < x.size(); j++) {
        const double at = x[j];
        x[j] = at + h;
        const vec up = f(x);
        x[j] = at - h;
        const vec low = f(x);
        x[j] = at;
        for (size_t i = 0; i < dy.size(); i++)
            dx[j] += dy[i] * (up[i] - low[i]) / (2 * h);
    }
    return dx;
}
[[maybe_unused]] static vec row_of(const vec &x, size_t row, size_t ld, size_t n)
{
    return vec(x.begin() + row * ld, x.begin() + row * ld + n);
}
[[maybe_unused]] static void set_row(vec &x, size_t row, size_t ld, const vec &v)
{
    for (size_t i = 0; i < v.size(); i++)
        x[row * ld + i] = v[i];
}
[[maybe_unused]] static vec nothing(size_t n) { return vec(n, NAN); }
#endif
