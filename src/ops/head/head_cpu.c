/* head_cpu.c - the twin of head.c: TILE rows at a time, their logits as [V][TILE] doubles. */
#include "backend/cpu/cpu.h"
#include "ops/head/head_in.h"

#include <math.h>

enum { TILE = 32 };

typedef struct head_job {
    const af_node *n;
    const af_tensor *w;
    int64_t D, V, row; /* first row of the tile */
    int m;             /* rows of the tile */
    bool dh, dw;
    double scale;
    const float *weight; /* [N], of the gradients of rows; or NULL */
    double *h;           /* [D][TILE]: the tile transposed */
    double *z;           /* [V][TILE]: logits, then their gradients */
    double *wrow;        /* [threads][D] */
    double *sum;         /* [TILE][D]: dh */
    double loss[TILE];
} head_job;

static void load_h(head_job *j)
{
    const af_head_inputs in = af_head_in(j->n);
    for (int t = 0; t < TILE; t++)
        for (int64_t d = 0; d < j->D; d++)
            j->h[d * TILE + t] = t < j->m ? af_ld(in.h, (j->row + t) * j->D + d) : 0;
}

static void logits(void *arg, int64_t from, int64_t to, int share)
{
    const head_job *j = arg;
    double *w = j->wrow + share * j->D;
    const double factor = j->n->attr.head.logit_scale, cap = j->n->attr.head.softcap;
    for (int64_t v = from; v < to; v++) {
        double sum[TILE] = {0};
        af_ld_row(j->w, v * j->D, j->D, w);
        for (int64_t d = 0; d < j->D; d++)
            for (int t = 0; t < TILE; t++)
                sum[t] += w[d] * j->h[d * TILE + t];
        for (int t = 0; t < TILE; t++) {
            const double z = factor * sum[t];
            j->z[v * TILE + t] = cap > 0 ? cap * tanh(z / cap) : z;
        }
    }
}

/* Logits of row t become the gradient of the loss by h.w, before softcap and logit_scale. */
static void row_gradient(head_job *j, int t, int32_t label, double lse)
{
    const double s = j->n->attr.head.smoothing, cap = j->n->attr.head.softcap,
                 scale = j->weight ? (double)j->weight[j->row + t] : j->scale;
    for (int64_t v = 0; v < j->V; v++) {
        const double z = j->z[v * TILE + t];
        double g = exp(z - lse) - s / (double)j->V - (v == label ? 1 - s : 0);
        if (cap > 0)
            g *= 1 - (z / cap) * (z / cap);
        j->z[v * TILE + t] = g * scale * j->n->attr.head.logit_scale;
    }
}

/* Columns 2 to 4 of rows. */
static void put_stats(const head_job *j, int t, double lse, double all)
{
    double mean = 0, squares = 0;
    for (int64_t v = 0; v < j->V; v++) {
        const double p = exp(j->z[v * TILE + t] - lse);
        mean += p * j->z[v * TILE + t];
        squares += p * p;
    }
    const int64_t at = AF_HEAD_STATS * (j->row + t);
    af_st(j->n->out[1], at + 2, lse - mean);
    af_st(j->n->out[1], at + 3, all / (double)j->V);
    af_st(j->n->out[1], at + 4, log(squares)); // cppcheck-suppress invalidFunctionArg ; V > 0
}

static void softmax_rows(void *arg, int64_t from, int64_t to, int share)
{
    head_job *j = arg;
    const af_head_inputs in = af_head_in(j->n);
    const double s = j->n->attr.head.smoothing;
    (void)share;
    for (int t = (int)from; t < (int)to; t++) {
        const int32_t label = ((const int32_t *)in.labels->data)[j->row + t];
        const int64_t columns = af_last(j->n->out[1]), at = columns * (j->row + t);
        double max = -INFINITY, sum = 0, all = 0;
        int64_t best = 0;
        j->loss[t] = 0;
        if (label == -100) {
            for (int64_t v = 0; v < j->V; v++)
                j->z[v * TILE + t] = 0;
            for (int64_t k = 0; k < columns; k++)
                af_st(j->n->out[1], at + k, 0);
            continue;
        }
        assert(label >= 0 && label < j->V);
        for (int64_t v = 0; v < j->V; v++) {
            const double z = j->z[v * TILE + t];
            best = z > max ? v : best;
            max = fmax(max, z);
            all += z;
        }
        for (int64_t v = 0; v < j->V; v++)
            sum += exp(j->z[v * TILE + t] - max);
        const double lse = max + log(sum);
        j->loss[t] = lse - (1 - s) * j->z[label * TILE + t] - s * all / (double)j->V;
        af_st(j->n->out[1], at, j->loss[t]);
        af_st(j->n->out[1], at + 1, best == label);
        if (j->n->attr.head.stats)
            put_stats(j, t, lse, all);
        if (j->dh || j->dw)
            row_gradient(j, t, label, lse);
    }
}

