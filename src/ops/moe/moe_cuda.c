/* moe_cuda.c - launchers of the router and of the sums over experts: moe.c. */
#include "ops/common/cuda_ops.h"
#include "ops/moe/moe_in.h"

enum { CHUNK = 1024 }; /* pairs a block of moe_count and moe_list takes: moe_route.cu */

/* Attributes as the kernels see them. */
typedef struct route_args {
    int32_t X, k, score, norm, groups, groups_used, group_best;
    float eps, scale;
} route_args;

static void arg_route(af_launch *l, const af_node *n, int64_t X)
{
    const route_args r = {.X = (int32_t)X,
                          .k = n->attr.route.k,
                          .score = (int32_t)n->attr.route.score,
                          .norm = n->attr.route.norm,
                          .groups = AF_MAX(n->attr.route.groups, 1),
                          .groups_used = n->attr.route.groups_used,
                          .group_best = n->attr.route.group_best,
                          .eps = (float)n->attr.route.eps,
                          .scale = (float)n->attr.route.scale};
    af_arg_bytes(l, &r, sizeof r);
}

static af_status route_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    (void)g;
    const bool back = n->op == AF_OP_MOE_ROUTE_BWD;
    const af_tensor *z = back ? n->out[0] : in.logits;
    const int64_t N = af_rows(z), X = af_last(z);
    if (!af_cuda_float(z) || (in.choice && in.choice->dtype != AF_DTYPE_F32))
        return af_fail(err, AF_EUNSUPPORTED, "moe_route of %s on the GPU",
                       af_dtype_name(in.choice ? in.choice->dtype : z->dtype));
    const int64_t row = (X + AF_MAX(n->attr.route.groups, 1)) * 4, rows = row <= 8192 ? 4 : 1;
    af_kernel *k = af_cuda_kernel(cu, "moe_route.cu", back ? "moe_route_bwd" : "moe_route",
                                  af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(z->dtype)));
    if (back) {
        af_launch *l = af_cuda_launch(cu, n, k, (N + 3) / 4, 1, 1, 128, 0);
        af_arg_mat(l, af_mat_of(z));
        af_arg_ptr(l, in.scores->data);
        af_arg_ptr(l, in.index->data);
        af_arg_ptr(l, in.dweights->data);
        af_arg_i64(l, N);
        arg_route(l, n, X);
        return AF_OK;
    }
    af_launch *l = af_cuda_launch(cu, n, k, (N + rows - 1) / rows, 1, 1, (int)(32 * rows),
                                  (unsigned)(rows * row));
    for (int i = 0; i < 3; i++)
        af_arg_ptr(l, n->out[i]->data);
    af_arg_mat(l, af_mat_of(z));
    af_arg_ptr(l, in.choice ? in.choice->data : NULL);
    af_arg_i64(l, N);
    arg_route(l, n, X);
    return AF_OK;
}

static af_status pick_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    enum { THREADS = 256 };
    const af_moe_inputs in = af_moe_in(n);
    const bool back = n->op == AF_OP_MOE_PICK_BWD;
    const af_tensor *v = back ? n->out[0] : in.scores;
    const int64_t P = back ? af_count(v) : af_count(in.index);
    (void)g;
    if (v->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, v, err);
    af_kernel *k =
        af_cuda_kernel(cu, "moe_pick.cu", back ? "moe_pick_bwd" : "moe_pick", "AF_T=float");
    af_launch *l = af_cuda_launch(cu, n, k, (P + THREADS - 1) / THREADS, 1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, back ? in.dweights->data : in.scores->data);
    af_arg_ptr(l, in.index->data);
    af_arg_i64(l, P);
    af_arg_i32(l, af_last(v));
    af_arg_i32(l, af_last(in.index));
    return AF_OK;
}

static af_status real_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    enum { THREADS = 256 };
    const int64_t P = af_count(n->in[0]);
    (void)g;
    if (n->out[1]->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, n->out[1], err);
    af_kernel *k = af_cuda_kernel(cu, "moe_real.cu", "moe_real", "AF_T=float");
    af_launch *l = af_cuda_launch(cu, n, k, (P + THREADS - 1) / THREADS, 1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, n->in[0]->data);
    af_arg_i64(l, P);
    af_arg_i32(l, n->attr.moe.real);
    return AF_OK;
}

static int64_t chunks_of(const af_node *n) { return (af_count(n->in[0]) + CHUNK - 1) / CHUNK; }

static uint64_t list_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return (uint64_t)(chunks_of(n) * (n->out[2]->dim[0] - 1)) * sizeof(int32_t);
}

/* A counting sort: how many of each expert in each chunk, then the places. */
static af_status list_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    enum { SHARED = 48 << 10 }; /* that every device has */
    const int64_t X = n->out[2]->dim[0] - 1, P = af_count(n->in[0]);
    int warps = 8; /* each has a row of counts in shared memory */
    while (warps > 1 && (warps + 1) * X * 4 > SHARED)
        warps /= 2;
    (void)g;
    if ((warps + 1) * X * 4 > SHARED)
        return af_fail(err, AF_EUNSUPPORTED, "%" PRId64 " experts on the GPU: at most %d", X,
                       SHARED / 8);
    for (int i = 0; i < 2; i++) {
        af_kernel *k =
            af_cuda_kernel(cu, "moe_route.cu", i ? "moe_list" : "moe_count", "AF_T=float");
        af_launch *l = af_cuda_launch(cu, n, k, chunks_of(n), 1, 1, 32 * warps,
                                      (unsigned)((i ? warps + 1 : 1) * X * 4));
        for (int o = 0; o < 3 && i; o++)
            af_arg_ptr(l, n->out[o]->data);
        af_arg_ptr(l, cu->work);
        af_arg_ptr(l, n->in[0]->data);
        af_arg_i32(l, P);
        af_arg_i32(l, X);
    }
    return AF_OK;
}

