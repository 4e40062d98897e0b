/* moe_glu.cu - gradients of the gated unit of experts and of their weights. Contract: moe.c
 * (MOE_GLU_BWD); twin: moe_cpu.c. Built with AF_T, AF_VEC and AF_ACT. */
// variants: (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1) AF_ACT=0..3
// common: AF_T=bf16 AF_VEC=8 AF_ACT=0
#include "glu.cuh"

/* dgate_up[s] is weights[p] times GLU_BWD's, and dweights[p] = dy[s] . h, h = act(gate) * up, for
 * pair p whose slot is s. A warp has a pair; dgate_up may lie where gate_up does. */
extern "C" __global__ void moe_glu_bwd(AF_T *dgate_up, long long lddg, float *dweights,
                                       const AF_T *gate_up, long long ldg, const AF_T *dy,
                                       long long lddy, const float *weights, const int *slot,
                                       long long pairs, int F)
{
    const i64 p = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (p >= pairs)
        return;
    const i64 s = slot[p];
    const float w = weights[p];
    float dot = 0.0f;
    for (int d = threadIdx.x % 32 * AF_VEC; d < F; d += 32 * AF_VEC) {
        float g[AF_VEC], u[AF_VEC], dv[AF_VEC];
        load_n(g, gate_up + s * ldg + d);
        load_n(u, gate_up + s * ldg + F + d);
        load_n(dv, dy + s * lddy + d);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++) {
            float slope;
            const float a = act(g[k], &slope), by = dv[k] * w;
            dot += dv[k] * a * u[k];
            g[k] = by * u[k] * slope;
            u[k] = by * a;
        }
        store_n(dgate_up + s * lddg + d, g);
        store_n(dgate_up + s * lddg + F + d, u);
    }
    dot = warp_sum(dot);
    if (threadIdx.x % 32 == 0)
        dweights[p] = dot;
}
