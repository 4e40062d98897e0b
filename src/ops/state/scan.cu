/* scan.cu - recurrences with a matrix as state, forward.  Contract and formulas: scan.c; twin:
 * scan_cpu.c; by chunks on the CPU: scan_fast.c.
 *
 * scan_scores makes the 64 x 64 matrices of every chunk at once, scan_out the outputs. Between them
 * the states before every chunk: without delta scan_added makes what each chunk adds, all at once,
 * and scan_pass adds it up; with delta scan_states goes from chunk to chunk (columns of a state do
 * not meet: blocks take AF_TILE of them). scan_step is the recurrence itself, for generation. Built
 * with AF_T, AF_MMA (1: tensor cores) and AF_TILE. */
// variants: (AF_T=bf16,half AF_MMA=0,1 | AF_T=float AF_MMA=0) AF_TILE=8,16,32
// common: (AF_T=bf16 AF_MMA=1 | AF_T=float AF_MMA=0) AF_TILE=32
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

/* Block (slot, h * tiles + tile), without delta: what the chunk adds to the state, [slot][H][K][V],
 * and by how much it multiplies it, keep [slot][H]. */
extern "C" __global__ void __launch_bounds__(256)
    scan_added(float *states, float *keep, scan_args a)
{
    __shared__ decays d;
    const int h = blockIdx.y / tiles_of(a), c0 = blockIdx.y % tiles_of(a) * AF_TILE,
              cols = columns_of(a, c0), ld = key_ld(a), rows = key_pad(a);
    const chunk c = chunk_of(a, blockIdx.x);
    if (c.len == 0)
        return;
    const i64 at = c.slot * a.H + h;
    float *k = shared, *e = k + CHUNK * ld, *st = e + CHUNK * LT;
    load_decays(d, a, c, h);
    load_k(k, ld, a, c, h);
    load_added(e, 0, d, a, c, h, c0, cols);
    scale_rows(e, d.to_end);
    __syncthreads();
    product(k, 1, ld, e, LT, 1, rows, AF_TILE, CHUNK,
            [&](int i, int j, float v) { st[i * LT + j] = v; });
    __syncthreads();
    store_tile<AF_TILE>(states + at * a.K * a.V + c0, a.V, st, LT, a.K, cols);
    if (threadIdx.x == 0 && c0 == 0)
        keep[at] = d.eG[c.len - 1];
}

/* The slot of chunk b of n in the order in which scan_pass takes them. */
DEV i64 slot_of(int first, int b, int n, int back) { return first + (back ? n - 1 - b : b); }

/* Every state [K][V] becomes the sum of what came before its chunk; with `back` of what comes after
 * it, from the last chunk on. N values a thread, `one` divided among the blocks of x. */
template <int N> DEV void pass_on(float *states, const float *keep, int back, const scan_args &a)
{
    constexpr int AHEAD = 8;
    const i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * N, one = (i64)a.K * a.V;
    const int h = blockIdx.y, s = blockIdx.z,
              chunks = (a.bounds[s + 1] - a.bounds[s] + CHUNK - 1) / CHUNK,
              first = a.bounds[s] / CHUNK + s;
    float sum[N] = {};
    if (i >= one)
        return;
    for (int from = 0; from < chunks; from += AHEAD) {
        float v[AHEAD][N], e[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const i64 at = slot_of(first, min(from + j, chunks - 1), chunks, back) * a.H + h;
            load_n(v[j], states + at * one + i);
            e[j] = keep[at];
        }
        all_asked_for();
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (from + j < chunks) {
                store_n(states + (slot_of(first, from + j, chunks, back) * a.H + h) * one + i, sum);
#pragma unroll
                for (int k = 0; k < N; k++)
                    sum[k] = sum[k] * e[j] + v[j][k];
            }
    }
}
/* Blocks (x, h, s), after scan_added or scan_dadded. */
extern "C" __global__ void __launch_bounds__(256)
    scan_pass(float *states, const float *keep, int back, scan_args a)
{
    if (a.K * a.V % 4 == 0)
        pass_on<4>(states, keep, back, a);
    else
        pass_on<1>(states, keep, back, a);
}

/* Block (h * tiles + tile, s), with delta: the states before every chunk, [slot][H][K][V]; d, and
 * what beta multiplies (or NULL), [N][H*V]. */