static void dh_rows(void *arg, int64_t from, int64_t to, int share)
{
    const head_job *j = arg;
    double *w = j->wrow + share * j->D;
    memset(j->sum + from * j->D, 0, (size_t)((to - from) * j->D) * sizeof *j->sum);
    for (int64_t v = 0; v < j->V; v++) {
        af_ld_row(j->w, v * j->D, j->D, w);
        for (int64_t t = from; t < to; t++) {
            const double g = j->z[v * TILE + t];
            for (int64_t d = 0; d < j->D; d++)
                j->sum[t * j->D + d] += g * w[d];
        }
    }
    af_st_row(j->n->out[2], (j->row + from) * j->D, (to - from) * j->D, j->sum + from * j->D);
}

static void dw_rows(void *arg, int64_t from, int64_t to, int share)
{
    const head_job *j = arg;
    af_tensor *dw = j->n->out[3];
    (void)share;
    for (int64_t v = from; v < to; v++)
        for (int64_t d = 0; d < j->D; d++) {
            double sum = 0;
            for (int t = 0; t < j->m; t++)
                sum += j->z[v * TILE + t] * j->h[d * TILE + t];
            const bool add = j->n->accumulate || j->row > 0;
            af_st(dw, v * j->D + d, add ? af_ld(dw, v * j->D + d) + sum : sum);
        }
}

static void head_loss_run(const af_node *n, af_cpu *cpu)
{
    const af_head_inputs in = af_head_in(n);
    const bool back = cpu->what & (AF_RUN_BACKWARD | AF_RUN_KEEP);
    head_job j = {.n = n, .w = in.w, .D = in.w->dim[1], .V = in.w->dim[0]};
    j.dh = back && n->attr.head.dh;
    j.dw = back && n->attr.head.dw;
    j.scale = in.scale ? af_ld(in.scale, 0) : 1;
    j.weight = n->attr.head.weighs ? in.weights->data : NULL;
    j.h = cpu->work;
    j.z = j.h + j.D * TILE;
    j.sum = j.z + j.V * TILE;
    j.wrow = j.sum + TILE * j.D;
    const int64_t N = af_live(in.h);
    double total = 0;
    if (N == 0 && j.dw && !n->accumulate)
        memset(n->out[3]->data, 0, af_tensor_extent(n->out[3]));
    for (j.row = 0; j.row < N; j.row += TILE) {
        j.m = (int)AF_MIN(N - j.row, (int64_t)TILE);
        load_h(&j);
        af_pool_run(cpu->pool, j.V, logits, &j);
        af_pool_run(cpu->pool, j.m, softmax_rows, &j);
        for (int t = 0; t < j.m; t++)
            total += j.loss[t];
        if (j.dh)
            af_pool_run(cpu->pool, j.m, dh_rows, &j);
        if (j.dw)
            af_pool_run(cpu->pool, j.V, dw_rows, &j);
    }
    af_st(n->out[0], 0, total * j.scale);
}

static uint64_t head_loss_work(const af_node *n, int threads)
{
    const af_head_inputs in = af_head_in(n);
    const int64_t V = in.w->dim[0], D = in.w->dim[1];
    return (uint64_t)((2 * D + V) * TILE + threads * D) * sizeof(double);
}

static void weigh_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const int64_t D = af_last(n->in[0]);
    (void)share;
    for (int64_t r = from; r < to; r++)
        for (int64_t d = 0; d < D; d++)
            af_st(n->out[0], r * D + d, af_ld(n->in[0], r * D + d) * af_ld(n->in[1], r));
}

static void head_weigh_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), weigh_rows, (void *)n);
}

const af_cpu_op af_cpu_head_weigh = {head_weigh_run, NULL};
const af_cpu_op af_cpu_head_loss = {head_loss_run, head_loss_work};
