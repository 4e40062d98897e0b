/* moe_real.cu - pairs of experts that have no weights.  Contract: moe.c; twin: moe_cpu.c.
 *
 * One thread per pair. */
// variants: AF_T=float
#include "dev.cuh"

extern "C" __global__ void moe_real(int *real, float *mask, const int *index, long long P, int X)
{
    const i64 p = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= P)
        return;
    const int e = index[p];
    real[p] = e < X ? e : e % X;
    mask[p] = e < X ? 1.0f : 0.0f;
}