extern "C" __global__ void __launch_bounds__(256)
    scan_states(float *states, float *dmat, float *error, const float *inverse, scan_args a)
{
    __shared__ decays d;
    const int h = blockIdx.x / tiles_of(a), c0 = blockIdx.x % tiles_of(a) * AF_TILE,
              cols = columns_of(a, c0), s = blockIdx.y, ld = key_ld(a), rows = key_pad(a);
    float *k = shared, *st = k + CHUNK * ld, *r = st + rows * LT, *e = r + CHUNK * LT,
          *inv = e + CHUNK * LT;
    for (int i = threadIdx.x; i < rows * LT; i += 256)
        st[i] = 0.0f;
    const int first = a.bounds[s], end = a.bounds[s + 1];
    const i64 wide = (i64)a.H * a.V;
    for (int row = first, slot = first / CHUNK + s; row < end; row += CHUNK, slot++) {
        const chunk c = {slot, s, row, end - row < CHUNK ? end - row : CHUNK};
        const i64 at = ((i64)slot * a.H + h), out = row * wide + (i64)h * a.V + c0;
        __syncthreads();
        store_tile<AF_TILE>(states + at * a.K * a.V + c0, a.V, st, LT, a.K, cols);
        load_decays(d, a, c, h);
        load_k(k, ld, a, c, h);
        load_square(inv, inverse + at * CHUNK * CHUNK);
        load_values(e, 0, a, c, h, c0, cols);
        product(k, ld, 1, st, LT, 1, CHUNK, AF_TILE, rows,
                [&](int i, int j, float v) { r[i * LT + j] = v * d.eG[i]; });
        loaded();
        for (int i = threadIdx.x; i < CHUNK * AF_TILE; i += 256) {
            const int t = i / AF_TILE, j = i % AF_TILE;
            const float v = e[t * LT + j] - r[t * LT + j];
            if (error && t < c.len && j < cols)
                error[out + t * wide + j] = v;
            e[t * LT + j] = v * d.beta[t];
        }
        __syncthreads();
        product(inv, LDC, 1, e, LT, 1, CHUNK, AF_TILE, CHUNK,
                [&](int i, int j, float v) { r[i * LT + j] = v; });
        __syncthreads();
        store_tile<AF_TILE>(dmat + out, wide, r, LT, c.len, cols);
        __syncthreads();
        scale_rows(r, d.to_end);
        __syncthreads();
        const float keep = d.eG[c.len - 1];
        product(k, 1, ld, r, LT, 1, rows, AF_TILE, CHUNK,
                [&](int i, int j, float v) { st[i * LT + j] = st[i * LT + j] * keep + v; });
    }
}

/* Block (slot, h * tiles + tile): y = exp(G) s0^T q + score d (+ skip v). */
extern "C" __global__ void __launch_bounds__(256)
    scan_out(AF_T *y, long long ldy, const float *states, const float *dmat, const float *score,
             scan_args a)
{
    __shared__ decays d;
    const int h = blockIdx.y / tiles_of(a), c0 = blockIdx.y % tiles_of(a) * AF_TILE,
              cols = columns_of(a, c0), ld = key_ld(a), rows = key_pad(a);
    const chunk c = chunk_of(a, blockIdx.x);
    if (c.len == 0)
        return;
    const i64 at = c.slot * a.H + h, col = (i64)h * a.V + c0;
    float *q = shared, *st = q + CHUNK * ld, *r = st + rows * LT, *sc = r + CHUNK * LT,
          *o = sc + CHUNK * LDC;
    load_decays(d, a, c, h);
    load_tile<AF_TILE>(st, LT, states + at * a.K * a.V + c0, a.V, a.K, cols, rows);
    load_square(sc, score + at * CHUNK * CHUNK);
    load_q(q, ld, a, c, h);
    load_added(r, dmat, d, a, c, h, c0, cols);
    product(q, ld, 1, st, LT, 1, CHUNK, AF_TILE, rows,
            [&](int i, int j, float v) { o[i * LT + j] = v * d.eG[i]; });
    product(sc, LDC, 1, r, LT, 1, CHUNK, AF_TILE, CHUNK,
            [&](int i, int j, float v) { o[i * LT + j] += v; });
    __syncthreads();
    if (a.skip) {
        const float skip = value(a.skip, a.skip_type, h);
        load_values(r, 0, a, c, h, c0, cols);
        loaded();
        for (int i = threadIdx.x; i < CHUNK * AF_TILE; i += 256)
            o[i / AF_TILE * LT + i % AF_TILE] += skip * r[i / AF_TILE * LT + i % AF_TILE];
        __syncthreads();
    }
    store_tile<AF_TILE>(y + c.row * ldy + col, ldy, o, LT, c.len, cols);
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
