/* channel.cu - the gated delta rule of scan.c with a decay per channel of the key; twin:
 * scan_cpu.c; formulas of the backward: scan_channel_fast.c.
 *
 * The recurrence itself, row after row: columns of a state do not meet, so a block takes 32 of one
 * head of one sequence, a lane each; eight warps share the rows of the state, which is in shared
 * memory. channel_scan serves training and generation and leaves the state before every chunk of 64
 * rows. channel_back makes the states of a chunk again from there, in a piece of the workspace that
 * a block has for itself, and goes through its rows from the last one. What is summed over columns
 * it gives for each tile of 32, channel_join adds the tiles in order. Built with AF_T. */
// variants: AF_T=bf16,half,float
// common: AF_T=bf16,float
#include "scan.cuh"

#define COLUMNS 32

/* One head of one sequence, 32 columns. */
struct channel_job {
    int s, h, tile, col;
    bool mine; /* the lane has a column */
};
DEV channel_job job_of(const scan_args &a, int i)
{
    const int tiles = (a.V + COLUMNS - 1) / COLUMNS, tile = i % tiles,
              col = tile * COLUMNS + threadIdx.x % 32;
    return {i / tiles / a.H, i / tiles % a.H, tile, col, col < a.V};
}

/* Arrays of a row in shared memory: q and k divided by their length, exp(decay). */
struct channel_row {
    float *q, *k, *e;
};
/* Warps 0 to 2; the caller waits. */
DEV void load_row(const channel_row &r, const scan_args &a, int n, int h)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp == 2)
        for (int i = lane; i < a.K; i += 32)
            r.e[i] = expf(a.decay[(i64)n * a.ld_decay + (i64)h * a.K + i]);
    if (warp > 1)
        return;
    float *to = warp ? r.k : r.q, ss = 0.0f;
    const AF_T *from = a.x + (i64)n * a.ldx + (warp ? a.k_from : a.q_from) + key_head(a, h) * a.K;
    for (int i = lane; i < a.K; i += 32) {
        to[i] = load(from + i);
        ss += to[i] * to[i];
    }
    const float f = rsqrtf(warp_sum(ss) + 1e-6f) * (warp ? 1.0f : rsqrtf((float)a.K));
    for (int i = lane; i < a.K; i += 32)
        to[i] *= f;
}

/* A lane's sum over the eight warps; part is free again after the next wait. */
DEV float sum_warps(float (*part)[33], float v)
{
    const int lane = threadIdx.x % 32;
    part[threadIdx.x / 32][lane] = v;
    __syncthreads();
    v = 0.0f;
    for (int w = 0; w < 8; w++)
        v += part[w][lane];
    return v;
}

/* What beta multiplies in row n; st [K][32] becomes the state after it. All threads, after the row
 * was loaded. */
DEV float channel_step(float *st, const channel_row &r, float (*part)[33], const scan_args &a,
                       const channel_job &b, int n)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float u = 0.0f;
    for (int i = warp; i < a.K; i += 8) {
        st[i * COLUMNS + lane] *= r.e[i];
        u += st[i * COLUMNS + lane] * r.k[i];
    }
    u = sum_warps(part, u);
    const AF_T *v = a.x + (i64)n * a.ldx + a.v_from + (i64)b.h * a.V;
    const float error = b.mine ? load(v + b.col) - u : 0.0f, d = beta_of(a, n, b.h) * error;
    for (int i = warp; i < a.K; i += 8)
        st[i * COLUMNS + lane] += r.k[i] * d;
    return error;
}

/* Block i: rows of a sequence one after another. state [S][H][K][V] (or NULL: zeros) is carried as
 * in scan.c; states (or NULL): [slot][H][K][V] before every chunk; y or NULL. */
