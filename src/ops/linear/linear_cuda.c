/* linear_cuda.c - launchers of linear.c: GEMMs over the extended matrices of linear_cuda.h. */
#include "ops/linear/linear_cuda.h"
#include "backend/cuda/cuda_graph.h"
#include "ops/linear/fp8_cuda.h"

static af_status no_group(const af_node *n, af_error *err)
{
    return af_fail(err, AF_EUNSUPPORTED,
                   "op '%s' of type %s has no projection it belongs to on the GPU",
                   af_ops[n->op]->name, af_dtype_name(n->in[0]->dtype));
}

static const af_linear_group *group(const af_graph *g, const af_node *n)
{
    return af_linear_group_of(g, n);
}

/* Whether weights and adapter are one GEMM of node n: its input has the spare columns. */
static bool folded(const af_linear_group *p, const af_node *n)
{
    const af_tensor *t = n->in[0];
    return n->attr.linear.parts && n->attr.linear.pieces && p->R <= AF_FOLD_RANK &&
           t->ld >= af_last(t) + p->ext;
}

/* The adapter's values in the spare columns of t: there already, or copied now, then zeros. */
static void fill_spare_columns(af_cuda *cu, af_node *n, const af_linear_group *p,
                               const af_tensor *t, const af_tensor *low)
{
    if (low->base != t)
        af_cuda_copy_2d(cu, n, af_mat_cols(t, af_last(t), p->ext), af_mat_of(low), p->ext, 1.0f);
}

/* What is added to columns of n's result, from `from` on. */
static af_mat addend(const af_node *n, int64_t from, int64_t cols)
{
    const af_tensor *add = af_linear_in(n).add;
    return add ? af_mat_cols(add, from, cols) : (af_mat){0};
}

static void direct_fwd(af_cuda *cu, af_node *n, const af_linear_group *p)
{
    const int64_t *from = n->attr.linear.piece_from;
    af_linear_group_fill(cu, n, p, AF_FILL_BIAS);
    for (int i = 0; i < p->pieces; i++)
        af_cuda_add_gemm(
            cu, n,
            &(af_cuda_gemm){.a = af_mat_of(n->in[0]),
                            .b = af_mat_of(af_linear_group_piece(p, n, i)),
                            .c = af_mat_cols(n->out[0], from[i], from[i + 1] - from[i]),
                            .add = addend(n, from[i], from[i + 1] - from[i]),
                            .tb = true,
                            .alpha = 1,
                            .beta = n->attr.linear.adds,
                            .bias = af_linear_group_bias(cu, p, from[i])});
}

/* Whether the adapter's term can be part of the FP8 product: its values have all spare columns. */
static bool joins(const af_linear_group *p, const af_tensor *low)
{
    return p->parts && p->R <= AF_FOLD_RANK && low->ld >= p->ext && low->ld % 8 == 0;
}

/* LINEAR and LINEAR_DX in FP8; an adapter that does not join is added afterwards, as without. */
static void in_fp8(af_cuda *cu, af_node *n, const af_linear_group *p)
{
    const bool forward = n->op == AF_OP_LINEAR;
    const af_linear_inputs in = af_linear_in(n);
    const af_tensor *x = n->in[0], *low = forward ? in.xa : in.g;
    const bool joined = low && joins(p, low);
    af_mat x2 = {0}, w2 = {0};
    if (low && (forward || !joined))
        af_linear_group_fill(cu, n, p, forward ? AF_FILL_B : AF_FILL_A);
    if (joined) {
        x2 = low->base == x ? af_mat_cols(x, af_last(x), p->ext) : af_mat_cols(low, 0, p->ext);
        w2 = forward ? af_linear_group_mat(cu, p, 0, p->O, p->I, p->ext) : af_mat_of(p->at);
    }
    af_fp8_cuda_product(cu, n, p, x2, w2, forward ? af_linear_group_bias(cu, p, 0) : NULL);
    if (low && !joined)
        af_cuda_add_gemm(cu, n,
                         &(af_cuda_gemm){.a = af_mat_of(low),
                                         .b = forward
                                                  ? af_linear_group_mat(cu, p, 0, p->O, p->I, p->R)
                                                  : af_linear_group_mat(cu, p, p->O, p->R, 0, p->I),
                                         .c = af_mat_of(n->out[0]),
                                         .tb = forward,
                                         .alpha = 1,
                                         .beta = 1});
}

