/* row_adapter.cu - adapters chosen per row. Contract: row_adapter.c; twin: row_adapter_cpu.c.
 *
 * A block has AF_ROWS rows that follow each other in `order`. Where all of them have the same
 * adapter it is read once for them, else once for each. A row's sums are in an order that depends
 * on I and the rank alone: in row_down thread t has the values from AF_VEC t on of every STEP, then
 * come the lanes of a warp and the warps of the block; in row_up a thread has whole columns.
 *
 * row_down writes zeros after the rank of an adapter, so that row_up needs no conditions there. */
// variants: AF_T=bf16,half,float AF_VEC=4,1 AF_ROWS=1,4,8
// common: AF_T=bf16 AF_VEC=4 AF_ROWS=1,4,8
#include "dev.cuh"

#define PARTS 4
#define WARPS 8
#define STEP  (WARPS * 32 * AF_VEC)
/* Ranks of a block of row_down: with more rows more of them, so that x is read less often. */
#define RANKS (AF_ROWS == 1 ? 1 : AF_ROWS / 2)
/* Columns of a thread of row_up. */
#define COLUMNS (AF_ROWS == 1 ? 1 : 4)
#define THREADS 128

/* Output columns and ranks of the parts; as in row_adapter_cuda.c. */
struct parts {
    int out_from[PARTS], out_rows[PARTS];
    int count, ranks;
};

/* Rows of a block in `order`; the last one takes the place of those that are missing. */
template <int ROWS> struct rows {
    int row[ROWS], count;
    int adapter;     /* of all of them; below 0: none, or SEVERAL */
    int rank[PARTS]; /* of that adapter */
};
#define SEVERAL (-1)

/* What is read here, and adapters, is there before a step begins: no launch has to end for it. */
template <int ROWS>
DEV rows<ROWS> find_rows(const int *which, const int *order, const int *rank, int from, int N,
                         const parts &q)
{
    rows<ROWS> g;
    g.count = min(ROWS, N - from);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        g.row[r] = AF_ROWS == 1 ? from : order[from + min(r, g.count - 1)];
    g.adapter = which[g.row[0]];
#pragma unroll
    for (int r = 1; r < ROWS; r++)
        if (which[g.row[r]] != g.adapter)
            g.adapter = SEVERAL;
#pragma unroll
    for (int p = 0; p < PARTS; p++)
        g.rank[p] = g.adapter >= 0 && p < q.count ? rank[g.adapter * q.count + p] : 0;
    return g;
}

template <int ROWS> DEV int rank_of(const rows<ROWS> &g, int part)
{
    int most = g.rank[0];
#pragma unroll
    for (int p = 1; p < PARTS; p++)
        most = p == part ? g.rank[p] : most;
    return most;
}

DEV void ask_of_l2(const float *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

/* The arguments of row_down; I values in a row. */
struct down_args {
    float *xa;
    i64 xa_ld;
    const AF_T *x;
    i64 x_ld;
    const float *a;
    i64 a_ld;
    const float *scale;
    int I;
};

/* v[0] becomes the sum over the warp's lanes of value number lane / (32 / N), in the order of
 * warp_sum: of the lanes D apart each adds up one half of the values. */
template <int N, int D = 16, int ALL> DEV void warp_sums(float (&v)[ALL])
{
    if constexpr (N == 1)
        v[0] += __shfl_xor_sync(FULL, v[0], D);
    else {
        const bool upper = threadIdx.x & D;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const float other = __shfl_xor_sync(FULL, upper ? v[i] : v[i + N / 2], D);
            v[i] = (upper ? v[i + N / 2] : v[i]) + other;
        }
    }
    if constexpr (D > 1)
        warp_sums<(N > 1 ? N / 2 : 1), D / 2>(v);
}

