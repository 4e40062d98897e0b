/* glu_cuda.c - launchers of glu.c: each row is cut among blocks, one access per operand and thread.
 */
#include "ops/common/cuda_ops.h"
#include "ops/glu/glu_adapter.h"

enum { THREADS = 256 };

static af_kernel *kernel(af_cuda *cu, const char *name, const af_node *n, int vec)
{
    return af_cuda_kernel(cu, "glu.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_ACT=%d",
                                       af_cuda_ctype(n->in[0]->dtype), vec, n->attr.glu.act));
}

static void clamped(af_cuda *cu, af_node *n, const af_tensor *dy)
{
    const af_tensor *x = n->in[0], *out = n->out[0];
    int threads;
    const int64_t F = af_last(x) / 2, cuts = af_cuda_cuts(F, THREADS, &threads);
    af_kernel *k = af_cuda_kernel(cu, "glu_clamped.cu", dy ? "glu_clamped_bwd" : "glu_clamped_fwd",
                                  af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(x->dtype)));
    af_launch *l = af_cuda_launch(cu, n, k, af_rows(x) * cuts, 1, 1, threads, 0);
    af_arg_ptr(l, out->data);
    af_arg_ptr(l, x->data);
    if (dy)
        af_arg_ptr(l, dy->data);
    af_arg_i32(l, F);
    af_arg_i32(l, cuts);
    af_arg_i64(l, out->ld);
    af_arg_i64(l, x->ld);
    if (dy)
        af_arg_i64(l, dy->ld);
    af_arg_f32(l, (float)n->attr.glu.limit);
}

static af_status glu_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const bool back = n->op == AF_OP_GLU_BWD;
    const af_tensor *x = n->in[0], *dy = back ? n->in[1] : NULL, *out = n->out[0];
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    const int64_t F = af_last(x) / 2, rows = af_rows(x);
    const int wide = af_cuda_wide(x);
    const bool fits = F % wide == 0 && af_cuda_rows_fit(x, wide) && af_cuda_rows_fit(dy, wide) &&
                      af_cuda_rows_fit(out, wide);
    const int vec = fits ? wide : 1;
    int threads;
    const int64_t cuts = af_cuda_cuts(F / vec, THREADS, &threads);
    if (rows == 0)
        return AF_OK;
    if (n->attr.glu.limit > 0) {
        clamped(cu, n, dy);
        return AF_OK;
    }
    bool written;
    if (af_glu_adapter_launch(cu, g, n, &written) && written)
        return AF_OK;
    cu->probe = !written; /* af_fp8_measure compares a product of codes with that of the rows */
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, back ? "glu_bwd" : "glu_fwd", n, vec),
                                  rows * cuts, 1, 1, threads, 0);
    af_arg_ptr(l, out->data);
    if (back)
        af_arg_ptr(l, NULL); /* h: not wanted */
    af_arg_ptr(l, x->data);
    if (back)
        af_arg_ptr(l, dy->data);
    af_arg_i32(l, F);
    af_arg_i32(l, cuts);
    af_arg_i64(l, out->ld);
    if (back)
        af_arg_i64(l, 0);
    af_arg_i64(l, x->ld);
    if (back)
        af_arg_i64(l, dy->ld);
    cu->probe = false;
    return AF_OK;
}

const af_cuda_op af_cuda_glu = {glu_prepare, af_glu_adapter_work, true};
const af_cuda_op af_cuda_glu_bwd = {glu_prepare, af_glu_adapter_work, true};
