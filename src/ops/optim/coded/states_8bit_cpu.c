/* states_8bit_cpu.c - STATES_8BIT of optimizer.c: Lion, RMSprop and AdEMAMix with moments in 8
 * bits, as bitsandbytes: the twin in double, and the fast version in f32.
 *
 * A block of 256 values shares a scale per moment. The step is that of the f32 version
 * (optimizer_cpu.c) with the exact new moments; only then they are rounded to codes: of the book
 * with sign, but for the second moment of AdEMAMix. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/coded/dynamic_book.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { BLOCK = AF_ADAM_8BIT_BLOCK, STATES_MAX = 3 };

typedef struct states_job {
    af_optimizer_kind kind;
    af_optim_inputs in;
    const af_dynamic_book *book; /* with sign, without */
    int states;
    int64_t count;
    double lr, decay, clip, c1, c2, b1, b2, b3, share, eps;
    bool f32; /* computed in f32, as on a GPU */
} states_job;

/* Of one block: its values. */
typedef struct values_8bit {
    int64_t n;
    float w[BLOCK], g[BLOCK], s[STATES_MAX][BLOCK];
} values_8bit;

/* Which book: m, v (of AdEMAMix), slow. */
static const af_dynamic_book *book_of(const states_job *j, int state)
{
    return &j->book[j->states == STATES_MAX && state == 1];
}

static void step_f64(const states_job *j, values_8bit *x, int64_t at)
{
    for (int64_t k = 0; k < x->n; k++) {
        const double w = af_ld(j->in.params, at + k), a = x->s[0][k], b = x->s[1][k];
        double g = af_ld(j->in.grads, at + k) * j->clip, to = w;
        if (j->kind == AF_OPTIMIZER_LION_8BIT) {
            const double c = j->b1 * a + (1 - j->b1) * g;
            to = w - j->lr * j->decay * w - j->lr * (c > 0 ? 1 : c < 0 ? -1 : 0);
            x->s[0][k] = (float)(j->b2 * a + (1 - j->b2) * g);
        } else if (j->kind == AF_OPTIMIZER_RMSPROP_8BIT) {
            g += j->decay * w;
            x->s[0][k] = (float)(j->b2 * a + (1 - j->b2) * g * g);
            to = w - j->lr * g / (sqrt((double)x->s[0][k]) + j->eps);
        } else {
            x->s[0][k] = (float)(j->b1 * a + (1 - j->b1) * g);
            x->s[1][k] = (float)(j->b2 * b + (1 - j->b2) * g * g);
            x->s[2][k] = (float)(j->b3 * (double)x->s[2][k] + (1 - j->b3) * g);
            const double up = (double)x->s[0][k] / j->c1 + j->share * (double)x->s[2][k];
            to = w - j->lr * (up / (sqrt((double)x->s[1][k]) / j->c2 + j->eps) + j->decay * w);
        }
        af_st(j->in.params, at + k, to);
    }
}

static void lion_f32(const states_job *j, values_8bit *x)
{
    const float b1 = (float)j->b1, new1 = (float)(1 - j->b1), b2 = (float)j->b2,
                new2 = (float)(1 - j->b2), lr = (float)j->lr, keep = (float)(1 - j->lr * j->decay);
    for (int64_t k = 0; k < x->n; k++) {
        const float c = b1 * x->s[0][k] + new1 * x->g[k];
        x->w[k] = x->w[k] * keep - (c > 0 ? lr : c < 0 ? -lr : 0.0f);
        x->s[0][k] = b2 * x->s[0][k] + new2 * x->g[k];
    }
}

static void rmsprop_f32(const states_job *j, values_8bit *x)
{
    const float b2 = (float)j->b2, new2 = (float)(1 - j->b2), lr = (float)j->lr,
                decay = (float)j->decay, eps = (float)j->eps;
    for (int64_t k = 0; k < x->n; k++) {
        const float g = x->g[k] + decay * x->w[k];
        x->s[0][k] = b2 * x->s[0][k] + new2 * g * g;
        x->w[k] -= lr * g / (sqrtf(x->s[0][k]) + eps);
    }
}

