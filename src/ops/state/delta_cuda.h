/* delta_cuda.h - launchers of delta.cu and delta_bwd.cu: the scan of scan.c where it is the gated
 * delta rule with keys and values of 128 in bf16. */
#ifndef AF_DELTA_CUDA_H
#define AF_DELTA_CUDA_H

#include "ops/state/state_cuda.h"

bool af_delta_fits(const af_cuda *cu, const af_node *n);
uint64_t af_delta_work(const af_cuda *cu, const af_node *n);
/* Rows outside every sequence are left to the caller. */
void af_delta_launch(af_cuda *cu, af_node *n);
void af_delta_launch_bwd(af_cuda *cu, af_node *n);
#endif
