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
/* Columns of a head's values that a block takes at a time. */
#ifndef AF_TILE
#define AF_TILE 32
#endif
#define LT (AF_TILE + AF_PAD)

extern __shared__ __align__(16) float shared[];

/* Sizes and inputs, as scan_args of scan_cuda.c. */
struct scan_args {
    const AF_T *x;
    const float *decay;
    const void *beta, *skip;
    const int *bounds;
    i64 ldx, ld_decay, ld_beta;
    int beta_type, skip_type, S, H, J, K, V, q_from, k_from, v_from, delta;
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
    float G = 0.0f;
    if (t < CHUNK) {
        G = t < c.len ? a.decay[(i64)(c.row + t) * a.ld_decay + h] : 0.0f;
        d.beta[t] = t < c.len ? beta_of(a, c.row + t, h) : 0.0f;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const float before = __shfl_up_sync(FULL, G, step);
            G += t % 32 >= step ? before : 0.0f;
        }
        d.G[t] = G;
    }
    __syncthreads();
    if (t >= 32 && t < CHUNK)
        d.G[t] = G += d.G[31];
    if (t < CHUNK)
        d.eG[t] = expf(G);
    __syncthreads();
    if (t < CHUNK)
        d.to_end[t] = t < c.len ? expf(d.G[c.len - 1] - G) : 0.0f;
    __syncthreads();
}

/* Four values of a row of shared memory, whose address is a multiple of 16 where AF_PAD is 4. */
DEV void put_four(float *m, const float (&f)[4])
{
#if AF_PAD == 4
    *(float4 *)m = {f[0], f[1], f[2], f[3]};
#else
    m[0] = f[0], m[1] = f[1], m[2] = f[2], m[3] = f[3];
#endif
}
/* Rows from here on, ld apart, can be read four values at a time. */
template <class T> DEV bool in_fours(const T *from, i64 ld)
{
    return ((u64)from | (u64)ld * sizeof(T)) % (4 * sizeof(T)) == 0;
}

/* Loads before it are all under way before anything after it waits for one of them. */
DEV void all_asked_for() { asm volatile("" ::: "memory"); }

/* Rows of q or k of key head kh into m [64][ld], zeros after them; with delta divided by their
 * length and times factor. A warp has every eighth row. All threads; ends in step. */
DEV void load_keys(float *m, int ld, const scan_args &a, const chunk &c, int from, float factor)
{
    constexpr int ROWS = CHUNK / 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const AF_T *x = a.x + (i64)c.row * a.ldx + from;
    float ss[ROWS] = {};
    if (a.K % 4 == 0 && in_fours(a.x + from, a.ldx))
        for (int i = lane * 4; i < a.K; i += 128) {
            float v[ROWS][4];
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                load_n(v[r], x + min(warp + 8 * r, c.len - 1) * a.ldx + i);
            all_asked_for();
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    v[r][j] = warp + 8 * r < c.len ? v[r][j] : 0.0f;
                    ss[r] += v[r][j] * v[r][j];
                }
                put_four(m + (warp + 8 * r) * ld + i, v[r]);
            }
        }
    else
        for (int i = lane; i < a.K; i += 32)
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int t = warp + 8 * r;
                const float v = t < c.len ? load(x + t * a.ldx + i) : 0.0f;
                m[t * ld + i] = v;
                ss[r] += v * v;
            }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float *row = m + (warp + 8 * r) * ld;
        if (a.delta) {
            const float f = rsqrtf(warp_sum(ss[r]) + 1e-6f) * factor;
            for (int i = lane; i < a.K; i += 32)
                row[i] *= f;
        }
        if (lane < ld - a.K) /* products take whole tiles */
            row[a.K + lane] = 0.0f;
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

/* [rows][cols] of device memory with rows of ldg into m, zeros up to [most][COLS]; there after
 * loaded(). */
