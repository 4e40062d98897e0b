/* rank_gather_cpu.c - see rank_gather.c. */
#include "backend/cpu/cpu.h"

static void rank_gather_run(const af_node *n, af_cpu *cpu)
{
    const af_graph *g = n->in[0]->graph;
    for (int k = 0; k < n->n_in && cpu->failed == AF_OK; k++) {
        const int64_t *cut = n->in[k]->cut, from = cut[g->shard.rank];
        uint8_t *whole = n->out[k]->data;
        const uint64_t bytes = (uint64_t)(cut[g->shard.rank + 1] - from);
        if (bytes)
            memcpy(whole + from, n->in[k]->data, bytes);
        cpu->failed = g->exchange.gather(g->exchange.user, whole, 1, cut, cpu->err);
    }
    if (n->in[0]->quant) /* known when the weight was quantised */
        n->out[0]->quant->offset = n->in[0]->quant->offset;
}

const af_cpu_op af_cpu_rank_gather = {rank_gather_run, NULL};
