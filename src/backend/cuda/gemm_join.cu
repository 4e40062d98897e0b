/* gemm_join.cu - the end of a GEMM whose inner dimension was split (gemm_split of gemm_tiles.cu):
 * c = alpha (part[0] + part[1] + ...) + beta add + bias, added in this order. Built with AF_C. */
// variants: AF_C=bf16,float
#include "dev.cuh"

#ifndef AF_C
#define AF_C float
#endif

extern "C" __global__ void __launch_bounds__(256)
    gemm_join(AF_C *c, long long ldc, const float *part, const AF_C *add, long long ldadd,
              const AF_C *bias, long long M, long long N, int parts, float alpha, float beta)
{
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < M * N; i += gridDim.x * 256ll) {
        const i64 n = i % N;
        float v = 0.0f;
        for (int s = 0; s < parts; s++)
            v += part[s * M * N + i];
        v *= alpha;
        if (beta != 0.0f)
            v += beta * load(add + i / N * ldadd + n);
        if (bias)
            v += load(bias + n);
        store(c + i / N * ldc + n, v);
    }
}
