/* scan.cuh - what the kernels of scan.c share: chunks of 64 rows in shared memory, small products.
 *
 * The slots of chunks: chunk i of sequence s is slot bounds[s] / 64 + s + i, which never meets
 * another one's, so no kernel counts chunks. Results of a chunk lie at [slot][head]. Everything in
 * between is f32. Blocks have 256 threads. */
#ifndef AF_SCAN_CUH
#define AF_SCAN_CUH
#include "state.cuh"

#ifndef AF_MMA
#define AF_MMA 0
#endif
#define CHUNK 64
/* Keys are padded to whole tiles of a product. Row strides in shared memory: AF_PAD more, so that
 * what a warp reads at once falls on different banks. As in scan_cuda.c. */
#if AF_MMA
#define UNIT   16
#define AF_PAD 4
#else
#define UNIT   4
#define AF_PAD 1
#endif
#define LDC (CHUNK + AF_PAD) /* of 64 x 64 matrices */

extern __shared__ float shared[];

/* Sizes and inputs, as scan_args of scan_cuda.c. */
struct scan_args {
    const AF_T *x;
    const float *decay;
    const void *beta, *skip;
    const int *bounds;
    i64 ldx, ld_decay, ld_beta;
    int beta_type, skip_type, S, H, J, K, V, q_from, k_from, v_from, delta, tile;
};

/* One chunk: its slot, sequence, first row and rows (0 = nothing there). */
struct chunk {
    i64 slot;
    int seq, row, len;
};

DEV chunk chunk_of(const scan_args &a, int slot)
{
    int lo = 0, hi = a.S; /* the last s whose first slot is not after this one */
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (a.bounds[mid] / CHUNK + mid <= slot)
            lo = mid;
        else
            hi = mid;
    }
    const int i = slot - a.bounds[lo] / CHUNK - lo, row = a.bounds[lo] + i * CHUNK;
    const int left = a.bounds[lo + 1] - row;
    return {slot, lo, row, i < 0 || left <= 0 ? 0 : left < CHUNK ? left : CHUNK};
}

DEV int key_head(const scan_args &a, int h) { return h / (a.H / a.J); }
DEV float beta_of(const scan_args &a, int row, int h)
{
    return value(a.beta, a.beta_type, row * a.ld_beta + h);
}

/* G, exp(G) and exp(G[end] - G) of a chunk, zeros after its rows. All threads; ends in step. */
struct decays {
    float G[CHUNK], eG[CHUNK], to_end[CHUNK], beta[CHUNK];
};
DEV void load_decays(decays &d, const scan_args &a, const chunk &c, int h)
{
    const int t = threadIdx.x;
    if (t < CHUNK) {
        d.to_end[t] = t < c.len ? a.decay[(i64)(c.row + t) * a.ld_decay + h] : 0.0f;
        d.beta[t] = t < c.len ? beta_of(a, c.row + t, h) : 0.0f;
    }
    __syncthreads();
    if (t < CHUNK) {
        float G = 0.0f;
        for (int i = 0; i <= t; i++)
            G += d.to_end[i];
        d.G[t] = G;
        d.eG[t] = expf(G);
    }
    __syncthreads();
    if (t < CHUNK)
        d.to_end[t] = t < c.len ? expf(d.G[c.len - 1] - d.G[t]) : 0.0f;
    __syncthreads();
}

/* Rows of q or k of key head kh into m [64][ld], zeros after them; with delta divided by their
 * length and times factor. A warp per row. All threads; ends in step. */
DEV void load_keys(float *m, int ld, const scan_args &a, const chunk &c, int from, float factor)
{
    const int lane = threadIdx.x % 32;
    for (int t = threadIdx.x / 32; t < CHUNK; t += 8) {
        const AF_T *row = a.x + (i64)(c.row + t) * a.ldx + from;
        float ss = 0.0f;
        for (int i = lane; i < a.K; i += 32) {
            const float v = t < c.len ? load(row + i) : 0.0f;
            m[t * ld + i] = v;
            ss += v * v;
        }
        if (a.delta) {
            const float r = rsqrtf(warp_sum(ss) + 1e-6f) * factor;
            for (int i = lane; i < a.K; i += 32)
                m[t * ld + i] *= r;
        }
        if (lane < ld - a.K) /* products take whole tiles */
            m[t * ld + a.K + lane] = 0.0f;
    }
    __syncthreads();
}
DEV void load_q(float *m, int ld, const scan_args &a, const chunk &c, int h)
{
    load_keys(m, ld, a, c, a.q_from + key_head(a, h) * a.K, rsqrtf((float)a.K));
}
DEV void load_k(float *m, int ld, const scan_args &a, const chunk &c, int h)
{
    load_keys(m, ld, a, c, a.k_from + key_head(a, h) * a.K, 1.0f);
}

