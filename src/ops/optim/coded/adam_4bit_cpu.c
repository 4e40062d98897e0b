/* adam_4bit_cpu.c - Adam with moments in 4 bits: the twin, and the fast version on f32 buffers.
 *
 * As torchao: a block of 128 elements shares a scale, the step uses the exact new moments, and only
 * then they are rounded to codes. A range is whole blocks (optimizer.c sees to it). */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/coded/adam_4bit.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { BLOCK = AF_ADAM_4BIT_BLOCK };

typedef struct adam_4bit_job {
    af_optim_inputs in;
    double lr, decay, clip, c1, c2, b1, b2, eps;
    bool finite, f32; /* f32: computed and stored in f32, as on a GPU */
} adam_4bit_job;

static void encode(const float *x, float max, const float *map, uint8_t *codes, float *scale)
{
    *scale = fmaxf(max, AF_ADAM_4BIT_SCALE_MIN);
    for (int k = 0; k < BLOCK; k += 2)
        codes[k / 2] = (uint8_t)(af_adam_4bit_code(map, x[k] / *scale) << 4 |
                                 af_adam_4bit_code(map, x[k + 1] / *scale));
}

static void step_f64(const adam_4bit_job *j, int64_t at, const uint8_t *m4, const uint8_t *v4,
                     float m_scale, float v_scale, float *m, float *v)
{
    for (int64_t k = 0; k < BLOCK; k++) {
        const double g = af_ld(j->in.grads, at + k) * j->clip, w = af_ld(j->in.params, at + k);
        const double old_m = (double)af_adam_4bit_m[af_adam_4bit_at(m4, k)] * m_scale;
        const double old_v = (double)af_adam_4bit_v[af_adam_4bit_at(v4, k)] * v_scale;
        m[k] = (float)(j->b1 * old_m + (1 - j->b1) * g);
        v[k] = (float)(j->b2 * old_v + (1 - j->b2) * g * g);
        af_st(j->in.params, at + k,
              w - j->lr * j->decay * w - j->lr / j->c1 * m[k] / (sqrt(v[k]) / j->c2 + j->eps));
    }
}

static void step_f32(const adam_4bit_job *j, int64_t at, const uint8_t *m4, const uint8_t *v4,
                     float m_scale, float v_scale, float *m, float *v)
{
    float *w = (float *)j->in.params->data + at, *g = (float *)j->in.grads->data + at;
    const float clip = (float)j->clip, b1 = (float)j->b1, b2 = (float)j->b2,
                rest1 = (float)(1 - j->b1), rest2 = (float)(1 - j->b2), lr = (float)j->lr,
                keep = (float)(1 - j->lr * j->decay), c1 = (float)j->c1, c2 = (float)j->c2,
                eps = (float)j->eps;
    for (int64_t k = 0; k < BLOCK; k++) {
        const float x = g[k] * clip;
        m[k] = b1 * (af_adam_4bit_m[af_adam_4bit_at(m4, k)] * m_scale) + rest1 * x;
        v[k] = b2 * (af_adam_4bit_v[af_adam_4bit_at(v4, k)] * v_scale) + rest2 * x * x;
    }
    for (int64_t k = 0; k < BLOCK; k++)
        w[k] = w[k] * keep - lr / c1 * m[k] / (sqrtf(v[k]) / c2 + eps);
}

static void update_block(const adam_4bit_job *j, int64_t block)
{
    const int64_t at = block * BLOCK;
    uint8_t *m4 = (uint8_t *)j->in.state[0]->data + at / 2,
            *v4 = (uint8_t *)j->in.state[1]->data + at / 2;
    float *m_scale = (float *)j->in.state[2]->data + block,
          *v_scale = (float *)j->in.state[3]->data + block;
    float m[BLOCK], v[BLOCK], m_max = 0, v_max = 0;
    (j->f32 ? step_f32 : step_f64)(j, at, m4, v4, *m_scale, *v_scale, m, v);
    for (int k = 0; k < BLOCK; k++) {
        m_max = fmaxf(m_max, fabsf(m[k]));
        v_max = fmaxf(v_max, v[k]);
    }
    encode(m, m_max, af_adam_4bit_m, m4, m_scale);
    encode(v, v_max, af_adam_4bit_v, v4, v_scale);
}

static void blocks(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const adam_4bit_job *j = arg;
    for (int64_t b = from; b < to && j->finite; b++)
        update_block(j, b);
    for (int64_t i = from * BLOCK; i < to * BLOCK; i++)
        af_st(j->in.grads, i, 0);
}

static void run(const af_node *n, af_cpu *cpu, bool f32)
{
    const af_optim_inputs in = af_optim_in(n);
    adam_4bit_job j = {.in = in,
                       .lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor,
                       .decay = n->attr.optim.weight_decay,
                       .clip = af_ld(in.stats, AF_STATS_CLIP),
                       .c1 = af_ld(in.hyper, AF_HYPER_CORRECTION1),
                       .c2 = af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT),
                       .b1 = n->attr.optim.beta1,
                       .b2 = n->attr.optim.beta2,
                       .eps = n->attr.optim.eps,
                       .finite = af_ld(in.stats, AF_STATS_FINITE) == 1,
                       .f32 = f32};
    assert(af_count(in.params) % BLOCK == 0);
    af_pool_run(cpu->pool, af_count(in.params) / BLOCK, blocks, &j);
}

static void run_twin(const af_node *n, af_cpu *cpu) { run(n, cpu, false); }
static void run_fast(const af_node *n, af_cpu *cpu) { run(n, cpu, true); }

const af_cpu_op af_cpu_adam_4bit = {run_twin, NULL};
static const af_cpu_op fast_op = {run_fast, NULL};

const af_cpu_op *af_adam_4bit_fast(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    return in.params->dtype == AF_DTYPE_F32 && in.grads->dtype == AF_DTYPE_F32 ? &fast_op : NULL;
}
