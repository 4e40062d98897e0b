/* rank_gather_cuda.c - see rank_gather.c. The offset of nested scales is an argument of the kernels
 * that read them (af_gathered_from). */
#include "ops/ranks/rank_cuda.h"

static af_status rank_gather_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)err;
    const af_shard *s = &g->shard;
    af_pieces p[AF_NODE_OUT_MAX];
    for (int k = 0; k < n->n_in; k++) {
        const int64_t *cut = n->in[k]->cut, from = cut[s->rank];
        p[k] = (af_pieces){n->out[k]->data, 1, cut};
        af_cuda_copy(cu, n, (uint8_t *)n->out[k]->data + from, n->in[k]->data,
                     (uint64_t)(cut[s->rank + 1] - from));
    }
    af_cuda_gather_pieces(cu, n, p, n->n_in, s->rank, s->ranks);
    return AF_OK;
}

const af_cuda_op af_cuda_rank_gather = {.prepare = rank_gather_prepare};
