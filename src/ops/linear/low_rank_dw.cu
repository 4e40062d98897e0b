/* low_rank_dw.cu - gradients of adapters' up halves: out = y' z over all tokens, y [N][C], z [N][R]
 * narrow, bf16, sums in f32, all parts in one launch. Contract: adapter_db of linear.c.
 *
 * Built with AF_NT (ranks / 8, rounded up to even) and AF_KS (blocks of a cluster that share
 * columns). A block owns 128 columns of y, 16 per warp; tiles of 64 tokens pass through three
 * stages of shared memory, the blocks of a cluster take every AF_KS-th one and add up in order. y
 * is read once. Columns, ranks and where they begin are multiples of 8, rows start on 16 bytes. */
// variants: AF_NT=2,4,6,8 AF_KS=1,2,4,8
// common: AF_NT=2 AF_KS=1,2,4,8
#include "cluster.cuh"

#ifndef AF_NT
#define AF_NT 2
#endif
#define COLS   128
#define TOKENS 64
#define STAGES 3
#define RANKS  (AF_NT * 8)
#define YP     (COLS + 8) /* rows an odd number of 16 bytes apart */
#define ZP     (RANKS + 8)
#define STAGE  (TOKENS * (YP + ZP)) /* values */

/* Columns [from, from + cols) of y and ranks [rank_from, rank_from + ranks) of z make one part of
 * the result: out[c][r], rows `ranks` long. */
struct outer_part {
    float *out;
    int from, cols, rank_from, ranks, first, unused; /* first: of its blocks of columns */
};
struct outer_parts {
    outer_part at[4];
};

/* Tokens [n0, n0 + 64) into a stage; zeros after the end of tokens, columns and ranks. */
DEV void fetch(bf16 *stage, const bf16 *y, i64 ldy, const bf16 *z, i64 ldz, const outer_part &q,
               int c0, i64 n0, i64 N)
{
#pragma unroll
    for (int i = 0; i < TOKENS * COLS / 8 / 256; i++) {
        const int at = i * 256 + threadIdx.x, r = at / (COLS / 8), c = at % (COLS / 8) * 8;
        const bool in = n0 + r < N && c0 + c < q.cols;
        copy16(smem_at(stage + r * YP + c), in ? y + (n0 + r) * ldy + q.from + c0 + c : y,
               in ? 16 : 0);
    }
    bf16 *zs = stage + TOKENS * YP;
#pragma unroll
    for (int i = 0; i < (TOKENS * AF_NT + 255) / 256; i++) {
        const int at = i * 256 + threadIdx.x, r = at / AF_NT, c = at % AF_NT * 8;
        const bool in = n0 + r < N && c < q.ranks;
        if (at < TOKENS * AF_NT)
            copy16(smem_at(zs + r * ZP + c), in ? z + (n0 + r) * ldz + q.rank_from + c : z,
                   in ? 16 : 0);
    }
}

extern "C" __global__ void CLUSTER __launch_bounds__(256)
    low_rank_dw(const bf16 *y, long long ldy, const bf16 *z, long long ldz, outer_parts parts,
                long long N, int accumulate)
{
    extern __shared__ __align__(16) bf16 smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, p = lane % 4;
    const int rank = blockIdx.x % AF_KS, column = blockIdx.x / AF_KS;
    outer_part q = parts.at[0];
#pragma unroll
    for (int i = 1; i < 4; i++)
        if (column >= parts.at[i].first)
            q = parts.at[i];
    const int c0 = (column - q.first) * COLS;
    float acc[AF_NT][4] = {};
    i64 next = rank * (i64)TOKENS;
    for (int s = 0; s < STAGES - 1; s++, next += AF_KS * TOKENS) {
        if (next < N)
            fetch(smem + s * STAGE, y, ldy, z, ldz, q, c0, next, N);
        copy_commit();
    }
    int at = 0;
    for (i64 n0 = rank * (i64)TOKENS; n0 < N; n0 += AF_KS * TOKENS, next += AF_KS * TOKENS) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (next < N)
            fetch(smem + (at + STAGES - 1) % STAGES * STAGE, y, ldy, z, ldz, q, c0, next, N);
        copy_commit();
        const bf16 *ys = smem + at * STAGE, *zs = ys + TOKENS * YP;
#pragma unroll
        for (int k = 0; k < TOKENS; k += 16) {
            u32 a[4];
            ldmatrix4_trans(a, smem_at(ys + (k + lane / 16 * 8 + lane % 8) * YP + warp * 16 +
                                       lane / 8 % 2 * 8));
#pragma unroll
            for (int j = 0; j < AF_NT; j += 2) {
                u32 b[4];
                ldmatrix4_trans(b, smem_at(zs + (k + lane % 16) * ZP + j * 8 + lane / 16 * 8));
                mma(acc[j], a, b[0], b[1]);
                mma(acc[j + 1], a, b[2], b[3]);
            }
        }
        at = (at + 1) % STAGES;
    }
    copy_wait<0>();
    __syncthreads();
    float(*sum)[RANKS + 1] = (float(*)[RANKS + 1]) smem;
#pragma unroll
    for (int j = 0; j < AF_NT; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[warp * 16 + group + i / 2 * 8][j * 8 + p * 2 + i % 2] = acc[j][i];
    cluster_meet();
    for (int i = rank * 256 + threadIdx.x; i < COLS * RANKS; i += AF_KS * 256) {
        const int c = i / RANKS, r = i % RANKS;
        const float v = cluster_sum(&sum[c][r]);
        float *to = q.out + (i64)(c0 + c) * q.ranks + r;
        if (c0 + c < q.cols && r < q.ranks)
            *to = accumulate ? *to + v : v;
    }
    cluster_meet(); /* no block exits while others read its shared memory */
}
