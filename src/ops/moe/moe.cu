/* moe.cu - the products of experts.  Contract: moe.c; twins: moe_linear_cpu.c, moe_cpu.c.
 *
 * Built with AF_T (activations) and AF_VEC (values of one access). Slots: moe_route.cu. The GEMMs
 * run over slots in tiles of 64 that never cross an expert; sums are f32 and in a fixed order.
 * They take any shape; those of moe_sm90.cu are the fast ones. */
// variants: AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1
// common: AF_T=bf16 AF_VEC=8
#include "dev.cuh"

/* ---- GEMMs over slots ---- */
#define TILE 64
#define KS   16

/* A tile of sums += rows of x times a matrix; both sides pass through shared memory. x has K
 * columns, row of slot s is list[s] / div, or s without a list; b is [N][K], or [K][N] with nn. */
struct product {
    const AF_T *x;
    long long ld;
    const int *list;
    const AF_T *b;
    int div, K;
};
DEV void multiply(float (&sum)[4][4], const product &o, int s0, int end, int n0, int N, int nn)
{
    __shared__ float as[KS][TILE + 4], bs[KS][TILE + 4];
    const int t = threadIdx.x, tr = t / 16 * 4, tn = t % 16 * 4;
    for (int k0 = 0; k0 < o.K; k0 += KS) {
        for (int i = t; i < TILE * KS; i += 256) {
            const int r = i / KS, k = i % KS, s = s0 + r;
            float v = 0.0f;
            if (s < end && k0 + k < o.K) {
                const long long row = o.list ? o.list[s] / o.div : s;
                v = load(o.x + row * o.ld + k0 + k);
            }
            as[k][r] = v;
            const int bn = nn ? i % TILE : i / KS, bk = nn ? i / TILE : i % KS;
            const long long n = n0 + bn, kk = k0 + bk;
            bs[bk][bn] = n < N && kk < o.K ? load(o.b + (nn ? kk * N + n : n * o.K + kk)) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < KS; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(as[k][tr + i], bs[k][tn + j], sum[i][j]);
        __syncthreads();
    }
}
/* c[s] = alpha * x(s) b[e] + x2[s] b2[e] + bias[e]; K2 is 0 without a second product. One block a
 * 64 x 64 tile, 256 threads of 4 x 4. */
extern "C" __global__ void __launch_bounds__(256)
    moe_product(AF_T *c, long long ldc, const float *bias, float alpha, const AF_T *x,
                long long ldx, const int *list, int div, const AF_T *b, int K, const AF_T *x2,
                long long ldx2, const AF_T *b2, int K2, const int *start, int X, int N, int nn)
{
    int tile = blockIdx.y, e = 0;
    for (; e < X; e++) { /* which expert has this tile */
        const int tiles = (start[e + 1] - start[e] + TILE - 1) / TILE;
        if (tile < tiles)
            break;
        tile -= tiles;
    }
    if (e == X)
        return;
    const int s0 = start[e] + tile * TILE, end = start[e + 1], n0 = blockIdx.x * TILE;
    const int tr = threadIdx.x / 16 * 4, tn = threadIdx.x % 16 * 4;
    const product first = {x, ldx, list, b + (long long)e * N * K, div, K};
    const product second = {x2, ldx2, 0, b2 + (long long)e * N * K2, 1, K2};
    float sum[4][4] = {};
    multiply(sum, first, s0, end, n0, N, nn);
    for (int i = 0; i < 16; i++)
        sum[i / 4][i % 4] *= alpha;
    multiply(sum, second, s0, end, n0, N, nn);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            const int n = n0 + tn + j;
            if (s0 + tr + i < end && n < N)
                store(c + (s0 + tr + i) * ldc + n,
                      sum[i][j] + (bias ? bias[(long long)e * N + n] : 0.0f));
        }
}

