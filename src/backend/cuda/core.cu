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
    int lo = 0;
    for (int left = n; left > 1;) { /* the last entry that starts at or before this block */
        const int step = (left + 31) / 32, i = threadIdx.x % 32 * step;
        const bool before = i < left && table[lo + i].first <= blockIdx.x;
        const int from = (__popc(__ballot_sync(FULL, before)) - 1) * step;
        lo += from;
        left = min(step, left - from);
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
        const bool small = count <= 0xffffffffu; /* most are: a shorter division */
        float v[4][4];
        AF_D *to[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const long long k = at + threadIdx.x * 4 + i * 1024;
            const long long r = small ? (u32)k / (u32)e.cols : k / e.cols, c = k - r * e.cols;
            to[i] = e.dst + r * e.dst_ld + c;
            if (k < count)
                load_n(v[i], e.src + r * e.src_ld + c);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + threadIdx.x * 4 + i * 1024 < count)
                store_n(to[i], v[i]);
        return;
    }
    for (int k = threadIdx.x; k < 4096 && at + k < count; k += 256) {
        const long long r = (at + k) / e.cols, c = (at + k) - r * e.cols;
        store(e.dst + r * e.dst_ld + c, load(e.src + r * e.src_ld + c));
    }
}

/* out[c] (+)= sum over rows of x[r][c], in a fixed order. A block sums 32 columns: a thread 8 of
 * them in every 256th row, then the lanes of a warp, then the warps one after another. `wide`: rows
 * of x start on 16 bytes. */
extern "C" __global__ void __launch_bounds__(1024)
    sum_rows(AF_D *out, const AF_S *x, long long ld, long long rows, long long cols, int add,
             int wide)
{
    __shared__ float part[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 c = (i64)blockIdx.x * 32 + lane % 4 * 8;
    float s[8] = {};
    if (wide && c + 8 <= cols) {
#pragma unroll 4
        for (i64 r = threadIdx.x / 4; r < rows; r += 256) {
            float v[8];
            load_n(v, x + r * ld + c);
#pragma unroll
            for (int k = 0; k < 8; k++)
                s[k] += v[k];
        }
    } else {
        for (i64 r = threadIdx.x / 4; r < rows; r += 256)
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (c + k < cols)
                    s[k] += load(x + r * ld + c + k);
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
#pragma unroll
        for (int d = 4; d < 32; d *= 2)
            s[k] += __shfl_xor_sync(FULL, s[k], d);
        if (lane < 4)
            part[warp][lane * 8 + k] = s[k];
    }
    __syncthreads();
    const i64 at = (i64)blockIdx.x * 32 + lane;
    if (warp == 0 && at < cols) {
        float sum = add ? load(out + at) : 0.0f;
        for (int i = 0; i < 32; i++)
            sum += part[i][lane];
        store(out + at, sum);
    }
}
