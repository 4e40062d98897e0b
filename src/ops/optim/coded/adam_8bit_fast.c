/* adam_8bit_fast.c - Adam with moments in 8 bits on f32 buffers, block by block as its twin. The
 * arithmetic is f32, as on a GPU. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/bf16_weights.h"
#include "ops/optim/coded/dynamic_book.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { BLOCK = AF_ADAM_8BIT_BLOCK };

typedef struct adam_8bit_job {
    const af_node *n;
    const af_dynamic_book *m, *v;
    int64_t count;
    float lr, keep, clip, c1, c2, b1, b2, rest1, rest2, eps;
    bool finite;
} adam_8bit_job;

static void update_block(const adam_8bit_job *j, int64_t block)
{
    const af_optim_inputs in = af_optim_in(j->n);
    const int64_t at = block * BLOCK, n = AF_MIN(j->count - at, (int64_t)BLOCK);
    const bool bf16 = in.params->dtype == AF_DTYPE_BF16;
    float values[BLOCK], *w = bf16 ? values : (float *)in.params->data + at;
    const float *g = (const float *)in.grads->data + at;
    uint8_t *m8 = (uint8_t *)in.state[0]->data + at, *v8 = (uint8_t *)in.state[1]->data + at;
    float *m_scale = (float *)in.state[2]->data + block,
          *v_scale = (float *)in.state[3]->data + block;
    float m[BLOCK], v[BLOCK], m_max = 0, v_max = 0;
    for (int64_t k = 0; k < n; k++) {
        const float x = g[k] * j->clip;
        m[k] = j->b1 * (j->m->map[m8[k]] * *m_scale) + j->rest1 * x;
        v[k] = j->b2 * (j->v->map[v8[k]] * *v_scale) + j->rest2 * x * x;
        m_max = fmaxf(m_max, fabsf(m[k]));
        v_max = fmaxf(v_max, v[k]);
    }
    if (bf16)
        af_bf16_weights_load(j->n, at, n, w);
    for (int64_t k = 0; k < n; k++)
        w[k] = w[k] * j->keep - j->lr / j->c1 * m[k] / (sqrtf(v[k]) / j->c2 + j->eps);
    if (bf16)
        af_bf16_weights_store(j->n, at, n, w);
    for (int64_t k = 0; k < n; k++) {
        m8[k] = af_dynamic_book_code(j->m, m_max > 0 ? m[k] / m_max : 0);
        v8[k] = af_dynamic_book_code(j->v, v_max > 0 ? v[k] / v_max : 0);
    }
    *m_scale = m_max;
    *v_scale = v_max;
}

static void blocks(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const adam_8bit_job *j = arg;
    for (int64_t b = from; b < to && j->finite; b++)
        update_block(j, b);
    const int64_t at = from * BLOCK, end = AF_MIN(to * BLOCK, j->count);
    memset((float *)af_optim_in(j->n).grads->data + at, 0, (size_t)(end - at) * sizeof(float));
}

static uint64_t work(const af_node *n, int threads)
{
    (void)n, (void)threads;
    return 2 * sizeof(af_dynamic_book);
}

static void run(const af_node *n, af_cpu *cpu)
{
    const af_optim_inputs in = af_optim_in(n);
    af_dynamic_book *b = cpu->work;
    const double lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor;
    af_dynamic_book_open(&b[0], true);
    af_dynamic_book_open(&b[1], false);
    adam_8bit_job j = {.n = n,
                       .m = &b[0],
                       .v = &b[1],
                       .count = af_count(in.params),
                       .lr = (float)lr,
                       .keep = (float)(1 - lr * n->attr.optim.weight_decay),
                       .clip = (float)af_ld(in.stats, AF_STATS_CLIP),
                       .c1 = (float)af_ld(in.hyper, AF_HYPER_CORRECTION1),
                       .c2 = (float)af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT),
                       .b1 = (float)n->attr.optim.beta1,
                       .b2 = (float)n->attr.optim.beta2,
                       .rest1 = (float)(1 - n->attr.optim.beta1),
                       .rest2 = (float)(1 - n->attr.optim.beta2),
                       .eps = (float)n->attr.optim.eps,
                       .finite = af_ld(in.stats, AF_STATS_FINITE) == 1};
    af_pool_run(cpu->pool, (j.count + BLOCK - 1) / BLOCK, blocks, &j);
}

static const af_cpu_op op = {run, work};

const af_cpu_op *af_adam_8bit_fast(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    return in.params->dtype != AF_DTYPE_F64 && in.grads->dtype == AF_DTYPE_F32 ? &op : NULL;
}
