/* optim_cuda.h - arguments that several optimizers' kernels take. */
#ifndef AF_OPTIM_CUDA_H
#define AF_OPTIM_CUDA_H

#include "ops/common/cuda_ops.h"

/* Both decay rates, and their differences to 1, taken in double. */
static inline void af_arg_betas(af_launch *l, const af_node *n)
{
    af_arg_f32(l, n->attr.optim.beta1);
    af_arg_f32(l, n->attr.optim.beta2);
    af_arg_f32(l, 1 - n->attr.optim.beta1);
    af_arg_f32(l, 1 - n->attr.optim.beta2);
}
#endif