/* [rows][cols] of f32 in device memory with rows of ldg into m, zeros up to `most` rows. */
DEV void load_tile(float *m, int ld, const float *from, i64 ldg, int rows, int cols, int most,
                   int width)
{
    for (int i = threadIdx.x; i < most * width; i += 256) {
        const int r = i / width, c = i % width;
        m[r * ld + c] = r < rows && c < cols ? from[r * ldg + c] : 0.0f;
    }
}

/* put(m, n, sum over k of a(m, k) b(k, n)), a(m, k) = a[m am + k ak] and so on; M a multiple of
 * UNIT, N of 8, K of 8 with tensor cores. The caller separates it from what comes before and
 * after. */
#if AF_MMA
/* On tensor cores, operands rounded to tf32: a warp makes 16 x 8 NB values at a time, so that what
 * it reads of a serves NB tiles. */
template <int NB, class F>
DEV void product_tiles(const float *a, int am, int ak, const float *b, int bk, int bn, int M, int N,
                       int K, F put)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, across = N / (8 * NB);
    for (int i = threadIdx.x / 32; i < M / 16 * across; i += 8) {
        const int m = i / across * 16, n = i % across * 8 * NB;
        const float *pa = a + (m + g) * am + t * ak, *pb = b + (n + g) * bn + t * bk;
        float s[NB][4] = {};
        for (int k = 0; k < K; k += 8, pa += 8 * ak, pb += 8 * bk) {
            const u32 f[4] = {to_tf32(pa[0]), to_tf32(pa[8 * am]), to_tf32(pa[4 * ak]),
                              to_tf32(pa[8 * am + 4 * ak])};
#pragma unroll
            for (int j = 0; j < NB; j++)
                mma_tf32(s[j], f, to_tf32(pb[8 * j * bn]), to_tf32(pb[8 * j * bn + 4 * bk]));
        }
#pragma unroll
        for (int j = 0; j < NB; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                put(m + g + e / 2 * 8, n + 8 * j + 2 * t + e % 2, s[j][e]);
    }
}
template <class F>
DEV void product(const float *a, int am, int ak, const float *b, int bk, int bn, int M, int N,
                 int K, F put)
{
    const int tiles = M / 16 * (N / 8); /* enough of them for eight warps */
    if (N % 32 == 0 && tiles >= 32)
        product_tiles<4>(a, am, ak, b, bk, bn, M, N, K, put);
    else if (N % 16 == 0 && tiles >= 16)
        product_tiles<2>(a, am, ak, b, bk, bn, M, N, K, put);
    else
        product_tiles<1>(a, am, ak, b, bk, bn, M, N, K, put);
}
#else
template <class F>
DEV void product(const float *a, int am, int ak, const float *b, int bk, int bn, int M, int N,
                 int K, F put)
{
    const int across = N / 2;
    for (int i = threadIdx.x; i < M / 4 * across; i += 256) {
        const int m = i / across * 4, n = i % across * 2;
        const float *pa = a + m * am, *pb = b + n * bn;
        float s[4][2] = {};
        for (int k = 0; k < K; k++) {
            const float b0 = pb[k * bk], b1 = pb[k * bk + bn];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float v = pa[j * am + k * ak];
                s[j][0] += v * b0;
                s[j][1] += v * b1;
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            put(m + j, n, s[j][0]);
            put(m + j, n + 1, s[j][1]);
        }
    }
}
#endif

/* Keys with their padding, which holds zeros. */
DEV int key_pad(const scan_args &a) { return (a.K + UNIT - 1) / UNIT * UNIT; }
DEV int key_ld(const scan_args &a) { return key_pad(a) + AF_PAD; }
DEV int tile_ld(const scan_args &a) { return a.tile + AF_PAD; }
#endif
