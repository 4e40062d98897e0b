/* galore_fast.c - GaLore on f32 and bf16 matrices; the formula is in galore_cpu.c.
 *
 * Products with the gradient are GEMMs. Sums of thin matrices are in double, each in its order:
 * results do not depend on the threads. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/bf16_weights.h"
#include "ops/optim/lowrank/galore.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { COLS = 64, MOMENTS = 4096 }; /* columns at a time; elements of one piece of work */

typedef struct galore_fast_job {
    const af_node *n;
    af_optim_inputs in;
    af_galore_shape s;
    af_cpu *cpu;
    float clip, step, keep, *v, *u; /* v, u: or NULL */
    bool finite;
    float *low, *half;             /* [low][rank]; full: [R][rank] */
    float *y, *z, *q;              /* [m][k], [m][k], [n][k] */
    double *t, *w, *small, *large; /* [k][k] */
    void *gemm;
} galore_fast_job;

/* The parts of the workspace; `at` = NULL counts. */
static uint64_t lay_out(galore_fast_job *j, uint8_t *at)
{
    const af_galore_shape *s = &j->s;
    const int64_t square = s->k * s->k * (int64_t)sizeof(double), of_m = s->m * s->k * 4;
    const int64_t bytes[] = {square,
                             square,
                             square,
                             square,
                             of_m,
                             of_m,
                             s->n * s->k * 4,
                             s->low * s->rank * 4,
                             s->right && s->left ? s->R * s->rank * 4 : 0};
    void *part[AF_LEN(bytes)];
    uint64_t sum = 0;
    for (size_t i = 0; i < AF_LEN(bytes); i++) {
        part[i] = at ? at + sum : NULL;
        sum += AF_ALIGN_UP((uint64_t)bytes[i], (uint64_t)64);
    }
    j->t = part[0];
    j->w = part[1];
    j->small = part[2];
    j->large = part[3];
    j->y = part[4];
    j->z = part[5];
    j->q = part[6];
    j->low = part[7];
    j->half = part[8];
    j->gemm = at ? at + sum : NULL;
    return sum;
}

/* c [M][N] = a b of f32 matrices with rows of `lda`, `ldb` values, transposed or as they lie. */
static void multiply(const galore_fast_job *j, float *c, int64_t M, int64_t N, int64_t K,
                     const float *a, int64_t lda, bool ta, const float *b, int64_t ldb, bool tb)
{
    const af_gemm g = {.M = M,
                       .N = N,
                       .K = K,
                       .a = {.data = a, .ld = lda, .dtype = AF_DTYPE_F32, .trans = ta},
                       .b = {.data = b, .ld = ldb, .dtype = AF_DTYPE_F32, .trans = tb},
                       .c = c,
                       .ldc = N,
                       .c_dtype = AF_DTYPE_F32,
                       .alpha = 1,
                       .exact = true};
    af_fast_get()->gemm(&g, j->cpu->pool, j->gemm);
}

/* out = A in [n][k], or A^T in [m][k], with A = g or g^T. */
static void times_a(const galore_fast_job *j, float *out, const float *in, bool transposed)
{
    const af_galore_shape *s = &j->s;
    multiply(j, out, transposed ? s->n : s->m, s->k, transposed ? s->m : s->n, j->in.grads->data,
             s->C, transposed == s->tall, in, s->k, false);
}

/* ---- thin matrices z [rows][k] ---- */

typedef struct thin_job {
    const float *z;
    float *out;
    double *t;
    const double *x;
    int64_t rows, k, cols;
} thin_job;

/* Rows of t = z^T z, from the diagonal on. */
static void gram_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const thin_job *j = arg;
    memset(j->t + from * j->k, 0, (size_t)((to - from) * j->k) * sizeof(double));
    for (int64_t r = 0; r < j->rows; r++) {
        const float *restrict z = j->z + r * j->k;
        for (int64_t a = from; a < to; a++) {
            double *restrict t = j->t + a * j->k;
            const double x = (double)z[a];
            for (int64_t b = a; b < j->k; b++)
                t[b] += x * (double)z[b];
        }
    }
}

static void gram(const galore_fast_job *j, const float *z, int64_t rows, int64_t k)
{
    thin_job g = {.z = z, .t = j->t, .rows = rows, .k = k};
    af_pool_run(j->cpu->pool, k, gram_rows, &g);
    for (int64_t a = 0; a < k; a++)
        for (int64_t b = 0; b < a; b++)
            j->t[a * k + b] = j->t[b * k + a];
}

