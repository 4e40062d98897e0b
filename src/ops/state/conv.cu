/* conv.cu - causal depthwise convolution over packed sequences.  Contract: conv.c; twin:
 * conv_cpu.c.
 *
 * Built with AF_T, AF_K (taps) and AF_VEC. Each row of C columns is cut among `cuts` blocks (block
 * b: row b / cuts, cut b % cuts); a thread makes one value, and taps are read from the cache. With
 * AF_K above 0 (without a carried window) conv_run and conv_run_bwd do the same faster: a thread
 * goes down RUN rows of AF_VEC columns and has what the taps need in registers. */
// variants: AF_T=bf16,half,float AF_VEC=1 AF_K=0 | (AF_T=bf16,half AF_VEC=8 | AF_T=float AF_VEC=4)
//    AF_K=2..4
// common: AF_T=bf16,float AF_VEC=1 AF_K=0 | AF_T=bf16 AF_VEC=8 AF_K=3,4
#include "state.cuh"

/* What the taps of a convolution read. */
struct conv_args {
    const void *w, *bias; /* [C][K], [C] or NULL */
    const int *bounds, *start;
    const void *window; /* [S][max(K-1, 1)][C], or NULL */
    int w_type, bias_type, window_type, S, C, K, silu;
};

#ifndef AF_K
#define AF_K 0
#endif

/* Row r of sequence s, column c: before its beginning the window, or zero. */
DEV float conv_input(const conv_args &a, const AF_T *x, i64 ldx, int s, int r, int c)
{
    const int at = r - a.bounds[s];
    if (at >= 0)
        return load(x + (i64)r * ldx + c);
    if (!a.window || a.start[s] == 0)
        return 0.0f;
    return value(a.window, a.window_type, ((i64)(s + 1) * (a.K - 1) + at) * a.C + c);
}

DEV float convolve(const conv_args &a, const AF_T *x, i64 ldx, int s, int n, int c)
{
    float u = a.bias ? value(a.bias, a.bias_type, c) : 0.0f;
    for (int k = 0; k < a.K; k++)
        u += value(a.w, a.w_type, (i64)c * a.K + k) * conv_input(a, x, ldx, s, n - a.K + 1 + k, c);
    return u;
}

extern "C" __global__ void conv_fwd(AF_T *y, const AF_T *x, conv_args a, int cuts, long long ldy,
                                    long long ldx)
{
    const int n = blockIdx.x / cuts, c = blockIdx.x % cuts * blockDim.x + threadIdx.x;
    const int s = sequence_of(a.bounds, a.S, n);
    if (c >= a.C)
        return;
    const float u = s < 0 ? 0.0f : convolve(a, x, ldx, s, n, c);
    store(y + (i64)n * ldy + c, a.silu ? u * sigmoid(u) : u);
}

/* After conv_fwd: the last inputs of every sequence that had new rows. Block b: sequence b / cuts.
 */
extern "C" __global__ void conv_shift(const AF_T *x, conv_args a, int cuts, long long ldx)
{
    const int s = blockIdx.x / cuts, c = blockIdx.x % cuts * blockDim.x + threadIdx.x;
    if (c >= a.C || a.bounds[s] == a.bounds[s + 1])
        return;
    for (int k = 0; k < a.K - 1; k++) { /* rising: reads what is not yet written */
        const float v = conv_input(a, x, ldx, s, a.bounds[s + 1] - a.K + 1 + k, c);
        put_value((void *)a.window, a.window_type, ((i64)s * (a.K - 1) + k) * a.C + c, v);
    }
}

/* The gradient of u in row n. */
DEV float conv_slope(const conv_args &a, const AF_T *x, const AF_T *dy, i64 ldx, i64 lddy, int s,
                     int n, int c)
{
    const float d = load(dy + (i64)n * lddy + c);
    return a.silu ? d * silu_slope(convolve(a, x, ldx, s, n, c)) : d;
}

