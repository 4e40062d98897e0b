/* muon_cpu.c - MUON of optimizer.c: the twin in double, and the fast version in f32 GEMMs.
 *
 * With g = gradient * clip, of one matrix [R][C], k = min(R, C), mu = 0.95:
 *   m = mu m + g;  X = g + mu m (Nesterov);  X /= |X| + 1e-7 (Frobenius)
 *   five times:  A = X X^T (or X^T X where R > C);  B = b A + c A A;  X = a X + B X (or X B)
 *   w = w - lr wd w - lr 0.2 sqrt(max(R, C)) X
 * (a, b, c) = (3.4445, -4.7750, 2.0315). The tools this comes from iterate in bf16; here runs in
 * bf16 on a GPU do (muon_cuda.c), f32 elsewhere. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

typedef struct muon_job {
    const af_node *n;
    af_optim_inputs in;
    int64_t R, C, k;
} muon_job;

static muon_job job_of(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    const int64_t R = in.params->dim[0], C = in.params->dim[1];
    return (muon_job){.n = n, .in = in, .R = R, .C = C, .k = AF_MIN(R, C)};
}

/* Values of X, of its successor, of A and of B. */
static uint64_t values(const af_node *n)
{
    const muon_job j = job_of(n);
    return 2 * (uint64_t)(j.R * j.C) + 2 * (uint64_t)(j.k * j.k);
}

static double rate(const muon_job *j)
{
    return af_ld(j->in.hyper, AF_HYPER_LR) * j->n->attr.optim.lr_factor;
}

/* The step along X, element i; the gradient is spent. */
static void apply(const muon_job *j, int64_t i, double x)
{
    const double lr = rate(j), w = af_ld(j->in.params, i);
    const double size = AF_MUON_RMS * sqrt((double)AF_MAX(j->R, j->C));
    af_st(j->in.params, i, w - lr * j->n->attr.optim.weight_decay * w - lr * size * x);
}

/* The new momentum and the direction to be orthogonalised, element i. */
static double direction(const muon_job *j, int64_t i)
{
    const double mu = j->n->attr.optim.momentum;
    const double g = af_ld(j->in.grads, i) * af_ld(j->in.stats, AF_STATS_CLIP);
    af_st(j->in.state[0], i, mu * af_ld(j->in.state[0], i) + g);
    return g + mu * af_ld(j->in.state[0], i);
}

static bool starts(const muon_job *j)
{
    if (af_ld(j->in.stats, AF_STATS_FINITE) == 1)
        return true;
    for (int64_t i = 0; i < j->R * j->C; i++)
        af_st(j->in.grads, i, 0);
    return false;
}

/* ---- twin ---- */

/* c [M][N] = old c * beta + alpha a b; x[i][k] of a is at i * row + k * step. */
static void multiply(double *c, const double *a, int64_t row, int64_t step, const double *b,
                     int64_t b_row, int64_t b_step, const int64_t dim[3], double alpha, double beta)
{
    for (int64_t i = 0; i < dim[0]; i++)
        for (int64_t n = 0; n < dim[1]; n++) {
            double sum = 0;
            for (int64_t k = 0; k < dim[2]; k++)
                sum += a[i * row + k * step] * b[k * b_row + n * b_step];
            c[i * dim[1] + n] = beta * c[i * dim[1] + n] + alpha * sum;
        }
}

static void iterate_f64(const muon_job *j, double *x, double *y, double *a, double *b)
{
    const int64_t R = j->R, C = j->C, k = j->k, square[3] = {k, k, k}, whole[3] = {R, C, k};
    const bool tall = R > C;
    const int64_t gram[3] = {k, k, tall ? R : C};
    memset(a, 0, (size_t)(k * k) * sizeof *a);
    multiply(a, x, tall ? 1 : C, tall ? C : 1, x, tall ? C : 1, tall ? 1 : C, gram, 1, 0);
    memcpy(b, a, (size_t)(k * k) * sizeof *b);
    multiply(b, a, k, 1, a, k, 1, square, AF_MUON_C, AF_MUON_B);
    memcpy(y, x, (size_t)(R * C) * sizeof *y);
    if (tall)
        multiply(y, x, C, 1, b, k, 1, whole, 1, AF_MUON_A);
    else
        multiply(y, b, k, 1, x, C, 1, whole, 1, AF_MUON_A);
}

