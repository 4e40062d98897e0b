/* oft.cu - rotations of orthogonal fine-tuning.  Contract: oft.c; twin: oft_cpu.c.
 *
 * Blocks of q are small: one thread block makes all powers of one, its matrices [n][n] in `space`
 * (global memory, which stays in the caches). A thread block of oft_rotate and oft_rotate_dr has a
 * tile of TILE x TILE values of its result. Sums are f32 in a fixed order. */
// variants: AF_T=bf16,half,float
#include "dev.cuh"

#define TILE    32
#define THREADS 256
#define EACH    (TILE * TILE / THREADS) /* values of a thread, THREADS / TILE rows apart */

/* Q[i][j] of an upper triangle. */
DEV float skew(const float *q, int i, int j, int n)
{
    const i64 low = min(i, j), high = max(i, j);
    const float v = i == j ? 0.0f : q[low * n - low * (low + 1) / 2 + high - low - 1];
    return i < j ? v : -v;
}

/* The factor of Q^k in the series. */
DEV float factor(int k, int last) { return k == 0 || (k == last && last > 2) ? 1.0f : 2.0f; }

/* out = f I */
DEV void put_identity(float *out, float f, int n)
{
    for (int i = threadIdx.x; i < n * n; i += THREADS)
        out[i] = i % (n + 1) ? 0.0f : f;
    __syncthreads();
}

/* out = f I + Q p */
DEV void put_next(float *out, const float *q, const float *p, float f, int n)
{
    for (int at = threadIdx.x; at < n * n; at += THREADS) {
        const int i = at / n, j = at % n;
        float sum = i == j ? f : 0.0f;
        for (int k = 0; k < n; k++)
            sum = fmaf(skew(q, i, k, n), p[k * n + j], sum);
        out[at] = sum;
    }
    __syncthreads();
}

/* r = 2 (I + Q)^-1 - I, with m = I + Q, of which columns up to the pivot are not needed again. */
DEV void put_exact(float *r, float *m, const float *q, int n)
{
    for (int at = threadIdx.x; at < n * n; at += THREADS)
        m[at] = skew(q, at / n, at % n, n) + (at % (n + 1) ? 0.0f : 1.0f);
    put_identity(r, 1.0f, n);
    for (int p = 0; p < n; p++) {
        const float d = 1.0f / m[p * n + p];
        for (int j = threadIdx.x; j < n; j += THREADS) {
            r[p * n + j] *= d;
            if (j > p)
                m[p * n + j] *= d;
        }
        __syncthreads();
        for (int at = threadIdx.x; at < n * n; at += THREADS) {
            const int i = at / n, j = at % n;
            if (i == p)
                continue;
            const float f = m[i * n + p];
            r[at] -= f * r[p * n + j];
            if (j > p)
                m[at] -= f * m[p * n + j];
        }
        __syncthreads();
    }
    for (int at = threadIdx.x; at < n * n; at += THREADS)
        r[at] = 2.0f * r[at] - (at % (n + 1) ? 0.0f : 1.0f);
}

/* Thread block b makes r[b]; space [blocks][n][n]. */
extern "C" __global__ void __launch_bounds__(THREADS)
    oft_blocks(float *r, float *space, const float *q, int n, int last, int exact)
{
    r += (i64)blockIdx.x * n * n;
    space += (i64)blockIdx.x * n * n;
    q += (i64)blockIdx.x * n * (n - 1) / 2;
    if (exact) {
        put_exact(r, space, q, n);
        return;
    }
    float *p = last % 2 ? space : r, *next = last % 2 ? r : space; /* ends in r */
    put_identity(p, factor(last, last), n);
    for (int k = last - 1; k >= 0; k--) {
        put_next(next, q, p, factor(k, last), n);
        float *const other = p;
        p = next;
        next = other;
    }
}

/* to = dr p^T + Q^T a */
DEV void put_back(float *to, const float *dr, const float *p, const float *q, const float *a, int n)
{
    for (int at = threadIdx.x; at < n * n; at += THREADS) {
        const int i = at / n, j = at % n;
        float sum = 0.0f;
        for (int k = 0; k < n; k++)
            sum = fmaf(dr[i * n + k], p[j * n + k], sum);
        for (int k = 0; k < n; k++)
            sum = fmaf(skew(q, k, i, n), a[k * n + j], sum);
        to[at] = sum;
    }
    __syncthreads();
}

/* dQ of the exact transform: -1/2 (r + I)^T dr (r + I)^T */
DEV void put_exact_back(float *to, float *half_way, const float *r, const float *dr, int n)
{
    for (int at = threadIdx.x; at < n * n; at += THREADS) {
        const int i = at / n, j = at % n;
        float sum = dr[at];
        for (int k = 0; k < n; k++)
            sum = fmaf(r[k * n + i], dr[k * n + j], sum);
        half_way[at] = sum;
    }
    __syncthreads();
    for (int at = threadIdx.x; at < n * n; at += THREADS) {
        const int i = at / n, j = at % n;
        float sum = half_way[at];
        for (int k = 0; k < n; k++)
            sum = fmaf(half_way[i * n + k], r[j * n + k], sum);
        to[at] = -0.5f * sum;
    }
    __syncthreads();
}

