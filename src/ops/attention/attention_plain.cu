/* attention_plain.cu - attention with plain multiply-adds: any type.
 * Contract: attention.c; twin: attention_cpu.c.
 *
 * Built with AF_T and AF_EP (head size padded to a multiple of 32). Same mathematics, grid and tile
 * search as attention.cu. Blocks of 8 warps own 32 rows, 4 per warp; the streamed side passes
 * through shared memory in tiles of 32 rows: a lane is a streamed row while scores are made, and a
 * column while dot products are summed. Dynamic shared memory: (2*32*(AF_EP+1) + 16*AF_EP) floats.
 */
// variants: AF_T=bf16,float,half AF_EP=32,64,96,128,192,256
#include "attention.cuh"

#ifndef AF_EP
#define AF_EP 128
#endif
#define LDS (AF_EP + 1)
#define EL  (AF_EP / 32)
#define OWN 4

extern __shared__ float shared[];

DEV void load_tile(float *tile, const AF_T *src, i64 ld, int row0, int end, int E)
{
    for (int i = threadIdx.x; i < 32 * AF_EP; i += blockDim.x) {
        const int r = i / AF_EP, e = i % AF_EP;
        tile[r * LDS + e] = row0 + r < end && e < E ? load(src + (i64)(row0 + r) * ld + e) : 0.0f;
    }
}
DEV void load_one(float *row, const AF_T *src, int E)
{
    __syncwarp();
    for (int e = threadIdx.x % 32; e < AF_EP; e += 32)
        row[e] = e < E ? load(src + e) : 0.0f;
    __syncwarp();
}
DEV float dot(const float *one, const float *row)
{
    float s = 0.0f;
#pragma unroll 8
    for (int e = 0; e < AF_EP; e++)
        s += one[e] * row[e];
    return s;
}
/* acc += sum over the tile's rows j of (lane j's p) * tile[j] */
DEV void add_rows(float (&acc)[EL], float p, const float *tile)
{
#pragma unroll 4
    for (int j = 0; j < 32; j++) {
        const float pj = __shfl_sync(FULL, p, j);
#pragma unroll
        for (int i = 0; i < EL; i++)
            acc[i] += pj * tile[j * LDS + i * 32 + threadIdx.x % 32];
    }
}
DEV void store_one(AF_T *dst, const float (&acc)[EL], float f, int E)
{
#pragma unroll
    for (int i = 0; i < EL; i++)
        if (i * 32 + threadIdx.x % 32 < E)
            store(dst + i * 32 + threadIdx.x % 32, acc[i] * f);
}
DEV float capped(float s, float softcap)
{
    return softcap > 0.0f ? softcap * tanhf(s / softcap) : s;
}
DEV float cap_slope(float s, float softcap)
{
    return softcap > 0.0f ? 1.0f - (s / softcap) * (s / softcap) : 1.0f;
}

/* One step of the online softmax over 32 scores, one a lane. Returns this lane's weight. */
DEV float online_softmax(float s, float &top, float &sum, float (&acc)[EL])
{
    const float mx = fmaxf(top, warp_max(s)), base = mx == -INF ? 0.0f : mx;
    const float keep = expf(top - base), p = expf(s - base);
    top = mx;
    sum = sum * keep + warp_sum(p);
#pragma unroll
    for (int i = 0; i < EL; i++)
        acc[i] *= keep;
    return p;
}

