/* noise_cuda.c - the launcher of noise.c: one block per row. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 128 };

static af_status noise_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0], *y = n->out[0];
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (af_count(x) == 0)
        return AF_OK;
    af_kernel *k = af_cuda_kernel(cu, "noise.cu", "noise",
                                  af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(x->dtype)));
    af_launch *l = af_cuda_launch(cu, n, k, af_rows(x), 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_ptr(l, n->in[2]->data);
    af_arg_u64(l, n->attr.noise.stream);
    af_arg_f64(l, n->attr.noise.alpha);
    af_arg_i32(l, n->in[1]->dim[0] - 1);
    af_arg_i32(l, af_last(x));
    af_arg_i64(l, y->ld);
    af_arg_i64(l, x->ld);
    return AF_OK;
}

const af_cuda_op af_cuda_noise = {noise_prepare, NULL, false};
