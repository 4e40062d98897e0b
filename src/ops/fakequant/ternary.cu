/* ternary.cu - weights of BitNet as they are trained.  Contract: fakequant.c; twin:
 * fakequant_cpu.c. Two launches: sums of |w| by block, then every block adds them up in the same
 * order and rounds its share. w is read twice. Built with AF_T (of w) and AF_U (of y). */
// variants: AF_T=bf16,half,float AF_U=bf16,half,float
#include "dev.cuh"

extern "C" __global__ void ternary_sum(float *part, const AF_T *w, long long n)
{
    float sum = 0.0f;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x)
        sum += fabsf(load(w + i));
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

extern "C" __global__ void ternary(AF_U *y, const AF_T *w, const float *part, int parts,
                                   long long n)
{
    float sum = 0.0f;
    for (int i = threadIdx.x; i < parts; i += blockDim.x)
        sum += part[i];
    const float mean = fmaxf(block_sum(sum) / (float)n, 1e-5f);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x)
        store(y + i, mean * fminf(fmaxf(rintf(load(w + i) / mean), -1.0f), 1.0f));
}
