/* rank_gather_cuda.c - not on a GPU yet: runs there split the optimizer's state alone. */
#include "backend/cuda/cuda.h"

static af_status rank_gather_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)cu, (void)g, (void)n;
    return af_fail(err, AF_EUNSUPPORTED, "split weights do not run on a GPU yet");
}

const af_cuda_op af_cuda_rank_gather = {.prepare = rank_gather_prepare};