static af_status linear_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_linear_group *p = group(g, n);
    if (!p)
        return no_group(n, err);
    const af_tensor *x = n->in[0], *xa = af_linear_in(n).xa;
    if (p->fp8) {
        in_fp8(cu, n, p);
        return AF_OK;
    }
    if (p->direct) {
        direct_fwd(cu, n, p);
        return AF_OK;
    }
    if (af_bnb_linear(cu, n, p))
        return AF_OK;
    af_linear_group_fill(cu, n, p, AF_FILL_W | AF_FILL_B | AF_FILL_BIAS);
    const bool fold = folded(p, n);
    const int64_t K = fold ? p->I + p->ext : p->I;
    if (fold)
        fill_spare_columns(cu, n, p, x, xa);
    const af_linear_epilogue *epilogue = af_linear_groups_of(g)->epilogue;
    if (epilogue && epilogue->launch(cu, g, n, p))
        return AF_OK;
    const af_mat y = af_mat_of(n->out[0]);
    if (p->pieces)
        af_cuda_add_gemm(cu, n,
                         &(af_cuda_gemm){.a = af_mat_cols(x, 0, K),
                                         .b = af_linear_group_mat(cu, p, 0, p->O, 0, K),
                                         .c = y,
                                         .add = addend(n, 0, p->O),
                                         .tb = true,
                                         .alpha = 1,
                                         .beta = n->attr.linear.adds,
                                         .bias = af_linear_group_bias(cu, p, 0)});
    if (p->parts && !fold)
        af_cuda_add_gemm(cu, n,
                         &(af_cuda_gemm){.a = af_mat_of(xa),
                                         .b = af_linear_group_mat(cu, p, 0, p->O, p->I, p->R),
                                         .c = y,
                                         .tb = true,
                                         .alpha = 1,
                                         .beta = p->pieces ? 1 : 0});
    return AF_OK;
}

static af_status linear_dx_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_linear_group *p = group(g, n);
    if (!p)
        return no_group(n, err);
    const af_tensor *dy = n->in[0], *low = af_linear_in(n).g;
    const af_mat dx = af_mat_of(n->out[0]);
    const int64_t *from = n->attr.linear.piece_from;
    if (n->attr.linear.fp8) {
        in_fp8(cu, n, p);
        return AF_OK;
    }
    for (int i = 0; i < p->pieces && p->direct; i++)
        af_cuda_add_gemm(cu, n,
                         &(af_cuda_gemm){.a = af_mat_cols(dy, from[i], from[i + 1] - from[i]),
                                         .b = af_mat_of(af_linear_group_piece(p, n, i)),
                                         .c = dx,
                                         .alpha = 1,
                                         .beta = i ? 1 : 0});
    if (p->direct)
        return AF_OK;
    if (n->attr.linear.pieces && af_bnb_linear_dx(cu, n, p))
        return AF_OK;
    af_linear_group_fill(cu, n, p, (n->attr.linear.pieces ? AF_FILL_W : 0) | (low ? AF_FILL_A : 0));
    const bool fold = folded(p, n);
    const int64_t K = fold ? p->O + p->ext : p->O;
    if (fold)
        fill_spare_columns(cu, n, p, dy, low);
    if (n->attr.linear.pieces)
        af_cuda_add_gemm(cu, n,
                         &(af_cuda_gemm){.a = af_mat_cols(dy, 0, K),
                                         .b = af_linear_group_mat(cu, p, 0, K, 0, p->I),
                                         .c = dx,
                                         .alpha = 1});
    if (low && !fold)
        af_cuda_add_gemm(cu, n,
                         &(af_cuda_gemm){.a = af_mat_of(low),
                                         .b = af_linear_group_mat(cu, p, p->O, p->R, 0, p->I),
                                         .c = dx,
                                         .alpha = 1,
                                         .beta = n->attr.linear.pieces ? 1 : 0});
    return AF_OK;
}

/* low = scale * x A' (down) or scale * dy B (up): into the spare columns of x or dy at once when
 * the result lies there (all of them, so that those after the ranks become zeros). */
static void low_rank(af_cuda *cu, af_node *n, const af_linear_group *p, bool down)
{
    const af_tensor *x = n->in[0], *low = n->out[0];
    const bool in_spare = low->base == x;
    const int64_t width = in_spare || low->ld >= p->ext ? p->ext : p->R;
    bool one = true;
    for (int i = 1; i < p->parts; i++)
        one &= n->attr.linear.part[i].scale == n->attr.linear.part[0].scale;
    if (one &&
        af_low_rank(cu, n, p, down,
                    in_spare ? af_mat_cols(x, af_last(x), width) : af_mat_cols(low, 0, width)))
        return;
    af_linear_group_fill(cu, n, p, down ? AF_FILL_A : AF_FILL_B);
    for (int i = 0; i < (one ? 1 : p->parts); i++) {
        const af_adapter_part *q = &n->attr.linear.part[i];
        const int64_t at = one ? 0 : q->rank_from, count = one ? width : q->rank;
        af_mat c = in_spare ? af_mat_cols(x, af_last(x), width) : af_mat_cols(low, at, count);
        af_cuda_add_gemm(
            cu, n,
            &(af_cuda_gemm){.a = af_mat_of(x),
                            .b = down ? af_linear_group_mat(cu, p, p->O + at, count, 0, p->I)
                                      : af_linear_group_mat(cu, p, 0, p->O, p->I + at, count),
                            .c = c,
                            .tb = down,
                            .alpha = q->scale});
    }
}

