/* gated_norm.cu - RMS norm with a gate.  Contract: gated_norm.c; twin: gated_norm_cpu.c.
 *
 * Built with AF_T. One block per group of E columns: block b is group b % groups of row b / groups.
 */
// variants: AF_T=bf16,half,float
// common: AF_T=bf16,float
#include "state.cuh"

struct norm_args {
    const void *w;                /* [E] */
    int w_type, E, groups, first; /* first: the gate comes before the norm */
    float eps;
};

DEV float silu_of(float z) { return z * sigmoid(z); }
/* What is normalised. */
DEV float norm_inner(const norm_args &a, float x, float z) { return a.first ? x * silu_of(z) : x; }

extern "C" __global__ void gated_norm_fwd(AF_T *y, float *rstd, const AF_T *x, const AF_T *gate,
                                          norm_args a, long long ldy, long long ldr, long long ldx,
                                          long long ldg)
{
    const i64 n = blockIdx.x / a.groups;
    const int group = blockIdx.x % a.groups, c0 = group * a.E;
    float ss = 0.0f;
    for (int e = threadIdx.x; e < a.E; e += blockDim.x) {
        const float h = norm_inner(a, load(x + n * ldx + c0 + e), load(gate + n * ldg + c0 + e));
        ss += h * h;
    }
    const float r = rsqrtf(block_sum(ss) / a.E + a.eps);
    if (threadIdx.x == 0)
        rstd[n * ldr + group] = r;
    for (int e = threadIdx.x; e < a.E; e += blockDim.x) {
        const float z = load(gate + n * ldg + c0 + e);
        const float h = norm_inner(a, load(x + n * ldx + c0 + e), z) * r * value(a.w, a.w_type, e);
        store(y + n * ldy + c0 + e, a.first ? h : h * silu_of(z));
    }
}

extern "C" __global__ void gated_norm_bwd(AF_T *dx, AF_T *dgate, const AF_T *x, const AF_T *gate,
                                          const float *rstd, const AF_T *dy, norm_args a,
                                          long long lddx, long long lddg, long long ldx,
                                          long long ldg, long long ldr, long long lddy)
{
    const i64 n = blockIdx.x / a.groups;
    const int group = blockIdx.x % a.groups, c0 = group * a.E;
    const float r = rstd[n * ldr + group];
    float dot = 0.0f;
    for (int e = threadIdx.x; e < a.E; e += blockDim.x) {
        const float z = load(gate + n * ldg + c0 + e), xv = load(x + n * ldx + c0 + e);
        const float d = load(dy + n * lddy + c0 + e) * value(a.w, a.w_type, e);
        dot += (a.first ? d : d * silu_of(z)) * norm_inner(a, xv, z) * r;
    }
    const float mean = block_sum(dot) / a.E;
    for (int e = threadIdx.x; e < a.E; e += blockDim.x) {
        const float z = load(gate + n * ldg + c0 + e), xv = load(x + n * ldx + c0 + e);
        const float d = load(dy + n * lddy + c0 + e) * value(a.w, a.w_type, e);
        const float h = norm_inner(a, xv, z) * r;
        const float dh = r * ((a.first ? d : d * silu_of(z)) - h * mean);
        store(dx + n * lddx + c0 + e, a.first ? dh * silu_of(z) : dh);
        store(dgate + n * lddg + c0 + e, (a.first ? dh * xv : d * h) * silu_slope(z));
    }
}

/* Block (b, p): columns 32 b .. of the weight, groups of all rows [p * per, (p + 1) * per), eight
 * at a time -> part p of [E]. */
extern "C" __global__ void __launch_bounds__(256)
    gated_norm_dw(float *part, const AF_T *x, const AF_T *gate, const float *rstd, const AF_T *dy,
                  norm_args a, long long count, long long per, long long ldx, long long ldg,
                  long long ldr, long long lddy)
{
    __shared__ float sums[8][32];
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32, e = blockIdx.x * 32 + lane;
    const i64 from = blockIdx.y * per, to = from + per < count ? from + per : count;
    float sum = 0.0f;
    for (i64 i = from + row; i < to && e < a.E; i += 8) {
        const i64 n = i / a.groups;
        const int group = (int)(i % a.groups), c = group * a.E + e;
        const float z = load(gate + n * ldg + c), d = load(dy + n * lddy + c);
        sum += (a.first ? d : d * silu_of(z)) * norm_inner(a, load(x + n * ldx + c), z) *
               rstd[n * ldr + group];
    }
    sums[row][lane] = sum;
    __syncthreads();
    if (row == 0 && e < a.E) {
        sum = 0.0f;
        for (int i = 0; i < 8; i++)
            sum += sums[i][lane];
        part[(i64)blockIdx.y * a.E + e] = sum;
    }
}
