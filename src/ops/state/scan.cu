/* scan.cu - recurrences with a matrix as state, forward.  Contract and formulas: scan.c; twin:
 * scan_cpu.c; by chunks on the CPU: scan_fast.c.
 *
 * scan_scores makes the 64 x 64 matrices of every chunk at once, scan_states passes the state from
 * chunk to chunk (columns of a state do not meet: blocks take `tile` of them), scan_out makes the
 * outputs of every chunk at once. scan_step is the recurrence itself, for generation. Built with
 * AF_T and AF_MMA (1: tensor cores). */
// variants: (AF_T=bf16,half AF_MMA=0,1 | AF_T=float AF_MMA=0)
// common: (AF_T=bf16 AF_MMA=1 | AF_T=float AF_MMA=0)
#include "scan.cuh"

/* Block (slot, h): score[t][i] = exp(G[t]-G[i]) q[t].k[i] for i <= t; with delta also
 * cross = exp(G[t]-G[i]) k[t].k[i] for i < t (or NULL), and inverse = (1 + beta cross)^-1. */
extern "C" __global__ void __launch_bounds__(256)
    scan_scores(float *score, float *inverse, float *cross, scan_args a)
{
    __shared__ decays d;
    const int h = blockIdx.y, ld = key_ld(a), rows = key_pad(a), t = threadIdx.x;
    const chunk c = chunk_of(a, blockIdx.x);
    if (c.len == 0)
        return;
    const i64 at = (c.slot * a.H + h) * CHUNK * CHUNK;
    float *k = shared, *q = k + CHUNK * ld, *m = q + CHUNK * (ld > LDC ? ld : LDC);
    load_decays(d, a, c, h);
    load_q(q, ld, a, c, h);
    load_k(k, ld, a, c, h);
    product(q, ld, 1, k, 1, ld, CHUNK, CHUNK, rows, [&](int i, int j, float v) {
        score[at + i * CHUNK + j] = j <= i && i < c.len ? v * expf(d.G[i] - d.G[j]) : 0.0f;
    });
    if (!a.delta)
        return;
    product(k, ld, 1, k, 1, ld, CHUNK, CHUNK, rows, [&](int i, int j, float v) {
        const float x = j < i && i < c.len ? v * expf(d.G[i] - d.G[j]) : 0.0f;
        m[i * LDC + j] = x * d.beta[i];
        if (cross)
            cross[at + i * CHUNK + j] = x;
    });
    __syncthreads();
    float *inv = q; /* a thread per column: from the diagonal down */
    if (t < CHUNK)
        for (int i = 0; i < CHUNK; i++) {
            float v = i == t ? 1.0f : 0.0f;
            for (int j = t; j < i; j++)
                v -= m[i * LDC + j] * inv[j * LDC + t];
            inv[i * LDC + t] = v;
        }
    __syncthreads();
    for (int i = t; i < CHUNK * CHUNK; i += 256)
        inverse[at + i] = inv[i / CHUNK * LDC + i % CHUNK];
}

/* Block (h * tiles + tile, s): the states before every chunk, [slot][H][K][V]; d, and what beta
 * multiplies (or NULL), [N][H*V]. */
