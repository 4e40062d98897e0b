/* gemm_cost.h - which tile of gemm_tiles.cu a GEMM takes on a GPU where that was not measured: the
 * one with the least cost by a model of the GPU (gpu_rates.h).
 *
 * The model counts clocks. Blocks come in waves; a wave lasts as long as the slowest of what its
 * SMs do with the blocks they have: tensor cores, shared memory, the level 2 cache, or waiting for
 * stages that are too few to cover the latency. To that come filling the pipeline, writing the
 * results, device memory where it is slower than all of that, and, when the inner dimension is
 * split over blocks, writing and adding up the parts. */
#ifndef AF_GEMM_COST_H
#define AF_GEMM_COST_H

#include "backend/cuda/gpu_rates.h"

/* AF_BM, AF_BN, AF_WM, AF_WN, AF_STAGES of gemm_tiles.cu. */
typedef struct af_gemm_tile {
    int m, n, warps_m, warps_n, stages;
} af_gemm_tile;
/* The first is the one that was measured, and the kernel's default. */
enum { AF_GEMM_TILES = 10 };
extern const af_gemm_tile af_gemm_tiles[AF_GEMM_TILES];

typedef struct af_gemm_shape {
    int64_t M, N, K;
    int batch;   /* at least 1 */
    int c_bytes; /* of a result's value */
} af_gemm_shape;

typedef struct af_gemm_way {
    int tile;  /* of the list */
    int split; /* parts of the inner dimension, added up in order */
} af_gemm_way;

int af_gemm_tile_shared(const af_gemm_tile *t);
int af_gemm_tile_threads(const af_gemm_tile *t);

/* Bytes of the parts that are added up; 0 without a split. */
int64_t af_gemm_split_bytes(const af_gemm_shape *s, af_gemm_way w);
/* Whether the GPU can run it: shared memory, registers, the grid, parts that start on 16 bytes and
 * fit the workspace. */
bool af_gemm_fits(const af_gpu_rates *g, const af_gemm_shape *s, af_gemm_way w, int64_t workspace);
/* Clocks, of a way that fits. */
double af_gemm_cost(const af_gpu_rates *g, const af_gemm_shape *s, af_gemm_way w);
/* The cheapest of those that fit; the first of the list, unsplit, where none does. Without a
 * workspace nothing is split. */
af_gemm_way af_gemm_choose(const af_gpu_rates *g, const af_gemm_shape *s, int64_t workspace);
#endif
