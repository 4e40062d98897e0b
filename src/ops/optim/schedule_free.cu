/* schedule_free.cu - schedule-free SGD, AdamW and RAdam on flat f32 buffers.
 * Contract and twin: schedule_free_cpu.c; launcher: schedule_free_cuda.c. Counts are multiples of
 * 4. */
#include "adam.cuh"

/* One thread. sums: largest rate, sum of weights, updates; out: rate, share, 1 = first update. */
extern "C" __global__ void free_weight(float *out, const float *hyper, const float *stats,
                                       double *sums, double power)
{
    if (threadIdx.x || stats[STATS_FINITE] != 1.0f)
        return;
    const double lr = (double)hyper[0] * (double)hyper[4];
    const double most = lr > sums[0] ? lr : sums[0];
    const double weight = (double)hyper[5] * pow(most, power), sum = sums[1] + weight;
    out[0] = (float)lr;
    out[1] = sum > 0.0 ? (float)(weight / sum) : 0.0f;
    out[2] = sums[2] == 0.0 ? 1.0f : 0.0f;
    sums[0] = most;
    sums[1] = sum;
    sums[2] += 1.0;
}

/* v is NULL for SGD; kind 1 is RAdam, whose first steps are those of SGD. */
extern "C" __global__ void free_update(float *w, float *grads, const float *hyper,
                                       const float *stats, const float *weight, float *z, float *v,
                                       long long n, float b1, float b2, float rest2, float eps,
                                       float decay, float lr_factor, int kind)
{
    const float lr = weight[0] * lr_factor, c = weight[1], c2 = hyper[2], clip = stats[STATS_CLIP];
    const float back = lr * (1.0f - b1 * (1.0f - c));
    const bool first = weight[2] == 1.0f, plain = !v || (kind == 1 && hyper[4] == 0.0f);
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float zero[4] = {};
    FOUR_LOOP
    {
        if (finite) {
            float yv[4], gv[4], zv[4], vv[4] = {};
            load_n(yv, w + i);
            load_n(gv, grads + i);
            load_n(zv, z + i);
            if (v)
                load_n(vv, v + i);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float g = gv[k] * clip, from = first ? yv[k] : zv[k];
                vv[k] = b2 * vv[k] + rest2 * g * g;
                const float u = (plain ? g : g / (sqrtf(vv[k]) / c2 + eps)) + decay * yv[k];
                yv[k] = yv[k] + c * (from - yv[k]) - back * u;
                zv[k] = from - lr * u;
            }
            store_n(w + i, yv);
            store_n(z + i, zv);
            if (v)
                store_n(v + i, vv);
        }
        store_n(grads + i, zero);
    }
}
