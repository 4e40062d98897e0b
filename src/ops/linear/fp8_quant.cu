/* fp8_quant.cu - rows and columns of bf16 as e4m3 with a scale each; the rule is that of
 * tensor/fp8_round.h, to the bit.
 *
 * The largest magnitude is found among bit patterns, where NaN is above all. A row of a matrix is a
 * block; columns are made 32 at a time, and stored as rows: the other orientation of
 * a weight. */
// variants: AF_T=bf16
// common: AF_T=bf16
#include "dev.cuh"

#define TINY 0x0d800000u /* 2^-100 */
#define HELD 5           /* times eight values of a row */

struct fp8_scale {
    float scale, inverse;
};
DEV fp8_scale scale_of(u32 largest)
{
    const float most = __uint_as_float(largest);
    if (largest >= 0x7f800000u)
        return {__uint_as_float(0x7fc00000u), __uint_as_float(0x7fc00000u)};
    if (largest < TINY)
        return {0.0f, 0.0f};
    return {__fdiv_rn(most, 448.0f), __fdiv_rn(448.0f, most)};
}
DEV u32 magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }
/* The code of v, ties to even, at most 448. */
DEV u32 code_of(float v)
{
    const u32 u = __float_as_uint(v), sign = u >> 24 & 0x80u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u)
        return sign | 0x7fu;
    /* the exponent's bias goes from 127 to 7; below 2^-6 in steps of 2^-9 */
    const u32 normal = ((mag + 0x7ffffu + (mag >> 20 & 1)) >> 20) - (120u << 3);
    const u32 small = __float_as_uint(__uint_as_float(mag) + 16384.0f) - 0x46800000u;
    const u32 r = mag < 0x3c800000u ? small : normal;
    return sign | (mag >= 0x43e00000u ? 0x7eu : r);
}
DEV u32 block_largest(u32 v)
{
    __shared__ u32 part[32];
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        const u32 other = __shfl_xor_sync(FULL, v, d);
        v = v > other ? v : other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / 32; i++)
        v = v > part[i] ? v : part[i];
    return v;
}

/* Eight values of bf16, times `by`, as codes. */
DEV uint2 codes_of(const uint4 &held, float by)
{
    const u32 in[4] = {held.x, held.y, held.z, held.w};
    u32 w[2] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float v[2] = {__uint_as_float(in[i] << 16), __uint_as_float(in[i] & 0xffff0000u)};
#if __CUDA_ARCH__ >= 890
        u16 two;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
            : "=h"(two)
            : "f"(__fmul_rn(v[1], by)), "f"(__fmul_rn(v[0], by)));
#else
        const u32 two = code_of(__fmul_rn(v[0], by)) | code_of(__fmul_rn(v[1], by)) << 8;
#endif
        w[i / 2] |= (u32)two << i % 2 * 16;
    }
    return {w[0], w[1]};
}
DEV u32 largest_of(const uint4 &held, u32 most)
{
    const u32 in[4] = {held.x, held.y, held.z, held.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 low = in[i] << 16 & 0x7fff0000u, high = in[i] & 0x7fff0000u;
        const u32 larger = low > high ? low : high;
        most = most > larger ? most : larger;
    }
    return most;
}

/* Row r of x [.][cols], and its scale. cols is a multiple of 16, rows of q are `cols` bytes, those
 * of x start on 16 bytes. A thread keeps what it reads, as far as that goes. */
extern "C" __global__ void __launch_bounds__(1024)
    fp8_rows(u8 *q, float *scale, const bf16 *x, long long ldx, int cols)
{
    const i64 r = blockIdx.x;
    const uint4 *from = (const uint4 *)(x + r * ldx);
    uint2 *to = (uint2 *)(q + r * cols);
    const int n = cols / 8, step = blockDim.x;
    uint4 held[HELD] = {};
    u32 most = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int at = threadIdx.x + i * step;
        if (at < n)
            held[i] = from[at];
        most = largest_of(held[i], most);
    }
    for (int at = threadIdx.x + HELD * step; at < n; at += step)
        most = largest_of(from[at], most);
    const fp8_scale s = scale_of(block_largest(most));
    if (threadIdx.x == 0)
        scale[r] = s.scale;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int at = threadIdx.x + i * step;
        if (at < n)
            to[at] = codes_of(held[i], s.inverse);
    }
    for (int at = threadIdx.x + HELD * step; at < n; at += step)
        to[at] = codes_of(from[at], s.inverse);
}

/* Columns [32 b, 32 b + 32) of w [rows][cols]: q [cols][rows], a scale for each. rows and cols are
 * multiples of 16. */
extern "C" __global__ void __launch_bounds__(256)
    fp8_columns(u8 *q, float *scale, const bf16 *w, long long ldw, int rows, int cols)
{
    __shared__ u32 part[8][32];
    __shared__ u8 tile[32][132];
    const int lane = threadIdx.x % 32, g = threadIdx.x / 32;
    const int c0 = blockIdx.x * 32, c = c0 + lane;
    u32 most = 0;
    for (int r = g; r < rows && c < cols; r += 8) {
        const u32 m = magnitude(load(w + (i64)r * ldw + c));
        most = most > m ? most : m;
    }
    part[g][lane] = most;
    __syncthreads();
    for (int i = 0; i < 8; i++)
        most = most > part[i][lane] ? most : part[i][lane];
    const fp8_scale s = scale_of(most);
    if (g == 0 && c < cols)
        scale[c] = s.scale;
    for (int r0 = 0; r0 < rows; r0 += 128) {
        __syncthreads();
        for (int r = g; r < 128; r += 8)
            if (r0 + r < rows && c < cols)
                tile[lane][r] =
                    (u8)code_of(__fmul_rn(load(w + (i64)(r0 + r) * ldw + c), s.inverse));
        __syncthreads();
        for (int k = g; k < 32; k += 8) /* a warp writes 128 bytes of a row */
            if (c0 + k < cols && r0 + lane * 4 < rows)
                *(u32 *)(q + (i64)(c0 + k) * rows + r0 + lane * 4) =
                    *(const u32 *)&tile[k][lane * 4];
    }
}
