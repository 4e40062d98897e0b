/* xielu.cu - the activation with two trained slopes, both directions.  Contract: xielu.c; twin:
 * xielu_cpu.c.
 *
 * Built with AF_T. Each row of F columns is cut among `cuts` blocks (block b: row b / cuts, cut
 * b % cuts); a thread does one element. The gradient of the slopes: a block sums whole rows. */
// variants: AF_T=bf16,half,float
#include "dev.cuh"

DEV float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }
DEV float curve(float x, float eps) { return expm1f(fminf(x, eps)) - x; }

extern "C" __global__ void xielu_fwd(AF_T *y, const AF_T *x, const float *p, const float *n,
                                     const float *beta, const float *eps, int F, int cuts,
                                     long long ldy, long long ldx)
{
    const i64 r = blockIdx.x / cuts;
    const int d = blockIdx.x % cuts * blockDim.x + threadIdx.x;
    if (d >= F)
        return;
    const float v = load(x + r * ldx + d), b = *beta;
    const float y0 = v > 0.0f ? softplus(*p) * v * v : (b + softplus(*n)) * curve(v, *eps);
    store(y + r * ldy + d, y0 + b * v);
}

extern "C" __global__ void xielu_bwd(AF_T *dx, const AF_T *x, const float *p, const float *n,
                                     const float *beta, const float *eps, const AF_T *dy, int F,
                                     int cuts, long long lddx, long long ldx, long long lddy)
{
    const i64 r = blockIdx.x / cuts;
    const int d = blockIdx.x % cuts * blockDim.x + threadIdx.x;
    if (d >= F)
        return;
    const float v = load(x + r * ldx + d), b = *beta;
    const float e = v < *eps ? expf(v) : 0.0f;
    const float slope = v > 0.0f ? 2.0f * softplus(*p) * v : (b + softplus(*n)) * (e - 1.0f);
    store(dx + r * lddx + d, load(dy + r * lddy + d) * (slope + b));
}

/* Stage one: block b sums rows b*per .. into part[b][2]. Stage two: reduce_parts. */
extern "C" __global__ void xielu_dslope(float *part, const AF_T *x, const float *p, const float *n,
                                        const float *eps, const AF_T *dy, long long rows, int F,
                                        long long ldx, long long lddy, long long per)
{
    const i64 to = min(rows, (blockIdx.x + 1) * per);
    float up = 0.0f, low = 0.0f;
    for (i64 r = blockIdx.x * per; r < to; r++)
        for (int d = threadIdx.x; d < F; d += blockDim.x) {
            const float v = load(x + r * ldx + d), g = load(dy + r * lddy + d);
            if (v > 0.0f)
                up += g * v * v;
            else
                low += g * curve(v, *eps);
        }
    up = block_sum(up);
    low = block_sum(low);
    if (threadIdx.x == 0) {
        part[2 * blockIdx.x] = up / (1.0f + expf(-*p));
        part[2 * blockIdx.x + 1] = low / (1.0f + expf(-*n));
    }
}
