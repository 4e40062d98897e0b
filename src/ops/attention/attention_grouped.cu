/* attention_grouped.cu - attention of generation where heads share keys and values, in bf16 on
 * tensor cores: what attention_cached.cu does, but a block has all query heads of a key-value
 * head, so that the cache is read once. Keys and values of new rows come from qkv, for the blocks
 * that store them in the cache run at the same time. Contract: attention.c; twin: attention_cpu.c.
 *
 * Built with AF_E (the head's size), AF_G (query heads: rows of a tile, 16, of which the upper 8
 * may be left out) and AF_KS (blocks of a cluster that share the keys). A warp takes 16 keys at a
 * time. Keys and values go from the cache to registers in 16-byte accesses, in an order of elements
 * that makes them operands of mma as they lie:
 *
 *   scores  q [heads][e] x k [keys][e]: lane (g, t) = (lane / 4, lane % 4) reads key g, elements
 *           32 c + 8 t .. + 7, which are its parts of two mma; q is read in the same order
 *   output  p [heads][keys] x v [keys][e]: lane (g, t) reads keys 2t, 2t + 1, 2t + 8, 2t + 9,
 *           elements 64 c + 8 g .. + 7; element 8 g + i of pairs of keys is its part of mma i,
 *           whose column n is element 8 n + i
 *
 * Which keys a warp takes depends on the row's own position alone. */
// variants: AF_E=64,128 AF_G=8,16 AF_KS=1,2,4,8
// common: AF_E=128 AF_G=8 AF_KS=1,2,4,8
#include "cached_rows.cuh"

#define WARPS  4
#define KEYS   16
#define HALVES (AF_G / 8)

struct words {
    u32 w[4];
};
DEV words fetch(const bf16 *p, bool there)
{
    const uint4 v = there ? *(const uint4 *)p : make_uint4(0, 0, 0, 0);
    return {{v.x, v.y, v.z, v.w}};
}

/* The running softmax of one of the lane's rows of a tile. */
struct running {
    float top, sum;
};

extern "C" __global__ void CLUSTER __launch_bounds__(WARPS * 32)
    attention_grouped(bf16 *o, float *lse, const bf16 *qkv, bf16 *cache, const int *bounds,
                      const int *start, const int *pages, int S, int M, long long L, int H, int K,
                      long long ldo, long long ldx, float scale, float softcap, int window)
{
    __shared__ float part[WARPS][AF_G * AF_E], tops[WARPS][AF_G], sums[WARPS][AF_G];
    __shared__ float mine[AF_G * AF_E], mine_top[AF_G], mine_sum[AF_G];
    next_may_begin();
    const int kv = blockIdx.x / AF_KS, rank = blockIdx.x % AF_KS, n = blockIdx.y, heads = H / K;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int s = sequence_of(bounds, S, n);
    const i64 width = 2 * (i64)K * AF_E, from = s < 0 ? 0 : start[s],
              at = s < 0 ? -1 : min(from + n - bounds[s], M * L - 1);
    const i64 lo = window ? max(0ll, at - window + 1) : 0, stride = (i64)AF_KS * WARPS * KEYS;
    /* of position 0, were all of them new rows */
    const bf16 *fresh = qkv + ((s < 0 ? 0 : bounds[s]) - from) * ldx + (i64)H * AF_E;
    previous_done(); /* bounds and starts are inputs: no launch writes them */
    words ks[2][AF_E / 32], vs[4][AF_E / 64], q[HALVES][AF_E / 32];
    float acc[AF_E / 64][8][4] = {};
    running r[HALVES];
    /* of a key; its value: K * AF_E after it */
    const auto key_at = [&](i64 key) {
        const bf16 *row =
            key >= from ? fresh + key * ldx : cache + cache_row(pages, M, L, s, key) * width;
        return key <= at ? row + (i64)kv * AF_E : qkv;
    };
    const auto take_keys = [&](i64 first) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const i64 key = first + 8 * j + g;
            const bf16 *k = key_at(key);
#pragma unroll
            for (int c = 0; c < AF_E / 32; c++)
                ks[j][c] = fetch(k + 32 * c + 8 * t, key <= at);
        }
    };
    const auto take_values = [&](i64 first) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const i64 key = first + 8 * (j / 2) + 2 * t + j % 2;
            const bf16 *v = key_at(key) + (i64)K * AF_E;
