/* channel_cuda.h - launchers of channel.cu: the scan of scan.c with a decay per channel. */
#ifndef AF_CHANNEL_CUDA_H
#define AF_CHANNEL_CUDA_H

#include "ops/state/state_cuda.h"
#include "ops/state/state_in.h"

/* scan_args of scan.cuh */
typedef struct scan_args {
    const void *x, *decay, *beta, *skip, *bounds;
    int64_t ldx, ld_decay, ld_beta;
    int beta_type, skip_type, S, H, J, K, V, q_from, k_from, v_from, delta, unused;
} scan_args;

/* Bytes of shared memory of the largest kernel. */
unsigned af_channel_shared(const af_scan_inputs *in);
uint64_t af_channel_work(const af_cuda *cu, const af_node *n);
/* Rows outside every sequence are left to the caller. The first also serves SCAN_CACHED. */
void af_channel_launch(af_cuda *cu, af_node *n, const scan_args *a);
void af_channel_launch_bwd(af_cuda *cu, af_node *n, const scan_args *a);
#endif
