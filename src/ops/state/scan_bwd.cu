/* scan_bwd.cu - the backward of scan.c by chunks; formulas: scan_bwd_fast.c.
 *
 * After scan_scores and scan_states of scan.cu: scan_dstates passes the gradient of the state from
 * the last chunk to the first, scan_dscores makes the gradients of the 64 x 64 matrices, of beta
 * and of v, scan_dkeys those of q, k and the decay for each head, scan_join adds the heads that
 * share keys in order. Built with AF_T and AF_MMA
 * (1: tensor cores). */
// variants: (AF_T=bf16,half AF_MMA=0,1 | AF_T=float AF_MMA=0)
// common: (AF_T=bf16 AF_MMA=1 | AF_T=float AF_MMA=0)
#include "scan.cuh"

/* Rows of dy of head h, columns from c0. */
DEV void load_dy(float *m, int lt, const AF_T *dy, i64 lddy, const scan_args &a, const chunk &c,
                 int h, int c0, int cols)
{
    for (int i = threadIdx.x; i < CHUNK * a.tile; i += 256) {
        const int t = i / a.tile, j = i % a.tile;
        m[t * lt + j] = t < c.len && j < cols
                            ? load(dy + (i64)(c.row + t) * lddy + (i64)h * a.V + c0 + j)
                            : 0.0f;
    }
}

/* Block (h * tiles + tile, s): the gradients of the states after every chunk, [slot][H][K][V], and
 * dr [N][H*V]. */
extern "C" __global__ void __launch_bounds__(256)
    scan_dstates(float *dstates, float *dr, const AF_T *dy, long long lddy, const float *score,
                 const float *inverse, scan_args a)
{
    __shared__ decays d;
    const int tiles = (a.V + a.tile - 1) / a.tile, h = blockIdx.x / tiles,
              c0 = blockIdx.x % tiles * a.tile, cols = a.V - c0 < a.tile ? a.V - c0 : a.tile;
    const int s = blockIdx.y, ld = key_ld(a), lt = tile_ld(a), rows = key_pad(a);
    float *k = shared, *ds = k + CHUNK * ld, *g = ds + rows * lt, *r = g + CHUNK * lt,
          *m = r + CHUNK * lt;
    for (int i = threadIdx.x; i < rows * lt; i += 256)
        ds[i] = 0.0f;
    const int first = a.bounds[s], len = a.bounds[s + 1] - first;
    for (int i = (len + CHUNK - 1) / CHUNK - 1; i >= 0; i--) {
        const int row = first + i * CHUNK, left = first + len - row, slot = first / CHUNK + s + i;
        const chunk c = {slot, s, row, left < CHUNK ? left : CHUNK};
        const i64 at = (i64)slot * a.H + h, out = (i64)row * a.H * a.V + (i64)h * a.V + c0;
        __syncthreads();
        for (int j = threadIdx.x; j < a.K * cols; j += 256)
            dstates[(at * a.K + j / cols) * a.V + c0 + j % cols] = ds[j / cols * lt + j % cols];
        load_decays(d, a, c, h);
        load_k(k, ld, a, c, h);
        load_dy(g, lt, dy, lddy, a, c, h, c0, cols);
        load_tile(m, LDC, score + at * CHUNK * CHUNK, CHUNK, CHUNK, CHUNK, CHUNK, CHUNK);
        __syncthreads();
        product(k, ld, 1, ds, lt, 1, CHUNK, a.tile, rows,
                [&](int t, int j, float v) { r[t * lt + j] = v * d.to_end[t]; });
        product(m, 1, LDC, g, lt, 1, CHUNK, a.tile, CHUNK,
                [&](int t, int j, float v) { r[t * lt + j] += v; });
        __syncthreads();
        for (int j = threadIdx.x; j < CHUNK * a.tile; j += 256) /* from now on only times exp(G) */
            g[j / a.tile * lt + j % a.tile] *= d.eG[j / a.tile];
        float *b = r;
        if (a.delta) {
            load_tile(m, LDC, inverse + at * CHUNK * CHUNK, CHUNK, CHUNK, CHUNK, CHUNK, CHUNK);
            __syncthreads();
            b = m + CHUNK * LDC;
            product(m, 1, LDC, r, lt, 1, CHUNK, a.tile, CHUNK,
                    [&](int t, int j, float v) { b[t * lt + j] = v; });
        }
        __syncthreads();
        for (int j = threadIdx.x; j < CHUNK * a.tile; j += 256) {
            const int t = j / a.tile, e = j % a.tile;
            if (t < c.len && e < cols)
                dr[out + (i64)t * a.H * a.V + e] = b[t * lt + e];
            b[t * lt + e] *= a.delta ? -d.beta[t] * d.eG[t] : 0.0f;
        }
        __syncthreads();
        const float keep = d.eG[c.len - 1];
        product(k, 1, ld, b, lt, 1, rows, a.tile, a.delta ? CHUNK : 0,
                [&](int t, int j, float v) { ds[t * lt + j] = ds[t * lt + j] * keep + v; });
        __syncthreads();
        load_q(k, ld, a, c, h);
        product(k, 1, ld, g, lt, 1, rows, a.tile, CHUNK,
                [&](int t, int j, float v) { ds[t * lt + j] += v; });
    }
}

