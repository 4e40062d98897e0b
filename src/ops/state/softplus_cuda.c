/* softplus_cuda.c - launchers of softplus.c. */
#include "ops/state/softplus_in.h"
#include "ops/state/state_cuda.h"

enum { THREADS = 256, PART_ROWS = 64, PARTS = 64 };

/* softplus_args of softplus.cu */
typedef struct softplus_args {
    const void *bias, *a_log;
    int bias_type, a_type, H, unused;
} softplus_args;

static softplus_args args_of(const af_softplus_inputs *in)
{
    return (softplus_args){.bias = in->bias->data,
                           .a_log = af_cuda_data(in->a_log),
                           .bias_type = af_cuda_state_type(in->bias),
                           .a_type = af_cuda_state_type(in->a_log),
                           .H = (int)af_last(in->x)};
}

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *x)
{
    return af_cuda_kernel(cu, "softplus.cu", name,
                          af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(x->dtype)));
}

static af_status softplus_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_softplus_inputs in = af_softplus_in(n);
    const softplus_args a = args_of(&in);
    const af_status st = af_cuda_state_check(n, err);
    const int64_t rows = af_rows(in.x);
    if (st != AF_OK || rows == 0)
        return st;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "softplus_fwd", in.x),
                                  af_cuda_grid(cu, rows * a.H, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, in.x->data);
    af_arg_bytes(l, &a, sizeof a);
    af_arg_i64(l, rows);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_i64(l, in.x->ld);
    return AF_OK;
}

static int64_t parts_of(const af_node *n)
{
    return AF_MAX(AF_MIN(af_rows(n->in[0]) / PART_ROWS, (int64_t)PARTS), INT64_C(1));
}

static uint64_t softplus_bwd_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return (uint64_t)(parts_of(n) * 2 * af_last(n->in[0])) * sizeof(float);
}

static af_status softplus_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_softplus_inputs in = af_softplus_in(n);
    const softplus_args a = args_of(&in);
    const af_status st = af_cuda_state_check(n, err);
    const int64_t rows = af_rows(in.x), parts = parts_of(n);
    if (st != AF_OK)
        return st;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "softplus_bwd", in.x), (a.H + 31) / 32, parts,
                                  1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, in.x->data);
    af_arg_ptr(l, in.dy->data);
    af_arg_bytes(l, &a, sizeof a);
    af_arg_i64(l, rows);
    af_arg_i64(l, (rows + parts - 1) / parts);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_i64(l, in.x->ld);
    af_arg_i64(l, in.dy->ld);
    const int64_t stride = 2 * (int64_t)a.H;
    af_cuda_reduce_parts(cu, n, n->out[1], cu->work, stride, parts, 1, false);
    if (in.a_log)
        af_cuda_reduce_parts(cu, n, n->out[2], (const float *)cu->work + a.H, stride, parts, 1,
                             false);
    return AF_OK;
}

const af_cuda_op af_cuda_softplus = {softplus_prepare, NULL, true};
const af_cuda_op af_cuda_softplus_bwd = {softplus_bwd_prepare, softplus_bwd_work, true};
