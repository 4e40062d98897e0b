/* moe_sm90.cu - products of slots with their experts' matrices on Hopper, bf16.
 * Contract: moe_linear.c; same results as moe_product (moe.cu).
 *
 * Tiles are 128 slots of one expert times AF_BN columns. Built with AF_NN: the expert's matrix is
 * [N][K] (0) or [K][N] (1); AF_GATHER: rows are taken by a list; AF_GLU with AF_ACT: columns are
 * gate and up of a gated unit, a tile has as many of both, and the unit's result is a second
 * output. On other architectures the kernel is empty. */
// variants: AF_NN=0,1 AF_GATHER=0,1 AF_BN=64,256
//   | AF_NN=0 AF_GATHER=1 AF_BN=256 AF_GLU=1 AF_ACT=0
// common: AF_NN=0,1 AF_GATHER=0,1 AF_BN=64,256
//   | AF_NN=0 AF_GATHER=1 AF_BN=256 AF_GLU=1 AF_ACT=0
#include "moe_sm90.cuh"

#ifndef AF_NN
#define AF_NN 0
#endif
#ifndef AF_GLU
#define AF_GLU 0
#endif
#if AF_GLU
#include "glu.cuh"
#define COLUMNS (BN / 2) /* that a tile advances: as many of gate and of up */
#else
#define COLUMNS BN
#endif
#define PIECES (BM * 8 / FETCH) /* rows a fetching thread has in a stage */

/* One of the two products that are added: rows of x times the expert's matrix. */
struct operand {
    const af_map *x, *matrix;
    int K;
};
struct tile {
    int e, row, end, col; /* expert, its slots from row to end, first column */
};
/* The tiles of a block in order. */
struct walk {
    const int *start;
    int X, columns, no, e, before;
    __device__ __forceinline__ bool next(tile &t)
    {
        for (; e < X; e++) {
            const int rows = (start[e + 1] - start[e] + BM - 1) / BM, at = no - before;
            if (at < rows * columns) {
                t = {e, start[e] + at / columns * BM, start[e + 1], at % columns * COLUMNS};
                no += gridDim.x;
                return true;
            }
            before += rows * columns;
        }
        return false;
    }
};
#if SM90
DEV int steps(int K) { return (K + BK - 1) / BK; }
/* The first of the 64 columns that box i of a tile has. */
DEV int column_of(const tile &t, int i, int N)
{
    return AF_GLU && i >= BN / 128 ? N / 2 + t.col + (i - BN / 128) * 64 : t.col + i * 64;
}
/* The boxes of a stage: the expert's matrix, and the rows of the slots where they are in order.
 * Rows after the last slot of an expert are those of the next one: nobody stores their results. */
