/* bnb_linear.cu - products of few tokens (at most 64) straight from 4-bit weights of bitsandbytes.
 * Contract: af_linear and its dx (linear.c), pieces stacked along the output in one launch.
 *
 * Built with AF_T (bf16, half), AF_BOOK (nf4_bits, fp4_bits) and AF_MT (tokens / 16, rounded up).
 * Weights are decoded in registers to the values dequant.cu writes, so a product differs from
 * dequantise + GEMM in the order of its sums only. Rows are whole 64-value segments, blocks hold at
 * least 64 values (shift: log2 of how many times 64); activations' rows start on 16 bytes. */
// variants: AF_T=bf16 AF_BOOK=nf4_bits AF_MT=1 | AF_T=bf16 AF_BOOK=nf4_bits AF_MT=2 | AF_T=bf16 AF_BOOK=nf4_bits AF_MT=4 | AF_T=bf16 AF_BOOK=fp4_bits AF_MT=1 | AF_T=bf16 AF_BOOK=fp4_bits AF_MT=2 | AF_T=bf16 AF_BOOK=fp4_bits AF_MT=4 | AF_T=half AF_BOOK=nf4_bits AF_MT=1 | AF_T=half AF_BOOK=nf4_bits AF_MT=2 | AF_T=half AF_BOOK=nf4_bits AF_MT=4 | AF_T=half AF_BOOK=fp4_bits AF_MT=1 | AF_T=half AF_BOOK=fp4_bits AF_MT=2 | AF_T=half AF_BOOK=fp4_bits AF_MT=4
#include "bnb_decode.cuh"

#ifndef AF_MT
#define AF_MT 1
#define AF_BOOK nf4_bits
#endif
#define WARPS 8
#define TOKENS (AF_MT * 16)
#define TILES 2               /* of 8 output rows a warp */
#define WARP_ROWS (TILES * 8) /* output rows a warp of bnb_linear */
#define STEP 128              /* values of a row a warp takes at once, 32 a thread */

struct bnb_piece {
    const u8 *codes;
    const void *absmax;
    const float *nested;
    i64 end; /* first row of the stack behind it */
};
struct bnb_pieces {
    bnb_piece at[3];
};
struct bnb_offsets { /* of nested scales, known later than the rest */
    float at[3];
};
/* One row of the stack: its codes, and the scales of its piece from its first segment on. */
struct bnb_row {
    const u8 *codes;
    const void *absmax;
    const float *nested;
    float offset;
    u32 segment;
};

DEV void mma_step(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, bf16 *)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEV void mma_step(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, half *)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/* Never launched with floats; there so that the file builds without defines. */
DEV void mma_step(float (&)[4], u32, u32, u32, u32, u32, u32, float *) {}

DEV bnb_row find_row(const bnb_pieces &w, const bnb_offsets &offset, int row, int I)
{
    bnb_piece p = w.at[0]; /* indexed by constants: arguments stay where they are */
    float off = offset.at[0];
    int from = 0;
#pragma unroll
    for (int i = 1; i < 3; i++)
        if (row >= (int)w.at[i - 1].end) {
            p = w.at[i];
            off = offset.at[i];
            from = (int)w.at[i - 1].end;
        }
    const i64 first = (i64)(row - from) * I;
    return {p.codes + first / 2, p.absmax, p.nested, off, (u32)(first / 64)};
}
/* Of value k. shift: log2 of the 64-value segments of a block; nested_shift as in scale_of. */
DEV float row_scale(const bnb_row &r, const float *map, int k, int shift, int nested_shift)
{
    const bnb_scales s = {r.absmax, r.nested, map, r.offset, 0, nested_shift};
    return scale_of(s, (r.segment + k / 64) >> shift);
}
/* Two neighbours of a row of `cols` values, zeros behind its end. */
DEV u32 pair_at(const AF_T *row, int col, int cols)
{
    const u16 *p = (const u16 *)row;
    return (col < cols ? p[col] : 0) | (col + 1 < cols ? (u32)p[col + 1] << 16 : 0);
}

