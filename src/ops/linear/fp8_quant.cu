/* fp8_quant.cu - rows and columns of bf16 as e4m3 with a scale each; the rule is that of
 * tensor/fp8_round.h, to the bit.
 *
 * The largest magnitude is found among bit patterns, where NaN is above all. A row of a matrix is a
 * block of 256 threads; columns are made 32 at a time, and stored as rows: the other orientation of
 * a weight. */
// variants: AF_T=bf16
// common: AF_T=bf16
#include "dev.cuh"

#define TINY 0x0d800000u /* 2^-100 */

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

/* Row r of x [.][cols], and its scale. cols is a multiple of 16, rows of q are `cols` bytes, those
 * of x start on 16 bytes. */
extern "C" __global__ void __launch_bounds__(256)
    fp8_rows(u8 *q, float *scale, const bf16 *x, long long ldx, int cols)
{
    const i64 r = blockIdx.x;
    u32 most = 0;
    for (int c = threadIdx.x * 8; c < cols; c += blockDim.x * 8) {
        float v[8];
        load_n<8>(v, x + r * ldx + c);
#pragma unroll
        for (int i = 0; i < 8; i++)
            most = most > magnitude(v[i]) ? most : magnitude(v[i]);
    }
    const fp8_scale s = scale_of(block_largest(most));
    if (threadIdx.x == 0)
        scale[r] = s.scale;
    for (int c = threadIdx.x * 8; c < cols; c += blockDim.x * 8) {
        float v[8];
        u32 w[2] = {};
        load_n<8>(v, x + r * ldx + c);
#pragma unroll
        for (int i = 0; i < 8; i++)
            w[i / 4] |= code_of(__fmul_rn(v[i], s.inverse)) << i % 4 * 8;
        *(uint2 *)(q + r * cols + c) = {w[0], w[1]};
    }
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
