/* case_galore.h - the kernels of galore.cu. */
#ifndef AF_CASE_GALORE_H
#define AF_CASE_GALORE_H

#include "host/case_optim.h"

typedef buf<double> doubles;

static void below(const char *what, double value, double limit)
{
    floats got(vec{1 + value});
    same(what, got, vec{1}, limit);
}

static vec gram_of(const vec &z, size_t rows, int k)
{
    vec t(k * k);
    for (size_t r = 0; r < rows; r++)
        for (int a = 0; a < k; a++)
            for (int b = 0; b < k; b++)
                t[a * k + b] += z[r * k + a] * z[r * k + b];
    return t;
}

/* How far a^T a is from the unit matrix, or from its first `some` rows. */
static double skew_of(const vec &a, size_t rows, int k, int some)
{
    const vec t = gram_of(a, rows, k);
    double worst = 0;
    for (int i = 0; i < k * k; i++)
        worst = fmax(worst, fabs(t[i] - (i % (k + 1) == 0 && i / (k + 1) < some)));
    return worst;
}

/* Columns that depend on those before become 0. */
static void galore_orthonormal_case(int k, bool dependent)
{
    using namespace lowrank;
    const size_t rows = 150;
    floats z(numbers(rows * k, 1)), out(rows * k);
    doubles t(k * k), m(k * k), e(k * k), length(k);
    buf<u32> count(1);
    for (size_t r = 0; dependent && r < rows; r++)
        z.v[r * k + k - 1] = 2 * z.v[r * k];
    const int tiles = (k + 15) / 16;
    launch({(unsigned)(tiles * tiles), 1}, 256, galore_gram, t.p(), z.p(), (long long)rows, k);
    same("galore_gram", t, gram_of(z.values(), rows, k), 1e-6);
    launch({1, 1}, 64, galore_orthonormal, m.p(), e.p(), t.p(), length.p(), count.p(), k);
    launch({3, 1}, 32, galore_times, out.p(), z.p(), m.p(), (long long)rows, k, k);
    below("galore_orthonormal", skew_of(out.values(), rows, k, k - dependent), 2e-6);
}

/* Q = 1: small has the right vectors of A, A large the left ones. */
static void galore_ritz_case(int k, int rank)
{
    using namespace lowrank;
    const size_t rows = 40;
    floats a(numbers(rows * k, 1)), left(rows * rank);
    const vec whole = gram_of(a.values(), rows, k);
    doubles t(whole), other(k * k), w(k * k), small(k * rank), large(k * rank), turns(2 * (k + 1));
    buf<u32> count(1);
    launch({1, 1}, 64, galore_ritz, small.p(), large.p(), t.p(), other.p(), w.p(), turns.p(),
           count.p(), k, rank);
    launch({2, 1}, 32, galore_times, left.p(), a.p(), large.p(), (long long)rows, k, rank);
    double before = INFINITY, worst = 0;
    for (int i = 0; i < rank; i++) { /* A^T A v = s^2 v, in falling order */
        vec moved(k);
        double size = 0;
        for (int r = 0; r < k; r++) {
            for (int c = 0; c < k; c++)
                moved[r] += whole[r * k + c] * small.v[c * rank + i];
            size += moved[r] * small.v[r * rank + i];
        }
        for (int r = 0; r < k; r++)
            worst = fmax(worst, fabs(moved[r] - size * small.v[r * rank + i]));
        worst = size <= before ? worst : 1;
        before = size;
    }
    below("galore_ritz", worst, 1e-6);
    below("galore_ritz right", skew_of(small.values(), k, rank, rank), 1e-6);
    below("galore_ritz left", skew_of(left.values(), rows, rank, rank), 2e-6);
}

/* Vectors that are there point as before; the first ones along signs. Without a finite gradient
 * they come from the draw at first, and stay later. */
static void galore_keep_case(bool first, bool finite)
{
    using namespace lowrank;
    const size_t rows = 70;
    const int rank = 3;
    buffers b(4, finite);
    floats x(numbers(rows * rank, 1)), draw(numbers(rows * rank, 0.5)), p(numbers(rows * rank, 2)),
        hyper(vec{lr, corr1, corr2, first ? 1.0 : 7.0, num_a, num_b});
    for (size_t r = 0; r < rows; r++)
        x.v[r * rank + 1] = 0;
    doubles t(gram_of(x.values(), rows, rank));
    vec filled = finite ? x.values() : draw.values(), want = p.values();
    for (size_t r = 0; r < rows; r++)
        filled[r * rank + 1] = draw.v[r * rank + 1];
    for (int c = 0; (first || finite) && c < rank; c++) {
        double along = 0;
        for (size_t r = 0; r < rows; r++)
            along += filled[r * rank + c] *
                     (first ? ((u32)r * 2654435761u >> 31 ? -1.0 : 1.0) : p.v[r * rank + c]);
        for (size_t r = 0; r < rows; r++)
            want[r * rank + c] = along < 0 ? -filled[r * rank + c] : filled[r * rank + c];
    }
    launch({2, 1}, 32, galore_fill, x.p(), draw.p(), t.p(), b.stats.p(), (long long)(rows * rank),
           rank);
    launch({(unsigned)rank, 1}, 64, galore_keep, p.p(), x.p(), hyper.p(), b.stats.p(),
           (long long)rows, rank);
    same("galore_keep", p, want, 0);
}

static void galore_step_case(bool finite)
{
    using namespace lowrank;
    const size_t n = 77;
    buffers b(n, finite);
    floats low(numbers(n, 0.5));
    vec w = b.w.values(), d = low.values(), m = b.m.values(), v = b.v.values();
    for (size_t i = 0; finite && i < n; i++) {
        const double l = d[i] * clip;
        m[i] = b1 * m[i] + (1 - b1) * l;
        v[i] = b2 * v[i] + (1 - b2) * l * l;
        d[i] = m[i] / (sqrt(v[i]) + eps);
        w[i] -= rate * corr2 / corr1 * alpha * b.g.v[i];
        w[i] -= rate * decay * w[i];
    }
    launch({2, 1}, 32, galore_moments, low.p(), b.m.p(), b.v.p(), b.stats.p(), (long long)n, b1,
           1 - b1, b2, 1 - b2, eps);
    launch({2, 1}, 32, galore_apply, b.w.p(), b.g.p(), b.hyper.p(), b.stats.p(), (long long)n,
           decay, fac, alpha);
    same("galore direction", low, d, 1e-5);
    same("galore m", b.m, m, 1e-5);
    same("galore v", b.v, v, 1e-5);
    same("galore", b.w, w, 1e-5);
    same("galore", b.g, vec(n, 0.0), 0);
}

static void galore_cases()
{
    for (int k = 1; k < 40; k += 19) {
        galore_orthonormal_case(k, false);
        galore_orthonormal_case(k + 1, true);
        galore_ritz_case(k, (k + 1) / 2);
        galore_ritz_case(k + 1, k + 1);
    }
    for (int i = 0; i < 4; i++)
        galore_keep_case(i & 1, i & 2);
    galore_step_case(true);
    galore_step_case(false);
}
#endif
