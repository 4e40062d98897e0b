/* fp8_sm90.cu - products of e4m3 rows on Hopper: c = sx sw (x w') + x2 w2' + bias.
 * Contract: fp8_linear.h; same operands as fp8_gemm.cu.
 *
 * Two blocks, a cluster, stay on their multiprocessors and take one pair of tiles of 128 x 192
 * after another, 256 rows and the same columns: each fetches half of the boxes of w for both,
 * because what bounds a block alone is the L2 cache. Two warpgroups compute 64 rows each, the third
 * fetches stages of 128 codes of the inner dimension ahead of them, in boxes of 64 rows and 128
 * bytes: maps count two codes as one bf16, and descriptors are those of bf16, because a step of
 * wgmma is 32 bytes of either. The accumulators of FP8 units are short: 512
 * codes are summed alone and added to f32 sums. The bf16 product follows in the same stages, on the
 * scaled sums. c leaves by way of shared memory and the copy engine: stored from registers, four
 * bytes a thread, it took a fifth of the time where the inner dimension is short. Where the next op
 * writes codes of what it makes of c, the largest magnitudes of each row are found while c is
 * stored. On other architectures the kernel is empty. */
// variants: AF_T=bf16
// common: AF_T=bf16
#define BN     192
#define SUMS   (BN / 2) /* of a thread */
#define ROW    128      /* bytes of a row in a stage */
#define BOXES  1        /* of c: what a warpgroup stores at a time */
#define A_PART (2 * BOX)
#define STAGES 5
#define STAGE  (A_PART + BN / 64 * BOX)
#define STORED (2 * BOXES * BOX)
#define ALONE  4 /* stages that are summed alone */
#define BAND   8 /* pairs of tiles along the rows that share columns */
#include "fp8_codes.cuh"
#include "pairs.cuh"

#if SM90
#define D96                                                                                        \
    D64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                        \
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define SUMS_OF(d) F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48), F16(d, 64), F16(d, 80)
/* d[64][BN] (+)= a b', 32 codes or 16 bf16 of each row. */
template <bool CODES> DEV void wgmma_step(float (&d)[SUMS], u64 a, u64 b, int add)
{
    if (CODES)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 {" D96 "}, "
                     "%96, %97, p, 1, 1;\n}"
                     : SUMS_OF(d)
                     : "l"(a), "l"(b), "r"(add));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" D96 "}, "
                     "%96, %97, p, 1, 1, 0, 0;\n}"
                     : SUMS_OF(d)
                     : "l"(a), "l"(b), "r"(add));
}

/* Column `at` of a map counts in bf16. The blocks take boxes of w in turn. */
DEV void fetch_stage(const stages &s, u32 no, const af_map *x, const af_map *w, int at, int row,
                     int col)
{
    s.wait_free(no);
    bar_expect(s.full_bar(no), STAGE);
    for (int i = 0; i < BM / 64; i++)
        fetch_box(s.stage(no) + i * BOX, x, at, row + i * 64, s.full_bar(no));
    for (int i = 0; i < BN / 64; i++)
        if ((i + no) % AF_KS == blockIdx.x % AF_KS)
            fetch_box_for_all(s.stage(no) + A_PART + i * BOX, w, at, col + i * 64, s.full_bar(no),
                              (1 << AF_KS) - 1);
}
/* The first `steps` steps of a stage, begun; `add` to what d is. */
template <bool CODES> DEV void begin_stage(float (&d)[SUMS], u32 stage, bool add, int steps)
{
    const u32 a = stage + group_of() * BOX, b = stage + A_PART;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < ROW / 32; k++)
        if (k < steps)
            wgmma_step<CODES>(d, desc_k<BM>(a, k), desc_k<BN>(b, k), add || k > 0);
    wgmma_commit();
}
/* sum += the products of N stages from `no` on. */
template <int N>
DEV void add_stages(float (&sum)[SUMS], float (&part)[SUMS], const stages &s, u32 no)
{
    pin(part);
#pragma unroll
    for (int i = 0; i < N; i++) {
        s.wait_full(no + i);
        begin_stage<true>(part, s.stage(no + i), i > 0, ROW / 32);
        if (i > 0) {
            wgmma_wait<1>();
            s.release(no + i - 1);
        }
    }
    wgmma_wait<0>();
    pin(part);
    s.release(no + N - 1);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] += part[i];
}
/* Where sum i of a thread is in its warpgroup's 64 rows. */
DEV int row_in(int i) { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8; }
DEV int col_in(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

DEV void scale_sums(float (&d)[SUMS], const float *sx, const float *sw, int row, int col, int M,
                    int N)
{
    const int r = row + row_in(0);
    const float s[2] = {r < M ? sx[r] : 0.0f, r + 8 < M ? sx[r + 8] : 0.0f};
#pragma unroll
    for (int i = 0; i < SUMS; i += 4) { /* N is even */
        const int n = col + col_in(i);
        const float2 by = n < N ? *(const float2 *)(sw + n) : float2{0.0f, 0.0f};
        d[i] *= s[0] * by.x;
        d[i + 1] *= s[0] * by.y;
        d[i + 2] *= s[1] * by.x;
        d[i + 3] *= s[1] * by.y;
    }
}
/* The warpgroup's rows of c, by way of shared memory: 64 columns are a box for the copy engine.
 * most: the larger magnitudes of pairs in the thread's two rows. */
template <bool MOST>
DEV void store_sums(const af_map *c, const float (&d)[SUMS], const bf16 *bias, int row, int col,
                    int N, u32 boxes, u32 (&most)[2])
{
    const int lane = threadIdx.x % 32, r = threadIdx.x % 128 / 32 * 16 + lane % 16;
    const bool first = threadIdx.x % 128 == 0;
#pragma unroll
    for (int b = 0; b < BN / 64; b++) {
        const u32 box = boxes + b % BOXES * BOX;
        if (b % BOXES == 0) {
            if (first)
                stores_read<0>();
            group_meet(group_of());
        }
#pragma unroll
        for (int j = b * 8; j < b * 8 + 8; j += 2) {
            u32 v[4];
#pragma unroll
            for (int k = 0; k < 2; k++) { /* N is even */
                const int n = col + col_in((j + k) * 4);
                const u32 add = bias && n < N ? *(const u32 *)(bias + n) : 0;
                const float b0 = __uint_as_float(add << 16),
                            b1 = __uint_as_float(add & 0xffff0000u);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float *at = &d[(j + k) * 4 + h * 2];
                    v[k * 2 + h] = pack_bf16(at[0] + b0, at[1] + b1);
                    if (MOST)
                        most[h] = larger_pair(most[h], v[k * 2 + h]);
                }
            }
            stmatrix4(box + piece_at<64>(r, j % 8 + lane / 16), v[0], v[1], v[2], v[3]);
        }
        if (b % BOXES == BOXES - 1) {
            fence_async();
            group_meet(group_of());
            if (first) {
                for (int k = b + 1 - BOXES; k <= b; k++)
                    if (col + k * 64 < N)
                        store_box(c, col + k * 64, row, boxes + k % BOXES * BOX);
                stores_commit();
            }
        }
    }
}
/* Of columns before `split` to the first M numbers, of others to the next M; a tile with both
 * counts for both. */
