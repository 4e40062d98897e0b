/* muon.cu - the parts of MUON that are not GEMMs.  Contract and twin: muon_cpu.c.
 *
 * All buffers are f32.  The norm of the direction is summed over fixed parts in a fixed order. */
#include "dev.cuh"

#define STATS_CLIP   1
#define STATS_FINITE 2

/* m = mu m + g, x = g + mu m; part[block] = the block's sum of x^2.  Without finite gradients x is
 * zero and m stays. */
extern "C" __global__ void muon_direction(float *x, float *m, const float *grads,
                                          const float *stats, float *part, long long n, float mu)
{
    const float clip = stats[STATS_CLIP];
    const bool finite = stats[STATS_FINITE] == 1.0f;
    float sum = 0.0f;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x) {
        float d = 0.0f;
        if (finite) {
            const float g = grads[i] * clip;
            m[i] = mu * m[i] + g;
            d = g + mu * m[i];
        }
        x[i] = d;
        sum += d * d;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

/* x /= |x| + eps */
extern "C" __global__ void muon_normalise(float *x, const float *part, int parts, long long n,
                                          float eps)
{
    float sum = 0.0f;
    for (int i = threadIdx.x; i < parts; i += blockDim.x)
        sum += part[i];
    const float scale = 1.0f / (sqrtf(block_sum(sum)) + eps);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x)
        x[i] *= scale;
}

/* w -= lr decay w + lr size x */
extern "C" __global__ void muon_apply(float *w, float *grads, const float *x, const float *hyper,
                                      const float *stats, long long n, float decay, float lr_factor,
                                      float size)
{
    const float lr = hyper[0] * lr_factor;
    const bool finite = stats[STATS_FINITE] == 1.0f;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x) {
        if (finite)
            w[i] -= lr * decay * w[i] + lr * size * x[i];
        grads[i] = 0.0f;
    }
}
