/* gpu_rates.h - what a GPU can do per clock: the numbers the cost models of tiles count with
 * (gemm_cost.c, attention_cost.c).
 *
 * Sizes are read from the device where the driver knows them; what it does not know (tensor cores,
 * level 2 cache) and what an old driver leaves out comes from a table by compute capability. Rates
 * of the table are published peaks; only those of sm_90 were compared with measurements. */
#ifndef AF_GPU_RATES_H
#define AF_GPU_RATES_H

#include "backend/cuda/cuda.h"

typedef struct af_gpu_rates {
    int arch; /* 86 */
    int sms;
    int shared_block, shared_sm; /* bytes of shared memory: of a block at most, of an SM */
    int threads_sm, blocks_sm;
    int registers_sm;  /* of 32 bits */
    double clock;      /* Hz */
    double mma;        /* bf16 operations per clock and SM (mma.sync, f32 sums) */
    double mma_fp8;    /* the same of e4m3; 0 = it has none */
    double exponents;  /* ex2 per clock and SM */
    double l2_bytes;   /* per clock, whole GPU */
    double dram_bytes; /* per clock, whole GPU */
    double l2_size;    /* bytes */
    double latency;    /* clocks from a request to device memory until its data are there */
} af_gpu_rates;

/* `name` tells GPUs apart whose tensor cores add in f32 at half the rate of their architecture. */
af_gpu_rates af_gpu_rates_of(int arch, int sms, int shared_block, const char *name);
/* The same of an open device, with what its driver knows. */
af_gpu_rates af_gpu_rates_read(const af_cuda *cu);

/* Blocks an SM has room for at once; 0 when one does not fit. `registers` of a thread. */
int af_gpu_resident(const af_gpu_rates *g, int threads, int registers, int shared);

/* Whether choices of tiles for this architecture were measured on such a GPU. */
bool af_gpu_measured(int arch);
/* Whether tiles are chosen by the model: where they were not measured, and in tests. */
bool af_gpu_modelled(const af_cuda *cu);
#endif
