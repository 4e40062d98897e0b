/* selective.cu - the selective scan of Mamba-1. Contract: selective.c; twin: selective_cpu.c.
 *
 * Built with AF_T (of x, b, c and y) and AF_NS (the most states of a channel). A thread has one
 * channel of one sequence and its states in registers; block (x, y) has 128 channels of sequence y,
 * and those of y = S write zeros into the rows outside all sequences. The backward goes by chunks
 * of SPAN rows from the last to the first, whose states it makes again from those at their
 * beginnings: a first pass stores these in `border` [N / SPAN + S][I][n]. */
// variants: AF_T=bf16,half,float AF_NS=16,64
// common: AF_T=bf16 AF_NS=16
#include "dev.cuh"

#define THREADS 128
#define SPAN    16

struct selective_args {
    const AF_T *x, *b, *c;
    const float *dt, *a;
    const int *bounds;
    long long ldx, ldt, ldb, ldc; /* rows of x, dt, b, c */
    int S, I, n, N;
};

/* s = exp(dt a) s + dt x b of all states. */
DEV void advance(float (&s)[AF_NS], const float (&a)[AF_NS], float dt, float x, const AF_T *b,
                 int n)
{
#pragma unroll
    for (int k = 0; k < AF_NS; k++)
        if (k < n)
            s[k] = expf(dt * a[k]) * s[k] + dt * x * load(b + k);
}

DEV void load_a(float (&a)[AF_NS], const selective_args &p, int i)
{
#pragma unroll
    for (int k = 0; k < AF_NS; k++)
        a[k] = k < p.n && i < p.I ? p.a[(i64)i * p.n + k] : 0.0f;
}

/* Column i of rows outside all sequences. */
template <class T> DEV void zero_outside(T *y, i64 ld, const selective_args &p, int i)
{
    for (int r = 0; r < p.N && i < p.I; r++)
        if (r < p.bounds[0] || r >= p.bounds[p.S])
            store(y + r * ld + i, 0.0f);
}

/* state [S][I][n] is carried on, from zero where start[s] is 0; NULL: none. */
extern "C" __global__ void __launch_bounds__(THREADS)
    selective_fwd(AF_T *y, long long ldy, float *state, const int *start, selective_args p)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x), q = (int)blockIdx.y;
    if (q == p.S) {
        zero_outside(y, ldy, p, i);
        return;
    }
    if (i >= p.I)
        return;
    float s[AF_NS] = {}, a[AF_NS];
    float *own = state ? state + ((i64)q * p.I + i) * p.n : 0;
    load_a(a, p, i);
    if (own && start[q] != 0)
        for (int k = 0; k < p.n; k++)
            s[k] = own[k];
    for (i64 r = p.bounds[q]; r < p.bounds[q + 1]; r++) {
        advance(s, a, p.dt[r * p.ldt + i], load(p.x + r * p.ldx + i), p.b + r * p.ldb, p.n);
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < AF_NS; k++)
            if (k < p.n)
                sum += load(p.c + r * p.ldc + k) * s[k];
        store(y + r * ldy + i, sum);
    }
    if (own && p.bounds[q + 1] > p.bounds[q])
        for (int k = 0; k < p.n; k++)
            own[k] = s[k];
}

/* dx, ddt; part [gridDim.x][N][2n]: what the block's channels add to dc and db; da_part [S][I][n].
 */
