/* delta_bwd.cu - the backward of delta.cu; formulas: scan_bwd_fast.c, with dr there = (1 + M)^-T dd
 * and w^T dd = (beta exp(G) k)^T dr.
 *
 * After delta_prepare and delta_states: delta_local makes score^T dy of every chunk at once,
 * delta_dstates passes the gradient of the state from the last chunk to the first and completes
 * dd, delta_grads makes everything else of every chunk at once, delta_join adds the heads that
 * share keys in order. */
// variants: (AF_T=bf16)
// common: (AF_T=bf16)
#include "delta.cuh"

/* Block (slot, h): dd = score^T dy. */
extern "C" __global__ void __launch_bounds__(256, 2)
    delta_local(bf16 *dd, const bf16 *dy, long long lddy, delta_args a)
{
    __shared__ float G[CHUNK];
    const chunk c = chunk_of(a);
    if (c.len == 0)
        return;
    bf16 *q = tiles, *k = q + CHUNK * LDW, *g = k + CHUNK * LDW, *score = g + CHUNK * LDW;
    const int t = threadIdx.x, warp = t / 32;
    fetch_q(q, a, c);
    fetch_k(k, a, c);
    copy_commit();
    fetch<DIM>(g, dy + c.row * lddy + c.h * DIM, lddy, c.len);
    copy_commit();
    if (t < CHUNK)
        G[t] = a.G[c.at * CHUNK + t];
    copy_wait<1>();
    __syncthreads();
    make_score(score, q, k, G);
    copy_wait<0>();
    __syncthreads();
    float acc[4][2][4] = {};
    product<true, false>(acc, score, LDC, 0, g, LDW, warp * 16, CHUNK);
    each(acc, 0, warp * 16,
         [&](int r, int n, float &v0, float &v1) { put2(q + r * LDW + n, v0, v1); });
    __syncthreads();
    put_rows(dd + ((i64)c.row * a.H + c.h) * DIM, (i64)a.H * DIM, q, c.len);
}

/* Block (2 h + half of the columns, s): the gradients of the states after every chunk, bf16
 * [slot][H][128][128]; dd gets its share of them. */