template <int COLS, class T>
DEV void load_tile(float *m, int ld, const T *from, i64 ldg, int rows, int cols, int most)
{
    if (AF_PAD == 4 && sizeof(T) == 4 && cols == COLS && in_fours(from, ldg))
        for (int i = threadIdx.x; i < most * (COLS / 4); i += 256) {
            const int r = i / (COLS / 4), c = i % (COLS / 4) * 4;
            copy16(smem_at(m + r * ld + c), from + min(r, rows - 1) * ldg + c, r < rows ? 16 : 0);
        }
    else if (cols == COLS && in_fours(from, ldg))
        for (int at = threadIdx.x; at < most * (COLS / 4); at += 4 * 256) {
            float v[4][4];
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const int i = at + u * 256, r = min(i / (COLS / 4), rows - 1);
                load_n(v[u], from + r * ldg + i % (COLS / 4) * 4);
            }
            all_asked_for();
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const int i = at + u * 256, r = i / (COLS / 4);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    v[u][j] = r < rows ? v[u][j] : 0.0f;
                if (r < most)
                    put_four(m + r * ld + i % (COLS / 4) * 4, v[u]);
            }
        }
    else
        for (int i = threadIdx.x; i < most * COLS; i += 256) {
            const int r = i / COLS, c = i % COLS;
            m[r * ld + c] = r < rows && c < cols ? load(from + r * ldg + c) : 0.0f;
        }
}
/* What load_tile asked for is there, for all threads. */
DEV void loaded()
{
#if AF_PAD == 4
    copy_commit();
    copy_wait<0>();
#endif
    __syncthreads();
}

/* The first rows and columns of m to device memory. */
template <int COLS, class T>
DEV void store_tile(T *to, i64 ldg, const float *m, int ld, int rows, int cols)
{
    if (cols == COLS && in_fours(to, ldg))
        for (int i = threadIdx.x; i < rows * (COLS / 4); i += 256) {
            const int r = i / (COLS / 4), c = i % (COLS / 4) * 4;
            const float *p = m + r * ld + c, v[4] = {p[0], p[1], p[2], p[3]};
            store_n(to + r * ldg + c, v);
        }
    else
        for (int i = threadIdx.x; i < rows * COLS; i += 256) {
            const int r = i / COLS, c = i % COLS;
            if (c < cols)
                store(to + r * ldg + c, m[r * ld + c]);
        }
}
/* A 64 x 64 matrix. */
DEV void load_square(float *m, const float *from)
{
    load_tile<CHUNK>(m, LDC, from, CHUNK, CHUNK, CHUNK, CHUNK);
}

/* Columns c0 and after of head h of values [N][H*V], or of v where they are NULL. */
DEV void load_values(float *m, const float *from, const scan_args &a, const chunk &c, int h, int c0,
                     int cols)
{
    const i64 wide = (i64)a.H * a.V, at = (i64)h * a.V + c0;
    if (from)
        load_tile<AF_TILE>(m, LT, from + c.row * wide + at, wide, c.len, cols, CHUNK);
    else
        load_tile<AF_TILE>(m, LT, a.x + c.row * a.ldx + a.v_from + at, a.ldx, c.len, cols, CHUNK);
}
/* Rows of m times a factor each. */
DEV void scale_rows(float *m, const float *factor)
{
    for (int i = threadIdx.x; i < CHUNK * AF_TILE; i += 256)
        m[i / AF_TILE * LT + i % AF_TILE] *= factor[i / AF_TILE];
}
/* What rows add to the state; without delta that is beta v, which nobody stores. Ends in step. */
DEV void load_added(float *m, const float *dmat, const decays &d, const scan_args &a,
                    const chunk &c, int h, int c0, int cols)
{
    load_values(m, a.delta ? dmat : 0, a, c, h, c0, cols);
    loaded();
    if (!a.delta) {
        scale_rows(m, d.beta);
        __syncthreads();
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
/* Tiles of a head's values, the first column of one, and its columns. */
DEV int tiles_of(const scan_args &a) { return (a.V + AF_TILE - 1) / AF_TILE; }
DEV int columns_of(const scan_args &a, int c0) { return min(a.V - c0, AF_TILE); }
#endif
