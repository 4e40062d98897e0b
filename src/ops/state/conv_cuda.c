/* conv_cuda.c - launchers of conv.c. */
#include "ops/state/state_cuda.h"
#include "ops/state/state_in.h"

enum { THREADS = 128, DW_ROWS = 128, DW_PARTS = 64, RUN = 32, RUN_TAPS_MAX = 4 };

/* conv_args of conv.cu */
typedef struct conv_args {
    const void *w, *bias, *bounds, *start, *window;
    int w_type, bias_type, window_type, S, C, K, silu, unused;
} conv_args;

static conv_args args_of(const af_node *n, const af_conv_inputs *in)
{
    return (conv_args){.w = in->w->data,
                       .bias = af_cuda_data(in->bias),
                       .bounds = in->bounds->data,
                       .start = af_cuda_data(in->start),
                       .window = af_cuda_data(in->window),
                       .w_type = af_cuda_state_type(in->w),
                       .bias_type = af_cuda_state_type(in->bias),
                       .window_type = af_cuda_state_type(in->window),
                       .S = (int)in->S,
                       .C = (int)in->C,
                       .K = (int)in->K,
                       .silu = n->attr.conv.silu};
}

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *x)
{
    return af_cuda_kernel(cu, "conv.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_VEC=1 AF_K=0", af_cuda_ctype(x->dtype)));
}

static bool even(const af_tensor *t, int64_t most)
{
    return t->ld % most == 0 && (uintptr_t)t->data % 16 == 0;
}

/* The launch of a kernel that goes down runs of rows; NULL where the shape or a carried window does
 * not allow it. */
static af_launch *run_launch(af_cuda *cu, af_node *n, const char *name, const af_conv_inputs *in,
                             int64_t *cuts)
{
    const int64_t most = 16 / af_dtype_get(in->x->dtype)->bytes;
    int threads;
    if (in->window || in->K < 2 || in->K > RUN_TAPS_MAX || in->C % most || !even(in->x, most) ||
        !even(n->out[0], most) || (in->dy && !even(in->dy, most)))
        return NULL;
    *cuts = af_cuda_cuts(in->C / most, THREADS, &threads);
    af_kernel *k = af_cuda_kernel(cu, "conv.cu", name,
                                  af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_K=%d",
                                               af_cuda_ctype(in->x->dtype), (int)most, (int)in->K));
    return af_cuda_launch(cu, n, k, (af_rows(in->x) + RUN - 1) / RUN * *cuts, 1, 1, threads, 0);
}

static af_status conv_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_conv_inputs in = af_conv_in(n);
    const conv_args a = args_of(n, &in);
    const af_status st = af_cuda_state_check(n, err);
    int threads;
    int64_t cuts = af_cuda_cuts(in.C, THREADS, &threads);
    const int64_t rows = af_rows(in.x);
    if (st != AF_OK || rows == 0)
        return st;
    af_launch *l = run_launch(cu, n, "conv_run", &in, &cuts);
    const bool run = l != NULL;
    if (!run)
        l = af_cuda_launch(cu, n, kernel(cu, "conv_fwd", in.x), rows * cuts, 1, 1, threads, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, in.x->data);
    af_arg_bytes(l, &a, sizeof a);
    af_arg_i32(l, cuts);
    if (run)
        af_arg_i64(l, rows);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_i64(l, in.x->ld);
    if (!in.window || in.K == 1)
        return AF_OK;
    l = af_cuda_launch(cu, n, kernel(cu, "conv_shift", in.x), in.S * cuts, 1, 1, threads, 0);
    af_arg_ptr(l, in.x->data);
    af_arg_bytes(l, &a, sizeof a);
    af_arg_i32(l, cuts);
    af_arg_i64(l, in.x->ld);
    return AF_OK;
}

static af_status conv_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_conv_inputs in = af_conv_in(n);
    const conv_args a = args_of(n, &in);
    const af_status st = af_cuda_state_check(n, err);
    int threads;
    int64_t cuts = af_cuda_cuts(in.C, THREADS, &threads);
    const int64_t rows = af_rows(in.x);
    if (st != AF_OK || rows == 0)
        return st;
    af_launch *l = run_launch(cu, n, "conv_run_bwd", &in, &cuts);
    const bool run = l != NULL;
    if (!run)
        l = af_cuda_launch(cu, n, kernel(cu, "conv_bwd", in.x), rows * cuts, 1, 1, threads, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, in.x->data);
    af_arg_ptr(l, in.dy->data);
    af_arg_bytes(l, &a, sizeof a);
    af_arg_i32(l, cuts);
    if (run)
        af_arg_i64(l, rows);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_i64(l, in.x->ld);
    af_arg_i64(l, in.dy->ld);
    return AF_OK;
}

static int64_t dw_parts(const af_node *n)
{
    return AF_MAX(AF_MIN(af_rows(n->in[0]) / DW_ROWS, (int64_t)DW_PARTS), INT64_C(1));
}

static uint64_t conv_dw_work(const af_cuda *cu, const af_node *n)
{
    const af_conv_inputs in = af_conv_in(n);
    (void)cu;
    return (uint64_t)(dw_parts(n) * (in.K + 1) * in.C) * sizeof(float);
}

static af_status conv_dw_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_conv_inputs in = af_conv_in(n);
    const conv_args a = args_of(n, &in);
    const af_status st = af_cuda_state_check(n, err);
    int threads;
    const int64_t rows = af_rows(in.x), cuts = af_cuda_cuts(in.C, THREADS, &threads),
                  parts = dw_parts(n), stride = (in.K + 1) * in.C;
    if (st != AF_OK)
        return st;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "conv_dw", in.x),
                                  (in.K + (in.bias ? 1 : 0)) * cuts, parts, 1, threads, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, in.x->data);
    af_arg_ptr(l, in.dy->data);
    af_arg_bytes(l, &a, sizeof a);
    af_arg_i32(l, cuts);
    af_arg_i64(l, rows);
    af_arg_i64(l, (rows + parts - 1) / parts);
    af_arg_i64(l, in.x->ld);
    af_arg_i64(l, in.dy->ld);
    af_cuda_reduce_parts(cu, n, n->out[0], cu->work, stride, parts, 1, false);
    if (in.bias)
        af_cuda_reduce_parts(cu, n, n->out[1], (const float *)cu->work + in.K * in.C, stride, parts,
                             1, false);
    return AF_OK;
}

const af_cuda_op af_cuda_conv = {conv_prepare, NULL, true};
const af_cuda_op af_cuda_conv_cached = {conv_prepare, NULL, true};
const af_cuda_op af_cuda_conv_bwd = {conv_bwd_prepare, NULL, true};
const af_cuda_op af_cuda_conv_dw = {conv_dw_prepare, conv_dw_work, true};