DEV void fetch_boxes(u32 to, u32 bar, const operand &o, const tile &t, int k, int N, bool rows)
{
    bar_expect(bar, rows ? STAGE : B_BYTES);
    for (int i = 0; i < BN / 64; i++)
        fetch_box(to + A_BYTES + i * BOX, o.matrix, AF_NN ? column_of(t, i, N) : k,
                  AF_NN ? t.e * o.K + k : t.e * N + column_of(t, i, N), bar);
    for (int i = 0; i < 2 && rows; i++)
        fetch_box(to + i * BOX, o.x, k, t.row + i * 64, bar);
}
/* Rows by the list: thread t has piece t % 8 of rows t / 8 + 16 i. */
struct gathered {
    const bf16 *x;
    i64 ld;
    const int *list;
    int div;
    int row[PIECES];
    __device__ __forceinline__ void begin(const tile &t)
    {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int slot = t.row + threadIdx.x % FETCH / 8 + 16 * i;
            row[i] = slot < t.end ? list[slot] / div : -1;
        }
    }
    __device__ __forceinline__ void fetch(u32 to, int k, int K)
    {
        const int r = threadIdx.x % FETCH / 8, c = threadIdx.x % 8;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const bool there = row[i] >= 0 && k + c * 8 < K;
            copy16(to + piece_at<BM>(r + 16 * i, c), there ? x + row[i] * ld + k + c * 8 : x,
                   there ? 16 : 0);
        }
    }
};
/* The warpgroup that fetches. */
DEV void fetch_tiles(const shared_layout &s, walk w, const operand (&o)[2], gathered &rows, int N)
{
    const bool first = threadIdx.x % FETCH == 0;
    u32 no = 0;
    tile t;
    if (!AF_GATHER && !first)
        return;
    while (w.next(t)) {
        if (AF_GATHER)
            rows.begin(t);
        for (int part = 0; part < 2; part++)
            for (int k = 0; k < o[part].K; k += BK, no++) {
                const bool list = AF_GATHER && part == 0;
                wait_free(s, no);
                if (first)
                    fetch_boxes(stage_of(s, no), full_of(s, no), o[part], t, k, N, !list);
                if (list)
                    rows.fetch(stage_of(s, no), k, o[part].K);
                if (AF_GATHER)
                    bar_arrive_copied(full_of(s, no));
            }
    }
    if (AF_GATHER)
        copy_wait<0>();
}
/* Words of four neighbouring lanes change places: lane q gets word q of each, in order. */
DEV uint4 gather_words(u32 w0, u32 w1, u32 w2, u32 w3)
{
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    const u32 a = __shfl_xor_sync(FULL, odd ? w0 : w1, 1);
    const u32 b = __shfl_xor_sync(FULL, odd ? w2 : w3, 1);
    w0 = odd ? a : w0;
    w1 = odd ? w1 : a;
    w2 = odd ? b : w2;
    w3 = odd ? w3 : b;
    const u32 c = __shfl_xor_sync(FULL, high ? w0 : w2, 2);
    const u32 d = __shfl_xor_sync(FULL, high ? w1 : w3, 2);
    return high ? make_uint4(c, d, w2, w3) : make_uint4(w0, w1, c, d);
}
struct output {
    bf16 *c;
    i64 ld;
    const float *bias; /* or NULL */
    float alpha;
    int N;
    bf16 *unit; /* AF_GLU */
    i64 ld_unit;
};
/* Words of alpha acc + bias in row lane / 4 + 8 h of 32 columns, in place j of the accumulators. */
DEV void words_of(u32 (&w)[4], const output &o, const float (&acc)[BN / 2], const tile &t, int j,
                  int h)
{
    const int box = column_of(t, j / 2, o.N) + j % 2 * 32;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int n = box + i * 8 + threadIdx.x % 4 * 2;
        const float *v = &acc[16 * j + 4 * i + 2 * h];
        float2 add = {0.0f, 0.0f};
        if (o.bias && n < o.N)
            add = *(const float2 *)(o.bias + (i64)t.e * o.N + n);
        w[i] = pack_bf16(fmaf(v[0], o.alpha, add.x), fmaf(v[1], o.alpha, add.y));
    }
}
DEV void store_words(bf16 *to, const u32 (&w)[4], bool there)
{
    const uint4 v = gather_words(w[0], w[1], w[2], w[3]);
    if (there)
        *(uint4 *)to = v;
}
/* The warpgroup's 64 rows from `row`, 16 bytes of a row a lane. */
DEV void store_tile(const output &o, const float (&acc)[BN / 2], const tile &t, int row)
{
    const int lane = threadIdx.x % 32, first = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < COLUMNS / 32; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const i64 r = first + 8 * h;
            const int n = t.col + j * 32 + lane % 4 * 8;
            const bool there = r < t.end && n < (AF_GLU ? o.N / 2 : o.N);
            u32 w[4];
            words_of(w, o, acc, t, j, h);
            store_words(o.c + r * o.ld + n, w, there);
#if AF_GLU
            u32 up[4];
            words_of(up, o, acc, t, j + COLUMNS / 32, h);
            store_words(o.c + r * o.ld + o.N / 2 + n, up, there);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float g[2], u[2], slope;
                unpack2((bf16 *)0, w[i], g);
                unpack2((bf16 *)0, up[i], u);
                w[i] = pack_bf16(u[0] * act(g[0], &slope), u[1] * act(g[1], &slope));
            }
            store_words(o.unit + r * o.ld_unit + n, w, there);
#endif
        }
}
/* acc (+)= the 64 rows of stage `no` that belong to this warpgroup, times its matrix. */
DEV void multiply_stage(float (&acc)[BN / 2], u32 stage, bool add)
{
    const u32 a = stage + group_of() * BOX, b = stage + A_BYTES;
    pin(acc);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < BK / 16; k++)
        wgmma_ss<0, AF_NN>(acc, desc_k<BM>(a, k), AF_NN ? desc_mn<64>(b, k) : desc_k<BN>(b, k),
                           add || k > 0);
    wgmma_commit();
}
#endif

/* c[s] = alpha * (x(s) b[e] + x2[s] b2[e]) + bias[e]; x(s) = x[list[s] / div] with AF_GATHER, else
 * row s of `rows`. K2 is 0 without a second product. K, K2, N and all row strides are multiples of
 * 8, halves of N too with AF_GLU. Maps of matrices have those of all experts under each other. */
extern "C" __global__ void __launch_bounds__(384, 1)
    moe_gemm(bf16 *c, long long ldc, const float *bias, float alpha, const bf16 *x, long long ldx,
             const int *list, int div, const __grid_constant__ af_map rows,
             const __grid_constant__ af_map b, int K, const __grid_constant__ af_map rows2,
             const __grid_constant__ af_map b2, int K2, const int *start, int X, int N, bf16 *unit,
             long long ld_unit)
{
#if SM90
    const shared_layout s = shared_begin(start, X);
    const operand o[2] = {{&rows, &b, K}, {&rows2, &b2, K2}};
    const output to = {c, ldc, bias, alpha, N, unit, ld_unit};
    walk w = {s.start, X, (N / (AF_GLU + 1) + COLUMNS - 1) / COLUMNS, (int)blockIdx.x, 0, 0};
    if (group_of() == 2) {
        registers_down<56>();
        gathered by_list = {x, ldx, list, div, {}};
        fetch_tiles(s, w, o, by_list, N);
        return;
    }
    registers_up<224>();
    u32 no = 0;
    tile t;
    while (w.next(t)) {
        const int row = t.row + group_of() * 64, last = steps(K) + steps(K2) - 1;
        const bool any = row < t.end;
        float acc[BN / 2];
        for (int step = 0; step <= last; step++, no++) {
            wait_full(s, no);
            if (any) {
                multiply_stage(acc, stage_of(s, no), step > 0);
                wgmma_wait<1>();
                pin(acc);
            }
            if (step > 0)
                release(s, no - 1);
        }
        wgmma_wait<0>();
        pin(acc);
        release(s, no - 1);
        if (any)
            store_tile(to, acc, t, row);
    }
#endif
}
