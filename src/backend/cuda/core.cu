/* core.cu - copies of matrices between types and row strides, and sums over rows: what the backend
 * itself needs around its GEMMs.  Built with AF_S (source type) and AF_D (destination type). */
// variants: AF_S=float,bf16,half AF_D=bf16,half,float
// common: AF_S=float,bf16 AF_D=bf16 | AF_S=bf16 AF_D=float
#include "dev.cuh"

/* dst[r][c] = alpha * src[r][c] for c < cols, 0 for cols <= c < wide.  A warp runs along a row, 8
 * rows per block; the row stride of either side is free. */
extern "C" __global__ void copy_2d(AF_D *dst, long long dst_ld, const AF_S *src, long long src_ld,
                                   long long rows, long long cols, long long wide, float alpha)
{
    const long long r = (long long)blockIdx.y * 8 + threadIdx.x / 32;
    if (r >= rows)
        return;
    for (long long c = blockIdx.x * 32 + threadIdx.x % 32; c < wide; c += gridDim.x * 32)
        store(dst + r * dst_ld + c, c < cols ? alpha * load(src + r * src_ld + c) : 0.0f);
}

/* Many such copies in one launch: entry e has the blocks from `first` on, 4096 values each. */
struct copy_entry {
    AF_D *dst;
    const AF_S *src;
    long long dst_ld, src_ld, rows, cols, first, kind; /* kind 1: 4 values at a time are aligned; 2:
                                                          transposed */
};

extern "C" __global__ void __launch_bounds__(256) copy_table(const copy_entry *table, int n)
{
    int lo = 0, hi = n - 1;
    while (lo < hi) { /* the last entry that starts at or before this block */
        const int mid = (lo + hi + 1) / 2;
        if (table[mid].first <= blockIdx.x)
            lo = mid;
        else
            hi = mid - 1;
    }
    const copy_entry e = table[lo];
    const long long count = e.rows * e.cols, at = (blockIdx.x - e.first) * 4096;
    if (e.kind == 2) {
        for (int k = threadIdx.x; k < 4096 && at + k < count; k += 256) {
            const long long c = (at + k) / e.rows, r = (at + k) - c * e.rows;
            store(e.dst + c * e.dst_ld + r, load(e.src + r * e.src_ld + c));
        }
        return;
    }
    if (e.kind == 1) {
        for (int k = threadIdx.x * 4; k < 4096 && at + k < count; k += 1024) {
            const long long r = (at + k) / e.cols, c = (at + k) - r * e.cols;
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = load(e.src + r * e.src_ld + c + i);
#pragma unroll
            for (int i = 0; i < 4; i++)
                store(e.dst + r * e.dst_ld + c + i, v[i]);
        }
        return;
    }
    for (int k = threadIdx.x; k < 4096 && at + k < count; k += 256) {
        const long long r = (at + k) / e.cols, c = (at + k) - r * e.cols;
        store(e.dst + r * e.dst_ld + c, load(e.src + r * e.src_ld + c));
    }
}

/* out[c] (+)= sum over rows of x[r][c], in a fixed order: a block sums 32 columns, 8 row groups at
 * a time, then the 8 partial sums one after another. */
extern "C" __global__ void sum_rows(AF_D *out, const AF_S *x, long long ld, long long rows,
                                    long long cols, int add)
{
    __shared__ float part[8][33];
    const long long c = (long long)blockIdx.x * 32 + threadIdx.x % 32;
    const int g = threadIdx.x / 32;
    float s = 0.0f;
    if (c < cols)
        for (long long r = g; r < rows; r += 8)
            s += load(x + r * ld + c);
    part[g][threadIdx.x % 32] = s;
    __syncthreads();
    if (g == 0 && c < cols) {
        s = add ? load(out + c) : 0.0f;
        for (int i = 0; i < 8; i++)
            s += part[i][threadIdx.x];
        store(out + c, s);
    }
}
