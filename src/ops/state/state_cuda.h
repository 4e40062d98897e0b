/* state_cuda.h - what the launchers of the ops with a state share. */
#ifndef AF_STATE_CUDA_H
#define AF_STATE_CUDA_H

#include "ops/common/cuda_ops.h"

/* The code of a vector's type in state.cuh; -1 where the kernels do not read it. */
static inline int af_cuda_state_type(const af_tensor *t)
{
    return !t || t->dtype == AF_DTYPE_F32 ? 0
           : t->dtype == AF_DTYPE_BF16    ? 1
           : t->dtype == AF_DTYPE_F16     ? 2
                                          : -1;
}

/* AF_OK when every float input and output has a type the kernels know. */
AF_CHECKED static inline af_status af_cuda_state_check(const af_node *n, af_error *err)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->dtype != AF_DTYPE_I32 && !af_cuda_float(n->in[i]))
            return af_cuda_no_type(n, n->in[i], err);
    for (int i = 0; i < n->n_out; i++)
        if (!af_cuda_float(n->out[i]))
            return af_cuda_no_type(n, n->out[i], err);
    return AF_OK;
}
static inline const void *af_cuda_data(const af_tensor *t) { return t ? t->data : NULL; }
#endif
