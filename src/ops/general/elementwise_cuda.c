/* elementwise_cuda.c - launchers of binary.c, unary.c and dropout.c. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 256 };

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *t, int vec)
{
    return af_cuda_kernel(cu, "elementwise.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_VEC=%d", af_cuda_ctype(t->dtype), vec));
}

/* The kernel of a unary kind; clip has its own, so that the others stay as they were measured. */
static af_kernel *unary_kernel(af_cuda *cu, const af_node *n, const char *name, int vec)
{
    const af_tensor *x = n->in[0];
    if (n->attr.unary.kind != AF_UNARY_CLIP)
        return kernel(cu, name, x, vec);
    return af_cuda_kernel(
        cu, "elementwise.cu", name,
        af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_CLIP=1", af_cuda_ctype(x->dtype), vec));
}

void af_cuda_reduce_parts(af_cuda *cu, af_node *n, const af_tensor *y, const float *part,
                          int64_t stride, int64_t parts, double factor, bool accumulate)
{
    const int64_t count = af_count(y);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "reduce_parts", y, 1),
                                  af_cuda_grid(cu, count, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, part);
    af_arg_i64(l, count);
    af_arg_i64(l, stride);
    af_arg_i32(l, parts);
    af_arg_f32(l, factor);
    af_arg_i32(l, accumulate);
}

/* ---- binary ---- */
/* Strides of x seen through the shape of y, four axes, 0 along stretched ones; rows are ld apart.
 */
static void strides_in(const af_tensor *x, const af_tensor *y, int64_t stride[4])
{
    int64_t s = 1;
    for (int i = 1; i <= 4; i++) {
        const int64_t d = i <= x->ndim ? x->dim[x->ndim - i] : 1;
        stride[4 - i] = d == 1 || i > y->ndim ? 0 : s;
        s = i == 1 ? x->ld : s * d;
    }
}

static void launch_rows(af_cuda *cu, af_node *n, bool one_row)
{
    const af_tensor *a = n->in[0], *b = n->in[1], *y = n->out[0];
    const int wide = af_cuda_wide(y);
    const bool fits =
        af_cuda_rows_fit(a, wide) && af_cuda_rows_fit(b, wide) && af_cuda_rows_fit(y, wide);
    const int vec = fits ? wide : 1;
    int threads;
    const int64_t cuts = af_cuda_cuts(af_last(y) / vec, THREADS, &threads);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "binary_rows", y, vec), af_rows(y) * cuts, 1, 1,
                                  threads, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, a->data);
    af_arg_ptr(l, b->data);
    af_arg_i32(l, n->attr.binary.kind);
    af_arg_i32(l, af_last(y));
    af_arg_i32(l, cuts);
    af_arg_i64(l, y->ld);
    af_arg_i64(l, a->ld);
    af_arg_i64(l, one_row ? 0 : b->ld);
}

static void launch_any(af_cuda *cu, af_node *n)
{
    const af_tensor *y = n->out[0], *of[3] = {y, n->in[0], n->in[1]};
    const int64_t count = af_count(y);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "binary_any", y, 1),
                                  af_cuda_grid(cu, count, THREADS), 1, 1, THREADS, 0);
    for (int i = 0; i < 3; i++)
        af_arg_ptr(l, of[i]->data);
    af_arg_i32(l, n->attr.binary.kind);
    af_arg_i64(l, count);
    for (int i = 1; i < 4; i++)
        af_arg_i64(l, i >= 4 - y->ndim ? y->dim[i - 4 + y->ndim] : 1);
    for (int i = 0; i < 3; i++) {
        int64_t s[4];
        strides_in(of[i], y, s);
        for (int k = 0; k < 4; k++)
            af_arg_i64(l, s[k]);
    }
}

static af_status binary_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *a = n->in[0], *b = n->in[1], *y = n->out[0];
    if (!af_cuda_float(y))
        return af_cuda_no_type(n, y, err);
    if (af_count(y) == 0)
        return AF_OK;
    const bool one_row = af_count(b) == af_last(b) && af_last(b) == af_last(y);
    if (af_same_shape(a, y) && (af_same_shape(b, y) || one_row))
        launch_rows(cu, n, !af_same_shape(b, y));
    else
        launch_any(cu, n);
    return AF_OK;
}

