/* conv.cu - causal depthwise convolution over packed sequences.  Contract: conv.c; twin:
 * conv_cpu.c.
 *
 * Built with AF_T. Each row of C columns is cut among `cuts` blocks (block b: row b / cuts, cut
 * b % cuts); a thread makes one value. Taps are read from the cache: they are few. */
// variants: AF_T=bf16,half,float
// common: AF_T=bf16,float
#include "state.cuh"

/* What the taps of a convolution read. */
struct conv_args {
    const void *w, *bias; /* [C][K], [C] or NULL */
    const int *bounds, *start;
    const void *window; /* [S][max(K-1, 1)][C], or NULL */
    int w_type, bias_type, window_type, S, C, K, silu;
};

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
    const int s = state_sequence(a.bounds, a.S, n);
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
    const int s = state_sequence(a.bounds, a.S, n);
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
        const int s = state_sequence(a.bounds, a.S, (int)n);
        if (s < 0)
            continue;
        const float d = conv_slope(a, x, dy, ldx, lddy, s, (int)n, c);
        sum += k == a.K ? d : d * conv_input(a, x, ldx, s, (int)n - a.K + 1 + k, c);
    }
    part += (i64)blockIdx.y * (a.K + 1) * a.C;
    part[k == a.K ? (i64)a.K * a.C + c : (i64)c * a.K + k] = sum;
}
