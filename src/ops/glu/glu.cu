/* glu.cu - gated activation y = act(gate) * up, both directions.  Contract: glu.c; twin: glu_cpu.c.
 *
 * Built with AF_T, AF_VEC and AF_ACT (af_act: 0 silu, 1 gelu_tanh, 2 gelu, 3 relu). Each row of F
 * columns is cut among `cuts` blocks (block b: row b / cuts, cut b % cuts); a thread makes one
 * access to each operand. Everything is read and written once. */
// variants: (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1) AF_ACT=0..3
// common: AF_T=bf16 AF_VEC=8 AF_ACT=0
#include "glu.cuh"

extern "C" __global__ void glu_fwd(AF_T *y, const AF_T *gate_up, int F, int cuts, long long ldy,
                                   long long ldg)
{
    previous_done();
    const i64 n = blockIdx.x / cuts;
    const int d = (blockIdx.x % cuts * blockDim.x + threadIdx.x) * AF_VEC;
    if (d >= F)
        return;
    float g[AF_VEC], u[AF_VEC], slope;
    load_n(g, gate_up + n * ldg + d);
    load_n(u, gate_up + n * ldg + F + d);
#pragma unroll
    for (int k = 0; k < AF_VEC; k++)
        u[k] *= act(g[k], &slope);
    store_n(y + n * ldy + d, u);
}

/* dgate = dy * up * act'(gate), dup = dy * act(gate); with h: h = act(gate) * up once more. */
extern "C" __global__ void glu_bwd(AF_T *dgate_up, AF_T *h, const AF_T *gate_up, const AF_T *dy,
                                   int F, int cuts, long long lddg, long long ldh, long long ldg,
                                   long long lddy)
{
    previous_done();
    const i64 n = blockIdx.x / cuts;
    const int d = (blockIdx.x % cuts * blockDim.x + threadIdx.x) * AF_VEC;
    if (d >= F)
        return;
    float g[AF_VEC], u[AF_VEC], dv[AF_VEC], hv[AF_VEC];
    load_n(g, gate_up + n * ldg + d);
    load_n(u, gate_up + n * ldg + F + d);
    load_n(dv, dy + n * lddy + d);
#pragma unroll
    for (int k = 0; k < AF_VEC; k++) {
        float slope;
        const float a = act(g[k], &slope);
        hv[k] = a * u[k];
        g[k] = dv[k] * u[k] * slope;
        u[k] = dv[k] * a;
    }
    store_n(dgate_up + n * lddg + d, g);
    store_n(dgate_up + n * lddg + F + d, u);
    if (h)
        store_n(h + n * ldh + d, hv);
}
