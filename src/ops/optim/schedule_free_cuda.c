/* schedule_free_cuda.c - launchers of FREE_WEIGHT and FREE (schedule_free_cpu.c). */
#include "ops/common/cuda_ops.h"
#include "ops/optim/optim_in.h"

enum { THREADS = 256 };

static af_kernel *kernel(af_cuda *cu, const char *name)
{
    return af_cuda_kernel(cu, "schedule_free.cu", name, "");
}

static af_status free_weight_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)err;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "free_weight"), 1, 1, 1, 32, 0);
    af_arg_ptr(l, n->out[0]->data);
    for (int i = 0; i < n->n_in; i++)
        af_arg_ptr(l, n->in[i]->data);
    af_arg_f64(l, g->optimizer.lr_power);
    return AF_OK;
}

static af_status free_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    const int64_t count = af_count(in.params);
    (void)g;
    if (in.params->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, in.params, err);
    if (count == 0)
        return AF_OK;
    assert(count % 4 == 0);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "free_update"),
                                  af_cuda_grid(cu, count / 4, THREADS), 1, 1, THREADS, 0);
    for (int i = 0; i < n->n_in; i++)
        af_arg_ptr(l, n->in[i]->data);
    if (!in.state[2])
        af_arg_ptr(l, NULL);
    af_arg_i64(l, count);
    af_arg_f32(l, n->attr.optim.beta1);
    af_arg_f32(l, n->attr.optim.beta2);
    af_arg_f32(l, 1 - n->attr.optim.beta2);
    af_arg_f32(l, n->attr.optim.eps);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    af_arg_i32(l, n->attr.optim.kind == AF_OPTIMIZER_FREE_RADAM);
    return AF_OK;
}

const af_cuda_op af_cuda_free_weight = {free_weight_prepare, NULL, false};
const af_cuda_op af_cuda_free = {free_prepare, NULL, false};
