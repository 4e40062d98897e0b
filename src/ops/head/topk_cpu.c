/* topk_cpu.c - the twin of topk.c. */
#include "backend/cpu/cpu.h"

static void expand_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const int64_t K = af_last(n->in[0]), V = af_last(n->out[0]);
    const int32_t *id = n->in[0]->data;
    const float *x = n->in[1]->data, rest = (float)n->attr.fill.value;
    (void)share;
    for (int64_t r = from; r < to; r++) {
        float *y = (float *)n->out[0]->data + r * V;
        for (int64_t v = 0; v < V; v++)
            y[v] = rest;
        for (int64_t k = 0; k < K; k++)
            if (id[r * K + k] >= 0)
                y[id[r * K + k]] = x[r * K + k];
    }
}

static void expand_topk_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->out[0]), expand_rows, (void *)n);
}

const af_cpu_op af_cpu_expand_topk = {expand_topk_run, NULL};
