/* moe_pick.cu - values of the experts that were chosen, both directions.  Contract: moe.c; twin:
 * moe_cpu.c.
 *
 * Forward: one thread per pair; backward: one per value. P is how many there are. */
// variants: AF_T=float
#include "dev.cuh"

extern "C" __global__ void moe_pick(float *y, const float *values, const int *index, long long P,
                                    int X, int k)
{
    const i64 p = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (p < P)
        y[p] = index[p] >= 0 ? values[p / k * X + index[p]] : 0.0f;
}

extern "C" __global__ void moe_pick_bwd(float *dvalues, const float *dy, const int *index,
                                        long long P, int X, int k)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, n = i / X;
    if (i >= P)
        return;
    float d = 0.0f;
    for (int j = 0; j < k; j++)
        d += index[n * k + j] == i % X ? dy[n * k + j] : 0.0f;
    dvalues[i] = d;
}
