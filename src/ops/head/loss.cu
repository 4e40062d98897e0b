/* loss.cu - scalar losses and their gradients.  Contract: loss.c; twin: loss_cpu.c. Cross-entropy's
 * rows are head.cu's.
 *
 * Built with AF_T. Sums: each block a fixed stride of elements, the parts by one block. Kinds as in
 * op.h: 0 mse 1 l1 2 huber 3 bce 5 kl. */
// variants: AF_T=bf16,float,half
#include "dev.cuh"

DEV float value_of(int kind, float x, float t, float delta)
{
    const float d = x - t, a = fabsf(d);
    switch (kind) {
    case 0:
        return d * d;
    case 1:
        return a;
    case 2:
        return a <= delta ? 0.5f * d * d : delta * (a - 0.5f * delta);
    case 3:
        return fmaxf(x, 0.0f) - x * t + log1pf(expf(-fabsf(x)));
    default:
        return t > 0.0f ? t * (logf(t) - x) : 0.0f;
    }
}
DEV float slope_of(int kind, float x, float t, float delta)
{
    const float d = x - t, sign = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : 0.0f;
    switch (kind) {
    case 0:
        return 2.0f * d;
    case 1:
        return sign;
    case 2:
        return fabsf(d) <= delta ? d : delta * sign;
    case 3:
        return 1.0f / (1.0f + expf(-x)) - t;
    default:
        return -t;
    }
}

extern "C" __global__ void loss_parts(float *part, const AF_T *x, const AF_T *target, int kind,
                                      float value, long long n)
{
    float sum = 0.0f;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x)
        sum += value_of(kind, load(x + i), load(target + i), value);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}
/* One block: loss = sum of n parts / over. */
extern "C" __global__ void loss_final(float *loss, const float *part, long long n, float over)
{
    float sum = 0.0f;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x)
        sum += part[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *loss = sum / over;
}
extern "C" __global__ void loss_bwd(AF_T *dx, const AF_T *x, const AF_T *target, const float *dloss,
                                    int kind, float value, long long n, float over)
{
    const float f = *dloss / over;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x)
        store(dx + i, f * slope_of(kind, load(x + i), load(target + i), value));
}

/* Cross-entropy, one block: the number of labelled rows divides. With row_loss: *out = mean loss;
 * without: *out = dloss / rows, the scale of head_rows. */
extern "C" __global__ void loss_rows(float *out, const float *row_loss, const int *labels,
                                     const float *dloss, long long N)
{
    float sum = 0.0f, rows = 0.0f;
    for (i64 i = threadIdx.x; i < N; i += blockDim.x) {
        rows += labels[i] != -100 ? 1.0f : 0.0f;
        sum += row_loss ? row_loss[i] : 0.0f;
    }
    rows = block_sum(rows);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = rows > 0.0f ? (row_loss ? sum : *dloss) / rows : 0.0f;
}
