/* loss_cuda.c - launchers of loss.c. Cross-entropy uses the rows of head.cu; its gradient is made
 * in place in a copy of x. */
#include "ops/common/cuda_ops.h"
#include "ops/head/head_in.h"

enum { THREADS = 256, PARTS = 512, ROW_THREADS = 1024 };

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *x)
{
    return af_cuda_kernel(cu, "loss.cu", name,
                          af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(x->dtype)));
}

static int64_t parts_of(const af_node *n)
{
    const af_loss_inputs in = af_loss_in(n);
    const int64_t need = (af_count(in.x) + THREADS - 1) / THREADS;
    return AF_MAX(AF_MIN(need, (int64_t)PARTS), INT64_C(1));
}

/* Parts; or one loss and one hit per row, and the scale of the gradient. */
static uint64_t loss_work(const af_cuda *cu, const af_node *n)
{
    const af_loss_inputs in = af_loss_in(n);
    (void)cu;
    const int64_t rows = n->attr.loss.kind == AF_LOSS_CE ? 2 * af_rows(in.x) + 1 : parts_of(n);
    return (uint64_t)rows * sizeof(float);
}

static double divisor(const af_node *n)
{
    const af_loss_inputs in = af_loss_in(n);
    return (double)(n->attr.loss.kind == AF_LOSS_KL ? af_rows(in.x) : af_count(in.x));
}

/* Losses of the rows of `logits` (x, or a copy of it that becomes the gradient). */
static void launch_rows(af_cuda *cu, af_node *n, void *logits, const float *scale, bool grad)
{
    const af_loss_inputs in = af_loss_in(n);
    const af_tensor *x = in.x;
    const int wide = af_cuda_wide(x);
    const bool fits = af_cuda_rows_fit(x, wide) && (uintptr_t)logits % AF_CUDA_ACCESS == 0;
    float *row_loss = cu->work;
    af_kernel *k = af_cuda_kernel(cu, "head.cu", "head_rows",
                                  af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_GRAD=%d AF_STATS=0",
                                               af_cuda_ctype(x->dtype), fits ? wide : 1, grad));
    af_launch *l = af_cuda_launch(cu, n, k, af_rows(x), 1, 1, ROW_THREADS, 0);
    af_arg_ptr(l, logits);
    af_arg_i64(l, af_last(x));
    af_arg_ptr(l, in.target->data);
    af_arg_ptr(l, scale);
    af_arg_ptr(l, row_loss);
    af_arg_ptr(l, row_loss + af_rows(x));
    af_arg_i32(l, af_last(x));
    af_arg_f32(l, 1);
    af_arg_f32(l, 0);
    af_arg_f32(l, n->attr.loss.value);
    af_arg_ptr(l, NULL);
    af_arg_i32(l, 0);
}

static void launch_divide(af_cuda *cu, af_node *n, void *out, const float *row_loss,
                          const void *dloss)
{
    const af_loss_inputs in = af_loss_in(n);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "loss_rows", in.x), 1, 1, 1, ROW_THREADS, 0);
    af_arg_ptr(l, out);
    af_arg_ptr(l, row_loss);
    af_arg_ptr(l, in.target->data);
    af_arg_ptr(l, dloss);
    af_arg_i64(l, af_rows(in.x));
}

static af_status loss_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_loss_inputs in = af_loss_in(n);
    (void)g;
    const af_tensor *x = in.x;
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (n->attr.loss.kind == AF_LOSS_CE) {
        launch_rows(cu, n, x->data, NULL, false);
        launch_divide(cu, n, n->out[0]->data, cu->work, NULL);
        return AF_OK;
    }
    const int64_t parts = parts_of(n);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "loss_parts", x), parts, 1, 1, THREADS, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, in.target->data);
    af_arg_i32(l, n->attr.loss.kind);
    af_arg_f32(l, n->attr.loss.value);
    af_arg_i64(l, af_count(x));
    l = af_cuda_launch(cu, n, kernel(cu, "loss_final", x), 1, 1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, cu->work);
    af_arg_i64(l, parts);
    af_arg_f32(l, divisor(n));
    return AF_OK;
}

static af_status loss_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_loss_inputs in = af_loss_in(n);
    (void)g;
    const af_tensor *x = in.x, *dx = n->out[0], *dloss = in.dloss;
    const int64_t count = af_count(x);
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (n->attr.loss.kind == AF_LOSS_CE) {
        float *scale = (float *)cu->work + 2 * af_rows(x);
        launch_divide(cu, n, scale, NULL, dloss->data);
        af_cuda_copy(cu, n, dx->data, x->data, af_tensor_extent(x));
        launch_rows(cu, n, dx->data, scale, true);
        return AF_OK;
    }
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "loss_bwd", x),
                                  af_cuda_grid(cu, count, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, dx->data);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, in.target->data);
    af_arg_ptr(l, dloss->data);
    af_arg_i32(l, n->attr.loss.kind);
    af_arg_f32(l, n->attr.loss.value);
    af_arg_i64(l, count);
    af_arg_f32(l, divisor(n));
    return AF_OK;
}

const af_cuda_op af_cuda_loss = {loss_prepare, loss_work, false};
const af_cuda_op af_cuda_loss_bwd = {loss_bwd_prepare, loss_work, false};