/* Rows of out [rows][cols] = z x */
static void times_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const thin_job *j = arg;
    for (int64_t r = from; r < to; r++)
        for (int64_t first = 0; first < j->cols; first += COLS) {
            const int64_t some = AF_MIN(j->cols - first, (int64_t)COLS);
            double sum[COLS] = {0};
            for (int64_t c = 0; c < j->k; c++) {
                const double z = (double)j->z[r * j->k + c];
                const double *restrict x = j->x + c * j->cols + first;
                for (int64_t i = 0; i < some; i++)
                    sum[i] += z * x[i];
            }
            for (int64_t i = 0; i < some; i++)
                j->out[r * j->cols + first + i] = (float)sum[i];
        }
}

static void times(const galore_fast_job *j, float *out, const float *z, const double *x,
                  int64_t rows, int64_t k, int64_t cols)
{
    thin_job p = {.z = z, .out = out, .x = x, .rows = rows, .k = k, .cols = cols};
    af_pool_run(j->cpu->pool, rows, times_rows, &p);
}

static void orthonormalise(const galore_fast_job *j, float *out, const float *z, int64_t rows,
                           int64_t k)
{
    gram(j, z, rows, k);
    af_galore_orthonormal(j->t, j->w, k);
    times(j, out, z, j->w, rows, k, k);
}

/* ---- the vectors ---- */

/* x [rows][rank] into the state p; both are used up, as is `other`. */
static void keep_vectors(const galore_fast_job *j, float *p, float *x, float *other, int64_t rows)
{
    const int64_t rank = j->s.rank, count = rows * rank;
    const bool first = af_ld(j->in.hyper, AF_HYPER_STEP) == 1;
    gram(j, x, rows, rank);
    af_lowrank_draw_all(j->n, j->cpu->pool, 1, other, count);
    for (int64_t i = 0; i < count; i++)
        if (!j->finite || j->t[i % rank * (rank + 1)] == 0)
            x[i] = other[i];
    orthonormalise(j, other, x, rows, rank);
    for (int64_t c = 0; (j->finite || first) && c < rank; c++) {
        double along = 0;
        for (int64_t r = 0; r < rows; r++)
            along +=
                (double)other[r * rank + c] * (first ? af_galore_sign(r) : (double)p[r * rank + c]);
        for (int64_t r = 0; r < rows; r++)
            p[r * rank + c] = along < 0 ? -other[r * rank + c] : other[r * rank + c];
    }
}

static void renew(const galore_fast_job *j)
{
    const af_galore_shape *s = &j->s;
    const int64_t k = s->k;
    af_lowrank_draw_all(j->n, j->cpu->pool, 1, j->z, s->n * k);
    orthonormalise(j, j->q, j->z, s->n, k);
    for (int i = 0; i < s->steps; i++) {
        times_a(j, j->z, j->q, false);
        orthonormalise(j, j->y, j->z, s->m, k);
        times_a(j, j->z, j->y, true);
        orthonormalise(j, j->q, j->z, s->n, k);
    }
    times_a(j, j->y, j->q, false);
    gram(j, j->y, s->m, k);
    af_galore_ritz(j->t, j->w, j->small, j->large, k, s->rank);
    float *of_n = s->tall ? j->v : j->u, *of_m = s->tall ? j->u : j->v;
    if (of_m) { /* y becomes these, and is free then */
        times(j, j->z, j->y, j->large, s->m, k, s->rank);
        keep_vectors(j, of_m, j->z, j->y, s->m);
    }
    if (of_n) {
        times(j, j->z, j->q, j->small, s->n, k, s->rank);
        keep_vectors(j, of_n, j->z, j->y, s->n);
    }
}

/* ---- a step ---- */

static void project(const galore_fast_job *j)
{
    const af_galore_shape *s = &j->s;
    const float *g = j->in.grads->data;
    if (!s->left) {
        multiply(j, j->low, s->R, s->rank, s->C, g, s->C, false, j->v, s->rank, false);
    } else if (!s->right) {
        multiply(j, j->low, s->C, s->rank, s->R, g, s->C, true, j->u, s->rank, false);
    } else {
        multiply(j, j->half, s->R, s->rank, s->C, g, s->C, false, j->v, s->rank, false);
        multiply(j, j->low, s->rank, s->rank, s->R, j->u, s->rank, true, j->half, s->rank, false);
    }
}

/* The direction takes the gradient's place. */
static void project_back(const galore_fast_job *j)
{
    const af_galore_shape *s = &j->s;
    float *d = j->in.grads->data;
    if (!s->left) {
        multiply(j, d, s->R, s->C, s->rank, j->low, s->rank, false, j->v, s->rank, true);
    } else if (!s->right) {
        multiply(j, d, s->R, s->C, s->rank, j->u, s->rank, false, j->low, s->rank, true);
    } else {
        multiply(j, j->half, s->R, s->rank, s->rank, j->u, s->rank, false, j->low, s->rank, false);
        multiply(j, d, s->R, s->C, s->rank, j->half, s->rank, false, j->v, s->rank, true);
    }
}

