/* fp8_quant.cu - rows and columns of bf16 as e4m3 with a scale each (fp8_codes.cuh).
 *
 * A row of a matrix is a block; columns are made 32 at a time, and stored as rows: the other
 * orientation of a weight. */
// variants: AF_T=bf16
// common: AF_T=bf16
#include "fp8_codes.cuh"

#define HELD 5 /* times eight values of a row */

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
