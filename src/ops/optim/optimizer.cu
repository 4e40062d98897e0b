/* optimizer.cu - global norm, clip and update on flat f32 buffers.
 * Contract: optimizer.c; twin: optimizer_cpu.c.
 *
 * hyper (learning rate, bias corrections, step) and stats (norm, clip factor, finite, sum of
 * squares) lie in device memory, so that a captured graph stays right. Every update reads and
 * writes each of its buffers once, 16 bytes an access, leaves values and moments alone when the
 * norm was not finite, and ends with zeros in the gradients. Counts are multiples of 4. */
#include "adam.cuh"

/* part[block] = sum of squares of the piece `block`: `piece` elements, the last one fewer. A piece
 * does not depend on the GPU, nor on who has it (split gradients). */
extern "C" __global__ void grad_norm_parts(double *part, const float *grads, long long n, int piece)
{
    const i64 from = (i64)blockIdx.x * piece, left = n - from;
    const int count = left < piece ? (int)left : piece;
    float sum = 0.0f;
    for (int i = threadIdx.x * 4; i < count; i += blockDim.x * 4) {
        float g[4];
        load_n(g, grads + from + i);
        sum += (g[0] * g[0] + g[1] * g[1]) + (g[2] * g[2] + g[3] * g[3]);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

/* One block: sums the parts in a fixed order. max_norm 0 = no clipping. */
extern "C" __global__ void grad_norm_final(float *stats, const double *part, int parts,
                                           float max_norm, float clip_eps)
{
    __shared__ double warps[32];
    double sum = 0.0;
    for (int i = threadIdx.x; i < parts; i += blockDim.x)
        sum += part[i];
    for (int d = 16; d; d >>= 1)
        sum += __shfl_xor_sync(FULL, sum, d);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0.0;
        for (int w = 0; w < (int)blockDim.x / 32; w++)
            sum += warps[w];
        const float norm = (float)sqrt(sum);
        const bool finite = norm < INF; /* false for NaN too */
        stats[0] = norm;
        stats[1] = max_norm > 0.0f && finite ? fminf(1.0f, max_norm / (norm + clip_eps)) : 1.0f;
        stats[2] = finite ? 1.0f : 0.0f;
        stats[3] = (float)sum;
    }
}

extern "C" __global__ void adam(float *w, float *grads, const float *hyper, const float *stats,
                                float *m, float *v, long long n, float b1, float b2, float rest1,
                                float rest2, float eps, float decay, float lr_factor, int coupled)
{
    const adam_rates rates = {hyper[0] * lr_factor,
                              hyper[1],
                              hyper[2],
                              stats[STATS_CLIP],
                              b1,
                              b2,
                              rest1,
                              rest2,
                              eps,
                              decay,
                              coupled};
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float zero[4] = {};
    FOUR_LOOP
    {
        if (finite) {
            float wv[4], gv[4], mv[4], vv[4];
            load_n(wv, w + i);
            load_n(gv, grads + i);
            load_n(mv, m + i);
            load_n(vv, v + i);
#pragma unroll
            for (int k = 0; k < 4; k++)
                adam_element(wv[k], mv[k], vv[k], gv[k], rates);
            store_n(w + i, wv);
            store_n(m + i, mv);
            store_n(v + i, vv);
        }
        store_n(grads + i, zero);
    }
}

/* m is NULL without momentum. */
extern "C" __global__ void sgd(float *w, float *grads, const float *hyper, const float *stats,
                               float *m, long long n, float momentum, float decay, float lr_factor,
                               int nesterov)
{
    const float lr = hyper[0] * lr_factor, clip = stats[STATS_CLIP];
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float zero[4] = {};
    FOUR_LOOP
    {
        if (finite) {
            float wv[4], gv[4], mv[4] = {};
            load_n(wv, w + i);
            load_n(gv, grads + i);
            if (m)
                load_n(mv, m + i);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float g = gv[k] * clip + decay * wv[k];
                if (m) {
                    mv[k] = momentum * mv[k] + g;
                    g = nesterov ? g + momentum * mv[k] : mv[k];
                }
                wv[k] -= lr * g;
            }
            store_n(w + i, wv);
            if (m)
                store_n(m + i, mv);
        }
        store_n(grads + i, zero);
    }
}

