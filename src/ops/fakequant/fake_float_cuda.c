/* fake_float_cuda.c - launcher of fake_float.c. */
#include "ops/common/cuda_ops.h"
#include "ops/fakequant/fake_float.h"

enum { THREADS = 256 };

static int64_t blocks_of(const af_cuda *cu, const af_node *n)
{
    return af_cuda_grid(cu, af_count(n->in[0]), THREADS);
}

static uint64_t fake_float_work(const af_cuda *cu, const af_node *n)
{
    return n->attr.fake_float.type == AF_QAT_NVFP4 ? (uint64_t)blocks_of(cu, n) * 4 : 0;
}

static af_kernel *kernel(af_cuda *cu, const char *name, const af_node *n)
{
    return af_cuda_kernel(cu, "fake_float.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_U=%s", af_cuda_ctype(n->in[0]->dtype),
                                       af_cuda_ctype(n->out[0]->dtype)));
}

static af_status fake_float_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0], *y = n->out[0];
    const int64_t count = af_count(x), blocks = blocks_of(cu, n);
    const bool nvfp4 = n->attr.fake_float.type == AF_QAT_NVFP4;
    af_launch *l;
    if (!af_cuda_float(x) || !af_cuda_float(y))
        return af_cuda_no_type(n, af_cuda_float(x) ? y : x, err);
    if (count == 0)
        return AF_OK;
    if (n->attr.fake_float.type == AF_QAT_FP8) {
        l = af_cuda_launch(cu, n, kernel(cu, "fake_float8", n), af_rows(x), 1, 1, THREADS, 0);
        af_arg_ptr(l, y->data);
        af_arg_ptr(l, x->data);
        af_arg_i32(l, af_last(x));
        return AF_OK;
    }
    if (nvfp4) {
        l = af_cuda_launch(cu, n, kernel(cu, "float_most", n), blocks, 1, 1, THREADS, 0);
        af_arg_ptr(l, cu->work);
        af_arg_ptr(l, x->data);
        af_arg_i64(l, count);
        af_arg_i32(l, af_last(x));
        af_arg_ptr(l, n->n_in > 1 ? n->in[1]->data : NULL);
    }
    l = af_cuda_launch(cu, n, kernel(cu, "fake_float4", n), blocks, 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, nvfp4 ? cu->work : NULL);
    af_arg_i32(l, nvfp4 ? blocks : 0);
    af_arg_i64(l, count);
    af_arg_i32(l, nvfp4 ? 16 : 32);
    return AF_OK;
}

const af_cuda_op af_cuda_fake_float = {fake_float_prepare, fake_float_work, false};
