/* moe.cu - mixture of experts: router and experts.  Contract: moe.c; twin: moe_cpu.c.
 *
 * Built with AF_T (activations).  A pair p = n*k + j is token n at its j-th expert. Pairs are
 * listed by expert, in order: slot s of the list is pair list[s], slots start[e] .. start[e+1]
 * belong to expert e. The GEMMs run over slots in tiles of 64 that never cross an expert; sums
 * are f32 and in a fixed order. */
// variants: AF_T=bf16,float,half
#include "dev.cuh"

/* ---- router: one warp per row ---- */
extern "C" __global__ void __launch_bounds__(128)
    moe_route(float *weights, int *index, float *probs, const AF_T *logits, long long ld,
              long long N, int X, int k, int norm)
{
    const long long n = (long long)blockIdx.x * 4 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (n >= N)
        return;
    logits += n * ld;
    float top = -INF, sum = 0.0f;
    for (int e = lane; e < X; e += 32)
        top = fmaxf(top, load(logits + e));
    for (int o = 16; o > 0; o /= 2)
        top = fmaxf(top, __shfl_xor_sync(FULL, top, o));
    for (int e = lane; e < X; e += 32)
        sum += expf(load(logits + e) - top);
    for (int o = 16; o > 0; o /= 2)
        sum += __shfl_xor_sync(FULL, sum, o);
    for (int e = lane; e < X; e += 32)
        probs[n * X + e] = expf(load(logits + e) - top) / sum;
    float total = 0.0f;
    for (int j = 0; j < k; j++) {
        float best = -INF;
        int at = 0x7fffffff;
        for (int e = lane; e < X; e += 32) {
            bool taken = false;
            for (int i = 0; i < j; i++)
                taken |= index[n * k + i] == e;
            const float z = load(logits + e);
            if (!taken && (z > best || at == 0x7fffffff)) {
                best = z;
                at = e;
            }
        }
        for (int o = 16; o > 0; o /= 2) {
            const float b = __shfl_xor_sync(FULL, best, o);
            const int a = __shfl_xor_sync(FULL, at, o);
            if (b > best || (b == best && a < at)) {
                best = b;
                at = a;
            }
        }
        if (lane == 0)
            index[n * k + j] = at;
        __syncwarp();
        total += expf(best - top) / sum;
    }
    for (int j = lane; j < k; j += 32)
        weights[n * k + j] =
            expf(load(logits + index[n * k + j]) - top) / sum / (norm ? total : 1.0f);
}

extern "C" __global__ void __launch_bounds__(128)
    moe_route_bwd(AF_T *dlogits, long long ld, const float *probs, const int *index,
                  const float *dw, long long N, int X, int k, int norm)
{
    const long long n = (long long)blockIdx.x * 4 + threadIdx.x / 32;
    if (n >= N)
        return;
    probs += n * X;
    index += n * k;
    float top = norm ? 0.0f : 1.0f, mean = 0.0f, dot = 0.0f;
    for (int j = 0; j < k && norm; j++)
        top += probs[index[j]];
    for (int j = 0; j < k && norm; j++)
        mean += dw[n * k + j] * probs[index[j]] / top;
    for (int j = 0; j < k; j++)
        dot += probs[index[j]] * (dw[n * k + j] - mean) / top;
    for (int e = threadIdx.x % 32; e < X; e += 32) {
        float dp = 0.0f;
        for (int j = 0; j < k; j++)
            dp += index[j] == e ? (dw[n * k + j] - mean) / top : 0.0f;
        store(dlogits + n * ld + e, probs[e] * (dp - dot));
    }
}

/* ---- the list: one warp per expert ---- */
extern "C" __global__ void moe_list(int *list, int *slot, int *start, const int *index, int P,
                                    int X)
{
    const int e = blockIdx.x, lane = threadIdx.x;
    int at = 0, total = 0;
    for (int p = lane; p < P; p += 32)
        at += index[p] < e;
    at = __reduce_add_sync(FULL, at);
    if (lane == 0)
        start[e] = at;
    for (int p0 = 0; p0 < P; p0 += 32) {
        const int p = p0 + lane;
        const bool mine = p < P && index[p] == e;
        const unsigned votes = __ballot_sync(FULL, mine);
        if (mine) {
            const int s = at + total + __popc(votes & ((1u << lane) - 1));
            list[s] = p;
            slot[p] = s;
        }
        total += __popc(votes);
    }
    if (lane == 0 && e == X - 1)
        start[X] = at + total;
}