extern "C" __global__ void __launch_bounds__(256, 2)
    delta_dstates(bf16 *dstates, bf16 *dd, const bf16 *dy, long long lddy, delta_args a)
{
    __shared__ float G[2][CHUNK];
    const int h = blockIdx.x / 2, c0 = blockIdx.x % 2 * 64, s = blockIdx.y;
    const int first = a.bounds[s], end = a.bounds[s + 1], slot0 = first / CHUNK + s;
    if (first >= end)
        return;
    bf16 *k = tiles, *w = k + CHUNK * LDW, *q = w + CHUNK * LDW, *g = q + CHUNK * LDW,
         *r = g + CHUNK * LDC, *ds = r + CHUNK * LDC;
    const int t = threadIdx.x, warp = t / 32, m0 = warp / 2 * 16, n0 = warp % 2 * 32;
    float acc[1][8][4] = {};
    auto fetch_keys = [&](const chunk &c, int buffer) {
        fetch_k(k, a, c);
        if (t < 16)
            copy16(smem_at(&G[buffer][t * 4]), a.G + c.at * CHUNK + t * 4, 16);
        copy_commit();
    };
    auto fetch_rest = [&](const chunk &c) {
        fetch_head(w, a.w, a, c);
        fetch_q(q, a, c);
        fetch<64>(g, dy + c.row * lddy + h * DIM + c0, lddy, c.len);
        copy_commit();
    };
    int i = (end - first - 1) / CHUNK;
    chunk c = chunk_at(a, slot0 + i, first + i * CHUNK, end, h);
    fetch_keys(c, i % 2);
    fetch_rest(c);
    for (;; i--) {
        const float *gs = G[i % 2];
        bf16 *out = dstates + c.at * DIM * DIM + c0, *rows = dd + ((i64)c.row * a.H + h) * DIM + c0;
        each(acc, warp * 16, 0, [&](int m, int n, float &v0, float &v1) {
            put2(ds + m * LDC + n, v0, v1);
            put2(out + m * DIM + n, v0, v1);
        });
        float own[1][4][4] = {}; /* dd so far */
        each(own, m0, n0, [&](int m, int n, float &v0, float &v1) {
            float f[2] = {};
            if (m < c.len)
                get2(rows + (i64)m * a.H * DIM + n, f);
            v0 = f[0], v1 = f[1];
        });
        copy_wait<1>();
        __syncthreads();
        float p[1][4][4] = {};
        product<false, false>(p, k, LDW, m0, ds, LDC, n0, DIM);
        const float last = gs[c.len - 1];
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int m = m0 + t % 32 / 4 + e / 2 * 8;
                own[0][j][e] += m < c.len ? expf(last - gs[m]) * p[0][j][e] : 0.0f;
            }
        each(own, m0, n0, [&](int m, int n, float &v0, float &v1) {
            put2(r + m * LDC + n, -v0, -v1);
            if (m < c.len)
                put2(rows + (i64)m * a.H * DIM + n, v0, v1);
        });
        copy_wait<0>();
        __syncthreads(); /* k is free; w, q and dy are there */
        for (int j = t; j < CHUNK * 32; j += 256) {
            float f[2];
            const int m = j / 32, n = j % 32 * 2;
            get2(g + m * LDC + n, f);
            const float e = m < c.len ? SCALE * expf(gs[m]) : 0.0f;
            put2(g + m * LDC + n, f[0] * e, f[1] * e);
        }
        __syncthreads();
        if (i == 0)
            return;
        const chunk next = chunk_at(a, slot0 + i - 1, c.row - CHUNK, end, h);
        fetch_keys(next, (i - 1) % 2);
        const float keep = expf(last);
        each(acc, 0, 0, [&](int, int, float &v0, float &v1) { v0 *= keep, v1 *= keep; });
        product<true, false>(acc, q, LDW, warp * 16, g, LDC, 0, CHUNK);
        product<true, false>(acc, w, LDW, warp * 16, r, LDC, 0, CHUNK);
        __syncthreads();
        fetch_rest(next);
        c = next;
    }
}

/* acc += rows of m [64][128] times the transpose of rows n0 to n0 + 15 of a state, which is read
 * where it lies: no two warps read the same. */
DEV void times_state(float (&acc)[4][2][4], const bf16 *m, const bf16 *state, int n0)
{
    const int lane = threadIdx.x % 32, low = lane % 16, high = lane / 16 * 8;
    const bf16 *p = state + (n0 + lane / 4) * DIM + lane % 4 * 2;
    u32 b[8][2][2];
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            b[k][j][0] = *(const u32 *)(p + j * 8 * DIM + k * 16);
            b[k][j][1] = *(const u32 *)(p + j * 8 * DIM + k * 16 + 8);
        }
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 f[4];
            ldmatrix4(f, smem_at(m + (16 * i + low) * LDW + k * 16 + high));
#pragma unroll
            for (int j = 0; j < 2; j++)
                mma(acc[i][j], f, b[k][j][0], b[k][j][1]);
        }
}

/* Sums of a row over the four lanes that hold it. */
DEV float quad_sum(float v)
{
    v += __shfl_xor_sync(FULL, v, 1);
    return v + __shfl_xor_sync(FULL, v, 2);
}
/* Of a column over the eight lanes that hold it. */
DEV float column_sum(float v)
{
    v += __shfl_xor_sync(FULL, v, 4);
    v += __shfl_xor_sync(FULL, v, 8);
    return v + __shfl_xor_sync(FULL, v, 16);
}

/* Sums over parts of a chunk's rows, by the warps that make them. */
struct shares {
    float G[CHUNK], eG[CHUNK], to_end[CHUNK], beta[CHUNK];
    float rows[2][CHUNK], columns[4][CHUNK]; /* of what the matrices pass to G */
    float betas[2][CHUNK];                   /* and to beta */
    float pass[8][CHUNK], predict[8][CHUNK]; /* of products with states: to G, to beta */
};

