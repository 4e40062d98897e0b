/* adam_mini.cu - Adam with one second moment per block of neighbours, on f32 buffers.
 * Contract and twin: adam_mini_cpu.c; launcher: adam_mini_cuda.c.
 *
 * w, grads, m: `blocks` times `size` values; v [blocks]. A block is cut into `spans` ranges of
 * `span` values (the last one fewer); grid block b * spans + s has range s of block b. Gradients
 * are read twice, all other values once; sums are over fixed ranges in a fixed order. Built with
 * AF_VEC: values of one access, which divide size and span. */
// variants: AF_VEC=4,1
// common: AF_VEC=4
#include "dev.cuh"

#define STATS_CLIP   1
#define STATS_FINITE 2

#define EACH_VALUE                                                                                 \
    const i64 block = blockIdx.x / spans, from = blockIdx.x % spans * span;                        \
    const i64 at = block * size, to = min(from + span, size);                                      \
    for (i64 i = at + from + threadIdx.x * AF_VEC; i < at + to; i += blockDim.x * AF_VEC)

/* part[range] = the sum of its squares. */
extern "C" __global__ void adam_mini_parts(float *part, const float *grads, const float *stats,
                                           long long size, long long span, int spans)
{
    const float clip = stats[STATS_CLIP];
    float sum = 0.0f;
    EACH_VALUE
    {
        float g[AF_VEC];
        load_n(g, grads + i);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            sum += g[k] * clip * (g[k] * clip);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

/* Thread b: the new v of block b. */
extern "C" __global__ void adam_mini_moments(float *v, const float *part, const float *stats,
                                             long long blocks, long long size, int spans, float b2,
                                             float rest2)
{
    const i64 b = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (stats[STATS_FINITE] != 1.0f || b >= blocks)
        return;
    float sum = 0.0f;
    for (int s = 0; s < spans; s++)
        sum += part[b * spans + s];
    v[b] = b2 * v[b] + rest2 * (sum / size);
}

extern "C" __global__ void adam_mini_apply(float *w, float *grads, const float *hyper,
                                           const float *stats, float *m, const float *v,
                                           long long size, long long span, int spans, float b1,
                                           float rest1, float eps, float decay, float lr_factor)
{
    const float lr = hyper[0] * lr_factor, clip = stats[STATS_CLIP];
    const float step = lr / hyper[1] / (sqrtf(v[blockIdx.x / spans]) / hyper[2] + eps);
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float none[AF_VEC] = {};
    EACH_VALUE
    {
        if (finite) {
            float wv[AF_VEC], gv[AF_VEC], mv[AF_VEC];
            load_n(wv, w + i);
            load_n(gv, grads + i);
            load_n(mv, m + i);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++) {
                mv[k] = b1 * mv[k] + rest1 * (gv[k] * clip);
                wv[k] = wv[k] - lr * decay * wv[k] - step * mv[k];
            }
            store_n(w + i, wv);
            store_n(m + i, mv);
        }
        store_n(grads + i, none);
    }
}