/* ---- GEMMs over slots ---- */
#define TILE 64
#define KS   16

/* c[s][n] = sum_k a[row of s][k] b[e](n, k); row of s = list[s] / div, or s itself without a list.
 * b of an expert is [N][K], or [K][N] with nn. One block a 64 x 64 tile, 256 threads of 4 x 4. */
extern "C" __global__ void __launch_bounds__(256)
    moe_product(AF_T *c, const AF_T *a, long long lda, const int *list, int div, const AF_T *b,
                const int *start, int X, int N, int K, int nn)
{
    __shared__ float as[KS][TILE + 4], bs[KS][TILE + 4];
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
    const int t = threadIdx.x, tr = t / 16 * 4, tn = t % 16 * 4;
    b += (long long)e * N * K;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += KS) {
        for (int i = t; i < TILE * KS; i += 256) {
            const int r = i / KS, k = i % KS, s = s0 + r;
            float v = 0.0f;
            if (s < end && k0 + k < K) {
                const long long row = list ? list[s] / div : s;
                v = load(a + row * lda + k0 + k);
            }
            as[k][r] = v;
            const int bn = nn ? i % TILE : i / KS, bk = nn ? i / TILE : i % KS;
            const long long n = n0 + bn, kk = k0 + bk;
            bs[bk][bn] = n < N && kk < K ? load(b + (nn ? kk * N + n : n * K + kk)) : 0.0f;
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
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (s0 + tr + i < end && n0 + tn + j < N)
                store(c + (long long)(s0 + tr + i) * N + n0 + tn + j, sum[i][j]);
}

/* d[e][m][n] (+)= sum over slots s of e of a[s][m] b[row of s][n]: gradients of the experts. */
extern "C" __global__ void __launch_bounds__(256)
    moe_outer(float *d, const AF_T *a, const AF_T *b, long long ldb, const int *list, int div,
              const int *start, int M, int N, int add)
{
    __shared__ float as[KS][TILE + 4], bs[KS][TILE + 4];
    const int e = blockIdx.z, m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;
    const int t = threadIdx.x, tr = t / 16 * 4, tn = t % 16 * 4, end = start[e + 1];
    float sum[4][4] = {};
    for (int s0 = start[e]; s0 < end; s0 += KS) {
        for (int i = t; i < TILE * KS; i += 256) {
            const int k = i / TILE, col = i % TILE, s = s0 + k;
            const long long row = s < end ? (list ? list[s] / div : s) : 0;
            as[k][col] = s < end && m0 + col < M ? load(a + (long long)s * M + m0 + col) : 0.0f;
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

/* ---- after the GEMMs ---- */
/* y[n] = sum_j w[n][j] out[slot of (n, j)], j in order; w NULL = 1. One block per token. */
extern "C" __global__ void moe_combine(AF_T *y, long long ld, const AF_T *out, const float *w,
                                       const int *slot, int D, int k)
{
    const long long n = blockIdx.x;
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        float sum = 0.0f;
        for (int j = 0; j < k; j++)
            sum += (w ? w[n * k + j] : 1.0f) * load(out + (long long)slot[n * k + j] * D + d);
        store(y + n * ld + d, sum);
    }
}

/* dweights[p] = dy[n] . out[slot of p]; dout[slot] = w[p] * dy[n], which may lie where out does.
 * One block per pair. */
extern "C" __global__ void moe_combine_bwd(AF_T *dout, float *dweights, const AF_T *out,
                                           const AF_T *dy, long long ld, const float *w,
                                           const int *slot, int D, int k)
{
    const long long p = blockIdx.x, n = p / k, at = (long long)slot[p] * D;
    float dot = 0.0f;
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        const float g = load(dy + n * ld + d);
        dot += g * load(out + at + d);
        store(dout + at + d, w[p] * g);
    }
    dot = block_sum(dot);
    if (threadIdx.x == 0)
        dweights[p] = dot;
}
