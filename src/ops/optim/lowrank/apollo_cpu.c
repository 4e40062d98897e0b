/* apollo_cpu.c - the twin of APOLLO (Zhu et al., 2024), as the package apollo-torch has it.
 *
 * Of one matrix [R][C], with g = gradient * clip, P [min(R, C)][rank] of normal numbers of variance
 * 1 / rank, drawn again every `gap` steps from seed, matrix and draw (so that no state keeps it):
 *   L = g P, one row for each row of g (R >= C), or L = g^T P, one for each column
 *   m = b1 m + (1-b1) L;  v = b2 v + (1-b2) L^2;  D = m / (sqrt(v) + eps)
 *   s = |D| / (|L| + 1e-8) of each row of L, or of all of L
 *   u = g s, rows or columns times their s;  z = |u| (front: sqrt(scale) |u|)
 *   limit = max(z / (z_last + 1e-8), 1.01) / 1.01 after the first update;  z_last = z / limit
 *   w -= lr sqrt(1 - b2^t) / (1 - b1^t) u sqrt(scale) / limit;  w -= lr wd w
 * As in the package eps is not corrected, and decay comes last. A z_last of 0 (no gradient so far)
 * limits nothing; there it stops the matrix for good. */
#include "ops/optim/lowrank/apollo.h"

#include "ops/common/twin.h"
#include "ops/optim/optimizer.h"

#include <math.h>

typedef struct apollo_job {
    const af_node *n;
    af_optim_inputs in;
    af_apollo_shape s;
    double clip, *scale; /* of each channel */
    float *projection;
} apollo_job;

/* Element d of channel c. */
static int64_t place(const apollo_job *j, int64_t c, int64_t d)
{
    return j->s.tall ? c * j->s.C + d : d * j->s.C + c;
}

static double gradient(const apollo_job *j, int64_t i) { return af_ld(j->in.grads, i) * j->clip; }

/* Moments of number q of channel c; adds the squares of D and L. */
static void step_moments(const apollo_job *j, int64_t c, int64_t q, double *of_d, double *of_l)
{
    const double b1 = j->n->attr.optim.beta1, b2 = j->n->attr.optim.beta2;
    const int64_t i = c * j->s.rank + q;
    double low = 0;
    for (int64_t d = 0; d < j->s.width; d++)
        low += gradient(j, place(j, c, d)) * (double)j->projection[d * j->s.rank + q];
    const double m = b1 * af_ld(j->in.state[0], i) + (1 - b1) * low;
    const double v = b2 * af_ld(j->in.state[1], i) + (1 - b2) * low * low;
    const double dir = m / (sqrt(v) + j->n->attr.optim.eps);
    af_st(j->in.state[0], i, m);
    af_st(j->in.state[1], i, v);
    *of_d += dir * dir;
    *of_l += low * low;
}

static void find_scales(const apollo_job *j)
{
    double all_d = 0, all_l = 0;
    for (int64_t c = 0; c < j->s.channels; c++) {
        double of_d = 0, of_l = 0;
        for (int64_t q = 0; q < j->s.rank; q++)
            step_moments(j, c, q, &of_d, &of_l);
        j->scale[c] = sqrt(of_d) / (sqrt(of_l) + AF_APOLLO_EPS);
        all_d += of_d;
        all_l += of_l;
    }
    for (int64_t c = 0; j->n->attr.optim.per_tensor && c < j->s.channels; c++)
        j->scale[c] = sqrt(all_d) / (sqrt(all_l) + AF_APOLLO_EPS);
}

/* sqrt(scale) / limit; the new norm is kept. */
static double limited(const apollo_job *j)
{
    const double root = sqrt(j->n->attr.optim.scale), last = af_ld(j->in.state[2], 0);
    double sum = 0;
    for (int64_t c = 0; c < j->s.channels; c++)
        for (int64_t d = 0; d < j->s.width; d++) {
            const double u = gradient(j, place(j, c, d)) * j->scale[c];
            sum += u * u;
        }
    const double z = sqrt(sum) * (j->n->attr.optim.scale_front ? root : 1);
    const double limit =
        last > 0 ? fmax(z / (last + AF_APOLLO_EPS), AF_APOLLO_GROWTH) / AF_APOLLO_GROWTH : 1;
    af_st(j->in.state[2], 0, z / limit);
    return root / limit;
}

static void apply(const apollo_job *j, double factor)
{
    const double lr = af_ld(j->in.hyper, AF_HYPER_LR) * j->n->attr.optim.lr_factor;
    const double step = lr * af_ld(j->in.hyper, AF_HYPER_CORRECTION2_SQRT) /
                        af_ld(j->in.hyper, AF_HYPER_CORRECTION1);
    for (int64_t c = 0; c < j->s.channels; c++)
        for (int64_t d = 0; d < j->s.width; d++) {
            const int64_t i = place(j, c, d);
            double w = af_ld(j->in.params, i);
            w -= step * gradient(j, i) * j->scale[c] * factor;
            af_st(j->in.params, i, w - lr * j->n->attr.optim.weight_decay * w);
        }
}

static void apollo_run(const af_node *n, af_cpu *cpu)
{
    const af_optim_inputs in = af_optim_in(n);
    const af_apollo_shape s = af_apollo_shape_of(n);
    const int64_t values = s.width * s.rank;
    double *scale = cpu->work;
    const apollo_job j = {.n = n,
                          .in = in,
                          .s = s,
                          .clip = af_ld(in.stats, AF_STATS_CLIP),
                          .scale = scale,
                          .projection = (float *)(scale + s.channels)};
    if (af_ld(in.stats, AF_STATS_FINITE) == 1) {
        af_lowrank_draw(n, (float)(1 / sqrt((double)s.rank)), j.projection, 0, (values + 3) / 4,
                        values);
        find_scales(&j);
        apply(&j, limited(&j));
    }
    memset(in.grads->data, 0, af_tensor_bytes(in.grads));
}

static uint64_t apollo_work(const af_node *n, int threads)
{
    const af_apollo_shape s = af_apollo_shape_of(n);
    (void)threads;
    return (uint64_t)s.channels * sizeof(double) + (uint64_t)(s.width * s.rank) * sizeof(float);
}

const af_cpu_op af_cpu_apollo = {apollo_run, apollo_work};