extern "C" __global__ void __launch_bounds__(THREADS)
    selective_bwd(AF_T *dx, long long lddx, float *ddt, long long lddt, float *part, float *da_part,
                  float *border, const AF_T *dy, long long lddy, selective_args p)
{
    __shared__ float sums[THREADS / 32][2 * AF_NS];
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x), q = (int)blockIdx.y;
    if (q == p.S) {
        zero_outside(dx, lddx, p, i);
        zero_outside(ddt, lddt, p, i);
        return;
    }
    const bool here = i < p.I;
    const int row = p.bounds[q], len = p.bounds[q + 1] - row, lane = threadIdx.x % 32;
    float s[AF_NS] = {}, a[AF_NS], g[AF_NS] = {}, da[AF_NS] = {};
    load_a(a, p, i);
    /* as many borders before as all earlier sequences have at most */
    float *edge = border + (((i64)row / SPAN + q) * p.I + i) * p.n;
    const i64 step = (i64)p.I * p.n;
    for (int t = 0; t < len && here; t++) {
        const i64 r = row + t;
        if (t % SPAN == 0)
            for (int k = 0; k < p.n; k++)
                edge[t / SPAN * step + k] = s[k];
        advance(s, a, p.dt[r * p.ldt + i], load(p.x + r * p.ldx + i), p.b + r * p.ldb, p.n);
    }
    for (int first = (len - 1) / SPAN * SPAN; first >= 0 && len > 0; first -= SPAN) {
        const int end = min(first + SPAN, len);
        float before[SPAN][AF_NS]; /* the states before each row */
        for (int k = 0; k < p.n && here; k++)
            s[k] = edge[first / SPAN * step + k];
        for (int t = first; t < end && here; t++) {
            const i64 r = row + t;
            for (int k = 0; k < p.n; k++)
                before[t - first][k] = s[k];
            advance(s, a, p.dt[r * p.ldt + i], load(p.x + r * p.ldx + i), p.b + r * p.ldb, p.n);
        }
        for (int t = end - 1; t >= first; t--) {
            const i64 r = row + t;
            const float x = here ? load(p.x + r * p.ldx + i) : 0.0f,
                        dt = here ? p.dt[r * p.ldt + i] : 0.0f,
                        d = here ? load(dy + r * lddy + i) : 0.0f;
            float sx = 0.0f, st = 0.0f;
#pragma unroll
            for (int k = 0; k < AF_NS; k++) {
                if (k >= p.n)
                    continue;
                const float b = load(p.b + r * p.ldb + k), c = load(p.c + r * p.ldc + k),
                            e = expf(dt * a[k]), old = here ? before[t - first][k] : 0.0f;
                g[k] += d * c;
                const float dc = warp_sum(d * (e * old + dt * x * b)), db = warp_sum(g[k] * dt * x);
                if (lane == 0) {
                    sums[threadIdx.x / 32][k] = dc;
                    sums[threadIdx.x / 32][p.n + k] = db;
                }
                sx += g[k] * dt * b;
                st += g[k] * (a[k] * e * old + x * b);
                da[k] += g[k] * dt * e * old;
                g[k] *= e;
            }
            if (here) {
                store(dx + r * lddx + i, sx);
                ddt[r * lddt + i] = st;
            }
            __syncthreads();
            if ((int)threadIdx.x < 2 * p.n) {
                float sum = 0.0f;
                for (int w = 0; w < THREADS / 32; w++)
                    sum += sums[w][threadIdx.x];
                part[((i64)blockIdx.x * p.N + r) * 2 * p.n + threadIdx.x] = sum;
            }
            __syncthreads();
        }
    }
    for (int k = 0; k < p.n && here; k++)
        da_part[((i64)q * p.I + i) * p.n + k] = da[k];
}

/* Sums of the parts: db and dc of row blockIdx.x, zero outside all sequences. */
extern "C" __global__ void selective_rows(AF_T *db, long long lddb, AF_T *dc, long long lddc,
                                          const float *part, int parts, selective_args p)
{
    const int r = (int)blockIdx.x, k = (int)threadIdx.x;
    const bool inside = r >= p.bounds[0] && r < p.bounds[p.S];
    float sum = 0.0f;
    if (k >= 2 * p.n)
        return;
    for (int w = 0; w < parts && inside; w++)
        sum += part[((i64)w * p.N + r) * 2 * p.n + k];
    if (k < p.n)
        store(dc + r * lddc + k, sum);
    else
        store(db + r * lddb + k - p.n, sum);
}

/* da [I][n]: the sum over sequences. */
extern "C" __global__ void selective_a(float *da, const float *da_part, selective_args p)
{
    const i64 at = (i64)blockIdx.x * THREADS + threadIdx.x, count = (i64)p.I * p.n;
    float sum = 0.0f;
    for (int q = 0; q < p.S && at < count; q++)
        sum += da_part[q * count + at];
    if (at < count)
        da[at] = sum;
}