static af_status adapter_down_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_linear_group *p = group(g, n);
    if (!p)
        return no_group(n, err);
    low_rank(cu, n, p, true);
    return AF_OK;
}

static af_status adapter_g_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_linear_group *p = group(g, n);
    if (!p)
        return no_group(n, err);
    low_rank(cu, n, p, false);
    return AF_OK;
}

/* out[o][i] (+)= sum_n y[n][o] x[n][i] */
static void outer(af_cuda *cu, af_node *n, af_mat y, af_mat x, af_mat out)
{
    af_cuda_add_gemm(
        cu, n,
        &(af_cuda_gemm){
            .a = y, .b = x, .c = out, .ta = true, .alpha = 1, .beta = n->accumulate ? 1 : 0});
}

static af_status linear_dw_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g, (void)err;
    const int64_t *from = n->attr.linear.piece_from + n->attr.linear.piece;
    outer(cu, n, af_mat_cols(n->in[1], from[0], from[1] - from[0]), af_mat_of(n->in[0]),
          af_mat_of(n->out[0]));
    return AF_OK;
}

static af_status linear_dbias_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g, (void)err;
    const int64_t *from = n->attr.linear.piece_from + n->attr.linear.piece;
    const af_mat y = af_mat_cols(n->in[0], from[0], from[1] - from[0]);
    af_kernel *k = af_cuda_kernel(cu, "core.cu", "sum_rows",
                                  af_cuda_text(cu, "AF_S=%s AF_D=%s", af_cuda_ctype(y.dtype),
                                               af_cuda_ctype(n->out[0]->dtype)));
    const int64_t size = af_dtype_get(y.dtype)->bytes;
    af_launch *l = af_cuda_launch(cu, n, k, (y.cols + 31) / 32, 1, 1, 1024, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_mat(l, y);
    af_arg_i64(l, y.rows);
    af_arg_i64(l, y.cols);
    af_arg_i32(l, n->accumulate);
    af_arg_i32(l, (uintptr_t)y.data % 16 == 0 && y.ld * size % 16 == 0);
    return AF_OK;
}

static af_status adapter_da_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g, (void)err;
    outer(cu, n, af_mat_of(n->in[1]), af_mat_of(n->in[0]), af_mat_of(n->out[0]));
    return AF_OK;
}

static af_status adapter_db_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g, (void)err;
    const af_tensor *out = n->out[0];
    uint8_t *at = out->data;
    if (af_low_rank_db(cu, n))
        return AF_OK;
    for (int i = 0; i < n->attr.linear.parts; i++) {
        const af_adapter_part *q = &n->attr.linear.part[i];
        outer(cu, n, af_mat_cols(n->in[0], q->out_from, q->out_rows),
              af_mat_cols(n->in[1], q->rank_from, q->rank),
              (af_mat){at, q->out_rows, q->rank, q->rank, out->dtype});
        at += (uint64_t)(q->out_rows * q->rank) * (uint64_t)af_dtype_get(out->dtype)->bytes;
    }
    return AF_OK;
}

/* Groups are found in the graph being laid out or prepared. */
static uint64_t group_work(const af_cuda *cu, const af_node *n)
{
    uint64_t bytes = 0;
    /* the matrix of this node, whatever type its pieces have: asked for in scratch mode only */
    if (cu->graph)
        bytes = af_linear_group_scratch(group(cu->graph, n));
    const af_linear_epilogue *epilogue =
        cu->graph ? af_linear_groups_of(cu->graph)->epilogue : NULL;
    if (epilogue && n->op == AF_OP_LINEAR)
        bytes = AF_MAX(bytes, epilogue->work(cu, n));
    const uint64_t codes = af_fp8_cuda_work(n);
    return codes ? AF_ALIGN_UP(bytes, (uint64_t)256) + codes : bytes;
}

const af_cuda_op af_cuda_linear = {linear_prepare, group_work, true};
const af_cuda_op af_cuda_linear_dx = {linear_dx_prepare, group_work, true};
const af_cuda_op af_cuda_adapter_down = {adapter_down_prepare, group_work, true};
const af_cuda_op af_cuda_adapter_g = {adapter_g_prepare, group_work, true};
const af_cuda_op af_cuda_linear_dw = {linear_dw_prepare, NULL, true};
const af_cuda_op af_cuda_linear_dbias = {linear_dbias_prepare, NULL, true};
const af_cuda_op af_cuda_adapter_da = {adapter_da_prepare, NULL, true};
const af_cuda_op af_cuda_adapter_db = {adapter_db_prepare, NULL, true};
