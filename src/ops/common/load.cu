/* load.cu - what happens to weights while they are loaded: quantisation to nf4 with double
 * quantisation, the bytes of bitsandbytes (twin: tensor/codec_bnb.c), and random values for
 * benchmarks.  Values come as bf16 and lie one after another; blocks of 64 and, for their
 * scales, of 256.  Built with AF_T, the type of the dense results.
 *
 * nf4_absmax -> nf4_offset -> nf4_nest give the scales; then nf4_codes writes the codes, or
 * nf4_dense the dequantised values at once.  Subnormals count as zero where bitsandbytes' kernels
 * take them so (.ftz). */
// variants: AF_T=bf16,float,half
// common: AF_T=bf16,float
#include "bnb_decode.cuh"

#define BLOCK   64
#define FLT_MIN 1.17549435e-38f

DEV float inverse_flush(float a)
{
    float c;
    asm("div.rn.ftz.f32 %0, 0f3F800000, %1;" : "=f"(c) : "f"(a));
    return c;
}

/* absmax[b] of elements [64 b, 64 b + 64), one warp per block; NaN is ignored. */
extern "C" __global__ void __launch_bounds__(256)
    nf4_absmax(float *absmax, const bf16 *x, long long n)
{
    const i64 blocks = (n + BLOCK - 1) / BLOCK;
    const int lane = threadIdx.x % 32;
    for (i64 b = (i64)blockIdx.x * 8 + threadIdx.x / 32; b < blocks; b += gridDim.x * 8ll) {
        const i64 i = b * BLOCK + lane * 2;
        float most = i < n ? fabsf(load(x + i)) : 0.0f;
        most = fmaxf(fmaxf(0.0f, most), i + 1 < n ? fabsf(load(x + i + 1)) : 0.0f);
        most = warp_max(most);
        if (lane == 0)
            absmax[b] = most < FLT_MIN ? 0.0f : most;
    }
}

/* The mean of absmax, summed in double in a fixed order by one block. Scales of bf16 values add up
 * without rounding unless they lie 2^25 apart: the order does not show. */
extern "C" __global__ void __launch_bounds__(1024)
    nf4_offset(float *offset, const float *absmax, long long blocks)
{
    __shared__ double part[1024];
    double sum = 0;
    for (i64 i = threadIdx.x; i < blocks; i += 1024)
        sum += (double)absmax[i];
    part[threadIdx.x] = sum;
    for (int d = 512; d; d >>= 1) {
        __syncthreads();
        if (threadIdx.x < d)
            part[threadIdx.x] += part[threadIdx.x + d];
    }
    if (threadIdx.x == 0)
        *offset = blocks ? (float)(part[0] / (double)blocks) : 0.0f;
}

/* The kernel's search: seven halvings from the middle, then the midpoint with the neighbour on the
 * side it came from. NaN (a zero block) fails every test and gives 0. */
DEV u8 nearest(const float *map, float x)
{
    int pivot = 127, up = 255, low = 0;
    for (int step = 64; step > 0; step >>= 1) {
        const bool more = x > map[pivot];
        low = more ? pivot : low;
        up = more ? up : pivot;
        pivot += more ? step : -step;
    }
    const float value = map[pivot];
    if (x > value)
        return (u8)(x > __fmul_rn(__fadd_rn(map[up], value), 0.5f) ? up : pivot);
    return (u8)(x < __fmul_rn(__fadd_rn(map[low], value), 0.5f) ? low : pivot);
}

/* q and nested: double quantisation of absmax - offset, one thread block per block of 256. */
extern "C" __global__ void __launch_bounds__(256)
    nf4_nest(unsigned char *q, float *nested, const float *absmax, const float *offset,
             long long blocks)
{
    __shared__ float map[256];
    map[threadIdx.x] = __uint_as_float(dynamic_signed_bits[threadIdx.x]);
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    const float x = i < blocks ? __fsub_rn(absmax[i], *offset) : 0.0f;
    const float most = block_max(fabsf(x));
    const float inverse = __fdiv_rn(1.0f, most);
    if (i < blocks)
        q[i] = nearest(map, __fmul_rn(x, inverse));
    if (threadIdx.x == 0)
        nested[blockIdx.x] = most;
}

DEV u32 code_of(float x, float inverse)
{
    const float y = mul_flush(x, inverse);
    u32 c = 0;
#pragma unroll
    for (int t = 0; t < 15; t++)
        c += y > __uint_as_float(nf4_edges_bits[t]);
    return c;
}

/* Two codes per byte, the first in the high half; a missing second one is the code of zero. A
 * thread makes 4 bytes: 8 values, all of one block. */
extern "C" __global__ void __launch_bounds__(256)
    nf4_codes(unsigned char *codes, const bf16 *x, const float *absmax, long long n)
{
    for (i64 g = (i64)blockIdx.x * 256 + threadIdx.x; g * 8 < n; g += gridDim.x * 256ll) {
        const float inverse = inverse_flush(absmax[g * 8 / BLOCK]);
        for (int k = 0; k < 4; k++) {
            const i64 i = g * 8 + k * 2;
            if (i >= n)
                return;
            const u32 hi = code_of(load(x + i), inverse);
            const u32 lo = i + 1 < n ? code_of(load(x + i + 1), inverse) : 7;
            codes[i / 2] = (u8)(hi << 4 | lo);
        }
    }
}

/* What nf4_dequant would make of those codes and scales, [rows][cols] with row stride ld. */
extern "C" __global__ void __launch_bounds__(256)
    nf4_dense(AF_T *dst, long long ld, const bf16 *x, const float *absmax, const unsigned char *q,
              const float *nested, const float *offset, long long rows, long long cols)
{
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < rows * cols; i += gridDim.x * 256ll) {
        const i64 b = i / BLOCK;
        const float map = __uint_as_float(dynamic_signed_bits[q[b]]);
        const float scale = add_flush(mul_flush(map, nested[b / 256]), *offset);
        const u32 c = code_of(load(x + i), inverse_flush(absmax[b]));
        store(dst + i / cols * ld + i % cols, mul_flush(__uint_as_float(nf4_bits[c]), scale));
    }
}

/* dst[r][c] = offset + scale * a normal number of (seed, stream, r cols + c). */
extern "C" __global__ void __launch_bounds__(256)
    noise_rows(AF_T *dst, long long ld, long long rows, long long cols, unsigned long long seed,
               unsigned long long stream, float scale, float offset)
{
    const i64 n = rows * cols;
    for (i64 g = (i64)blockIdx.x * 256 + threadIdx.x; g * 4 < n; g += gridDim.x * 256ll) {
        const philox p = philox_block(seed, stream, (u64)g);
        for (int k = 0; k < 4; k++) {
            const i64 i = g * 4 + k;
            if (i >= n)
                return;
            const float u = ((float)(p.w[k & 2] >> 8) + 1.0f) * 0x1p-24f;
            const float a = (float)(p.w[k | 1] >> 8) * (6.283185307f * 0x1p-24f);
            const float r = sqrtf(-2.0f * __logf(u));
            store(dst + i / cols * ld + i % cols,
                  offset + scale * r * (k & 1 ? __sinf(a) : __cosf(a)));
        }
    }
}