/* Block (slot, h): score becomes a dscore, cross becomes beta a dM (both [slot][H][64][64]); dv,
 * dbeta, and what the two pass to dG [N][H]. */
extern "C" __global__ void __launch_bounds__(256)
    scan_dscores(AF_T *dx, long long lddx, void *dbeta, long long ld_dbeta, float *dG, float *score,
                 float *cross, const float *dmat, const float *dr, const float *error,
                 const AF_T *dy, long long lddy, scan_args a)
{
    __shared__ decays d;
    const int h = blockIdx.y, lt = tile_ld(a), t = threadIdx.x;
    const chunk c = chunk_of(a, blockIdx.x);
    if (c.len == 0)
        return;
    const i64 at = (c.slot * a.H + h) * CHUNK * CHUNK, wide = (i64)a.H * a.V,
              base = c.row * wide + (i64)h * a.V;
    float *s = shared, *m = s + CHUNK * LDC, *g = m + CHUNK * LDC, *r = g + CHUNK * lt,
          *dm = r + CHUNK * lt;
    const float skip = a.skip ? value(a.skip, a.skip_type, h) : 0.0f;
    float own = 0.0f; /* dbeta of row t */
    load_decays(d, a, c, h);
    for (int i = t; i < CHUNK * LDC; i += 256)
        s[i] = m[i] = 0.0f;
    for (int c0 = 0; c0 < a.V; c0 += a.tile) {
        const int cols = a.V - c0 < a.tile ? a.V - c0 : a.tile;
        __syncthreads();
        load_dy(g, lt, dy, lddy, a, c, h, c0, cols);
        load_tile(r, lt, dr + base + c0, wide, c.len, cols, CHUNK, a.tile);
        load_tile(dm, lt, dmat + base + c0, wide, c.len, cols, CHUNK, a.tile);
        __syncthreads();
        product(g, lt, 1, dm, 1, lt, CHUNK, CHUNK, a.tile,
                [&](int i, int j, float v) { s[i * LDC + j] += v; });
        if (a.delta)
            product(r, lt, 1, dm, 1, lt, CHUNK, CHUNK, a.tile,
                    [&](int i, int j, float v) { m[i * LDC + j] -= v; });
        for (int i = t; i < c.len * cols; i += 256) {
            const int n = i / cols, j = i % cols;
            store(dx + (c.row + n) * lddx + a.v_from + (i64)h * a.V + c0 + j,
                  d.beta[n] * r[n * lt + j] + skip * g[n * lt + j]);
        }
        for (int j = 0; t < c.len && j < cols; j++)
            own += r[t * lt + j] * error[base + t * wide + c0 + j];
    }
    __syncthreads();
    for (int k = t; k < CHUNK * CHUNK; k += 256) { /* s, m become what they pass to G */
        const int i = k / CHUNK, j = k % CHUNK;
        const float e = j <= i && i < c.len ? expf(d.G[i] - d.G[j]) : 0.0f;
        const float x = a.delta ? cross[at + k] : 0.0f, ds = s[i * LDC + j], dc = m[i * LDC + j];
        s[i * LDC + j] = ds * score[at + k] + dc * x * d.beta[i];
        m[i * LDC + j] = dc * x; /* to beta */
        score[at + k] = e * ds;
        if (a.delta)
            cross[at + k] = j < i ? d.beta[i] * e * dc : 0.0f;
    }
    __syncthreads();
    if (t < c.len) {
        float sum = 0.0f;
        for (int j = 0; j <= t; j++) {
            sum += s[t * LDC + j];
            own += a.delta ? m[t * LDC + j] : 0.0f;
        }
        for (int i = t; i < c.len; i++)
            sum -= s[i * LDC + t];
        dG[(i64)(c.row + t) * a.H + h] = sum;
        put_value(dbeta, a.beta_type, (c.row + t) * ld_dbeta + h, own);
    }
}