DEV void store_most(u32 *to, const u32 (&most)[2], int row, int col, int M, int split)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + row_in(2 * h);
        u32 m = larger_of_pair(most[h]);
        m = max(m, __shfl_xor_sync(FULL, m, 1));
        m = max(m, __shfl_xor_sync(FULL, m, 2));
        if (threadIdx.x % 4 || r >= M)
            continue;
        if (col < split)
            atomicMax(to + r, m);
        if (col + BN > split)
            atomicMax(to + M + r, m);
    }
}
#endif

/* K is a multiple of 16; K2 counts bf16, 0 = no second product. sw starts on 8 bytes, bias on 4.
 * The grid is a multiple of AF_KS. most [2][M], or [M] where split is INT_MAX: zeros before, see
 * store_most; or NULL. */
extern "C" __global__ void CLUSTER __launch_bounds__(384, 1)
    fp8_sm90(const __grid_constant__ af_map c, const __grid_constant__ af_map x, const float *sx,
             const __grid_constant__ af_map w, const float *sw, const __grid_constant__ af_map x2,
             const __grid_constant__ af_map w2, const bf16 *bias, int M, int N, int K, int K2,
             u32 *most, int split)
{
#if SM90
    const stages s = stages_begin();
    tiles t = tiles_of(M, N, BN);
    u32 no = 0;
    int row, col;
    if (group_of() == 2) {
        registers_down<24>();
        if (threadIdx.x % 128 == 0)
            while (t.next(row, col)) {
                for (int k = 0; k < K; k += ROW, no++)
                    fetch_stage(s, no, &x, &w, k / 2, row, col);
                for (int k = 0; k < K2; k += ROW / 2, no++)
                    fetch_stage(s, no, &x2, &w2, k, row, col);
            }
    } else {
        registers_up<240>();
        while (t.next(row, col)) {
            float sum[SUMS] = {}, part[SUMS];
            row += group_of() * 64;
            int k = 0;
            for (; k <= K - ALONE * ROW; k += ALONE * ROW, no += ALONE)
                add_stages<ALONE>(sum, part, s, no);
            for (; k < K; k += ROW, no++)
                add_stages<1>(sum, part, s, no);
            scale_sums(sum, sx, sw, row, col, M, N);
            for (k = 0; k < K2; k += ROW / 2, no++) {
                s.wait_full(no);
                pin(sum);
                begin_stage<false>(sum, s.stage(no), true, (K2 - k + 15) / 16);
                wgmma_wait<0>();
                pin(sum);
                s.release(no);
            }
            u32 largest[2] = {};
            const u32 boxes = s.stored() + group_of() * BOXES * BOX;
            if (most) {
                store_sums<true>(&c, sum, bias, row, col, N, boxes, largest);
                store_most(most, largest, row, col, M, split);
            } else {
                store_sums<false>(&c, sum, bias, row, col, N, boxes, largest);
            }
        }
        if (threadIdx.x % 128 == 0)
            stores_done();
    }
    __syncwarp();
    cluster_meet(); /* the other block may still write here */
#endif
}
