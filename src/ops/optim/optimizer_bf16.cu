/* optimizer_bf16.cu - Adam and GaLore on parameters in bf16, with f32 gradients and moments in f32
 * or 8 bits.
 * Contract: bf16_weights.h; the update itself is that of adam.cuh. A block of Philox serves
 * eight elements: a thread has four of them, from a multiple of 4. */
// variants: AF_ROUND=0..2
// common: AF_ROUND=1..2
#include "adam.cuh"

#define STREAM ((u64)0xb7 << 56) /* AF_ROUNDING_STREAM */

DEV u16 cut(float x, u32 r)
{
    const u32 bits = __float_as_uint(x);
    bf16 w;
    if ((bits & 0x7f800000u) != 0x7f800000u)
        return (u16)((bits + r) >> 16);
    store(&w, x);
    return w.bits;
}

/* The 16 random bits of element i. */
DEV u32 rounding_bits(const philox &p, i64 i)
{
    const u32 word = p.w[i / 2 % 4];
    return (i & 1 ? word >> 16 : word) & 0xffff;
}

DEV void load_weights(float (&x)[4], const bf16 *w, const bf16 *rest)
{
    load_n(x, w);
    if (AF_ROUND == 2) {
        float r[4];
        load_n(r, rest);
#pragma unroll
        for (int k = 0; k < 4; k++)
            x[k] += r[k];
    }
}

/* at: the first element in the flat buffer of all parameters. */
DEV void store_weights(bf16 *w, bf16 *rest, const float (&x)[4], u64 seed, u64 stream, i64 at)
{
    if (AF_ROUND == 1) {
        const philox p = philox_block(seed, stream, (u64)at / 8);
        u16 q[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            q[k] = cut(x[k], rounding_bits(p, at + k));
        *(uint2 *)w = {q[0] | (u32)q[1] << 16, q[2] | (u32)q[3] << 16};
        return;
    }
    store_n(w, x);
    if (AF_ROUND == 2) {
        float r[4];
        load_n(r, w);
#pragma unroll
        for (int k = 0; k < 4; k++)
            r[k] = x[k] - r[k];
        store_n(rest, r);
    }
}

/* The same for one element. */
DEV float load_weight(const bf16 *w, const bf16 *rest)
{
    return AF_ROUND == 2 ? load(w) + load(rest) : load(w);
}
DEV void store_weight(bf16 *w, bf16 *rest, float x, u64 seed, u64 stream, i64 at)
{
    if (AF_ROUND == 1)
        w->bits = cut(x, rounding_bits(philox_block(seed, stream, (u64)at / 8), at));
    else
        store(w, x);
    if (AF_ROUND == 2)
        store(rest, x - load(w));
}

extern "C" __global__ void adam_bf16(bf16 *w, float *grads, const float *hyper, const float *stats,
                                     float *m, float *v, bf16 *rest, long long n, float b1,
                                     float b2, float rest1, float rest2, float eps, float decay,
                                     float lr_factor, int coupled, long long seed, long long from)
{
    const adam_rates rates = {hyper[0] * lr_factor,
                              hyper[1],
                              hyper[2],
                              stats[STATS_CLIP],
                              b1,
                              b2,
                              rest1,
                              rest2,
                              eps,
                              decay,
                              coupled};
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const u64 stream = STREAM + (u64)hyper[3];
    const float zero[4] = {};
    FOUR_LOOP
    {
        if (finite) {
            float wv[4], gv[4], mv[4], vv[4];
            load_weights(wv, w + i, rest + i);
            load_n(gv, grads + i);
            load_n(mv, m + i);
            load_n(vv, v + i);
#pragma unroll
            for (int k = 0; k < 4; k++)
                adam_element(wv[k], mv[k], vv[k], gv[k], rates);
            store_weights(w + i, rest + i, wv, (u64)seed, stream, from + i);
            store_n(m + i, mv);
            store_n(v + i, vv);
        }
        store_n(grads + i, zero);
    }
}

/* As galore_apply: a matrix may begin anywhere, so one element at a time. */
extern "C" __global__ void galore_apply_bf16(bf16 *w, float *d, const float *hyper,
                                             const float *stats, bf16 *rest, long long n,
                                             float decay, float lr_factor, float scale,
                                             long long seed, long long from)
{
    const float lr = hyper[0] * lr_factor;
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float step = lr * hyper[2] / hyper[1] * scale, keep = 1.0f - lr * decay;
    const u64 stream = STREAM + (u64)hyper[3];
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x) {
        if (finite) {
            const float x = load_weight(w + i, rest + i);
            store_weight(w + i, rest + i, keep * (x - step * d[i]), (u64)seed, stream, from + i);
        }
        d[i] = 0.0f;
    }
}

/* One thread per element, as adam_8bit. */
extern "C" __global__ void __launch_bounds__(256)
    adam_8bit_bf16(bf16 *w, float *grads, const float *hyper, const float *stats, unsigned char *m8,
                   unsigned char *v8, float *m_scale, float *v_scale, bf16 *rest, long long n,
                   float b1, float b2, float rest1, float rest2, float eps, float decay,
                   float lr_factor, long long seed, long long from)
{
    const adam_rates rates = {hyper[0] * lr_factor,
                              hyper[1],
                              hyper[2],
                              stats[STATS_CLIP],
                              b1,
                              b2,
                              rest1,
                              rest2,
                              eps,
                              decay,
                              0};
    const u64 stream = STREAM + (u64)hyper[3];
    if (stats[STATS_FINITE] == 1.0f)
        adam_8bit_block(m8, v8, m_scale, v_scale, n, [&](i64 i, float &m, float &v) {
            float x = load_weight(w + i, rest + i);
            adam_element(x, m, v, grads[i], rates);
            store_weight(w + i, rest + i, x, (u64)seed, stream, from + i);
        });
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        grads[i] = 0.0f;
}
