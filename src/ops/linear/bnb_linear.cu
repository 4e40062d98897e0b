/* bnb_linear.cu - skinny GEMM (at most 16 tokens) straight from 4-bit weights of bitsandbytes.
 * Contract: af_linear (linear.c), bf16, pieces stacked along the output in one launch.
 *
 * Built with AF_BOOK (nf4_bits, fp4_bits), AF_TOK (tokens at most: 8 or 16) and AF_KS (blocks of a
 * cluster that share rows). Weights are decoded in registers to the values dequant.cu writes, so a
 * GEMM differs from dequantise + GEMM in the order of its sums only. Rows are whole 64-value
 * segments, blocks hold at least 64 values; activations' rows start on 16 bytes. Codes are read
 * once.
 *
 * Decoding is what bounds it: integer units are half as wide as the others. A byte of codes is
 * looked up as two floats in shared memory, a copy of the table for each pair of lanes so that no
 * bank is hit twice, scaled and rounded: two integer operations for two values. */
// variants: AF_BOOK=nf4_bits,fp4_bits AF_TOK=8,16 AF_KS=1,2,4,8
// common: AF_BOOK=nf4_bits AF_TOK=8 AF_KS=1,2,4,8
#include "bnb_linear.cuh"
#include "cluster.cuh"

#ifndef AF_TOK
#define AF_TOK 8
#endif
#define WARPS       8
#define ROWS        128 /* per block, 16 per warp */
#define STEP        128 /* values of a row at a time, 32 per thread */
#define STAGES      3
#define GROUPS      (AF_TOK / 8)
#define X_PITCH     320 /* bytes of a token's 128 values: fragment loads hit every bank once */
#define CODE_BYTES  (ROWS * STEP / 2)
#define STAGE_BYTES (CODE_BYTES + AF_TOK * X_PITCH)
#define PAIRS_AT    (STAGES * STAGE_BYTES)
#define PAIR_BYTES  128 /* of one byte of codes: two floats for each of 16 lanes */
#define MAP_AT      (PAIRS_AT + 256 * PAIR_BYTES)

/* Where 16-byte access j of a token's 128 values lies: thread p of a quad reads 4p .. 4p + 3, one
 * after another, and its quad reads neighbours. */
DEV int x_place(int j) { return (j % 4 * 4 + j / 4) * 16; }

/* The values of every byte of codes, one thread per byte; its copies begin at different banks. */
DEV void fill_pairs(u8 *pairs)
{
    const float2 v = {__uint_as_float(AF_BOOK[threadIdx.x / 16]),
                      __uint_as_float(AF_BOOK[threadIdx.x % 16])};
#pragma unroll
    for (int i = 0; i < 16; i++)
        *(float2 *)(pairs + threadIdx.x * PAIR_BYTES + (i + threadIdx.x) % 16 * 8) = v;
}
/* Eight codes as four pairs of bf16. `mine`: the lane's copy of the table. */
DEV void decode(u32 (&out)[4], u32 code, const u8 *mine, float scale)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 at = (i == 0 ? code << 7 : code >> (8 * i - 7)) & 0x7f80;
        const float2 v = *(const float2 *)(mine + at);
        out[i] = pack_bf16(mul_flush(v.x, scale), mul_flush(v.y, scale));
    }
}

