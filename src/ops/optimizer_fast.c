/* optimizer_fast.c - the gradient norm and Adam of optimizer.c on f32 buffers. The norm is summed
 * over fixed pieces in a fixed order, as its twin's is. */
#include "ops/cpu_fast.h"
#include "ops/norm_stats.h"
#include "ops/twin.h"

#include <math.h>

enum { PIECE = 1 << 14, RUN = 512 };

typedef struct job {
    const af_node *n;
    const af_fast *f;
    double *sum; /* one a piece */
    int64_t count;
    af_adam_row k;
} job;

static void norm_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const job *j = arg;
    const float *g = j->n->in[0]->data;
    for (int64_t p = from; p < to; p++) {
        double sum = 0; /* short runs in f32, added up in double: 1e-7 of the norm */
        for (int64_t i = p * PIECE; i < AF_MIN((p + 1) * PIECE, j->count); i += RUN)
            sum += (double)j->f->sum_squares(g + i, AF_MIN((int64_t)RUN, j->count - i));
        j->sum[p] = sum;
    }
}

static void grad_norm_run(const af_node *n, af_cpu *cpu)
{
    job j = {.n = n, .f = af_fast_get(), .sum = cpu->work, .count = af_count(n->in[0])};
    const int64_t pieces = (j.count + PIECE - 1) / PIECE;
    af_pool_run(cpu->pool, pieces, norm_pieces, &j);
    af_norm_stats(n, j.sum, pieces);
}

static uint64_t grad_norm_work(const af_node *n, int threads)
{
    (void)threads;
    return (uint64_t)((af_count(n->in[0]) + PIECE - 1) / PIECE) * sizeof(double);
}

static void adam_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const job *j = arg;
    const int64_t at = from * PIECE, n = AF_MIN(to * PIECE, j->count) - at;
    af_tensor *const *in = j->n->in;
    j->f->adam((float *)in[0]->data + at, (float *)in[1]->data + at, (float *)in[4]->data + at,
               (float *)in[5]->data + at, &j->k, n);
}

static void adam_run(const af_node *n, af_cpu *cpu)
{
    job j = {.n = n, .f = af_fast_get(), .count = af_count(n->in[0])};
    if (af_ld(n->in[3], AF_STATS_FINITE) != 1) { /* no step, and no gradient either */
        memset(n->in[1]->data, 0, (size_t)j.count * sizeof(float));
        return;
    }
    const bool coupled = n->attr.optim.kind == AF_OPTIMIZER_ADAM;
    const double lr = af_ld(n->in[2], AF_HYPER_LR) * n->attr.optim.lr_factor;
    const double decay = n->attr.optim.weight_decay;
    const double b1 = n->attr.optim.beta1, b2 = n->attr.optim.beta2;
    j.k = (af_adam_row){.rate = (float)(lr / af_ld(n->in[2], AF_HYPER_CORRECTION1)),
                        .keep = coupled ? 1.0f : (float)(1 - lr * decay),
                        .l2 = coupled ? (float)decay : 0.0f,
                        .beta1 = (float)b1,
                        .new1 = (float)(1 - b1),
                        .beta2 = (float)b2,
                        .new2 = (float)(1 - b2),
                        .eps = (float)n->attr.optim.eps,
                        .root = (float)(1 / af_ld(n->in[2], AF_HYPER_CORRECTION2_SQRT)),
                        .clip = (float)af_ld(n->in[3], AF_STATS_CLIP)};
    af_pool_run(cpu->pool, (j.count + PIECE - 1) / PIECE, adam_pieces, &j);
}

static const af_cpu_op norm_op = {grad_norm_run, grad_norm_work}, adam_op = {adam_run, NULL};

const af_cpu_op *af_grad_norm_fast(const af_node *n)
{
    return n->in[0]->dtype == AF_DTYPE_F32 ? &norm_op : NULL;
}
const af_cpu_op *af_adam_fast(const af_node *n)
{
    for (int i = 0; i < 6; i++)
        if (n->in[i]->dtype != AF_DTYPE_F32)
            return NULL;
    return &adam_op;
}
