/* delta.cuh - what the kernels of the gated delta rule with keys and values of 128 share; chunks as
 * in scan.cuh, operands in bf16 on tensor cores, sums in f32.
 *
 * Matrices in shared memory have rows of LDW (128 columns) or LDC (64), an odd multiple of 16
 * bytes, so that ldmatrix meets no bank twice. Blocks have 256 threads. */
#ifndef AF_DELTA_CUH
#define AF_DELTA_CUH
#include "state.cuh"

#define CHUNK 64
#define DIM   128 /* of keys and of values */
#define LDW   (DIM + 8)
#define LDC   (CHUNK + 8)
#define SCALE 0.08838834764831845f /* DIM^-1/2 */

extern __shared__ bf16 tiles[];

/* As delta_args of delta_cuda.c. In the workspace: q, k [N][J][128], of length 1; w [N][H][128] =
 * (1 + M)^-1 (beta exp(G) k); d [N][H][128]; G f32 [slot][H][64], from the chunk's first row on. */
struct delta_args {
    const bf16 *x;
    const float *decay;
    const void *beta;
    const int *bounds;
    bf16 *q, *k, *w, *d;
    float *G;
    i64 ldx, ld_decay, ld_beta;
    int beta_type, N, S, H, J;
};

/* One chunk of one head: sequence and rows (len 0 = nothing there). */
struct chunk {
    int slot, row, len, h, kh;
    i64 at; /* slot * H + h */
};

DEV chunk chunk_at(const delta_args &a, int slot, int row, int end, int h)
{
    const int left = end - row;
    return {slot, row, left < CHUNK ? left : CHUNK, h, h / (a.H / a.J), (i64)slot * a.H + h};
}
/* Block (slot, h). */
DEV chunk chunk_of(const delta_args &a)
{
    const int slot = blockIdx.x;
    int lo = 0, hi = a.S; /* the last s whose first slot is not after this one */
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (a.bounds[mid] / CHUNK + mid <= slot)
            lo = mid;
        else
            hi = mid;
    }
    const int i = slot - a.bounds[lo] / CHUNK - lo, row = a.bounds[lo] + i * CHUNK;
    chunk c = chunk_at(a, slot, row, a.bounds[lo + 1], blockIdx.y);
    if (i < 0 || c.len < 0)
        c.len = 0;
    return c;
}

/* `len` rows of COLS values into m, zeros up to 64 rows, by asynchronous copies. */
template <int COLS> DEV void fetch(bf16 *m, const bf16 *from, i64 ldg, int len)
{
    constexpr int LD = COLS + 8, PER = COLS / 8;
#pragma unroll
    for (int i = threadIdx.x; i < CHUNK * PER; i += 256) {
        const int r = i / PER, c = i % PER * 8;
        copy16(smem_at(m + r * LD + c), from + (r < len ? r * ldg : 0) + c, r < len ? 16 : 0);
    }
}
DEV void fetch_q(bf16 *m, const delta_args &a, const chunk &c)
{
    fetch<DIM>(m, a.q + ((i64)c.row * a.J + c.kh) * DIM, (i64)a.J * DIM, c.len);
}
DEV void fetch_k(bf16 *m, const delta_args &a, const chunk &c)
{
    fetch<DIM>(m, a.k + ((i64)c.row * a.J + c.kh) * DIM, (i64)a.J * DIM, c.len);
}
/* Rows of head h of an [N][H][128] array. */
DEV const bf16 *head_rows(const bf16 *p, const delta_args &a, const chunk &c)
{
    return p + ((i64)c.row * a.H + c.h) * DIM;
}
DEV void fetch_head(bf16 *m, const bf16 *p, const delta_args &a, const chunk &c)
{
    fetch<DIM>(m, head_rows(p, a, c), (i64)a.H * DIM, c.len);
}
DEV void arrived()
{
    copy_commit();
    copy_wait<0>();
    __syncthreads();
}

/* acc[i][j] += rows m0 + 16 i of a times columns n0 + 8 j of b over k values. A_T: a is stored
 * [k][m]; B_T: b is stored [n][k]. One warp. */
template <bool A_T, bool B_T, int MT, int NT>
DEV void product(float (&acc)[MT][NT][4], const bf16 *a, int lda, int m0, const bf16 *b, int ldb,
                 int n0, int k)
{
    const int lane = threadIdx.x % 32, low = lane % 16, high = lane / 16 * 8;
    const int flip_k = high + lane % 8, flip_m = lane / 8 % 2 * 8;
#pragma unroll 4
    for (int k0 = 0; k0 < k; k0 += 16) {
        u32 fb[NT / 2][4];
#pragma unroll
        for (int j = 0; j < NT / 2; j++)
            if (B_T)
                ldmatrix4(fb[j], smem_at(b + (n0 + 16 * j + low) * ldb + k0 + high));
            else
                ldmatrix4_trans(fb[j], smem_at(b + (k0 + low) * ldb + n0 + 16 * j + high));
#pragma unroll
        for (int i = 0; i < MT; i++) {
            u32 fa[4];
            if (A_T)
                ldmatrix4_trans(fa, smem_at(a + (k0 + flip_k) * lda + m0 + 16 * i + flip_m));
            else
                ldmatrix4(fa, smem_at(a + (m0 + 16 * i + low) * lda + k0 + high));
#pragma unroll
            for (int j = 0; j < NT; j++)
                mma(acc[i][j], fa, fb[j / 2][B_T ? j % 2 : j % 2 * 2],
                    fb[j / 2][B_T ? j % 2 + 2 : j % 2 * 2 + 1]);
        }
    }
}

/* f(row, column, two neighbouring sums) for all values of acc. */
template <int MT, int NT, class F> DEV void each(float (&acc)[MT][NT][4], int m0, int n0, F f)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int j = 0; j < NT; j++)
                f(m0 + 16 * i + g + 8 * e, n0 + 8 * j + 2 * t, acc[i][j][2 * e],
                  acc[i][j][2 * e + 1]);
}
DEV void put2(bf16 *p, float lo, float hi) { *(u32 *)p = pack_bf16(lo, hi); }
DEV void get2(const bf16 *p, float (&f)[2]) { unpack2((bf16 *)0, *(const u32 *)p, f); }

/* A [64][128] matrix from shared memory to rows of ldg in device memory. */
DEV void put_rows(bf16 *to, i64 ldg, const bf16 *m, int len)
{
#pragma unroll
    for (int i = threadIdx.x; i < CHUNK * DIM / 8; i += 256) {
        const int r = i / (DIM / 8), c = i % (DIM / 8) * 8;
        if (r < len)
            *(uint4 *)(to + r * ldg + c) = *(const uint4 *)(m + r * LDW + c);
    }
}

/* score = SCALE exp(G[t] - G[i]) q[t].k[i], i <= t, as bf16 [64][LDC]. All warps, 16 x 32 each. */
DEV void make_score(bf16 *score, const bf16 *q, const bf16 *k, const float *G)
{
    const int warp = threadIdx.x / 32, m0 = warp / 2 * 16, n0 = warp % 2 * 32;
    float acc[1][4][4] = {};
    product<false, true>(acc, q, LDW, m0, k, LDW, n0, DIM);
    each(acc, m0, n0, [&](int t, int i, float &v0, float &v1) {
        const float a = i <= t ? v0 * SCALE * expf(G[t] - G[i]) : 0.0f;
        const float b = i + 1 <= t ? v1 * SCALE * expf(G[t] - G[i + 1]) : 0.0f;
        put2(score + t * LDC + i, a, b);
    });
}
#endif
