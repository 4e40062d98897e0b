/* attention_delta.cu - what comes before and after the attention gradients, for every variant of
 * them. Contract: attention.c.  Built with AF_T and AF_VEC; everything is read once. */
// variants: AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1
// common: AF_T=bf16 AF_VEC=8
#include "dev.cuh"

/* delta[n][h] = sum_e o do: `lanes` threads (a power of two, at most a warp) per (row, head). */
extern "C" __global__ void attention_delta(float *delta, const AF_T *o, const AF_T *dout,
                                           long long heads, int H, int E, long long ldo,
                                           long long lddo, int lanes)
{
    const i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    const i64 n = min(i, heads - 1) / H, c = min(i, heads - 1) % H * (i64)E;
    const int slot = threadIdx.x % lanes;
    float sum = 0.0f;
    for (int e = slot * AF_VEC; e < E; e += lanes * AF_VEC) {
        float a[AF_VEC], b[AF_VEC];
        load_n(a, o + n * ldo + c + e);
        load_n(b, dout + n * lddo + c + e);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            sum += a[k] * b[k];
    }
    for (int d = lanes / 2; d; d >>= 1)
        sum += __shfl_xor_sync(FULL, sum, d);
    if (slot == 0 && i < heads)
        delta[i] = sum;
}

/* dkv[n][c] = sum over splits of part[split][n][c], c in [0, 2KE), in order. */
extern "C" __global__ void attention_join(AF_T *dkv, const AF_T *part, long long rows, int width,
                                          long long lddkv, int splits)
{
    const int per_row = width / AF_VEC;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * per_row;
         i += (i64)gridDim.x * blockDim.x) {
        const i64 n = i / per_row;
        const int c = (int)(i - n * per_row) * AF_VEC;
        float sum[AF_VEC] = {}, v[AF_VEC];
        for (int s = 0; s < splits; s++) {
            load_n(v, part + (s * rows + n) * width + c);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                sum[k] += v[k];
        }
        store_n(dkv + n * lddkv + c, sum);
    }
}
