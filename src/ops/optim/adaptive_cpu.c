/* adaptive_cpu.c - ADAPTIVE of optimizer.c, each element by itself: the twin in double, and the
 * fast version in f32.
 *
 * With g = gradient * clip, and a, b of step_numbers.c:
 *   adagrad  g += wd w;  v += g^2;  w -= lr a g / (sqrt(v) + eps)
 *   nadam    g += wd w;  m and v as Adam;  w -= lr (a g + b m) / (sqrt(v) / c2 + eps)
 *   radam    g += wd w;  m and v as Adam;  w -= lr / c1 m (a > 0 ? a c2 / (sqrt(v) + eps) : 1)
 *   adopt    w -= lr wd w;  m = b1 m + (1-b1) clamp(g / max(sqrt(v), eps), -a, a);
 *            w -= lr m;  v = b2 v + (1-b2) g^2;  the first step is v = g^2 alone */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { PIECE = AF_NORM_PIECE };

typedef struct adaptive_job {
    af_optimizer_kind kind;
    af_optim_inputs in;
    af_tensor *v, *m; /* m: NULL where there is none */
    int64_t count;
    double lr, decay, clip, b1, b2, eps, c1, c2, a, b;
} adaptive_job;

static void twin_element(const adaptive_job *j, double *w, double g, double *m, double *v)
{
    if (j->kind == AF_OPTIMIZER_ADOPT) {
        const double x = g / fmax(sqrt(*v), j->eps);
        if (j->a > 0) {
            *m = j->b1 * *m + (1 - j->b1) * fmin(fmax(x, -j->a), j->a);
            *w = *w - j->lr * j->decay * *w - j->lr * *m;
        }
        *v = j->a > 0 ? j->b2 * *v + (1 - j->b2) * g * g : g * g;
        return;
    }
    g += j->decay * *w;
    if (j->kind == AF_OPTIMIZER_ADAGRAD) {
        *v += g * g;
        *w -= j->lr * j->a * g / (sqrt(*v) + j->eps);
        return;
    }
    *m = j->b1 * *m + (1 - j->b1) * g;
    *v = j->b2 * *v + (1 - j->b2) * g * g;
    if (j->kind == AF_OPTIMIZER_NADAM)
        *w -= j->lr * (j->a * g + j->b * *m) / (sqrt(*v) / j->c2 + j->eps);
    else
        *w -= j->lr / j->c1 * *m * (j->a > 0 ? j->a * j->c2 / (sqrt(*v) + j->eps) : 1);
}

static void twin_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const adaptive_job *j = arg;
    for (int64_t i = from * PIECE; i < AF_MIN(to * PIECE, j->count); i++) {
        double w = af_ld(j->in.params, i), v = af_ld(j->v, i), m = j->m ? af_ld(j->m, i) : 0;
        twin_element(j, &w, af_ld(j->in.grads, i) * j->clip, &m, &v);
        af_st(j->in.params, i, w);
        af_st(j->v, i, v);
        if (j->m)
            af_st(j->m, i, m);
        af_st(j->in.grads, i, 0);
    }
}

/* ---- f32: the arrays of one piece, and loops a compiler makes vectors of ---- */

typedef struct arrays {
    float *w, *g, *m, *v;
    int64_t n;
} arrays;

static void adagrad_run(const adaptive_job *j, arrays x)
{
    const float clip = (float)j->clip, decay = (float)j->decay, rate = (float)(j->lr * j->a),
                eps = (float)j->eps;
    float *restrict w = x.w, *restrict g = x.g, *restrict v = x.v;
    for (int64_t i = 0; i < x.n; i++) {
        const float d = g[i] * clip + decay * w[i];
        v[i] += d * d;
        w[i] -= rate * d / (sqrtf(v[i]) + eps);
        g[i] = 0.0f;
    }
}

static void nadam_run(const adaptive_job *j, arrays x)
{
    const float clip = (float)j->clip, decay = (float)j->decay, eps = (float)j->eps,
                b1 = (float)j->b1, b2 = (float)j->b2, new1 = (float)(1 - j->b1),
                new2 = (float)(1 - j->b2), root = (float)(1 / j->c2), of_g = (float)(j->lr * j->a),
                of_m = (float)(j->lr * j->b);
    float *restrict w = x.w, *restrict g = x.g, *restrict m = x.m, *restrict v = x.v;
    for (int64_t i = 0; i < x.n; i++) {
        const float d = g[i] * clip + decay * w[i];
        m[i] = b1 * m[i] + new1 * d;
        v[i] = b2 * v[i] + new2 * d * d;
        w[i] -= (of_g * d + of_m * m[i]) / (sqrtf(v[i]) * root + eps);
        g[i] = 0.0f;
    }
}

