/* softmax_cuda.c - launchers of softmax.c, layernorm.c and fakequant.c: one block per row or group.
 */
#include "ops/common/cuda_ops.h"

enum { THREADS = 256, GROUP_THREADS = 1024, DW_PARTS = 64, DW_ROWS = 16 };

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *x, const af_tensor *w,
                         int vec)
{
    return af_cuda_kernel(cu, "softmax.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_W=%s AF_VEC=%d", af_cuda_ctype(x->dtype),
                                       af_cuda_ctype(w->dtype), vec));
}

/* Values of one access to the rows of a node, whose tensors are whole. */
static int access(const af_node *n)
{
    const int wide = af_cuda_wide(n->in[0]);
    bool fits = af_last(n->in[0]) % wide == 0;
    for (int i = 0; i < n->n_in; i++)
        fits = fits && (uintptr_t)n->in[i]->data % AF_CUDA_ACCESS == 0;
    return fits && (uintptr_t)n->out[0]->data % AF_CUDA_ACCESS == 0 ? wide : 1;
}

static int threads_for(int64_t D) { return D <= 32 ? 32 : D <= 128 ? 64 : THREADS; }

static af_status softmax_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const bool back = n->op == AF_OP_SOFTMAX_BWD;
    const af_tensor *x = n->in[0];
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (af_count(x) == 0)
        return AF_OK;
    const int vec = access(n);
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, back ? "softmax_bwd" : "softmax_fwd", x, x, vec),
                       af_rows(x), 1, 1, threads_for(af_last(x) / vec), 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, x->data);
    if (back)
        af_arg_ptr(l, n->in[1]->data);
    af_arg_i32(l, af_last(x));
    af_arg_i32(l, n->attr.softmax.log);
    return AF_OK;
}

AF_CHECKED static af_status check_scales(const af_node *n, const af_tensor *x, const af_tensor *w,
                                         const af_tensor *b, af_error *err)
{
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    const bool pair = w->dtype == x->dtype || w->dtype == AF_DTYPE_F32 ||
                      (x->dtype == AF_DTYPE_F32 && w->dtype == AF_DTYPE_BF16);
    if (!pair)
        return af_cuda_no_type(n, w, err);
    if (w->dtype != b->dtype)
        return af_fail(err, AF_EUNSUPPORTED, "layernorm on CUDA cannot mix scales in %s and %s",
                       af_dtype_name(w->dtype), af_dtype_name(b->dtype));
    return AF_OK;
}

static af_status layernorm_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0], *w = n->in[1], *b = n->in[2];
    const af_status st = check_scales(n, x, w, b, err);
    if (st != AF_OK || af_count(x) == 0)
        return st;
    const int vec = access(n);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "layernorm_fwd", x, w, vec), af_rows(x), 1, 1,
                                  threads_for(af_last(x) / vec), 0);
    for (int i = 0; i < 3; i++)
        af_arg_ptr(l, n->out[i]->data);
    for (int i = 0; i < 3; i++)
        af_arg_ptr(l, n->in[i]->data);
    af_arg_i32(l, af_last(x));
    af_arg_f32(l, n->attr.norm.eps);
    return AF_OK;
}

static int64_t dw_parts(const af_node *n)
{
    return AF_MAX(AF_MIN(af_rows(n->in[0]) / DW_ROWS, (int64_t)DW_PARTS), INT64_C(1));
}

static uint64_t layernorm_bwd_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    if (n->n_out == 1)
        return 0;
    return (uint64_t)(dw_parts(n) * 2 * af_last(n->in[0])) * sizeof(float);
}

static af_status layernorm_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0], *w = n->in[1], *dy = n->in[4];
    const af_status st = check_scales(n, x, w, w, err);
    if (st != AF_OK || af_count(x) == 0)
        return st;
    const int64_t rows = af_rows(x), D = af_last(x), parts = dw_parts(n);
    const int vec = access(n);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "layernorm_bwd", x, w, vec), rows, 1, 1,
                                  threads_for(D / vec), 0);
    af_arg_ptr(l, n->out[0]->data);
    for (int i = 0; i < 5; i++)
        af_arg_ptr(l, n->in[i]->data);
    af_arg_i32(l, D);
    if (n->n_out == 1)
        return AF_OK;
    l = af_cuda_launch(cu, n, kernel(cu, "layernorm_dw", x, w, 1), (D + THREADS - 1) / THREADS,
                       parts, 1, THREADS, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, n->in[2]->data);
    af_arg_ptr(l, n->in[3]->data);
    af_arg_ptr(l, dy->data);
    af_arg_i64(l, rows);
    af_arg_i32(l, D);
    af_arg_i64(l, (rows + parts - 1) / parts);
    af_cuda_reduce_parts(cu, n, n->out[1], cu->work, 2 * D, parts, 1, false);
    af_cuda_reduce_parts(cu, n, n->out[2], (const float *)cu->work + D, 2 * D, parts, 1, false);
    return AF_OK;
}

static af_status fake_quant_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0];
    const int64_t group = n->attr.fake_quant.group, count = af_count(x);
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (count == 0)
        return AF_OK;
    const int64_t len = group > 0 ? group : group < 0 ? af_last(x) : count;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "fake_quant", x, x, 1), count / len, 1, 1,
                                  len > 4096 ? GROUP_THREADS : threads_for(len), 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, len);
    af_arg_f32(l, 1 << n->attr.fake_quant.bits);
    af_arg_i32(l, n->attr.fake_quant.symmetric);
    return AF_OK;
}

static af_status fake_quant_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *dy = n->in[1];
    const int64_t count = af_count(dy);
    if (!af_cuda_float(dy))
        return af_cuda_no_type(n, dy, err);
    if (count == 0)
        return AF_OK;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "fake_quant_bwd", dy, dy, 1),
                                  af_cuda_grid(cu, count, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->in[0]->data);
    af_arg_ptr(l, dy->data);
    af_arg_i64(l, count);
    return AF_OK;
}

const af_cuda_op af_cuda_softmax = {softmax_prepare, NULL, false};
const af_cuda_op af_cuda_softmax_bwd = {softmax_prepare, NULL, false};
const af_cuda_op af_cuda_layernorm = {layernorm_prepare, NULL, false};
const af_cuda_op af_cuda_layernorm_bwd = {layernorm_bwd_prepare, layernorm_bwd_work, false};
const af_cuda_op af_cuda_fake_quant = {fake_quant_prepare, NULL, false};
const af_cuda_op af_cuda_fake_quant_bwd = {fake_quant_bwd_prepare, NULL, false};
