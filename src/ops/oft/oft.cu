/* oft.cu - rotations of orthogonal fine-tuning.  Contract: oft.c; twin: oft_cpu.c.
 *
 * Blocks of q are small: one thread block makes all powers of one, its matrices in shared memory,
 * or in `space` (global memory, which stays in the caches). Of oft_rotate a thread block has ROWS
 * rows of TILE columns, of oft_rotate_dr a tile of TILE x TILE values; a thread has 4 x 4 of them,
 * so that it multiplies as often as it can. Sums are f32 in a fixed order. */
// variants: AF_T=bf16,half,float
#include "dev.cuh"

#ifndef NEAR
#define NEAR 32 /* blocks whose matrices are in shared memory */
#endif
#define TILE    32
#define ROWS    128
#define THREADS 256
#define EACH    4             /* rows, and columns, of a thread */
#define LANES   (TILE / EACH) /* threads along a row of a tile */
#define PITCH   (TILE + EACH) /* whole float4, neighbouring rows in other banks */
#define APART   (ROWS / EACH) /* rows of a thread */

/* Q[i][j] of an upper triangle. */
DEV float skew(const float *q, int i, int j, int n)
{
    const i64 low = min(i, j), high = max(i, j);
    const float v = i == j ? 0.0f : q[low * n - low * (low + 1) / 2 + high - low - 1];
    return i < j ? v : -v;
}

/* The factor of Q^k in the series. */
DEV float factor(int k, int last) { return k == 0 || (k == last && last > 2) ? 1.0f : 2.0f; }

/* Matrices of the series have rows of `ld` values, an odd number, for the banks of shared memory.
 */
DEV void put_skew(float *out, const float *q, int n, int ld)
{
    for (int at = threadIdx.x; at < n * n; at += THREADS)
        out[at / n * ld + at % n] = skew(q, at / n, at % n, n);
}

/* out = f I */
DEV void put_identity(float *out, float f, int n, int ld)
{
    for (int at = threadIdx.x; at < n * n; at += THREADS)
        out[at / n * ld + at % n] = at % (n + 1) ? 0.0f : f;
    __syncthreads();
}

/* out = f I + Q p; rows of `out` have `to` values */
DEV void put_next(float *out, int to, const float *Q, const float *p, float f, int n, int ld)
{
    for (int at = threadIdx.x; at < n * n; at += THREADS) {
        const int i = at / n, j = at % n;
        float sum = i == j ? f : 0.0f;
        for (int k = 0; k < n; k++)
            sum = fmaf(Q[i * ld + k], p[k * ld + j], sum);
        out[i * to + j] = sum;
    }
    __syncthreads();
}

/* r = 2 (I + Q)^-1 - I, with m = I + Q, of which columns up to the pivot are not needed again. */
DEV void put_exact(float *r, float *m, const float *q, int n)
{
    for (int at = threadIdx.x; at < n * n; at += THREADS)
        m[at] = skew(q, at / n, at % n, n) + (at % (n + 1) ? 0.0f : 1.0f);
    put_identity(r, 1.0f, n, n);
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

/* Thread block b makes r[b]; space [blocks][3][n][ld], of which blocks up to NEAR need none. */
extern "C" __global__ void __launch_bounds__(THREADS)
    oft_blocks(float *r, float *space, const float *q, int n, int last, int exact)
{
    __shared__ float near[3 * NEAR * (NEAR + 1)];
    const int ld = n | 1, size = n * ld;
    r += (i64)blockIdx.x * n * n;
    space += (i64)blockIdx.x * 3 * size;
    q += (i64)blockIdx.x * n * (n - 1) / 2;
    if (exact) {
        put_exact(r, space, q, n);
        return;
    }
    float *const Q = n <= NEAR ? near : space;
    float *p = Q + size, *next = p + size;
    put_skew(Q, q, n, ld);
    put_identity(p, factor(last, last), n, ld);
    for (int k = last - 1; k >= 0; k--) {
        put_next(k ? next : r, k ? ld : n, Q, p, factor(k, last), n, ld);
        float *const other = p;
        p = next;
        next = other;
    }
    if (last == 0)
        put_identity(r, 1.0f, n, n);
}

/* to = dr p^T + Q^T a */
DEV void put_back(float *to, const float *dr, const float *p, const float *Q, const float *a, int n,
                  int ld)
{
    for (int at = threadIdx.x; at < n * n; at += THREADS) {
        const int i = at / n, j = at % n;
        float sum = 0.0f;
        for (int k = 0; k < n; k++)
            sum = fmaf(dr[i * n + k], p[j * ld + k], sum);
        for (int k = 0; k < n; k++)
            sum = fmaf(Q[k * ld + i], a[k * ld + j], sum);
        to[i * ld + j] = sum;
    }
    __syncthreads();
}

/* dQ of the exact transform: -1/2 (r + I)^T dr (r + I)^T; rows of `to` have ld values */
DEV void put_exact_back(float *to, float *half_way, const float *r, const float *dr, int n, int ld)
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
        to[i * ld + j] = -0.5f * sum;
    }
    __syncthreads();
}

