/* optimizer_fast.c - the gradient norm, Adam, AdEMAMix, Lion, RMSprop and SGD of optimizer.c on f32
 * buffers. The norm is summed over fixed pieces in a fixed order, as its twin's is. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/bf16_weights.h"
#include "ops/optim/norm_stats.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"
#include "ops/optim/split_norm.h"

#include <math.h>

enum { PIECE = AF_NORM_PIECE, RUN = 512 };

typedef struct update_fast_job {
    const af_node *n;
    const af_fast *f;
    double *sum; /* one a piece */
    int64_t count;
    af_adam_row k;
} update_fast_job;

/* Short runs in f32, added up in double: 1e-7 of the norm. */
static double piece_squares(const float *g, int64_t count)
{
    const af_fast *f = af_fast_get();
    double sum = 0;
    for (int64_t i = 0; i < count; i += RUN)
        sum += (double)f->sum_squares(g + i, AF_MIN((int64_t)RUN, count - i));
    return sum;
}

static void norm_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const update_fast_job *j = arg;
    const af_optim_inputs in = af_optim_in(j->n);
    const float *g = in.grads->data;
    for (int64_t p = from; p < to; p++)
        j->sum[p] = piece_squares(g + p * PIECE, AF_MIN((int64_t)PIECE, j->count - p * PIECE));
}

static void grad_norm_run(const af_node *n, af_cpu *cpu)
{
    const af_optim_inputs in = af_optim_in(n);
    if (af_norm_is_split(n)) {
        af_split_norm_run(n, cpu, piece_squares);
        return;
    }
    update_fast_job j = {.n = n, .f = af_fast_get(), .sum = cpu->work, .count = af_count(in.grads)};
    const int64_t pieces = (j.count + PIECE - 1) / PIECE;
    af_pool_run(cpu->pool, pieces, norm_pieces, &j);
    af_norm_stats(n, j.sum, pieces);
}

static uint64_t grad_norm_work(const af_node *n, int threads)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)threads;
    if (af_norm_is_split(n))
        return af_split_norm_work(n);
    return (uint64_t)((af_count(in.grads) + PIECE - 1) / PIECE) * sizeof(double);
}

static void adam_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const update_fast_job *j = arg;
    const int64_t at = from * PIECE, n = AF_MIN(to * PIECE, j->count) - at;
    const af_optim_inputs in = af_optim_in(j->n);
    float *g = (float *)in.grads->data + at;
    float *m = (float *)in.state[0]->data + at, *v = (float *)in.state[1]->data + at;
    if (in.params->dtype == AF_DTYPE_F32) {
        j->f->adam((float *)in.params->data + at, g, m, v, &j->k, n);
        return;
    }
    for (int64_t i = 0; i < n; i += AF_BF16_RUN) {
        float w[AF_BF16_RUN];
        const int64_t count = AF_MIN((int64_t)AF_BF16_RUN, n - i);
        af_bf16_weights_load(j->n, at + i, count, w);
        j->f->adam(w, g + i, m + i, v + i, &j->k, count);
        af_bf16_weights_store(j->n, at + i, count, w);
    }
}

static void adam_run(const af_node *n, af_cpu *cpu)
{
    const af_optim_inputs in = af_optim_in(n);
    update_fast_job j = {.n = n, .f = af_fast_get(), .count = af_count(in.params)};
    if (af_ld(in.stats, AF_STATS_FINITE) != 1) { /* no step, and no gradient either */
        memset(in.grads->data, 0, (size_t)j.count * sizeof(float));
        return;
    }
    const bool coupled = n->attr.optim.kind == AF_OPTIMIZER_ADAM;
    const double lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor;
    const double decay = n->attr.optim.weight_decay;
    const double b1 = n->attr.optim.beta1, b2 = n->attr.optim.beta2;
    j.k = (af_adam_row){.rate = (float)(lr / af_ld(in.hyper, AF_HYPER_CORRECTION1)),
                        .keep = coupled ? 1.0f : (float)(1 - lr * decay),
                        .l2 = coupled ? (float)decay : 0.0f,
                        .beta1 = (float)b1,
                        .new1 = (float)(1 - b1),
                        .beta2 = (float)b2,
                        .new2 = (float)(1 - b2),
                        .eps = (float)n->attr.optim.eps,
                        .root = (float)(1 / af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT)),
                        .clip = (float)af_ld(in.stats, AF_STATS_CLIP),
                        .spent = cpu->grads_spent};
    af_pool_run(cpu->pool, (j.count + PIECE - 1) / PIECE, adam_pieces, &j);
}

/* ---- the others: loops a compiler makes vectors of ---- */

typedef struct plain {
    const af_node *n;
    int64_t count;
    float rate, keep, clip, decay, b1, new1, b2, new2, momentum, eps, c1, c2;
    bool nesterov;
} plain;

static void lion_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const plain *j = arg;
    const af_optim_inputs in = af_optim_in(j->n);
    const int64_t at = from * PIECE, n = AF_MIN(to * PIECE, j->count) - at;
    float *restrict w = (float *)in.params->data + at;
    float *restrict g = (float *)in.grads->data + at;
    float *restrict m = (float *)in.state[0]->data + at;
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] * j->clip, c = j->b1 * m[i] + j->new1 * d;
        w[i] = w[i] * j->keep - (c > 0 ? j->rate : c < 0 ? -j->rate : 0.0f);
        m[i] = j->b2 * m[i] + j->new2 * d;
        g[i] = 0.0f;
    }
}

