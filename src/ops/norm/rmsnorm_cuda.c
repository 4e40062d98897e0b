/* rmsnorm_cuda.c - launchers of rmsnorm.c. One warp or block per row, which stays in
 * registers. */
#include "ops/common/cuda_ops.h"
#include "ops/linear/fp8_cuda.h"
#include "ops/norm/norm_in.h"

enum {
    WARP_PER = 4,       /* a warp does a row of at most 32 * this accesses ... */
    WARP_ROWS = 4,      /* ... and a block this many rows */
    THREADS_WISH = 256, /* else: a row's threads, while one has at most PER_MAX accesses */
    PER_MIN = 2,
    PER_MAX = 8,
    PER_SCALAR = 32,
    THREADS_MAX = 1024,
    DW_ROWS = 8, /* rows a block of rmsnorm_dw has in flight */
    DW_PARTS = 64,
};

typedef struct norm_shape {
    int vec, per, threads;
    bool warp;      /* one warp per row */
    int64_t blocks; /* for all rows */
} norm_shape;

/* False when a row does not fit one block. */
static bool shape_of(norm_shape *s, const af_node *n, const af_tensor *w)
{
    const af_tensor *x = n->in[0];
    const int wide = af_cuda_wide(x);
    bool fits = af_cuda_rows_fit(w, wide);
    for (int i = 0; i < n->n_in && fits; i++)
        fits = n->in[i]->dtype != x->dtype || af_cuda_rows_fit(n->in[i], wide);
    for (int i = 0; i < n->n_out && fits; i++)
        fits = n->out[i]->dtype != x->dtype || af_last(n->out[i]) != af_last(x) ||
               af_cuda_rows_fit(n->out[i], wide);
    s->vec = fits ? wide : 1;
    const int64_t accesses = af_last(x) / s->vec;
    s->warp = fits && accesses <= 32 * WARP_PER;
    if (s->warp) {
        s->per = WARP_PER;
        s->threads = 32 * WARP_ROWS;
        s->blocks = (af_rows(x) + WARP_ROWS - 1) / WARP_ROWS;
        return true;
    }
    s->per = fits ? PER_MIN : PER_MAX;
    while (s->per < PER_MAX && accesses > (int64_t)s->per * THREADS_WISH)
        s->per *= 2;
    if (accesses > (int64_t)s->per * THREADS_MAX)
        s->per = PER_SCALAR;
    const int64_t need = AF_ALIGN_UP((accesses + s->per - 1) / s->per, INT64_C(32));
    s->threads = (int)AF_MAX(AF_MIN(need, (int64_t)THREADS_MAX), INT64_C(32));
    s->blocks = af_rows(x);
    return need <= THREADS_MAX && (s->per != PER_SCALAR || s->vec == 1);
}

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *x, const af_tensor *w,
                         norm_shape s)
{
    return af_cuda_kernel(cu, "rmsnorm.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_W=%s AF_VEC=%d AF_PER=%d AF_WARP=%d",
                                       af_cuda_ctype(x->dtype), af_cuda_ctype(w->dtype), s.vec,
                                       s.per, s.warp));
}

/* The last arguments: where the rows go as codes, when a product in FP8 wants them (fp8_cuda.h). */
static void add_codes(af_launch *l, const af_node *n)
{
    const af_fp8_rows rows = af_fp8_rows_made(n);
    af_arg_ptr(l, rows.codes ? rows.codes->data : NULL);
    af_arg_ptr(l, rows.codes ? rows.scale->data : NULL);
}

AF_CHECKED static af_status check(norm_shape *s, const af_node *n, const af_tensor *w,
                                  af_error *err)
{
    const af_tensor *x = n->in[0];
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (w->dtype != x->dtype && w->dtype != AF_DTYPE_F32 &&
        !(x->dtype == AF_DTYPE_F32 && w->dtype == AF_DTYPE_BF16))
        return af_cuda_no_type(n, w, err);
    if (!shape_of(s, n, w))
        return af_fail(err, AF_EUNSUPPORTED, "rmsnorm: rows of %" PRId64 " are longer than %d",
                       af_last(x), s->vec * PER_MAX * THREADS_MAX);
    return AF_OK;
}

