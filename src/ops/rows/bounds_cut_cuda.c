/* bounds_cut_cuda.c - launcher of bounds_cut.c. */
#include "ops/common/cuda_ops.h"

static af_status bounds_cut_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    (void)err;
    af_launch *l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "bounds_cut.cu", "bounds_cut", ""), 1,
                                  1, 1, 32, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->in[0]->data);
    af_arg_i32(l, n->in[0]->dim[0] - 1);
    af_arg_i32(l, n->out[0]->dim[0]);
    af_arg_i32(l, AF_MIN(n->attr.cut.chunk, INT32_MAX));
    return AF_OK;
}

const af_cuda_op af_cuda_bounds_cut = {bounds_cut_prepare, NULL, true};
