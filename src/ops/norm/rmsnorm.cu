/* rmsnorm.cu - RMS normalisation: forward, forward with residual add, both gradients.
 * Contract: rmsnorm.c; twin: rmsnorm_cpu.c.
 *
 * Built with AF_T (x, y, dy, dx), AF_W (w), AF_VEC, AF_WARP (1: a warp per row, for short rows; 0:
 * a block per row) and AF_PER: accesses a thread makes along a row; threads of a row * AF_PER *
 * AF_VEC
 * >= D. Rows are dealt to warps or blocks in turn: a row is read once and stays in registers, w is
 * read once by each. Rows have strides (ld*) so that spare columns after D stay untouched.
 * Where a product in FP8 reads the result, forward and gradient write it as e4m3 codes with a
 * scale, too (codes, else NULL; bf16 only). rmsnorm_dw: see there. */
// variants: (AF_T=bf16 AF_W=bf16,float AF_VEC=8 | AF_T=float AF_W=float,bf16 AF_VEC=4
//      | AF_T=half AF_W=half,float AF_VEC=8) (AF_PER=4 AF_WARP=1 | AF_PER=2,4,8 AF_WARP=0)
//    | (AF_T=bf16,float AF_W=bf16,float | AF_T=half AF_W=half,float) AF_VEC=1 AF_PER=8,32 AF_WARP=0
// common: AF_T=bf16 AF_W=bf16,float AF_VEC=8 (AF_PER=4 AF_WARP=1 | AF_PER=2 AF_WARP=0)
#include "fp8_codes.cuh"

#ifndef AF_W
#define AF_W AF_T
#endif
#ifndef AF_PER
#define AF_PER 1
#endif
#ifndef AF_WARP
#define AF_WARP 0
#endif
#if AF_WARP
#define WIDTH 32
#define LANE  (threadIdx.x % 32)
#define ROW_LOOP                                                                                   \
    for (i64 n = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; n < rows;                 \
         n += (i64)gridDim.x * (blockDim.x / 32))
DEV float row_sum(float v) { return warp_sum(v); }
DEV u32 row_largest(u32 v) { return warp_largest(v); }
#else
#define WIDTH    blockDim.x
#define LANE     threadIdx.x
#define ROW_LOOP for (i64 n = blockIdx.x; n < rows; n += gridDim.x)
DEV float row_sum(float v) { return block_sum(v); }
DEV u32 row_largest(u32 v) { return block_largest(v); }
#endif

struct row {
    float v[AF_PER][AF_VEC];
};

template <class T> DEV void load_row(row &r, const T *p, int D)
{
#pragma unroll
    for (int i = 0; i < AF_PER; i++) {
        const int d = (i * WIDTH + LANE) * AF_VEC;
        if (d < D) {
            load_n(r.v[i], p + d);
        } else {
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                r.v[i][k] = 0.0f;
        }
    }
}
DEV void store_row(AF_T *p, const row &r, int D)
{
#pragma unroll
    for (int i = 0; i < AF_PER; i++) {
        const int d = (i * WIDTH + LANE) * AF_VEC;
        if (d < D)
            store_n(p + d, r.v[i]);
    }
}
DEV float dot(const row &a, const row &b)
{
    float s = 0.0f;
#pragma unroll
    for (int i = 0; i < AF_PER; i++)
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            s += a.v[i][k] * b.v[i][k];
    return s;
}
#define EACH                                                                                       \
    _Pragma("unroll") for (int i = 0; i < AF_PER; i++)                                             \
        _Pragma("unroll") for (int k = 0; k < AF_VEC; k++)

/* What store_row stored, as codes. */
DEV void store_codes(u8 *codes, float *scale, const row &r, int D)
{
#if AF_VEC == 8
    uint4 held[AF_PER];
    u32 most = 0;
#pragma unroll
    for (int i = 0; i < AF_PER; i++) {
        const float *v = r.v[i];
        held[i] = make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                             pack_bf16(v[6], v[7]));
        most = largest_of(held[i], most);
    }
    const fp8_scale s = scale_of(row_largest(most));
    if (LANE == 0)
        *scale = s.scale;
#pragma unroll
    for (int i = 0; i < AF_PER; i++) {
        const int d = (i * WIDTH + LANE) * AF_VEC;
        if (d < D)
            *(uint2 *)(codes + d) = codes_of(held[i], s.inverse);
    }
#endif
}

/* w as it multiplies: plus_one is 0 or 1. */
DEV void load_weight(row &w, const AF_W *p, int D, float plus_one)
{
    load_row(w, p, D);
    EACH w.v[i][k] += plus_one;
}

