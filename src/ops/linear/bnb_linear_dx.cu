/* bnb_linear_dx.cu - the gradient of bnb_linear.cu's input, for few tokens (at most 64), straight
 * from 4-bit weights. Contract: af_linear's dx (linear.c).
 *
 * Built with AF_BOOK (nf4_bits, fp4_bits) and AF_MT (tokens / 16, rounded up). Conditions and
 * values as in bnb_linear.cu; codes are read once. */
// variants: AF_BOOK=nf4_bits,fp4_bits AF_MT=1,2,4
#include "bnb_linear.cuh"

#ifndef AF_MT
#define AF_MT 1
#endif
#define WARPS  8
#define TOKENS (AF_MT * 16)
#define COLS   64
#define PITCH  (COLS + 8) /* rows 144 bytes apart: fragment loads hit every bank once */

/* Fragments of 16 rows of a warp's tile: acc += a[tokens][16] tile[16][64]. */
DEV void mma_tile(float (&acc)[AF_MT][8][4], const u32 (&a)[AF_MT][4], const bf16 (*tile)[PITCH])
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < COLS / 16; j++) {
        u32 b[4];
        ldmatrix4_trans(b, smem_at(&tile[lane % 16][j * 16 + lane / 16 * 8]));
#pragma unroll
        for (int i = 0; i < AF_MT; i++) {
            mma(acc[i][2 * j], a[i], b[0], b[1]);
            mma(acc[i][2 * j + 1], a[i], b[2], b[3]);
        }
    }
}
/* Columns c .. c + 15 of the tokens of x, which has `cols`. */
DEV void token_fragments(u32 (&a)[AF_MT][4], const bf16 *x, i64 ld, int c, int M, int cols)
{
    const int group = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < AF_MT; i++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const int m = i * 16 + q % 2 * 8 + group;
            a[i][q] = pair_at(x + m * ld, c + p * 2 + q / 2 * 8, m < M ? cols : 0);
        }
}

/* dx[m][i] = sum_o dy[m][o] w[o][i] + sum_r low[m][r] a[r][i].
 *
 * Block (b, s) makes 64 columns; its warps and the gridDim.y blocks of a column divide o among
 * them, 16 rows at a time, which a warp decodes into a tile of its own. Warps are added up in
 * order; with more than one block a column the sums go to part[s][m][i] and bnb_join adds them up.
 * a: [R][I], or R = 0. */
extern "C" __global__ void __launch_bounds__(256)
    bnb_linear_dx(bf16 *dx, long long ldx, const bf16 *dy, long long ldy, bnb_pieces w, float off0,
                  float off1, float off2, const bf16 *low, long long ldl, const bf16 *a,
                  long long lda, float *part, int M, int O, int I, int R, int shift,
                  int nested_shift)
{
    __shared__ float map[256], sum[TOKENS][COLS + 1];
    __shared__ __align__(16) bf16 tile[WARPS][16][PITCH];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, p = lane % 4;
    const int c0 = blockIdx.x * COLS, r = lane / 2, c = c0 + lane % 2 * 32;
    const int strides = gridDim.y * WARPS, first = blockIdx.y * WARPS + warp;
    float acc[AF_MT][8][4] = {};
    u32 from[AF_MT][4];
    bf16 *mine = &tile[warp][r][lane % 2 * 32];
    bnb_map(map);
    __syncthreads();
    for (int o = first * 16; o < O; o += strides * 16) {
        const bnb_row row = find_row(w, {{off0, off1, off2}}, min(o + r, O - 1), I);
        const uint4 q = *(const uint4 *)(row.codes + c / 2);
        const u32 code[4] = {q.x, q.y, q.z, q.w};
        bnb_table table;
        const float scale =
            use_scale(row, ask_scale(row, c, shift, nested_shift), map, nested_shift);
        bnb_values(table, (bf16 *)0, AF_BOOK, o + r < O ? scale : 0.0f);
        token_fragments(from, dy, ldy, o, M, O);
        __syncwarp();
#pragma unroll
        for (int u = 0; u < 4; u++) {
            u32 v[4];
            bnb_lookup(v, table, code[u]);
            *(uint4 *)(mine + u * 8) = make_uint4(v[0], v[1], v[2], v[3]);
        }
        __syncwarp();
        mma_tile(acc, from, tile[warp]);
    }
    for (int k = 0; k < R && first == 0; k += 16) {
        __syncwarp();
#pragma unroll
        for (int u = 0; u < 4; u++)
            *(uint4 *)(mine + u * 8) = k + r < R ? *(const uint4 *)(a + (k + r) * lda + c + u * 8)
                                                 : make_uint4(0, 0, 0, 0);
        token_fragments(from, low, ldl, k, M, R);
        __syncwarp();
        mma_tile(acc, from, tile[warp]);
    }
    for (int t = 0; t < WARPS; t++) {
        if (warp == t) {
#pragma unroll
            for (int i = 0; i < AF_MT; i++)
#pragma unroll
                for (int j = 0; j < 8; j++)
#pragma unroll
                    for (int q = 0; q < 4; q++) {
                        float *s = &sum[i * 16 + group + q / 2 * 8][j * 8 + p * 2 + q % 2];
                        *s = t ? *s + acc[i][j][q] : acc[i][j][q];
                    }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < M * COLS; i += 256) {
        const int m = i / COLS, col = i % COLS;
        if (gridDim.y == 1)
            store(dx + m * ldx + c0 + col, sum[m][col]);
        else
            part[((i64)blockIdx.y * M + m) * I + c0 + col] = sum[m][col];
    }
}

/* dx = the sum of the parts, in order. */
extern "C" __global__ void __launch_bounds__(256)
    bnb_join(bf16 *dx, long long ldx, const float *part, int M, int I, int parts)
{
    for (int i = blockIdx.x * 256 + threadIdx.x; i < M * I; i += gridDim.x * 256) {
        float v = 0.0f;
        for (int s = 0; s < parts; s++)
            v += part[(i64)s * M * I + i];
        store(dx + i / I * ldx + i % I, v);
    }
}