/* y[m][o] = sum_i x[m][i] w[o][i] + sum_r low[m][r] bt[r][o] + bias[o].
 *
 * A block makes (8 / kways) * 16 rows of the stack; kways of its warps share the same rows and take
 * turns along i, then they are added up in order. Tokens are the rows of the tensor core's tile and
 * weights its columns; within 32 values i is permuted the same way on both sides, so that 16 bytes of
 * x are two fragments. bt: [R up to 16, zeros behind R][O], or R = 0. */
extern "C" __global__ void __launch_bounds__(256, 2)
    bnb_linear(AF_T *y, long long ldy, const AF_T *x, long long ldx, bnb_pieces w, float off0,
               float off1, float off2, const AF_T *bias,
               const AF_T *low, long long ldl, const AF_T *bt, int M, int O, int I, int R, int shift,
               int nested_shift, int kways)
{
    __shared__ float map[256], part[WARPS][WARP_ROWS][TOKENS + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, p = lane % 4;
    const int rows = WARPS / kways * WARP_ROWS, turn = warp % kways;
    const int o0 = blockIdx.x * rows + warp / kways * WARP_ROWS;
    bnb_map(map);
    __syncthreads();
    bnb_row row[TILES];
    const AF_T *xr = x + group * ldx;
    const int x8 = (int)ldx * 8; /* from a token to the eighth behind it */
    float acc[AF_MT][TILES][4] = {};
    uint4 next[TILES];
    float next_scale[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++)
        row[t] = find_row(w, {{off0, off1, off2}}, min(o0 + t * 8 + group, O - 1), I);
    int k = turn * STEP + p * 32;
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        next[t] = k < I ? *(const uint4 *)(row[t].codes + k / 2) : make_uint4(0, 0, 0, 0);
        next_scale[t] = k < I ? row_scale(row[t], map, k, shift, nested_shift) : 0.0f;
    }
    for (int k0 = turn * STEP; k0 < I; k0 += kways * STEP) {
        u32 code[TILES][4];
        bnb_table table[TILES];
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            code[t][0] = next[t].x, code[t][1] = next[t].y, code[t][2] = next[t].z, code[t][3] = next[t].w;
            bnb_values(table[t], (AF_T *)0, AF_BOOK, next_scale[t]);
        }
        const int at = k;
        k += kways * STEP;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            if (k < I) {
                next[t] = *(const uint4 *)(row[t].codes + k / 2);
                next_scale[t] = row_scale(row[t], map, k, shift, nested_shift);
            }
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            uint4 a[AF_MT][2];
#pragma unroll
            for (int i = 0; i < AF_MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    a[i][h] = i * 16 + h * 8 + group < M && at < I
                                  ? *(const uint4 *)(xr + (i * 2 + h) * x8 + at + u * 8)
                                  : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                u32 b[4];
                bnb_lookup(b, table[t], code[t][u]);
#pragma unroll
                for (int i = 0; i < AF_MT; i++) {
                    mma_step(acc[i][t], a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y, b[0], b[1], (AF_T *)0);
                    mma_step(acc[i][t], a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w, b[2], b[3], (AF_T *)0);
                }
            }
        }
    }
    for (int r = 0; r < R && turn == 0; r += 16)
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const u16 *q = (const u16 *)bt + (i64)(r + p * 2) * O + min(o0 + t * 8 + group, O - 1);
            const u32 b0 = q[0] | (u32)q[O] << 16, b1 = q[8ll * O] | (u32)q[9ll * O] << 16;
#pragma unroll
            for (int i = 0; i < AF_MT; i++) {
                const int m = i * 16 + group, c = r + p * 2;
                const AF_T *l0 = low + m * ldl, *l1 = low + (m + 8) * ldl;
                const int in0 = m < M ? R : 0, in1 = m + 8 < M ? R : 0;
                mma_step(acc[i][t], pair_at(l0, c, in0), pair_at(l1, c, in1), pair_at(l0, c + 8, in0),
                         pair_at(l1, c + 8, in1), b0, b1, (AF_T *)0);
            }
        }
