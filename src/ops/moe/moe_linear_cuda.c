/* moe_linear_cuda.c - launchers of moe_linear.c: one product over the slots of all experts, on
 * Hopper's tensor cores where the shapes allow it (moe_sm90.cu), else by moe.cu. */
#include "backend/cuda/driver.h"
#include "ops/common/cuda_ops.h"
#include "ops/common/weight_type.h"
#include "ops/linear/linear_cuda.h"
#include "ops/moe/moe_in.h"

enum {
    TILE = 64,
    SM90_THREADS = 384,
    SM90_STAGES = 4,
    SM90_BOX = 8192,
    SM90_NARROW = 64, /* columns of a tile: those of an adapter's halves, and of everything else */
    SM90_WIDE = 256,
    WORKED = 4 /* operands that may need a copy in the workspace */
};

/* Copies of what is not in the compute type: where they lie in the workspace. */
typedef struct worked {
    const af_tensor *of[WORKED];
    af_dtype type[WORKED];
    void *data[WORKED];
    int n;
    uint64_t bytes;
} worked;

/* The tensor's data, or a place in the workspace for it in type `t`. */
static void *place(worked *w, const af_cuda *cu, const af_tensor *x, af_dtype t)
{
    if (!x || x->dtype == t)
        return x ? x->data : NULL;
    void *to = cu->work ? (uint8_t *)cu->work + w->bytes : NULL;
    w->of[w->n] = x;
    w->type[w->n] = t;
    w->data[w->n++] = to;
    w->bytes +=
        AF_ALIGN_UP((uint64_t)af_count(x) * (uint64_t)af_dtype_get(t)->bytes, (uint64_t)256);
    return to;
}

static void fill(af_cuda *cu, af_node *n, const worked *w)
{
    for (int i = 0; i < w->n; i++) {
        const af_tensor *x = w->of[i];
        const int64_t cols = af_last(x), rows = af_count(x) / cols;
        const af_mat to = {w->data[i], rows, cols, cols, w->type[i]};
        if (af_is_coded(x->dtype)) {
            af_cuda_dequantise(cu, n, to, x);
            continue;
        }
        enum { MOST = 1 << 18 }; /* rows of one launch */
        for (int64_t r = 0; r < rows; r += MOST) {
            const int64_t count = AF_MIN(rows - r, (int64_t)MOST);
            const uint64_t size = (uint64_t)af_dtype_get(x->dtype)->bytes,
                           out = (uint64_t)af_dtype_get(to.dtype)->bytes, at = (uint64_t)(r * cols);
            const af_mat dst = {(uint8_t *)to.data + at * out, count, cols, cols, to.dtype},
                         src = {(uint8_t *)x->data + at * size, count, cols, cols, x->dtype};
            af_cuda_copy_2d(cu, n, dst, src, cols, 1.0f);
        }
    }
}

/* A product over slots: y = alpha * x w + second x2 w2 + bias. */
typedef struct product {
    const af_tensor *x, *x2; /* rows: by token or slot; by slot, or NULL */
    void *w, *w2, *bias;
    int64_t N, K, K2, X;
    bool nn; /* the matrices are [K][N] */
    worked copies;
} product;

static product product_of(const af_cuda *cu, const af_node *n)
{
    const af_moe_inputs in = af_moe_in(n);
    const bool dx = n->op == AF_OP_MOE_LINEAR_DX;
    const af_dtype t = n->in[0]->dtype;
    product p = {.x = n->in[0],
                 .x2 = dx ? in.g : in.xa,
                 .N = in.w->dim[dx ? 2 : 1],
                 .K = in.w->dim[dx ? 1 : 2],
                 .K2 = in.a ? in.a->dim[1] : 0,
                 .X = in.w->dim[0],
                 .nn = dx};
    p.w = place(&p.copies, cu, in.w, t);
    p.w2 = place(&p.copies, cu, dx ? in.a : in.b, t);
    p.bias = place(&p.copies, cu, in.bias, AF_DTYPE_F32);
    return p;
}

static uint64_t linear_work(const af_cuda *cu, const af_node *n)
{
    return product_of(cu, n).copies.bytes;
}

static unsigned sm90_shared(int columns, int64_t X)
{
    return (unsigned)(SM90_STAGES * (2 + columns / 64) * SM90_BOX + 1024 + SM90_STAGES * 16 +
                      (X + 1) * 4);
}

static bool even(const af_tensor *t) { return t->ld % 8 == 0 && (uintptr_t)t->data % 16 == 0; }

