/* low_rank.cu - the low-rank GEMM of adapters for few rows: out[n][r] = alpha * sum_k x[n][k]
 * w[r][k], r < 64, bf16. Many rows are a GEMM's (measured).
 *
 * Built with AF_NT (columns / 8) and AF_KS (blocks of a cluster that share rows). A block owns 16
 * rows; its warps divide k among them, 32 values at a time, then add up one after another, and so
 * do the blocks of a cluster. Within 32 values k is permuted alike on both sides, so that a 16-byte
 * load is two fragments. K is a multiple of 32, rows are 16-byte aligned. */
// variants: AF_NT=2,4,6,8 AF_KS=1,8
#include "cluster.cuh"

#ifndef AF_NT
#define AF_NT 2
#endif
#define WARPS 8
#define ROWS  16
#define COLS  (AF_NT * 8)

/* out has `wide` columns: those from COLS on become zeros. Block b serves rows b / AF_KS * ROWS on.
 */
extern "C" __global__ void CLUSTER __launch_bounds__(256)
    low_rank(bf16 *out, long long ldo, const bf16 *x, long long ldx, const bf16 *w, long long ldw,
             long long N, int K, int wide, float alpha)
{
    previous_done();
    __shared__ float sum[ROWS][COLS + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, p = lane % 4;
    const int rank = blockIdx.x % AF_KS;
    const long long r0 = (long long)(blockIdx.x / AF_KS) * ROWS;
    const bf16 *xr[2]; /* rows after the end are dropped */
#pragma unroll
    for (int h = 0; h < 2; h++)
        xr[h] = x + min(r0 + h * 8 + group, N - 1) * ldx + p * 8;
    const bf16 *wr = w + group * ldw + p * 8;
    float acc[AF_NT][4] = {};
#pragma unroll 4
    for (int k = (rank * WARPS + warp) * 32; k < K; k += AF_KS * WARPS * 32) {
        const uint4 lo = *(const uint4 *)(xr[0] + k), hi = *(const uint4 *)(xr[1] + k);
        const u32 first[4] = {lo.x, hi.x, lo.y, hi.y}, second[4] = {lo.z, hi.z, lo.w, hi.w};
#pragma unroll
        for (int j = 0; j < AF_NT; j++) {
            const uint4 b = *(const uint4 *)(wr + j * 8 * ldw + k);
            mma(acc[j], first, b.x, b.y);
            mma(acc[j], second, b.z, b.w);
        }
    }
    for (int w = 0; w < WARPS; w++) {
        if (warp == w) {
#pragma unroll
            for (int j = 0; j < AF_NT; j++)
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    float *s = &sum[group + q / 2 * 8][j * 8 + p * 2 + q % 2];
                    *s = w ? *s + acc[j][q] : acc[j][q];
                }
        }
        if (w + 1 < WARPS)
            __syncthreads();
    }
    cluster_meet();
    for (int i = rank * 256 + threadIdx.x; i < ROWS * wide; i += AF_KS * 256) {
        const int r = i / wide, c = i - r * wide;
        const float v = c < COLS ? cluster_sum(&sum[r][c]) : 0.0f;
        if (r0 + r < N)
            store(out + (r0 + r) * ldo + c, alpha * v);
    }
    if (AF_KS > 1)
        cluster_meet(); /* no block exits while others read its shared memory */
}