extern "C" __global__ void __launch_bounds__(256)
    channel_scan(AF_T *y, long long ldy, float *state, const int *start, float *states, scan_args a)
{
    __shared__ float part[2][8][33];
    const channel_job b = job_of(a, blockIdx.x);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = a.bounds[b.s],
              end = a.bounds[b.s + 1];
    float *st = shared;
    const channel_row r = {st + a.K * COLUMNS, st + a.K * (COLUMNS + 1), st + a.K * (COLUMNS + 2)};
    const i64 KV = (i64)a.K * a.V, home = ((i64)b.s * a.H + b.h) * KV + b.col;
    if (first == end)
        return;
    for (int i = warp; i < a.K; i += 8)
        st[i * COLUMNS + lane] =
            b.mine && state && start[b.s] > 0 ? state[home + (i64)i * a.V] : 0.0f;
    for (int n = first; n < end; n++) {
        if (states && (n - first) % CHUNK == 0 && b.mine) {
            const i64 slot = first / CHUNK + b.s + (n - first) / CHUNK;
            for (int i = warp; i < a.K; i += 8)
                states[(slot * a.H + b.h) * KV + (i64)i * a.V + b.col] = st[i * COLUMNS + lane];
        }
        load_row(r, a, n, b.h);
        __syncthreads();
        channel_step(st, r, part[0], a, b, n);
        float o = 0.0f;
        for (int i = warp; i < a.K; i += 8)
            o += st[i * COLUMNS + lane] * r.q[i];
        o = sum_warps(part[1], o);
        if (warp == 0 && b.mine && y)
            store(y + n * ldy + (i64)b.h * a.V + b.col, o);
    }
    for (int i = warp; i < a.K && state && b.mine; i += 8)
        state[home + (i64)i * a.V] = st[i * COLUMNS + lane];
}

/* One row of the backward: before [K][32] is the state before it, ds the gradient of the one after
 * it. to: dq [K], dk [K], ddecay [K], dbeta of this tile; dv of this column. */
DEV float row_back(float *ds, const float *before, const channel_row &r, float (*part)[33],
                   const scan_args &a, float beta, float error, float dy, float *to)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float d = beta * error;
    float dd = 0.0f;
    for (int i = warp; i < a.K; i += 8) {
        const float after = r.e[i] * before[i * COLUMNS + lane] + r.k[i] * d,
                    dq = warp_sum(after * dy), g = ds[i * COLUMNS + lane] + r.q[i] * dy;
        ds[i * COLUMNS + lane] = g;
        dd += g * r.k[i];
        if (lane == 0)
            to[i] = dq;
    }
    dd = sum_warps(part, dd);
    const float dv = beta * dd, dbeta = warp_sum(dd * error);
    for (int i = warp; i < a.K; i += 8) {
        const float s = r.e[i] * before[i * COLUMNS + lane], g = ds[i * COLUMNS + lane],
                    less = g - r.k[i] * dv, dk = warp_sum(g * d - s * dv),
                    ddecay = warp_sum(less * s);
        ds[i * COLUMNS + lane] = less * r.e[i];
        if (lane == 0) {
            to[a.K + i] = dk;
            to[2 * a.K + i] = ddecay;
        }
    }
    if (threadIdx.x == 0)
        to[3 * a.K] = dbeta;
    return dv;
}

/* Every gridDim.x-th of `jobs`: dv into dx, sums over columns into sums [tile][N][H][3K + 1].
 * states: as channel_scan left them; inner: [gridDim.x][64][K][32] of scratch. */
