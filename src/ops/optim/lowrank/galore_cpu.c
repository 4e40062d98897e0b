/* galore_cpu.c - the twin of GaLore (Zhao et al., 2024), AdamW as the package galore-torch has it.
 *
 * Of one matrix [R][C], with g = gradient * clip, U [R][rank] and V [C][rank] singular vectors of
 * the gradient of the first step and of each gap-th after it; they are a state:
 *   L = g V (right), g^T U (left) or U^T g V (full); std: right where R >= C, else left;
 *       reverse_std: the other one
 *   m = b1 m + (1-b1) L;  v = b2 v + (1-b2) L^2;  D = m / (sqrt(v) + eps)
 *   w -= lr sqrt(1 - b2^t) / (1 - b1^t) scale d, d = D V^T, U D^T or U D V^T;  w -= lr wd w
 * As in the package eps is not corrected, decay comes last, and moments stay when vectors change.
 *
 * Vectors come from subspace iteration: A = g or g^T [m][n], n <= m; Q [n][k] of normal numbers (a
 * draw of seed and matrix), k = min(n, rank + 32), orthonormalised; if k < n six times Y = A Q,
 * Q = A^T Y, each orthonormalised; then those of the small problem Y^T Y, Y = A Q. Where the
 * gradient has too few, others of the draw fill up; without a finite gradient vectors stay (in the
 * first step: all are of the draw). Each points as its predecessor did, the first ones along fixed
 * signs. */
#include "ops/common/twin.h"
#include "ops/optim/bf16_weights.h"
#include "ops/optim/lowrank/galore.h"
#include "ops/optim/optimizer.h"

#include <math.h>

typedef struct galore_job {
    const af_node *n;
    af_optim_inputs in;
    af_galore_shape s;
    double clip;
    bool finite;
    af_tensor *v, *u; /* or NULL */
    /* workspace: [m][k], twice; [n][k]; [max(m, n)][rank], twice; [k][k], three times; [k][rank] */
    double *y, *z, *q, *low, *back, *t, *w, *small, *large;
    float *draw; /* [m][k] */
} galore_job;

static uint64_t lay_out(galore_job *j, void *at)
{
    const af_galore_shape *s = &j->s;
    const int64_t count[] = {s->m * s->k, s->m * s->k, s->n * s->k, s->m * s->rank, s->m * s->rank,
                             s->k * s->k, s->k * s->k, s->k * s->k, s->k * s->rank};
    double **const part[] = {&j->y, &j->z, &j->q,     &j->low,  &j->back,
                             &j->t, &j->w, &j->small, &j->large};
    double *next = at;
    uint64_t sum = 0;
    for (size_t i = 0; i < AF_LEN(count); i++) {
        *part[i] = next ? next + sum : NULL;
        sum += (uint64_t)count[i];
    }
    j->draw = next ? (float *)(next + sum) : NULL;
    return sum * sizeof(double) + (uint64_t)(s->m * s->k) * sizeof(float);
}

static double gradient(const galore_job *j, int64_t r, int64_t c)
{
    return af_ld(j->in.grads, r * j->s.C + c) * j->clip;
}

/* Of A [m][n]. */
static double of_a(const galore_job *j, int64_t i, int64_t d)
{
    return j->s.tall ? gradient(j, i, d) : gradient(j, d, i);
}

/* out [m][k] = A in, or out [n][k] = A^T in. */
static void times_a(const galore_job *j, double *out, const double *in, bool transposed)
{
    const int64_t rows = transposed ? j->s.n : j->s.m, sum = transposed ? j->s.m : j->s.n,
                  k = j->s.k;
    memset(out, 0, (size_t)(rows * k) * sizeof *out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < sum; d++) {
            const double a = transposed ? of_a(j, d, i) : of_a(j, i, d);
            for (int64_t c = 0; c < k; c++)
                out[i * k + c] += a * in[d * k + c];
        }
}

static void gram(double *t, const double *z, int64_t rows, int64_t k)
{
    memset(t, 0, (size_t)(k * k) * sizeof *t);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t a = 0; a < k; a++)
            for (int64_t b = 0; b < k; b++)
                t[a * k + b] += z[r * k + a] * z[r * k + b];
}

/* out [rows][cols] = z [rows][k] x [k][cols] */
static void times(double *out, const double *z, const double *x, int64_t rows, int64_t k,
                  int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (int64_t d = 0; d < k; d++)
                sum += z[r * k + d] * x[d * cols + c];
            out[r * cols + c] = sum;
        }
}

static void orthonormalise(const galore_job *j, double *out, const double *z, int64_t rows,
                           int64_t k)
{
    gram(j->t, z, rows, k);
    af_galore_orthonormal(j->t, j->w, k);
    times(out, z, j->w, rows, k, k);
}

/* The vectors x [rows][rank] (used up, `back` too) into the state p. */
static void keep_vectors(const galore_job *j, af_tensor *p, double *x, int64_t rows)
{
    const int64_t rank = j->s.rank;
    const bool first = af_ld(j->in.hyper, AF_HYPER_STEP) == 1;
    gram(j->t, x, rows, rank);
    af_lowrank_draw(j->n, 1, j->draw, 0, (rows * rank + 3) / 4, rows * rank);
    for (int64_t i = 0; i < rows * rank; i++)
        if (!j->finite || j->t[i % rank * (rank + 1)] == 0)
            x[i] = (double)j->draw[i];
    orthonormalise(j, j->back, x, rows, rank);
    for (int64_t c = 0; (j->finite || first) && c < rank; c++) {
        double along = 0;
        for (int64_t r = 0; r < rows; r++)
            along += j->back[r * rank + c] * (first ? af_galore_sign(r) : af_ld(p, r * rank + c));
        for (int64_t r = 0; r < rows; r++)
            af_st(p, r * rank + c, along < 0 ? -j->back[r * rank + c] : j->back[r * rank + c]);
    }
}

