/* fake_float.cu - rounding to small float types and back.  Contract: fake_float.c; twin:
 * small_float.h, to the bit. Blocks of nvfp4 and mxfp4 are 16 or 32 lanes of a warp, a value each;
 * rows of fp8 a block of threads each. The magnitudes of the whole tensor (nvfp4) are found by a
 * launch before: x is read twice. Built with AF_T (of x) and AF_U (of y). */
// variants: AF_T=bf16,half,float AF_U=bf16,half,float
#include "fp8_codes.cuh"

/* The nearest number with `bits` bits after the point, exponents from `least` (as bits of a float)
 * and magnitudes up to `top`, ties to even. NaN stays. */
DEV float small_round(float x, int bits, u32 least, float top)
{
    const float mag = fabsf(x), a = mag > top ? top : mag;
    const u32 e = __float_as_uint(a) & 0x7f800000u;
    const float far = __uint_as_float((e > least ? e : least) + ((23 - bits) << 23));
    return copysignf(a + far - far, x);
}
DEV float round_e2m1(float x) { return small_round(x, 1, 0x3f800000u, 6.0f); }
DEV float round_e4m3(float x) { return small_round(x, 3, 0x3c800000u, 448.0f); }

/* part[b]: the largest magnitude that block b saw among the first *rows rows of x, or among all. */
extern "C" __global__ void float_most(u32 *part, const AF_T *x, long long n, int D, const int *rows)
{
    const i64 count = rows ? min(n, (i64)*rows * D) : n;
    u32 most = 0;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (i64)gridDim.x * blockDim.x)
        most = max(most, magnitude(load(x + i)));
    most = block_largest(most);
    if (threadIdx.x == 0)
        part[blockIdx.x] = most;
}

/* len: 16, with what float_most found, or 32. */
extern "C" __global__ void fake_float4(AF_U *y, const AF_T *x, const u32 *part, int parts,
                                       long long n, int len)
{
    u32 all = 0;
    for (int i = threadIdx.x; i < parts; i += blockDim.x)
        all = max(all, part[i]);
    all = parts ? block_largest(all) : 0;
    const float t = __uint_as_float(all) / 2688.0f;
    for (i64 at = (i64)blockIdx.x * blockDim.x; at < n; at += (i64)gridDim.x * blockDim.x) {
        const i64 i = at + threadIdx.x;
        const float v = i < n ? load(x + i) : 0.0f;
        u32 most = magnitude(v);
        for (int d = len / 2; d; d >>= 1)
            most = max(most, __shfl_xor_sync(FULL, most, d));
        const float m = __uint_as_float(most) / 6.0f;
        float s, by;
        if (len == 16) {
            const float u = m / t;
            s = round_e4m3(u < 0.015625f ? 0.015625f : u);
            by = 1.0f / t / s;
            s = __fmul_rn(t, s);
        } else {
            s = __uint_as_float((__float_as_uint(m) + 0x7fffffu) & 0xff800000u);
            by = 1.0f / s;
        }
        const bool zero = (len == 16 ? all : most) < TINY;
        if (i < n)
            store(y + i, zero ? 0.0f : __fmul_rn(round_e2m1(__fmul_rn(v, by)), s));
    }
}

/* Block r: row r. */
extern "C" __global__ void fake_float8(AF_U *y, const AF_T *x, int D)
{
    const i64 at = (i64)blockIdx.x * D;
    u32 most = 0;
    for (int i = threadIdx.x; i < D; i += blockDim.x)
        most = max(most, magnitude(load(x + at + i)));
    most = block_largest(most);
    const float s = rounded<AF_T>(__uint_as_float(most) / 448.0f);
    for (int i = threadIdx.x; i < D; i += blockDim.x)
        store(y + at + i,
              most < TINY || s == 0.0f ? 0.0f : __fmul_rn(round_e4m3(load(x + at + i) / s), s));
}