/* Values of one access: 16 bytes where every row of all three begins on 16. */
static af_kernel *row_kernel(af_cuda *cu, const char *name, const af_tensor *a, const af_tensor *b,
                             const af_tensor *c)
{
    const int64_t most = 16 / af_dtype_get(a->dtype)->bytes;
    const bool fits =
        af_last(a) % most == 0 && a->ld % most == 0 && b->ld % most == 0 && c->ld % most == 0;
    return af_cuda_kernel(
        cu, "moe.cu", name,
        af_cuda_text(cu, "AF_T=%s AF_VEC=%d", af_cuda_ctype(a->dtype), fits ? (int)most : 1));
}

static af_status combine_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    const af_tensor *y = n->out[0];
    (void)g;
    if (!af_cuda_float(in.out))
        return af_cuda_no_type(n, in.out, err);
    const af_tensor *plus = in.plus ? in.plus : y;
    af_launch *l = af_cuda_launch(cu, n, row_kernel(cu, "moe_combine", in.out, y, plus), af_rows(y),
                                  1, 1, 256, 0);
    af_arg_mat(l, af_mat_of(y));
    af_arg_mat(l, af_mat_of(in.out));
    af_arg_ptr(l, in.weights ? in.weights->data : NULL);
    af_arg_ptr(l, in.slot->data);
    af_arg_i32(l, af_last(y));
    af_arg_i32(l, n->attr.moe.k);
    af_arg_ptr(l, in.plus ? in.plus->data : NULL);
    af_arg_i64(l, plus->ld);
    return AF_OK;
}

static af_status combine_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    (void)g;
    if (!af_cuda_float(in.out))
        return af_cuda_no_type(n, in.out, err);
    af_kernel *k = row_kernel(cu, "moe_combine_bwd", in.out, in.dy, n->out[0]);
    af_launch *l = af_cuda_launch(cu, n, k, af_count(in.list), 1, 1, 256, 0);
    af_arg_mat(l, af_mat_of(n->out[0]));
    af_arg_ptr(l, n->out[1]->data);
    af_arg_mat(l, af_mat_of(in.out));
    af_arg_mat(l, af_mat_of(in.dy));
    af_arg_ptr(l, in.weights->data);
    af_arg_ptr(l, in.slot->data);
    af_arg_i32(l, af_last(in.out));
    af_arg_i32(l, n->attr.moe.k);
    return AF_OK;
}

static af_status glu_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    enum { SLOTS = 8 }; /* of a block, one a warp */
    const af_moe_inputs in = af_moe_in(n);
    const int64_t F = af_last(in.dy), P = af_count(in.list), most = af_cuda_wide(in.dy);
    (void)g;
    if (!af_cuda_float(in.dy))
        return af_cuda_no_type(n, in.dy, err);
    const bool fits = F % most == 0 && af_cuda_rows_fit(in.gate_up, (int)most) &&
                      af_cuda_rows_fit(in.dy, (int)most) && af_cuda_rows_fit(n->out[0], (int)most);
    af_kernel *k =
        af_cuda_kernel(cu, "moe_glu.cu", "moe_glu_bwd",
                       af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_ACT=%d", af_cuda_ctype(in.dy->dtype),
                                    fits ? (int)most : 1, n->attr.moe.act));
    af_launch *l = af_cuda_launch(cu, n, k, (P + SLOTS - 1) / SLOTS, 1, 1, 32 * SLOTS, 0);
    af_arg_mat(l, af_mat_of(n->out[0]));
    af_arg_ptr(l, n->out[1]->data);
    af_arg_mat(l, af_mat_of(in.gate_up));
    af_arg_mat(l, af_mat_of(in.dy));
    af_arg_ptr(l, in.weights->data);
    af_arg_ptr(l, in.slot->data);
    af_arg_i64(l, P);
    af_arg_i32(l, F);
    return AF_OK;
}

const af_cuda_op af_cuda_moe_route = {route_prepare, NULL, true};
const af_cuda_op af_cuda_moe_route_bwd = {route_prepare, NULL, true};
const af_cuda_op af_cuda_moe_pick = {pick_prepare, NULL, true};
const af_cuda_op af_cuda_moe_pick_bwd = {pick_prepare, NULL, true};
const af_cuda_op af_cuda_moe_real = {real_prepare, NULL, true};
const af_cuda_op af_cuda_moe_list = {list_prepare, list_work, true};
const af_cuda_op af_cuda_moe_combine = {combine_prepare, NULL, true};
const af_cuda_op af_cuda_moe_combine_bwd = {combine_bwd_prepare, NULL, true};
const af_cuda_op af_cuda_moe_glu_bwd = {glu_bwd_prepare, NULL, true};
