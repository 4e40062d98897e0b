/* topk.cu - rows of the whole vocabulary from their most likely tokens. Contract: topk.c; twin:
 * topk_cpu.c. One block per row. */
// variants: AF_T=float
// common: AF_T=float
#include "dev.cuh"

extern "C" __global__ void expand_topk(AF_T *y, long long ld, const int *id, const AF_T *x, int K,
                                       int V, float rest)
{
    const i64 n = blockIdx.x;
    AF_T *row = y + n * ld;
    for (int v = threadIdx.x; v < V; v += blockDim.x)
        row[v] = rest;
    __syncthreads();
    for (int k = threadIdx.x; k < K; k += blockDim.x)
        if (id[n * K + k] >= 0)
            row[id[n * K + k]] = x[n * K + k];
}