/* Thread block b makes dq[b]; space [blocks][5][n][ld], as above. */
extern "C" __global__ void __launch_bounds__(THREADS)
    oft_blocks_bwd(float *dq, float *space, const float *q, const float *r, const float *dr, int n,
                   int last, int exact, int accumulate)
{
    __shared__ float near[5 * NEAR * (NEAR + 1)];
    const int ld = n | 1, size = n * ld;
    const i64 nn = (i64)n * n;
    r += blockIdx.x * nn;
    dr += blockIdx.x * nn;
    dq += (i64)blockIdx.x * n * (n - 1) / 2;
    q += (i64)blockIdx.x * n * (n - 1) / 2;
    float *const Q = n <= NEAR ? near : space + (i64)blockIdx.x * 5 * size;
    float *p = Q + size, *next_p = p + size, *a = next_p + size, *next_a = a + size;
    put_skew(Q, q, n, ld);
    put_identity(p, factor(last, last), n, ld);
    put_identity(a, 0.0f, n, ld);
    if (exact)
        put_exact_back(a, next_a, r, dr, n, ld);
    for (int k = last; k > 0 && !exact; k--) {
        if (k < last) {
            put_next(next_p, ld, Q, p, factor(k, last), n, ld);
            float *const other = p;
            p = next_p;
            next_p = other;
        }
        put_back(next_a, dr, p, Q, a, n, ld);
        float *const other = a;
        a = next_a;
        next_a = other;
    }
    for (int at = threadIdx.x; at < n * n; at += THREADS) {
        const i64 i = at / n, j = at % n;
        const i64 to = i * n - i * (i + 1) / 2 + j - i - 1;
        if (i < j)
            dq[to] = (accumulate ? dq[to] : 0.0f) + a[i * ld + j] - a[j * ld + i];
    }
}