extern "C" __global__ void lion(float *w, float *grads, const float *hyper, const float *stats,
                                float *m, long long n, float b1, float b2, float rest1, float rest2,
                                float decay, float lr_factor)
{
    const float lr = hyper[0] * lr_factor, clip = stats[STATS_CLIP];
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float zero[4] = {};
    FOUR_LOOP
    {
        if (finite) {
            float wv[4], gv[4], mv[4];
            load_n(wv, w + i);
            load_n(gv, grads + i);
            load_n(mv, m + i);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float g = gv[k] * clip, c = b1 * mv[k] + rest1 * g;
                const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
                wv[k] -= lr * decay * wv[k] + lr * sign;
                mv[k] = b2 * mv[k] + rest2 * g;
            }
            store_n(w + i, wv);
            store_n(m + i, mv);
        }
        store_n(grads + i, zero);
    }
}

extern "C" __global__ void rmsprop(float *w, float *grads, const float *hyper, const float *stats,
                                   float *v, long long n, float b2, float rest2, float eps,
                                   float decay, float lr_factor)
{
    const float lr = hyper[0] * lr_factor, clip = stats[STATS_CLIP];
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float zero[4] = {};
    FOUR_LOOP
    {
        if (finite) {
            float wv[4], gv[4], vv[4];
            load_n(wv, w + i);
            load_n(gv, grads + i);
            load_n(vv, v + i);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float g = gv[k] * clip + decay * wv[k];
                vv[k] = b2 * vv[k] + rest2 * g * g;
                wv[k] -= lr * g / (sqrtf(vv[k]) + eps);
            }
            store_n(w + i, wv);
            store_n(v + i, vv);
        }
        store_n(grads + i, zero);
    }
}

extern "C" __global__ void ademamix(float *w, float *grads, const float *hyper, const float *stats,
                                    float *m, float *v, float *slow, long long n, float b1,
                                    float b2, float rest1, float rest2, float eps, float decay,
                                    float lr_factor, float b3, float rest3, float alpha)
{
    const float lr = hyper[0] * lr_factor, c1 = hyper[1], c2 = hyper[2], clip = stats[STATS_CLIP];
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float zero[4] = {};
    FOUR_LOOP
    {
        if (finite) {
            float wv[4], gv[4], mv[4], vv[4], sv[4];
            load_n(wv, w + i);
            load_n(gv, grads + i);
            load_n(mv, m + i);
            load_n(vv, v + i);
            load_n(sv, slow + i);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float g = gv[k] * clip;
                mv[k] = b1 * mv[k] + rest1 * g;
                vv[k] = b2 * vv[k] + rest2 * g * g;
                sv[k] = b3 * sv[k] + rest3 * g;
                const float up = mv[k] / c1 + alpha * sv[k];
                wv[k] -= lr * (up / (sqrtf(vv[k]) / c2 + eps) + decay * wv[k]);
            }
            store_n(w + i, wv);
            store_n(m + i, mv);
            store_n(v + i, vv);
            store_n(slow + i, sv);
        }
        store_n(grads + i, zero);
    }
}

/* Adagrad, NAdam, RAdam, ADOPT (kind 0 to 3): adaptive_cpu.c. m is NULL for Adagrad. */
struct adaptive_rates {
    float lr, c1, c2, a, b, clip, b1, b2, rest1, rest2, eps, decay;
};

DEV void adaptive_element(float &w, float &m, float &v, float grad, const adaptive_rates &r,
                          int kind)
{
    float g = grad * r.clip;
    if (kind == 3) { /* ADOPT divides by the root of the moment before this step; the first
                        gradient only starts it */
        if (r.a > 0.0f) {
            const float x = g / fmaxf(sqrtf(v), r.eps);
            m = r.b1 * m + r.rest1 * fminf(fmaxf(x, -r.a), r.a);
            w = w - r.lr * r.decay * w - r.lr * m;
            v = r.b2 * v + r.rest2 * g * g;
        } else {
            v = g * g;
        }
        return;
    }
    g += r.decay * w;
    if (kind == 0) {
        v += g * g;
        w -= r.lr * r.a * g / (sqrtf(v) + r.eps);
        return;
    }
    m = r.b1 * m + r.rest1 * g;
    v = r.b2 * v + r.rest2 * g * g;
    if (kind == 1)
        w -= r.lr * (r.a * g + r.b * m) / (sqrtf(v) / r.c2 + r.eps);
    else
        w -= r.lr / r.c1 * m * (r.a > 0.0f ? r.a * r.c2 / (sqrtf(v) + r.eps) : 1.0f);
}

