/* shape_cuda.c - launchers of shape.c, reduce.c and of SUM_TO: strided copies and sums. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 256, COLUMNS_MIN = 32, WIDE_OUTS = 4096, PARTS = 64, PART_MIN = 64 };

typedef struct box { /* up to four axes, the missing ones in front */
    int64_t dim[4], stride[4];
} box;

static box box_of(const af_tensor *t)
{
    box b;
    int64_t s = 1;
    for (int i = 3; i >= 0; i--) {
        b.dim[i] = i >= 4 - t->ndim ? t->dim[i - 4 + t->ndim] : 1;
        b.stride[i] = s;
        s *= b.dim[i];
    }
    return b;
}

static af_kernel *kernel_of(af_cuda *cu, const char *name, const af_tensor *t, int64_t vec)
{
    return af_cuda_kernel(cu, "elementwise.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_VEC=%d", af_cuda_ctype(t->dtype), (int)vec));
}
static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *t)
{
    return kernel_of(cu, name, t, 1);
}

static void *element(const af_tensor *t, int64_t i)
{
    return (uint8_t *)t->data + i * af_dtype_get(t->dtype)->bytes;
}

/* Values of one access: 16 bytes where both sides begin and step in whole ones. */
static int64_t access(const af_tensor *type, const void *y, const box *to, const void *x,
                      const box *from)
{
    const int64_t vec = 16 / af_dtype_get(type->dtype)->bytes;
    bool whole = to->dim[3] % vec == 0 && to->stride[3] == 1 && from->stride[3] == 1 &&
                 (uintptr_t)y % 16 == 0 && (uintptr_t)x % 16 == 0;
    for (int i = 0; i < 3; i++) /* the stride of an axis of one is never used */
        whole =
            whole && (to->dim[i] == 1 || (to->stride[i] % vec == 0 && from->stride[i] % vec == 0));
    return whole ? vec : 1;
}

/* y[..] (+)= x[..] over dim, both through their strides. */
static void launch_copy(af_cuda *cu, af_node *n, const af_tensor *type, void *y, box to, void *x,
                        box from, bool accumulate)
{
    const int64_t vec = access(type, y, &to, x, &from),
                  count = to.dim[0] * to.dim[1] * to.dim[2] * to.dim[3] / vec;
    if (count == 0)
        return;
    to.dim[3] /= vec;
    to.stride[3] *= vec;
    from.stride[3] *= vec;
    af_launch *l = af_cuda_launch(cu, n, kernel_of(cu, "copy_any", type, vec),
                                  af_cuda_grid(cu, count, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, y);
    af_arg_ptr(l, x);
    af_arg_i64(l, count);
    for (int i = 1; i < 4; i++)
        af_arg_i64(l, to.dim[i]);
    for (int i = 0; i < 4; i++)
        af_arg_i64(l, to.stride[i]);
    for (int i = 0; i < 4; i++)
        af_arg_i64(l, from.stride[i]);
    af_arg_i32(l, accumulate);
}

/* Integers of four bytes are copied as f32: loads and stores keep their bits. */
AF_CHECKED static af_status as_float(af_tensor *type, const af_node *n, const af_tensor *t,
                                     af_error *err)
{
    *type = *t;
    if (t->dtype == AF_DTYPE_I32 || t->dtype == AF_DTYPE_U32)
        type->dtype = AF_DTYPE_F32;
    return af_cuda_float(type) ? AF_OK : af_cuda_no_type(n, t, err);
}

static af_status transpose_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0], *y = n->out[0];
    af_tensor type;
    const af_status st = as_float(&type, n, x, err);
    if (st != AF_OK)
        return st;
    const box to = box_of(y), whole = box_of(x);
    box from = to;
    const int skip = 4 - x->ndim;
    for (int i = skip; i < 4; i++)
        from.stride[i] = whole.stride[n->attr.transpose.perm[i - skip] + skip];
    launch_copy(cu, n, &type, y->data, to, x->data, from, n->accumulate);
    return AF_OK;
}

