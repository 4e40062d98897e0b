/* optimizer_cpu.c - the twins of optimizer.c: one element at a time, computed in double, stored in
 * the type of the parameter. The elements do not depend on each other (8-bit blocks neither), so
 * the pool may split them anyhow; the norm is summed over fixed pieces in a fixed order. */
#include "ops/common/twin.h"
#include "ops/optim/bf16_weights.h"
#include "ops/optim/norm_stats.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"
#include "ops/optim/split_norm.h"
#include "tensor/dynamic_map.h"

#include <math.h>

enum { NORM_PIECE = AF_NORM_PIECE };

typedef struct norm_job {
    const af_tensor *grads;
    double *sum; /* one per piece */
} norm_job;

static void norm_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const norm_job *j = arg;
    const int64_t count = af_count(j->grads);
    for (int64_t p = from; p < to; p++) {
        double sum = 0;
        for (int64_t i = p * NORM_PIECE; i < AF_MIN((p + 1) * NORM_PIECE, count); i++)
            sum += af_ld(j->grads, i) * af_ld(j->grads, i);
        j->sum[p] = sum;
    }
}

static int64_t norm_piece_count(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    return (af_count(in.grads) + NORM_PIECE - 1) / NORM_PIECE;
}

static double piece_squares(const float *g, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)g[i] * (double)g[i];
    return sum;
}

static void grad_norm_run(const af_node *n, af_cpu *cpu)
{
    if (af_norm_is_split(n)) {
        af_split_norm_run(n, cpu, piece_squares);
        return;
    }
    const af_optim_inputs in = af_optim_in(n);
    const int64_t pieces = norm_piece_count(n);
    norm_job j = {in.grads, cpu->work};
    af_pool_run(cpu->pool, pieces, norm_pieces, &j);
    af_norm_stats(n, j.sum, pieces);
}

static uint64_t grad_norm_work(const af_node *n, int threads)
{
    (void)threads;
    return af_norm_is_split(n) ? af_split_norm_work(n)
                               : (uint64_t)norm_piece_count(n) * sizeof(double);
}

/* The numbers every update needs. */
typedef struct optimizer_update {
    const af_node *n;
    af_tensor *w, *g, *s[4]; /* s: the states */
    double lr, decay, clip, c1, c2;
    bool finite;
    float m_map[AF_DYNAMIC_CODES], v_map[AF_DYNAMIC_CODES];
} optimizer_update;

static void begin(optimizer_update *u, const af_node *n)
{
    u->n = n;
    const af_optim_inputs in = af_optim_in(n);
    u->w = in.params;
    u->g = in.grads;
    memcpy(u->s, in.state, sizeof u->s);
    u->lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor;
    u->c1 = af_ld(in.hyper, AF_HYPER_CORRECTION1);
    u->c2 = af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT);
    u->clip = af_ld(in.stats, AF_STATS_CLIP);
    u->finite = af_ld(in.stats, AF_STATS_FINITE) == 1;
    u->decay = n->attr.optim.weight_decay;
}

/* A parameter; in bf16 it is rounded as the run asks. */
static double weight(const optimizer_update *u, int64_t i)
{
    return u->w->dtype == AF_DTYPE_BF16 ? af_bf16_weight(u->n, i) : af_ld(u->w, i);
}

static void set_weight(const optimizer_update *u, int64_t i, double x)
{
    if (u->w->dtype == AF_DTYPE_BF16)
        af_bf16_weight_set(u->n, i, x);
    else
        af_st(u->w, i, x);
}

typedef void update_item(const optimizer_update *u, int64_t i);

static void sgd_item(const optimizer_update *u, int64_t i)
{
    const double mu = u->n->attr.optim.momentum;
    const double w = af_ld(u->w, i);
    double g = af_ld(u->g, i) * u->clip + u->decay * w;
    if (u->s[0]) {
        const double m = mu * af_ld(u->s[0], i) + g;
        af_st(u->s[0], i, m);
        g = u->n->attr.optim.nesterov ? g + mu * m : m;
    }
    af_st(u->w, i, w - u->lr * g);
}

/* w after one step of Adam with the new moments m and v. */
static double adam_step(const optimizer_update *u, double w, double m, double v)
{
    return w - u->lr / u->c1 * m / (sqrt(v) / u->c2 + u->n->attr.optim.eps);
}

static void adam_item(const optimizer_update *u, int64_t i)
{
    const double b1 = u->n->attr.optim.beta1, b2 = u->n->attr.optim.beta2;
    const bool coupled = u->n->attr.optim.kind == AF_OPTIMIZER_ADAM;
    double w = weight(u, i), g = af_ld(u->g, i) * u->clip;
    if (coupled)
        g += u->decay * w;
    else
        w -= u->lr * u->decay * w;
    af_st(u->s[0], i, b1 * af_ld(u->s[0], i) + (1 - b1) * g);
    af_st(u->s[1], i, b2 * af_ld(u->s[1], i) + (1 - b2) * g * g);
    set_weight(u, i, adam_step(u, w, af_ld(u->s[0], i), af_ld(u->s[1], i)));
}

static void lion_item(const optimizer_update *u, int64_t i)
{
    const double b1 = u->n->attr.optim.beta1, b2 = u->n->attr.optim.beta2;
    const double w = af_ld(u->w, i), g = af_ld(u->g, i) * u->clip, m = af_ld(u->s[0], i);
    const double c = b1 * m + (1 - b1) * g;
    const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
    af_st(u->w, i, w - u->lr * u->decay * w - u->lr * sign);
    af_st(u->s[0], i, b2 * m + (1 - b2) * g);
}

