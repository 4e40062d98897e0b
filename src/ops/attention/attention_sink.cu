/* attention_sink.cu - sinks of attention: one more logit per head, without a value. Contract:
 * attention.c; twin: attention_sink_cpu.c. Built with AF_T, AF_W (type of the sinks), AF_VEC. */
// variants: (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1) AF_W=float,bf16,half
// common: AF_T=bf16 AF_VEC=8 AF_W=bf16,float
#include "dev.cuh"

#define WARPS 8

/* `lanes` threads (a power of two, at most a warp) per (row, head); y may be o, both may be lse. */
extern "C" __global__ void attention_sink(AF_T *y, float *both, const AF_T *o, const float *lse,
                                          const AF_W *sinks, long long heads, int H, int E,
                                          long long ldy, long long ldo, int lanes)
{
    const i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    const int slot = threadIdx.x % lanes;
    if (i >= heads)
        return;
    const i64 n = i / H, c = i % H * (i64)E;
    const float l = lse[i], sink = load(sinks + i % H);
    const float sum = fmaxf(l, sink) + log1pf(expf(-fabsf(l - sink))), keep = expf(l - sum);
    for (int e = slot * AF_VEC; e < E; e += lanes * AF_VEC) {
        float v[AF_VEC];
        load_n(v, o + n * ldo + c + e);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            v[k] *= keep;
        store_n(y + n * ldy + c + e, v);
    }
    if (slot == 0)
        both[i] = sum;
}

/* Stage one of dsinks: block p sums rows p*per .. into part[p][H], a warp a head. Stage two:
 * reduce_parts. */
extern "C" __global__ void attention_sink_bwd(float *part, const AF_T *o, const float *lse,
                                              const AF_W *sinks, const AF_T *dy, long long rows,
                                              int H, int E, long long ldo, long long lddy,
                                              long long per)
{
    const int lane = threadIdx.x % 32;
    const i64 from = blockIdx.x * per, to = min((i64)rows, from + per);
    for (int h = threadIdx.x / 32; h < H; h += WARPS) {
        const float sink = load(sinks + h);
        float sum = 0.0f;
        for (i64 n = from; n < to; n++) {
            float delta = 0.0f;
            for (int e = lane * AF_VEC; e < E; e += 32 * AF_VEC) {
                float a[AF_VEC], b[AF_VEC];
                load_n(a, o + n * ldo + (i64)h * E + e);
                load_n(b, dy + n * lddy + (i64)h * E + e);
#pragma unroll
                for (int k = 0; k < AF_VEC; k++)
                    delta += a[k] * b[k];
            }
            for (int d = 16; d; d >>= 1)
                delta += __shfl_xor_sync(FULL, delta, d);
            sum -= expf(sink - lse[n * H + h]) * delta;
        }
        if (lane == 0)
            part[(i64)blockIdx.x * H + h] = sum;
    }
}