static void radam_run(const adaptive_job *j, arrays x)
{
    const float clip = (float)j->clip, decay = (float)j->decay, eps = (float)j->eps,
                b1 = (float)j->b1, b2 = (float)j->b2, new1 = (float)(1 - j->b1),
                new2 = (float)(1 - j->b2), rate = (float)(j->lr / j->c1),
                trusted = (float)(j->a * j->c2);
    float *restrict w = x.w, *restrict g = x.g, *restrict m = x.m, *restrict v = x.v;
    for (int64_t i = 0; i < x.n; i++) {
        const float d = g[i] * clip + decay * w[i];
        m[i] = b1 * m[i] + new1 * d;
        v[i] = b2 * v[i] + new2 * d * d;
        w[i] -= rate * m[i] * (trusted > 0 ? trusted / (sqrtf(v[i]) + eps) : 1.0f);
        g[i] = 0.0f;
    }
}

static void adopt_run(const adaptive_job *j, arrays x)
{
    const float clip = (float)j->clip, keep = (float)(1 - j->lr * j->decay), eps = (float)j->eps,
                b1 = (float)j->b1, b2 = (float)j->b2, new1 = (float)(1 - j->b1),
                new2 = (float)(1 - j->b2), lr = (float)j->lr, most = (float)j->a;
    float *restrict w = x.w, *restrict g = x.g, *restrict m = x.m, *restrict v = x.v;
    for (int64_t i = 0; i < x.n && most > 0; i++) {
        const float d = g[i] * clip, u = d / fmaxf(sqrtf(v[i]), eps);
        m[i] = b1 * m[i] + new1 * fminf(fmaxf(u, -most), most);
        w[i] = w[i] * keep - lr * m[i];
        v[i] = b2 * v[i] + new2 * d * d;
        g[i] = 0.0f;
    }
    for (int64_t i = 0; i < x.n && !(most > 0); i++) {
        v[i] = g[i] * clip * (g[i] * clip);
        g[i] = 0.0f;
    }
}

static void fast_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const adaptive_job *j = arg;
    const int64_t at = from * PIECE;
    const arrays x = {(float *)j->in.params->data + at, (float *)j->in.grads->data + at,
                      j->m ? (float *)j->m->data + at : NULL, (float *)j->v->data + at,
                      AF_MIN(to * PIECE, j->count) - at};
    (j->kind == AF_OPTIMIZER_ADAGRAD ? adagrad_run
     : j->kind == AF_OPTIMIZER_NADAM ? nadam_run
     : j->kind == AF_OPTIMIZER_RADAM ? radam_run
                                     : adopt_run)(j, x);
}

static void run(const af_node *n, af_cpu *cpu, af_pool_job *pieces)
{
    const af_optim_inputs in = af_optim_in(n);
    adaptive_job j = {.kind = n->attr.optim.kind,
                      .in = in,
                      .v = in.state[0],
                      .m = in.state[1],
                      .count = af_count(in.params),
                      .lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor,
                      .decay = n->attr.optim.weight_decay,
                      .clip = af_ld(in.stats, AF_STATS_CLIP),
                      .b1 = n->attr.optim.beta1,
                      .b2 = n->attr.optim.beta2,
                      .eps = n->attr.optim.eps,
                      .c1 = af_ld(in.hyper, AF_HYPER_CORRECTION1),
                      .c2 = af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT),
                      .a = af_ld(in.hyper, AF_HYPER_A),
                      .b = af_ld(in.hyper, AF_HYPER_B)};
    if (af_ld(in.stats, AF_STATS_FINITE) != 1) /* no step, and no gradient either */
        memset(in.grads->data, 0, af_tensor_bytes(in.grads));
    else
        af_pool_run(cpu->pool, (j.count + PIECE - 1) / PIECE, pieces, &j);
}

static void twin_run(const af_node *n, af_cpu *cpu) { run(n, cpu, twin_pieces); }
static void fast_run(const af_node *n, af_cpu *cpu) { run(n, cpu, fast_pieces); }

const af_cpu_op af_cpu_adaptive = {twin_run, NULL};

const af_cpu_op *af_adaptive_fast(const af_node *n)
{
    static const af_cpu_op fast = {fast_run, NULL};
    bool f32 = true;
    for (int i = 0; i < n->n_in; i++)
        f32 &= n->in[i]->dtype == AF_DTYPE_F32;
    return f32 ? &fast : NULL;
}
