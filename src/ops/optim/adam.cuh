/* adam.cuh - what the kernels of Adam share: one element, and a block of moments in 8 bits. */
#ifndef AF_ADAM_CUH
#define AF_ADAM_CUH
#include "bnb.cuh"

#define STATS_CLIP   1
#define STATS_FINITE 2

#define FOUR_LOOP                                                                                  \
    for (i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4; i < n;                          \
         i += (i64)gridDim.x * blockDim.x * 4)

struct adam_rates {
    float lr, c1, c2, clip, b1, b2, rest1, rest2, eps, decay;
    int coupled; /* decay is part of the gradient */
};

/* w, m and v become the new ones. */
DEV void adam_element(float &w, float &m, float &v, float grad, const adam_rates &r)
{
    float g = grad * r.clip;
    if (r.coupled)
        g += r.decay * w;
    else
        w -= r.lr * r.decay * w;
    m = r.b1 * m + r.rest1 * g;
    v = r.b2 * v + r.rest2 * g * g;
    w -= r.lr / r.c1 * m / (sqrtf(v) / r.c2 + r.eps);
}

/* One block of 256 threads is one block of 256 elements with its two scales: step(i, m, v) makes
 * the new moments of element i from the old ones; then they are scaled and coded. */
template <class STEP>
DEV void adam_8bit_block(u8 *m8, u8 *v8, float *m_scale, float *v_scale, i64 n, STEP step)
{
    __shared__ float m_map[256], v_map[256];
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    m_map[threadIdx.x] = __uint_as_float(dynamic_signed_bits[threadIdx.x]);
    v_map[threadIdx.x] = __uint_as_float(dynamic_unsigned_bits[threadIdx.x]);
    __syncthreads();
    const float ms = m_scale[blockIdx.x], vs = v_scale[blockIdx.x];
    float m = 0.0f, v = 0.0f;
    if (i < n) {
        m = m_map[m8[i]] * ms;
        v = v_map[v8[i]] * vs;
        step(i, m, v);
    }
    const float m_max = block_max(fabsf(m)), v_max = block_max(v); /* ends after all reads */
    if (i < n) {
        m8[i] = nearest_code(m_map, m_max > 0.0f ? m / m_max : 0.0f);
        v8[i] = nearest_code(v_map, v_max > 0.0f ? v / v_max : 0.0f);
    }
    if (threadIdx.x == 0) {
        m_scale[blockIdx.x] = m_max;
        v_scale[blockIdx.x] = v_max;
    }
}
#endif