static void renew(const galore_job *j)
{
    const af_galore_shape *s = &j->s;
    const int64_t k = s->k;
    af_lowrank_draw(j->n, 1, j->draw, 0, (s->n * k + 3) / 4, s->n * k);
    for (int64_t i = 0; i < s->n * k; i++)
        j->z[i] = (double)j->draw[i];
    orthonormalise(j, j->q, j->z, s->n, k);
    for (int i = 0; i < s->steps; i++) {
        times_a(j, j->z, j->q, false);
        orthonormalise(j, j->y, j->z, s->m, k);
        times_a(j, j->z, j->y, true);
        orthonormalise(j, j->q, j->z, s->n, k);
    }
    times_a(j, j->y, j->q, false);
    gram(j->t, j->y, s->m, k);
    af_galore_ritz(j->t, j->w, j->small, j->large, k, s->rank);
    af_tensor *of_n = s->tall ? j->v : j->u, *of_m = s->tall ? j->u : j->v;
    times(j->low, j->q, j->small, s->n, k, s->rank);
    if (of_n)
        keep_vectors(j, of_n, j->low, s->n);
    times(j->low, j->y, j->large, s->m, k, s->rank);
    if (of_m)
        keep_vectors(j, of_m, j->low, s->m);
}

/* L [low][rank] */
static void project(const galore_job *j)
{
    const af_galore_shape *s = &j->s;
    memset(j->low, 0, (size_t)(s->low * s->rank) * sizeof *j->low);
    for (int64_t r = 0; r < s->R; r++)
        for (int64_t a = 0; a < s->rank; a++) {
            double along = 0; /* g[r] V */
            for (int64_t c = 0; s->right && c < s->C; c++)
                along += gradient(j, r, c) * af_ld(j->v, c * s->rank + a);
            if (!s->left)
                j->low[r * s->rank + a] = along;
            for (int64_t b = 0; s->left && s->right && b < s->rank; b++)
                j->low[b * s->rank + a] += af_ld(j->u, r * s->rank + b) * along;
            for (int64_t c = 0; !s->right && c < s->C; c++)
                j->low[c * s->rank + a] += gradient(j, r, c) * af_ld(j->u, r * s->rank + a);
        }
}

/* L becomes D. */
static void step_moments(const galore_job *j)
{
    const double b1 = j->n->attr.optim.beta1, b2 = j->n->attr.optim.beta2;
    for (int64_t i = 0; i < j->s.low * j->s.rank; i++) {
        const double m = b1 * af_ld(j->in.state[0], i) + (1 - b1) * j->low[i];
        const double v = b2 * af_ld(j->in.state[1], i) + (1 - b2) * j->low[i] * j->low[i];
        j->low[i] = m / (sqrt(v) + j->n->attr.optim.eps);
        af_st(j->in.state[0], i, m);
        af_st(j->in.state[1], i, v);
    }
}

/* Element [r][c] of d. */
static double direction(const galore_job *j, int64_t r, int64_t c)
{
    const int64_t rank = j->s.rank;
    double sum = 0;
    for (int64_t a = 0; a < rank; a++) {
        double along = !j->s.left ? j->low[r * rank + a] : 0;
        for (int64_t b = 0; j->s.left && j->s.right && b < rank; b++)
            along += af_ld(j->u, r * rank + b) * j->low[b * rank + a];
        sum += j->s.right ? along * af_ld(j->v, c * rank + a)
                          : j->low[c * rank + a] * af_ld(j->u, r * rank + a);
    }
    return sum;
}

static void apply(const galore_job *j)
{
    const double lr = af_ld(j->in.hyper, AF_HYPER_LR) * j->n->attr.optim.lr_factor;
    const double step = lr * af_ld(j->in.hyper, AF_HYPER_CORRECTION2_SQRT) /
                        af_ld(j->in.hyper, AF_HYPER_CORRECTION1) * j->n->attr.optim.scale;
    const bool bf16 = j->in.params->dtype == AF_DTYPE_BF16;
    for (int64_t i = 0; i < j->s.R * j->s.C; i++) {
        const double old = bf16 ? af_bf16_weight(j->n, i) : af_ld(j->in.params, i);
        const double w = old - step * direction(j, i / j->s.C, i % j->s.C);
        const double x = w - lr * j->n->attr.optim.weight_decay * w;
        if (bf16)
            af_bf16_weight_set(j->n, i, x);
        else
            af_st(j->in.params, i, x);
    }
}

static void galore_run(const af_node *n, af_cpu *cpu)
{
    galore_job j = {.n = n, .in = af_optim_in(n), .s = af_galore_shape_of(n)};
    j.clip = af_ld(j.in.stats, AF_STATS_CLIP);
    j.finite = af_ld(j.in.stats, AF_STATS_FINITE) == 1;
    j.v = j.s.right ? j.in.state[2] : NULL;
    j.u = j.s.left ? j.in.state[2 + j.s.right] : NULL;
    lay_out(&j, cpu->work);
    if (af_ld(j.in.hyper, AF_HYPER_B) == 1)
        renew(&j);
    if (j.finite) {
        project(&j);
        step_moments(&j);
        apply(&j);
    }
    memset(j.in.grads->data, 0, af_tensor_bytes(j.in.grads));
}

static uint64_t galore_work(const af_node *n, int threads)
{
    galore_job j = {.s = af_galore_shape_of(n)};
    (void)threads;
    return lay_out(&j, NULL);
}

const af_cpu_op af_cpu_galore = {galore_run, galore_work};