extern "C" __global__ void __launch_bounds__(256)
    channel_back(AF_T *dx, long long lddx, float *sums, const float *states, float *inner,
                 const AF_T *dy, long long lddy, int N, int jobs, scan_args a)
{
    __shared__ float part[8][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 KV = (i64)a.K * a.V, one = (i64)a.K * COLUMNS;
    float *st = shared, *ds = st + one, *error = ds + one;
    const channel_row r = {error + CHUNK * COLUMNS, error + CHUNK * COLUMNS + a.K,
                           error + CHUNK * COLUMNS + 2 * a.K};
    float *mine = inner + (i64)blockIdx.x * CHUNK * one;
    for (int job = blockIdx.x; job < jobs; job += gridDim.x) {
        const channel_job b = job_of(a, job);
        const int first = a.bounds[b.s], len = a.bounds[b.s + 1] - first;
        for (int i = warp; i < a.K; i += 8)
            ds[i * COLUMNS + lane] = 0.0f;
        for (int chunk = (len + CHUNK - 1) / CHUNK - 1; chunk >= 0; chunk--) {
            const int row = first + chunk * CHUNK, left = first + len - row,
                      rows = left < CHUNK ? left : CHUNK;
            const float *home = states + ((i64)(first / CHUNK + b.s + chunk) * a.H + b.h) * KV;
            for (int i = warp; i < a.K; i += 8)
                st[i * COLUMNS + lane] = b.mine ? home[(i64)i * a.V + b.col] : 0.0f;
            for (int t = 0; t < rows; t++) {
                for (int i = warp; i < a.K; i += 8)
                    mine[t * one + i * COLUMNS + lane] = st[i * COLUMNS + lane];
                load_row(r, a, row + t, b.h);
                __syncthreads();
                const float e = channel_step(st, r, part, a, b, row + t);
                if (warp == 0)
                    error[t * COLUMNS + lane] = e;
                __syncthreads();
            }
            for (int t = rows - 1; t >= 0; t--) {
                const i64 n = row + t, col = (i64)b.h * a.V + b.col;
                load_row(r, a, (int)n, b.h);
                __syncthreads();
                const float dv =
                    row_back(ds, mine + t * one, r, part, a, beta_of(a, (int)n, b.h),
                             error[t * COLUMNS + lane], b.mine ? load(dy + n * lddy + col) : 0.0f,
                             sums + (((i64)b.tile * N + n) * a.H + b.h) * (3 * a.K + 1));
                if (warp == 0 && b.mine)
                    store(dx + n * lddx + a.v_from + col, dv);
                __syncthreads();
            }
        }
    }
}

/* Block (n, key head): the sums of all tiles and of the heads that share keys, in order; dq and dk
 * through the norm. */
extern "C" __global__ void __launch_bounds__(32)
    channel_join(AF_T *dx, long long lddx, float *ddecay, long long ld_dd, void *dbeta,
                 long long ld_dbeta, const float *sums, int N, scan_args a)
{
    const int n = blockIdx.x, kh = blockIdx.y, lane = threadIdx.x, group = a.H / a.J,
              tiles = (a.V + COLUMNS - 1) / COLUMNS;
    if (sequence_of(a.bounds, a.S, n) < 0)
        return;
    /* value i of head h */
    auto of = [&](int h, int i) {
        float v = 0.0f;
        for (int t = 0; t < tiles; t++)
            v += sums[(((i64)t * N + n) * a.H + h) * (3 * a.K + 1) + i];
        return v;
    };
    for (int keys = 0; keys < 2; keys++) {
        const int from = (keys ? a.k_from : a.q_from) + kh * a.K;
        const AF_T *x = a.x + (i64)n * a.ldx + from;
        auto of_heads = [&](int i) {
            float v = 0.0f;
            for (int h = kh * group; h < (kh + 1) * group; h++)
                v += of(h, keys * a.K + i);
            return v;
        };
        float ss = 0.0f, dot = 0.0f;
        for (int i = lane; i < a.K; i += 32) {
            ss += load(x + i) * load(x + i);
            dot += load(x + i) * of_heads(i);
        }
        const float r = rsqrtf(warp_sum(ss) + 1e-6f), c = r * r * warp_sum(dot),
                    factor = keys ? r : r * rsqrtf((float)a.K);
        for (int i = lane; i < a.K; i += 32)
            store(dx + n * lddx + from + i, factor * (of_heads(i) - load(x + i) * c));
    }
    for (int h = kh * group; h < (kh + 1) * group; h++) {
        for (int i = lane; i < a.K; i += 32)
            ddecay[n * ld_dd + (i64)h * a.K + i] = of(h, 2 * a.K + i);
        if (lane == 0)
            put_value(dbeta, a.beta_type, n * ld_dbeta + h, of(h, 3 * a.K));
    }
}
