/* apollo_fast.c - APOLLO on f32 matrices; the formula is in apollo_cpu.c.
 *
 * The projected gradient is one GEMM. Sums are those of a channel or of a row, added up in their
 * order: results do not depend on the threads. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/lowrank/apollo.h"
#include "ops/optim/optimizer.h"

#include <math.h>

typedef struct apollo_fast_job {
    const af_node *n;
    af_optim_inputs in;
    af_apollo_shape s;
    float clip, step, keep;
    double *of_d, *of_l, *of_u; /* sums of squares: of channels, of channels, of rows */
    float *scale;               /* of each channel */
    float *projection, *low;    /* [width][rank], [channels][rank] */
    void *gemm;
} apollo_fast_job;

/* The parts of the workspace; `at` = NULL counts. */
static uint64_t lay_out(apollo_fast_job *j, uint8_t *at)
{
    const af_apollo_shape *s = &j->s;
    const uint64_t bytes[] = {(uint64_t)s->channels * sizeof(double),
                              (uint64_t)s->channels * sizeof(double),
                              (uint64_t)s->R * sizeof(double),
                              (uint64_t)s->channels * sizeof(float),
                              (uint64_t)(s->width * s->rank) * sizeof(float),
                              (uint64_t)(s->channels * s->rank) * sizeof(float)};
    void *part[AF_LEN(bytes)];
    uint64_t sum = 0;
    for (size_t i = 0; i < AF_LEN(bytes); i++) {
        part[i] = at ? at + sum : NULL;
        sum += AF_ALIGN_UP(bytes[i], (uint64_t)64);
    }
    j->of_d = part[0];
    j->of_l = part[1];
    j->of_u = part[2];
    j->scale = part[3];
    j->projection = part[4];
    j->low = part[5];
    j->gemm = at ? at + sum : NULL;
    return sum;
}

static void project(const apollo_fast_job *j, af_cpu *cpu)
{
    const af_apollo_shape *s = &j->s;
    af_lowrank_draw_all(j->n, cpu->pool, (float)(1 / sqrt((double)s->rank)), j->projection,
                        s->width * s->rank);
    const af_gemm g = {
        .M = s->channels,
        .N = s->rank,
        .K = s->width,
        .a = {.data = j->in.grads->data, .ld = s->C, .dtype = AF_DTYPE_F32, .trans = !s->tall},
        .b = {.data = j->projection, .ld = s->rank, .dtype = AF_DTYPE_F32},
        .c = j->low,
        .ldc = s->rank,
        .c_dtype = AF_DTYPE_F32,
        .alpha = 1,
        .exact = true};
    af_fast_get()->gemm(&g, cpu->pool, j->gemm);
}

static void moments_of_channels(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const apollo_fast_job *j = arg;
    const float b1 = (float)j->n->attr.optim.beta1, new1 = (float)(1 - j->n->attr.optim.beta1),
                b2 = (float)j->n->attr.optim.beta2, new2 = (float)(1 - j->n->attr.optim.beta2),
                eps = (float)j->n->attr.optim.eps;
    const int64_t rank = j->s.rank;
    for (int64_t c = from; c < to; c++) {
        const float *restrict low = j->low + c * rank;
        float *restrict m = (float *)j->in.state[0]->data + c * rank;
        float *restrict v = (float *)j->in.state[1]->data + c * rank;
        double of_d = 0, of_l = 0;
        for (int64_t q = 0; q < rank; q++) {
            const float l = low[q] * j->clip;
            m[q] = b1 * m[q] + new1 * l;
            v[q] = b2 * v[q] + new2 * l * l;
            const float d = m[q] / (sqrtf(v[q]) + eps);
            of_d += (double)d * d;
            of_l += (double)l * l;
        }
        j->of_d[c] = of_d;
        j->of_l[c] = of_l;
        j->scale[c] = (float)(sqrt(of_d) / (sqrt(of_l) + AF_APOLLO_EPS));
    }
}

