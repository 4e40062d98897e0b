/* fp8_sm90.cu - products of e4m3 rows on Hopper: c = sx sw (x w') + x2 w2' + bias.
 * Contract: fp8_linear.h; same operands as fp8_gemm.cu.
 *
 * A block stays on its multiprocessor and takes one tile of 128 x 128 after another. Two warpgroups
 * compute 64 rows each, the third fetches stages of 128 codes of the inner dimension ahead of them,
 * in boxes of 64 rows and 128 bytes: maps count two codes as one bf16, and descriptors are those of
 * bf16, because a step of wgmma is 32 bytes of either. The accumulators of FP8 units are short:
 * each stage is summed alone and added to f32 sums. The bf16 product follows in the same stages, on
 * the scaled sums. On other architectures the kernel is empty. */
// variants: AF_T=bf16
// common: AF_T=bf16
#include "tma.cuh"
#include "wgmma.cuh"

#define BM     128
#define BN     128
#define ROW    128 /* bytes of a row in a stage */
#define STAGES 4
#define BOX    8192
#define A_PART (BM / 64 * BOX)
#define STAGE  (A_PART + BN / 64 * BOX)

extern __shared__ u8 raw[];

#if SM90
/* d[64][128] (+)= a b', 32 codes of each row. */
DEV void wgmma_e4m3(float (&d)[64], u64 a, u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" D64 "}, "
                 "%64, %65, p, 1, 1;\n}"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
                 : "l"(a), "l"(b), "r"(add));
}

struct stages {
    u32 at, full, free;
    __device__ __forceinline__ u32 stage(u32 no) const { return at + no % STAGES * STAGE; }
    __device__ __forceinline__ u32 full_bar(u32 no) const { return full + no % STAGES * 8; }
    __device__ __forceinline__ u32 free_bar(u32 no) const { return free + no % STAGES * 8; }
    __device__ __forceinline__ void wait_full(u32 no) const
    {
        bar_wait(full_bar(no), no / STAGES & 1);
    }
    __device__ __forceinline__ void wait_free(u32 no) const
    {
        bar_wait(free_bar(no), no / STAGES & 1 ^ 1);
    }
    __device__ __forceinline__ void release(u32 no) const
    {
        if (threadIdx.x % 32 == 0)
            bar_arrive(free_bar(no));
    }
};
DEV stages stages_begin()
{
    const u32 base = (smem_at(raw) + 1023) & ~1023u, bars = base + STAGES * STAGE;
    const stages s = {base, bars, bars + STAGES * 8};
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++) {
            bar_init(s.full + i * 8, 1);
            bar_init(s.free + i * 8, 8);
        }
    bars_ready();
    __syncthreads();
    return s;
}
/* Rows of a tile come first: neighbouring blocks read the same weights. */
struct tiles {
    int rows, count, no;
    __device__ __forceinline__ bool next(int &row, int &col)
    {
        if (no >= count)
            return false;
        row = no % rows * BM;
        col = no / rows * BN;
        no += gridDim.x;
        return true;
    }
};
/* Column `at` of a map counts in bf16. */
DEV void fetch_stage(const stages &s, u32 no, const af_map *x, const af_map *w, int at, int row,
                     int col)
{
    s.wait_free(no);
    bar_expect(s.full_bar(no), STAGE);
    for (int i = 0; i < BM / 64; i++)
        fetch_box(s.stage(no) + i * BOX, x, at, row + i * 64, s.full_bar(no));
    for (int i = 0; i < BN / 64; i++)
        fetch_box(s.stage(no) + A_PART + i * BOX, w, at, col + i * 64, s.full_bar(no));
}
template <bool CODES> DEV void multiply_stage(float (&d)[64], u32 stage, bool add)
{
    const u32 a = stage + group_of() * BOX, b = stage + A_PART;
    pin(d);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < ROW / 32; k++)
        if (CODES)
            wgmma_e4m3(d, desc_k<BM>(a, k), desc_k<BN>(b, k), add || k > 0);
        else
            wgmma_ss(d, desc_k<BM>(a, k), desc_k<BN>(b, k), add || k > 0);
    wgmma_commit();
    wgmma_wait<0>();
    pin(d);
}
/* Where sum i of a thread is in its warpgroup's 64 x 128. */
DEV int row_in(int i) { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8; }
DEV int col_in(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

DEV void scale_sums(float (&d)[64], const float *sx, const float *sw, int row, int col, int M,
                    int N)
{
    const int r = row + row_in(0);
    const float s[2] = {r < M ? sx[r] : 0.0f, r + 8 < M ? sx[r + 8] : 0.0f};
#pragma unroll
    for (int i = 0; i < 64; i++) {
        const int n = col + col_in(i);
        d[i] *= s[i / 2 % 2] * (n < N ? sw[n] : 0.0f);
    }
}
DEV void store_sums(bf16 *c, i64 ldc, const float (&d)[64], const bf16 *bias, int row, int col,
                    int M, int N)
{
#pragma unroll
    for (int i = 0; i < 64; i += 2) {
        const int r = row + row_in(i), n = col + col_in(i);
        if (r >= M || n >= N) /* N is even */
            continue;
        const float b0 = bias ? load(bias + n) : 0.0f, b1 = bias ? load(bias + n + 1) : 0.0f;
        *(u32 *)(c + r * ldc + n) = pack_bf16(d[i] + b0, d[i + 1] + b1);
    }
}
#endif

/* K is a multiple of 16; K2 counts bf16, 0 = no second product. Rows of c start on 4 bytes. */
extern "C" __global__ void __launch_bounds__(384, 1)
    fp8_sm90(bf16 *c, long long ldc, const __grid_constant__ af_map x, const float *sx,
             const __grid_constant__ af_map w, const float *sw, const __grid_constant__ af_map x2,
             const __grid_constant__ af_map w2, const bf16 *bias, int M, int N, int K, int K2)
{
#if SM90
    const stages s = stages_begin();
    const int rows = (M + BM - 1) / BM;
    tiles t = {rows, rows * ((N + BN - 1) / BN), (int)blockIdx.x};
    u32 no = 0;
    int row, col;
    if (group_of() == 2) {
        registers_down<56>();
        if (threadIdx.x % 128 == 0)
            while (t.next(row, col)) {
                for (int k = 0; k < K; k += ROW, no++)
                    fetch_stage(s, no, &x, &w, k / 2, row, col);
                for (int k = 0; k < K2; k += ROW / 2, no++)
                    fetch_stage(s, no, &x2, &w2, k, row, col);
            }
        return;
    }
    registers_up<224>();
    while (t.next(row, col)) {
        float sum[64] = {}, part[64];
        row += group_of() * 64;
        for (int k = 0; k < K; k += ROW, no++) {
            s.wait_full(no);
            multiply_stage<true>(part, s.stage(no), false);
            s.release(no);
#pragma unroll
            for (int i = 0; i < 64; i++)
                sum[i] += part[i];
        }
        scale_sums(sum, sx, sw, row, col, M, N);
        for (int k = 0; k < K2; k += ROW / 2, no++) {
            s.wait_full(no);
            multiply_stage<false>(sum, s.stage(no), true);
            s.release(no);
        }
        store_sums(c, ldc, sum, bias, row, col, M, N);
    }
#endif
}
