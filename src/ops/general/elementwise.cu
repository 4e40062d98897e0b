/* elementwise.cu - the general ops: one value in, one value out, copies and sums.
 * Contracts: binary.c, unary.c, shape.c, reduce.c, dropout.c.
 *
 * Built with AF_T and AF_VEC (values of one access; 1 = no alignment asked). Kinds are arguments,
 * in the order of op.h; clip alone is a variant, AF_CLIP. Grid-stride loops unless noted otherwise;
 * each value is read and written once. Sums are f32, each output summed by one thread or one block
 * over a fixed range, the ranges added up in order by reduce_parts. */
// variants: (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1)
//      | (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1) AF_CLIP=1
// common: AF_T=bf16 AF_VEC=8 | AF_T=float AF_VEC=1
#include "dev.cuh"

#define EACH(i, n)                                                                                 \
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                              \
         i += (i64)gridDim.x * blockDim.x)

DEV float binary_value(int kind, float a, float b)
{
    return kind == 0 ? a + b : kind == 1 ? a - b : kind == 2 ? a * b : a / b;
}

/* Rows of one shape, or b one row for all (ldb 0). Each row is cut among `cuts` blocks. */
extern "C" __global__ void binary_rows(AF_T *y, const AF_T *a, const AF_T *b, int kind, int cols,
                                       int cuts, long long ldy, long long lda, long long ldb)
{
    const i64 n = blockIdx.x / cuts;
    const int d = (blockIdx.x % cuts * blockDim.x + threadIdx.x) * AF_VEC;
    if (d >= cols)
        return;
    float u[AF_VEC], v[AF_VEC];
    load_n(u, a + n * lda + d);
    load_n(v, b + n * ldb + d);
#pragma unroll
    for (int k = 0; k < AF_VEC; k++)
        u[k] = binary_value(kind, u[k], v[k]);
    store_n(y + n * ldy + d, u);
}

/* Any broadcast: y has dims d0..d3; strides are 0 along stretched axes. */
extern "C" __global__ void binary_any(AF_T *y, const AF_T *a, const AF_T *b, int kind, long long n,
                                      long long d1, long long d2, long long d3, long long y0,
                                      long long y1, long long y2, long long y3, long long a0,
                                      long long a1, long long a2, long long a3, long long b0,
                                      long long b1, long long b2, long long b3)
{
    EACH(i, n)
    {
        const i64 w = i % d3, z = i / d3 % d2, x = i / d3 / d2 % d1, v = i / d3 / d2 / d1;
        store(y + v * y0 + x * y1 + z * y2 + w * y3,
              binary_value(kind, load(a + v * a0 + x * a1 + z * a2 + w * a3),
                           load(b + v * b0 + x * b1 + z * b2 + w * b3)));
    }
}

/* y (+)= x with strides: transpose, slice, concat, and their gradients. n and d3 count accesses of
 * AF_VEC values. */
extern "C" __global__ void copy_any(AF_T *y, const AF_T *x, long long n, long long d1, long long d2,
                                    long long d3, long long y0, long long y1, long long y2,
                                    long long y3, long long x0, long long x1, long long x2,
                                    long long x3, int accumulate)
{
    EACH(i, n)
    {
        const i64 w = i % d3, z = i / d3 % d2, t = i / d3 / d2 % d1, v = i / d3 / d2 / d1;
        AF_T *to = y + v * y0 + t * y1 + z * y2 + w * y3;
        float f[AF_VEC];
        load_n(f, x + v * x0 + t * x1 + z * x2 + w * x3);
        if (accumulate) {
            float own[AF_VEC];
            load_n(own, to);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                f[k] += own[k];
        }
        store_n(to, f);
    }
}

#ifdef AF_CLIP
DEV float unary_value(int, float x, float c) { return x > c ? c : x < -c ? -c : x; }
DEV float unary_slope(int, float v, float c) { return v > c || v < -c ? 0.0f : 1.0f; }
#else
/* Unary kinds of op.h: 0 scale 1 neg 2 exp 3 log 4 sqrt 5 tanh 6 sigmoid 7 relu 8 gelu 9 gelu_tanh
 * 10 silu 11 softcap. */