static void one_scale(const apollo_fast_job *j)
{
    double all_d = 0, all_l = 0;
    for (int64_t c = 0; c < j->s.channels; c++) {
        all_d += j->of_d[c];
        all_l += j->of_l[c];
    }
    for (int64_t c = 0; c < j->s.channels; c++)
        j->scale[c] = (float)(sqrt(all_d) / (sqrt(all_l) + AF_APOLLO_EPS));
}

static void squares_of_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const apollo_fast_job *j = arg;
    for (int64_t r = from; r < to; r++) {
        const float *restrict g = (const float *)j->in.grads->data + r * j->s.C;
        const float *restrict s = j->s.tall ? j->scale + r : j->scale;
        const int64_t step = j->s.tall ? 0 : 1;
        double sum = 0;
        for (int64_t c = 0; c < j->s.C; c++) {
            const float u = g[c] * j->clip * s[c * step];
            sum += (double)u * u;
        }
        j->of_u[r] = sum;
    }
}

static float limited(const apollo_fast_job *j)
{
    const double root = sqrt(j->n->attr.optim.scale);
    float *kept = j->in.state[2]->data;
    const double last = (double)kept[0];
    double sum = 0;
    for (int64_t r = 0; r < j->s.R; r++)
        sum += j->of_u[r];
    const double z = sqrt(sum) * (j->n->attr.optim.scale_front ? root : 1);
    const double limit =
        last > 0 ? fmax(z / (last + AF_APOLLO_EPS), AF_APOLLO_GROWTH) / AF_APOLLO_GROWTH : 1;
    kept[0] = (float)(z / limit);
    return (float)(root / limit);
}

static void apply_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const apollo_fast_job *j = arg;
    for (int64_t r = from; r < to; r++) {
        float *restrict w = (float *)j->in.params->data + r * j->s.C;
        float *restrict g = (float *)j->in.grads->data + r * j->s.C;
        const float *restrict s = j->s.tall ? j->scale + r : j->scale;
        const int64_t step = j->s.tall ? 0 : 1;
        for (int64_t c = 0; c < j->s.C; c++) {
            w[c] = j->keep * (w[c] - j->step * s[c * step] * (g[c] * j->clip));
            g[c] = 0.0f;
        }
    }
}

static void apollo_run(const af_node *n, af_cpu *cpu)
{
    const af_optim_inputs in = af_optim_in(n);
    apollo_fast_job j = {.n = n,
                         .in = in,
                         .s = af_apollo_shape_of(n),
                         .clip = (float)af_ld(in.stats, AF_STATS_CLIP)};
    const double lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor;
    if (af_ld(in.stats, AF_STATS_FINITE) != 1) { /* no step, and no gradient either */
        memset(in.grads->data, 0, af_tensor_bytes(in.grads));
        return;
    }
    lay_out(&j, cpu->work);
    project(&j, cpu);
    af_pool_run(cpu->pool, j.s.channels, moments_of_channels, &j);
    if (n->attr.optim.per_tensor)
        one_scale(&j);
    af_pool_run(cpu->pool, j.s.R, squares_of_rows, &j);
    j.keep = (float)(1 - lr * n->attr.optim.weight_decay);
    j.step = (float)(lr * af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT) /
                     af_ld(in.hyper, AF_HYPER_CORRECTION1)) *
             limited(&j);
    af_pool_run(cpu->pool, j.s.R, apply_rows, &j);
}

static uint64_t apollo_work(const af_node *n, int threads)
{
    apollo_fast_job j = {.s = af_apollo_shape_of(n)};
    return lay_out(&j, NULL) + af_fast_get()->gemm_work(threads);
}

const af_cpu_op *af_apollo_fast(const af_node *n)
{
    static const af_cpu_op fast = {apollo_run, apollo_work};
    const af_optim_inputs in = af_optim_in(n);
    return in.params->dtype == AF_DTYPE_F32 && in.grads->dtype == AF_DTYPE_F32 ? &fast : NULL;
}