extern "C" __global__ void __launch_bounds__(256)
    scan_states(float *states, float *dmat, float *error, const float *inverse, scan_args a)
{
    __shared__ decays d;
    const int tiles = (a.V + a.tile - 1) / a.tile, h = blockIdx.x / tiles,
              c0 = blockIdx.x % tiles * a.tile, cols = a.V - c0 < a.tile ? a.V - c0 : a.tile;
    const int s = blockIdx.y, ld = key_ld(a), lt = tile_ld(a), rows = key_pad(a);
    float *k = shared, *st = k + CHUNK * ld, *r = st + rows * lt, *e = r + CHUNK * lt,
          *inv = e + CHUNK * lt;
    for (int i = threadIdx.x; i < rows * lt; i += 256)
        st[i] = 0.0f;
    const int first = a.bounds[s], end = a.bounds[s + 1];
    for (int row = first, slot = first / CHUNK + s; row < end; row += CHUNK, slot++) {
        const chunk c = {slot, s, row, end - row < CHUNK ? end - row : CHUNK};
        const i64 at = ((i64)slot * a.H + h), out = (i64)row * a.H * a.V + (i64)h * a.V + c0;
        __syncthreads();
        for (int i = threadIdx.x; i < a.K * cols; i += 256)
            states[(at * a.K + i / cols) * a.V + c0 + i % cols] = st[i / cols * lt + i % cols];
        load_decays(d, a, c, h);
        load_k(k, ld, a, c, h);
        if (a.delta) {
            load_tile(inv, LDC, inverse + at * CHUNK * CHUNK, CHUNK, CHUNK, CHUNK, CHUNK, CHUNK);
            product(k, ld, 1, st, lt, 1, CHUNK, a.tile, rows,
                    [&](int i, int j, float v) { r[i * lt + j] = v * d.eG[i]; });
        }
        __syncthreads();
        for (int i = threadIdx.x; i < CHUNK * a.tile; i += 256) {
            const int t = i / a.tile, j = i % a.tile;
            float v = 0.0f;
            if (t < c.len && j < cols) {
                v = load(a.x + (i64)(row + t) * a.ldx + a.v_from + (i64)h * a.V + c0 + j) -
                    (a.delta ? r[t * lt + j] : 0.0f);
                if (error)
                    error[out + (i64)t * a.H * a.V + j] = v;
            }
            e[t * lt + j] = v * d.beta[t];
        }
        __syncthreads();
        if (a.delta) {
            product(inv, LDC, 1, e, lt, 1, CHUNK, a.tile, CHUNK,
                    [&](int i, int j, float v) { r[i * lt + j] = v; });
            __syncthreads();
        }
        float *mine = a.delta ? r : e;
        for (int i = threadIdx.x; i < CHUNK * a.tile; i += 256) {
            const int t = i / a.tile, j = i % a.tile;
            if (t < c.len && j < cols)
                dmat[out + (i64)t * a.H * a.V + j] = mine[t * lt + j];
            mine[t * lt + j] *= d.to_end[t];
        }
        __syncthreads();
        const float keep = d.eG[c.len - 1];
        product(k, 1, ld, mine, lt, 1, rows, a.tile, CHUNK,
                [&](int i, int j, float v) { st[i * lt + j] = st[i * lt + j] * keep + v; });
    }
}

/* Block (slot, h * tiles + tile): y = exp(G) s0^T q + score d (+ skip v). */
extern "C" __global__ void __launch_bounds__(256)
    scan_out(AF_T *y, long long ldy, const float *states, const float *dmat, const float *score,
             scan_args a)
{
    __shared__ decays d;
    const int tiles = (a.V + a.tile - 1) / a.tile, h = blockIdx.y / tiles,
              c0 = blockIdx.y % tiles * a.tile, cols = a.V - c0 < a.tile ? a.V - c0 : a.tile;
    const int ld = key_ld(a), lt = tile_ld(a), rows = key_pad(a);
    const chunk c = chunk_of(a, blockIdx.x);
    if (c.len == 0)
        return;
    const i64 at = c.slot * a.H + h;
    float *q = shared, *st = q + CHUNK * ld, *r = st + rows * lt, *sc = r + CHUNK * lt;
    load_decays(d, a, c, h);
    load_q(q, ld, a, c, h);
    load_tile(st, lt, states + at * a.K * a.V + c0, a.V, a.K, cols, rows, a.tile);
    load_tile(r, lt, dmat + (i64)c.row * a.H * a.V + (i64)h * a.V + c0, (i64)a.H * a.V, c.len, cols,
              CHUNK, a.tile);
    load_tile(sc, LDC, score + at * CHUNK * CHUNK, CHUNK, CHUNK, CHUNK, CHUNK, CHUNK);
    __syncthreads();
    const float skip = a.skip ? value(a.skip, a.skip_type, h) : 0.0f;
    float *o = sc + CHUNK * LDC;
    product(q, ld, 1, st, lt, 1, CHUNK, a.tile, rows,
            [&](int i, int j, float v) { o[i * lt + j] = v * d.eG[i]; });
    __syncthreads();
    product(sc, LDC, 1, r, lt, 1, CHUNK, a.tile, CHUNK, [&](int i, int j, float v) {
        if (i >= c.len || j >= cols)
            return;
        const i64 col = (i64)h * a.V + c0 + j;
        float u = o[i * lt + j] + v;
        if (a.skip)
            u += skip * load(a.x + (i64)(c.row + i) * a.ldx + a.v_from + col);
        store(y + (c.row + i) * ldy + col, u);
    });
}