/* ---- unary ---- */
static af_status unary_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const bool back = n->op == AF_OP_UNARY_BWD;
    const af_tensor *x = n->in[0], *y = n->out[0];
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    const int wide = af_cuda_wide(x);
    const bool fits = af_cuda_flat_fits(x, wide) && af_cuda_flat_fits(y, wide) &&
                      (!back || af_cuda_flat_fits(n->in[2], wide));
    const int vec = fits ? wide : 1;
    const int64_t count = af_count(x);
    if (count == 0)
        return AF_OK;
    af_launch *l = af_cuda_launch(cu, n, unary_kernel(cu, n, back ? "unary_bwd" : "unary", vec),
                                  af_cuda_grid(cu, count / vec, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, x->data);
    if (back)
        af_arg_ptr(l, n->in[2]->data);
    af_arg_i32(l, n->attr.unary.kind);
    af_arg_f32(l, n->attr.unary.value);
    af_arg_i64(l, count);
    return AF_OK;
}

/* y (+)= x between any unquantised types. */
static af_status launch_cast(af_cuda *cu, af_node *n, const af_tensor *y, const af_tensor *x,
                             bool accumulate, af_error *err)
{
    const af_dtype ends[2] = {y->dtype, x->dtype};
    for (int i = 0; i < 2; i++)
        if (!af_dtype_is_float(ends[i]) && ends[i] != AF_DTYPE_I8 && ends[i] != AF_DTYPE_I16 &&
            ends[i] != AF_DTYPE_I32 && ends[i] != AF_DTYPE_I64 && ends[i] != AF_DTYPE_U8 &&
            ends[i] != AF_DTYPE_BOOL)
            return af_fail(err, AF_EUNSUPPORTED, "cast on CUDA cannot make %s from %s",
                           af_dtype_name(y->dtype), af_dtype_name(x->dtype));
    const char *name = af_cuda_float(y) && af_cuda_float(x) ? "cast_float" : "cast_any";
    const int64_t count = af_count(y);
    if (count == 0)
        return AF_OK;
    af_launch *l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "cast.cu", name, ""),
                                  af_cuda_grid(cu, count, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_i32(l, y->dtype);
    af_arg_ptr(l, x->data);
    af_arg_i32(l, x->dtype);
    af_arg_i64(l, count);
    af_arg_i32(l, accumulate);
    return AF_OK;
}

static af_status cast_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    return launch_cast(cu, n, n->out[0], n->in[0], n->accumulate, err);
}

static af_status accum_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    return launch_cast(cu, n, n->in[0], n->in[1], !n->first, err);
}

static af_status fill_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *y = n->out[0];
    if (n->attr.fill.value == 0) {
        af_cuda_zero(cu, n, y->data, af_tensor_extent(y));
        return AF_OK;
    }
    if (!af_cuda_float(y))
        return af_cuda_no_type(n, y, err);
    const int64_t count = af_count(y);
    if (count == 0)
        return AF_OK;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "fill", y, 1), af_cuda_grid(cu, count, THREADS),
                                  1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_f32(l, n->attr.fill.value);
    af_arg_i64(l, count);
    return AF_OK;
}

static af_status dropout_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0];
    const int64_t count = af_count(x);
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (count == 0)
        return AF_OK;
    const af_tensor *y = n->out[0];
    const int wide = af_cuda_wide(y);
    const bool whole =
        af_cuda_rows_fit(x, wide) && af_cuda_rows_fit(y, wide) && count <= UINT32_MAX;
    const int vec = whole ? wide : 1;
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "dropout", x, vec),
                       af_cuda_grid(cu, count / AF_MAX(vec, 4) + 1, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_u64(l, n->attr.dropout.stream);
    af_arg_f32(l, n->attr.dropout.p);
    af_arg_f32(l, 1 / (1 - n->attr.dropout.p));
    af_arg_i64(l, count);
    af_arg_i64(l, af_last(x));
    af_arg_i64(l, y->ld);
    af_arg_i64(l, x->ld);
    return AF_OK;
}

const af_cuda_op af_cuda_binary = {binary_prepare, NULL, true};
const af_cuda_op af_cuda_unary = {unary_prepare, NULL, false};
const af_cuda_op af_cuda_unary_bwd = {unary_prepare, NULL, false};
const af_cuda_op af_cuda_cast = {cast_prepare, NULL, false};
const af_cuda_op af_cuda_accum = {accum_prepare, NULL, false};
const af_cuda_op af_cuda_fill = {fill_prepare, NULL, false};
const af_cuda_op af_cuda_dropout = {dropout_prepare, NULL, true};