/* The 64 x 64 gradients: dscore becomes a dscore, dcross (both halves) beta a dM. */
DEV void matrix_grads(shares &s, bf16 *dscore, bf16 *dcross, const bf16 *q, const bf16 *k,
                      const bf16 *g, const bf16 *d, const bf16 *dr)
{
    const int t = threadIdx.x, warp = t / 32, lane = t % 32, m0 = warp / 2 * 16, n0 = warp % 2 * 32;
    float x[1][4][4] = {}, y[1][4][4] = {}, share[1][4][4], row[2], betas[2];
    product<false, true>(x, q, LDW, m0, k, LDW, n0, DIM);
    product<false, true>(y, g, LDW, m0, d, LDW, n0, DIM);
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int m = m0 + lane / 4 + e / 2 * 8, n = n0 + 8 * j + lane % 4 * 2 + e % 2;
            const float f = n <= m ? SCALE * expf(s.G[m] - s.G[n]) : 0.0f;
            share[0][j][e] = f * x[0][j][e] * y[0][j][e];
            y[0][j][e] *= f;
            x[0][j][e] = 0.0f;
        }
    each(y, m0, n0,
         [&](int m, int n, float &v0, float &v1) { put2(dscore + m * LDC + n, v0, v1); });
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[0][j][e] = 0.0f;
    product<false, true>(x, k, LDW, m0, k, LDW, n0, DIM);
    product<false, true>(y, dr, LDW, m0, d, LDW, n0, DIM);
    row[0] = row[1] = betas[0] = betas[1] = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int m = m0 + lane / 4 + e / 2 * 8, n = n0 + 8 * j + lane % 4 * 2 + e % 2;
            const float f = n < m ? -expf(s.G[m] - s.G[n]) * y[0][j][e] : 0.0f;
            betas[e / 2] += f * x[0][j][e];
            share[0][j][e] += s.beta[m] * f * x[0][j][e];
            row[e / 2] += share[0][j][e];
            if (n <= m) {
                store(dcross + m * LDC + n, s.beta[m] * f);
                store(dcross + n * LDC + m, s.beta[m] * f);
            }
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float sum = column_sum(share[0][j][e] + share[0][j][e + 2]);
            if (lane < 4)
                s.columns[warp / 2][n0 + 8 * j + lane * 2 + e] = sum;
        }
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        row[e] = quad_sum(row[e]);
        betas[e] = quad_sum(betas[e]);
        if (lane % 4 == 0) {
            s.rows[warp % 2][m0 + lane / 4 + 8 * e] = row[e];
            s.betas[warp % 2][m0 + lane / 4 + 8 * e] = betas[e];
        }
    }
}

/* f(row, sum over this warp's 16 columns of acc times m) in one lane of each row. */
template <class F> DEV void row_dots(float (&acc)[4][2][4], const bf16 *m, int n0, F f)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int r = 16 * i + lane / 4 + 8 * e;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float v[2];
                get2(m + r * LDW + n0 + 8 * j + lane % 4 * 2, v);
                sum += acc[i][j][2 * e] * v[0] + acc[i][j][2 * e + 1] * v[1];
            }
            sum = quad_sum(sum);
            if (lane % 4 == 0)
                f(r, sum);
        }
}

/* dd . v of a row is the part of dbeta that needs no state; a warp per row. */
DEV void value_dots(float *to, const bf16 *dr, const delta_args &a, const chunk &c)
{
    const int lane = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < CHUNK; r += 8) {
        float sum = 0.0f, v[4], x[4];
        if (r < c.len) {
            load_n(v, a.x + (c.row + r) * a.ldx + (2 * a.J + c.h) * DIM + lane * 4);
            load_n(x, dr + r * LDW + lane * 4);
            sum = v[0] * x[0] + v[1] * x[1] + v[2] * x[2] + v[3] * x[3];
        }
        sum = warp_sum(sum);
        if (lane == 0)
            to[r] = sum;
    }
}

