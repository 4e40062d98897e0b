/* ternary_cuda.c - launcher of TERNARY in fakequant.c. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 256 };

static int64_t blocks_of(const af_cuda *cu, const af_node *n)
{
    return af_cuda_grid(cu, af_count(n->in[0]), THREADS);
}

static uint64_t ternary_work(const af_cuda *cu, const af_node *n)
{
    return (uint64_t)blocks_of(cu, n) * sizeof(float);
}

static af_status ternary_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *w = n->in[0], *y = n->out[0];
    const int64_t count = af_count(w), blocks = blocks_of(cu, n);
    if (!af_cuda_float(w) || !af_cuda_float(y))
        return af_cuda_no_type(n, af_cuda_float(w) ? y : w, err);
    if (count == 0)
        return AF_OK;
    const char *types =
        af_cuda_text(cu, "AF_T=%s AF_U=%s", af_cuda_ctype(w->dtype), af_cuda_ctype(y->dtype));
    af_launch *l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "ternary.cu", "ternary_sum", types),
                                  blocks, 1, 1, THREADS, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, w->data);
    af_arg_i64(l, count);
    l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "ternary.cu", "ternary", types), blocks, 1, 1,
                       THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, w->data);
    af_arg_ptr(l, cu->work);
    af_arg_i32(l, blocks);
    af_arg_i64(l, count);
    return AF_OK;
}

const af_cuda_op af_cuda_ternary = {ternary_prepare, ternary_work, false};