/* Rows outside every sequence: block n. */
extern "C" __global__ void scan_zero(void *y, int type, long long ld, int width, const int *bounds,
                                     int S)
{
    const int n = blockIdx.x;
    if (sequence_of(bounds, S, n) < 0)
        for (int i = threadIdx.x; i < width; i += blockDim.x)
            put_value(y, type, n * ld + i, 0.0f);
}

/* Block (h * tiles + tile, s): rows of a sequence one after another on its state [S][H][K][V], 32
 * columns a block; eight warps share the rows of the state. */
extern "C" __global__ void __launch_bounds__(256)
    scan_step(AF_T *y, long long ldy, float *state, const int *start, scan_args a)
{
    __shared__ float part[2][8][33], norm[2];
    const int tiles = (a.V + 31) / 32, h = blockIdx.x / tiles, s = blockIdx.y;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32,
              col = blockIdx.x % tiles * 32 + lane;
    const bool mine = col < a.V;
    float *st = shared, *q = st + a.K * 32, *k = q + a.K;
    float *home = state + ((i64)s * a.H + h) * a.K * a.V;
    if (a.bounds[s] == a.bounds[s + 1])
        return;
    for (int i = warp; i < a.K; i += 8)
        st[i * 32 + lane] = mine && start[s] > 0 ? home[(i64)i * a.V + col] : 0.0f;
    const float skip = a.skip ? value(a.skip, a.skip_type, h) : 0.0f;
    for (int n = a.bounds[s]; n < a.bounds[s + 1]; n++) {
        const AF_T *row = a.x + (i64)n * a.ldx;
        const float e = expf(a.decay[(i64)n * a.ld_decay + h]), beta = beta_of(a, n, h);
        if (warp < 2) {
            float *to = warp ? k : q, ss = 0.0f;
            const AF_T *from = row + (warp ? a.k_from : a.q_from) + key_head(a, h) * a.K;
            for (int i = lane; i < a.K; i += 32) {
                to[i] = load(from + i);
                ss += to[i] * to[i];
            }
            ss = warp_sum(ss);
            if (lane == 0)
                norm[warp] =
                    !a.delta ? 1.0f : rsqrtf(ss + 1e-6f) * (warp ? 1.0f : rsqrtf((float)a.K));
        }
        __syncthreads();
        float u = 0.0f;
        for (int i = warp; i < a.K; i += 8) {
            st[i * 32 + lane] *= e;
            u += st[i * 32 + lane] * k[i] * norm[1];
        }
        part[0][warp][lane] = u;
        __syncthreads();
        u = 0.0f;
        for (int w = 0; w < 8; w++)
            u += part[0][w][lane];
        const float v = mine ? load(row + a.v_from + (i64)h * a.V + col) : 0.0f;
        const float d = beta * (v - (a.delta ? u : 0.0f));
        float o = 0.0f;
        for (int i = warp; i < a.K; i += 8) {
            st[i * 32 + lane] += k[i] * norm[1] * d;
            o += st[i * 32 + lane] * q[i] * norm[0];
        }
        part[1][warp][lane] = o;
        __syncthreads();
        if (warp == 0 && mine) {
            o = skip * v;
            for (int w = 0; w < 8; w++)
                o += part[1][w][lane];
            store(y + n * ldy + (i64)h * a.V + col, o);
        }
    }
    for (int i = warp; i < a.K; i += 8)
        if (mine)
            home[(i64)i * a.V + col] = st[i * 32 + lane];
}
