/* scan_bwd.cu - the backward of scan.c by chunks; formulas: scan_bwd_fast.c.
 *
 * After the states of scan.cu: their gradients, without delta by scan_dadded (what each chunk adds,
 * all at once) and scan_pass, with delta by scan_dstates, from the last chunk to the first.
 * scan_dscores makes the gradients of the 64 x 64 matrices, of beta and of v, scan_dkeys those of
 * q, k and the decay for each head, scan_join adds the heads that share keys in order. Built as
 * scan.cu. */
// variants: (AF_T=bf16,half AF_MMA=0,1 | AF_T=float AF_MMA=0) AF_TILE=8,16,32
// common: (AF_T=bf16 AF_MMA=1 | AF_T=float AF_MMA=0) AF_TILE=32
#include "scan.cuh"

/* Rows of dy of head h, columns from c0. */
DEV void load_dy(float *m, const AF_T *dy, i64 lddy, const scan_args &a, const chunk &c, int h,
                 int c0, int cols)
{
    load_tile<AF_TILE>(m, LT, dy + c.row * lddy + (i64)h * a.V + c0, lddy, c.len, cols, CHUNK);
}

/* Block (slot, h * tiles + tile), without delta: what the chunk's outputs add to the gradient of
 * the state before it, [slot][H][K][V]. */
extern "C" __global__ void __launch_bounds__(256)
    scan_dadded(float *dstates, const AF_T *dy, long long lddy, scan_args a)
{
    __shared__ decays d;
    const int h = blockIdx.y / tiles_of(a), c0 = blockIdx.y % tiles_of(a) * AF_TILE,
              cols = columns_of(a, c0), ld = key_ld(a), rows = key_pad(a);
    const chunk c = chunk_of(a, blockIdx.x);
    if (c.len == 0)
        return;
    float *q = shared, *g = q + CHUNK * ld, *ds = g + CHUNK * LT;
    load_decays(d, a, c, h);
    load_dy(g, dy, lddy, a, c, h, c0, cols);
    load_q(q, ld, a, c, h);
    scale_rows(g, d.eG);
    __syncthreads();
    product(q, 1, ld, g, LT, 1, rows, AF_TILE, CHUNK,
            [&](int t, int j, float v) { ds[t * LT + j] = v; });
    __syncthreads();
    store_tile<AF_TILE>(dstates + (c.slot * a.H + h) * a.K * a.V + c0, a.V, ds, LT, a.K, cols);
}

/* Block (h * tiles + tile, s), with delta: the gradients of the states after every chunk,
 * [slot][H][K][V], and dr [N][H*V]. */
extern "C" __global__ void __launch_bounds__(256, 2)
    scan_dstates(float *dstates, float *dr, const AF_T *dy, long long lddy, const float *score,
                 const float *inverse, scan_args a)
{
    __shared__ decays d;
    const int h = blockIdx.x / tiles_of(a), c0 = blockIdx.x % tiles_of(a) * AF_TILE,
              cols = columns_of(a, c0), s = blockIdx.y, ld = key_ld(a), rows = key_pad(a);
    float *k = shared, *ds = k + CHUNK * ld, *g = ds + rows * LT, *r = g + CHUNK * LT,
          *m = r + CHUNK * LT, *b = m + CHUNK * LDC;
    for (int i = threadIdx.x; i < rows * LT; i += 256)
        ds[i] = 0.0f;
    const int first = a.bounds[s], len = a.bounds[s + 1] - first;
    const i64 wide = (i64)a.H * a.V;
    for (int i = (len + CHUNK - 1) / CHUNK - 1; i >= 0; i--) {
        const int row = first + i * CHUNK, left = first + len - row, slot = first / CHUNK + s + i;
        const chunk c = {slot, s, row, left < CHUNK ? left : CHUNK};
        const i64 at = (i64)slot * a.H + h, out = row * wide + (i64)h * a.V + c0;
        __syncthreads();
        store_tile<AF_TILE>(dstates + at * a.K * a.V + c0, a.V, ds, LT, a.K, cols);
        load_decays(d, a, c, h);
        load_k(k, ld, a, c, h);
        load_dy(g, dy, lddy, a, c, h, c0, cols);
        load_square(m, score + at * CHUNK * CHUNK);
        loaded();
        product(k, ld, 1, ds, LT, 1, CHUNK, AF_TILE, rows,
                [&](int t, int j, float v) { r[t * LT + j] = v * d.to_end[t]; });
        product(m, 1, LDC, g, LT, 1, CHUNK, AF_TILE, CHUNK,
                [&](int t, int j, float v) { r[t * LT + j] += v; });
        __syncthreads();
        scale_rows(g, d.eG);
        load_square(m, inverse + at * CHUNK * CHUNK);
        loaded();
        product(m, 1, LDC, r, LT, 1, CHUNK, AF_TILE, CHUNK,
                [&](int t, int j, float v) { b[t * LT + j] = v; });
        __syncthreads();
        store_tile<AF_TILE>(dr + out, wide, b, LT, c.len, cols);
        __syncthreads();
        for (int j = threadIdx.x; j < CHUNK * AF_TILE; j += 256)
            b[j / AF_TILE * LT + j % AF_TILE] *= -d.beta[j / AF_TILE] * d.eG[j / AF_TILE];
        __syncthreads();
        const float keep = d.eG[c.len - 1];
        product(k, 1, ld, b, LT, 1, rows, AF_TILE, CHUNK,
                [&](int t, int j, float v) { ds[t * LT + j] = ds[t * LT + j] * keep + v; });
        __syncthreads();
        load_q(k, ld, a, c, h);
        product(k, 1, ld, g, LT, 1, rows, AF_TILE, CHUNK,
                [&](int t, int j, float v) { ds[t * LT + j] += v; });
    }
}