/* Thread block b makes dq[b]; space [blocks][4][n][n]. */
extern "C" __global__ void __launch_bounds__(THREADS)
    oft_blocks_bwd(float *dq, float *space, const float *q, const float *r, const float *dr, int n,
                   int last, int exact, int accumulate)
{
    const i64 nn = (i64)n * n;
    r += blockIdx.x * nn;
    dr += blockIdx.x * nn;
    space += blockIdx.x * 4 * nn;
    dq += (i64)blockIdx.x * n * (n - 1) / 2;
    q += (i64)blockIdx.x * n * (n - 1) / 2;
    float *p = space, *next_p = p + nn, *a = next_p + nn, *next_a = a + nn;
    put_identity(p, factor(last, last), n);
    put_identity(a, 0.0f, n);
    if (exact)
        put_exact_back(a, next_a, r, dr, n);
    for (int k = last; k > 0 && !exact; k--) {
        if (k < last) {
            put_next(next_p, q, p, factor(k, last), n);
            float *const other = p;
            p = next_p;
            next_p = other;
        }
        put_back(next_a, dr, p, q, a, n);
        float *const other = a;
        a = next_a;
        next_a = other;
    }
    for (int at = threadIdx.x; at < n * n; at += THREADS) {
        const i64 i = at / n, j = at % n;
        const i64 to = i * n - i * (i + 1) / 2 + j - i - 1;
        if (i < j)
            dq[to] = (accumulate ? dq[to] : 0.0f) + a[i * n + j] - a[j * n + i];
    }
}

/* Thread block (x, y) has TILE rows, and columns of one block: y counts tiles of columns block
 * after block. A single r serves all blocks. */
extern "C" __global__ void __launch_bounds__(THREADS)
    oft_rotate(AF_T *y, const AF_T *x, const float *r, i64 N, i64 I, int n, int single, int turned)
{
    __shared__ float xs[TILE][TILE + 1], rs[TILE][TILE + 1];
    const int tiles = (n + TILE - 1) / TILE, tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    const i64 block = blockIdx.y / tiles, row0 = (i64)blockIdx.x * TILE, first = block * n;
    const int c0 = blockIdx.y % tiles * TILE;
    float sum[EACH] = {};
    r += single ? 0 : block * n * n;
    for (int k0 = 0; k0 < n; k0 += TILE) {
        for (int e = 0; e < EACH; e++) {
            const int s = ty + e * (THREADS / TILE);
            const bool in_x = row0 + s < N && k0 + tx < n;
            xs[s][tx] = in_x ? load(x + (row0 + s) * I + first + k0 + tx) : 0.0f;
            if (turned)
                rs[tx][s] = c0 + s < n && k0 + tx < n ? r[(i64)(c0 + s) * n + k0 + tx] : 0.0f;
            else
                rs[s][tx] = k0 + s < n && c0 + tx < n ? r[(i64)(k0 + s) * n + c0 + tx] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            for (int e = 0; e < EACH; e++)
                sum[e] = fmaf(xs[ty + e * (THREADS / TILE)][k], rs[k][tx], sum[e]);
        __syncthreads();
    }
    for (int e = 0; e < EACH; e++) {
        const i64 row = row0 + ty + e * (THREADS / TILE);
        if (row < N && c0 + tx < n)
            store(y + row * I + first + c0 + tx, sum[e]);
    }
}

/* Thread block (x, y) has tile x of dr[y], over all rows. */
extern "C" __global__ void __launch_bounds__(THREADS)
    oft_rotate_dr(float *dr, const AF_T *x, const AF_T *dy, i64 N, i64 I, int n)
{
    __shared__ float xs[TILE][TILE + 1], ys[TILE][TILE + 1];
    const int tiles = (n + TILE - 1) / TILE, tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    const int k0 = blockIdx.x / tiles * TILE, c0 = blockIdx.x % tiles * TILE;
    const i64 first = (i64)blockIdx.y * n;
    float sum[EACH] = {};
    for (i64 row0 = 0; row0 < N; row0 += TILE) {
        for (int e = 0; e < EACH; e++) {
            const int s = ty + e * (THREADS / TILE);
            const i64 at = (row0 + s) * I + first + tx;
            xs[s][tx] = row0 + s < N && k0 + tx < n ? load(x + at + k0) : 0.0f;
            ys[s][tx] = row0 + s < N && c0 + tx < n ? load(dy + at + c0) : 0.0f;
        }
        __syncthreads();
        for (int row = 0; row < TILE; row++)
            for (int e = 0; e < EACH; e++)
                sum[e] = fmaf(xs[row][ty + e * (THREADS / TILE)], ys[row][tx], sum[e]);
        __syncthreads();
    }
    dr += (i64)blockIdx.y * n * n;
    for (int e = 0; e < EACH; e++) {
        const int k = k0 + ty + e * (THREADS / TILE);
        if (k < n && c0 + tx < n)
            dr[(i64)k * n + c0 + tx] = sum[e];
    }
}