static bool sm90(const af_cuda *cu, int64_t X)
{
    return cu->arch == 90 && cu->drv->tensor_map &&
           (int64_t)sm90_shared(SM90_WIDE, X) <= cu->smem_max;
}

/* gated: the kernel writes the unit's result, too. */
static void sm90_product(af_cuda *cu, af_node *n, const product *p, bool gated)
{
    const af_moe_inputs in = af_moe_in(n);
    const int columns = p->N <= SM90_NARROW ? SM90_NARROW : SM90_WIDE;
    const af_mat w = {p->w, p->X * (p->nn ? p->K : p->N), p->nn ? p->N : p->K, p->nn ? p->N : p->K,
                      AF_DTYPE_BF16},
                 w2 = {p->w2, p->X * (p->nn ? p->K2 : p->N), p->nn ? p->N : p->K2,
                       p->nn ? p->N : p->K2, AF_DTYPE_BF16};
    const char *defines =
        af_cuda_text(cu, "AF_NN=%d AF_GATHER=%d AF_BN=%d", p->nn, n->attr.moe.by_token, columns);
    if (gated)
        defines = af_cuda_text(cu, "%s AF_GLU=1 AF_ACT=%d", defines, n->attr.moe.act);
    af_kernel *k = af_cuda_kernel(cu, "moe_sm90.cu", "moe_gemm", defines);
    af_launch *l =
        af_cuda_launch(cu, n, k, cu->sms, 1, 1, SM90_THREADS, sm90_shared(columns, p->X));
    assert(n->attr.moe.alpha == 1 || p->K2 == 0); /* the kernel has one factor for both */
    af_arg_mat(l, af_mat_of(n->out[0]));
    af_arg_ptr(l, p->bias);
    af_arg_f32(l, n->attr.moe.alpha);
    af_arg_mat(l, af_mat_of(p->x));
    af_arg_ptr(l, n->attr.moe.by_token ? in.list->data : NULL);
    af_arg_i32(l, n->attr.moe.k);
    af_arg_map(cu, l, af_mat_of(p->x));
    af_arg_map(cu, l, w);
    af_arg_i32(l, p->K);
    af_arg_map(cu, l, af_mat_of(p->x2 ? p->x2 : p->x));
    af_arg_map(cu, l, p->x2 ? w2 : w);
    af_arg_i32(l, p->K2);
    af_arg_ptr(l, in.start->data);
    af_arg_i32(l, p->X);
    af_arg_i32(l, p->N);
    af_arg_ptr(l, gated ? n->out[1]->data : NULL);
    af_arg_i64(l, gated ? n->out[1]->ld : 0);
}

/* The unit's result from what a product left. */
static void unit(af_cuda *cu, af_node *n)
{
    const af_tensor *y = n->out[0], *h = n->out[1];
    const int wide = af_cuda_wide(y);
    const bool fits =
        af_last(h) % wide == 0 && af_cuda_rows_fit(y, wide) && af_cuda_rows_fit(h, wide);
    const int vec = fits ? wide : 1;
    int threads;
    const int64_t cuts = af_cuda_cuts(af_last(h) / vec, 256, &threads);
    af_kernel *k = af_cuda_kernel(cu, "glu.cu", "glu_fwd",
                                  af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_ACT=%d",
                                               af_cuda_ctype(y->dtype), vec, n->attr.moe.act));
    af_launch *l = af_cuda_launch(cu, n, k, af_rows(y) * cuts, 1, 1, threads, 0);
    af_arg_ptr(l, h->data);
    af_arg_ptr(l, y->data);
    af_arg_i32(l, af_last(h));
    af_arg_i32(l, cuts);
    af_arg_i64(l, h->ld);
    af_arg_i64(l, y->ld);
}

static af_kernel *plain_kernel(af_cuda *cu, const char *name, af_dtype t)
{
    return af_cuda_kernel(cu, "moe.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_VEC=1", af_cuda_ctype(t)));
}

static void plain_product(af_cuda *cu, af_node *n, const product *p)
{
    const af_moe_inputs in = af_moe_in(n);
    const int64_t P = af_count(in.list);
    af_launch *l = af_cuda_launch(cu, n, plain_kernel(cu, "moe_product", p->x->dtype),
                                  (p->N + TILE - 1) / TILE, P / TILE + p->X, 1, 256, 0);
    af_arg_mat(l, af_mat_of(n->out[0]));
    af_arg_ptr(l, p->bias);
    af_arg_f32(l, n->attr.moe.alpha);
    af_arg_mat(l, af_mat_of(p->x));
    af_arg_ptr(l, n->attr.moe.by_token ? in.list->data : NULL);
    af_arg_i32(l, n->attr.moe.k);
    af_arg_ptr(l, p->w);
    af_arg_i32(l, p->K);
    af_arg_mat(l, af_mat_of(p->x2 ? p->x2 : p->x));
    af_arg_ptr(l, p->w2);
    af_arg_i32(l, p->K2);
    af_arg_ptr(l, in.start->data);
    af_arg_i32(l, p->X);
    af_arg_i32(l, p->N);
    af_arg_i32(l, p->nn);
}