/* xa of the ranks from `first` on of rows with one adapter, by a whole block. */
template <int ROWS>
DEV void down(const rows<ROWS> &g, const down_args &d, int first, const parts &q)
{
    constexpr int STEPS = ROWS == 1 ? 8 / RANKS : 16 / ROWS; /* asked for at once */
    __shared__ float part[WARPS][ROWS * RANKS];
    const int PR = q.count * q.ranks;
    float s[ROWS * RANKS] = {};
    if (g.adapter < 0)
        return;
    bool used = false;
#pragma unroll
    for (int k = 0; k < RANKS; k++) {
        const int j = min(first + k, PR - 1);
        used |= j % q.ranks < rank_of(g, j / q.ranks);
    }
    const int I = used ? d.I : 0, own = min(first + (int)threadIdx.x % RANKS, PR - 1);
    const float scale = d.scale[g.adapter * q.count + own / q.ranks];
    for (int at = threadIdx.x * AF_VEC; at < I; at += STEPS * STEP) {
        float w[STEPS][RANKS][AF_VEC], v[STEPS][ROWS][AF_VEC];
#pragma unroll
        for (int u = 0; u < STEPS; u++) { /* without branches, so that all are asked for at once */
            const int i = min(at + u * STEP, I - AF_VEC);
            const float inside = at + u * STEP < I ? 1.0f : 0.0f;
#pragma unroll
            for (int k = 0; k < RANKS; k++) {
                load_n(w[u][k], d.a + ((i64)g.adapter * PR + min(first + k, PR - 1)) * d.a_ld + i);
#pragma unroll
                for (int e = 0; e < AF_VEC; e++)
                    w[u][k][e] *= inside;
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                load_n(v[u][r], d.x + g.row[r] * d.x_ld + i);
        }
#pragma unroll
        for (int u = 0; u < STEPS; u++)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int k = 0; k < RANKS; k++)
#pragma unroll
                    for (int e = 0; e < AF_VEC; e++)
                        s[r * RANKS + k] += v[u][r][e] * w[u][k][e];
    }
    __syncthreads();                           /* the sums of the row before have been read */
    constexpr int LANES = 32 / (ROWS * RANKS); /* that have the same sum in the end */
    warp_sums<ROWS * RANKS>(s);
    if (threadIdx.x % LANES == 0)
        part[threadIdx.x / 32][threadIdx.x % 32 / LANES] = s[0];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int j = first + (int)threadIdx.x - r * RANKS;
        if (r >= g.count || j < first || j >= min(first + RANKS, PR))
            continue;
        float all = 0.0f;
        for (int w = 0; w < WARPS; w++)
            all += part[w][threadIdx.x];
        const bool in = j % q.ranks < rank_of(g, j / q.ranks);
        d.xa[g.row[r] * d.xa_ld + j] = in ? all * scale : 0.0f;
    }
}

/* Block (x, y) makes the ranks from RANKS y on of its rows. */
extern "C" __global__ void __launch_bounds__(WARPS * 32, 2)
    row_down(float *xa, long long xa_ld, const AF_T *x, long long x_ld, const int *which,
             const int *order, const float *a, long long a_ld, const float *scale, const int *rank,
             int N, int I, struct parts q)
{
    const int first = blockIdx.y * RANKS, from = blockIdx.x * AF_ROWS;
    const down_args d = {xa, xa_ld, x, x_ld, a, a_ld, scale, I};
    const rows<AF_ROWS> g = find_rows<AF_ROWS>(which, order, rank, from, N, q);
    if (AF_ROWS == 1 && g.adapter >= 0) {
        if (threadIdx.x == 0)
            ask_of_l2(scale + g.adapter * q.count);
        for (int i = threadIdx.x * 32; i < I; i += WARPS * 32 * 32)
            ask_of_l2(a + ((i64)g.adapter * q.count * q.ranks + first) * a_ld + i);
    }
    previous_done();
    if (AF_ROWS == 1 || g.adapter != SEVERAL)
        down(g, d, first, q);
    else
        for (int r = 0; r < g.count; r++)
            down(find_rows<1>(which, order, rank, from + r, N, q), d, first, q);
}

