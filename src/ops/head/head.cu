/* head.cu - cross-entropy of a chunk of logit rows, and their gradient in place.
 * Contract: head.c; twin: head_cpu.c.
 *
 * Long rows of 16 bits: head_kept.cu.
 *
 * Built with AF_T (logits), AF_VEC, and AF_GRAD (1: the row becomes its own gradient). One block
 * per row: one pass for maximum, sum of exponentials and arg max, one more (from cache) that
 * overwrites the row. Sums are f32, per thread, then a tree. Rows start at multiples of ld, which
 * AF_VEC must divide; V need not be a multiple.
 * AF_STATS=1: entropy, mean logit and log sum p^2 of each row, too. */
// variants: (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1) AF_GRAD=0,1 AF_STATS=0
//   | (AF_T=bf16,half AF_VEC=8 | AF_T=float AF_VEC=4) AF_GRAD=0,1 AF_STATS=1
// common: AF_T=bf16 AF_VEC=8 AF_GRAD=1 AF_STATS=0
#include "dev.cuh"

#ifndef AF_GRAD
#define AF_GRAD 0
#endif

#ifndef AF_STATS
#define AF_STATS 0
#endif

struct softmax_part {
    float top, sum, all; /* maximum, sum of exp(z - top), sum of z */
    int at;              /* of the maximum, the first one */
#if AF_STATS
    float mean, squares; /* sums of exp(z - top) z and of exp(z - top)^2 */
#endif
};

/* The sums so far, after the maximum became `r` times as large in the exponential. */
DEV void rescale(softmax_part &p, float r)
{
    p.sum *= r;
#if AF_STATS
    p.mean *= r;
    p.squares *= r * r;
#endif
}
DEV void add_one(softmax_part &p, float z)
{
    const float e = exp2_fast((z - p.top) * LOG2E);
    p.sum += e;
    p.all += z;
#if AF_STATS
    p.mean += e * z;
    p.squares += e * e;
#endif
}

DEV float cap(float x, float logit_scale, float softcap)
{
    const float z = x * logit_scale;
    return softcap > 0.0f ? softcap * tanh_exp(z / softcap) : z;
}
DEV void take(softmax_part &p, float z, int i)
{
    if (z > p.top) {
        rescale(p, exp2_fast((p.top - z) * LOG2E));
        p.top = z;
        p.at = i;
    }
    add_one(p, z);
}
/* AF_VEC values at once: one rescaling for all of them. */
DEV void take_n(softmax_part &p, const float (&z)[AF_VEC], int i)
{
    float top = z[0];
#pragma unroll
    for (int k = 1; k < AF_VEC; k++)
        top = fmaxf(top, z[k]);
    if (top > p.top) {
        rescale(p, exp2_fast((p.top - top) * LOG2E));
        p.top = top;
        p.at = i;
#pragma unroll
        for (int k = AF_VEC - 1; k >= 0; k--)
            p.at = z[k] == top ? i + k : p.at;
    }
#pragma unroll
    for (int k = 0; k < AF_VEC; k++)
        add_one(p, z[k]);
}
DEV int block_min(int v)
{
    __shared__ int part[32];
    v = __reduce_min_sync(FULL, v);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    return __reduce_min_sync(FULL, lane < (int)blockDim.x / 32 ? part[lane] : 0x7fffffff);
}

/* row_loss[n] = lse - (1-e) z[label] - e mean(z), row_hit[n] = arg max is the label; 0 and 0 where
 * the label is -100. With AF_GRAD logits[n][v] = scale * d row_loss / d logits. scale may be NULL;
 * that of row n is scale[n * scale_step]. row_stats [n][3] (AF_STATS): entropy, mean logit, log of
 * the sum of p^2. */