/* Sum of the products of two states of 128 x 128. */
DEV float state_dot(const bf16 *x, const bf16 *y)
{
    float sum = 0.0f;
    for (int i = threadIdx.x * 8; i < DIM * DIM; i += 256 * 8) {
        float u[8], v[8];
        load_n(u, x + i);
        load_n(v, y + i);
#pragma unroll
        for (int e = 0; e < 8; e++)
            sum += u[e] * v[e];
    }
    return sum;
}

/* Where delta_grads writes: dq, dk bf16 [N][H][128] of each head; dv in dx. */
struct delta_out {
    bf16 *dx, *dq, *dk;
    float *ddecay;
    void *dbeta;
    i64 lddx, ld_ddecay, ld_dbeta;
};

/* Block (slot, h). */
extern "C" __global__ void __launch_bounds__(256, 2)
    delta_grads(delta_out o, const bf16 *inverse, const bf16 *states, const bf16 *dstates,
                const bf16 *dd, const bf16 *dy, long long lddy, delta_args a)
{
    __shared__ shares s;
    __shared__ float values[CHUNK], sums[CHUNK];
    const chunk c = chunk_of(a);
    if (c.len == 0)
        return;
    bf16 *q = tiles, *k = q + CHUNK * LDW, *g = k + CHUNK * LDW, *d = g + CHUNK * LDW,
         *dr = d + CHUNK * LDW, *inv = dr + CHUNK * LDW, *dcross = inv + CHUNK * LDC;
    const int t = threadIdx.x, warp = t / 32, n0 = warp * 16;
    const bf16 *s0 = states + c.at * DIM * DIM, *ds1 = dstates + c.at * DIM * DIM;
    const i64 wide = (i64)a.H * DIM, base = c.row * wide + c.h * DIM;
    fetch_head(dr, dd, a, c);
    fetch<CHUNK>(inv, inverse + c.at * CHUNK * CHUNK, CHUNK, CHUNK);
    copy_commit();
    fetch_q(q, a, c);
    fetch_k(k, a, c);
    fetch_head(d, a.d, a, c);
    fetch<DIM>(g, dy + c.row * lddy + c.h * DIM, lddy, c.len);
    copy_commit();
    if (t < CHUNK) {
        const float G = a.G[c.at * CHUNK + t], last = a.G[c.at * CHUNK + c.len - 1];
        s.G[t] = G;
        s.eG[t] = expf(G);
        s.to_end[t] = t < c.len ? expf(last - G) : 0.0f;
        s.beta[t] = t < c.len ? value(a.beta, a.beta_type, (c.row + t) * a.ld_beta + c.h) : 0.0f;
    }
    copy_wait<1>();
    __syncthreads();
    {
        float acc[4][2][4] = {};
        product<true, false>(acc, inv, LDC, 0, dr, LDW, n0, CHUNK);
        __syncthreads();
        bf16 *dv = o.dx + c.row * o.lddx + (2 * a.J + c.h) * DIM;
        each(acc, 0, n0, [&](int r, int n, float &v0, float &v1) {
            put2(dr + r * LDW + n, v0, v1);
            if (r < c.len)
                put2(dv + r * o.lddx + n, v0 * s.beta[r], v1 * s.beta[r]);
        });
    }
    copy_wait<0>();
    __syncthreads();
    value_dots(values, dr, a, c);
    matrix_grads(s, inv, dcross, q, k, g, d, dr);
    float whole = s.eG[c.len - 1] * state_dot(s0, ds1); /* what exp(G[end]) passes */
    __syncthreads();
    {
        float acc[4][2][4] = {};
        times_state(acc, g, s0, n0);
        row_dots(acc, q, n0, [&](int r, float v) { s.pass[warp][r] = SCALE * s.eG[r] * v; });
        each(acc, 0, 0, [&](int r, int, float &v0, float &v1) {
            const float f = SCALE * s.eG[r];
            v0 *= f, v1 *= f;
        });
        product<false, false>(acc, inv, LDC, 0, k, LDW, n0, CHUNK);
        each(acc, 0, n0, [&](int r, int n, float &v0, float &v1) {
            if (r < c.len)
                put2(o.dq + base + r * wide + n, v0, v1);
        });
    }
    float keys[4][2][4] = {};
    times_state(keys, dr, s0, n0);
    row_dots(keys, k, n0, [&](int r, float v) {
        s.predict[warp][r] = -s.eG[r] * v;
        s.pass[warp][r] -= s.beta[r] * s.eG[r] * v;
    });
    each(keys, 0, 0, [&](int r, int, float &v0, float &v1) {
        const float f = -s.beta[r] * s.eG[r];
        v0 *= f, v1 *= f;
    });
    product<false, false>(keys, dcross, LDC, 0, k, LDW, n0, CHUNK);
    product<true, false>(keys, inv, LDC, 0, q, LDW, n0, CHUNK);
    {
        float acc[4][2][4] = {};
        times_state(acc, d, ds1, n0);
        row_dots(acc, k, n0, [&](int r, float v) {
            s.pass[warp][r] -= s.to_end[r] * v;
            whole += s.to_end[r] * v;
        });
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    keys[i][j][e] += s.to_end[16 * i + t % 32 / 4 + e / 2 * 8] * acc[i][j][e];
    }
    each(keys, 0, n0, [&](int r, int n, float &v0, float &v1) {
        if (r < c.len)
            put2(o.dk + base + r * wide + n, v0, v1);
    });
    whole = block_sum(whole); /* and all shares are there */
    if (t < CHUNK) {
        float sum = s.rows[0][t] + s.rows[1][t], beta = values[t] + s.betas[0][t] + s.betas[1][t];
        for (int i = 0; i < 4; i++)
            sum -= s.columns[i][t];
        for (int i = 0; i < 8; i++) {
            sum += s.pass[i][t];
            beta += s.predict[i][t];
        }
        sums[t] = t < c.len ? sum : 0.0f;
        if (t < c.len)
            put_value(o.dbeta, a.beta_type, (c.row + t) * o.ld_dbeta + c.h, beta);
    }
    __syncthreads();
    if (t < c.len) { /* every row's decay is in the G of all later ones */
        float sum = whole;
        for (int i = CHUNK - 1; i >= t; i--)
            sum += sums[i];
        o.ddecay[(c.row + t) * o.ld_ddecay + c.h] = sum;
    }
}

