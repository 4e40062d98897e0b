/* rank_sum_cpu.c - see rank_sum.c. */
#include "backend/cpu/cpu.h"
#include "tensor/dtype.h"

static void rank_sum_run(const af_node *n, af_cpu *cpu)
{
    const af_exchange *e = &n->in[0]->graph->exchange;
    const int64_t *cut = n->attr.ranks.cut;
    float *x = n->in[0]->data;
    cpu->failed = e->sum(e->user, x, cut, cpu->err);
    if (cpu->failed == AF_OK && n->n_in > 1)
        memcpy(n->in[1]->data, x + cut[n->attr.ranks.rank], af_tensor_bytes(n->in[1]));
}

static void rank_join_run(const af_node *n, af_cpu *cpu)
{
    const af_exchange *e = &n->in[0]->graph->exchange;
    const uint64_t size = af_dtype_get(n->in[0]->dtype)->bytes; /* gradients, or parameters */
    cpu->failed = e->gather(e->user, n->in[0]->data, size, n->attr.ranks.cut, cpu->err);
}

const af_cpu_op af_cpu_rank_sum = {rank_sum_run, NULL};
const af_cpu_op af_cpu_rank_join = {rank_join_run, NULL};
