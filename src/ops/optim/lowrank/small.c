/* small.c - the k x k problems of a subspace iteration, in double: see galore.h. */
#include "ops/optim/lowrank/galore.h"

#include <math.h>

enum { SWEEPS_MAX = 20 };

/* Cholesky, t = l l^T with rows of l^T in the upper half; the same is done to m, which becomes the
 * inverse of l^T. */
void af_galore_orthonormal(double *t, double *m, int64_t k)
{
    for (int64_t i = 0; i < k; i++) {
        memset(m + i * k, 0, (size_t)k * sizeof *m);
        m[i * k + i] = t[i * k + i]; /* until its turn: the square of the column's length */
    }
    for (int64_t j = 0; j < k; j++) {
        double *restrict row = t + j * k;
        const double scale =
            row[j] > AF_GALORE_TINY * m[j * k + j] && row[j] > 0 ? 1 / sqrt(row[j]) : 0;
        m[j * k + j] = 1;
        for (int64_t i = j + 1; i < k; i++)
            row[i] *= scale;
        for (int64_t c = 0; c <= j; c++)
            m[c * k + j] *= scale;
        for (int64_t i = j + 1; i < k; i++) {
            double *restrict below = t + i * k;
            for (int64_t c = i; c < k; c++)
                below[c] -= row[i] * row[c];
        }
        for (int64_t c = 0; c <= j; c++) {
            double *restrict out = m + c * k;
            for (int64_t i = j + 1; i < k; i++)
                out[i] -= row[i] * out[j];
        }
    }
}

/* Rows a and b, and of t the columns, turn so that t[a][b] is 0. */
static void turn(double *t, double *w, int64_t k, int64_t a, int64_t b)
{
    double *x = t + a * k, *y = t + b * k;
    double *restrict u = w + a * k, *restrict v = w + b * k;
    const double aa = x[a], bb = y[b], ab = x[b], tau = (bb - aa) / (2 * ab);
    const double tan = (tau >= 0 ? 1 : -1) / (fabs(tau) + sqrt(1 + tau * tau));
    const double c = 1 / sqrt(1 + tan * tan), s = c * tan;
    for (int64_t j = 0; j < k; j++) {
        const double p = x[j], q = y[j], f = u[j], g = v[j];
        x[j] = c * p - s * q;
        y[j] = s * p + c * q;
        u[j] = c * f - s * g;
        v[j] = s * f + c * g;
    }
    x[a] = aa - tan * ab;
    y[b] = bb + tan * ab;
    x[b] = y[a] = 0;
    for (int64_t j = 0; j < k; j++) {
        t[j * k + a] = x[j];
        t[j * k + b] = y[j];
    }
}

/* Jacobi: t becomes diagonal, rows of w its vectors. */
static void diagonalise(double *t, double *w, int64_t k)
{
    double trace = 0;
    memset(w, 0, (size_t)(k * k) * sizeof *w);
    for (int64_t i = 0; i < k; i++) {
        w[i * k + i] = 1;
        trace += t[i * k + i];
    }
    bool turned = true;
    for (int sweep = 0; turned && sweep < SWEEPS_MAX; sweep++) {
        turned = false;
        for (int64_t a = 0; a < k; a++)
            for (int64_t b = a + 1; b < k; b++)
                if (fabs(t[a * k + b]) > AF_GALORE_SMALL * trace) {
                    turn(t, w, k, a, b);
                    turned = true;
                }
    }
}

void af_galore_ritz(double *t, double *w, double *small, double *large, int64_t k, int64_t rank)
{
    diagonalise(t, w, k);
    double most = 0;
    for (int64_t i = 0; i < k; i++)
        most = fmax(most, t[i * k + i]);
    for (int64_t i = 0; i < k; i++) {
        const double value = t[i * k + i];
        int64_t place = 0;
        for (int64_t j = 0; j < k; j++)
            place += t[j * k + j] > value || (j < i && !(t[j * k + j] < value));
        const double scale = value > AF_GALORE_TINY * most ? 1 / sqrt(value) : 0;
        for (int64_t c = 0; place < rank && c < k; c++) {
            small[c * rank + place] = w[i * k + c];
            large[c * rank + place] = w[i * k + c] * scale;
        }
    }
}