/* A warp per row and key head, queries then keys: its heads added in order, through the norm. */
extern "C" __global__ void __launch_bounds__(256) delta_join(delta_out o, delta_args a)
{
    const i64 i = blockIdx.x * 8LL + threadIdx.x / 32, all = (i64)a.N * a.J;
    if (i >= 2 * all)
        return;
    const bool keys = i >= all;
    const i64 at = keys ? i - all : i;
    const int lane = threadIdx.x % 32, n = (int)(at / a.J), j = (int)(at % a.J), group = a.H / a.J,
              col = ((keys ? a.J : 0) + j) * DIM + lane * 4;
    if (sequence_of(a.bounds, a.S, n) < 0)
        return;
    const bf16 *from = (keys ? o.dk : o.dq) + ((i64)n * a.H + (i64)j * group) * DIM + lane * 4;
    float x[4], sum[4] = {}, ss = 0.0f, dot = 0.0f;
    load_n(x, a.x + n * a.ldx + col);
    for (int h = 0; h < group; h++) {
        float v[4];
        load_n(v, from + h * DIM);
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[e] += v[e];
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        ss += x[e] * x[e];
        dot += x[e] * sum[e];
    }
    const float r = rsqrtf(warp_sum(ss) + 1e-6f), f = r * r * warp_sum(dot);
#pragma unroll
    for (int e = 0; e < 4; e++)
        sum[e] = r * (sum[e] - x[e] * f);
    store_n(o.dx + n * o.lddx + col, sum);
}