/* d[e][m][n] (+)= sum over slots s of e of a[s][m] b[row of s][n]: gradients of the experts. */
extern "C" __global__ void __launch_bounds__(256)
    moe_outer(float *d, const AF_T *a, long long lda, const AF_T *b, long long ldb, const int *list,
              int div, const int *start, int M, int N, int add)
{
    __shared__ float as[KS][TILE + 4], bs[KS][TILE + 4];
    const int e = blockIdx.z, m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;
    const int t = threadIdx.x, tr = t / 16 * 4, tn = t % 16 * 4, end = start[e + 1];
    float sum[4][4] = {};
    for (int s0 = start[e]; s0 < end; s0 += KS) {
        for (int i = t; i < TILE * KS; i += 256) {
            const int k = i / TILE, col = i % TILE, s = s0 + k;
            const long long row = s < end ? (list ? list[s] / div : s) : 0;
            as[k][col] = s < end && m0 + col < M ? load(a + s * lda + m0 + col) : 0.0f;
            bs[k][col] = s < end && n0 + col < N ? load(b + row * ldb + n0 + col) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < KS; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(as[k][tr + i], bs[k][tn + j], sum[i][j]);
        __syncthreads();
    }
    d += (long long)e * M * N;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (m0 + tr + i < M && n0 + tn + j < N) {
                float *to = d + (long long)(m0 + tr + i) * N + n0 + tn + j;
                *to = sum[i][j] + (add ? *to : 0.0f);
            }
}

/* d[e][m] (+)= sum over slots s of e of dy[s][m], in order; one thread a column. */
extern "C" __global__ void moe_dbias(float *d, const AF_T *dy, long long ld, const int *start,
                                     int M, int add)
{
    const int e = blockIdx.y, m = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    if (m >= M)
        return;
    for (int s = start[e]; s < start[e + 1]; s++)
        sum += load(dy + s * ld + m);
    float *to = d + (long long)e * M + m;
    *to = sum + (add ? *to : 0.0f);
}

/* ---- after the GEMMs ---- */
/* y[n] = plus[n] + sum_j w[n][j] out[slot of (n, j)], j in order; w NULL = 1, plus NULL = 0. One
 * block a token. */
extern "C" __global__ void moe_combine(AF_T *y, long long ld, const AF_T *out, long long ldo,
                                       const float *w, const int *slot, int D, int k,
                                       const AF_T *plus, long long ldp)
{
    const long long n = blockIdx.x;
    for (int d = threadIdx.x * AF_VEC; d < D; d += blockDim.x * AF_VEC) {
        float sum[AF_VEC] = {}, v[AF_VEC];
        if (plus)
            load_n(sum, plus + n * ldp + d);
        for (int j = 0; j < k; j++) {
            const float by = w ? w[n * k + j] : 1.0f;
            load_n(v, out + slot[n * k + j] * ldo + d);
#pragma unroll
            for (int i = 0; i < AF_VEC; i++)
                sum[i] += by * v[i];
        }
        store_n(y + n * ld + d, sum);
    }
}

/* dweights[p] = dy[n] . out[slot of p]; dout[slot] = w[p] * dy[n], which may lie where out does.
 * One block a pair. */
extern "C" __global__ void moe_combine_bwd(AF_T *dout, long long ldd, float *dweights,
                                           const AF_T *out, long long ldo, const AF_T *dy,
                                           long long ld, const float *w, const int *slot, int D,
                                           int k)
{
    const long long p = blockIdx.x, n = p / k, s = slot[p];
    float dot = 0.0f;
    for (int d = threadIdx.x * AF_VEC; d < D; d += blockDim.x * AF_VEC) {
        float g[AF_VEC], v[AF_VEC];
        load_n(g, dy + n * ld + d);
        load_n(v, out + s * ldo + d);
#pragma unroll
        for (int i = 0; i < AF_VEC; i++) {
            dot += g[i] * v[i];
            g[i] *= w[p];
        }
        store_n(dout + s * ldd + d, g);
    }
    dot = block_sum(dot);
    if (threadIdx.x == 0)
        dweights[p] = dot;
}