/* Sums over the columns of x y for every row of a chunk, added to `to`. A warp per row. */
template <class X, class Y> DEV void add_dots(float *to, int columns, X x, Y y)
{
    const int lane = threadIdx.x % 32;
    for (int t = threadIdx.x / 32; t < CHUNK; t += 8) {
        float sum = 0.0f;
        for (int i = lane; i < columns; i += 32)
            sum += x(t, i) * y(t, i);
        sum = warp_sum(sum);
        if (lane == 0)
            to[t] += sum;
    }
}

/* Block (slot, h): score becomes a dscore, cross becomes beta a dM (both [slot][H][64][64]); dv,
 * dbeta, and what the two pass to dG [N][H]. dr is read with delta only, else made here from the
 * gradient of the state after the chunk. */
extern "C" __global__ void __launch_bounds__(256)
    scan_dscores(AF_T *dx, long long lddx, void *dbeta, long long ld_dbeta, float *dG, float *score,
                 float *cross, const float *dmat, const float *dr, const float *error,
                 const float *dstates, const AF_T *dy, long long lddy, scan_args a)
{
    __shared__ decays d;
    __shared__ float own[CHUNK], row[CHUNK], column[8][CHUNK]; /* dbeta; sums for dG */
    const int h = blockIdx.y, t = threadIdx.x, ld = key_ld(a), rows = key_pad(a);
    const chunk c = chunk_of(a, blockIdx.x);
    if (c.len == 0)
        return;
    const i64 at = c.slot * a.H + h, square = at * CHUNK * CHUNK;
    float *s = shared, *m = s + CHUNK * LDC, *g = m + CHUNK * LDC, *r = g + CHUNK * LT,
          *dm = r + CHUNK * LT, *k = dm + CHUNK * LT, *ds = k + CHUNK * ld;
    const float skip = a.skip ? value(a.skip, a.skip_type, h) : 0.0f;
    load_decays(d, a, c, h);
    for (int i = t; i < CHUNK * LDC; i += 256)
        s[i] = m[i] = 0.0f;
    if (t < CHUNK)
        own[t] = row[t] = 0.0f;
    if (!a.delta) {
        __syncthreads();
        load_square(m, score + square);
        load_k(k, ld, a, c, h);
    }
    for (int c0 = 0; c0 < a.V; c0 += AF_TILE) {
        const int cols = columns_of(a, c0);
        const i64 col = (i64)h * a.V + c0;
        __syncthreads();
        load_dy(g, dy, lddy, a, c, h, c0, cols);
        load_values(dm, a.delta ? error : 0, a, c, h, c0, cols); /* what beta multiplies */
        if (a.delta)
            load_values(r, dr, a, c, h, c0, cols);
        else
            load_tile<AF_TILE>(ds, LT, dstates + at * a.K * a.V + c0, a.V, a.K, cols, rows);
        loaded();
        if (!a.delta) {
            product(k, ld, 1, ds, LT, 1, CHUNK, AF_TILE, rows,
                    [&](int i, int j, float v) { r[i * LT + j] = v * d.to_end[i]; });
            product(m, 1, LDC, g, LT, 1, CHUNK, AF_TILE, CHUNK,
                    [&](int i, int j, float v) { r[i * LT + j] += v; });
            __syncthreads();
        }
        add_dots(
            own, cols, [&](int i, int j) { return r[i * LT + j]; },
            [&](int i, int j) { return dm[i * LT + j]; });
        __syncthreads();
        if (a.delta) {
            load_values(dm, dmat, a, c, h, c0, cols);
            loaded();
            product(r, LT, 1, dm, 1, LT, CHUNK, CHUNK, AF_TILE,
                    [&](int i, int j, float v) { m[i * LDC + j] -= v; });
        } else {
            scale_rows(dm, d.beta);
            __syncthreads();
        }
        product(g, LT, 1, dm, 1, LT, CHUNK, CHUNK, AF_TILE,
                [&](int i, int j, float v) { s[i * LDC + j] += v; });
        __syncthreads();
        for (int i = t; i < CHUNK * AF_TILE; i += 256) {
            const int n = i / AF_TILE, j = n * LT + i % AF_TILE;
            r[j] = d.beta[n] * r[j] + skip * g[j];
        }
        __syncthreads();
        store_tile<AF_TILE>(dx + c.row * lddx + a.v_from + col, lddx, r, LT, c.len, cols);
    }
    __syncthreads();
    for (int i = t; i < CHUNK * CHUNK; i += 256) { /* s, m become what they pass to G */
        const int x = i / CHUNK, y = i % CHUNK, j = x * LDC + y;
        const float e = y <= x && x < c.len ? expf(d.G[x] - d.G[y]) : 0.0f, grad = s[j];
        if (a.delta) {
            const float u = cross[square + i], du = m[j];
            s[j] = grad * score[square + i] + du * u * d.beta[x];
            m[j] = du * u; /* to beta */
            cross[square + i] = y < x ? d.beta[x] * e * du : 0.0f;
        } else
            s[j] = grad * m[j];
        score[square + i] = e * grad;
    }
    __syncthreads();
    add_dots(
        row, CHUNK, [&](int i, int j) { return s[i * LDC + j]; }, [](int, int) { return 1.0f; });
    if (a.delta)
        add_dots(
            own, CHUNK, [&](int i, int j) { return m[i * LDC + j]; },
            [](int, int) { return 1.0f; });
    for (int j = t % 32; j < CHUNK; j += 32) {
        float sum = 0.0f;
#pragma unroll
        for (int i = t / 32; i < CHUNK; i += 8)
            sum += s[i * LDC + j];
        column[t / 32][j] = sum;
    }
    __syncthreads();
    if (t < c.len) {
        float sum = row[t];
        for (int i = 0; i < 8; i++)
            sum -= column[i][t];
        dG[(i64)(c.row + t) * a.H + h] = sum;
        put_value(dbeta, a.beta_type, (c.row + t) * ld_dbeta + h, own[t]);
    }
}