extern "C" __global__ void __launch_bounds__(256)
    attention_fwd(AF_T *o, float *lse, const AF_T *qkv, const int *bounds, int S, int N, int H,
                  int K, int E, long long ldo, long long ldx, float scale, float softcap,
                  int window, int causal)
{
    const af_mask mask = {causal, window};
    const int h = blockIdx.x, kv = h / (H / K), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    af_tile t;
    if (!find_tile(t, gridDim.y - 1 - blockIdx.y, bounds, S, N, 8 * OWN))
        return;
    float *kt = shared, *vt = kt + 32 * LDS, *qs = vt + 32 * LDS + warp * AF_EP;
    const AF_T *q = qkv + (i64)h * E, *k = qkv + (i64)(H + kv) * E, *v = k + (i64)K * E;
    const int lo = first_key(mask, t.at, t.from);
    const int hi = t.dead ? lo : end_key(mask, min(t.at + 8 * OWN, t.to), t.to);
    float acc[OWN][EL] = {}, top[OWN], sum[OWN] = {};
#pragma unroll
    for (int m = 0; m < OWN; m++)
        top[m] = -INF;
    for (int k0 = lo; k0 < hi; k0 += 32) {
        __syncthreads();
        load_tile(kt, k, ldx, k0, hi, E);
        load_tile(vt, v, ldx, k0, hi, E);
        __syncthreads();
#pragma unroll
        for (int m = 0; m < OWN; m++) {
            const int row = t.at + warp * OWN + m;
            if (row < t.to) {
                load_one(qs, q + (i64)row * ldx, E);
                const float s = capped(dot(qs, kt + lane * LDS) * scale, softcap);
                const bool in = !outside(keys_of(mask, row, hi), k0 + lane);
                add_rows(acc[m], online_softmax(in ? s : -INF, top[m], sum[m], acc[m]), vt);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < OWN; m++) {
        const int row = t.at + warp * OWN + m;
        if (row < t.to) {
            store_one(o + (i64)row * ldo + (i64)h * E, acc[m], sum[m] > 0.0f ? 1.0f / sum[m] : 0.0f,
                      E);
            if (lane == 0)
                lse[(i64)row * H + h] = sum[m] > 0.0f ? top[m] + logf(sum[m]) : 0.0f;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    attention_dq(AF_T *dqkv, const AF_T *qkv, const AF_T *dout, const float *lse,
                 const float *delta, const int *bounds, int S, int N, int H, int K, int E,
                 long long lddx, long long ldx, long long lddo, float scale, float softcap,
                 int window, int causal)
{
    const af_mask mask = {causal, window};
    const int h = blockIdx.x, kv = h / (H / K), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    af_tile t;
    if (!find_tile(t, gridDim.y - 1 - blockIdx.y, bounds, S, N, 8 * OWN))
        return;
    float *kt = shared, *vt = kt + 32 * LDS, *qs = vt + 32 * LDS + warp * 2 * AF_EP,
          *os = qs + AF_EP;
    const AF_T *q = qkv + (i64)h * E, *k = qkv + (i64)(H + kv) * E, *v = k + (i64)K * E;
    dout += (i64)h * E;
    const int lo = first_key(mask, t.at, t.from);
    const int hi = t.dead ? lo : end_key(mask, min(t.at + 8 * OWN, t.to), t.to);
    float acc[OWN][EL] = {};
    for (int k0 = lo; k0 < hi; k0 += 32) {
        __syncthreads();
        load_tile(kt, k, ldx, k0, hi, E);
        load_tile(vt, v, ldx, k0, hi, E);
        __syncthreads();
#pragma unroll
        for (int m = 0; m < OWN; m++) {
            const int row = t.at + warp * OWN + m;
            if (row < t.to) {
                load_one(qs, q + (i64)row * ldx, E);
                load_one(os, dout + (i64)row * lddo, E);
                const float s = capped(dot(qs, kt + lane * LDS) * scale, softcap);
                const bool in = !outside(keys_of(mask, row, hi), k0 + lane);
                const float p = in ? expf(s - lse[(i64)row * H + h]) : 0.0f;
                const float dp = dot(os, vt + lane * LDS) - delta[(i64)row * H + h];
                add_rows(acc[m], p * dp * cap_slope(s, softcap), kt);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < OWN; m++) {
        const int row = t.at + warp * OWN + m;
        if (row < t.to)
            store_one(dqkv + (i64)row * lddx + (i64)h * E, acc[m], scale, E);
    }
}

/* One block has 32 keys of one kv head and all query heads of its split, as in attention.cu. */
extern "C" __global__ void __launch_bounds__(256)
    attention_dkv(AF_T *dkv, const AF_T *qkv, const AF_T *dout, const float *lse,
                  const float *delta, const int *bounds, int S, int N, int H, int K, int E,
                  long long lddkv, long long ldx, long long lddo, float scale, float softcap,
                  int window, int causal, int splits, long long stride)
{
    const af_mask mask = {causal, window};
    const int kv = blockIdx.x / splits, split = blockIdx.x % splits, heads = H / K / splits;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    af_tile t;
    if (!find_tile(t, blockIdx.y, bounds, S, N, 8 * OWN))
        return;
    float *qt = shared, *ot = qt + 32 * LDS, *ks = ot + 32 * LDS + warp * 2 * AF_EP,
          *vs = ks + AF_EP;
    const AF_T *k = qkv + (i64)(H + kv) * E, *v = k + (i64)K * E;
    const int lo = first_query(mask, t.at, t.from);
    const int hi = t.dead ? lo : end_query(mask, min(t.at + 8 * OWN, t.to), t.to);
    float dk[OWN][EL] = {}, dv[OWN][EL] = {};
    for (int g = 0; g < heads; g++) {
        const int h = kv * (H / K) + split * heads + g;
        for (int q0 = lo; q0 < hi; q0 += 32) {
            __syncthreads();
            load_tile(qt, qkv + (i64)h * E, ldx, q0, hi, E);
            load_tile(ot, dout + (i64)h * E, lddo, q0, hi, E);
            __syncthreads();
            const bool live = q0 + lane < hi;
            const float l = live ? lse[(i64)(q0 + lane) * H + h] : 0.0f;
            const float d = live ? delta[(i64)(q0 + lane) * H + h] : 0.0f;
#pragma unroll
            for (int m = 0; m < OWN; m++) {
                const int row = t.at + warp * OWN + m;
                if (row < t.to) {
                    load_one(ks, k + (i64)row * ldx, E);
                    load_one(vs, v + (i64)row * ldx, E);
                    const float s = capped(dot(ks, qt + lane * LDS) * scale, softcap);
                    const float p =
                        live && !outside(queries_of(mask, row), q0 + lane) ? expf(s - l) : 0.0f;
                    const float dp = dot(vs, ot + lane * LDS) - d;
                    add_rows(dv[m], p, ot);
                    add_rows(dk[m], p * dp * cap_slope(s, softcap), qt);
                }
            }
        }
    }
    dkv += split * stride + (i64)kv * E;
#pragma unroll
    for (int m = 0; m < OWN; m++) {
        const int row = t.at + warp * OWN + m;
        if (row < t.to) {
            store_one(dkv + (i64)row * lddkv, dk[m], scale, E);
            store_one(dkv + (i64)row * lddkv + (i64)K * E, dv[m], 1.0f, E);
        }
    }
}
