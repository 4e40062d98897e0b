/* gate_up_sm90.cu - the GEMM with gate's and up's matrices on Hopper, and the gated unit as its
 * epilogue: gate|up = x w', h = act(gate) up, part = h a' over a strip of columns.
 * Contract: gate_up.h; one sum for each value of gate and up, in the order of the inner dimension,
 * and the same bits of h as from glu.cu.
 *
 * Pairs of blocks (pairs.cuh) take tiles of 128 rows with 128 columns of gate and the same of up,
 * so that a thread holds both of a pair; the last columns in tiles of 64, where the pairs of
 * blocks end sooner with those. Results are stored through shared memory by the copy engine. h
 * stays in registers for its GEMM with a, whose columns come as one more stage; sums over the
 * tiles of a strip stay there, too. Built with AF_ACT; AF_KEEP=0: gate and up are not stored;
 * AF_UNIT=0: they alone are; AF_LOW=0: without a. On other architectures the kernel is empty. */
// variants: AF_ACT=0,1,2,3 AF_KEEP=0,1 AF_UNIT=1 AF_LOW=0,1 | AF_ACT=0 AF_KEEP=1 AF_UNIT=0 AF_LOW=0
// common: AF_ACT=0 AF_KEEP=0,1 AF_UNIT=1 AF_LOW=0,1 | AF_ACT=0 AF_KEEP=1 AF_UNIT=0 AF_LOW=0
#ifndef AF_KEEP
#define AF_KEEP 1
#endif
#ifndef AF_UNIT
#define AF_UNIT 1
#endif
#ifndef AF_LOW
#define AF_LOW 1
#endif
#define BK     64
#define RANK   16
#define BOXES  2 /* of a warpgroup, for what it stores */
#define A_PART (2 * BOX)
#define STAGES 4
#define STAGE  (A_PART + 4 * BOX)
#define STORED (2 * BOXES * BOX)
#define BAND   8 /* pairs of tiles along the rows that share columns */
#include "glu.cuh"
#include "pairs.cuh"