/* Four values from column c on of a row of n; zeros after its end, and for missing rows. */
template <class T> DEV void load_four(float (&v)[EACH], const T *row, int c, int n, bool there)
{
    if (there && c + EACH <= n && n % EACH == 0) {
        load_n(v, row + c);
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        v[i] = there && c + i < n ? load(row + c + i) : 0.0f;
}
DEV void put_four(float *to, const float (&v)[EACH]) { *(float4 *)to = {v[0], v[1], v[2], v[3]}; }
DEV void get_four(float (&v)[EACH], const float *from)
{
    const float4 f = *(const float4 *)from;
    v[0] = f.x;
    v[1] = f.y;
    v[2] = f.z;
    v[3] = f.w;
}

/* TILE values of ROWS rows, from row `row0` (of N) and column c (of n) on. */
DEV void stage_rows(float (*to)[PITCH], const AF_T *x, i64 row0, i64 N, i64 I, int c, int n)
{
    const int at = threadIdx.x % LANES * EACH, first = threadIdx.x / LANES;
    for (int row = first; row < ROWS; row += THREADS / LANES) {
        float v[EACH];
        load_four(v, x + (row0 + row) * I, c + at, n, row0 + row < N);
        put_four(&to[row][at], v);
    }
}

/* Thread block (x, y) has ROWS rows, and columns of one block: y counts tiles of columns block
 * after block. A single r serves all blocks. */
extern "C" __global__ void __launch_bounds__(THREADS)
    oft_rotate(AF_T *y, const AF_T *x, const float *r, i64 N, i64 I, int n, int single, int turned)
{
    __shared__ __align__(16) float xs[ROWS][PITCH], rs[TILE][PITCH];
    const int tiles = (n + TILE - 1) / TILE, at = threadIdx.x % LANES * EACH,
              own = threadIdx.x / LANES;
    const i64 block = blockIdx.y / tiles, row0 = (i64)blockIdx.x * ROWS, first = block * n;
    const int c0 = blockIdx.y % tiles * TILE;
    float sum[EACH][EACH] = {};
    r += single ? 0 : block * n * n;
    for (int k0 = 0; k0 < n; k0 += TILE) {
        float v[EACH];
        stage_rows(xs, x + first, row0, N, I, k0, n);
        if (turned) {
            load_four(v, r + (i64)(c0 + own) * n, k0 + at, n, c0 + own < n);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                rs[at + i][own] = v[i];
        } else {
            load_four(v, r + (i64)(k0 + own) * n, c0 + at, n, k0 + own < n);
            put_four(&rs[own][at], v);
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < TILE; k += EACH) {
            float a[EACH][EACH];
#pragma unroll
            for (int e = 0; e < EACH; e++)
                get_four(a[e], &xs[own + e * APART][k]);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                get_four(v, &rs[k + i][at]);
#pragma unroll
                for (int e = 0; e < EACH; e++)
#pragma unroll
                    for (int c = 0; c < EACH; c++)
                        sum[e][c] = fmaf(a[e][i], v[c], sum[e][c]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const i64 row = row0 + own + e * APART;
        AF_T *const to = y + row * I + first + c0 + at;
        if (row < N && n % EACH == 0 && c0 + at < n) {
            store_n(to, sum[e]);
        } else {
            for (int c = 0; row < N && c < EACH && c0 + at + c < n; c++)
                store(to + c, sum[e][c]);
        }
    }
}

/* Thread block (x, y, z) has tile x of part z of dr[y]: of `per` rows, a multiple of ROWS. A
 * quarter of the threads has a quarter of them. */
extern "C" __global__ void __launch_bounds__(THREADS)
    oft_rotate_dr(float *dr, const AF_T *x, const AF_T *dy, i64 N, i64 I, int n, i64 per)
{
    __shared__ __align__(16) float xs[ROWS][PITCH], ys[ROWS][PITCH];
    const int tiles = (n + TILE - 1) / TILE, group = threadIdx.x / (LANES * LANES);
    const int k0 = blockIdx.x / tiles * TILE, c0 = blockIdx.x % tiles * TILE;
    const int at = threadIdx.x % LANES * EACH, own = threadIdx.x / LANES % LANES * EACH;
    const i64 first = (i64)blockIdx.y * n, to_row = min(N, (blockIdx.z + 1) * per);
    float sum[EACH][EACH] = {};
    for (i64 row0 = blockIdx.z * per; row0 < to_row; row0 += ROWS) {
        stage_rows(xs, x + first, row0, to_row, I, k0, n);
        stage_rows(ys, dy + first, row0, to_row, I, c0, n);
        __syncthreads();
#pragma unroll 4
        for (int row = group * APART; row < (group + 1) * APART; row++) {
            float a[EACH], b[EACH];
            get_four(a, &xs[row][own]);
            get_four(b, &ys[row][at]);
#pragma unroll
            for (int e = 0; e < EACH; e++)
#pragma unroll
                for (int c = 0; c < EACH; c++)
                    sum[e][c] = fmaf(a[e], b[c], sum[e][c]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        put_four(&xs[group * TILE + own + e][at], sum[e]);
    __syncthreads();
    dr += (blockIdx.z * (i64)gridDim.y + blockIdx.y) * n * n;
    const int k = threadIdx.x / LANES;
#pragma unroll
    for (int c = at; c < at + EACH; c++) {
        float all = 0.0f;
        for (int g = 0; g < ROWS / TILE; g++)
            all += xs[g * TILE + k][c];
        if (k0 + k < n && c0 + c < n)
            dr[(i64)(k0 + k) * n + c0 + c] = all;
    }
}