static void rmsprop_item(const optimizer_update *u, int64_t i)
{
    const double b = u->n->attr.optim.beta2, w = af_ld(u->w, i);
    const double g = af_ld(u->g, i) * u->clip + u->decay * w;
    af_st(u->s[0], i, b * af_ld(u->s[0], i) + (1 - b) * g * g);
    af_st(u->w, i, w - u->lr * g / (sqrt(af_ld(u->s[0], i)) + u->n->attr.optim.eps));
}

static void ademamix_item(const optimizer_update *u, int64_t i)
{
    const double b1 = u->n->attr.optim.beta1, b2 = u->n->attr.optim.beta2,
                 b3 = u->n->attr.optim.slow_beta;
    const double w = af_ld(u->w, i), g = af_ld(u->g, i) * u->clip;
    af_st(u->s[0], i, b1 * af_ld(u->s[0], i) + (1 - b1) * g);
    af_st(u->s[1], i, b2 * af_ld(u->s[1], i) + (1 - b2) * g * g);
    af_st(u->s[2], i, b3 * af_ld(u->s[2], i) + (1 - b3) * g);
    const double m = af_ld(u->s[0], i) / u->c1 + u->n->attr.optim.slow_share * af_ld(u->s[2], i);
    const double size = sqrt(af_ld(u->s[1], i)) / u->c2 + u->n->attr.optim.eps;
    af_st(u->w, i, w - u->lr * (m / size + u->decay * w));
}

/* One block: moments from their codes, the step with the exact new moments, new scales, codes. */
static void adam_8bit_block(const optimizer_update *u, int64_t block)
{
    const double b1 = u->n->attr.optim.beta1, b2 = u->n->attr.optim.beta2;
    const int64_t from = block * AF_ADAM_8BIT_BLOCK;
    const int64_t len = AF_MIN(af_count(u->w) - from, AF_ADAM_8BIT_BLOCK);
    uint8_t *m8 = (uint8_t *)u->s[0]->data + from, *v8 = (uint8_t *)u->s[1]->data + from;
    float *m_scale = (float *)u->s[2]->data + block, *v_scale = (float *)u->s[3]->data + block;
    float m[AF_ADAM_8BIT_BLOCK], v[AF_ADAM_8BIT_BLOCK], m_max = 0, v_max = 0;
    for (int64_t k = 0; k < len; k++) {
        const double g = af_ld(u->g, from + k) * u->clip;
        double w = weight(u, from + k);
        m[k] = (float)(b1 * (u->m_map[m8[k]] * *m_scale) + (1 - b1) * g);
        v[k] = (float)(b2 * (u->v_map[v8[k]] * *v_scale) + (1 - b2) * g * g);
        w -= u->lr * u->decay * w;
        set_weight(u, from + k, adam_step(u, w, m[k], v[k]));
        m_max = fmaxf(m_max, fabsf(m[k]));
        v_max = fmaxf(v_max, v[k]);
    }
    for (int64_t k = 0; k < len; k++) {
        m8[k] = af_dynamic_code(u->m_map, m_max > 0 ? m[k] / m_max : 0);
        v8[k] = af_dynamic_code(u->v_map, v_max > 0 ? v[k] / v_max : 0);
    }
    *m_scale = m_max;
    *v_scale = v_max;
}

typedef struct update_job {
    const optimizer_update *u;
    update_item *item;
    int64_t span; /* gradients an item consumes */
} update_job;

static void update_items(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const update_job *j = arg;
    for (int64_t i = from; i < to && j->u->finite; i++)
        j->item(j->u, i);
    const int64_t end = AF_MIN(to * j->span, af_count(j->u->g));
    for (int64_t i = from * j->span; i < end; i++)
        af_st(j->u->g, i, 0);
}

static void run_items(const af_node *n, af_cpu *cpu, update_item *item, int64_t span)
{
    optimizer_update u = {0};
    begin(&u, n);
    if (span > 1) {
        af_dynamic_map(u.m_map, true);
        af_dynamic_map(u.v_map, false);
    }
    update_job j = {&u, item, span};
    af_pool_run(cpu->pool, (af_count(u.w) + span - 1) / span, update_items, &j);
}

static void sgd_run(const af_node *n, af_cpu *cpu) { run_items(n, cpu, sgd_item, 1); }
static void adam_run(const af_node *n, af_cpu *cpu) { run_items(n, cpu, adam_item, 1); }
static void lion_run(const af_node *n, af_cpu *cpu) { run_items(n, cpu, lion_item, 1); }
static void rmsprop_run(const af_node *n, af_cpu *cpu) { run_items(n, cpu, rmsprop_item, 1); }
static void ademamix_run(const af_node *n, af_cpu *cpu) { run_items(n, cpu, ademamix_item, 1); }
static void adam_8bit_run(const af_node *n, af_cpu *cpu)
{
    run_items(n, cpu, adam_8bit_block, AF_ADAM_8BIT_BLOCK);
}

static void clear_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    memset(n->in[0]->data, 0, af_tensor_bytes(n->in[0]));
}

const af_cpu_op af_cpu_clear = {clear_run, NULL};
const af_cpu_op af_cpu_grad_norm = {grad_norm_run, grad_norm_work};
const af_cpu_op af_cpu_sgd = {sgd_run, NULL};
const af_cpu_op af_cpu_adam = {adam_run, NULL};
const af_cpu_op af_cpu_adam_8bit = {adam_8bit_run, NULL};
const af_cpu_op af_cpu_rmsprop = {rmsprop_run, NULL};
const af_cpu_op af_cpu_ademamix = {ademamix_run, NULL};
const af_cpu_op af_cpu_lion = {lion_run, NULL};
