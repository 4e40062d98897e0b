/* moe_sm90_dw.cu - gradients of experts' matrices on Hopper, from bf16 to f32.
 * Contract: moe_linear.c; same results as moe_outer (moe.cu).
 *
 * Tiles are 128 rows and AF_BN columns of one expert's matrix; the inner dimension are its slots.
 * Built with AF_GATHER=1: rows of x come in pieces, and after the last slot of an expert zeros, so
 * that the rows of dy there, which are those of the next expert, count nothing. On other
 * architectures the kernel is empty. */
// variants: AF_GATHER=1 AF_BN=64,256
// common: AF_GATHER=1 AF_BN=64,256
#include "moe_sm90.cuh"

#define PIECES (BK * BN / 8 / FETCH) /* pieces a fetching thread has in a stage */
#define ACROSS (BN / 8)              /* pieces of a row */

struct tile {
    int e, row, col; /* expert; first row and column of its matrix */
};

#if SM90
DEV tile tile_of(int no, int rows, int columns)
{
    return {no / (rows * columns), no / columns % rows * BM, no % columns * BN};
}
/* Thread t has piece t % ACROSS of rows t / ACROSS, and so on. */
DEV void fetch_pieces(u32 to, const bf16 *x, i64 ld, const int *list, int div, int slot, int end,
                      int col, int N)
{
    const int t = threadIdx.x % FETCH, c = t % ACROSS;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int r = t / ACROSS + i * (FETCH / ACROSS), s = slot + r;
        const bool there = s < end && col + c * 8 < N;
        const i64 row = !there ? 0 : list ? list[s] / div : s;
        copy16(to + piece_at<64>(r, c), there ? x + row * ld + col + c * 8 : x, there ? 16 : 0);
    }
}
/* d (+)= acc, the warpgroup's 64 rows from `row`. */
DEV void store_tile(float *d, const float (&acc)[BN / 2], int row, int M, int col, int N, int add)
{
    const int lane = threadIdx.x % 32, r = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < BN / 8; j++) {
            const int n = col + j * 8 + lane % 4 * 2;
            float2 v = make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
            if (r + 8 * h >= M || n >= N)
                continue;
            float2 *to = (float2 *)(d + (i64)(r + 8 * h) * N + n);
            if (add) {
                v.x += to->x;
                v.y += to->y;
            }
            *to = v;
        }
}
#endif

/* d[e][m][n] (+)= sum over slots s of e of dy[s][m] x(s)[n]; x(s) = x[list[s] / div], or x[s]
 * without a list. M, N and all row strides are multiples of 8. */
extern "C" __global__ void __launch_bounds__(384, 1)
    moe_dw(float *d, const __grid_constant__ af_map dy, const bf16 *x, long long ldx,
           const int *list, int div, const int *start, int X, int M, int N, int add)
{
#if SM90
    const shared_layout s = shared_begin(start, X);
    const int rows = (M + BM - 1) / BM, columns = (N + BN - 1) / BN, tiles = X * rows * columns;
    u32 no = 0;
    if (group_of() == 2) {
        registers_down<56>();
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const tile t = tile_of(i, rows, columns);
            const int end = s.start[t.e + 1];
            for (int slot = s.start[t.e]; slot < end; slot += BK, no++) {
                const u32 to = stage_of(s, no), bar = full_of(s, no);
                wait_free(s, no);
                if (threadIdx.x % FETCH == 0) {
                    bar_expect(bar, A_BYTES);
                    for (int k = 0; k < 2; k++)
                        fetch_box(to + k * BOX, &dy, t.row + k * 64, slot, bar);
                }
                fetch_pieces(to + A_BYTES, x, ldx, list, div, slot, end, t.col, N);
                bar_arrive_copied(bar);
            }
        }
        copy_wait<0>();
        return;
    }
    registers_up<224>();
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        const tile t = tile_of(i, rows, columns);
        const int slots = s.start[t.e + 1] - s.start[t.e], steps = (slots + BK - 1) / BK;
        const int row = t.row + group_of() * 64;
        float acc[BN / 2];
#pragma unroll
        for (int k = 0; k < BN / 2; k++)
            acc[k] = 0.0f;
        for (int step = 0; step < steps; step++, no++) {
            wait_full(s, no);
            pin(acc);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < BK / 16; k++)
                wgmma_ss<1, 1>(acc, desc_mn<64>(stage_of(s, no) + group_of() * BOX, k),
                               desc_mn<64>(stage_of(s, no) + A_BYTES, k), 1);
            wgmma_commit();
            wgmma_wait<1>();
            pin(acc);
            if (step > 0)
                release(s, no - 1);
        }
        wgmma_wait<0>();
        pin(acc);
        if (steps > 0)
            release(s, no - 1);
        store_tile(d + (i64)t.e * M * N, acc, row, M, t.col, N, add);
    }
#endif
}
