#include "ops/common/cuda_ops.h"
static af_status no(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)cu;
    (void)g;
    return af_cuda_no_type(n, n->in[0], err);
}
const af_cuda_op af_cuda_conv = {no, NULL, true}, af_cuda_conv_bwd = {no, NULL, true},
                 af_cuda_conv_dw = {no, NULL, true}, af_cuda_conv_cached = {no, NULL, true},
                 af_cuda_scan = {no, NULL, true}, af_cuda_scan_bwd = {no, NULL, true},
                 af_cuda_scan_cached = {no, NULL, true}, af_cuda_softplus = {no, NULL, true},
                 af_cuda_softplus_bwd = {no, NULL, true}, af_cuda_gated_norm = {no, NULL, true},
                 af_cuda_gated_norm_bwd = {no, NULL, true},
                 af_cuda_gated_norm_dw = {no, NULL, true};
