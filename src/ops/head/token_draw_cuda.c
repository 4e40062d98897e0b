/* token_draw_cuda.c - launcher of token_draw.c. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 512, CLUSTER = 8 /* blocks that read a row, where there are few */ };

static af_status token_draw_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_tensor *x = n->in[0];
    (void)g;
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (af_rows(x) == 0)
        return AF_OK;
    const int wide = af_cuda_wide(x), vec = af_cuda_rows_fit(x, wide) ? wide : 1;
    const int shared = cu->arch >= 90 && af_rows(x) * CLUSTER <= cu->sms ? CLUSTER : 1;
    af_kernel *k = af_cuda_kernel(
        cu, "token_draw.cu", "token_draw",
        af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_KS=%d", af_cuda_ctype(x->dtype), vec, shared));
    af_launch *l = af_cuda_launch(cu, n, k, af_rows(x) * shared, 1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, x->ld);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_i32(l, af_last(x));
    return AF_OK;
}

const af_cuda_op af_cuda_token_draw = {token_draw_prepare, NULL, true};
