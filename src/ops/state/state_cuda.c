/* state_cuda.c - launchers of the ops with a state: the CPU alone has them so far. */
#include "ops/common/cuda_ops.h"

static af_status prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)cu;
    (void)g;
    return af_fail(err, AF_EUNSUPPORTED, "%s runs on the CPU only", af_ops[n->op]->name);
}

const af_cuda_op af_cuda_conv = {prepare, NULL, true};
const af_cuda_op af_cuda_conv_bwd = {prepare, NULL, true};
const af_cuda_op af_cuda_conv_dw = {prepare, NULL, true};
const af_cuda_op af_cuda_conv_cached = {prepare, NULL, true};
const af_cuda_op af_cuda_scan = {prepare, NULL, true};
const af_cuda_op af_cuda_scan_bwd = {prepare, NULL, true};
const af_cuda_op af_cuda_scan_cached = {prepare, NULL, true};
const af_cuda_op af_cuda_softplus = {prepare, NULL, true};
const af_cuda_op af_cuda_softplus_bwd = {prepare, NULL, true};
const af_cuda_op af_cuda_gated_norm = {prepare, NULL, true};
const af_cuda_op af_cuda_gated_norm_bwd = {prepare, NULL, true};
const af_cuda_op af_cuda_gated_norm_dw = {prepare, NULL, true};
