/* bnb_linear.cu - skinny GEMM (at most 16 tokens) straight from 4-bit weights of bitsandbytes.
 * Contract: af_linear (linear.c), bf16, pieces stacked along the output in one launch.
 *
 * Built with AF_BOOK (nf4_bits, fp4_bits), AF_TOK (tokens at most: 8 or 16) and, for GPUs with less
 * shared memory than Hopper's, AF_WARPS and AF_SLOTS (bnb_linear_cuda.c). Rows are whole
 * 64-value segments, blocks hold at least 64 values; activations' rows start on 16 bytes. Codes are
 * read once.
 *
 * Issuing instructions is what bounds it, so decoding is one permute and one load of shared memory
 * for two values (bnb_linear.cuh). Tensor cores multiply the values of the book; a segment's sum is
 * scaled afterwards. */
// variants: AF_BOOK=nf4_bits,fp4_bits AF_TOK=8,16
//   | AF_BOOK=nf4_bits,fp4_bits
//     (AF_TOK=8 AF_WARPS=16 AF_SLOTS=4 | AF_TOK=8,16 AF_WARPS=8 AF_SLOTS=2)
// common: AF_BOOK=nf4_bits AF_TOK=8
#include "bnb_linear.cuh"

#ifndef AF_TOK
#define AF_TOK 8
#endif
#ifndef AF_WARPS
#define AF_WARPS (AF_TOK > 8 ? 16 : 24)
#define AF_SLOTS 4
#endif
#define WARPS    AF_WARPS /* of a block, which is alone on its SM */
#define ROWS     16       /* of an item: one tile of the tensor cores */
#define SEGMENT  64
#define SLOTS    AF_SLOTS /* pairs of segments of a warp, fetched before they are used; even */
#define GROUPS   (AF_TOK / 8)
#define MAP_AT   PAIRS
#define PART_AT  (MAP_AT + 1024)
#define PART     (ROWS * (AF_TOK + 1)) /* floats of a warp's sums */
#define HALF     (ROWS * SEGMENT / 2)
#define SLOT     (2 * HALF)
#define SLOTS_AT (PART_AT + 2 * WARPS * PART * 4)

/* y[m][o] = sum_i x[m][i] w[o][i] + sum_r low[m][r] bt[r][o] + bias[o].
 *
 * Teams of `split` warps take items of 16 rows of the stack in turn; the warps of a team divide the
 * pairs of an item's segments evenly and add up in order. Weights are the rows of the tensor core's
 * tile, tokens its columns; within a segment i is permuted alike on both sides, so that a thread's
 * 8 bytes of codes and its 32 bytes of x are whole fragments. bt: [R up to 16, zeros after R][O],
 * or R = 0. split divides 8. Dynamic shared memory: SLOTS_AT + WARPS * SLOTS * SLOT bytes. */
extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
    bnb_linear(bf16 *y, long long ldy, const bf16 *x, long long ldx, bnb_pieces w, float off0,
               float off1, float off2, const bf16 *bias, const bf16 *low, long long ldl,
               const bf16 *bt, int M, int O, int I, int R, int shift, int nested_shift, int split)
{
    extern __shared__ __align__(16) u8 smem[];
    float *map = (float *)(smem + MAP_AT);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, p = lane % 4;
    const int team = warp / split, member = warp % split;
    const int items = (O + ROWS - 1) / ROWS, segments = I / SEGMENT;
    const int pairs = (segments + 1) / 2, first = pairs * member / split * 2;
    const int end = min(pairs * (member + 1) / split * 2, segments);
    const u32 lane4 = lane * 4;
    const int start = blockIdx.x + team * gridDim.x, stride = gridDim.x * (WARPS / split);
    u8 *const own = smem + SLOTS_AT + warp * (SLOTS * SLOT); /* slots of the warp */
    const u8 *mine = own + group * (SEGMENT / 2) + p * 8;    /* what the lane reads of one */
    const u32 to = smem_at(own) + lane * 16;                 /* what it fetches: half a row */
    const bf16 *x0 = x + group * ldx + first * SEGMENT + p * 16;
    const u8 *from;        /* codes of the row it fetches, from the warp's first segment on */
    bnb_row row[2];        /* of its fragments */
    bnb_raw scale[2] = {}; /* of segment s + p, for the next four s */
    auto fetch = [&](int slot, int s, const u8 *codes) {
        if (s < end)
            copy16_long(to + slot * SLOT, codes);
        if (s + 1 < end)
            copy16_long(to + slot * SLOT + HALF, codes + SEGMENT / 2);
        copy_commit();
    };
    auto fetch_scale = [&](int s) {
#pragma unroll
        for (int t = 0; t < 2; t++)
            if (s + p < end)
                scale[t] = ask_scale(row[t], (s + p) * SEGMENT, shift, nested_shift);
    };
    auto enter = [&](int item) {
        const bnb_offsets offsets = {{off0, off1, off2}};
        from = find_row(w, offsets, min(item * ROWS + lane / 2, O - 1), I).codes + lane % 2 * 16 +
               first * (SEGMENT / 2);
#pragma unroll
        for (int t = 0; t < 2; t++)
            row[t] = find_row(w, offsets, min(item * ROWS + t * 8 + group, O - 1), I);
#pragma unroll
        for (int i = 0; i < SLOTS - 1; i++)
            fetch(i, first + i * 2, from + i * SEGMENT);
        fetch_scale(first);
    };
    if (start < items)
        enter(start);
    bnb_map(map);
    fill_pairs(smem, WARPS * 32, AF_BOOK, BOOK_BY);
    __syncthreads();
    previous_done(); /* weights do not wait for it */
    int turn = 0;
    for (int item = start; item < items; item += stride, turn ^= 1) {
        float acc[GROUPS][4] = {}, by[2] = {};
        const bf16 *at = x0;
        uint4 v[2][GROUPS][2] = {}; /* of x; rows after M stay zero */
        for (int s0 = first; s0 < end; s0 += SLOTS * 2) {
#pragma unroll
            for (int i = 0; i < SLOTS; i++) {
                const int s = s0 + i * 2;
                if (s >= end)
                    break;
#pragma unroll
                for (int h = 0; h < GROUPS; h++)
                    if (h * 8 + group < M) {
                        const uint4 *from_x = (const uint4 *)(at + h * 8 * ldx + i * (2 * SEGMENT));
                        v[0][h][0] = from_x[0];
                        v[0][h][1] = from_x[1];
                        if (s + 1 < end) { /* else its scale is 0 */
                            v[1][h][0] = from_x[SEGMENT / 8];
                            v[1][h][1] = from_x[SEGMENT / 8 + 1];
                        }
                    }
                if (i % 2 == 0) {
#pragma unroll
                    for (int t = 0; t < 2; t++)
                        by[t] = s + p < end ? use_scale(row[t], scale[t], map, nested_shift) *
                                                  (1.0f / BOOK_BY)
                                            : 0.0f;
                    fetch_scale(s + 4);
                }
                copy_wait<SLOTS - 2>();
                __syncwarp(); /* pair s is there, the one before it has been read */
                fetch((i + SLOTS - 1) % SLOTS, s + (SLOTS - 1) * 2,
                      from + (i + SLOTS - 1) * SEGMENT);
                float sum[2][GROUPS][4] = {};
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    const uint2 c[2] = {*(const uint2 *)(mine + i * SLOT + k * HALF),
                                        *(const uint2 *)(mine + i * SLOT + k * HALF + HALF / 2)};
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const u32 a = j < 2 ? c[0].x : c[0].y, b = j < 2 ? c[1].x : c[1].y;
                        const u32 even = pair_byte(j % 2 * 2), odd = pair_byte(j % 2 * 2 + 1);
                        const u32 t[4] = {
                            pair_of(smem, a, lane4, even), pair_of(smem, b, lane4, even),
                            pair_of(smem, a, lane4, odd), pair_of(smem, b, lane4, odd)};
#pragma unroll
                        for (int h = 0; h < GROUPS; h++)
                            mma(sum[k][h], t, j % 2 ? v[k][h][j / 2].z : v[k][h][j / 2].x,
                                j % 2 ? v[k][h][j / 2].w : v[k][h][j / 2].y);
                    }
                }
#pragma unroll
                for (int k = 0; k < 2; k++)
#pragma unroll
                    for (int t = 0; t < 2; t++) {
                        const float f = __shfl_sync(FULL, by[t], group * 4 + i % 2 * 2 + k);
#pragma unroll
                        for (int h = 0; h < GROUPS; h++) {
                            acc[h][2 * t] += f * sum[k][h][2 * t];
                            acc[h][2 * t + 1] += f * sum[k][h][2 * t + 1];
                        }
                    }
            }
            from += SLOTS * SEGMENT;
            at += SLOTS * 2 * SEGMENT;
        }
        __syncwarp();
        if (item + stride < items)
            enter(item + stride);
        const int o0 = item * ROWS;
        for (int r = 0; r < R && member == split - 1; r += 16) {
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
        float *parts = (float *)(smem + PART_AT) + (turn * WARPS + warp - member) * PART;
#pragma unroll
        for (int h = 0; h < GROUPS; h++)
#pragma unroll
            for (int q = 0; q < 4; q++)
                parts[member * PART + (group + q / 2 * 8) * (AF_TOK + 1) + h * 8 + p * 2 + q % 2] =
                    acc[h][q];
        if (split > 1) /* the other turn's sums have been read by now */
            meet(1 + team, split * 32);
        else
            __syncwarp();
        for (int i = member * 32 + lane; i < ROWS * M; i += split * 32) {
            const int m = i / ROWS, r = i % ROWS;
            float v = 0.0f;
            for (int k = 0; k < split; k++)
                v += parts[k * PART + r * (AF_TOK + 1) + m];
            if (o0 + r < O)
                store(y + m * ldy + o0 + r, v + (bias ? load(bias + o0 + r) : 0.0f));
        }
    }
}
