/* svd.c - see svd.h.
 *
 * Jacobi (Hestenes): rotate pairs of rows until all are orthogonal; their lengths are the singular
 * values. The random method (Halko, Martinsson, Tropp, 2011) finds an orthonormal basis of the
 * range with `rank` and some more vectors, and does Jacobi on the small rest. */
#include "tensor/svd.h"

#include "base/rng.h"

#include <math.h>

enum { SWEEPS_MAX = 60, EXTRA = 16, POWER_STEPS = 6, EXACT_MAX = 512 };

static double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

static void rotate(double *a, double *b, int64_t n, double c, double s)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = a[i], y = b[i];
        a[i] = c * x - s * y;
        b[i] = s * x + c * y;
    }
}

/* Rows of a [n][m] become orthogonal; the same rotations are done to w [n][n]. */
static void jacobi(double *a, double *w, int64_t n, int64_t m)
{
    for (int sweep = 0; sweep < SWEEPS_MAX; sweep++) {
        double worst = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double *x = a + p * m, *y = a + q * m;
                const double xx = dot(x, x, m), yy = dot(y, y, m), xy = dot(x, y, m);
                const double size = sqrt(xx) * sqrt(yy);
                if (size == 0 || fabs(xy) <= 1e-15 * size)
                    continue;
                worst = fmax(worst, fabs(xy) / size);
                const double zeta = (yy - xx) / (2 * xy);
                const double t = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
                const double c = 1 / sqrt(1 + t * t);
                rotate(x, y, m, c, c * t);
                rotate(w + p * n, w + q * n, n, c, c * t);
            }
        if (worst < 1e-14)
            return;
    }
}

typedef struct ordered {
    double size;
    int64_t at;
} ordered;

static int by_size(const void *a, const void *b)
{
    const ordered *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* a [n][m], n <= m: s, left vectors [rank][n], right vectors [rank][m]. `a` is used up. */
static af_status small_svd(double *a, int64_t n, int64_t m, int64_t rank, double *s, double *left,
                           double *right, af_error *err)
{
    double *w = af_calloc((uint64_t)(n * n), sizeof *w);
    ordered *order = af_calloc((uint64_t)n, sizeof *order);
    if (!w || !order) {
        free(w);
        free(order);
        return af_fail_nomem(err, "a decomposition", (uint64_t)(n * n) * 8);
    }
    for (int64_t i = 0; i < n; i++)
        w[i * n + i] = 1;
    jacobi(a, w, n, m);
    for (int64_t i = 0; i < n; i++)
        order[i] = (ordered){sqrt(dot(a + i * m, a + i * m, m)), i};
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int64_t k = 0; k < rank; k++) {
        const int64_t i = order[k].at;
        s[k] = order[k].size;
        /* w a = diag(s) right, so a = w^T diag(s) right: row i of w is the left vector. */
        memcpy(left + k * n, w + i * n, (size_t)n * sizeof *left);
        for (int64_t j = 0; j < m; j++)
            right[k * m + j] = s[k] > 0 ? a[i * m + j] / s[k] : 0;
    }
    free(w);
    free(order);
    return AF_OK;
}

/* ---- randomised range finder ---- */

typedef struct matmul_args {
    const float *x;
    int64_t rows, cols, k;
    const double *in;
    double *out;
} matmul_args;

/* out [k][rows] = in [k][cols] x^T: one row of x at a time. */
static void times_rows(void *arg, int64_t from, int64_t to, int share)
{
    const matmul_args *p = arg;
    (void)share;
    for (int64_t r = from; r < to; r++)
        for (int64_t j = 0; j < p->k; j++) {
            const float *x = p->x + r * p->cols;
            const double *in = p->in + j * p->cols;
            double s = 0;
            for (int64_t c = 0; c < p->cols; c++)
                s += in[c] * (double)x[c];
            p->out[j * p->rows + r] = s;
        }
}