extern "C" __global__ void adaptive(float *w, float *grads, const float *hyper, const float *stats,
                                    float *v, float *m, long long n, float b1, float b2,
                                    float rest1, float rest2, float eps, float decay,
                                    float lr_factor, int kind)
{
    const adaptive_rates rates = {hyper[0] * lr_factor,
                                  hyper[1],
                                  hyper[2],
                                  hyper[4],
                                  hyper[5],
                                  stats[STATS_CLIP],
                                  b1,
                                  b2,
                                  rest1,
                                  rest2,
                                  eps,
                                  decay};
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float zero[4] = {};
    FOUR_LOOP
    {
        if (finite) {
            float wv[4], gv[4], mv[4] = {}, vv[4];
            load_n(wv, w + i);
            load_n(gv, grads + i);
            load_n(vv, v + i);
            if (m)
                load_n(mv, m + i);
#pragma unroll
            for (int k = 0; k < 4; k++)
                adaptive_element(wv[k], mv[k], vv[k], gv[k], rates, kind);
            store_n(w + i, wv);
            store_n(v + i, vv);
            if (m)
                store_n(m + i, mv);
        }
        store_n(grads + i, zero);
    }
}

/* AdamW with moments in 8 bits. The step uses the exact new moments. */
extern "C" __global__ void __launch_bounds__(256)
    adam_8bit(float *w, float *grads, const float *hyper, const float *stats, unsigned char *m8,
              unsigned char *v8, float *m_scale, float *v_scale, long long n, float b1, float b2,
              float rest1, float rest2, float eps, float decay, float lr_factor)
{
    const adam_rates rates = {hyper[0] * lr_factor,
                              hyper[1],
                              hyper[2],
                              stats[STATS_CLIP],
                              b1,
                              b2,
                              rest1,
                              rest2,
                              eps,
                              decay,
                              0};
    if (stats[STATS_FINITE] == 1.0f)
        adam_8bit_block(m8, v8, m_scale, v_scale, n, [&](i64 i, float &m, float &v) {
            adam_element(w[i], m, v, grads[i], rates);
        });
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        grads[i] = 0.0f;
}

/* ---- AdamW with moments in 4 bits (adam_4bit.h): a block of 128 threads is a block of 128
 * elements; two neighbours share a byte. ---- */
__constant__ float four_m[16] = {-0.8875f, -0.6625f, -0.4375f, -0.2125f, -0.0775f, -0.0325f,
                                 -0.0055f, 0.0f,     0.0055f,  0.0325f,  0.0775f,  0.2125f,
                                 0.4375f,  0.6625f,  0.8875f,  1.0f};

DEV float four_v(int code) { return (float)(code + 1) * 0.0625f; }

/* The upper one on a tie. */
template <class MAP> DEV int four_code(MAP map, float x)
{
    int low = 0;
#pragma unroll
    for (int step = 8; step; step /= 2)
        low += x >= map(low + step) ? step : 0;
    const int up = low < 15 ? low + 1 : 15;
    return x - map(low) >= (map(up) - map(low)) * 0.5f ? up : low;
}

extern "C" __global__ void __launch_bounds__(128)
    adam_4bit(float *w, float *grads, const float *hyper, const float *stats, unsigned char *m4,
              unsigned char *v4, float *m_scale, float *v_scale, long long n, float b1, float b2,
              float rest1, float rest2, float eps, float decay, float lr_factor)
{
    const i64 i = (i64)blockIdx.x * 128 + threadIdx.x;
    const bool odd = threadIdx.x & 1;
    if (stats[STATS_FINITE] == 1.0f) {
        const adam_rates rates = {hyper[0] * lr_factor,
                                  hyper[1],
                                  hyper[2],
                                  stats[STATS_CLIP],
                                  b1,
                                  b2,
                                  rest1,
                                  rest2,
                                  eps,
                                  decay,
                                  0};
        const int mc = odd ? m4[i / 2] & 15 : m4[i / 2] >> 4;
        const int vc = odd ? v4[i / 2] & 15 : v4[i / 2] >> 4;
        float m = four_m[mc] * m_scale[blockIdx.x], v = four_v(vc) * v_scale[blockIdx.x];
        adam_element(w[i], m, v, grads[i], rates);
        const float m_max = fmaxf(block_max(fabsf(m)), 1e-12f);
        const float v_max = fmaxf(block_max(v), 1e-12f); /* ends after all reads */
        const int new_m = four_code([](int k) { return four_m[k]; }, m / m_max);
        const int new_v = four_code(four_v, v / v_max);
        const int next_m = __shfl_down_sync(FULL, new_m, 1);
        const int next_v = __shfl_down_sync(FULL, new_v, 1);
        if (!odd) {
            m4[i / 2] = (u8)(new_m << 4 | next_m);
            v4[i / 2] = (u8)(new_v << 4 | next_v);
        }
        if (threadIdx.x == 0) {
            m_scale[blockIdx.x] = m_max;
            v_scale[blockIdx.x] = v_max;
        }
    }
    grads[i] = 0.0f;
}
