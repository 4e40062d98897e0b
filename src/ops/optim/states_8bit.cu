/* states_8bit.cu - Lion, RMSprop and AdEMAMix with moments in 8 bits on flat f32 buffers.
 * Contract and twin: states_8bit_cpu.c; launcher: states_8bit_cuda.c. A block of 256 threads is a
 * block of 256 elements with a scale per moment; the step uses the exact new moments. */
#include "adam.cuh"

/* The largest of the block is its new scale. `max` has ended after all reads of the old one. */
DEV void encode(u8 *codes, float *scale, const float *map, float x, i64 i, i64 n)
{
    const float most = block_max(fabsf(x));
    if (i < n)
        codes[i] = nearest_code(map, most > 0.0f ? x / most : 0.0f);
    if (threadIdx.x == 0)
        scale[blockIdx.x] = most;
}

extern "C" __global__ void __launch_bounds__(256)
    lion_8bit(float *w, float *grads, const float *hyper, const float *stats, unsigned char *m8,
              float *m_scale, long long n, float b1, float b2, float rest1, float rest2,
              float decay, float lr_factor)
{
    __shared__ float map[256];
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    const float lr = hyper[0] * lr_factor;
    map[threadIdx.x] = __uint_as_float(dynamic_signed_bits[threadIdx.x]);
    __syncthreads();
    if (stats[STATS_FINITE] == 1.0f) {
        float m = 0.0f;
        if (i < n) {
            m = map[m8[i]] * m_scale[blockIdx.x];
            const float g = grads[i] * stats[STATS_CLIP], c = b1 * m + rest1 * g;
            const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
            w[i] -= lr * decay * w[i] + lr * sign;
            m = b2 * m + rest2 * g;
        }
        encode(m8, m_scale, map, m, i, n);
    }
    if (i < n)
        grads[i] = 0.0f;
}

extern "C" __global__ void __launch_bounds__(256)
    rmsprop_8bit(float *w, float *grads, const float *hyper, const float *stats, unsigned char *v8,
                 float *v_scale, long long n, float b2, float rest2, float eps, float decay,
                 float lr_factor)
{
    __shared__ float map[256];
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    const float lr = hyper[0] * lr_factor;
    map[threadIdx.x] = __uint_as_float(dynamic_signed_bits[threadIdx.x]);
    __syncthreads();
    if (stats[STATS_FINITE] == 1.0f) {
        float v = 0.0f;
        if (i < n) {
            const float g = grads[i] * stats[STATS_CLIP] + decay * w[i];
            v = b2 * (map[v8[i]] * v_scale[blockIdx.x]) + rest2 * g * g;
            w[i] -= lr * g / (sqrtf(v) + eps);
        }
        encode(v8, v_scale, map, v, i, n);
    }
    if (i < n)
        grads[i] = 0.0f;
}

extern "C" __global__ void __launch_bounds__(256)
    ademamix_8bit(float *w, float *grads, const float *hyper, const float *stats, unsigned char *m8,
                  unsigned char *v8, unsigned char *slow8, float *m_scale, float *v_scale,
                  float *slow_scale, long long n, float b1, float b2, float rest1, float rest2,
                  float eps, float decay, float lr_factor, float b3, float rest3, float alpha)
{
    __shared__ float m_map[256], v_map[256];
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    const float lr = hyper[0] * lr_factor;
    m_map[threadIdx.x] = __uint_as_float(dynamic_signed_bits[threadIdx.x]);
    v_map[threadIdx.x] = __uint_as_float(dynamic_unsigned_bits[threadIdx.x]);
    __syncthreads();
    if (stats[STATS_FINITE] == 1.0f) {
        float m = 0.0f, v = 0.0f, slow = 0.0f;
        if (i < n) {
            const float g = grads[i] * stats[STATS_CLIP];
            m = b1 * (m_map[m8[i]] * m_scale[blockIdx.x]) + rest1 * g;
            v = b2 * (v_map[v8[i]] * v_scale[blockIdx.x]) + rest2 * g * g;
            slow = b3 * (m_map[slow8[i]] * slow_scale[blockIdx.x]) + rest3 * g;
            const float up = m / hyper[1] + alpha * slow;
            w[i] -= lr * (up / (sqrtf(v) / hyper[2] + eps) + decay * w[i]);
        }
        encode(m8, m_scale, m_map, m, i, n);
        encode(v8, v_scale, v_map, v, i, n);
        encode(slow8, slow_scale, m_map, slow, i, n);
    }
    if (i < n)
        grads[i] = 0.0f;
}