/* L becomes D. */
static void step_moments(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const galore_fast_job *j = arg;
    const float b1 = (float)j->n->attr.optim.beta1, new1 = (float)(1 - j->n->attr.optim.beta1),
                b2 = (float)j->n->attr.optim.beta2, new2 = (float)(1 - j->n->attr.optim.beta2),
                eps = (float)j->n->attr.optim.eps;
    float *restrict m = j->in.state[0]->data, *restrict v = j->in.state[1]->data;
    float *restrict low = j->low;
    const int64_t end = AF_MIN(to * MOMENTS, j->s.low * j->s.rank);
    for (int64_t i = from * MOMENTS; i < end; i++) {
        const float l = low[i] * j->clip;
        m[i] = b1 * m[i] + new1 * l;
        v[i] = b2 * v[i] + new2 * l * l;
        low[i] = m[i] / (sqrtf(v[i]) + eps);
    }
}

static void apply_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const galore_fast_job *j = arg;
    float *restrict w = j->in.params->data, *restrict d = j->in.grads->data;
    for (int64_t i = from * j->s.C; i < to * j->s.C; i++) {
        w[i] = j->keep * (w[i] - j->step * d[i]);
        d[i] = 0.0f;
    }
}

/* Pieces of AF_BF16_RUN parameters in bf16. Those of a matrix inside a parameter may not begin
 * where a word of random numbers does: one by one. */
static void apply_bf16(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const galore_fast_job *j = arg;
    float *restrict d = j->in.grads->data, x[AF_BF16_RUN];
    const bool words = j->n->attr.optim.from % 8 == 0;
    for (int64_t p = from; p < to; p++) {
        const int64_t at = p * AF_BF16_RUN, count = AF_MIN(j->s.R * j->s.C - at, AF_BF16_RUN);
        af_bf16_weights_load(j->n, at, count, x);
        for (int64_t k = 0; k < count; k++) {
            x[k] = j->keep * (x[k] - j->step * d[at + k]);
            d[at + k] = 0.0f;
        }
        if (words)
            af_bf16_weights_store(j->n, at, count, x);
        for (int64_t k = 0; k < count && !words; k++)
            af_bf16_weight_set(j->n, at + k, (double)x[k]);
    }
}

static void galore_run(const af_node *n, af_cpu *cpu)
{
    const af_optim_inputs in = af_optim_in(n);
    galore_fast_job j = {.n = n, .in = in, .s = af_galore_shape_of(n), .cpu = cpu};
    const double lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor;
    j.clip = (float)af_ld(in.stats, AF_STATS_CLIP);
    j.finite = af_ld(in.stats, AF_STATS_FINITE) == 1;
    j.v = j.s.right ? in.state[2]->data : NULL;
    j.u = j.s.left ? in.state[2 + j.s.right]->data : NULL;
    j.keep = (float)(1 - lr * n->attr.optim.weight_decay);
    j.step = (float)(lr * af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT) /
                     af_ld(in.hyper, AF_HYPER_CORRECTION1) * n->attr.optim.scale);
    lay_out(&j, cpu->work);
    if (af_ld(in.hyper, AF_HYPER_B) == 1)
        renew(&j);
    if (!j.finite) { /* no step, and no gradient either */
        memset(in.grads->data, 0, af_tensor_bytes(in.grads));
        return;
    }
    project(&j);
    af_pool_run(cpu->pool, (j.s.low * j.s.rank + MOMENTS - 1) / MOMENTS, step_moments, &j);
    project_back(&j);
    if (in.params->dtype == AF_DTYPE_BF16)
        af_pool_run(cpu->pool, (j.s.R * j.s.C + AF_BF16_RUN - 1) / AF_BF16_RUN, apply_bf16, &j);
    else
        af_pool_run(cpu->pool, j.s.R, apply_rows, &j);
}

static uint64_t galore_work(const af_node *n, int threads)
{
    galore_fast_job j = {.s = af_galore_shape_of(n)};
    return lay_out(&j, NULL) + af_fast_get()->gemm_work(threads);
}

const af_cpu_op *af_galore_fast(const af_node *n)
{
    static const af_cpu_op fast = {galore_run, galore_work};
    const af_optim_inputs in = af_optim_in(n);
    const bool known = in.params->dtype == AF_DTYPE_F32 || in.params->dtype == AF_DTYPE_BF16;
    return known && in.grads->dtype == AF_DTYPE_F32 ? &fast : NULL;
}