DEV float unary_value(int kind, float x, float c)
{
    switch (kind) {
    case 0:
        return x * c;
    case 1:
        return -x;
    case 2:
        return expf(x);
    case 3:
        return logf(x);
    case 4:
        return sqrtf(x);
    case 5:
        return tanhf(x);
    case 6:
        return 1.0f / (1.0f + expf(-x));
    case 7:
        return x > 0.0f ? x : x == x ? 0.0f : x;
    case 8:
        return 0.5f * x * erfcf(-x * 0.7071067811865476f);
    case 9:
        return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case 10:
        return x / (1.0f + expf(-x));
    default:
        return c * tanhf(x / c);
    }
}
/* f' from y (exp, sqrt, tanh, sigmoid, relu, softcap) or from x (the others). */
DEV float unary_slope(int kind, float v, float c)
{
    switch (kind) {
    case 0:
        return c;
    case 1:
        return -1.0f;
    case 2:
        return v;
    case 3:
        return 1.0f / v;
    case 4:
        return 0.5f / v;
    case 5:
        return 1.0f - v * v;
    case 6:
        return v * (1.0f - v);
    case 7:
        return v > 0.0f ? 1.0f : 0.0f;
    case 8:
        return 0.5f * erfcf(-v * 0.7071067811865476f) +
               v * 0.3989422804014327f * expf(-0.5f * v * v);
    case 9: {
        const float k = 0.7978845608028654f, t = tanhf(k * (v + 0.044715f * v * v * v));
        return 0.5f * (1.0f + t) +
               0.5f * v * (1.0f - t * t) * k * (1.0f + 3.0f * 0.044715f * v * v);
    }
    case 10: {
        const float s = 1.0f / (1.0f + expf(-v));
        return s * (1.0f + v * (1.0f - s));
    }
    default:
        return 1.0f - (v / c) * (v / c);
    }
}
#endif
extern "C" __global__ void unary(AF_T *y, const AF_T *x, int kind, float value, long long n)
{
    EACH(i, n / AF_VEC)
    {
        float v[AF_VEC];
        load_n(v, x + i * AF_VEC);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            v[k] = unary_value(kind, v[k], value);
        store_n(y + i * AF_VEC, v);
    }
}
extern "C" __global__ void unary_bwd(AF_T *dx, const AF_T *of, const AF_T *dy, int kind,
                                     float value, long long n)
{
    EACH(i, n / AF_VEC)
    {
        float v[AF_VEC], d[AF_VEC];
        load_n(v, of + i * AF_VEC);
        load_n(d, dy + i * AF_VEC);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            v[k] = d[k] * unary_slope(kind, v[k], value);
        store_n(dx + i * AF_VEC, v);
    }
}

extern "C" __global__ void fill(AF_T *y, float value, long long n)
{
    EACH(i, n) { store(y + i, value); }
}

/* Kept when Philox(seed, stream of this micro-batch, element) >= p, and then times `factor`. Rows
 * of `cols` values are ldx and ldy apart; AF_VEC > 1: AF_VEC divides cols, n is below 2^32. */
extern "C" __global__ void dropout(AF_T *y, const AF_T *x, const unsigned *clock,
                                   unsigned long long stream, float p, float factor, long long n,
                                   long long cols, long long ldy, long long ldx)
{
    const u64 seed = clock[0] | (u64)clock[1] << 32;
    u64 z = ((clock[2] | (u64)clock[3] << 32) + 1) * 0x9E3779B97F4A7C15ull; /* dropout.h */
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    stream ^= z ^ (z >> 31);
    if (clock[3] >> 31) { /* evaluating: the identity */
        p = 0.0f;
        factor = 1.0f;
    }
    constexpr int own = AF_VEC < 4 ? 4 : AF_VEC; /* values of a thread: whole blocks of Philox */
    EACH(q, (n + own - 1) / own)
    {
        const i64 at = q * own;
        const i64 row = (u32)at / (u32)cols, col = (u32)at % (u32)cols;
        float v[own];
        if (AF_VEC > 1)
            load_n(v, x + row * ldx + col);
        else
            for (int k = 0; k < own; k++)
                v[k] = at + k < n ? load(x + (at + k) / cols * ldx + (at + k) % cols) : 0.0f;
#pragma unroll
        for (int b = 0; b < own / 4; b++) {
            const philox r = philox_block(seed, stream, (u64)(q * (own / 4) + b));
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const bool kept = (float)(r.w[k] >> 8) * 0x1p-24f >= p;
                v[b * 4 + k] = kept ? v[b * 4 + k] * factor : 0.0f;
            }
        }
        if (AF_VEC > 1)
            store_n(y + row * ldy + col, v);
        else
            for (int k = 0; k < own && at + k < n; k++)
                store(y + (at + k) / cols * ldy + (at + k) % cols, v[k]);
    }
}

/* ---- sums ---- */
/* Position i of a box with dims d1..d3 after the first, through strides. */
DEV i64 offset_of(i64 i, i64 d1, i64 d2, i64 d3, i64 s0, i64 s1, i64 s2, i64 s3)
{
    return i / d3 / d2 / d1 * s0 + i / d3 / d2 % d1 * s1 + i / d3 % d2 * s2 + i % d3 * s3;
}
/* part[p][c] = sum of rows p*per .. of x [rows][cols], block (., p): a warp has 32 AF_VEC columns
 * and every SUM_WARPS-th row; their sums are added up in order. */
