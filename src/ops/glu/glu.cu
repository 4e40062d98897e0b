/* glu.cu - gated activation y = act(gate) * up, both directions.  Contract: glu.c; twin: glu_cpu.c.
 *
 * Built with AF_T, AF_VEC and AF_ACT (af_act: 0 silu, 1 gelu_tanh, 2 gelu, 3 relu). Each row of F
 * columns is cut among `cuts` blocks (block b: row b / cuts, cut b % cuts); a thread makes one
 * access to each operand. Everything is read and written once. */
// variants: (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1) AF_ACT=0..3
// common: AF_T=bf16 AF_VEC=8 AF_ACT=0
#include "fp8_codes.cuh"
#include "glu.cuh"

#define HELD 5 /* times eight values of a row that a thread keeps */

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

/* A row is a block here: y, and y as e4m3 codes with a scale, for a product in FP8. bf16 only. */
extern "C" __global__ void __launch_bounds__(1024)
    glu_fwd_codes(AF_T *y, u8 *codes, float *scale, const AF_T *gate_up, int F, long long ldy,
                  long long ldg)
{
    previous_done();
#if AF_VEC == 8
    const i64 n = blockIdx.x;
    const AF_T *gate = gate_up + n * ldg, *up = gate + F;
    uint4 *to = (uint4 *)(y + n * ldy);
    uint4 held[HELD] = {};
    u32 most = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int at = threadIdx.x + i * blockDim.x;
        if (at >= F / 8)
            continue;
        float g[8], u[8], slope;
        load_n(g, gate + at * 8);
        load_n(u, up + at * 8);
#pragma unroll
        for (int k = 0; k < 8; k++)
            u[k] *= act(g[k], &slope);
        held[i] = make_uint4(pack_bf16(u[0], u[1]), pack_bf16(u[2], u[3]), pack_bf16(u[4], u[5]),
                             pack_bf16(u[6], u[7]));
        to[at] = held[i];
        most = largest_of(held[i], most);
    }
    const fp8_scale s = scale_of(block_largest(most));
    if (threadIdx.x == 0)
        scale[n] = s.scale;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int at = threadIdx.x + i * blockDim.x;
        if (at < F / 8)
            ((uint2 *)(codes + n * F))[at] = codes_of(held[i], s.inverse);
    }
#endif
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
