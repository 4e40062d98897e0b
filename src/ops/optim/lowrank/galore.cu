/* galore.cu - the parts of GaLore that are not GEMMs.  Contract and twin: galore_cpu.c.
 *
 * Built once: matrices are f32; sums over rows of thin matrices and what is k x k are in double.
 * Sums are over fixed parts in a fixed order. */
#include "dev.cuh"

#define STATS_CLIP    1
#define STATS_FINITE  2
#define HYPER_STEP    3
#define TILE          16
#define ROUNDED       1e-14
#define APART         1e-16
#define SWEEPS_MAX    20
#define SMALL_THREADS 256
#define PANEL         4

#define EACH(i, n)                                                                                 \
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                              \
         i += (i64)gridDim.x * blockDim.x)
/* The same with the threads of one block. */
#define OWN(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)

/* t [k][k] = z^T z.  Blocks of TILE * TILE threads, one for each tile of t. */
extern "C" __global__ void galore_gram(double *t, const float *z, long long rows, int k)
{
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int tiles = (k + TILE - 1) / TILE, x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const int a = blockIdx.x / tiles * TILE, b = blockIdx.x % tiles * TILE;
    double sum = 0;
    for (i64 r = 0; r < rows; r += TILE) {
        const bool in = r + y < rows;
        left[y][x] = in && a + x < k ? z[(r + y) * k + a + x] : 0.0f;
        right[y][x] = in && b + x < k ? z[(r + y) * k + b + x] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += (double)left[i][y] * (double)right[i][x];
        __syncthreads();
    }
    if (a + y < k && b + x < k)
        t[(i64)(a + y) * k + b + x] = sum;
}

/* PANEL rows of l^T from row j on: 1 / their first values (or 0), and their values there. */
struct panel {
    double scale[PANEL], f[PANEL][PANEL];
};

/* Values of column c of the rows j to j + PANEL of x, as the panel's rows before each leave them.
 */
DEV void reduce_column(double r[PANEL], const double *x, const panel &p, int j, int c, int k)
{
#pragma unroll
    for (int b = 0; b < PANEL; b++) {
        double v = j + b < k ? x[(i64)(j + b) * k + c] : 0.0;
#pragma unroll
        for (int a = 0; a < b; a++)
            v -= p.f[a][b] * r[a];
        r[b] = v * p.scale[b];
    }
}

DEV void make_panel(panel *p, const double *t, const double *length, int j, int k)
{
#pragma unroll
    for (int b = 0; b < PANEL; b++) {
        const bool in = j + b < k;
#pragma unroll
        for (int a = 0; a <= b; a++) {
            double v = in ? t[(i64)(j + a) * k + j + b] : 0.0;
#pragma unroll
            for (int before = 0; before < a; before++)
                v -= p->f[before][a] * p->f[before][b];
            p->f[a][b] = v * (a < b ? p->scale[a] : 1.0);
        }
        const double d = p->f[b][b];
        p->scale[b] = in && d > ROUNDED * length[j + b] && d > 0.0 ? 1.0 / sqrt(d) : 0.0;
    }
}

/* t = l l^T (of t the upper half is used up), m becomes the inverse of l^T (af_galore_orthonormal).
 * e: [k][k]; length: [k]; count: 0.  Blocks come together once for PANEL rows, which are not
 * changed while they are read; a warp per row below them. */
extern "C" __global__ void __launch_bounds__(SMALL_THREADS)
    galore_orthonormal(double *m, double *e, double *t, double *length, u32 *count, int k)
{
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32 * gridDim.x;
    const int first = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    u32 rounds = 0;
    for (int i = first; i < k; i += warps) {
        for (int c = lane; c < k; c += 32)
            e[(i64)i * k + c] = i == c ? 1.0 : 0.0;
        if (lane == 0)
            length[i] = t[(i64)i * (k + 1)];
    }
    meet_all(count, &rounds);
    for (int j = 0; j < k; j += PANEL) {
        const int next = j + PANEL, skipped = first >= next ? 0 : (next - 1 - first) / warps + 1;
        panel p;
        double r[PANEL], f[PANEL];
        make_panel(&p, t, length, j, k);
        EACH(c, k)
        {
            reduce_column(r, e, p, j, (int)c, k);
            for (int b = 0; b < PANEL && j + b < k; b++)
                m[c * k + j + b] = c <= j + b ? r[b] : 0.0;
        }
        for (int i = first + skipped * warps; i < k; i += warps) {
            reduce_column(f, t, p, j, i, k);
            for (int c = lane; c < k; c += 32) {
                const bool inverse = c < next;
                if (!inverse && c < i)
                    continue;
                double *const x = inverse ? e : t;
                double v = x[(i64)i * k + c];
                reduce_column(r, x, p, j, c, k);
#pragma unroll
                for (int b = 0; b < PANEL; b++)
                    v -= f[b] * r[b];
                x[(i64)i * k + c] = v;
            }
        }
        meet_all(count, &rounds);
    }
}