/* Block (slot, h), after scan_dscores: dq and dk [N][H][K] of this head, ddecay. */
extern "C" __global__ void __launch_bounds__(256)
    scan_dkeys(float *dq, float *dk, float *ddecay, long long ld_dd, const float *dG,
               const float *dscore, const float *dcross, const float *states, const float *dstates,
               const float *dmat, const float *dr, const AF_T *dy, long long lddy, scan_args a)
{
    __shared__ decays d;
    __shared__ float pass[CHUNK];
    const int h = blockIdx.y, ld = key_ld(a), lt = tile_ld(a), t = threadIdx.x, rows = key_pad(a);
    const chunk c = chunk_of(a, blockIdx.x);
    if (c.len == 0)
        return;
    const i64 at = c.slot * a.H + h, wide = (i64)a.H * a.V, base = c.row * wide + (i64)h * a.V;
    float *k = shared, *acc = k + CHUNK * ld, *st = acc + CHUNK * ld, *g = st + rows * lt,
          *m = g + CHUNK * lt;
    float whole = 0.0f; /* what exp(G[end]) passes: with s0, and from the keys */
    load_decays(d, a, c, h);
    if (t < CHUNK)
        pass[t] = t < c.len ? dG[(i64)(c.row + t) * a.H + h] : 0.0f;
    /* one product over all columns: acc (+)= rows of g times st^T */
    auto over = [&](const float *from, bool grad, const float *rows_of, float *into) {
        __syncthreads();
        for (int i = t; i < CHUNK * ld; i += 256)
            into[i] = 0.0f;
        for (int c0 = 0; c0 < a.V; c0 += a.tile) {
            const int cols = a.V - c0 < a.tile ? a.V - c0 : a.tile;
            __syncthreads();
            load_tile(st, lt, from + at * a.K * a.V + c0, a.V, a.K, cols, rows, a.tile);
            if (grad)
                load_dy(g, lt, dy, lddy, a, c, h, c0, cols);
            else
                load_tile(g, lt, rows_of + base + c0, wide, c.len, cols, CHUNK, a.tile);
            __syncthreads();
            product(g, lt, 1, st, 1, lt, CHUNK, rows, a.tile,
                    [&](int i, int j, float v) { into[i * ld + j] += v; });
        }
        __syncthreads();
    };
    /* dot of row t of x and y */
    auto dots = [&](const float *x, const float *y) {
        float sum = 0.0f;
        for (int i = 0; t < c.len && i < a.K; i++)
            sum += x[t * ld + i] * y[t * ld + i];
        return sum;
    };
    over(states, true, 0, acc); /* queries */
    load_q(k, ld, a, c, h);
    if (t < c.len)
        pass[t] += d.eG[t] * dots(k, acc);
    __syncthreads();
    load_k(k, ld, a, c, h);
    load_tile(m, LDC, dscore + at * CHUNK * CHUNK, CHUNK, CHUNK, CHUNK, CHUNK, CHUNK);
    __syncthreads();
    product(m, LDC, 1, k, ld, 1, CHUNK, rows, CHUNK, [&](int i, int j, float v) {
        if (i < c.len && j < a.K)
            dq[((i64)(c.row + i) * a.H + h) * a.K + j] = acc[i * ld + j] * d.eG[i] + v;
    });
    float *out = dk + ((i64)c.row * a.H + h) * a.K;
    const i64 step = (i64)a.H * a.K;
    over(dstates, false, dmat, acc); /* keys: through the state after the chunk */
    float e = t < c.len ? d.to_end[t] * dots(k, acc) : 0.0f;
    if (t < c.len)
        pass[t] -= e;
    whole += e;
    for (int i = t; i < c.len * a.K; i += 256)
        out[i / a.K * step + i % a.K] = d.to_end[i / a.K] * acc[i / a.K * ld + i % a.K];
    if (a.delta) { /* through what the state predicts, and the other keys */
        over(states, false, dr, acc);
        if (t < c.len)
            pass[t] -= d.beta[t] * d.eG[t] * dots(k, acc);
        load_tile(m, LDC, dcross + at * CHUNK * CHUNK, CHUNK, CHUNK, CHUNK, CHUNK, CHUNK);
        __syncthreads();
        for (int i = t; i < CHUNK * CHUNK; i += 256) /* its transpose too: zeros above */
            if (i % CHUNK > i / CHUNK)
                m[i / CHUNK * LDC + i % CHUNK] = m[i % CHUNK * LDC + i / CHUNK];
        __syncthreads();
        product(m, LDC, 1, k, ld, 1, CHUNK, rows, CHUNK, [&](int i, int j, float v) {
            if (i < c.len && j < a.K)
                out[i * step + j] += v - d.beta[i] * d.eG[i] * acc[i * ld + j];
        });
    }
    __syncthreads();
    load_q(k, ld, a, c, h);
    load_tile(m, LDC, dscore + at * CHUNK * CHUNK, CHUNK, CHUNK, CHUNK, CHUNK, CHUNK);
    __syncthreads();
    product(m, 1, LDC, k, ld, 1, CHUNK, rows, CHUNK, [&](int i, int j, float v) {
        if (i < c.len && j < a.K)
            out[i * step + j] += v;
    });
    for (i64 i = t; i < (i64)a.K * a.V; i += 256)
        whole += d.eG[c.len - 1] * states[at * a.K * a.V + i] * dstates[at * a.K * a.V + i];
    whole = block_sum(whole);
    if (t == 0) { /* every row's decay is in the G of all later ones */
        float sum = whole;
        for (int i = c.len - 1; i >= 0; i--) {
            sum += pass[i];
            ddecay[(c.row + i) * ld_dd + h] = sum;
        }
    }
}

