/* moe_cuda.c - launchers of moe.c: one kernel each. */
#include "ops/common/cuda_ops.h"
#include "ops/moe/moe_in.h"

enum { TILE = 64 };

static af_kernel *kernel(af_cuda *cu, const char *name, af_dtype t)
{
    return af_cuda_kernel(cu, "moe.cu", name, af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(t)));
}

static af_status route_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    (void)g;
    const bool back = n->op == AF_OP_MOE_ROUTE_BWD;
    const af_tensor *z = back ? n->out[0] : in.logits;
    const int64_t N = af_rows(z), X = af_last(z);
    if (!af_cuda_float(z))
        return af_fail(err, AF_EUNSUPPORTED, "moe_route of %s on the GPU", af_dtype_name(z->dtype));
    if (n->attr.route.score != AF_ROUTE_SOFTMAX || n->attr.route.bias || n->attr.route.groups > 1 ||
        n->attr.route.scale != 1 || n->attr.route.eps != 0)
        return af_fail(err, AF_EUNSUPPORTED, "a router other than softmax on the GPU");
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, back ? "moe_route_bwd" : "moe_route", z->dtype),
                                  (N + 3) / 4, 1, 1, 128, 0);
    if (back) {
        af_arg_ptr(l, z->data);
        af_arg_i64(l, z->ld);
        af_arg_ptr(l, in.scores->data);
        af_arg_ptr(l, in.index->data);
        af_arg_ptr(l, in.dweights->data);
    } else {
        for (int i = 0; i < 3; i++)
            af_arg_ptr(l, n->out[i]->data);
        af_arg_ptr(l, z->data);
        af_arg_i64(l, z->ld);
    }
    af_arg_i64(l, N);
    af_arg_i32(l, X);
    af_arg_i32(l, n->attr.route.k);
    af_arg_i32(l, n->attr.route.norm);
    return AF_OK;
}

static af_status list_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const int64_t X = n->out[2]->dim[0] - 1;
    (void)g;
    (void)err;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "moe_list", AF_DTYPE_F32), X, 1, 1, 32, 0);
    for (int i = 0; i < 3; i++)
        af_arg_ptr(l, n->out[i]->data);
    af_arg_ptr(l, n->in[0]->data);
    af_arg_i32(l, af_count(n->in[0]));
    af_arg_i32(l, X);
    return AF_OK;
}

/* A weight in the compute type needs no copy. */
static uint64_t linear_work(const af_cuda *cu, const af_node *n)
{
    const af_tensor *w = af_moe_in(n).w;
    const af_dtype t = n->in[0]->dtype;
    (void)cu;
    return w && w->dtype != t ? (uint64_t)af_count(w) * (uint64_t)af_dtype_get(t)->bytes : 0;
}

/* The expert matrices in the compute type. */
static const void *bring(af_cuda *cu, af_node *n, const af_tensor *w, af_dtype t)
{
    if (w->dtype == t)
        return w->data;
    const int64_t cols = af_last(w), rows = af_count(w) / cols;
    for (int64_t r = 0; r < rows; r += 1 << 18) {
        const int64_t count = AF_MIN(rows - r, (int64_t)1 << 18);
        af_kernel *k = af_cuda_kernel(
            cu, "core.cu", "copy_2d",
            af_cuda_text(cu, "AF_S=%s AF_D=%s", af_cuda_ctype(w->dtype), af_cuda_ctype(t)));
        af_launch *l = af_cuda_launch(cu, n, k, AF_MIN((cols + 31) / 32, (int64_t)64),
                                      (count + 7) / 8, 1, 256, 0);
        af_arg_ptr(l, (uint8_t *)cu->work + (uint64_t)(r * cols * af_dtype_get(t)->bytes));
        af_arg_i64(l, cols);
        af_arg_ptr(l, (uint8_t *)w->data + (uint64_t)(r * cols * af_dtype_get(w->dtype)->bytes));
        af_arg_i64(l, cols);
        af_arg_i64(l, count);
        af_arg_i64(l, cols);
        af_arg_i64(l, cols);
        af_arg_f32(l, 1);
    }
    return cu->work;
}

