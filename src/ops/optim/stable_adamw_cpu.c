/* stable_adamw_cpu.c - STABLE_ADAMW of optimizer.c: the twin in double, and the fast version in
 * f32.
 *
 * With g = gradient * clip and the shares a, b of the new values in the moments (step_numbers.c),
 * which need no correction:
 *   m = (1-a) m + a g;  v = (1-b) v + b g^2
 *   rms = sqrt(mean of g^2 / max(v, eps^2, LEAST)) over the matrix;  lr = lr / max(1, rms)
 *   w -= lr wd w;  w -= lr m / (sqrt(v) + eps)
 * Sums are over fixed pieces in a fixed order: results do not depend on the threads. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <float.h>
#include <math.h>

enum { PIECE = AF_NORM_PIECE, RUN = 512 };

/* The square of a tiny eps is 0 in f32, and 0 / 0 where a value never has a gradient. */
static const float LEAST = FLT_MIN;

typedef struct stable_job {
    af_optim_inputs in;
    af_tensor *m, *v;
    double *sum; /* of each piece: squares of g over v */
    int64_t count;
    double lr, decay, clip, eps, a, b;
    bool f32; /* computed and stored in f32, as on a GPU */
} stable_job;

static double twin_moments(const stable_job *j, int64_t from, int64_t to)
{
    double sum = 0;
    for (int64_t i = from; i < to; i++) {
        const double g = af_ld(j->in.grads, i) * j->clip;
        const double v = (1 - j->b) * af_ld(j->v, i) + j->b * g * g;
        af_st(j->m, i, (1 - j->a) * af_ld(j->m, i) + j->a * g);
        af_st(j->v, i, v);
        sum += g * g / fmax(v, fmax(j->eps * j->eps, (double)LEAST));
    }
    return sum;
}

/* Short runs in f32, added up in double. */
static double fast_moments(const stable_job *j, int64_t from, int64_t to)
{
    const float clip = (float)j->clip, a = (float)j->a, old1 = (float)(1 - j->a), b = (float)j->b,
                old2 = (float)(1 - j->b), least = fmaxf((float)(j->eps * j->eps), LEAST);
    double sum = 0;
    for (int64_t at = from; at < to; at += RUN) {
        const int64_t n = AF_MIN((int64_t)RUN, to - at);
        const float *restrict g = (const float *)j->in.grads->data + at;
        float *restrict m = (float *)j->m->data + at;
        float *restrict v = (float *)j->v->data + at;
        float part[RUN];
        for (int64_t i = 0; i < n; i++) {
            const float d = g[i] * clip;
            m[i] = old1 * m[i] + a * d;
            v[i] = old2 * v[i] + b * d * d;
            part[i] = d * d / fmaxf(v[i], least);
        }
        for (int64_t i = 0; i < n; i++)
            sum += (double)part[i];
    }
    return sum;
}

static void moment_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const stable_job *j = arg;
    for (int64_t p = from; p < to; p++)
        j->sum[p] =
            (j->f32 ? fast_moments : twin_moments)(j, p * PIECE, AF_MIN((p + 1) * PIECE, j->count));
}

static void apply_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const stable_job *j = arg;
    const int64_t first = from * PIECE, end = AF_MIN(to * PIECE, j->count);
    const double keep = 1 - j->lr * j->decay;
    for (int64_t i = first; i < end && !j->f32; i++) {
        const double step = j->lr * af_ld(j->m, i) / (sqrt(af_ld(j->v, i)) + j->eps);
        af_st(j->in.params, i, keep * af_ld(j->in.params, i) - step);
        af_st(j->in.grads, i, 0);
    }
    if (!j->f32)
        return;
    float *restrict w = j->in.params->data, *restrict g = j->in.grads->data;
    const float *restrict m = j->m->data, *restrict v = j->v->data;
    const float kept = (float)keep, lr = (float)j->lr, eps = (float)j->eps;
    for (int64_t i = first; i < end; i++) {
        w[i] = kept * w[i] - lr * m[i] / (sqrtf(v[i]) + eps);
        g[i] = 0.0f;
    }
}

static int64_t pieces_of(const af_node *n) { return (af_count(n->in[0]) + PIECE - 1) / PIECE; }

static uint64_t work(const af_node *n, int threads)
{
    (void)threads;
    return (uint64_t)pieces_of(n) * sizeof(double);
}

static void run(const af_node *n, af_cpu *cpu, bool f32)
{
    const af_optim_inputs in = af_optim_in(n);
    const int64_t pieces = pieces_of(n);
    stable_job j = {.in = in,
                    .m = in.state[0],
                    .v = in.state[1],
                    .sum = cpu->work,
                    .count = af_count(in.params),
                    .lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor,
                    .decay = n->attr.optim.weight_decay,
                    .clip = af_ld(in.stats, AF_STATS_CLIP),
                    .eps = n->attr.optim.eps,
                    .a = af_ld(in.hyper, AF_HYPER_A),
                    .b = af_ld(in.hyper, AF_HYPER_B),
                    .f32 = f32};
    double sum = 0;
    if (af_ld(in.stats, AF_STATS_FINITE) != 1) { /* no step, and no gradient either */
        memset(in.grads->data, 0, af_tensor_bytes(in.grads));
        return;
    }
    af_pool_run(cpu->pool, pieces, moment_pieces, &j);
    for (int64_t p = 0; p < pieces; p++)
        sum += j.sum[p];
    j.lr /= fmax(1, sqrt(sum / (double)AF_MAX(j.count, INT64_C(1))));
    af_pool_run(cpu->pool, pieces, apply_pieces, &j);
}

static void twin_run(const af_node *n, af_cpu *cpu) { run(n, cpu, false); }
static void fast_run(const af_node *n, af_cpu *cpu) { run(n, cpu, true); }

const af_cpu_op af_cpu_stable_adamw = {twin_run, work};

const af_cpu_op *af_stable_adamw_fast(const af_node *n)
{
    static const af_cpu_op fast = {fast_run, work};
    return n->in[0]->dtype == AF_DTYPE_F32 ? &fast : NULL;
}