static af_status slice_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const bool back = n->op == AF_OP_SLICE_BWD;
    const af_tensor *big = back ? n->out[0] : n->in[0], *small = back ? n->in[0] : n->out[0];
    af_tensor type;
    const af_status st = as_float(&type, n, big, err);
    if (st != AF_OK)
        return st;
    const box whole = box_of(big), part = box_of(small);
    const int axis = n->attr.slice.axis + 4 - big->ndim;
    void *at = element(big, n->attr.slice.from * whole.stride[axis]);
    box window = part; /* the slice inside the big one */
    memcpy(window.stride, whole.stride, sizeof window.stride);
    if (back && !n->accumulate)
        af_cuda_zero(cu, n, big->data, af_tensor_extent(big));
    if (back)
        launch_copy(cu, n, &type, at, window, small->data, part, n->accumulate);
    else
        launch_copy(cu, n, &type, small->data, part, at, window, n->accumulate);
    return AF_OK;
}

static af_status concat_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *y = n->out[0];
    const box whole = box_of(y);
    const int axis = n->attr.slice.axis + 4 - y->ndim;
    af_tensor type;
    const af_status st = as_float(&type, n, y, err);
    int64_t from = 0;
    for (int i = 0; i < n->n_in && st == AF_OK; i++) {
        const box part = box_of(n->in[i]);
        box window = part;
        memcpy(window.stride, whole.stride, sizeof window.stride);
        launch_copy(cu, n, &type, element(y, from * whole.stride[axis]), window, n->in[i]->data,
                    part, false);
        from += part.dim[axis];
    }
    return st;
}

/* ---- sums ---- */
/* Which axes of x are summed; outputs and the summed box have 1 on the other's axes. */
typedef struct summing {
    box x;
    int64_t out[4], red[4], outs, count, step, parts, per;
    bool columns; /* x is rows that are added up, as long as the output */
    bool wide;    /* else: one block an output */
} summing;

/* Whether every axis of a box stands in front of those of the other. */
static bool in_front(const int64_t dim[4], const int64_t other[4])
{
    bool seen = false, front = true;
    for (int i = 0; i < 4; i++) {
        seen = seen || other[i] > 1;
        front = front && !(seen && dim[i] > 1);
    }
    return front;
}

/* How far the elements are apart that an output sums; 0 = not always as far. */
static int64_t step_of(const summing *s)
{
    int64_t step = in_front(s->out, s->red);
    for (int i = 0; i < 4; i++)
        if (s->red[i] == s->count && s->count > 1)
            step = s->x.stride[i];
    return step;
}

static void finish(summing *s)
{
    s->outs = s->out[0] * s->out[1] * s->out[2] * s->out[3];
    s->count = s->red[0] * s->red[1] * s->red[2] * s->red[3];
    s->step = step_of(s);
    s->columns = s->outs >= COLUMNS_MIN && s->count > 1 && in_front(s->red, s->out);
    s->wide = !s->columns && (s->outs < WIDE_OUTS || (s->step == 1 && s->count >= THREADS));
    const int64_t each = s->wide ? THREADS * PART_MIN / 4 : PART_MIN;
    s->parts = AF_MAX(AF_MIN(s->count / each, (int64_t)PARTS), INT64_C(1));
    s->per = (s->count + s->parts - 1) / s->parts;
}

static summing summing_of(const af_node *n)
{
    const af_tensor *x = n->in[0];
    summing s = {.x = box_of(x)};
    const box y = box_of(n->out[0]);
    for (int i = 0; i < 4; i++) {
        const bool summed = n->op == AF_OP_REDUCE ? i == n->attr.reduce.axis + 4 - x->ndim
                                                  : y.dim[i] == 1 && s.x.dim[i] != 1;
        s.out[i] = summed ? 1 : s.x.dim[i];
        s.red[i] = summed ? s.x.dim[i] : 1;
    }
    finish(&s);
    return s;
}

static uint64_t sum_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    const summing s = summing_of(n);
    return (uint64_t)(s.parts * s.outs) * sizeof(float);
}

static void launch_columns(af_cuda *cu, af_node *n, const summing *s)
{
    const af_tensor *x = n->in[0];
    const int64_t wide = 16 / af_dtype_get(x->dtype)->bytes;
    const bool whole = s->outs % wide == 0 && (uintptr_t)x->data % 16 == 0;
    const int64_t vec = whole ? wide : 1, each = 32 * vec;
    af_launch *l = af_cuda_launch(cu, n, kernel_of(cu, "sum_columns", x, vec),
                                  (s->outs + each - 1) / each, s->parts, 1, THREADS, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, s->count);
    af_arg_i64(l, s->outs);
    af_arg_i64(l, s->per);
}

