/* low_rank_both.cu - gradients of an adapter that read dy: g = dy B and dB = dy' z (z = x A'), over
 * one reading of dy. bf16, sums in f32. Contracts: adapter_g and adapter_db of linear.c.
 *
 * Built with AF_NT (ranks / 8, rounded up to even). A block owns a strip of up to CHUNKS * 64
 * columns and a slab of tokens. dy passes through three stages of shared memory, 128 tokens x 64
 * columns at a time. A warp makes 16 rows of g, which are complete for the strip after its last
 * chunk; and 16 columns of dB over half of the tokens, kept in registers until the slab ends. The
 * sums of strips (g) and of slabs (dB) are left for low_rank_join, in order.
 *
 * Columns, ranks and where they begin are multiples of 8, rows start on 16 bytes. */
// variants: AF_NT=2,4
// common: AF_NT=2
#include "dev.cuh"

#ifndef AF_NT
#define AF_NT 2
#endif
#define TOKENS 128
#define COLS   64
#define CHUNKS (16 / AF_NT)
#define STAGES 3
#define RANKS  (AF_NT * 8)
#define YP     (COLS + 8) /* rows an odd number of 16 bytes apart */
#define ZP     (RANKS + 8)
#define Z_AT   (STAGES * TOKENS * YP) /* values; z of as many tiles */
#define B_AT   (Z_AT + STAGES * TOKENS * ZP)

/* Columns [from, from + cols) of dy and ranks [rank_from, rank_from + ranks) belong to a part. */
struct both_part {
    float *out; /* dB: [cols][ranks] */
    int from, cols, rank_from, ranks, first; /* first: of its strips */
    float scale;
};
struct both_parts {
    both_part at[4];
};
DEV both_part part_of(const both_parts &parts, int strip)
{
    both_part q = parts.at[0];
#pragma unroll
    for (int i = 1; i < 4; i++)
        if (strip >= parts.at[i].first)
            q = parts.at[i];
    return q;
}

/* Rows [r0, r0 + rows) x `cols` columns of a matrix, 16 bytes at a time; zeros outside of it. */
template <int rows, int cols, int pitch>
DEV void fetch(bf16 *to, const bf16 *from, i64 ld, i64 rows_left, int cols_left)
{
#pragma unroll
    for (int i = 0; i < (rows * cols / 8 + 255) / 256; i++) {
        const int at = i * 256 + threadIdx.x, r = at / (cols / 8), c = at % (cols / 8) * 8;
        const bool in = r < rows_left && c < cols_left;
        if (rows * cols / 8 % 256 == 0 || at < rows * cols / 8)
            copy16(smem_at(to + r * pitch + c), in ? from + r * ld + c : from, in ? 16 : 0);
    }
}

/* g_part: [strips][N][RANKS]; db_part: [slabs][all parts' dB], the part's at `out - parts.at[0].out`.
 * Block (strip, slab); `chunks` of a strip, at most CHUNKS; `slab` tokens, a multiple of TOKENS.
 * Dynamic shared memory: (B_AT + CHUNKS * COLS * ZP) * 2 bytes. */