static void muon_run(const af_node *n, af_cpu *cpu)
{
    const muon_job j = job_of(n);
    const int64_t count = j.R * j.C;
    double *x = cpu->work, *y = x + count, *a = y + count, *b = a + j.k * j.k, norm = 0;
    if (!starts(&j))
        return;
    for (int64_t i = 0; i < count; i++) {
        x[i] = direction(&j, i);
        norm += x[i] * x[i];
    }
    for (int64_t i = 0; i < count; i++)
        x[i] /= sqrt(norm) + AF_MUON_EPS;
    for (int s = 0; s < AF_MUON_STEPS; s++) {
        iterate_f64(&j, x, y, a, b);
        double *t = x;
        x = y, y = t;
    }
    for (int64_t i = 0; i < count; i++) {
        apply(&j, i, x[i]);
        af_st(j.in.grads, i, 0);
    }
}

static uint64_t muon_work(const af_node *n, int threads)
{
    (void)threads;
    return values(n) * sizeof(double);
}

const af_cpu_op af_cpu_muon = {muon_run, muon_work};

/* ---- fast ---- */

typedef struct muon_fast {
    const muon_job *j;
    af_cpu *cpu;
    void *gemm_work;
} muon_fast;

static af_operand matrix(const float *x, int64_t ld, bool trans)
{
    return (af_operand){
        .data = (void *)(uintptr_t)x, .ld = ld, .dtype = AF_DTYPE_F32, .trans = trans};
}

/* c [M][N] += alpha * a b */
static void add_product(const muon_fast *f, float *c, int64_t M, int64_t N, int64_t K, af_operand a,
                        af_operand b, float alpha, bool add)
{
    const af_gemm g = {.M = M,
                       .N = N,
                       .K = K,
                       .a = a,
                       .b = b,
                       .c = c,
                       .ldc = N,
                       .c_dtype = AF_DTYPE_F32,
                       .alpha = alpha,
                       .add = add,
                       .exact = true};
    af_fast_get()->gemm(&g, f->cpu->pool, f->gemm_work);
}

static void scaled(float *to, const float *from, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i] * by;
}

static void iterate_f32(const muon_fast *f, float *x, float *y, float *a, float *b)
{
    const int64_t R = f->j->R, C = f->j->C, k = f->j->k;
    const bool tall = R > C;
    add_product(f, a, k, k, tall ? R : C, matrix(x, C, tall), matrix(x, C, !tall), 1, false);
    scaled(b, a, k * k, (float)AF_MUON_B);
    add_product(f, b, k, k, k, matrix(a, k, false), matrix(a, k, false), (float)AF_MUON_C, true);
    scaled(y, x, R * C, (float)AF_MUON_A);
    if (tall)
        add_product(f, y, R, C, k, matrix(x, C, false), matrix(b, k, false), 1, true);
    else
        add_product(f, y, R, C, k, matrix(b, k, false), matrix(x, C, false), 1, true);
}

static uint64_t fast_bytes(const af_node *n)
{
    return AF_ALIGN_UP(values(n) * sizeof(float), (uint64_t)64);
}

static void muon_fast_run(const af_node *n, af_cpu *cpu)
{
    const muon_job j = job_of(n);
    const int64_t count = j.R * j.C;
    const muon_fast f = {&j, cpu, (uint8_t *)cpu->work + fast_bytes(n)};
    float *x = cpu->work, *y = x + count, *a = y + count, *b = a + j.k * j.k;
    double norm = 0;
    if (!starts(&j))
        return;
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)direction(&j, i);
        norm += (double)x[i] * x[i];
    }
    scaled(x, x, count, (float)(1 / (sqrt(norm) + AF_MUON_EPS)));
    for (int s = 0; s < AF_MUON_STEPS; s++) {
        iterate_f32(&f, x, y, a, b);
        float *t = x;
        x = y, y = t;
    }
    for (int64_t i = 0; i < count; i++)
        apply(&j, i, x[i]);
    memset(j.in.grads->data, 0, (size_t)count * sizeof(float));
}

static uint64_t muon_fast_work(const af_node *n, int threads)
{
    return fast_bytes(n) + af_fast_get()->gemm_work(threads);
}

static const af_cpu_op fast_op = {muon_fast_run, muon_fast_work};

const af_cpu_op *af_muon_fast(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    return in.params->dtype == AF_DTYPE_F32 && in.grads->dtype == AF_DTYPE_F32 ? &fast_op : NULL;
}