/* Adds to s what COUNT ranks give: w are the columns' values, v those of the rows. */
template <int COUNT, int ROWS>
DEV void add_ranks(float (&s)[ROWS][COLUMNS], const float *const (&w)[COLUMNS],
                   const bool (&in)[COLUMNS], const float *v, i64 v_ld, const int (&row)[ROWS])
{
    float f[COLUMNS][COUNT];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
#pragma unroll
        for (int j = 0; j < COUNT; j += AF_VEC)
            load_n((float(&)[AF_VEC])f[c][j], w[c] + j);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float h[COUNT];
#pragma unroll
        for (int j = 0; j < COUNT; j += AF_VEC)
            load_n((float(&)[AF_VEC])h[j], v + row[r] * v_ld + j);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            float t = s[r][c];
#pragma unroll
            for (int j = 0; j < COUNT; j++)
                t += h[j] * f[c][j];
            s[r][c] = in[c] ? t : s[r][c];
        }
    }
}

/* The arguments of row_up; O columns. */
struct up_args {
    AF_T *out;
    i64 out_ld;
    const AF_T *y;
    i64 y_ld;
    const float *xa;
    i64 xa_ld;
    const float *b;
    i64 b_ld;
    int O;
};

/* Adds to s what the columns o and every THREADS after it give for rows with one adapter. */
template <int ROWS>
DEV void add_parts(float (&s)[ROWS][COLUMNS], const rows<ROWS> &g, const up_args &d, int o,
                   const parts &q)
{
    const float *b = d.b + g.adapter * d.b_ld;
    for (int p = 0; p < q.count; b += (i64)q.out_rows[p++] * q.ranks) {
        const int most = rank_of(g, p);
        const float *w[COLUMNS], *v = d.xa + p * q.ranks;
        bool in[COLUMNS], any = false;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int at = o + c * THREADS - q.out_from[p];
            in[c] = at >= 0 && at < q.out_rows[p];
            w[c] = b + (i64)(in[c] ? at : 0) * q.ranks;
            any |= in[c];
        }
        for (int j = 0, n; any && j < most; j += n) {
            n = j + 16 <= q.ranks ? 16 : AF_VEC;
            if (n == 16)
                add_ranks<16>(s, w, in, v, d.xa_ld, g.row);
            else
                add_ranks<AF_VEC>(s, w, in, v, d.xa_ld, g.row);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                w[c] += n;
            v += n;
        }
    }
}

template <int ROWS> DEV void up(const rows<ROWS> &g, const up_args &d, int o, const parts &q)
{
    float s[ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            if (o + c * THREADS < d.O)
                s[r][c] = load(d.y + g.row[r] * d.y_ld + o + c * THREADS);
    if (g.adapter >= 0)
        add_parts(s, g, d, o, q);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            if (r < g.count && o + c * THREADS < d.O)
                store(d.out + g.row[r] * d.out_ld + o + c * THREADS, s[r][c]);
}

/* Thread t of block (x, y) adds to the columns THREADS COLUMNS y + t and every THREADS after it. */
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    row_up(AF_T *out, long long out_ld, const AF_T *y, long long y_ld, const float *xa,
           long long xa_ld, const int *which, const int *order, const float *b, long long b_ld,
           const int *rank, int N, int O, struct parts q)
{
    const int o = blockIdx.y * THREADS * COLUMNS + threadIdx.x, from = blockIdx.x * AF_ROWS;
    const up_args d = {out, out_ld, y, y_ld, xa, xa_ld, b, b_ld, O};
    const rows<AF_ROWS> g = find_rows<AF_ROWS>(which, order, rank, from, N, q);
    previous_done();
    if (AF_ROWS == 1 || g.adapter != SEVERAL)
        up(g, d, o, q);
    else
        for (int r = 0; r < g.count; r++)
            up(find_rows<1>(which, order, rank, from + r, N, q), d, o, q);
}
