/* bnb_fill.cu - the extended matrix of a projection (linear_cuda.h) from 4-bit pieces in one
 * launch: the stack W, and B in the spare columns or A in the spare rows. Values are those of
 * dequant.cu and of core.cu's copies, bit for bit.
 *
 * Built with AF_BOOK (nf4_bits, fp4_bits). Rows are whole 64-value segments, each inside one block
 * of scales; 16-byte rows of bf16. Blocks of 256 threads: the first w_blocks write W, two threads a
 * segment; the others the adapter's half, 8 values a thread, zeros where no part is. */
// variants: AF_BOOK=nf4_bits,fp4_bits
// common: AF_BOOK=nf4_bits
#include "bnb_linear.cuh"

struct fill_part { /* of an adapter: its rows of B, its columns, where it lies in b */
    int out_from, out_rows, rank_from, rank;
    i64 at;
};
struct fill_half {
    const float *b, *a;   /* one of them, or none */
    int ext, rank, parts; /* spare columns and rows; ranks of all parts */
    int unused;
    fill_part part[4];
};

DEV float half_at_b(const fill_half &h, int row, int col)
{
    float v = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const fill_part &q = h.part[i];
        const int r = row - q.out_from, c = col - q.rank_from;
        if (i < h.parts && r >= 0 && r < q.out_rows && c >= 0 && c < q.rank)
            v = h.b[q.at + (i64)r * q.rank + c];
    }
    return v;
}

DEV void fill_adapter(bf16 *dst, i64 ld, const fill_half &h, int rows, int cols, i64 i)
{
    float v[8];
    const int per_row = (h.b ? h.ext : cols) / 8, row = (int)(i / per_row);
    const int col = (int)(i - (i64)row * per_row) * 8;
    if (row >= (h.b ? rows : h.ext))
        return;
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = h.b            ? half_at_b(h, row, col + k)
               : row < h.rank ? h.a[(i64)row * cols + col + k]
                              : 0.0f;
    store_n(h.b ? dst + row * ld + cols + col : dst + (rows + (i64)row) * ld + col, v);
}

extern "C" __global__ void __launch_bounds__(256)
    bnb_fill_dequant(bf16 *dst, long long ld, bnb_pieces w, float offset0, float offset1,
                     float offset2, int rows, int cols, int shift, int nested_shift, fill_half half,
                     int w_blocks)
{
    __shared__ float map[256];
    const bnb_offsets offset = {{offset0, offset1, offset2}};
    if ((int)blockIdx.x >= w_blocks) {
        fill_adapter(dst, ld, half, rows, cols, (i64)(blockIdx.x - w_blocks) * 256 + threadIdx.x);
        return;
    }
    bnb_map(map);
    __syncthreads();
    const int segments = rows * (cols / 64), per_row = cols / 64, odd = threadIdx.x & 1;
    const int step = w_blocks * 128, step_rows = step / per_row, step_cols = step % per_row;
    int g = blockIdx.x * 128 + threadIdx.x / 2, row = g / per_row, col = g - row * per_row;
    for (; g < segments; g += step) {
        const bnb_row r = find_row(w, offset, row, cols);
        const bnb_raw raw = ask_scale(r, col * 64, shift, nested_shift);
        u32 code[4];
        bnb_table t;
#pragma unroll
        for (int u = 0; u < 4; u++)
            code[u] = ((const u32 *)r.codes)[col * 8 + 2 * u + odd];
        bnb_values(t, (bf16 *)0, AF_BOOK, use_scale(r, raw, map, nested_shift));
        bf16 *to = dst + row * ld + col * 64 + odd * 8;
#pragma unroll
        for (int u = 0; u < 4; u++) {
            u32 out[4];
            bnb_lookup(out, t, code[u]);
            *(uint4 *)(to + u * 16) = make_uint4(out[0], out[1], out[2], out[3]);
        }
        const bool over = (col += step_cols) >= per_row;
        col -= over ? per_row : 0;
        row += step_rows + over;
    }
}
