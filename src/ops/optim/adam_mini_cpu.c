/* adam_mini_cpu.c - ADAM_MINI of optimizer.c: the twin in double, and the fast version in f32.
 *
 * With g = gradient * clip, of a block of neighbours that share one v:
 *   v = b2 v + (1-b2) mean g^2;  w -= lr wd w;  m = b1 m + (1-b1) g;
 *   w -= lr / c1 * m / (sqrt(v) / c2 + eps)
 * A block is summed by one thread: results do not depend on how many there are. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { RUN = 512 };

typedef struct mini_job {
    const af_node *n;
    af_optim_inputs in;
    int64_t blocks, size; /* of one: elements */
    double lr, keep, clip, c1, c2;
    bool finite;
} mini_job;

static mini_job job_of(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    mini_job j = {.n = n, .in = in, .blocks = af_count(in.state[1])};
    j.size = j.blocks ? af_count(in.params) / j.blocks : 0;
    j.lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor;
    j.keep = 1 - j.lr * n->attr.optim.weight_decay;
    j.clip = af_ld(in.stats, AF_STATS_CLIP);
    j.c1 = af_ld(in.hyper, AF_HYPER_CORRECTION1);
    j.c2 = af_ld(in.hyper, AF_HYPER_CORRECTION2_SQRT);
    j.finite = af_ld(in.stats, AF_STATS_FINITE) == 1;
    return j;
}

/* The new v of a block with these squares in all; the factor of m in its step. */
static double step_size(const mini_job *j, int64_t block, double squares)
{
    const double b2 = j->n->attr.optim.beta2;
    af_tensor *v = j->in.state[1];
    af_st(v, block, b2 * af_ld(v, block) + (1 - b2) * squares / (double)j->size);
    return j->lr / j->c1 / (sqrt(af_ld(v, block)) / j->c2 + j->n->attr.optim.eps);
}

static void twin_blocks(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const mini_job *j = arg;
    af_tensor *w = j->in.params, *g = j->in.grads, *m = j->in.state[0];
    const double b1 = j->n->attr.optim.beta1;
    for (int64_t b = from; b < to; b++) {
        const int64_t first = b * j->size, end = first + j->size;
        double squares = 0;
        for (int64_t i = first; i < end; i++)
            squares += af_ld(g, i) * j->clip * af_ld(g, i) * j->clip;
        const double step = j->finite ? step_size(j, b, squares) : 0;
        for (int64_t i = first; i < end; i++) {
            if (j->finite) {
                af_st(m, i, b1 * af_ld(m, i) + (1 - b1) * af_ld(g, i) * j->clip);
                af_st(w, i, j->keep * af_ld(w, i) - step * af_ld(m, i));
            }
            af_st(g, i, 0);
        }
    }
}

static void fast_blocks(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const mini_job *j = arg;
    const af_fast *f = af_fast_get();
    const double b1 = j->n->attr.optim.beta1;
    const float keep = (float)j->keep, old = (float)b1, new = (float)((1 - b1) * j->clip);
    for (int64_t b = from; b < to; b++) {
        float *restrict w = (float *)j->in.params->data + b * j->size;
        float *restrict g = (float *)j->in.grads->data + b * j->size;
        float *restrict m = (float *)j->in.state[0]->data + b * j->size;
        double squares = 0;
        for (int64_t i = 0; i < j->size; i += RUN)
            squares += (double)f->sum_squares(g + i, AF_MIN((int64_t)RUN, j->size - i));
        const float step = j->finite ? (float)step_size(j, b, squares * j->clip * j->clip) : 0;
        for (int64_t i = 0; i < j->size && j->finite; i++) {
            m[i] = old * m[i] + new *g[i];
            w[i] = keep * w[i] - step * m[i];
        }
        memset(g, 0, (size_t)j->size * sizeof *g);
    }
}

static void twin_run(const af_node *n, af_cpu *cpu)
{
    mini_job j = job_of(n);
    af_pool_run(cpu->pool, j.blocks, twin_blocks, &j);
}

static void fast_run(const af_node *n, af_cpu *cpu)
{
    mini_job j = job_of(n);
    af_pool_run(cpu->pool, j.blocks, fast_blocks, &j);
}

const af_cpu_op af_cpu_adam_mini = {twin_run, NULL};

const af_cpu_op *af_adam_mini_fast(const af_node *n)
{
    static const af_cpu_op fast = {fast_run, NULL};
    return n->in[0]->dtype == AF_DTYPE_F32 ? &fast : NULL;
}
