/* delta.cu - the gated delta rule by chunks on tensor cores, forward.  Contract and formulas:
 * scan.c; twin: scan_cpu.c; any sizes: scan.cu.
 *
 * delta_norm makes keys and queries of length 1; delta_prepare solves the triangular system of
 * every chunk at once for the two right sides that do not need the state: w of exp(G) k, and u of
 * v, so that d = u - w s0; delta_states passes the state from chunk to chunk with two products;
 * delta_out makes the outputs of every chunk at once. */
// variants: (AF_T=bf16)
// common: (AF_T=bf16)
#include "delta.cuh"

/* A warp per row and key head, queries then keys. */
extern "C" __global__ void __launch_bounds__(256) delta_norm(delta_args a)
{
    const i64 i = blockIdx.x * 8LL + threadIdx.x / 32, all = (i64)a.N * a.J;
    if (i >= 2 * all)
        return;
    const bool keys = i >= all;
    const i64 at = keys ? i - all : i;
    const int lane = threadIdx.x % 32, n = (int)(at / a.J), j = (int)(at % a.J);
    float v[4], ss = 0.0f;
    load_n(v, a.x + n * a.ldx + ((keys ? a.J : 0) + j) * DIM + lane * 4);
#pragma unroll
    for (int e = 0; e < 4; e++)
        ss += v[e] * v[e];
    const float r = rsqrtf(warp_sum(ss) + 1e-6f);
#pragma unroll
    for (int e = 0; e < 4; e++)
        v[e] *= r;
    store_n((keys ? a.k : a.q) + at * DIM + lane * 4, v);
}

#define LDF 65 /* of 64 x 64 matrices in f32 */

/* One level of the inverse: below each pair of inverted blocks of HALF, -x22 (m21 x11). A thread
 * makes R rows of a column. */
template <int HALF> DEV void join_blocks(float *x, const float *m, float *part)
{
    constexpr int PAIRS = CHUNK / 2 / HALF, R = PAIRS * HALF * HALF / 256;
    const int i = threadIdx.x, c = i % HALF, r = i / HALF % (HALF / R) * R,
              pair = i / (HALF * HALF / R), from = pair * 2 * HALF;
    float sum[R] = {};
    for (int k = 0; k < HALF; k++) {
        const float b = x[(from + k) * LDF + from + c];
#pragma unroll
        for (int e = 0; e < R; e++)
            sum[e] += m[(from + HALF + r + e) * LDF + from + k] * b;
    }
#pragma unroll
    for (int e = 0; e < R; e++) {
        part[(pair * HALF + r + e) * HALF + c] = sum[e];
        sum[e] = 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < HALF; k++) {
        const float b = part[(pair * HALF + k) * HALF + c];
#pragma unroll
        for (int e = 0; e < R; e++)
            sum[e] -= x[(from + HALF + r + e) * LDF + from + HALF + k] * b;
    }
#pragma unroll
    for (int e = 0; e < R; e++)
        x[(from + HALF + r + e) * LDF + from + c] = sum[e];
    __syncthreads();
}

/* x = (1 + m)^-1 of a strictly lower m: the four 16 x 16 blocks of the diagonal, a thread per
 * column; then -x22 (m21 x11) for pairs of blocks, twice. */
DEV void invert(float *x, const float *m, float *part)
{
    const int t = threadIdx.x, lane = t % 32;
    for (int i = t; i < CHUNK * CHUNK; i += 256)
        if (i / CHUNK / 16 < i % CHUNK / 16)
            x[i / CHUNK * LDF + i % CHUNK] = 0.0f;
    if (t < 128 && lane < 16) {
        const int b = t / 32 * 16;
        float col[16];
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float v = i == lane ? 1.0f : 0.0f;
#pragma unroll
            for (int j = 0; j < i; j++)
                v -= m[(b + i) * LDF + b + j] * col[j];
            col[i] = v;
        }
#pragma unroll
        for (int i = 0; i < 16; i++)
            x[(b + i) * LDF + b + lane] = col[i];
    }
    __syncthreads();
    join_blocks<16>(x, m, part);
    join_blocks<32>(x, m, part);
}