extern "C" __global__ void __launch_bounds__(1024)
    head_rows(AF_T *logits, long long ld, const int *labels, const float *scale, float *row_loss,
              float *row_hit, int V, float logit_scale, float softcap, float smoothing,
              float *row_stats, int scale_step)
{
    AF_T *row = logits + blockIdx.x * ld;
    const int label = labels[blockIdx.x], whole = V / AF_VEC * AF_VEC;
    if (label < 0) {
        if (AF_GRAD) {
            const float zero[AF_VEC] = {};
            for (int i = threadIdx.x * AF_VEC; i < whole; i += blockDim.x * AF_VEC)
                store_n(row + i, zero);
            for (int i = whole + threadIdx.x; i < V; i += blockDim.x)
                store(row + i, 0.0f);
        }
        if (threadIdx.x == 0)
            row_loss[blockIdx.x] = row_hit[blockIdx.x] = 0.0f;
#if AF_STATS
        if (threadIdx.x < 3)
            row_stats[blockIdx.x * 3 + threadIdx.x] = 0.0f;
#endif
        return;
    }
    softmax_part p = {-INF, 0.0f, 0.0f, 0x7fffffff};
#pragma unroll 4
    for (int i = threadIdx.x * AF_VEC; i < whole; i += blockDim.x * AF_VEC) {
        float z[AF_VEC];
        load_n(z, row + i);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            z[k] = cap(z[k], logit_scale, softcap);
        take_n(p, z, i);
    }
    for (int i = whole + threadIdx.x; i < V; i += blockDim.x)
        take(p, cap(load(row + i), logit_scale, softcap), i);

    const float top = block_max(p.top);
    const float sum = block_sum(p.top == -INF ? 0.0f : p.sum * exp2_fast((p.top - top) * LOG2E));
    const float all = AF_STATS || smoothing > 0.0f ? block_sum(p.all) : 0.0f;
#if AF_STATS
    const float r = p.top == -INF ? 0.0f : exp2_fast((p.top - top) * LOG2E);
    const float mean = block_sum(p.mean * r), squares = block_sum(p.squares * r * r);
    if (threadIdx.x == 0) {
        row_stats[blockIdx.x * 3] = top + logf(sum) - mean / sum;
        row_stats[blockIdx.x * 3 + 1] = all / V;
        row_stats[blockIdx.x * 3 + 2] = logf(squares) - 2.0f * logf(sum);
    }
#endif
    const int at = block_min(p.top == top ? p.at : 0x7fffffff);
    if (threadIdx.x == 0) {
        const float z = cap(load(row + label), logit_scale, softcap);
        row_loss[blockIdx.x] = top + logf(sum) - (1.0f - smoothing) * z - smoothing * (all / V);
        row_hit[blockIdx.x] = at == label ? 1.0f : 0.0f;
    }
#if AF_GRAD
    __syncthreads(); /* the label's logit has been read */
    const float f = (scale ? scale[blockIdx.x * scale_step] : 1.0f) * logit_scale, inv = 1.0f / sum,
                even = smoothing / V;
#pragma unroll 2
    for (int i = threadIdx.x * AF_VEC; i < V; i += blockDim.x * AF_VEC) {
        float z[AF_VEC];
        if (i < whole) {
            load_n(z, row + i);
        } else {
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                z[k] = i + k < V ? load(row + i + k) : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < AF_VEC; k++) {
            const float c = cap(z[k], logit_scale, softcap),
                        t = softcap > 0.0f ? c / softcap : 0.0f;
            float g = exp2_fast((c - top) * LOG2E) * inv - even;
            g -= i + k == label ? 1.0f - smoothing : 0.0f;
            z[k] = g * f * (1.0f - t * t);
        }
        if (i < whole) {
            store_n(row + i, z);
        } else {
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                if (i + k < V)
                    store(row + i + k, z[k]);
        }
    }
#endif
}

/* loss = scale * sum of row losses, by one block in a fixed order; rows_out [N][2] (or NULL) gets
 * each row's loss and hit. */
extern "C" __global__ void head_sum(float *loss, float *rows_out, const float *row_loss,
                                    const float *row_hit, const float *scale, long long N)
{
    float sum = 0.0f;
    for (i64 n = threadIdx.x; n < N; n += blockDim.x) {
        sum += row_loss[n];
        if (rows_out) {
            rows_out[2 * n] = row_loss[n];
            rows_out[2 * n + 1] = row_hit[n];
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *loss = sum * (scale ? *scale : 1.0f);
}
