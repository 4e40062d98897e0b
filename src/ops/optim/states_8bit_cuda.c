/* states_8bit_cuda.c - launcher of STATES_8BIT (states_8bit_cpu.c): a block of threads for each
 * block of values. */
#include "ops/optim/optim_cuda.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

static af_launch *launch(af_cuda *cu, af_node *n, const char *name)
{
    const int64_t count = af_count(n->in[0]);
    af_launch *l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "states_8bit.cu", name, ""),
                                  (count + AF_ADAM_8BIT_BLOCK - 1) / AF_ADAM_8BIT_BLOCK, 1, 1,
                                  AF_ADAM_8BIT_BLOCK, 0);
    for (int i = 0; i < n->n_in; i++)
        af_arg_ptr(l, n->in[i]->data);
    af_arg_i64(l, count);
    return l;
}

static af_status states_8bit_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    af_launch *l;
    (void)g;
    if (n->in[0]->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, n->in[0], err);
    if (af_count(n->in[0]) == 0)
        return AF_OK;
    switch (n->attr.optim.kind) {
    case AF_OPTIMIZER_LION_8BIT:
        l = launch(cu, n, "lion_8bit");
        af_arg_betas(l, n);
        break;
    case AF_OPTIMIZER_RMSPROP_8BIT:
        l = launch(cu, n, "rmsprop_8bit");
        af_arg_f32(l, n->attr.optim.beta2);
        af_arg_f32(l, 1 - n->attr.optim.beta2);
        af_arg_f32(l, n->attr.optim.eps);
        break;
    default:
        l = launch(cu, n, "ademamix_8bit");
        af_arg_betas(l, n);
        af_arg_f32(l, n->attr.optim.eps);
        break;
    }
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    if (n->attr.optim.kind == AF_OPTIMIZER_ADEMAMIX_8BIT) {
        af_arg_f32(l, n->attr.optim.slow_beta);
        af_arg_f32(l, 1 - n->attr.optim.slow_beta);
        af_arg_f32(l, n->attr.optim.slow_share);
    }
    return AF_OK;
}

const af_cuda_op af_cuda_states_8bit = {states_8bit_prepare, NULL, false};