DEV u32 word(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

/* y[m][o] = sum_i x[m][i] w[o][i] + sum_r low[m][r] bt[r][o] + bias[o].
 *
 * A block makes 128 rows of the stack, 16 per warp; 128 values at a time pass through three stages
 * of shared memory, the blocks of a cluster take every AF_KS-th one and add up in order. Weights
 * are the rows of the tensor core's tile, tokens its columns; within 32 values i is permuted alike
 * on both sides, so that a thread's 16 bytes of codes and of x are whole fragments. bt: [R up
 * to 16, zeros after R][O], or R = 0. Dynamic shared memory: MAP_AT + 1024 bytes. */
extern "C" __global__ void CLUSTER __launch_bounds__(256, 3)
    bnb_linear(bf16 *y, long long ldy, const bf16 *x, long long ldx, bnb_pieces w, float off0,
               float off1, float off2, const bf16 *bias, const bf16 *low, long long ldl,
               const bf16 *bt, int M, int O, int I, int R, int shift, int nested_shift)
{
    extern __shared__ __align__(16) u8 smem[];
    float *map = (float *)(smem + MAP_AT);
    const u8 *pairs = smem + PAIRS_AT + threadIdx.x % 16 * 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, p = lane % 4;
    const int rank = blockIdx.x % AF_KS, o0 = blockIdx.x / AF_KS * ROWS + warp * 16;
    const int steps = (I + STEP - 1) / STEP;
    bnb_row row[2];
    bnb_raw fetched[2];
    float acc[GROUPS][4] = {};
#pragma unroll
    for (int t = 0; t < 2; t++)
        row[t] = find_row(w, {{off0, off1, off2}}, min(o0 + t * 8 + group, O - 1), I);
    auto fetch = [&](int step, int stage) {
        const u32 to = smem_at(smem + stage * STAGE_BYTES);
        const int k = step * STEP + p * 32;
#pragma unroll
        for (int t = 0; t < 2; t++) /* codes of this thread, read by no other */
            copy16(to + (warp * 16 + t * 8 + group) * (STEP / 2) + p * 16,
                   row[t].codes + (k < I ? k / 2 : 0), k < I ? 16 : 0);
#pragma unroll
        for (int i = 0; i < (AF_TOK * 16 + 255) / 256; i++) {
            const int at = i * 256 + threadIdx.x, m = at / 16, c = step * STEP + at % 16 * 8;
            const bool in = m < M && c < I;
            if (at < AF_TOK * 16)
                copy16(to + CODE_BYTES + m * X_PITCH + x_place(at % 16), in ? x + m * ldx + c : x,
                       in ? 16 : 0);
        }
    };
    auto ask = [&](int step) {
        const int k = step * STEP + p * 32;
#pragma unroll
        for (int t = 0; t < 2; t++)
            fetched[t] = ask_scale(row[t], k < I ? k : 0, shift, nested_shift);
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (rank + s * AF_KS < steps)
            fetch(rank + s * AF_KS, s);
        copy_commit();
    }
    if (rank < steps)
        ask(rank);
    bnb_map(map);
    fill_pairs(smem + PAIRS_AT);
    int stage = 0;
    for (int step = rank; step < steps; step += AF_KS) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (step + (STAGES - 1) * AF_KS < steps)
            fetch(step + (STAGES - 1) * AF_KS, (stage + STAGES - 1) % STAGES);
        copy_commit();
        const u8 *in = smem + stage * STAGE_BYTES, *xs = in + CODE_BYTES + group * X_PITCH + p * 16;
        uint4 code[2];
        float by[2];
#pragma unroll
        for (int t = 0; t < 2; t++) {
            code[t] = *(const uint4 *)(in + (warp * 16 + t * 8 + group) * (STEP / 2) + p * 16);
            by[t] = use_scale(row[t], fetched[t], map, nested_shift);
        }
        if (step + AF_KS < steps)
            ask(step + AF_KS);
#pragma unroll
        for (int u = 0; u < 4; u++) {
            u32 a[4], b[4];
            decode(a, word(code[0], u), pairs, by[0]);
            decode(b, word(code[1], u), pairs, by[1]);
            const u32 first[4] = {a[0], b[0], a[1], b[1]}, second[4] = {a[2], b[2], a[3], b[3]};
#pragma unroll
            for (int h = 0; h < GROUPS; h++) {
                const uint4 v = *(const uint4 *)(xs + h * 8 * X_PITCH + u * 64);
                mma(acc[h], first, v.x, v.y);
                mma(acc[h], second, v.z, v.w);
            }
        }
        stage = (stage + 1) % STAGES;
    }
    for (int r = 0; r < R && rank == 0; r += 16) {
        u32 a[4];
#pragma unroll
        for (int t = 0; t < 2; t++) {
            const u16 *q = (const u16 *)bt + (i64)(r + p * 2) * O + min(o0 + t * 8 + group, O - 1);
            a[t] = q[0] | (u32)q[O] << 16;
            a[t + 2] = q[8ll * O] | (u32)q[9ll * O] << 16;
        }
#pragma unroll
        for (int h = 0; h < GROUPS; h++) {
            const int m = h * 8 + group, in = m < M ? R : 0;
            mma(acc[h], a, pair_at(low + m * ldl, r + p * 2, in),
                pair_at(low + m * ldl, r + p * 2 + 8, in));
        }
    }
    copy_wait<0>();
    __syncthreads();
    float(*part)[AF_TOK + 1] = (float(*)[AF_TOK + 1]) smem;
#pragma unroll
    for (int h = 0; h < GROUPS; h++)
#pragma unroll
        for (int q = 0; q < 4; q++)
            part[warp * 16 + group + q / 2 * 8][h * 8 + p * 2 + q % 2] = acc[h][q];
    cluster_meet();
    for (int i = rank * 256 + threadIdx.x; i < ROWS * M; i += AF_KS * 256) {
        const int m = i / ROWS, r = i % ROWS, o = blockIdx.x / AF_KS * ROWS + r;
        const float v = cluster_sum(&part[r][m]);
        if (o < O)
            store(y + m * ldy + o, v + (bias ? load(bias + o) : 0.0f));
    }
    cluster_meet(); /* no block exits while others read its shared memory */
}
