/* row_pick_cuda.c - launcher of row_pick.c. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 256 };

static af_status row_pick_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_tensor *x = n->in[0], *y = n->out[0];
    (void)g;
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (af_rows(y) == 0)
        return AF_OK;
    const int wide = af_cuda_wide(x);
    const bool fits =
        af_last(x) % wide == 0 && af_cuda_rows_fit(x, wide) && af_cuda_rows_fit(y, wide);
    const int vec = fits ? wide : 1,
              lanes = af_cuda_lanes((int)AF_MIN(af_last(x), (int64_t)1 << 20), vec);
    af_kernel *k =
        af_cuda_kernel(cu, "row_pick.cu", "row_pick",
                       af_cuda_text(cu, "AF_T=%s AF_VEC=%d", af_cuda_ctype(x->dtype), vec));
    af_launch *l =
        af_cuda_launch(cu, n, k, (af_rows(y) * lanes + THREADS - 1) / THREADS, 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, x->ld);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_i64(l, af_rows(y));
    af_arg_i32(l, af_last(x));
    af_arg_i32(l, lanes);
    return AF_OK;
}

const af_cuda_op af_cuda_row_pick = {row_pick_prepare, NULL, true};
