/* bnb_linear.cu - skinny GEMM (at most 16 tokens) straight from 4-bit weights of bitsandbytes.
 * Contract: af_linear (linear.c), bf16, pieces stacked along the output in one launch.
 *
 * Built with AF_BOOK (nf4_bits, fp4_bits) and AF_TOK (tokens at most: 8 or 16). Rows are whole
 * 64-value segments, blocks hold at least 64 values; activations' rows start on 16 bytes. Codes are
 * read once.
 *
 * Issuing instructions is what bounds it, so decoding is one permute and one load of shared memory
 * for two values: a byte of codes is looked up as two bf16, a copy of the table for each lane so
 * that no bank is hit twice. Tensor cores multiply the values of the book; a segment's sum is
 * scaled afterwards. The book is stored times BOOK_BY, which puts its values close to what bf16 can
 * hold: their error is 2.6 times smaller than that of weights that are scaled and rounded to bf16
 * (fp4 has none). */
// variants: AF_BOOK=nf4_bits,fp4_bits AF_TOK=8,16
// common: AF_BOOK=nf4_bits AF_TOK=8
#include "bnb_linear.cuh"

#ifndef AF_TOK
#define AF_TOK 8
#endif
#define TEAMS       (AF_TOK > 8 ? 2 : 3) /* of a block, which is alone on its SM */
#define WARPS       8                    /* of a team */
#define ROWS        16 /* of an item: one tile of the tensor cores */
#define SEGMENT     64
#define AHEAD       4 /* segments fetched at a time */
#define GROUPS      (AF_TOK / 8)
#define PAIR_PITCH  256 /* bytes from one byte of codes to the next: 32 lanes, and as much unused */
#define MAP_AT      (256 * PAIR_PITCH)
#define PART_AT     (MAP_AT + 1024)
#define PART        (ROWS * (AF_TOK + 1)) /* floats of a warp's sums */

#define nf4_bits_by   1.437005f
#define fp4_bits_by   3.0f
#define JOINED(a, b)  a##b
#define BY_OF(book)   JOINED(book, _by)
#define BOOK_BY       BY_OF(AF_BOOK)

/* The values of every byte of codes, 16 bytes (four lanes' copies) a store. */
DEV void fill_pairs(u8 *pairs)
{
    for (int i = threadIdx.x; i < 256 * 8; i += TEAMS * WARPS * 32) {
        const u32 code = i / 8;
        const u32 v = pack_bf16(__uint_as_float(AF_BOOK[code / 16]) * BOOK_BY,
                                __uint_as_float(AF_BOOK[code % 16]) * BOOK_BY);
        *(uint4 *)(pairs + code * PAIR_PITCH + i % 8 * 16) = make_uint4(v, v, v, v);
    }
}
/* Byte i of a word of codes as two values. */
template <int i> DEV u32 pair_of(const u8 *pairs, u32 code, u32 lane4)
{
    return *(const u32 *)(pairs + __byte_perm(code, lane4, 0x5504 | i << 4));
}

/* What a thread fetches of AHEAD segments of its two rows: 16 codes of each, and the scale of one
 * segment, which its quad shares. */
struct bnb_fetched {
    uint2 code[AHEAD][2];
    bnb_raw scale[2];
};

/* y[m][o] = sum_i x[m][i] w[o][i] + sum_r low[m][r] bt[r][o] + bias[o].
 *
 * Teams of eight warps take items of 16 rows of the stack in turn. The warps divide an item's
 * segments evenly and add up in order. Weights are the rows of the tensor core's tile, tokens its columns; within a
 * segment i is permuted alike on both sides, so that a thread's 8 bytes of codes and its 32 bytes
 * of x are whole fragments. bt: [R up to 16, zeros after R][O], or R = 0. Dynamic shared memory:
 * PART_AT + TEAMS * 2 * WARPS * PART floats. */