#define SUM_WARPS 8
extern "C" __global__ void __launch_bounds__(SUM_WARPS * 32)
    sum_columns(float *part, const AF_T *x, long long rows, long long cols, long long per)
{
    __shared__ float sums[SUM_WARPS][AF_VEC][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 to = min(rows, (blockIdx.y + 1) * per), c0 = (i64)blockIdx.x * (32 * AF_VEC);
    const i64 c = c0 + lane * AF_VEC;
    float sum[AF_VEC] = {};
    if (c < cols) {
#pragma unroll 4
        for (i64 r = blockIdx.y * per + warp; r < to; r += SUM_WARPS) {
            float v[AF_VEC];
            load_n(v, x + r * cols + c);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                sum[k] += v[k];
        }
    }
#pragma unroll
    for (int k = 0; k < AF_VEC; k++)
        sums[warp][k][lane] = sum[k];
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * AF_VEC; i += blockDim.x) {
        float all = 0.0f;
#pragma unroll
        for (int w = 0; w < SUM_WARPS; w++)
            all += sums[w][i % AF_VEC][i / AF_VEC];
        if (c0 + i < cols)
            part[blockIdx.y * cols + c0 + i] = all;
    }
}
/* part[p][o] = sum of elements p*per .. of the summed box of output o. o1..o3: dims of the outputs
 * (1 on summed axes), r1..r3: dims of the summed box (1 on kept axes), s: x's strides; `step`: how
 * far summed elements are apart (0: by r and s). Block (., p); `wide`: one block an output
 * (blockIdx.x), else one thread. */
extern "C" __global__ void sum_parts(float *part, const AF_T *x, long long outs, long long o1,
                                     long long o2, long long o3, long long r1, long long r2,
                                     long long r3, long long s0, long long s1, long long s2,
                                     long long s3, long long step, long long count, long long per,
                                     int wide)
{
    const i64 from = blockIdx.y * per, to = min(count, from + per);
    const i64 o = wide ? blockIdx.x : (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= outs)
        return;
    const AF_T *base = x + offset_of(o, o1, o2, o3, s0, s1, s2, s3);
    float sum = 0.0f;
    for (i64 i = from + (wide ? threadIdx.x : 0); i < to; i += wide ? blockDim.x : 1)
        sum += load(base + (step ? i * step : offset_of(i, r1, r2, r3, s0, s1, s2, s3)));
    if (wide)
        sum = block_sum(sum);
    if (!wide || threadIdx.x == 0)
        part[blockIdx.y * outs + o] = sum;
}
/* y[i] (+)= factor * sum over p, in order, of part[p][i]; rows of `part` are `stride` apart. */
extern "C" __global__ void reduce_parts(AF_T *y, const float *part, long long n, long long stride,
                                        int parts, float factor, int accumulate)
{
    EACH(i, n)
    {
        float sum = 0.0f;
        for (int p = 0; p < parts; p++)
            sum += part[p * stride + i];
        sum *= factor;
        store(y + i, accumulate ? load(y + i) + sum : sum);
    }
}

/* x [outer][len][inner]: the maximum (NaN stays visible), one thread an output. */
extern "C" __global__ void reduce_max(AF_T *y, const AF_T *x, long long outs, long long len,
                                      long long inner, int accumulate)
{
    EACH(o, outs)
    {
        const AF_T *at = x + o / inner * len * inner + o % inner;
        float r = load(at);
        for (i64 k = 0; k < len; k++) {
            const float v = load(at + k * inner);
            r = v > r || v != v ? v : r;
        }
        store(y + o, accumulate ? load(y + o) + r : r);
    }
}
/* Sum (kind 0) and mean (1): dx = dy * factor. */
extern "C" __global__ void reduce_spread(AF_T *dx, const AF_T *dy, long long n, long long len,
                                         long long inner, float factor, int accumulate)
{
    EACH(i, n)
    {
        const float d = load(dy + i / inner / len * inner + i % inner) * factor;
        store(dx + i, accumulate ? load(dx + i) + d : d);
    }
}
/* Max: the first maximum takes dy, the rest 0; one thread an output. */
extern "C" __global__ void reduce_max_bwd(AF_T *dx, const AF_T *x, const AF_T *y, const AF_T *dy,
                                          long long outs, long long len, long long inner,
                                          int accumulate)
{
    EACH(o, outs)
    {
        const i64 base = o / inner * len * inner + o % inner;
        const float top = load(y + o), d = load(dy + o);
        bool found = false;
        for (i64 k = 0; k < len; k++) {
            const i64 at = base + k * inner;
            const bool hit = !found && load(x + at) == top;
            found |= hit;
            const float v = hit ? d : 0.0f;
            store(dx + at, accumulate ? load(dx + at) + v : v);
        }
    }
}
