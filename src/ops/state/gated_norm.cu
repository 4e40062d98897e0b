/* gated_norm.cu - RMS norm with a gate.  Contract: gated_norm.c; twin: gated_norm_cpu.c.
 *
 * Built with AF_T and AF_VEC (values of one access). A warp per group of E columns, or, with wide
 * groups, a block: group i is group i % groups of row i / groups. */
// variants: AF_T=bf16,half AF_VEC=4,1 | AF_T=float AF_VEC=4,1
// common: AF_T=bf16,float AF_VEC=4
#include "state.cuh"

struct norm_args {
    const void *w;                /* [E] */
    int w_type, E, groups, first; /* first: the gate comes before the norm */
    float eps;
    int by_warp;
};

DEV float silu_of(float z) { return z * sigmoid(z); }
/* What is normalised. */
DEV float norm_inner(const norm_args &a, float x, float z) { return a.first ? x * silu_of(z) : x; }

/* The group of this thread, and which of its columns: from `e`, by `step`. */
struct place {
    i64 n;
    int group, c0, e, step;
    bool none;
};
DEV place place_of(const norm_args &a, i64 count)
{
    const i64 i = a.by_warp ? blockIdx.x * (blockDim.x / 32LL) + threadIdx.x / 32 : blockIdx.x;
    const int group = (int)(i % a.groups), t = a.by_warp ? threadIdx.x % 32 : threadIdx.x;
    return {
        i / a.groups, group, group * a.E, t * AF_VEC, (int)(a.by_warp ? 32 : blockDim.x) * AF_VEC,
        i >= count};
}
DEV float group_sum(const norm_args &a, float v) { return a.by_warp ? warp_sum(v) : block_sum(v); }

extern "C" __global__ void gated_norm_fwd(AF_T *y, float *rstd, const AF_T *x, const AF_T *gate,
                                          norm_args a, long long count, long long ldy,
                                          long long ldr, long long ldx, long long ldg)
{
    const place p = place_of(a, count);
    float ss = 0.0f, u[AF_VEC], z[AF_VEC];
    if (p.none)
        return;
    x += p.n * ldx + p.c0;
    gate += p.n * ldg + p.c0;
    for (int e = p.e; e < a.E; e += p.step) {
        load_n(u, x + e);
        load_n(z, gate + e);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++) {
            const float h = norm_inner(a, u[k], z[k]);
            ss += h * h;
        }
    }
    const float r = rsqrtf(group_sum(a, ss) / a.E + a.eps);
    if (p.e == 0)
        rstd[p.n * ldr + p.group] = r;
    for (int e = p.e; e < a.E; e += p.step) {
        load_n(u, x + e);
        load_n(z, gate + e);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++) {
            const float h = norm_inner(a, u[k], z[k]) * r * value(a.w, a.w_type, e + k);
            u[k] = a.first ? h : h * silu_of(z[k]);
        }
        store_n(y + p.n * ldy + p.c0 + e, u);
    }
}

extern "C" __global__ void gated_norm_bwd(AF_T *dx, AF_T *dgate, const AF_T *x, const AF_T *gate,
                                          const float *rstd, const AF_T *dy, norm_args a,
                                          long long count, long long lddx, long long lddg,
                                          long long ldx, long long ldg, long long ldr,
                                          long long lddy)
{
    const place p = place_of(a, count);
    float dot = 0.0f, u[AF_VEC], z[AF_VEC], g[AF_VEC];
    if (p.none)
        return;
    const float r = rstd[p.n * ldr + p.group];
    x += p.n * ldx + p.c0;
    gate += p.n * ldg + p.c0;
    dy += p.n * lddy + p.c0;
    for (int e = p.e; e < a.E; e += p.step) {
        load_n(u, x + e);
        load_n(z, gate + e);
        load_n(g, dy + e);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++) {
            const float d = g[k] * value(a.w, a.w_type, e + k);
            dot += (a.first ? d : d * silu_of(z[k])) * norm_inner(a, u[k], z[k]) * r;
        }
    }
    const float mean = group_sum(a, dot) / a.E;
    for (int e = p.e; e < a.E; e += p.step) {
        load_n(u, x + e);
        load_n(z, gate + e);
        load_n(g, dy + e);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++) {
            const float d = g[k] * value(a.w, a.w_type, e + k), h = norm_inner(a, u[k], z[k]) * r;
            const float dh = r * ((a.first ? d : d * silu_of(z[k])) - h * mean);
            g[k] = (a.first ? dh * u[k] : d * h) * silu_slope(z[k]);
            u[k] = a.first ? dh * silu_of(z[k]) : dh;
        }
        store_n(dx + p.n * lddx + p.c0 + e, u);
        store_n(dgate + p.n * lddg + p.c0 + e, g);
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