/* out [rows][cols] = z [rows][k] x [k][cols] */
extern "C" __global__ void galore_times(float *out, const float *z, const double *x, long long rows,
                                        int k, int cols)
{
    EACH(i, rows * cols)
    {
        const float *row = z + i / cols * k;
        const double *column = x + i % cols;
        double sum = 0;
        for (int c = 0; c < k; c++)
            sum += (double)row[c] * column[(i64)c * cols];
        out[i] = (float)sum;
    }
}

struct two {
    int a, b;
};

/* Pair p of round r, of those that meet each other once in `even` - 1 rounds. */
DEV two pair_of(int p, int r, int even)
{
    const int last = even - 1, up = r + p, down = r + last - p;
    const int a = p == 0 ? last : up < last ? up : up - last, b = down < last ? down : down - last;
    return a < b ? two{a, b} : two{b, a};
}

/* One round of Jacobi: `to` is t turned on both sides, w turns on the left.  A warp per pair of
 * rows and 32 pairs of columns. */
DEV void turn_pairs(double *__restrict__ to, const double *__restrict__ t, double *__restrict__ w,
                    const double *__restrict__ turns, int r, int k)
{
    const int even = k + k % 2, pairs = even / 2, parts = (pairs + 31) / 32;
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32 * gridDim.x;
    for (int task = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; task < pairs * parts;
         task += warps) {
        const int p = task / parts, q = task % parts * 32 + lane;
        const two i = pair_of(p, r, even);
        const double c = turns[2 * p], s = turns[2 * p + 1];
        const bool ib = i.b < k;
        const i64 x = (i64)i.a * k, y = (i64)i.b * k;
        if (q < pairs) { /* columns of pair q */
            const two j = pair_of(q, r, even);
            const double d = turns[2 * q], u = turns[2 * q + 1];
            const bool jb = j.b < k, gone = p == q && (s > 0.0 || s < 0.0);
            const double xa = t[x + j.a], xb = jb ? t[x + j.b] : 0.0, ya = ib ? t[y + j.a] : 0.0,
                         yb = ib && jb ? t[y + j.b] : 0.0;
            const double ra = c * xa - s * ya, rb = c * xb - s * yb, sa = s * xa + c * ya,
                         sb = s * xb + c * yb;
            to[x + j.a] = d * ra - u * rb;
            if (jb)
                to[x + j.b] = gone ? 0.0 : u * ra + d * rb;
            if (ib)
                to[y + j.a] = gone ? 0.0 : d * sa - u * sb;
            if (ib && jb)
                to[y + j.b] = u * sa + d * sb;
        }
        if (s > 0.0 || s < 0.0)
            for (int col = task % parts * 64 + lane; col < task % parts * 64 + 64 && col < k;
                 col += 32) {
                const double fa = w[x + col], ga = w[y + col];
                w[x + col] = c * fa - s * ga;
                w[y + col] = s * fa + c * ga;
            }
    }
}

/* Jacobi, then vectors in the order of their values (af_galore_ritz).  t: used up, as is other
 * [k][k]; turns: [2 k] for each block; count: 0.  All blocks find the same turns. */