extern "C" __global__ void __launch_bounds__(TEAMS * WARPS * 32, 1)
    bnb_linear(bf16 *y, long long ldy, const bf16 *x, long long ldx, bnb_pieces w, float off0,
               float off1, float off2, const bf16 *bias, const bf16 *low, long long ldl,
               const bf16 *bt, int M, int O, int I, int R, int shift, int nested_shift)
{
    extern __shared__ __align__(16) u8 smem[];
    float *map = (float *)(smem + MAP_AT);
    const int team = threadIdx.x / (WARPS * 32), at = threadIdx.x % (WARPS * 32);
    const int warp = at / 32, lane = at % 32, group = lane / 4, p = lane % 4;
    const int items = (O + ROWS - 1) / ROWS, segments = I / SEGMENT;
    const int first = segments * warp / WARPS, end = segments * (warp + 1) / WARPS;
    const u32 lane4 = lane * 4;
    const int start = blockIdx.x + team * gridDim.x, stride = gridDim.x * TEAMS;
    bnb_row row[2];
    bnb_fetched next, now;
    float acc[GROUPS][4];
    auto enter = [&](int item) {
#pragma unroll
        for (int t = 0; t < 2; t++)
            row[t] = find_row(w, {{off0, off1, off2}}, min(item * ROWS + t * 8 + group, O - 1), I);
    };
    auto fetch = [&](int s0) {
#pragma unroll
        for (int t = 0; t < 2; t++) {
#pragma unroll
            for (int s = 0; s < AHEAD; s++)
                if (s0 + s < end)
                    next.code[s][t] = *(const uint2 *)(row[t].codes + (s0 + s) * 32 + p * 8);
            if (s0 + p < end)
                next.scale[t] = ask_scale(row[t], (s0 + p) * SEGMENT, shift, nested_shift);
        }
    };
    enter(min(start, items - 1));
    if (first < end)
        fetch(first);
    bnb_map(map);
    fill_pairs(smem);
    __syncthreads();
    previous_done(); /* weights do not wait for it */
    int turn = 0;
    for (int item = start; item < items; item += stride, turn ^= 1) {
#pragma unroll
        for (int h = 0; h < GROUPS; h++)
#pragma unroll
            for (int q = 0; q < 4; q++)
                acc[h][q] = 0.0f;
        for (int s0 = first; s0 < end; s0 += AHEAD) {
            float by[2];
            now = next;
#pragma unroll
            for (int t = 0; t < 2; t++)
                by[t] = s0 + p < end ? use_scale(row[t], now.scale[t], map, nested_shift) *
                                           (1.0f / BOOK_BY)
                                     : 0.0f;
            if (s0 + AHEAD < end) {
                fetch(s0 + AHEAD);
            } else if (item + stride < items) {
                enter(item + stride);
                fetch(first);
            }
#pragma unroll
            for (int s = 0; s < AHEAD; s++) {
                if (s0 + s >= end)
                    break;
                uint4 v[GROUPS][2];
                float sum[GROUPS][4] = {};
#pragma unroll
                for (int h = 0; h < GROUPS; h++) {
                    const int m = h * 8 + group;
                    const uint4 *from =
                        (const uint4 *)(x + m * ldx + (s0 + s) * SEGMENT + p * 16);
                    const uint4 none = make_uint4(0, 0, 0, 0);
                    v[h][0] = m < M ? from[0] : none;
                    v[h][1] = m < M ? from[1] : none;
                }
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const u32 a = j < 2 ? now.code[s][0].x : now.code[s][0].y,
                              b = j < 2 ? now.code[s][1].x : now.code[s][1].y;
                    const u32 t[4] = {
                        j % 2 ? pair_of<2>(smem, a, lane4) : pair_of<0>(smem, a, lane4),
                        j % 2 ? pair_of<2>(smem, b, lane4) : pair_of<0>(smem, b, lane4),
                        j % 2 ? pair_of<3>(smem, a, lane4) : pair_of<1>(smem, a, lane4),
                        j % 2 ? pair_of<3>(smem, b, lane4) : pair_of<1>(smem, b, lane4)};
#pragma unroll
                    for (int h = 0; h < GROUPS; h++)
                        mma(sum[h], t, j % 2 ? v[h][j / 2].z : v[h][j / 2].x,
                            j % 2 ? v[h][j / 2].w : v[h][j / 2].y);
                }
#pragma unroll
                for (int t = 0; t < 2; t++) {
                    const float k = __shfl_sync(FULL, by[t], group * 4 + s);
#pragma unroll
                    for (int h = 0; h < GROUPS; h++) {
                        acc[h][2 * t] += k * sum[h][2 * t];
                        acc[h][2 * t + 1] += k * sum[h][2 * t + 1];
                    }
                }
            }
        }
        const int o0 = item * ROWS;
        for (int r = 0; r < R && warp == WARPS - 1; r += 16) {
            u32 a[4];
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const u16 *q =
                    (const u16 *)bt + (i64)(r + p * 2) * O + min(o0 + t * 8 + group, O - 1);
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
        float *parts = (float *)(smem + PART_AT) + (team * 2 + turn) * WARPS * PART;
#pragma unroll
        for (int h = 0; h < GROUPS; h++)
#pragma unroll
            for (int q = 0; q < 4; q++)
                parts[warp * PART + (group + q / 2 * 8) * (AF_TOK + 1) + h * 8 + p * 2 + q % 2] =
                    acc[h][q];
        meet(1 + team, WARPS * 32); /* the other turn's sums have been read by now */
        for (int i = at; i < ROWS * M; i += WARPS * 32) {
            const int m = i / ROWS, r = i % ROWS;
            float v = 0.0f;
#pragma unroll
            for (int k = 0; k < WARPS; k++)
                v += parts[k * PART + r * (AF_TOK + 1) + m];
            if (o0 + r < O)
                store(y + m * ldy + o0 + r, v + (bias ? load(bias + o0 + r) : 0.0f));
        }
    }
}
