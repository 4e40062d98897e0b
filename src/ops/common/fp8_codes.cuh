/* fp8_codes.cuh - values as e4m3 with a scale: the rule is that of tensor/fp8_round.h, to the bit.
 * The largest magnitude is found among bit patterns, where NaN is above all. */
#ifndef AF_FP8_CODES_CUH
#define AF_FP8_CODES_CUH
#include "dev.cuh"

#define TINY 0x0d800000u /* 2^-100 */

struct fp8_scale {
    float scale, inverse;
};
DEV fp8_scale scale_of(u32 largest)
{
    if (largest >= 0x7f800000u)
        return {__uint_as_float(0x7fc00000u), __uint_as_float(0x7fc00000u)};
    if (largest < TINY)
        return {0.0f, 0.0f};
    const u32 e = ((largest + 0x1fffffu) >> 23) - 8;
    return {__uint_as_float(e << 23), __uint_as_float((254 - e) << 23)};
}
/* The larger magnitudes of two pairs of bf16; signs do not count, and NaN is above all. */
DEV u32 larger_pair(u32 a, u32 b)
{
#if __CUDA_ARCH__ >= 890
    u32 d;
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    const u32 low = max(a & 0x7fffu, b & 0x7fffu);
    return low | max(a & 0x7fff0000u, b & 0x7fff0000u);
#endif
}
/* The larger one of such a pair, in f32's bits. */
DEV u32 larger_of_pair(u32 p) { return max(p << 16 & 0x7fff0000u, p & 0x7fff0000u); }
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
DEV u32 warp_largest(u32 v)
{
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        const u32 other = __shfl_xor_sync(FULL, v, d);
        v = v > other ? v : other;
    }
    return v;
}
DEV u32 block_largest(u32 v)
{
    __shared__ u32 part[32];
    v = warp_largest(v);
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
#endif