extern "C" __global__ void conv_bwd(AF_T *dx, const AF_T *x, const AF_T *dy, conv_args a, int cuts,
                                    long long lddx, long long ldx, long long lddy)
{
    const int n = blockIdx.x / cuts, c = blockIdx.x % cuts * blockDim.x + threadIdx.x;
    const int s = sequence_of(a.bounds, a.S, n);
    if (c >= a.C)
        return;
    float d = 0.0f;
    for (int k = 0; s >= 0 && k < a.K && n + k < a.bounds[s + 1]; k++)
        d += value(a.w, a.w_type, (i64)c * a.K + a.K - 1 - k) *
             conv_slope(a, x, dy, ldx, lddy, s, n + k, c);
    store(dx + (i64)n * lddx + c, d);
}

/* Block (b, p): tap b / cuts (K = the bias), rows [p * per, (p + 1) * per) -> part p of [K+1][C]:
 * the taps as w lies, then the bias. */
extern "C" __global__ void conv_dw(float *part, const AF_T *x, const AF_T *dy, conv_args a,
                                   int cuts, long long rows, long long per, long long ldx,
                                   long long lddy)
{
    const int k = blockIdx.x / cuts, c = blockIdx.x % cuts * blockDim.x + threadIdx.x;
    const i64 from = blockIdx.y * per, to = from + per < rows ? from + per : rows;
    if (c >= a.C)
        return;
    float sum = 0.0f;
    for (i64 n = from; n < to; n++) {
        const int s = sequence_of(a.bounds, a.S, (int)n);
        if (s < 0)
            continue;
        const float d = conv_slope(a, x, dy, ldx, lddy, s, (int)n, c);
        sum += k == a.K ? d : d * conv_input(a, x, ldx, s, (int)n - a.K + 1 + k, c);
    }
    part += (i64)blockIdx.y * (a.K + 1) * a.C;
    part[k == a.K ? (i64)a.K * a.C + c : (i64)c * a.K + k] = sum;
}

#if AF_K > 0
#define RUN 32

/* The last AF_K rows of AF_VEC columns, the newest last. */
struct recent {
    float v[AF_K][AF_VEC];
    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int k = 0; k < AF_K; k++)
#pragma unroll
            for (int i = 0; i < AF_VEC; i++)
                v[k][i] = 0.0f;
    }
    /* Makes room for a new row, which is zero at first. */
    __device__ __forceinline__ float (&push())[AF_VEC]
    {
#pragma unroll
        for (int k = 0; k + 1 < AF_K; k++)
#pragma unroll
            for (int i = 0; i < AF_VEC; i++)
                v[k][i] = v[k + 1][i];
        return v[AF_K - 1];
    }
};
/* Rows [n, end) of AF_VEC columns, each asked for two rows before it is taken. */
struct ahead {
    const AF_T *p;
    i64 ld;
    int left;
    union words {
        uint4 q;
        u32 w[4];
    } next[2];
    __device__ __forceinline__ ahead(const AF_T *x, i64 step, int n, int end)
        : p(x + n * step), ld(step), left(end - n)
    {
        if (left > 0)
            next[0].q = *(const uint4 *)p;
        if (left > 1)
            next[1].q = *(const uint4 *)(p + ld);
    }
    __device__ __forceinline__ void take(float (&to)[AF_VEC])
    {
        unpack(to, next[0].w, p);
        next[0] = next[1];
        if (left > 2)
            next[1].q = *(const uint4 *)(p + 2 * ld);
        p += ld;
        left--;
    }
};
/* Taps and bias of AF_VEC columns from c. */
struct taps {
    float w[AF_K][AF_VEC], bias[AF_VEC];
    __device__ __forceinline__ taps(const conv_args &a, int c)
    {
        float all[AF_VEC * AF_K];
        values(all, a.w, a.w_type, (i64)c * AF_K);
#pragma unroll
        for (int i = 0; i < AF_VEC; i++) {
#pragma unroll
            for (int k = 0; k < AF_K; k++)
                w[k][i] = all[i * AF_K + k];
            bias[i] = a.bias ? value(a.bias, a.bias_type, c + i) : 0.0f;
        }
    }
    __device__ __forceinline__ void convolve(float (&u)[AF_VEC], const recent &x) const
    {
#pragma unroll
        for (int i = 0; i < AF_VEC; i++) {
            u[i] = bias[i];
#pragma unroll
            for (int k = 0; k < AF_K; k++)
                u[i] += w[k][i] * x.v[k][i];
        }
    }
};
/* Rows [from, to) of a run that one sequence has, which ends at `end`; s = -1: none has them. */
struct piece {
    int s, from, to, begin, end;
};
DEV piece piece_at(const conv_args &a, int n, int to)
{
    const int s = sequence_of(a.bounds, a.S, n);
    if (s >= 0)
        return {s, n, min(to, a.bounds[s + 1]), a.bounds[s], a.bounds[s + 1]};
    const int next = a.S > 0 && n < a.bounds[0] ? min(to, a.bounds[0]) : to;
    return {-1, n, next, n, next};
}
/* The rows before row n that its sequence has. */
DEV void look_back(recent &x, const AF_T *from, i64 ld, const piece &p)
{
    x.clear();
    for (int r = p.from - AF_K + 1; r < p.from; r++) {
        float(&row)[AF_VEC] = x.push();
        if (r >= p.begin)
            load_n(row, from + (i64)r * ld);
        else
            for (int i = 0; i < AF_VEC; i++)
                row[i] = 0.0f;
    }
}