#pragma unroll
    for (int i = 0; i < AF_MT; i++)
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int q = 0; q < 4; q++)
                part[warp][t * 8 + p * 2 + q % 2][i * 16 + group + q / 2 * 8] = acc[i][t][q];
    __syncthreads();
    for (int i = threadIdx.x; i < rows * TOKENS; i += 256) {
        const int m = i / rows, r = i - m * rows, o = blockIdx.x * rows + r;
        float v = 0.0f;
        for (int t = 0; t < kways; t++)
            v += part[r / WARP_ROWS * kways + t][r % WARP_ROWS][m];
        if (m < M && o < O)
            store(y + m * ldy + o, v + (bias ? load(bias + o) : 0.0f));
    }
}

#define COLS 64
#define PITCH (COLS + 8) /* rows 144 bytes apart: fragment loads hit every bank once */

/* Fragments of 16 rows of a warp's tile: acc += a[tokens][16] tile[16][64]. */
DEV void mma_tile(float (&acc)[AF_MT][8][4], const u32 (&a)[AF_MT][4], const AF_T (*tile)[PITCH])
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < COLS / 16; j++) {
        u32 b[4];
        ldmatrix4_trans(b, smem_at(&tile[lane % 16][j * 16 + lane / 16 * 8]));
#pragma unroll
        for (int i = 0; i < AF_MT; i++) {
            mma_step(acc[i][2 * j], a[i][0], a[i][1], a[i][2], a[i][3], b[0], b[1], (AF_T *)0);
            mma_step(acc[i][2 * j + 1], a[i][0], a[i][1], a[i][2], a[i][3], b[2], b[3], (AF_T *)0);
        }
    }
}
/* Columns c .. c + 15 of the tokens of x, which has `cols`. */
DEV void token_fragments(u32 (&a)[AF_MT][4], const AF_T *x, i64 ld, int c, int M, int cols)
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
 * Block (b, s) makes 64 columns; its warps and the gridDim.y blocks of a column take turns along o,
 * 16 rows at a time, which a warp decodes into a tile of its own. Warps are added up in order; with
 * more than one block a column the sums go to part[s][m][i] and bnb_join adds them up.
 * a: [R][I], or R = 0. */
extern "C" __global__ void __launch_bounds__(256)
    bnb_linear_dx(AF_T *dx, long long ldx, const AF_T *dy, long long ldy, bnb_pieces w, float off0,
                  float off1, float off2, const AF_T *low,
                  long long ldl, const AF_T *a, long long lda, float *part, int M, int O, int I, int R,
                  int shift, int nested_shift)
{
    __shared__ float map[256], sum[TOKENS][COLS + 1];
    __shared__ __align__(16) AF_T tile[WARPS][16][PITCH];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, p = lane % 4;
    const int c0 = blockIdx.x * COLS, r = lane / 2, c = c0 + lane % 2 * 32;
    const int ways = gridDim.y * WARPS, turn = blockIdx.y * WARPS + warp;
    float acc[AF_MT][8][4] = {};
    u32 from[AF_MT][4];
    AF_T *mine = &tile[warp][r][lane % 2 * 32];
    bnb_map(map);
    __syncthreads();
    for (int o = turn * 16; o < O; o += ways * 16) {
        const bnb_row row = find_row(w, {{off0, off1, off2}}, min(o + r, O - 1), I);
        const uint4 q = *(const uint4 *)(row.codes + c / 2);
        const u32 code[4] = {q.x, q.y, q.z, q.w};
        bnb_table table;
        const float scale = row_scale(row, map, c, shift, nested_shift);
        bnb_values(table, (AF_T *)0, AF_BOOK, o + r < O ? scale : 0.0f);
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
    for (int k = 0; k < R && turn == 0; k += 16) {
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
    bnb_join(AF_T *dx, long long ldx, const float *part, int M, int I, int parts)
{
    for (int i = blockIdx.x * 256 + threadIdx.x; i < M * I; i += gridDim.x * 256) {
        float v = 0.0f;
        for (int s = 0; s < parts; s++)
            v += part[(i64)s * M * I + i];
        store(dx + i / I * ldx + i % I, v);
    }
}
