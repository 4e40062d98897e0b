/* rank_gather_cuda.c - see rank_gather.c. The offset of nested scales is an argument of the kernels
 * that read them (af_gathered_from). */
#include "ops/ranks/rank_cuda.h"

static af_status rank_gather_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)err;
    const af_shard *s = &g->shard;
    for (int k = 0; k < n->n_in; k++) {
        const int64_t *cut = n->in[k]->cut, from = cut[s->rank];
        uint8_t *whole = n->out[k]->data;
        af_cuda_copy(cu, n, whole + from, n->in[k]->data, (uint64_t)(cut[s->rank + 1] - from));
        af_cuda_gather_pieces(cu, n, whole, 1, s->rank, s->ranks, cut);
    }
    return AF_OK;
}

const af_cuda_op af_cuda_rank_gather = {.prepare = rank_gather_prepare};