/* Block b: rows from b / cuts * RUN. */
extern "C" __global__ void conv_run(AF_T *y, const AF_T *x, conv_args a, int cuts, long long rows,
                                    long long ldy, long long ldx)
{
    const int c = (blockIdx.x % cuts * blockDim.x + threadIdx.x) * AF_VEC;
    const int end = (int)min((i64)(blockIdx.x / cuts + 1) * RUN, (i64)rows);
    if (c >= a.C)
        return;
    const taps w(a, c);
    x += c;
    y += c;
    for (int n = blockIdx.x / cuts * RUN; n < end;) {
        const piece p = piece_at(a, n, end);
        recent in;
        look_back(in, x, ldx, p);
        ahead rows_x(x, ldx, n, p.to);
        for (; n < p.to; n++) {
            float u[AF_VEC] = {};
            if (p.s >= 0) {
                rows_x.take(in.push());
                w.convolve(u, in);
            }
#pragma unroll
            for (int i = 0; i < AF_VEC; i++)
                u[i] = a.silu ? u[i] * sigmoid(u[i]) : u[i];
            store_n(y + (i64)n * ldy, u);
        }
    }
}

/* dx of a run: gradients of u, up to AF_K - 1 rows after it, pass by. */
extern "C" __global__ void conv_run_bwd(AF_T *dx, const AF_T *x, const AF_T *dy, conv_args a,
                                        int cuts, long long rows, long long lddx, long long ldx,
                                        long long lddy)
{
    const int c = (blockIdx.x % cuts * blockDim.x + threadIdx.x) * AF_VEC;
    const int end = (int)min((i64)(blockIdx.x / cuts + 1) * RUN, (i64)rows);
    if (c >= a.C)
        return;
    const taps w(a, c);
    x += c;
    dy += c;
    dx += c;
    for (int n = blockIdx.x / cuts * RUN; n < end;) {
        const piece p = piece_at(a, n, end);
        recent in, slope; /* slope.v[k]: of row m - AF_K + 1 + k */
        look_back(in, x, ldx, p);
        slope.clear();
        const int last = min(p.to + AF_K - 1, p.end);
        ahead rows_x(x, ldx, n, last), rows_dy(dy, lddy, n, last);
        for (int m = n; m < p.to + AF_K - 1; m++) {
            float d[AF_VEC] = {};
            if (p.s >= 0 && m < p.end) {
                rows_dy.take(d);
                if (a.silu) {
                    float u[AF_VEC];
                    rows_x.take(in.push());
                    w.convolve(u, in);
#pragma unroll
                    for (int i = 0; i < AF_VEC; i++)
                        d[i] *= silu_slope(u[i]);
                }
            }
            float(&to)[AF_VEC] = slope.push();
#pragma unroll
            for (int i = 0; i < AF_VEC; i++)
                to[i] = d[i];
            if (m < n + AF_K - 1)
                continue;
            float sum[AF_VEC] = {};
#pragma unroll
            for (int k = 0; k < AF_K; k++)
#pragma unroll
                for (int i = 0; i < AF_VEC; i++)
                    sum[i] += w.w[AF_K - 1 - k][i] * slope.v[k][i];
            store_n(dx + (i64)(m - AF_K + 1) * lddx, sum);
        }
        n = p.to;
    }
}
#endif