static void sgd_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const plain *j = arg;
    const af_optim_inputs in = af_optim_in(j->n);
    const int64_t at = from * PIECE, n = AF_MIN(to * PIECE, j->count) - at;
    float *restrict w = (float *)in.params->data + at;
    float *restrict g = (float *)in.grads->data + at;
    float *restrict m = in.state[0] ? (float *)in.state[0]->data + at : NULL;
    for (int64_t i = 0; i < n && m; i++) {
        const float d = g[i] * j->clip + j->decay * w[i];
        m[i] = j->momentum * m[i] + d;
        w[i] -= j->rate * (j->nesterov ? d + j->momentum * m[i] : m[i]);
        g[i] = 0.0f;
    }
    for (int64_t i = 0; i < n && !m; i++) {
        w[i] -= j->rate * (g[i] * j->clip + j->decay * w[i]);
        g[i] = 0.0f;
    }
}

static void rmsprop_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const plain *j = arg;
    const af_optim_inputs in = af_optim_in(j->n);
    const int64_t at = from * PIECE, n = AF_MIN(to * PIECE, j->count) - at;
    float *restrict w = (float *)in.params->data + at;
    float *restrict g = (float *)in.grads->data + at;
    float *restrict v = (float *)in.state[0]->data + at;
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] * j->clip + j->decay * w[i];
        v[i] = j->b2 * v[i] + j->new2 * d * d;
        w[i] -= j->rate * d / (sqrtf(v[i]) + j->eps);
        g[i] = 0.0f;
    }
}

static void ademamix_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const plain *j = arg;
    const af_optim_inputs in = af_optim_in(j->n);
    const int64_t at = from * PIECE, n = AF_MIN(to * PIECE, j->count) - at;
    float *restrict w = (float *)in.params->data + at;
    float *restrict g = (float *)in.grads->data + at;
    float *restrict m = (float *)in.state[0]->data + at;
    float *restrict v = (float *)in.state[1]->data + at;
    float *restrict slow = (float *)in.state[2]->data + at;
    const double slow_beta = j->n->attr.optim.slow_beta;
    const float b3 = (float)slow_beta, new3 = (float)(1 - slow_beta),
                share_of_slow = (float)j->n->attr.optim.slow_share;
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] * j->clip;
        m[i] = j->b1 * m[i] + j->new1 * d;
        v[i] = j->b2 * v[i] + j->new2 * d * d;
        slow[i] = b3 * slow[i] + new3 * d;
        const float up = m[i] / j->c1 + share_of_slow * slow[i];
        w[i] = w[i] * j->keep - j->rate * up / (sqrtf(v[i]) / j->c2 + j->eps);
        g[i] = 0.0f;
    }
}

static void run_plain(const af_node *n, af_cpu *cpu, af_pool_job *pieces)
{
    const af_optim_inputs in = af_optim_in(n);
    const double lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor;
    const double decay = n->attr.optim.weight_decay, b1 = n->attr.optim.beta1,
                 b2 = n->attr.optim.beta2;
    plain j = {.n = n,
               .count = af_count(in.params),
               .rate = (float)lr,
               .keep = (float)(1 - lr * decay),
               .clip = (float)af_ld(in.stats, AF_STATS_CLIP),
               .decay = (float)decay,
               .b1 = (float)b1,
               .new1 = (float)(1 - b1),
               .b2 = (float)b2,
               .new2 = (float)(1 - b2),
               .momentum = (float)n->attr.optim.momentum,
               .eps = (float)n->attr.optim.eps,
               .c1 = (float)af_ld(in.hyper, AF_HYPER_CORRECTION1),
               .c2 = (float)af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT),
               .nesterov = n->attr.optim.nesterov};
    if (af_ld(in.stats, AF_STATS_FINITE) != 1)
        memset(in.grads->data, 0, (size_t)j.count * sizeof(float));
    else
        af_pool_run(cpu->pool, (j.count + PIECE - 1) / PIECE, pieces, &j);
}

static void lion_run(const af_node *n, af_cpu *cpu) { run_plain(n, cpu, lion_pieces); }
static void sgd_run(const af_node *n, af_cpu *cpu) { run_plain(n, cpu, sgd_pieces); }
static void rmsprop_run(const af_node *n, af_cpu *cpu) { run_plain(n, cpu, rmsprop_pieces); }
static void ademamix_run(const af_node *n, af_cpu *cpu) { run_plain(n, cpu, ademamix_pieces); }

static const af_cpu_op lion_op = {lion_run, NULL}, sgd_op = {sgd_run, NULL},
                       rmsprop_op = {rmsprop_run, NULL}, ademamix_op = {ademamix_run, NULL};

static bool all_f32(const af_node *n)
{
    bool f32 = true;
    for (int i = 0; i < n->n_in; i++)
        f32 &= n->in[i]->dtype == AF_DTYPE_F32;
    return f32;
}

const af_cpu_op *af_lion_fast(const af_node *n) { return all_f32(n) ? &lion_op : NULL; }
const af_cpu_op *af_rmsprop_fast(const af_node *n) { return all_f32(n) ? &rmsprop_op : NULL; }
const af_cpu_op *af_ademamix_fast(const af_node *n) { return all_f32(n) ? &ademamix_op : NULL; }
const af_cpu_op *af_sgd_fast(const af_node *n) { return all_f32(n) ? &sgd_op : NULL; }

static const af_cpu_op norm_op = {grad_norm_run, grad_norm_work}, adam_op = {adam_run, NULL};

const af_cpu_op *af_grad_norm_fast(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    return in.grads->dtype == AF_DTYPE_F32 ? &norm_op : NULL;
}
const af_cpu_op *af_adam_fast(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    return all_f32(n) || in.params->dtype == AF_DTYPE_BF16 ? &adam_op : NULL;
}