#if SM90
/* The blocks take boxes of w in turn: W of gate, W of up. */
template <int W>
DEV void fetch_stage(const stages &s, u32 no, const af_map *x, const af_map *w, int k, int row,
                     int col, int F)
{
    s.wait_free(no);
    bar_expect(s.full_bar(no), A_PART + 2 * W * BOX);
    for (int i = 0; i < BM / 64; i++)
        fetch_box(s.stage(no) + i * BOX, x, k, row + i * 64, s.full_bar(no));
    for (int i = 0; i < 2 * W; i++)
        if (i % AF_KS == blockIdx.x % AF_KS)
            fetch_box_for_all(s.stage(no) + A_PART + i * BOX, w, k, i / W * F + col + i % W * 64,
                              s.full_bar(no), (1 << AF_KS) - 1);
}
/* The columns of a, [RANK][64 W]: rows after its last one are zeros. */
template <int W> DEV void fetch_low(const stages &s, u32 no, const af_map *a, int col)
{
    s.wait_free(no);
    bar_expect(s.full_bar(no), W * BOX);
    for (int i = 0; i < W; i++)
        fetch_box(s.stage(no) + i * BOX, a, col + i * 64, 0, s.full_bar(no));
}
/* The first STEPS steps of a stage: begun, then those of the stage before are done. */
template <int STEPS, int SUMS>
DEV void multiply_stage(float (&d)[SUMS], const stages &s, u32 no, bool add)
{
    s.wait_full(no);
    const u32 a = s.stage(no) + group_of() * BOX, b = s.stage(no) + A_PART;
    pin(d);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        wgmma_ss<0, 0>(d, desc_k<BM>(a, k), desc_k<2 * SUMS>(b, k), add || k > 0);
    wgmma_commit();
    wgmma_wait<1>();
    pin(d);
    if (add)
        s.release(no - 1);
}
/* d = the warpgroup's rows of x times w, K columns of x: whole stages, then steps of 16. */
template <int SUMS> DEV void multiply_tile(float (&d)[SUMS], const stages &s, u32 &no, int K)
{
    int k = 0;
    for (; k <= K - BK; k += BK, no++)
        multiply_stage<BK / 16>(d, s, no, k > 0);
    if (K - k > 32)
        multiply_stage<3>(d, s, no++, k > 0);
    else if (K - k > 16)
        multiply_stage<2>(d, s, no++, k > 0);
    else if (K - k > 0)
        multiply_stage<1>(d, s, no++, k > 0);
    wgmma_wait<0>();
    pin(d);
    s.release(no - 1);
}
/* The next of the warpgroup's boxes, when the copy engine has read what was there. */
DEV u32 box_begin(const stages &s, u32 &n)
{
    if (threadIdx.x % 128 == 0)
        stores_read<BOXES - 1>();
    group_meet(group_of());
    return s.stored() + (group_of() * BOXES + n++ % BOXES) * BOX;
}
DEV void box_end(const af_map *to, u32 box, int col, int row)
{
    fence_async();
    group_meet(group_of());
    if (threadIdx.x % 128 == 0) {
        store_box(to, col, row, box);
        stores_commit();
    }
}
/* v: 64 columns of the warpgroup's rows, 16 per piece, as operands of an MMA lie. */
DEV void store_columns(const af_map *to, const u32 (&v)[4][4], const stages &s, u32 &n, int col,
                       int row)
{
    const int lane = threadIdx.x % 32, r = threadIdx.x % 128 / 32 * 16 + lane % 16;
    const u32 box = box_begin(s, n);
#pragma unroll
    for (int j = 0; j < 4; j++)
        stmatrix4(box + piece_at<64>(r, 2 * j + lane / 16), v[j][0], v[j][1], v[j][2], v[j][3]);
    box_end(to, box, col, row);
}
/* Sums `from` to from + 32: 64 columns. */
template <int SUMS> DEV void columns_of(u32 (&v)[4][4], const float (&d)[SUMS], int from)
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        v[i / 4][i % 4] = pack_bf16(d[from + 2 * i], d[from + 2 * i + 1]);
}
/* gate becomes h. */
DEV void gated_unit(u32 (&gate)[4][4], const u32 (&up)[4][4])
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float g[2], u[2], slope;
        unpack2((bf16 *)0, gate[i / 4][i % 4], g);
        unpack2((bf16 *)0, up[i / 4][i % 4], u);
        gate[i / 4][i % 4] = pack_bf16(u[0] * act(g[0], &slope), u[1] * act(g[1], &slope));
    }
}
/* low (+)= h a', 64 columns from 64 b of the tile. */
DEV void multiply_low(float (&low)[8], u32 (&h)[4][4], u32 a, int b, bool add)
{
    pin(h);
    pin(low);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; j++)
        wgmma_rs_k(low, h[j], desc_k<64>(a, b * 4 + j), add || j > 0);
    wgmma_commit();
    wgmma_wait<0>();
    pin(low);
}
/* What the thread that fetches does, strip by strip; columns are counted from `first` on. */
template <int W>
DEV void fetch_strips(const stages &s, tiles &t, u32 &no, const af_map *x, const af_map *w,
                      const af_map *a, int first, int end, int F, int K)
{
    int row, col;
    while (t.next(row, col))
        for (int c = first + col; c < min(first + col + t.wide, end); c += 64 * W) {
            for (int k = 0; k < K; k += BK, no++)
                fetch_stage<W>(s, no, x, w, k, row, c, F);
            if (AF_LOW)
                fetch_low<W>(s, no++, a, c);
        }
}
DEV void store_low(float *part, const float (&low)[8], int row, int M)
{
    const int r = row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < 8; i += 2)
        if (r + i / 2 % 2 * 8 < M)
            *(float2 *)(part + (i64)(r + i / 2 % 2 * 8) * RANK + i / 4 * 8 + threadIdx.x % 4 * 2) =
                make_float2(low[i], low[i + 1]);
}
/* What those that compute do; `part` is that of the first strip. */
template <int W>
DEV void make_strips(const stages &s, tiles &t, u32 &no, u32 &stored, const af_map *gate,
                     const af_map *up, const af_map *h, float *part, int M, int first, int end,
                     int K)
{
    int row, col;
    while (t.next(row, col)) {
        float low[8];
        row += group_of() * 64;
        for (int c = first + col; c < min(first + col + t.wide, end); c += 64 * W) {
            float d[64 * W];
            multiply_tile(d, s, no, K);
            if (AF_LOW)
                s.wait_full(no);
#pragma unroll
            for (int b = 0; b < W; b++) {
                u32 g[4][4], u[4][4];
                columns_of(g, d, b * 32);
                columns_of(u, d, 32 * W + b * 32);
                if (AF_KEEP) {
                    store_columns(gate, g, s, stored, c + b * 64, row);
                    store_columns(up, u, s, stored, c + b * 64, row);
                }
                if (AF_UNIT) {
                    gated_unit(g, u);
                    store_columns(h, g, s, stored, c + b * 64, row);
                }
                if (AF_LOW)
                    multiply_low(low, g, s.stage(no), b, c + b > first + col);
            }
            if (AF_LOW)
                s.release(no++);
        }
        if (AF_LOW)
            store_low(part + (i64)(col / t.wide) * M * RANK, low, row, M);
    }
}
#endif

/* Maps of gate, up and h have F columns, those of x and w K. K is a multiple of 16, F and `wide`,
 * the columns of a strip, of 128; the last `narrow` columns are in strips of 64. part[strip][M]
 * [RANK]. The grid is a multiple of AF_KS. */
extern "C" __global__ void CLUSTER __launch_bounds__(384, 1)
    gate_up_sm90(const __grid_constant__ af_map gate, const __grid_constant__ af_map up,
                 const __grid_constant__ af_map h, const __grid_constant__ af_map x,
                 const __grid_constant__ af_map w, const __grid_constant__ af_map a, float *part,
                 int M, int F, int K, int wide, int narrow)
{
#if SM90
    const stages s = stages_begin();
    const int end = F - narrow;
    tiles t = tiles_of(M, end, wide);
    u32 no = 0;
    if (group_of() == 2) {
        registers_down<24>();
        if (threadIdx.x % 128 == 0) {
            fetch_strips<2>(s, t, no, &x, &w, &a, 0, end, F, K);
            tiles n = t.rest(narrow / 64, 64);
            fetch_strips<1>(s, n, no, &x, &w, &a, end, F, F, K);
        }
    } else {
        registers_up<240>();
        u32 stored = 0;
        make_strips<2>(s, t, no, stored, &gate, &up, &h, part, M, 0, end, K);
        tiles n = t.rest(narrow / 64, 64);
        make_strips<1>(s, n, no, stored, &gate, &up, &h, part + (i64)t.cols * M * RANK, M, end, F,
                       K);
        if (threadIdx.x % 128 == 0)
            stores_done();
    }
    __syncwarp();
    cluster_meet(); /* the other block may still write here */
#endif
}