DEV void normalise(AF_T *y, float *rstd, row &x, const row &w, int D, float eps, u8 *codes,
                   float *scale)
{
    const float r = rsqrtf(row_sum(dot(x, x)) / D + eps);
    EACH x.v[i][k] *= r * w.v[i][k];
    store_row(y, x, D);
    if (LANE == 0)
        *rstd = r;
    if (codes)
        store_codes(codes, scale, x, D);
}

/* y = x * rstd * (w + plus_one), rstd[n] = 1 / sqrt(mean x[n]^2 + eps) */
extern "C" __global__ void rmsnorm_fwd(AF_T *y, float *rstd, const AF_T *x, const AF_W *w,
                                       long long rows, int D, long long ldy, long long ldx,
                                       float eps, float plus_one, u8 *codes, float *scale)
{
    previous_done();
    row wr, xr;
    load_weight(wr, w, D, plus_one);
    ROW_LOOP
    {
        load_row(xr, x + n * ldx, D);
        normalise(y + n * ldy, rstd + n, xr, wr, D, eps, codes ? codes + n * D : codes, scale + n);
    }
}

/* sum = x + residual (rounded to AF_T), y = rmsnorm(sum) */
extern "C" __global__ void rmsnorm_add_fwd(AF_T *y, AF_T *sum, float *rstd, const AF_T *x,
                                           const AF_T *residual, const AF_W *w, long long rows,
                                           int D, long long ldy, long long lds, long long ldx,
                                           long long ldr, float eps, float plus_one, u8 *codes,
                                           float *scale)
{
    previous_done();
    row wr, xr, rr;
    load_weight(wr, w, D, plus_one);
    ROW_LOOP
    {
        load_row(xr, x + n * ldx, D);
        load_row(rr, residual + n * ldr, D);
        EACH xr.v[i][k] = rounded<AF_T>(xr.v[i][k] + rr.v[i][k]);
        store_row(sum + n * lds, xr, D);
        normalise(y + n * ldy, rstd + n, xr, wr, D, eps, codes ? codes + n * D : codes, scale + n);
    }
}

/* dx = rstd * (g - x * rstd^2 * mean(g x)), g = dy * (w + plus_one); plus `add` unless it is NULL
 * (the gradient that reached the sum by the residual path; dx itself to accumulate). */
extern "C" __global__ void rmsnorm_bwd(AF_T *dx, const AF_T *x, const AF_W *w, const float *rstd,
                                       const AF_T *dy, const AF_T *add, long long rows, int D,
                                       long long lddx, long long ldx, long long lddy, long long lda,
                                       float plus_one, u8 *codes, float *scale)
{
    previous_done();
    row wr, xr, gr;
    load_weight(wr, w, D, plus_one);
    ROW_LOOP
    {
        const float r = rstd[n];
        load_row(xr, x + n * ldx, D);
        load_row(gr, dy + n * lddy, D);
        EACH gr.v[i][k] *= wr.v[i][k];
        const float c = row_sum(dot(xr, gr)) / D * r * r;
        EACH gr.v[i][k] = r * (gr.v[i][k] - xr.v[i][k] * c);
        if (add) {
            load_row(xr, add + n * lda, D);
            EACH gr.v[i][k] += xr.v[i][k];
        }
        store_row(dx + n * lddx, gr, D);
        if (codes)
            store_codes(codes + n * D, scale + n, gr, D);
    }
}

/* dw[d] = sum_n dy[n][d] * x[n][d] * rstd[n], stage one: block (c, p) sums rows p*per .. in AF_VEC
 * columns per thread, 32 threads wide and 8 rows deep, into part[p][D]. Stage two: reduce_parts in
 * elementwise.cu. x and dy are read once. */
extern "C" __global__ void rmsnorm_dw(float *part, const AF_T *x, const float *rstd, const AF_T *dy,
                                      long long rows, int D, long long ldx, long long lddy,
                                      long long per)
{
    previous_done();
    __shared__ float sum[8][32][AF_VEC];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int d = (blockIdx.x * 32 + lane) * AF_VEC;
    float acc[AF_VEC] = {};
    if (d < D) {
        const i64 to = min(rows, (blockIdx.y + 1) * per);
        for (i64 n = blockIdx.y * per + warp; n < to; n += 8) {
            float xv[AF_VEC], gv[AF_VEC];
            load_n(xv, x + n * ldx + d);
            load_n(gv, dy + n * lddy + d);
            const float r = rstd[n];
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                acc[k] += gv[k] * (xv[k] * r);
        }
    }
#pragma unroll
    for (int k = 0; k < AF_VEC; k++)
        sum[warp][lane][k] = acc[k];
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * AF_VEC; i += 256) {
        const int col = blockIdx.x * 32 * AF_VEC + i;
        float s = 0.0f;
        for (int w = 0; w < 8; w++)
            s += sum[w][i / AF_VEC][i % AF_VEC];
        if (col < D)
            part[(i64)blockIdx.y * D + col] = s;
    }
}
