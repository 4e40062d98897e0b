/* xielu_cuda.c - launchers of xielu.c. */
#include "ops/common/cuda_ops.h"
#include "ops/xielu/xielu_in.h"

enum { THREADS = 256, PARTS = 256 };

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *x)
{
    return af_cuda_kernel(cu, "xielu.cu", name,
                          af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(x->dtype)));
}

static af_status check(const af_node *n, const af_xielu_inputs *in, af_error *err)
{
    if (!af_cuda_float(in->x))
        return af_cuda_no_type(n, in->x, err);
    for (int i = 1; i < 5; i++)
        if (n->in[i]->dtype != AF_DTYPE_F32)
            return af_cuda_no_type(n, n->in[i], err);
    return AF_OK;
}

static af_status xielu_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const bool back = n->op == AF_OP_XIELU_BWD;
    const af_xielu_inputs in = af_xielu_in(n);
    const af_status st = check(n, &in, err);
    const int64_t F = af_last(in.x), rows = af_rows(in.x);
    int threads;
    const int64_t cuts = af_cuda_cuts(F, THREADS, &threads);
    if (st != AF_OK || rows == 0)
        return st;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, back ? "xielu_bwd" : "xielu_fwd", in.x),
                                  rows * cuts, 1, 1, threads, 0);
    af_arg_ptr(l, n->out[0]->data);
    for (int i = 0; i < n->n_in; i++)
        af_arg_ptr(l, n->in[i]->data);
    af_arg_i32(l, F);
    af_arg_i32(l, cuts);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_i64(l, in.x->ld);
    if (back)
        af_arg_i64(l, in.dy->ld);
    return AF_OK;
}

static int64_t parts_of(const af_node *n)
{
    return AF_MAX(AF_MIN(af_rows(n->in[0]), (int64_t)PARTS), INT64_C(1));
}

static uint64_t dslope_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return (uint64_t)parts_of(n) * 2 * sizeof(float);
}

static af_status xielu_dslope_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_xielu_inputs in = af_xielu_in(n);
    const af_status st = check(n, &in, err);
    if (st != AF_OK)
        return st;
    const int64_t rows = af_rows(in.x), parts = parts_of(n);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "xielu_dslope", in.x), parts, 1, 1, THREADS, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, in.x->data);
    af_arg_ptr(l, in.p->data);
    af_arg_ptr(l, in.n->data);
    af_arg_ptr(l, in.eps->data);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, rows);
    af_arg_i32(l, af_last(in.x));
    af_arg_i64(l, in.x->ld);
    af_arg_i64(l, in.dy->ld);
    af_arg_i64(l, (rows + parts - 1) / parts);
    af_cuda_reduce_parts(cu, n, n->out[0], cu->work, 2, parts, 1, false);
    af_cuda_reduce_parts(cu, n, n->out[1], (const float *)cu->work + 1, 2, parts, 1, false);
    return AF_OK;
}

const af_cuda_op af_cuda_xielu = {xielu_prepare, NULL, true};
const af_cuda_op af_cuda_xielu_bwd = {xielu_prepare, NULL, true};
const af_cuda_op af_cuda_xielu_dslope = {xielu_dslope_prepare, dslope_work, true};
