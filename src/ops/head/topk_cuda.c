/* topk_cuda.c - launcher of topk.c. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 512 };

static af_status expand_topk_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_tensor *y = n->out[0];
    (void)g, (void)err;
    if (af_rows(y) == 0)
        return AF_OK;
    af_kernel *k = af_cuda_kernel(cu, "topk.cu", "expand_topk", "AF_T=float");
    af_launch *l = af_cuda_launch(cu, n, k, af_rows(y), 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_ptr(l, n->in[0]->data);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_i32(l, af_last(n->in[0]));
    af_arg_i32(l, af_last(y));
    af_arg_f32(l, n->attr.fill.value);
    return AF_OK;
}

const af_cuda_op af_cuda_expand_topk = {expand_topk_prepare, NULL, true};
