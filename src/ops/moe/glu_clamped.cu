/* glu_clamped.cu - the clamped gated unit of gpt-oss, both directions.  Contract: glu.c; twin:
 * glu_cpu.c.
 *
 * Built with AF_T. Each row of F columns is cut among `cuts` blocks (block b: row b / cuts, cut
 * b % cuts), a column per thread. */
// variants: AF_T=bf16,float,half
#include "dev.cuh"

extern "C" __global__ void glu_clamped_fwd(AF_T *y, const AF_T *gate_up, int F, int cuts,
                                           long long ldy, long long ldg, float limit)
{
    const i64 n = blockIdx.x / cuts;
    const int d = blockIdx.x % cuts * blockDim.x + threadIdx.x;
    if (d >= F)
        return;
    const float g = fminf(load(gate_up + n * ldg + d), limit);
    const float u = fmaxf(fminf(load(gate_up + n * ldg + F + d), limit), -limit);
    store(y + n * ldy + d, (u + 1.0f) * g / (1.0f + expf(-1.702f * g)));
}

extern "C" __global__ void glu_clamped_bwd(AF_T *dgate_up, const AF_T *gate_up, const AF_T *dy,
                                           int F, int cuts, long long lddg, long long ldg,
                                           long long lddy, float limit)
{
    const i64 n = blockIdx.x / cuts;
    const int d = blockIdx.x % cuts * blockDim.x + threadIdx.x;
    if (d >= F)
        return;
    const float gate = load(gate_up + n * ldg + d), up = load(gate_up + n * ldg + F + d);
    const float g = fminf(gate, limit), u = fmaxf(fminf(up, limit), -limit);
    const float s = 1.0f / (1.0f + expf(-1.702f * g)), v = load(dy + n * lddy + d);
    store(dgate_up + n * lddg + d,
          gate <= limit ? v * (u + 1.0f) * s * (1.0f + 1.702f * g * (1.0f - s)) : 0.0f);
    store(dgate_up + n * lddg + F + d, fabsf(up) <= limit ? v * g * s : 0.0f);
}
