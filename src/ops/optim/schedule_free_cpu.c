/* schedule_free_cpu.c - FREE_WEIGHT and FREE of optimizer.c: the twins in double, and the fast
 * version of FREE in f32.
 *
 * Gradients are taken at y, which lies between z, where steps are made, and their average x: the
 * parameters hold y (free_average.c gives x). With g = gradient * clip, the step's rate lr and the
 * weight c of this step in the average (FREE_WEIGHT), a of step_numbers.c:
 *   v = b2 v + (1-b2) g^2
 *   u = g / (sqrt(v) / c2 + eps) + wd y    (sgd, and radam while a is 0: g + wd y)
 *   y = y + c (z - y) - lr (1 - b1 (1 - c)) u;  z = z - lr u
 * The first update begins with z = y. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { PIECE = AF_NORM_PIECE };

static void weight_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *hyper = n->in[0], *stats = n->in[1];
    double *s = n->in[2]->data; /* largest rate, sum of weights, updates */
    af_tensor *out = n->out[0];
    (void)cpu;
    if (af_ld(stats, AF_STATS_FINITE) != 1)
        return;
    const double lr = af_ld(hyper, AF_HYPER_LR) * af_ld(hyper, AF_HYPER_A);
    s[0] = fmax(s[0], lr);
    const double weight = af_ld(hyper, AF_HYPER_B) * pow(s[0], n->in[0]->graph->optimizer.lr_power);
    s[1] += weight;
    af_st(out, AF_FREE_RATE, lr);
    af_st(out, AF_FREE_SHARE, s[1] > 0 ? weight / s[1] : 0);
    af_st(out, AF_FREE_FIRST, s[2] == 0);
    s[2] += 1;
}

const af_cpu_op af_cpu_free_weight = {weight_run, NULL};

typedef struct free_job {
    af_optim_inputs in;
    af_tensor *z, *v; /* v: NULL for sgd */
    int64_t count;
    bool first, plain; /* plain: g itself is the step */
    double lr, share, back, decay, clip, b2, eps, c2;
} free_job;

static void twin_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const free_job *j = arg;
    for (int64_t i = from * PIECE; i < AF_MIN(to * PIECE, j->count); i++) {
        const double y = af_ld(j->in.params, i), z = j->first ? y : af_ld(j->z, i);
        const double g = af_ld(j->in.grads, i) * j->clip;
        const double v = j->v ? j->b2 * af_ld(j->v, i) + (1 - j->b2) * g * g : 0;
        const double u = (j->plain ? g : g / (sqrt(v) / j->c2 + j->eps)) + j->decay * y;
        if (j->v)
            af_st(j->v, i, v);
        af_st(j->in.params, i, y + j->share * (z - y) - j->back * u);
        af_st(j->z, i, z - j->lr * u);
        af_st(j->in.grads, i, 0);
    }
}

static void fast_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const free_job *j = arg;
    const int64_t at = from * PIECE, n = AF_MIN(to * PIECE, j->count) - at;
    float *restrict y = (float *)j->in.params->data + at;
    float *restrict g = (float *)j->in.grads->data + at;
    float *restrict z = (float *)j->z->data + at;
    float *restrict v = j->v ? (float *)j->v->data + at : NULL;
    const float clip = (float)j->clip, decay = (float)j->decay, lr = (float)j->lr,
                c = (float)j->share, back = (float)j->back, b2 = (float)j->b2,
                new2 = (float)(1 - j->b2), eps = (float)j->eps, root = (float)(1 / j->c2);
    if (j->first)
        memcpy(z, y, (size_t)n * sizeof *z);
    for (int64_t i = 0; i < n && v; i++) {
        const float d = g[i] * clip;
        v[i] = b2 * v[i] + new2 * d * d;
        g[i] = j->plain ? d : d / (sqrtf(v[i]) * root + eps);
    }
    for (int64_t i = 0; i < n; i++) {
        const float u = (v ? g[i] : g[i] * clip) + decay * y[i];
        y[i] = y[i] + c * (z[i] - y[i]) - back * u;
        z[i] -= lr * u;
        g[i] = 0.0f;
    }
}

static void run(const af_node *n, af_cpu *cpu, af_pool_job *pieces)
{
    const af_optim_inputs in = af_optim_in(n);
    const af_optimizer_kind kind = n->attr.optim.kind;
    const double b1 = n->attr.optim.beta1, lr_factor = n->attr.optim.lr_factor;
    const af_tensor *w = in.state[0];
    if (af_ld(in.stats, AF_STATS_FINITE) != 1) { /* no step, and no gradient either */
        memset(in.grads->data, 0, af_tensor_bytes(in.grads));
        return;
    }
    free_job j = {.in = in,
                  .z = in.state[1],
                  .v = in.state[2],
                  .count = af_count(in.params),
                  .first = af_ld(w, AF_FREE_FIRST) == 1,
                  .plain = kind == AF_OPTIMIZER_FREE_SGD ||
                           (kind == AF_OPTIMIZER_FREE_RADAM && af_ld(in.hyper, AF_HYPER_A) == 0),
                  .lr = af_ld(w, AF_FREE_RATE) * lr_factor,
                  .share = af_ld(w, AF_FREE_SHARE),
                  .decay = n->attr.optim.weight_decay,
                  .clip = af_ld(in.stats, AF_STATS_CLIP),
                  .b2 = n->attr.optim.beta2,
                  .eps = n->attr.optim.eps,
                  .c2 = af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT)};
    j.back = j.lr * (1 - b1 * (1 - j.share));
    af_pool_run(cpu->pool, (j.count + PIECE - 1) / PIECE, pieces, &j);
}

static void twin_run(const af_node *n, af_cpu *cpu) { run(n, cpu, twin_pieces); }
static void fast_run(const af_node *n, af_cpu *cpu) { run(n, cpu, fast_pieces); }

const af_cpu_op af_cpu_free = {twin_run, NULL};

const af_cpu_op *af_free_fast(const af_node *n)
{
    static const af_cpu_op fast = {fast_run, NULL};
    return n->in[0]->dtype == AF_DTYPE_F32 ? &fast : NULL;
}
