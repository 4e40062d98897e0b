/* case_oft.h - the kernels of oft.cu. */
#ifndef AF_CASE_OFT_HOST_H
#define AF_CASE_OFT_HOST_H

#include "host/host_compare.h"
#include "host/host_kernels.h"

using matrix = std::vector<vec>;

static matrix times(const matrix &a, const matrix &b)
{
    const size_t n = a.size();
    matrix c(n, vec(n));
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            for (size_t k = 0; k < n; k++)
                c[i][j] += a[i][k] * b[k][j];
    return c;
}

/* The rotations of triangles, from the sum itself; last below 0: of (I - Q) (I + Q)^-1 as
 * (I - 2 Q + 2 Q^2 - ...), for small Q. */
static vec oft_formula(const vec &q, size_t n, int last)
{
    vec r;
    const size_t count = n * (n - 1) / 2, powers = last < 0 ? 60 : (size_t)last;
    for (size_t b = 0; b < q.size() / count; b++) {
        matrix m(n, vec(n)), power(n, vec(n)), sum(n, vec(n));
        size_t at = b * count;
        for (size_t i = 0; i < n; i++) {
            power[i][i] = sum[i][i] = 1;
            for (size_t j = i + 1; j < n; j++) {
                m[i][j] = (last < 0 ? -1 : 1) * q[at++];
                m[j][i] = -m[i][j];
            }
        }
        for (size_t k = 1; k <= powers; k++) {
            power = times(power, m);
            for (size_t i = 0; i < n * n; i++)
                sum[i / n][i % n] += (last > 2 && k == powers ? 1 : 2) * power[i / n][i % n];
        }
        for (const vec &row : sum)
            r.insert(r.end(), row.begin(), row.end());
    }
    return r;
}

static void oft_blocks_case(size_t n, int last)
{
    using namespace ofts;
    enum { BLOCKS = 2, THREADS_OF_BLOCK = 256 };
    const size_t count = n * (n - 1) / 2, nn = n * n;
    const int exact = last < 0;
    floats q(numbers(BLOCKS * count, 0.1)), dr(numbers(BLOCKS * nn, 1)), r(BLOCKS * nn),
        space(BLOCKS * 3 * n * (n | 1)), back(BLOCKS * 5 * n * (n | 1)),
        dq(numbers(BLOCKS * count, 1));
    const auto formula = [&](const vec &x) { return oft_formula(x, n, last); };
    launch({BLOCKS, 1}, THREADS_OF_BLOCK, oft_blocks, r.p(), space.p(), q.p(), (int)n, last, exact);
    same("oft_blocks", r, formula(q.values()), 1e-4);
    const vec before = dq.values(), more = gradient(formula, q.values(), dr.values());
    vec want(before);
    for (size_t i = 0; i < want.size(); i++)
        want[i] += more[i];
    launch({BLOCKS, 1}, THREADS_OF_BLOCK, oft_blocks_bwd, dq.p(), back.p(), q.p(), r.p(), dr.p(),
           (int)n, last, exact, 1);
    same("oft_blocks_bwd", dq, want, 1e-3);
    launch({BLOCKS, 1}, THREADS_OF_BLOCK, oft_blocks_bwd, dq.p(), back.p(), q.p(), r.p(), dr.p(),
           (int)n, last, exact, 0);
    same("oft_blocks_bwd", dq, more, 1e-3);
}

/* Rows and columns of more than one tile, with some left over. */
static void oft_rotate_case(size_t n, int single)
{
    using namespace ofts;
    enum { N = 135, BLOCKS = 2, THREADS_OF_BLOCK = 256, PER = 128, PARTS = 2 };
    const size_t I = BLOCKS * n, nn = n * n;
    const unsigned tiles = (unsigned)(n + 31) / 32;
    acts x(numbers(N * I, 1)), dy(numbers(N * I, 1)), y(N * I), turned(N * I);
    floats r(numbers(BLOCKS * nn, 1)), dr(PARTS * BLOCKS * nn);
    const vec vx = x.values(), vr = r.values(), vdy = dy.values();
    vec want(N * I), want_turned(N * I), want_dr(PARTS * BLOCKS * nn);
    for (size_t i = 0; i < N * I; i++)
        for (size_t k = 0; k < n; k++) {
            const size_t c = i % n, b = i % I / n, own = single ? 0 : b, from = i - c + k;
            want[i] += vx[from] * vr[own * nn + k * n + c];
            want_turned[i] += vx[from] * vr[own * nn + c * n + k];
            want_dr[(i / I / PER * BLOCKS + b) * nn + k * n + c] += vx[from] * vdy[i];
        }
    launch({2, BLOCKS * tiles}, THREADS_OF_BLOCK, oft_rotate, y.p(), x.p(), r.p(), (i64)N, (i64)I,
           (int)n, single, 0);
    launch({2, BLOCKS * tiles}, THREADS_OF_BLOCK, oft_rotate, turned.p(), x.p(), r.p(), (i64)N,
           (i64)I, (int)n, single, 1);
    launch({tiles * tiles, BLOCKS, PARTS}, THREADS_OF_BLOCK, oft_rotate_dr, dr.p(), x.p(), dy.p(),
           (i64)N, (i64)I, (int)n, (i64)PER);
    same("oft_rotate", y, want, 1e-3);
    same("oft_rotate turned", turned, want_turned, 1e-3);
    same("oft_rotate_dr", dr, want_dr, 1e-3);
}

static void oft_cases()
{
    for (const int last : {-1, 0, 1, 3, 4, 5})
        oft_blocks_case(5, last);
    oft_blocks_case(17, 4);
    oft_rotate_case(5, 0);
    oft_rotate_case(36, 0);
    oft_rotate_case(37, 1);
}
#endif