extern "C" __global__ void __launch_bounds__(SMALL_THREADS)
    galore_ritz(double *small, double *large, double *t, double *other, double *w, double *turns,
                u32 *count, int k, int rank)
{
    __shared__ int turned, in_round[2];
    const int even = k + k % 2, pairs = even / 2;
    double trace = 0;
    u32 rounds = 0;
    turns += (i64)blockIdx.x * 2 * even;
    for (int i = 0; i < k; i++)
        trace += t[(i64)i * (k + 1)];
    EACH(i, k * k) { w[i] = i % (k + 1) == 0 ? 1.0 : 0.0; }
    if (threadIdx.x == 0)
        in_round[0] = in_round[1] = 0;
    meet_all(count, &rounds);
    bool again = true;
    for (int sweep = 0; again && sweep < SWEEPS_MAX; sweep++) {
        __syncthreads();
        if (threadIdx.x == 0)
            turned = 0;
        for (int r = 0; r < even - 1; r++) {
            __syncthreads();
            if (threadIdx.x == 0)
                in_round[(r + 1) % 2] = 0; /* the round before has read it */
            OWN(p, pairs)
            {
                const two i = pair_of(p, r, even);
                double c = 1, s = 0;
                const double ab = i.b < k ? t[(i64)i.a * k + i.b] : 0.0;
                if (fabs(ab) > APART * trace) {
                    const double tau = (t[(i64)i.b * (k + 1)] - t[(i64)i.a * (k + 1)]) / (2.0 * ab);
                    const double tan =
                        (tau >= 0.0 ? 1.0 : -1.0) / (fabs(tau) + sqrt(1.0 + tau * tau));
                    c = 1.0 / sqrt(1.0 + tan * tan);
                    s = c * tan;
                    turned = in_round[r % 2] = 1;
                }
                turns[2 * p] = c;
                turns[2 * p + 1] = s;
            }
            __syncthreads();
            if (in_round[r % 2]) {
                turn_pairs(other, t, w, turns, r, k);
                double *const last = t;
                t = other;
                other = last;
                meet_all(count, &rounds);
            }
        }
        __syncthreads();
        again = turned != 0;
        if (threadIdx.x == 0)
            in_round[0] = in_round[1] = 0;
    }
    double most = 0;
    for (int i = 0; i < k; i++)
        most = fmax(most, t[(i64)i * (k + 1)]);
    OWN(i, k)
    {
        const double value = t[(i64)i * (k + 1)];
        int place = 0;
        for (int j = 0; j < k; j++) {
            const double another = t[(i64)j * (k + 1)];
            place += another > value || (j < i && !(another < value));
        }
        turns[i] = (double)place;
        turns[even + i] = value > ROUNDED * most ? 1.0 / sqrt(value) : 0.0;
    }
    __syncthreads();
    EACH(at, k * k)
    {
        const int i = (int)at % k, c = (int)at / k, place = (int)turns[i];
        if (place < rank) {
            small[(i64)c * rank + place] = w[(i64)i * k + c];
            large[(i64)c * rank + place] = w[(i64)i * k + c] * turns[even + i];
        }
    }
}

/* Columns of x [rows][rank] that are 0 (t = x^T x), or all without a finite gradient, become those
 * of the draw. */
extern "C" __global__ void galore_fill(float *x, const float *draw, const double *t,
                                       const float *stats, long long n, int rank)
{
    const bool finite = stats[STATS_FINITE] == 1.0f;
    EACH(i, n)
    {
        const i64 c = i % rank;
        if (!finite || t[c * (rank + 1)] == 0.0)
            x[i] = draw[i];
    }
}

/* A block per column: x [rows][rank] becomes p, along what is there or, at first, fixed signs. */
extern "C" __global__ void galore_keep(float *p, const float *x, const float *hyper,
                                       const float *stats, long long rows, int rank)
{
    const int c = blockIdx.x;
    const bool first = hyper[HYPER_STEP] == 1.0f;
    float along = 0.0f;
    for (i64 r = threadIdx.x; r < rows; r += blockDim.x) {
        const float sign = (u32)r * 2654435761u >> 31 ? -1.0f : 1.0f;
        along += x[r * rank + c] * (first ? sign : p[r * rank + c]);
    }
    along = block_sum(along);
    if (!first && stats[STATS_FINITE] != 1.0f)
        return;
    for (i64 r = threadIdx.x; r < rows; r += blockDim.x)
        p[r * rank + c] = along < 0.0f ? -x[r * rank + c] : x[r * rank + c];
}

/* low, of projected gradients, becomes Adam's direction.  Without finite gradients all stays. */
extern "C" __global__ void galore_moments(float *low, float *m, float *v, const float *stats,
                                          long long n, float b1, float new1, float b2, float new2,
                                          float eps)
{
    const float clip = stats[STATS_CLIP];
    if (stats[STATS_FINITE] != 1.0f)
        return;
    EACH(i, n)
    {
        const float l = low[i] * clip, first = b1 * m[i] + new1 * l,
                    second = b2 * v[i] + new2 * l * l;
        m[i] = first;
        v[i] = second;
        low[i] = first / (sqrtf(second) + eps);
    }
}

/* w -= lr sqrt(1 - b2^t) / (1 - b1^t) scale d;  w -= lr decay w;  d, in the gradient's place, = 0
 */
extern "C" __global__ void galore_apply(float *w, float *d, const float *hyper, const float *stats,
                                        long long n, float decay, float lr_factor, float scale)
{
    const float lr = hyper[0] * lr_factor;
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float step = lr * hyper[2] / hyper[1] * scale, keep = 1.0f - lr * decay;
    EACH(i, n)
    {
        if (finite)
            w[i] = keep * (w[i] - step * d[i]);
        d[i] = 0.0f;
    }
}
