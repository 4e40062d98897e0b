/* checkpoint_size.c - bytes of what a run writes. */
#include "graph/graph_access.h"
#include "tensor/dtype.h"
#include "train/checkpoint/checkpoint.h"

static uint64_t stored_bytes(const af_step_graph *g, af_role role)
{
    uint64_t n = 0;
    for (af_tensor *x = NULL; (x = af_graph_next(g->graph, role, x));)
        n += af_tensor_is_stored(x) ? af_tensor_bytes(x) : 0;
    return n;
}

uint64_t af_trained_bytes(const af_step_graph *g)
{
    uint64_t n = 0;
    if (g->model->adapter)
        return stored_bytes(g, AF_ROLE_PARAM);
    for (int i = 0; i < g->model->spec->tensors; i++)
        n += af_tensor_bytes(g->leaves.tensor[i]);
    return n;
}

uint64_t af_checkpoint_bytes(const af_step_graph *g)
{
    uint64_t n = af_trained_bytes(g) + (uint64_t)g->reference_count * sizeof(float);
    if (af_graph_averages(g->graph))
        n += af_tensor_bytes(af_graph_flat_params(g->graph));
    if (!af_checkpoint_is_split(g))
        return n + stored_bytes(g, AF_ROLE_STATE);
    for (const af_state_part *p = af_graph_states(g->graph); p; p = p->next)
        n += (uint64_t)p->full * (uint64_t)af_dtype_get(p->dtype)->bytes;
    return n;
}
