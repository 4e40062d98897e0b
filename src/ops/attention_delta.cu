/* attention_delta.cu - what comes before and after the attention gradients, for every variant of them.
 * Contract: attention.c.  Built with AF_T and AF_VEC; everything is read once. */
// variants: AF_T=bf16 AF_VEC=8 | AF_T=bf16 AF_VEC=1 | AF_T=float AF_VEC=4 | AF_T=float AF_VEC=1 | AF_T=half AF_VEC=8 | AF_T=half AF_VEC=1
#include "dev.cuh"

/* delta[n][h] = sum_e o do: one warp a (row, head). */
extern "C" __global__ void attention_delta(float *delta, const AF_T *o, const AF_T *dout,
                                           long long heads, int H, int E, long long ldo,
                                           long long lddo)
{
    const i64 i = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= heads)
        return;
    const i64 n = i / H, c = i % H * (i64)E;
    float sum = 0.0f;
    for (int e = threadIdx.x % 32 * AF_VEC; e < E; e += 32 * AF_VEC) {
        float a[AF_VEC], b[AF_VEC];
        load_n(a, o + n * ldo + c + e);
        load_n(b, dout + n * lddo + c + e);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            sum += a[k] * b[k];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
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
