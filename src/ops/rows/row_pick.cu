/* row_pick.cu - rows by their numbers. Contract: row_pick.c; twin: row_pick_cpu.c.
 * Built with AF_T and AF_VEC: `lanes` threads per row, AF_VEC values each at a time. */
// variants: AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1
// common: AF_T=bf16 AF_VEC=8
#include "dev.cuh"

extern "C" __global__ void row_pick(AF_T *y, long long y_ld, const AF_T *x, long long x_ld,
                                    const int *index, long long rows, int D, int lanes)
{
    const i64 n = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    const int slot = threadIdx.x % lanes;
    if (n >= rows)
        return;
    const int a = index[2 * n], b = index[2 * n + 1];
    for (int d = slot * AF_VEC; d < D; d += lanes * AF_VEC) {
        float sum[AF_VEC] = {};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int from = k ? b : a;
            float v[AF_VEC];
            if (from < 0)
                continue;
            load_n(v, x + from * x_ld + d);
#pragma unroll
            for (int i = 0; i < AF_VEC; i++)
                sum[i] += v[i];
        }
        store_n(y + n * y_ld + d, sum);
    }
}