static void ademamix_f32(const states_job *j, values_8bit *x)
{
    const float b1 = (float)j->b1, new1 = (float)(1 - j->b1), b2 = (float)j->b2,
                new2 = (float)(1 - j->b2), b3 = (float)j->b3, new3 = (float)(1 - j->b3),
                lr = (float)j->lr, keep = (float)(1 - j->lr * j->decay), c1 = (float)j->c1,
                c2 = (float)j->c2, of_slow = (float)j->share, eps = (float)j->eps;
    for (int64_t k = 0; k < x->n; k++) {
        const float g = x->g[k];
        x->s[0][k] = b1 * x->s[0][k] + new1 * g;
        x->s[1][k] = b2 * x->s[1][k] + new2 * g * g;
        x->s[2][k] = b3 * x->s[2][k] + new3 * g;
        const float up = x->s[0][k] / c1 + of_slow * x->s[2][k];
        x->w[k] = x->w[k] * keep - lr * up / (sqrtf(x->s[1][k]) / c2 + eps);
    }
}

static void step_f32(const states_job *j, values_8bit *x, int64_t at)
{
    float *w = (float *)j->in.params->data + at;
    const float *g = (const float *)j->in.grads->data + at, clip = (float)j->clip;
    for (int64_t k = 0; k < x->n; k++) {
        x->w[k] = w[k];
        x->g[k] = g[k] * clip;
    }
    (j->kind == AF_OPTIMIZER_LION_8BIT      ? lion_f32
     : j->kind == AF_OPTIMIZER_RMSPROP_8BIT ? rmsprop_f32
                                            : ademamix_f32)(j, x);
    memcpy(w, x->w, (size_t)x->n * sizeof *w);
}

static void update_block(const states_job *j, int64_t block)
{
    values_8bit x;
    const int64_t at = block * BLOCK;
    x.n = AF_MIN(j->count - at, (int64_t)BLOCK);
    for (int s = 0; s < j->states; s++) {
        const uint8_t *codes = (const uint8_t *)j->in.state[s]->data + at;
        const float scale = ((const float *)j->in.state[j->states + s]->data)[block];
        for (int64_t k = 0; k < x.n; k++)
            x.s[s][k] = book_of(j, s)->map[codes[k]] * scale;
    }
    (j->f32 ? step_f32 : step_f64)(j, &x, at);
    for (int s = 0; s < j->states; s++) {
        uint8_t *codes = (uint8_t *)j->in.state[s]->data + at;
        float max = 0;
        for (int64_t k = 0; k < x.n; k++)
            max = fmaxf(max, fabsf(x.s[s][k]));
        for (int64_t k = 0; k < x.n; k++)
            codes[k] = af_dynamic_book_code(book_of(j, s), max > 0 ? x.s[s][k] / max : 0);
        ((float *)j->in.state[j->states + s]->data)[block] = max;
    }
    for (int64_t k = 0; k < x.n; k++)
        af_st(j->in.grads, at + k, 0);
}

static void blocks(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    for (int64_t b = from; b < to; b++)
        update_block(arg, b);
}

static uint64_t work(const af_node *n, int threads)
{
    (void)n, (void)threads;
    return 2 * sizeof(af_dynamic_book);
}

static void run(const af_node *n, af_cpu *cpu, bool f32)
{
    const af_optim_inputs in = af_optim_in(n);
    af_dynamic_book *book = cpu->work;
    if (af_ld(in.stats, AF_STATS_FINITE) != 1) { /* no step, and no gradient either */
        memset(in.grads->data, 0, af_tensor_bytes(in.grads));
        return;
    }
    af_dynamic_book_open(&book[0], true);
    af_dynamic_book_open(&book[1], false);
    states_job j = {.kind = n->attr.optim.kind,
                    .in = in,
                    .book = book,
                    .states = (n->n_in - 4) / 2,
                    .count = af_count(in.params),
                    .lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor,
                    .decay = n->attr.optim.weight_decay,
                    .clip = af_ld(in.stats, AF_STATS_CLIP),
                    .c1 = af_ld(in.hyper, AF_HYPER_CORRECTION1),
                    .c2 = af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT),
                    .b1 = n->attr.optim.beta1,
                    .b2 = n->attr.optim.beta2,
                    .b3 = n->attr.optim.slow_beta,
                    .share = n->attr.optim.slow_share,
                    .eps = n->attr.optim.eps,
                    .f32 = f32};
    af_pool_run(cpu->pool, (j.count + BLOCK - 1) / BLOCK, blocks, &j);
}

static void twin_run(const af_node *n, af_cpu *cpu) { run(n, cpu, false); }
static void fast_run(const af_node *n, af_cpu *cpu) { run(n, cpu, true); }

const af_cpu_op af_cpu_states_8bit = {twin_run, work};

const af_cpu_op *af_states_8bit_fast(const af_node *n)
{
    static const af_cpu_op fast = {fast_run, work};
    const af_optim_inputs in = af_optim_in(n);
    return in.params->dtype == AF_DTYPE_F32 && in.grads->dtype == AF_DTYPE_F32 ? &fast : NULL;
}
