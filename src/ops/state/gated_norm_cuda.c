/* gated_norm_cuda.c - launchers of gated_norm.c. */
#include "ops/state/gated_norm_in.h"
#include "ops/state/state_cuda.h"

enum { THREADS = 256, WARP_COLUMNS = 512, VEC = 4, PART_GROUPS = 256, PARTS = 64 };

/* norm_args of gated_norm.cu */
typedef struct norm_args {
    const void *w;
    int w_type, E, groups, first;
    float eps;
    int by_warp;
} norm_args;

static norm_args args_of(const af_node *n, const af_gated_norm_inputs *in)
{
    return (norm_args){.w = af_cuda_data(in->w),
                       .w_type = af_cuda_state_type(in->w),
                       .E = (int)in->E,
                       .groups = (int)(in->D / in->E),
                       .first = n->attr.norm.gate_first,
                       .eps = (float)n->attr.norm.eps,
                       .by_warp = in->E <= WARP_COLUMNS};
}

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *x, int vec)
{
    return af_cuda_kernel(cu, "gated_norm.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_VEC=%d", af_cuda_ctype(x->dtype), vec));
}

/* Its rows, and every group in them, begin at whole accesses. */
static bool even(const af_tensor *t)
{
    return !t || (t->ld % VEC == 0 && (uintptr_t)t->data % 16 == 0);
}

static af_status gated_norm_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_gated_norm_inputs in = af_gated_norm_in(n);
    const norm_args a = args_of(n, &in);
    const af_status st = af_cuda_state_check(n, err);
    const int64_t count = af_rows(in.x) * a.groups, per = a.by_warp ? THREADS / 32 : 1;
    if (st != AF_OK || count == 0)
        return st;
    const bool wide = a.E % VEC == 0 && even(in.x) && even(in.gate) && even(in.dy) &&
                      even(n->out[0]) && (!in.dy || even(n->out[1]));
    af_launch *l = af_cuda_launch(
        cu, n, kernel(cu, in.dy ? "gated_norm_bwd" : "gated_norm_fwd", in.x, wide ? VEC : 1),
        (count + per - 1) / per, 1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, in.x->data);
    af_arg_ptr(l, in.gate->data);
    if (in.dy) {
        af_arg_ptr(l, in.rstd->data);
        af_arg_ptr(l, in.dy->data);
    }
    af_arg_bytes(l, &a, sizeof a);
    af_arg_i64(l, count);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_i64(l, n->out[1]->ld);
    af_arg_i64(l, in.x->ld);
    af_arg_i64(l, in.gate->ld);
    if (in.dy) {
        af_arg_i64(l, in.rstd->ld);
        af_arg_i64(l, in.dy->ld);
    }
    return AF_OK;
}

static int64_t parts_of(const af_gated_norm_inputs *in)
{
    const int64_t groups = af_rows(in->x) * (in->D / in->E);
    return AF_MAX(AF_MIN(groups / PART_GROUPS, (int64_t)PARTS), INT64_C(1));
}

static uint64_t gated_norm_dw_work(const af_cuda *cu, const af_node *n)
{
    const af_gated_norm_inputs in = af_gated_norm_in(n);
    (void)cu;
    return (uint64_t)(parts_of(&in) * in.E) * sizeof(float);
}

static af_status gated_norm_dw_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_gated_norm_inputs in = af_gated_norm_in(n);
    const norm_args a = args_of(n, &in);
    const af_status st = af_cuda_state_check(n, err);
    const int64_t count = af_rows(in.x) * a.groups, parts = parts_of(&in);
    if (st != AF_OK)
        return st;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "gated_norm_dw", in.x, 1), (in.E + 31) / 32,
                                  parts, 1, THREADS, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, in.x->data);
    af_arg_ptr(l, in.gate->data);
    af_arg_ptr(l, in.rstd->data);
    af_arg_ptr(l, in.dy->data);
    af_arg_bytes(l, &a, sizeof a);
    af_arg_i64(l, count);
    af_arg_i64(l, (count + parts - 1) / parts);
    af_arg_i64(l, in.x->ld);
    af_arg_i64(l, in.gate->ld);
    af_arg_i64(l, in.rstd->ld);
    af_arg_i64(l, in.dy->ld);
    af_cuda_reduce_parts(cu, n, n->out[0], cu->work, in.E, parts, 1, n->accumulate);
    return AF_OK;
}

const af_cuda_op af_cuda_gated_norm = {gated_norm_prepare, NULL, true};
const af_cuda_op af_cuda_gated_norm_bwd = {gated_norm_prepare, NULL, true};
const af_cuda_op af_cuda_gated_norm_dw = {gated_norm_dw_prepare, gated_norm_dw_work, true};