/* out [k][cols] = in [k][rows] x: one vector at a time. */
static void times_columns(void *arg, int64_t from, int64_t to, int share)
{
    const matmul_args *p = arg;
    (void)share;
    for (int64_t j = from; j < to; j++) {
        double *out = p->out + j * p->cols;
        memset(out, 0, (size_t)p->cols * sizeof *out);
        for (int64_t r = 0; r < p->rows; r++) {
            const double w = p->in[j * p->rows + r];
            const float *x = p->x + r * p->cols;
            for (int64_t c = 0; c < p->cols; c++)
                out[c] += w * (double)x[c];
        }
    }
}

/* Gram-Schmidt, done twice. */
void af_orthonormal(double *q, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < k; i++) {
        double *x = q + i * n;
        const double before = sqrt(dot(x, x, n));
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < i; j++) {
                const double d = dot(x, q + j * n, n);
                for (int64_t c = 0; c < n; c++)
                    x[c] -= d * q[j * n + c];
            }
        const double after = sqrt(dot(x, x, n));
        const double scale = after > 1e-13 * before ? 1 / after : 0;
        for (int64_t c = 0; c < n; c++)
            x[c] *= scale;
    }
}

static af_status random_svd(const float *x, int64_t rows, int64_t cols, int64_t rank, int steps,
                            uint64_t seed, af_pool *pool, double *s, double *u, double *v,
                            af_error *err)
{
    af_status st = AF_OK;
    const int64_t k = AF_MIN(rank + EXTRA, AF_MIN(rows, cols));
    double *right = af_calloc((uint64_t)(k * cols), sizeof *right);
    double *left = af_calloc((uint64_t)(k * rows), sizeof *left);
    double *small = af_calloc((uint64_t)(rank * k), sizeof *small);
    matmul_args p = {.x = x, .rows = rows, .cols = cols, .k = k};
    if (!right || !left || !small)
        AF_TRY(af_fail_nomem(err, "a decomposition", (uint64_t)(k * (rows + cols)) * 8));
    for (int64_t i = 0; i < k * cols; i++)
        right[i] = af_rng_normal(seed, 0, (uint64_t)i);
    for (int step = 0; step <= steps; step++) {
        p.in = right;
        p.out = left;
        af_pool_run(pool, rows, times_rows, &p);
        af_orthonormal(left, k, rows);
        p.in = left;
        p.out = right;
        af_pool_run(pool, k, times_columns, &p);
        if (step < steps)
            af_orthonormal(right, k, cols);
    }
    /* x ~ left^T right: the small one is right, [k][cols]. */
    AF_TRY(small_svd(right, k, cols, rank, s, small, v, err));
    for (int64_t i = 0; i < rank; i++)
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0;
            for (int64_t j = 0; j < k; j++)
                sum += small[i * k + j] * left[j * rows + r];
            u[i * rows + r] = sum;
        }
done:
    free(right);
    free(left);
    free(small);
    return st;
}

af_status af_svd(const float *x, int64_t rows, int64_t cols, int64_t rank, int steps, uint64_t seed,
                 af_pool *pool, double *s, double *u, double *v, af_error *err)
{
    const bool wide = rows <= cols;
    const int64_t n = wide ? rows : cols, m = wide ? cols : rows;
    if (n > EXACT_MAX && rank + EXTRA < n / 2)
        return random_svd(x, rows, cols, rank, AF_MAX(steps, POWER_STEPS), seed, pool, s, u, v,
                          err);
    double *a = af_calloc((uint64_t)(n * m), sizeof *a);
    if (!a)
        return af_fail_nomem(err, "a decomposition", (uint64_t)(n * m) * 8);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            a[i * m + j] = wide ? x[i * cols + j] : x[j * cols + i];
    const af_status st = small_svd(a, n, m, rank, s, wide ? u : v, wide ? v : u, err);
    free(a);
    return st;
}