#pragma unroll
            for (int c = 0; c < AF_E / 64; c++)
                vs[j][c] = fetch(v + 64 * c + 8 * g, key <= at);
        }
    };
    i64 first = lo + (i64)(rank * WARPS + warp) * KEYS;
    take_keys(first);
    take_values(first);
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        r[h] = {-INF, 0.0f};
#pragma unroll
        for (int c = 0; c < AF_E / 32; c++)
            q[h][c] = fetch(qkv + n * ldx + (i64)(kv * heads + 8 * h + g) * AF_E + 32 * c + 8 * t,
                            8 * h + g < heads);
    }
    if (rank == 0 && s >= 0 && from + n - bounds[s] < M * L && threadIdx.x < AF_E / 4) {
        const int c = threadIdx.x * 8, e = c % AF_E; /* the key, then the value */
        const i64 column = (c < AF_E ? 0 : (i64)K * AF_E) + (i64)kv * AF_E + e;
        *(uint4 *)(cache + cache_row(pages, M, L, s, at) * width + column) =
            *(const uint4 *)(fresh + at * ldx + column);
    }
    for (i64 k0 = lo; k0 <= at; k0 += stride, first += stride) { /* as many rounds for all */
        float score[2][4] = {};
#pragma unroll
        for (int c = 0; c < AF_E / 32; c++)
#pragma unroll
            for (int step = 0; step < 2; step++) {
                const words &low = q[0][c], &high = q[HALVES - 1][c];
                const u32 a[4] = {low.w[2 * step], HALVES > 1 ? high.w[2 * step] : 0,
                                  low.w[2 * step + 1], HALVES > 1 ? high.w[2 * step + 1] : 0};
#pragma unroll
                for (int j = 0; j < 2; j++)
                    mma(score[j], a, ks[j][c].w[2 * step], ks[j][c].w[2 * step + 1]);
            }
        if (k0 + stride <= at)
            take_keys(first + stride);
        u32 p[4] = {};
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            float mx = r[h].top;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float &d = score[j / 2][2 * h + j % 2];
                d *= scale;
                d = softcap > 0.0f ? softcap * tanhf(d / softcap) : d;
                d = first + 8 * (j / 2) + 2 * t + j % 2 <= at ? d : -INF;
                mx = fmaxf(mx, d);
            }
            mx = fmaxf(mx, __shfl_xor_sync(FULL, mx, 1));
            mx = fmaxf(mx, __shfl_xor_sync(FULL, mx, 2));
            const float base = mx == -INF ? 0.0f : mx, keep = expf(r[h].top - base);
            r[h] = {mx, r[h].sum * keep};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float &d = score[j / 2][2 * h + j % 2];
                d = expf(d - base);
                r[h].sum += d;
            }
#pragma unroll
            for (int j = 0; j < 2; j++)
                p[2 * j + h] = pack_bf16(score[j][2 * h], score[j][2 * h + 1]);
#pragma unroll
            for (int c = 0; c < AF_E / 64; c++)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    acc[c][i][2 * h] *= keep;
                    acc[c][i][2 * h + 1] *= keep;
                }
        }
#pragma unroll
        for (int c = 0; c < AF_E / 64; c++)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const u32 half = i % 2 ? 0x7632 : 0x5410;
                mma(acc[c][i], p, __byte_perm(vs[0][c].w[i / 2], vs[1][c].w[i / 2], half),
                    __byte_perm(vs[2][c].w[i / 2], vs[3][c].w[i / 2], half));
            }
        if (k0 + stride <= at)
            take_values(first + stride);
    }
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        float l = r[h].sum;
        l += __shfl_xor_sync(FULL, l, 1);
        l += __shfl_xor_sync(FULL, l, 2);
        if (t == 0) {
            tops[warp][8 * h + g] = r[h].top;
            sums[warp][8 * h + g] = l;
        }
#pragma unroll
        for (int c = 0; c < AF_E / 64; c++)
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    part[warp][(8 * h + g) * AF_E + 64 * c + 8 * (2 * t + j) + i] =
                        acc[c][i][2 * h + j];
    }
    __syncthreads();
    for (int x = threadIdx.x; x < heads * AF_E; x += WARPS * 32) { /* the warps, in order */
        float mx = -INF, l = 0.0f, a = 0.0f;
        for (int w = 0; w < WARPS; w++)
            mx = fmaxf(mx, tops[w][x / AF_E]);
        for (int w = 0; w < WARPS; w++) {
            const float f = mx == -INF ? 0.0f : expf(tops[w][x / AF_E] - mx);
            l += sums[w][x / AF_E] * f;
            a += part[w][x] * f;
        }
        mine[x] = a;
        if (x % AF_E == 0) {
            mine_top[x / AF_E] = mx;
            mine_sum[x / AF_E] = l;
        }
    }
    cluster_meet();
    for (int x = rank * WARPS * 32 + threadIdx.x; x < heads * AF_E; x += AF_KS * WARPS * 32) {
        const int h = x / AF_E;
        float mx = -INF, l = 0.0f, a = 0.0f;
        for (int b = 0; b < AF_KS; b++)
            mx = fmaxf(mx, peer(&mine_top[h], b));
        for (int b = 0; b < AF_KS; b++) {
            const float f = mx == -INF ? 0.0f : expf(peer(&mine_top[h], b) - mx);
            l += peer(&mine_sum[h], b) * f;
            a += peer(&mine[x], b) * f;
        }
        store(o + n * ldo + (i64)kv * heads * AF_E + x, l > 0.0f ? a / l : 0.0f);
        if (lse && x % AF_E == 0)
            lse[(i64)n * H + kv * heads + h] = l > 0.0f ? mx + logf(l) : 0.0f;
    }
    cluster_meet(); /* no block exits while others read its shared memory */
}