/* A thread's part of the sum of x y over the values of state number `at`. */
DEV float dot_of_states(const float *x, const float *y, i64 at, const scan_args &a)
{
    const int n = a.K * a.V;
    float sum = 0.0f;
    x += at * n;
    y += at * n;
    if (n % 4 == 0)
#pragma unroll 4
        for (int i = threadIdx.x * 4; i < n; i += 1024) {
            float u[4], v[4];
            load_n(u, x + i);
            load_n(v, y + i);
            sum += u[0] * v[0] + u[1] * v[1] + u[2] * v[2] + u[3] * v[3];
        }
    else
        for (int i = threadIdx.x; i < n; i += 256)
            sum += x[i] * y[i];
    return sum;
}

/* Block (slot, h), after scan_dscores: dq and dk [N][H][K] of this head, ddecay. */
extern "C" __global__ void __launch_bounds__(256, 2)
    scan_dkeys(float *dq, float *dk, float *ddecay, long long ld_dd, const float *dG,
               const float *dscore, const float *dcross, const float *states, const float *dstates,
               const float *dmat, const float *dr, const AF_T *dy, long long lddy, scan_args a)
{
    __shared__ decays d;
    __shared__ float pass[CHUNK], dot[CHUNK];
    const int h = blockIdx.y, ld = key_ld(a), t = threadIdx.x, rows = key_pad(a);
    const chunk c = chunk_of(a, blockIdx.x);
    if (c.len == 0)
        return;
    const i64 at = c.slot * a.H + h;
    float *k = shared, *acc = k + CHUNK * ld, *st = acc + CHUNK * ld, *g = st + rows * LT,
          *m = g + CHUNK * LT;
    float whole = 0.0f; /* what exp(G[end]) passes: with s0, and from the keys */
    load_decays(d, a, c, h);
    if (t < CHUNK)
        pass[t] = t < c.len ? dG[(i64)(c.row + t) * a.H + h] : 0.0f;
    /* acc = rows of values times the state's transpose, over all columns */
    enum values { OF_DY, ADDED, OF_DR };
    auto over = [&](const float *from, values what) {
        __syncthreads();
        for (int i = t; i < CHUNK * ld; i += 256)
            acc[i] = 0.0f;
        for (int c0 = 0; c0 < a.V; c0 += AF_TILE) {
            const int cols = columns_of(a, c0);
            __syncthreads();
            load_tile<AF_TILE>(st, LT, from + at * a.K * a.V + c0, a.V, a.K, cols, rows);
            if (what == OF_DY)
                load_dy(g, dy, lddy, a, c, h, c0, cols);
            else if (what == ADDED)
                load_added(g, dmat, d, a, c, h, c0, cols);
            else
                load_values(g, dr, a, c, h, c0, cols);
            loaded();
            product(g, LT, 1, st, 1, LT, CHUNK, rows, AF_TILE,
                    [&](int i, int j, float v) { acc[i * ld + j] += v; });
        }
        __syncthreads();
    };
    /* dot: of the rows of k and acc */
    auto dots = [&]() {
        if (t < CHUNK)
            dot[t] = 0.0f;
        __syncthreads();
        add_dots(
            dot, a.K, [&](int i, int j) { return k[i * ld + j]; },
            [&](int i, int j) { return acc[i * ld + j]; });
        __syncthreads();
    };
    over(states, OF_DY); /* queries */
    load_q(k, ld, a, c, h);
    dots();
    if (t < c.len)
        pass[t] += d.eG[t] * dot[t];
    __syncthreads();
    load_k(k, ld, a, c, h);
    load_square(m, dscore + at * CHUNK * CHUNK);
    loaded();
    product(m, LDC, 1, k, ld, 1, CHUNK, rows, CHUNK, [&](int i, int j, float v) {
        if (i < c.len && j < a.K)
            dq[((i64)(c.row + i) * a.H + h) * a.K + j] = acc[i * ld + j] * d.eG[i] + v;
    });
    float *out = dk + ((i64)c.row * a.H + h) * a.K;
    const i64 step = (i64)a.H * a.K;
    over(dstates, ADDED); /* keys: through the state after the chunk */
    dots();
    const float e = t < c.len ? d.to_end[t] * dot[t] : 0.0f;
    if (t < c.len)
        pass[t] -= e;
    whole += e;
    if (a.delta) { /* through what the state predicts, and the other keys */
        for (int i = t / 32; i < c.len; i += 8)
            for (int j = t % 32; j < a.K; j += 32)
                out[i * step + j] = d.to_end[i] * acc[i * ld + j];
        over(states, OF_DR);
        dots();
        if (t < c.len)
            pass[t] -= d.beta[t] * d.eG[t] * dot[t];
        load_square(m, dcross + at * CHUNK * CHUNK);
        loaded();
        for (int i = t; i < CHUNK * CHUNK; i += 256) /* its transpose too: zeros above */
            if (i % CHUNK > i / CHUNK)
                m[i / CHUNK * LDC + i % CHUNK] = m[i % CHUNK * LDC + i / CHUNK];
        __syncthreads();
        product(m, LDC, 1, k, ld, 1, CHUNK, rows, CHUNK, [&](int i, int j, float v) {
            if (i < c.len && j < a.K)
                out[i * step + j] += v - d.beta[i] * d.eG[i] * acc[i * ld + j];
        });
        __syncthreads();
        load_square(m, dscore + at * CHUNK * CHUNK);
    }
    loaded();
    load_q(k, ld, a, c, h);
    product(m, 1, LDC, k, ld, 1, CHUNK, rows, CHUNK, [&](int i, int j, float v) {
        if (i >= c.len || j >= a.K)
            return;
        out[i * step + j] = v + (a.delta ? out[i * step + j] : d.to_end[i] * acc[i * ld + j]);
    });
    whole = block_sum(whole + d.eG[c.len - 1] * dot_of_states(states, dstates, at, a));
    if (t < c.len) { /* every row's decay is in the G of all later ones */
        float sum = whole;
        for (int i = c.len - 1; i >= t; i--)
            sum += pass[i];
        ddecay[(c.row + t) * ld_dd + h] = sum;
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
        for (int i = lane; a.delta && i < a.K; i += 32) {
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

/* Block (h, x): dskip of a head over every gridDim.y-th chunk of 64 rows, part [x][H]; in a fixed
 * order. */
extern "C" __global__ void __launch_bounds__(256)
    scan_dskip(float *part, const AF_T *dy, long long lddy, scan_args a)
{
    const int h = blockIdx.x, first = a.bounds[0], end = a.bounds[a.S];
    float sum = 0.0f;
    for (int row = first + blockIdx.y * CHUNK; row < end; row += gridDim.y * CHUNK)
        for (int n = row + threadIdx.x / 32; n < min(row + CHUNK, end); n += 8)
            for (int i = threadIdx.x % 32; i < a.V; i += 32)
                sum += load(dy + n * lddy + (i64)h * a.V + i) *
                       load(a.x + n * a.ldx + a.v_from + (i64)h * a.V + i);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[(i64)blockIdx.y * a.H + h] = sum;
}
