/* low_rank.cu - the narrow products of adapters: out[n][r] = alpha * sum_k x[n][k] w[r][k], r < 64.
 *
 * Built with AF_T (bf16), AF_NT (columns / 8) and AF_MT (rows of a block / 16). x is read
 * once, 16 bytes a thread; the warps of a block share its rows and take turns along k, 32 values at
 * a time, then add up one after another. Within 32 values k is permuted the same way on both sides,
 * so that a 16-byte load is two fragments. K is a multiple of 32, rows are 16-byte aligned. */
// variants: AF_T=bf16 AF_NT=2 AF_MT=1 | AF_T=bf16 AF_NT=2 AF_MT=2 | AF_T=bf16 AF_NT=2 AF_MT=4 | AF_T=bf16 AF_NT=4 AF_MT=1 | AF_T=bf16 AF_NT=4 AF_MT=2 | AF_T=bf16 AF_NT=6 AF_MT=1 | AF_T=bf16 AF_NT=6 AF_MT=2 | AF_T=bf16 AF_NT=8 AF_MT=1 | AF_T=bf16 AF_NT=8 AF_MT=2
// common: AF_T=bf16 AF_NT=2 AF_MT=1 | AF_T=bf16 AF_NT=2 AF_MT=4 | AF_T=bf16 AF_NT=4 AF_MT=1 | AF_T=bf16 AF_NT=4 AF_MT=2 | AF_T=bf16 AF_NT=6 AF_MT=1 | AF_T=bf16 AF_NT=6 AF_MT=2
#include "dev.cuh"

#define WARPS 8
#define ROWS (AF_MT * 16)
#define COLS (AF_NT * 8)

static __device__ __forceinline__ void mma_step(float *d, unsigned a0, unsigned a1, unsigned a2,
                                                unsigned a3, unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* out has `wide` columns: those from COLS on become zeros. */
extern "C" __global__ void __launch_bounds__(256)
    low_rank(AF_T *out, long long ldo, const AF_T *x, long long ldx, const AF_T *w, long long ldw,
             long long N, int K, int wide, float alpha)
{
    __shared__ float sum[ROWS][COLS + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, p = lane % 4;
    const long long r0 = (long long)blockIdx.x * ROWS;
    const AF_T *xr[AF_MT][2];
#pragma unroll
    for (int i = 0; i < AF_MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const long long r = r0 + i * 16 + h * 8 + group;
            xr[i][h] = x + (r < N ? r : N - 1) * ldx + p * 8; /* rows behind the end are dropped */
        }
    const AF_T *wr = w + group * ldw + p * 8;
    float acc[AF_MT][AF_NT][4] = {};
#pragma unroll 2
    for (int k = warp * 32; k < K; k += WARPS * 32) {
        uint4 a[AF_MT][2], b[AF_NT];
#pragma unroll
        for (int i = 0; i < AF_MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                a[i][h] = *(const uint4 *)(xr[i][h] + k);
#pragma unroll
        for (int j = 0; j < AF_NT; j++)
            b[j] = *(const uint4 *)(wr + j * 8 * ldw + k);
#pragma unroll
        for (int i = 0; i < AF_MT; i++)
#pragma unroll
            for (int j = 0; j < AF_NT; j++) {
                mma_step(acc[i][j], a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y, b[j].x, b[j].y);
                mma_step(acc[i][j], a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w, b[j].z, b[j].w);
            }
    }
    for (int turn = 0; turn < WARPS; turn++) {
        if (warp == turn) {
#pragma unroll
            for (int i = 0; i < AF_MT; i++)
#pragma unroll
                for (int j = 0; j < AF_NT; j++)
#pragma unroll
                    for (int q = 0; q < 4; q++) {
                        float *s = &sum[i * 16 + group + q / 2 * 8][j * 8 + p * 2 + q % 2];
                        *s = turn ? *s + acc[i][j][q] : acc[i][j][q];
                    }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < ROWS * wide; i += 256) {
        const int r = i / wide, c = i - r * wide;
        if (r0 + r < N)
            store(out + (r0 + r) * ldo + c, c < COLS ? alpha * sum[r][c] : 0.0f);
    }
}
