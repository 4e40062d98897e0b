/* muon.cu - the parts of MUON that are not GEMMs.  Contract and twin: muon_cpu.c.
 *
 * Built with AF_T, the type of the direction x; all other buffers are f32.  The norm of the
 * direction is summed over fixed parts in a fixed order. */
// variants: AF_T=bf16,float
// common: AF_T=bf16
#include "dev.cuh"

#define STATS_CLIP   1
#define STATS_FINITE 2

#define EACH(i, n)                                                                                 \
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                              \
         i += (i64)gridDim.x * blockDim.x)

/* m = mu m + g; part[block] = the block's sum of squares of g + mu m.  Without finite gradients m
 * stays. */
extern "C" __global__ void muon_momentum(float *m, const float *grads, const float *stats,
                                         float *part, long long n, float mu)
{
    const float clip = stats[STATS_CLIP];
    float sum = 0.0f;
    if (stats[STATS_FINITE] == 1.0f)
        EACH(i, n)
        {
            const float g = grads[i] * clip, v = mu * m[i] + g, d = g + mu * v;
            m[i] = v;
            sum += d * d;
        }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

/* x = (g + mu m) / (norm + eps), or zero. */
extern "C" __global__ void muon_direction(AF_T *x, const float *m, const float *grads,
                                          const float *stats, const float *part, int parts,
                                          long long n, float mu, float eps)
{
    float sum = 0.0f;
    for (int i = threadIdx.x; i < parts; i += blockDim.x)
        sum += part[i];
    const float scale = 1.0f / (sqrtf(block_sum(sum)) + eps), clip = stats[STATS_CLIP];
    const bool finite = stats[STATS_FINITE] == 1.0f;
    EACH(i, n) { store(x + i, finite ? (grads[i] * clip + mu * m[i]) * scale : 0.0f); }
}

/* w -= lr decay w + lr size x */
extern "C" __global__ void muon_apply(float *w, float *grads, const AF_T *x, const float *hyper,
                                      const float *stats, long long n, float decay, float lr_factor,
                                      float size)
{
    const float lr = hyper[0] * lr_factor;
    const bool finite = stats[STATS_FINITE] == 1.0f;
    EACH(i, n)
    {
        if (finite)
            w[i] -= lr * decay * w[i] + lr * size * load(x + i);
        grads[i] = 0.0f;
    }
}