/* Can sm90_product write the unit's result? Biases and other activations have not run on a GPU:
 * they take a launch of their own. */
static bool unit_fits(const af_node *n, const product *p)
{
    return n->attr.moe.act == AF_ACT_SILU && !n->attr.moe.bias && n->attr.moe.by_token &&
           p->N % 16 == 0 && p->N > SM90_NARROW && even(n->out[1]);
}

/* MOE_LINEAR and MOE_LINEAR_DX */
static af_status linear_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const product p = product_of(cu, n);
    if (!af_cuda_float(p.x))
        return af_cuda_no_type(n, p.x, err);
    if (af_count(p.x) == 0)
        return AF_OK;
    fill(cu, n, &p.copies);
    const bool fits = p.N % 8 == 0 && p.K % 8 == 0 && p.K2 % 8 == 0 && even(p.x) &&
                      even(n->out[0]) && (!p.x2 || even(p.x2)) && (uintptr_t)p.w % 16 == 0;
    const bool fast = p.x->dtype == AF_DTYPE_BF16 && fits && sm90(cu, p.X),
               gated = fast && n->attr.moe.glu && unit_fits(n, &p);
    if (fast)
        sm90_product(cu, n, &p, gated);
    else
        plain_product(cu, n, &p);
    if (n->attr.moe.glu && !gated)
        unit(cu, n);
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
    const int64_t X = d->dim[0], O = d->dim[1], I = d->dim[2];
    const bool fast = in.x->dtype == AF_DTYPE_BF16 && O % 8 == 0 && I % 8 == 0 && even(in.x) &&
                      even(in.dy) && sm90(cu, X);
    const int columns = I <= SM90_NARROW ? SM90_NARROW : SM90_WIDE;
    af_launch *l;
    if (fast)
        l = af_cuda_launch(cu, n,
                           af_cuda_kernel(cu, "moe_sm90_dw.cu", "moe_dw",
                                          af_cuda_text(cu, "AF_GATHER=1 AF_BN=%d", columns)),
                           cu->sms, 1, 1, SM90_THREADS, sm90_shared(columns, X));
    else
        l = af_cuda_launch(cu, n, plain_kernel(cu, "moe_outer", in.x->dtype), (I + TILE - 1) / TILE,
                           (O + TILE - 1) / TILE, X, 256, 0);
    af_arg_ptr(l, d->data);
    if (fast)
        af_arg_map(cu, l, af_mat_of(in.dy));
    else
        af_arg_mat(l, af_mat_of(in.dy));
    af_arg_mat(l, af_mat_of(in.x));
    af_arg_ptr(l, n->attr.moe.by_token ? in.list->data : NULL);
    af_arg_i32(l, n->attr.moe.k);
    af_arg_ptr(l, in.start->data);
    if (fast)
        af_arg_i32(l, X);
    af_arg_i32(l, O);
    af_arg_i32(l, I);
    af_arg_i32(l, n->accumulate);
    return AF_OK;
}

static af_status dbias_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    const af_tensor *d = n->out[0];
    (void)g;
    if (!af_cuda_float(in.dy) || d->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, in.dy, err);
    af_launch *l = af_cuda_launch(cu, n, plain_kernel(cu, "moe_dbias", in.dy->dtype),
                                  (d->dim[1] + 127) / 128, d->dim[0], 1, 128, 0);
    af_arg_ptr(l, d->data);
    af_arg_mat(l, af_mat_of(in.dy));
    af_arg_ptr(l, in.start->data);
    af_arg_i32(l, d->dim[1]);
    af_arg_i32(l, n->accumulate);
    return AF_OK;
}

const af_cuda_op af_cuda_moe_linear = {linear_prepare, linear_work, true};
const af_cuda_op af_cuda_moe_linear_dx = {linear_prepare, linear_work, true};
const af_cuda_op af_cuda_moe_linear_dw = {dw_prepare, NULL, true};
const af_cuda_op af_cuda_moe_linear_dbias = {dbias_prepare, NULL, true};