/* Block (n, key head): dq and dk of its heads, added in order, through the norm. */
extern "C" __global__ void __launch_bounds__(32)
    scan_join(AF_T *dx, long long lddx, const float *dq, const float *dk, scan_args a)
{
    const int n = blockIdx.x, kh = blockIdx.y, lane = threadIdx.x, group = a.H / a.J;
    if (sequence_of(a.bounds, a.S, n) < 0)
        return;
    for (int keys = 0; keys < 2; keys++) {
        const int from = (keys ? a.k_from : a.q_from) + kh * a.K;
        const float *d = (keys ? dk : dq) + ((i64)n * a.H + (i64)kh * group) * a.K;
        const AF_T *x = a.x + (i64)n * a.ldx + from;
        float ss = 0.0f, dot = 0.0f;
        for (int i = lane; i < a.K; i += 32) {
            float sum = 0.0f;
            for (int h = 0; h < group; h++)
                sum += d[(i64)h * a.K + i];
            ss += load(x + i) * load(x + i);
            dot += load(x + i) * sum;
        }
        const float r = rsqrtf(warp_sum(ss) + 1e-6f), c = r * r * warp_sum(dot);
        const float factor = keys ? r : r * rsqrtf((float)a.K);
        for (int i = lane; i < a.K; i += 32) {
            float sum = 0.0f;
            for (int h = 0; h < group; h++)
                sum += d[(i64)h * a.K + i];
            store(dx + n * lddx + from + i, a.delta ? factor * (sum - load(x + i) * c) : sum);
        }
    }
}

/* Block h: dskip of a head over all rows, in a fixed order. */
extern "C" __global__ void __launch_bounds__(256)
    scan_dskip(float *part, const AF_T *dy, long long lddy, scan_args a)
{
    const int h = blockIdx.x;
    float sum = 0.0f;
    for (i64 i = (i64)a.bounds[0] * a.V + threadIdx.x; i < (i64)a.bounds[a.S] * a.V; i += 256) {
        const i64 n = i / a.V, c = (i64)h * a.V + i % a.V;
        sum += load(dy + n * lddy + c) * load(a.x + n * a.ldx + a.v_from + c);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[h] = sum;
}