extern "C" __global__ void __launch_bounds__(256, 2)
    low_rank_both(const bf16 *y, long long ldy, const bf16 *z, long long ldz, const bf16 *b,
                  long long ldb, both_parts parts, float *g_part, float *db_part, long long N,
                  long long total, int chunks, int slab)
{
    extern __shared__ __align__(16) bf16 smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, p = lane % 4;
    const int strip = blockIdx.x;
    const both_part q = part_of(parts, strip);
    const int c0 = (strip - q.first) * chunks * COLS, columns = min(chunks * COLS, q.cols - c0);
    const int used = (columns + COLS - 1) / COLS;
    const i64 n0 = (i64)blockIdx.y * slab, left = min((i64)slab, N - n0);
    const int tiles = (int)((left + TOKENS - 1) / TOKENS), units = tiles * used;
    bf16 *bs = smem + B_AT;
    y += n0 * ldy + q.from + c0;
    z += n0 * ldz + q.rank_from;
    float acc_b[CHUNKS][AF_NT][4] = {}, acc_g[AF_NT][4];
    auto ask = [&](int unit, int stage) {
        const int tile = unit / used, chunk = unit % used;
        fetch<TOKENS, COLS, YP>(smem + stage * TOKENS * YP, y + tile * TOKENS * ldy + chunk * COLS,
                                ldy, left - tile * TOKENS, columns - chunk * COLS);
        if (chunk == 0)
            fetch<TOKENS, RANKS, ZP>(smem + Z_AT + tile % STAGES * TOKENS * ZP,
                                     z + tile * TOKENS * ldz, ldz, left - tile * TOKENS, q.ranks);
    };
    fetch<CHUNKS * COLS, RANKS, ZP>(bs, b + (q.from + c0) * ldb + q.rank_from, ldb, columns, q.ranks);
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < units)
            ask(s, s);
        copy_commit();
    }
    int unit = 0, stage = 0;
    for (int tile = 0; tile < tiles; tile++) {
        const bf16 *zs = smem + Z_AT + tile % STAGES * TOKENS * ZP;
#pragma unroll
        for (int j = 0; j < AF_NT; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc_g[j][i] = 0.0f;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            if (chunk >= used)
                break;
            copy_wait<STAGES - 2>();
            __syncthreads();
            if (unit + STAGES - 1 < units)
                ask(unit + STAGES - 1, (stage + STAGES - 1) % STAGES);
            copy_commit();
            const bf16 *ys = smem + stage * TOKENS * YP;
#pragma unroll
            for (int k = 0; k < COLS; k += 16) { /* g: my 16 tokens, all columns */
                u32 a[4];
                ldmatrix4(a, smem_at(ys + (warp * 16 + lane % 16) * YP + k + lane / 16 * 8));
#pragma unroll
                for (int j = 0; j < AF_NT; j += 2) {
                    u32 v[4];
                    ldmatrix4_trans(v, smem_at(bs + (chunk * COLS + k + lane % 16) * ZP + j * 8 +
                                               lane / 16 * 8));
                    mma(acc_g[j], a, v[0], v[1]);
                    mma(acc_g[j + 1], a, v[2], v[3]);
                }
            }
#pragma unroll
            for (int k = 0; k < TOKENS / 2; k += 16) { /* dB: my 16 columns, half of the tokens */
                const int t = warp / 4 * (TOKENS / 2) + k;
                u32 a[4];
                ldmatrix4_trans(a, smem_at(ys + (t + lane / 16 * 8 + lane % 8) * YP +
                                           warp % 4 * 16 + lane / 8 % 2 * 8));
#pragma unroll
                for (int j = 0; j < AF_NT; j += 2) {
                    u32 v[4];
                    ldmatrix4_trans(v, smem_at(zs + (t + lane % 16) * ZP + j * 8 + lane / 16 * 8));
                    mma(acc_b[chunk][j], a, v[0], v[1]);
                    mma(acc_b[chunk][j + 1], a, v[2], v[3]);
                }
            }
            unit++;
            stage = (stage + 1) % STAGES;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int t = tile * TOKENS + warp * 16 + group + i * 8;
            float *to = g_part + ((i64)strip * N + n0 + t) * RANKS + p * 2;
#pragma unroll
            for (int j = 0; j < AF_NT; j++)
                if (t < left)
                    *(float2 *)(to + j * 8) = make_float2(acc_g[j][i * 2], acc_g[j][i * 2 + 1]);
        }
    }
    copy_wait<0>();
    float *sum = (float *)smem; /* of the second half of the tokens: [64][RANKS + 1] */
    float *out = db_part + (i64)blockIdx.y * total + (q.out - parts.at[0].out) + (i64)c0 * q.ranks;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        if (chunk >= used)
            break;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < AF_NT; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int c = warp % 4 * 16 + group + i / 2 * 8, r = j * 8 + p * 2 + i % 2;
                if (warp >= 4)
                    sum[c * (RANKS + 1) + r] = acc_b[chunk][j][i];
            }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < AF_NT; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int c = warp % 4 * 16 + group + i / 2 * 8, r = j * 8 + p * 2 + i % 2;
                if (warp < 4 && chunk * COLS + c < columns && r < q.ranks)
                    out[(i64)(chunk * COLS + c) * q.ranks + r] =
                        acc_b[chunk][j][i] + sum[c * (RANKS + 1) + r];
            }
    }
}

/* g[n][r] = scale * the sum over strips; columns from the last rank to `wide` become zeros.
 * dB (+)= the sum over slabs. strips: of all parts. */
extern "C" __global__ void __launch_bounds__(256)
    low_rank_join(bf16 *g, long long ldg, both_parts parts, const float *g_part,
                  const float *db_part, long long N, long long total, int strips, int slabs,
                  int wide, int accumulate)
{
    const i64 all = N * wide;
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < all + total; i += gridDim.x * 256ll) {
        float v = 0.0f;
        if (i >= all) {
            float *to = parts.at[0].out + (i - all);
            for (int s = 0; s < slabs; s++)
                v += db_part[s * total + i - all];
            *to = accumulate ? *to + v : v;
            continue;
        }
        const i64 n = i / wide;
        const int r = (int)(i % wide);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const both_part &q = parts.at[k];
            const int end = k < 3 ? min(parts.at[k < 3 ? k + 1 : 3].first, strips) : strips;
            if (r >= q.rank_from && r < q.rank_from + q.ranks) {
                for (int s = q.first; s < end; s++)
                    v += g_part[(s * N + n) * RANKS + r - q.rank_from];
                v *= q.scale;
            }
        }
        store(g + n * ldg + r, v);
    }
}