static void launch_box(af_cuda *cu, af_node *n, const summing *s)
{
    const int64_t blocks = s->wide ? s->outs : (s->outs + THREADS - 1) / THREADS;
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "sum_parts", n->in[0]), blocks, s->parts, 1, THREADS, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, n->in[0]->data);
    af_arg_i64(l, s->outs);
    for (int i = 1; i < 4; i++)
        af_arg_i64(l, s->out[i]);
    for (int i = 1; i < 4; i++)
        af_arg_i64(l, s->red[i]);
    for (int i = 0; i < 4; i++)
        af_arg_i64(l, s->x.stride[i]);
    af_arg_i64(l, s->step);
    af_arg_i64(l, s->count);
    af_arg_i64(l, s->per);
    af_arg_i32(l, s->wide);
}

static void launch_sum(af_cuda *cu, af_node *n, double factor)
{
    const summing s = summing_of(n);
    if (s.columns)
        launch_columns(cu, n, &s);
    else
        launch_box(cu, n, &s);
    af_cuda_reduce_parts(cu, n, n->out[0], cu->work, s.outs, s.parts, factor, n->accumulate);
}

static af_status sum_to_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    if (!af_cuda_float(n->in[0]))
        return af_cuda_no_type(n, n->in[0], err);
    if (af_count(n->out[0]) > 0)
        launch_sum(cu, n, 1);
    return AF_OK;
}

/* x around the reduced axis: [outer][len][inner] */
static void around(const af_tensor *x, int axis, int64_t *len, int64_t *inner)
{
    *len = x->dim[axis];
    *inner = 1;
    for (int i = axis + 1; i < x->ndim; i++)
        *inner *= x->dim[i];
}

static af_status reduce_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0], *y = n->out[0];
    int64_t len, inner;
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    around(x, n->attr.reduce.axis, &len, &inner);
    if (af_count(y) == 0)
        return AF_OK;
    if (n->attr.reduce.kind != AF_REDUCE_MAX) {
        launch_sum(cu, n, n->attr.reduce.kind == AF_REDUCE_MEAN ? 1.0 / (double)len : 1);
        return AF_OK;
    }
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "reduce_max", x),
                                  af_cuda_grid(cu, af_count(y), THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, af_count(y));
    af_arg_i64(l, len);
    af_arg_i64(l, inner);
    af_arg_i32(l, n->accumulate);
    return AF_OK;
}

static af_status reduce_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *dy = n->in[2], *dx = n->out[0];
    const bool max = n->attr.reduce.kind == AF_REDUCE_MAX;
    int64_t len, inner;
    if (!af_cuda_float(dx))
        return af_cuda_no_type(n, dx, err);
    around(dx, n->attr.reduce.axis, &len, &inner);
    const int64_t items = max ? af_count(dy) : af_count(dx);
    if (af_count(dx) == 0)
        return AF_OK;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, max ? "reduce_max_bwd" : "reduce_spread", dx),
                                  af_cuda_grid(cu, items, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, dx->data);
    if (max) {
        af_arg_ptr(l, n->in[0]->data);
        af_arg_ptr(l, n->in[1]->data);
    }
    af_arg_ptr(l, dy->data);
    af_arg_i64(l, items);
    af_arg_i64(l, len);
    af_arg_i64(l, inner);
    if (!max)
        af_arg_f32(l, n->attr.reduce.kind == AF_REDUCE_MEAN ? 1.0 / (double)len : 1);
    af_arg_i32(l, n->accumulate);
    return AF_OK;
}

const af_cuda_op af_cuda_transpose = {transpose_prepare, NULL, false};
const af_cuda_op af_cuda_slice = {slice_prepare, NULL, false};
const af_cuda_op af_cuda_slice_bwd = {slice_prepare, NULL, false};
const af_cuda_op af_cuda_concat = {concat_prepare, NULL, false};
const af_cuda_op af_cuda_sum_to = {sum_to_prepare, sum_work, false};
const af_cuda_op af_cuda_reduce = {reduce_prepare, sum_work, false};
const af_cuda_op af_cuda_reduce_bwd = {reduce_bwd_prepare, NULL, false};
