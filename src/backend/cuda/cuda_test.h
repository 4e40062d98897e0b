/* cuda_test.h - switches of the CUDA backend for tests. */
#ifndef AF_CUDA_TEST_H
#define AF_CUDA_TEST_H

#include "backend/cuda/cuda.h"

typedef struct af_cuda_test {
    const struct af_cudnn_api *cudnn; /* instead of the installed library */
    bool no_capture;                  /* direct launches instead of captured graphs */
    bool no_cublas;                   /* own GEMM kernels even where cuBLASLt is there */
    bool one_stream;                  /* nothing runs on the second stream */
    bool no_overlap;                  /* a launch begins when the one before it has ended */
    bool no_fold;                     /* adapters and residuals next to the GEMM, not inside */
    bool no_low_rank;                 /* narrow GEMMs of adapters as any other GEMM */
    bool no_4bit_gemm;                /* 4-bit weights are dequantised before every GEMM */
    bool model_tiles;                 /* tiles as the cost model chooses them, also on sm_90 */
    int gemm_tile;                    /* 1 + the number of the tile own GEMMs take; 0: chosen */
    int gemm_split;                   /* with that tile: parts of the inner dimension */
    bool scratch;                     /* quantised weights are dequantised at every use */
    uint64_t host_free;               /* as if the host had so much memory; 0: what it has */
} af_cuda_test;

/* The switches of a device, made at the first call with all of them off; NULL when memory is gone.
 * They live as long as the device. */
af_cuda_test *af_cuda_test_on(af_device *d);
#endif