/* Block (slot, h): w, and u where d will be; G; inverse bf16 [slot][H][64][64], or NULL. */
extern "C" __global__ void __launch_bounds__(256, 2) delta_prepare(bf16 *inverse, delta_args a)
{
    __shared__ float G[CHUNK], beta[CHUNK];
    const chunk c = chunk_of(a);
    if (c.len == 0)
        return;
    bf16 *k = tiles, *v = k + CHUNK * LDW, *aw = v + CHUNK * LDW, *au = aw + CHUNK * LDC;
    float *m = (float *)(au + CHUNK * LDC), *x = m + CHUNK * LDF;
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    fetch_k(k, a, c);
    fetch<DIM>(v, a.x + c.row * a.ldx + (2 * a.J + c.h) * DIM, a.ldx, c.len);
    copy_commit();
    if (warp == 0) { /* G: sums over the first and the second half of the rows */
        float lo = lane < c.len ? a.decay[(i64)(c.row + lane) * a.ld_decay + c.h] : 0.0f;
        float hi = lane + 32 < c.len ? a.decay[(i64)(c.row + lane + 32) * a.ld_decay + c.h] : 0.0f;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const float below = __shfl_up_sync(FULL, lo, d), above = __shfl_up_sync(FULL, hi, d);
            lo += lane >= d ? below : 0.0f;
            hi += lane >= d ? above : 0.0f;
        }
        hi += __shfl_sync(FULL, lo, 31);
        G[lane] = lo;
        G[lane + 32] = hi;
        a.G[c.at * CHUNK + lane] = lo;
        a.G[c.at * CHUNK + lane + 32] = hi;
    } else if (t >= 64 && t < 128) {
        const int n = t - 64;
        beta[n] = n < c.len ? value(a.beta, a.beta_type, (c.row + n) * a.ld_beta + c.h) : 0.0f;
    }
    copy_wait<0>();
    __syncthreads();
    {
        const int m0 = warp / 2 * 16, n0 = warp % 2 * 32;
        float acc[1][4][4] = {};
        product<false, true>(acc, k, LDW, m0, k, LDW, n0, DIM);
        each(acc, m0, n0, [&](int i, int j, float &v0, float &v1) {
            m[i * LDF + j] = j < i ? v0 * beta[i] * expf(G[i] - G[j]) : 0.0f;
            m[i * LDF + j + 1] = j + 1 < i ? v1 * beta[i] * expf(G[i] - G[j + 1]) : 0.0f;
        });
    }
    __syncthreads();
    invert(x, m, (float *)aw); /* which holds 32 x 32 values until then */
    for (int i = t; i < CHUNK * CHUNK / 2; i += 256) {
        const int r = i / (CHUNK / 2), j = i % (CHUNK / 2) * 2;
        const float v0 = x[r * LDF + j], v1 = x[r * LDF + j + 1];
        put2(aw + r * LDC + j, v0 * beta[j] * expf(G[j]), v1 * beta[j + 1] * expf(G[j + 1]));
        put2(au + r * LDC + j, v0 * beta[j], v1 * beta[j + 1]);
        if (inverse)
            put2(inverse + c.at * CHUNK * CHUNK + r * CHUNK + j, v0, v1);
    }
    __syncthreads();
    float w[4][2][4] = {}, u[4][2][4] = {};
    product<false, false>(w, aw, LDC, 0, k, LDW, warp * 16, CHUNK);
    product<false, false>(u, au, LDC, 0, v, LDW, warp * 16, CHUNK);
    __syncthreads();
    each(w, 0, warp * 16,
         [&](int r, int n, float &v0, float &v1) { put2(k + r * LDW + n, v0, v1); });
    each(u, 0, warp * 16,
         [&](int r, int n, float &v0, float &v1) { put2(v + r * LDW + n, v0, v1); });
    __syncthreads();
    put_rows(a.w + ((i64)c.row * a.H + c.h) * DIM, (i64)a.H * DIM, k, c.len);
    put_rows(a.d + ((i64)c.row * a.H + c.h) * DIM, (i64)a.H * DIM, v, c.len);
}

/* Block (2 h + half of the columns, s): the states before every chunk, bf16 [slot][H][128][128];
 * u becomes d. Copies for the next chunk run under the products that no longer read their place. */