static af_status rmsnorm_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_norm_inputs in = af_norm_in(n);
    const bool add = in.residual != NULL;
    const af_tensor *x = in.x, *w = in.w, *y = n->out[0];
    norm_shape s = {0};
    const af_status st = check(&s, n, w, err);
    if (st != AF_OK || af_rows(x) == 0)
        return st;
    af_kernel *k = kernel(cu, add ? "rmsnorm_add_fwd" : "rmsnorm_fwd", x, w, s);
    af_launch *l = af_cuda_launch(cu, n, k, s.blocks, 1, 1, s.threads, 0);
    af_arg_ptr(l, y->data);
    if (add)
        af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, n->out[add ? 2 : 1]->data);
    af_arg_ptr(l, x->data);
    if (add)
        af_arg_ptr(l, in.residual->data);
    af_arg_ptr(l, w->data);
    af_arg_i64(l, af_rows(x));
    af_arg_i32(l, af_last(x));
    af_arg_i64(l, y->ld);
    if (add)
        af_arg_i64(l, n->out[1]->ld);
    af_arg_i64(l, x->ld);
    if (add)
        af_arg_i64(l, in.residual->ld);
    af_arg_f32(l, n->attr.norm.eps);
    af_arg_f32(l, n->attr.norm.plus_one);
    add_codes(l, n);
    return AF_OK;
}

static af_status rmsnorm_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_norm_inputs in = af_norm_in(n);
    (void)g;
    const af_tensor *x = in.x, *w = in.w, *dy = in.dy, *dx = n->out[0];
    const af_tensor *sum = in.dsum;
    norm_shape s = {0};
    const af_status st = check(&s, n, w, err);
    if (st != AF_OK || af_rows(x) == 0)
        return st;
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "rmsnorm_bwd", x, w, s), s.blocks, 1, 1, s.threads, 0);
    af_arg_ptr(l, dx->data);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, w->data);
    af_arg_ptr(l, in.rstd->data);
    af_arg_ptr(l, dy->data);
    af_arg_ptr(l, sum ? sum->data : NULL);
    af_arg_i64(l, af_rows(x));
    af_arg_i32(l, af_last(x));
    af_arg_i64(l, dx->ld);
    af_arg_i64(l, x->ld);
    af_arg_i64(l, dy->ld);
    af_arg_i64(l, sum ? sum->ld : 0);
    af_arg_f32(l, n->attr.norm.plus_one);
    add_codes(l, n);
    return AF_OK;
}

static int64_t dw_parts(const af_node *n)
{
    const int64_t rows = af_rows(n->in[0]);
    return AF_MAX(AF_MIN(rows / (4 * DW_ROWS), (int64_t)DW_PARTS), INT64_C(1));
}

static uint64_t rmsnorm_dw_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return (uint64_t)(dw_parts(n) * af_last(n->in[0])) * sizeof(float);
}

static af_status rmsnorm_dw_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_norm_inputs in = af_norm_in(n);
    (void)g;
    const af_tensor *x = in.x, *dy = in.dy, *dw = n->out[0];
    norm_shape s = {0};
    const af_status st = check(&s, n, x, err);
    if (st != AF_OK)
        return st;
    const int64_t rows = af_rows(x), D = af_last(x), parts = dw_parts(n);
    const int64_t per = (rows + parts - 1) / parts, columns = (int64_t)32 * s.vec;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "rmsnorm_dw", x, x, s),
                                  (D + columns - 1) / columns, parts, 1, 256, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, in.rstd->data);
    af_arg_ptr(l, dy->data);
    af_arg_i64(l, rows);
    af_arg_i32(l, D);
    af_arg_i64(l, x->ld);
    af_arg_i64(l, dy->ld);
    af_arg_i64(l, per);
    af_cuda_reduce_parts(cu, n, dw, cu->work, D, parts, 1, n->accumulate);
    return AF_OK;
}

const af_cuda_op af_cuda_rmsnorm = {rmsnorm_prepare, NULL, true};
const af_cuda_op af_cuda_rmsnorm_add = {rmsnorm_prepare, NULL, true};
const af_cuda_op af_cuda_rmsnorm_bwd = {rmsnorm_bwd_prepare, NULL, true};
const af_cuda_op af_cuda_rmsnorm_dw = {rmsnorm_dw_prepare, rmsnorm_dw_work, true};