/* MOE_LINEAR and MOE_LINEAR_DX */
static af_status linear_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    (void)g;
    const bool dx = n->op == AF_OP_MOE_LINEAR_DX;
    const af_tensor *a = n->in[0];
    if (!af_cuda_float(a) || !af_cuda_float(in.w))
        return af_fail(err, AF_EUNSUPPORTED, "experts of %s on the GPU: use bf16, f16 or f32",
                       af_dtype_name(in.w->dtype));
    if (in.bias || in.a || n->attr.moe.alpha != 1)
        return af_fail(err, AF_EUNSUPPORTED, "experts with %s on the GPU",
                       in.bias ? "biases" : "an adapter");
    const int64_t O = in.w->dim[1], I = in.w->dim[2], X = in.w->dim[0], P = af_count(in.list);
    const void *w = bring(cu, n, in.w, a->dtype);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "moe_product", a->dtype),
                                  ((dx ? I : O) + TILE - 1) / TILE, P / TILE + X, 1, 256, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, a->data);
    af_arg_i64(l, a->ld);
    af_arg_ptr(l, n->attr.moe.by_token ? in.list->data : NULL);
    af_arg_i32(l, n->attr.moe.k);
    af_arg_ptr(l, w);
    af_arg_ptr(l, in.start->data);
    af_arg_i32(l, X);
    af_arg_i32(l, dx ? I : O);
    af_arg_i32(l, dx ? O : I);
    af_arg_i32(l, dx);
    return AF_OK;
}

static af_status dw_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    const af_tensor *d = n->out[0];
    (void)g;
    if (!af_cuda_float(in.x) || d->dtype != AF_DTYPE_F32)
        return af_fail(err, AF_EUNSUPPORTED, "gradients of experts in %s on the GPU",
                       af_dtype_name(d->dtype));
    const int64_t O = d->dim[1], I = d->dim[2];
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "moe_outer", in.x->dtype),
                                  (I + TILE - 1) / TILE, (O + TILE - 1) / TILE, d->dim[0], 256, 0);
    af_arg_ptr(l, d->data);
    af_arg_ptr(l, in.dy->data);
    af_arg_ptr(l, in.x->data);
    af_arg_i64(l, in.x->ld);
    af_arg_ptr(l, n->attr.moe.by_token ? in.list->data : NULL);
    af_arg_i32(l, n->attr.moe.k);
    af_arg_ptr(l, in.start->data);
    af_arg_i32(l, O);
    af_arg_i32(l, I);
    af_arg_i32(l, n->accumulate);
    return AF_OK;
}

static af_status dbias_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)cu;
    (void)g;
    return af_fail(err, AF_EUNSUPPORTED, "gradients of the biases of experts [%d][%d] on the GPU",
                   (int)n->out[0]->dim[0], (int)n->out[0]->dim[1]);
}

static af_status combine_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    const af_tensor *y = n->out[0];
    (void)g;
    if (!af_cuda_float(in.out))
        return af_cuda_no_type(n, in.out, err);
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "moe_combine", in.out->dtype), af_rows(y), 1, 1, 256, 0);
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_ptr(l, in.out->data);
    af_arg_ptr(l, in.weights ? in.weights->data : NULL);
    af_arg_ptr(l, in.slot->data);
    af_arg_i32(l, af_last(y));
    af_arg_i32(l, n->attr.moe.k);
    return AF_OK;
}

static af_status combine_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    (void)g;
    if (!af_cuda_float(in.out))
        return af_cuda_no_type(n, in.out, err);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "moe_combine_bwd", in.out->dtype),
                                  af_count(in.list), 1, 1, 256, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, in.out->data);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_ptr(l, in.weights->data);
    af_arg_ptr(l, in.slot->data);
    af_arg_i32(l, af_last(in.out));
    af_arg_i32(l, n->attr.moe.k);
    return AF_OK;
}

const af_cuda_op af_cuda_moe_route = {route_prepare, NULL, true};
const af_cuda_op af_cuda_moe_route_bwd = {route_prepare, NULL, true};
const af_cuda_op af_cuda_moe_list = {list_prepare, NULL, true};
const af_cuda_op af_cuda_moe_linear = {linear_prepare, linear_work, true};
const af_cuda_op af_cuda_moe_linear_dx = {linear_prepare, linear_work, true};
const af_cuda_op af_cuda_moe_linear_dw = {dw_prepare, NULL, true};
const af_cuda_op af_cuda_moe_linear_dbias = {dbias_prepare, NULL, true};
const af_cuda_op af_cuda_moe_combine = {combine_prepare, NULL, true};
const af_cuda_op af_cuda_moe_combine_bwd = {combine_bwd_prepare, NULL, true};
