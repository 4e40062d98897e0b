/* apollo.cu - the parts of APOLLO that are not GEMMs.  Contract and twin: apollo_cpu.c.
 *
 * Built once: all buffers are f32.  Sums are over fixed parts in a fixed order.  A channel is a row
 * of the matrix, or (wide) a column. */
#include "dev.cuh"

#define STATS_CLIP   1
#define STATS_FINITE 2
#define HYPER_DRAW   4

#define EACH(i, n)                                                                                 \
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                              \
         i += (i64)gridDim.x * blockDim.x)

/* p[i] = size * a normal number of (seed, stream + draw, i): those of af_apollo_draw. */
extern "C" __global__ void apollo_draw(float *p, const float *hyper, unsigned long long seed,
                                       unsigned long long stream, long long n, float size)
{
    const u64 own = stream + (u64)hyper[HYPER_DRAW];
    EACH(b, (n + 3) / 4)
    {
        const philox r = philox_block(seed, own, (u64)b);
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
            const float u = ((float)(r.w[k] >> 8) + 1.0f) * 0x1p-24f;
            const float a = (float)(r.w[k + 1] >> 8) * (6.283185307f * 0x1p-24f);
            const float l = size * sqrtf(-2.0f * logf(u));
            if (4 * b + k < n)
                p[4 * b + k] = l * cosf(a);
            if (4 * b + k + 1 < n)
                p[4 * b + k + 1] = l * sinf(a);
        }
    }
}

/* A warp per channel: new moments from `low`, its scale, and the squares it is made of.  Without
 * finite gradients the moments stay. */
extern "C" __global__ void apollo_moments(float *scale, float *squares, const float *low, float *m,
                                          float *v, const float *stats, long long channels,
                                          int rank, float b1, float new1, float b2, float new2,
                                          float eps, float tiny)
{
    const float clip = stats[STATS_CLIP];
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const int lane = threadIdx.x % 32;
    for (i64 c = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; c < channels;
         c += (i64)gridDim.x * blockDim.x / 32) {
        float of_d = 0.0f, of_l = 0.0f;
        for (int q = lane; finite && q < rank; q += 32) {
            const i64 i = c * rank + q;
            const float l = low[i] * clip, first = b1 * m[i] + new1 * l,
                        second = b2 * v[i] + new2 * l * l, d = first / (sqrtf(second) + eps);
            m[i] = first;
            v[i] = second;
            of_d += d * d;
            of_l += l * l;
        }
        of_d = warp_sum(of_d);
        of_l = warp_sum(of_l);
        if (lane == 0) {
            scale[c] = sqrtf(of_d) / (sqrtf(of_l) + tiny);
            squares[2 * c] = of_d;
            squares[2 * c + 1] = of_l;
        }
    }
}

/* One block: the scale of all channels, in scale[0]. */
extern "C" __global__ void apollo_one_scale(float *scale, const float *squares, long long channels,
                                            float tiny)
{
    float of_d = 0.0f, of_l = 0.0f;
    for (i64 c = threadIdx.x; c < channels; c += blockDim.x) {
        of_d += squares[2 * c];
        of_l += squares[2 * c + 1];
    }
    of_d = block_sum(of_d);
    of_l = block_sum(of_l);
    if (threadIdx.x == 0)
        scale[0] = sqrtf(of_d) / (sqrtf(of_l) + tiny);
}

/* The channel of element i: by_row, by_column or (both 0) the one scale of all. */
DEV float scale_of(const float *scale, i64 i, i64 cols, int by_row, int by_column)
{
    return scale[by_row ? i / cols : by_column ? i % cols : 0];
}

/* part[block] = the block's sum of squares of the scaled gradient. */
extern "C" __global__ void apollo_norm(float *part, const float *grads, const float *scale,
                                       const float *stats, long long n, long long cols, int by_row,
                                       int by_column)
{
    const float clip = stats[STATS_CLIP];
    float sum = 0.0f;
    if (stats[STATS_FINITE] == 1.0f)
        EACH(i, n)
        {
            const float u = grads[i] * clip * scale_of(scale, i, cols, by_row, by_column);
            sum += u * u;
        }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

/* One block: factor = root / limit; the norm is kept.  front: what the norm is multiplied by. */
extern "C" __global__ void apollo_limit(float *factor, float *kept, const float *part,
                                        const float *stats, int parts, float root, float front,
                                        float growth, float tiny)
{
    float sum = 0.0f;
    for (int i = threadIdx.x; i < parts; i += blockDim.x)
        sum += part[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0 && stats[STATS_FINITE] == 1.0f) {
        const float z = sqrtf(sum) * front, last = *kept;
        const float limit = last > 0.0f ? fmaxf(z / (last + tiny), growth) / growth : 1.0f;
        *kept = z / limit;
        *factor = root / limit;
    }
}

/* w -= lr sqrt(1 - b2^t) / (1 - b1^t) factor scale g;  w -= lr decay w;  g = 0 */
extern "C" __global__ void apollo_apply(float *w, float *grads, const float *scale,
                                        const float *factor, const float *hyper, const float *stats,
                                        long long n, long long cols, int by_row, int by_column,
                                        float decay, float lr_factor)
{
    const float lr = hyper[0] * lr_factor, clip = stats[STATS_CLIP];
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float step = finite ? lr * hyper[2] / hyper[1] * *factor : 0.0f, keep = 1.0f - lr * decay;
    EACH(i, n)
    {
        if (finite)
            w[i] = keep *
                   (w[i] - step * scale_of(scale, i, cols, by_row, by_column) * (grads[i] * clip));
        grads[i] = 0.0f;
    }
}
