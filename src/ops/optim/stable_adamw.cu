/* stable_adamw.cu - AdamW whose learning rate shrinks where a matrix has gradients that its second
 * moments did not expect, on f32 buffers.
 * Contract and twin: stable_adamw_cpu.c; launcher: stable_adamw_cuda.c.
 *
 * Grid block s has `span` values (the last one fewer). Gradients are read twice, moments written
 * once; sums are over fixed ranges in a fixed order. Built with AF_VEC: values of one access, which
 * divide count and span. */
// variants: AF_VEC=4,1
// common: AF_VEC=4
#include "dev.cuh"

#define STATS_CLIP   1
#define STATS_FINITE 2
#define LEAST        1.17549435e-38f /* of stable_adamw_cpu.c */

#define EACH_VALUE                                                                                 \
    const i64 at = blockIdx.x * span, to = min(at + span, count);                                  \
    for (i64 i = at + threadIdx.x * AF_VEC; i < to; i += blockDim.x * AF_VEC)

/* New moments; part[range] = the sum of g^2 / max(v, eps^2, LEAST). */
extern "C" __global__ void stable_adamw_moments(float *part, const float *grads, const float *hyper,
                                                const float *stats, float *m, float *v,
                                                long long count, long long span, float eps)
{
    const float clip = stats[STATS_CLIP], a = hyper[4], b = hyper[5],
                least = fmaxf(eps * eps, LEAST);
    float sum = 0.0f;
    if (stats[STATS_FINITE] != 1.0f)
        return;
    EACH_VALUE
    {
        float gv[AF_VEC], mv[AF_VEC], vv[AF_VEC];
        load_n(gv, grads + i);
        load_n(mv, m + i);
        load_n(vv, v + i);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++) {
            const float g = gv[k] * clip;
            mv[k] = (1.0f - a) * mv[k] + a * g;
            vv[k] = (1.0f - b) * vv[k] + b * g * g;
            sum += g * g / fmaxf(vv[k], least);
        }
        store_n(m + i, mv);
        store_n(v + i, vv);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

/* One block: the learning rate of this matrix. */
extern "C" __global__ void stable_adamw_rate(float *rate, const float *part, const float *hyper,
                                             long long spans, long long count, float lr_factor)
{
    float sum = 0.0f;
    for (i64 s = threadIdx.x; s < spans; s += blockDim.x)
        sum += part[s];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *rate = hyper[0] * lr_factor / fmaxf(1.0f, sqrtf(sum / (float)count));
}

extern "C" __global__ void stable_adamw_apply(float *w, float *grads, const float *stats,
                                              const float *m, const float *v, const float *rate,
                                              long long count, long long span, float eps,
                                              float decay)
{
    const float lr = *rate;
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float none[AF_VEC] = {};
    EACH_VALUE
    {
        if (finite) {
            float wv[AF_VEC], mv[AF_VEC], vv[AF_VEC];
            load_n(wv, w + i);
            load_n(mv, m + i);
            load_n(vv, v + i);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                wv[k] = wv[k] - lr * decay * wv[k] - lr * mv[k] / (sqrtf(vv[k]) + eps);
            store_n(w + i, wv);
        }
        store_n(grads + i, none);
    }
}