extern "C" __global__ void __launch_bounds__(256, 2) delta_states(bf16 *states, delta_args a)
{
    __shared__ float G[2][CHUNK];
    const int h = blockIdx.x / 2, c0 = blockIdx.x % 2 * 64, s = blockIdx.y;
    const int first = a.bounds[s], end = a.bounds[s + 1], slot0 = first / CHUNK + s;
    if (first >= end)
        return;
    bf16 *w = tiles, *k = w + CHUNK * LDW, *u = k + CHUNK * LDW, *st = u + CHUNK * LDC,
         *d = st + DIM * LDC;
    const int t = threadIdx.x, warp = t / 32, m0 = warp / 2 * 16, n0 = warp % 2 * 32;
    float acc[1][8][4] = {}; /* rows 16 warp of the state */
    auto fetch_w = [&](const chunk &c, int buffer) {
        fetch_head(w, a.w, a, c);
        fetch<64>(u, head_rows(a.d, a, c) + c0, (i64)a.H * DIM, c.len);
        if (t < 16)
            copy16(smem_at(&G[buffer][t * 4]), a.G + c.at * CHUNK + t * 4, 16);
        copy_commit();
    };
    chunk c = chunk_at(a, slot0, first, end, h);
    fetch_w(c, 0);
    fetch_k(k, a, c);
    copy_commit();
    for (int i = 0;; i++) {
        const chunk next = chunk_at(a, slot0 + i + 1, c.row + CHUNK, end, h);
        const float *g = G[i % 2];
        bf16 *out = states + c.at * DIM * DIM + c0;
        each(acc, warp * 16, 0, [&](int r, int n, float &v0, float &v1) {
            put2(st + r * LDC + n, v0, v1);
            put2(out + r * DIM + n, v0, v1);
        });
        copy_wait<1>();
        __syncthreads();
        float p[1][4][4] = {};
        product<false, false>(p, w, LDW, m0, st, LDC, n0, DIM);
        const float last = g[c.len - 1];
        bf16 *rows = a.d + ((i64)c.row * a.H + h) * DIM + c0;
        each(p, m0, n0, [&](int r, int n, float &v0, float &v1) {
            float before[2];
            get2(u + r * LDC + n, before);
            const float d0 = before[0] - v0, d1 = before[1] - v1,
                        fade = r < c.len ? expf(last - g[r]) : 0.0f;
            put2(d + r * LDC + n, d0 * fade, d1 * fade);
            if (r < c.len)
                put2(rows + (i64)r * a.H * DIM + n, d0, d1);
        });
        copy_wait<0>();
        __syncthreads();
        if (next.len <= 0)
            return;
        fetch_w(next, (i + 1) % 2);
        const float keep = expf(last);
        each(acc, 0, 0, [&](int, int, float &v0, float &v1) { v0 *= keep, v1 *= keep; });
        product<true, false>(acc, k, LDW, warp * 16, d, LDC, 0, CHUNK);
        __syncthreads();
        fetch_k(k, a, next);
        copy_commit();
        c = next;
    }
}

/* Block (slot, h): y = SCALE exp(G) s0^T q + score d. */
extern "C" __global__ void __launch_bounds__(256, 2)
    delta_out(bf16 *y, long long ldy, const bf16 *states, delta_args a)
{
    __shared__ float G[CHUNK];
    const chunk c = chunk_of(a);
    if (c.len == 0)
        return;
    bf16 *q = tiles, *k = q + CHUNK * LDW, *d = k + CHUNK * LDW, *s0 = d + CHUNK * LDW,
         *score = s0 + DIM * LDW;
    const int t = threadIdx.x, warp = t / 32;
    fetch_q(q, a, c);
    fetch_k(k, a, c);
    copy_commit();
    fetch_head(d, a.d, a, c);
    const bf16 *from = states + c.at * DIM * DIM;
    fetch<DIM>(s0, from, DIM, CHUNK);
    fetch<DIM>(s0 + CHUNK * LDW, from + CHUNK * DIM, DIM, CHUNK);
    copy_commit();
    if (t < CHUNK)
        G[t] = a.G[c.at * CHUNK + t];
    copy_wait<1>();
    __syncthreads();
    make_score(score, q, k, G);
    copy_wait<0>();
    __syncthreads();
    float acc[4][2][4] = {};
    product<false, false>(acc, q, LDW, 0, s0, LDW, warp * 16, DIM);
    each(acc, 0, 0, [&](int r, int, float &v0, float &v1) {
        const float f = SCALE * expf(G[r]);
        v0 *= f, v1 *= f;
    });
    product<false, false>(acc, score, LDC, 0, d, LDW, warp * 16, CHUNK);
    each(acc, 0, warp * 16, /* keys are no longer read */
         [&](int r, int n, float &v0, float &v1) { put2(k + r * LDW + n, v0, v1); });
    __syncthreads();
    put_rows(y + c.row * ldy + c.h * DIM, ldy, k, c.len);
}
