/* attention_grouped.cu - attention of generation where heads share keys and values, in bf16 on
 * tensor cores: what attention_cached.cu does, but a block has all query heads of a key-value
 * head, so that the cache is read once. Keys and values of new rows come from qkv, for the blocks
 * that store them in the cache run at the same time. Contract: attention.c; twin: attention_cpu.c.
 *
 * Built with AF_E (the head's size), AF_G (query heads: rows of a tile, 16, of which the upper 8
 * may be left out), AF_WARPS, AF_KS (blocks of a cluster that share the keys) and AF_ROPE (1: rows
 * are single tokens whose queries and keys have not been rotated). A warp takes 16 keys at a time.
 * Keys and values go from the cache to registers in 16-byte accesses, in an order of elements that
 * makes them operands of mma as they lie:
 *
 *   scores  q [heads][e] x k [keys][e]: lane (g, t) = (lane / 4, lane % 4) reads key g, elements
 *           32 c + 8 t .. + 7, which are its parts of two mma; q is read in the same order
 *   output  v [e][keys] x p [keys][heads]: lane (g, t) reads keys 2t, 2t + 1, 2t + 8, 2t + 9,
 *           elements 64 c + 8 g .. + 7; elements 8 g + 2 i and the next one of pairs of keys are
 * its parts of mma i, whose rows g and g + 8 they are
 *
 * Which keys a warp takes depends on the row's own position alone. */
// variants: AF_E=64,128 (AF_G=8 AF_WARPS=4 AF_KS=1 | AF_G=8 AF_WARPS=8 AF_KS=1,2,4,8
//      | AF_G=16 AF_WARPS=4 AF_KS=1,2,4,8) AF_ROPE=0,1
// common: AF_E=128 AF_G=8 (AF_WARPS=4 AF_KS=1 | AF_WARPS=8 AF_KS=1,2,4,8) AF_ROPE=0,1
#include "cached_rows.cuh"
#include "rotate.cuh"

#ifndef AF_ROPE
#define AF_ROPE 0
#endif
#ifndef AF_WARPS
#define AF_WARPS 4
#endif
#define WARPS  AF_WARPS
#define KEYS   16
#define HALVES (AF_G / 8)
/* blocks of a multiprocessor at least: 3 by registers, of few heads */
#define RESIDENT (WARPS > 4 ? 1 : AF_G > 8 ? 2 : 3)
#define LINE     (AF_E + 2) /* of a head's sums, which lanes write to different banks */

struct words {
    u32 w[4];
};
DEV words fetch(const bf16 *p, bool there)
{
    const uint4 v = there ? *(const uint4 *)p : make_uint4(0, 0, 0, 0);
    return {{v.x, v.y, v.z, v.w}};
}

/* The lane's part of a row, `apart` elements from one access to the next. */
DEV void keep_row(bf16 *to, const words *row, int apart)
{
#pragma unroll
    for (int c = 0; c < AF_E / apart; c++)
        *(uint4 *)(to + apart * c) = make_uint4(row[c].w[0], row[c].w[1], row[c].w[2], row[c].w[3]);
}
/* The lane's part of a head, whose halves are rotated together. */
DEV void rotate_head(words (&x)[AF_E / 32], const float2 *tab)
{
#pragma unroll
    for (int c = 0; c < AF_E / 64; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float a[2], b[2];
            unpack2((bf16 *)0, x[c].w[i], a);
            unpack2((bf16 *)0, x[c + AF_E / 64].w[i], b);
            rotate_pair(a[0], b[0], tab[32 * c + 2 * i]);
            rotate_pair(a[1], b[1], tab[32 * c + 2 * i + 1]);
            x[c].w[i] = pack_bf16(a[0], a[1]);
            x[c + AF_E / 64].w[i] = pack_bf16(b[0], b[1]);
        }
}

/* The running softmax of one of the lane's rows of a tile. */
struct running {
    float top, sum;
};

extern "C" __global__ void CLUSTER __launch_bounds__(WARPS * 32, RESIDENT)
    attention_grouped(bf16 *o, float *lse, const bf16 *qkv, bf16 *cache, const int *bounds,
                      const int *start, const int *pages, int S, int M, long long L, int H, int K,
                      long long ldo, long long ldx, float scale, float softcap, int window,
                      const int *positions, const float *inv_freq, float rope_scale)
{
    __shared__ __align__(16) float2 tab[AF_E / 2];
    __shared__ __align__(8) float part[WARPS][AF_G * LINE];
    __shared__ float tops[WARPS][AF_G], sums[WARPS][AF_G];
    __shared__ float mine[AF_G * AF_E], mine_top[AF_G], mine_sum[AF_G];
    next_may_begin();
    const int kv = blockIdx.x / AF_KS, rank = blockIdx.x % AF_KS, n = blockIdx.y, heads = H / K;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int s = sequence_of(bounds, S, n);
    const i64 width = 2 * (i64)K * AF_E;
    const int length = (int)min(M * L, 0x7fffffffll), from = s < 0 ? 0 : start[s],
              at = s < 0 ? -1 : min(from + n - bounds[s], length - 1);
    const int lo = window ? max(0, at - window + 1) : 0, stride = AF_KS * WARPS * KEYS;
    /* of position 0, were all of them new rows */
    const bf16 *fresh = qkv + (i64)((s < 0 ? 0 : bounds[s]) - from) * ldx + (i64)H * AF_E;
    const bool kept = s >= 0 && from + n - bounds[s] < length;
    words ks[2][AF_E / 32], vs[4][AF_E / 64], q[HALVES][AF_E / 32];
    float acc[HALVES][AF_E / 64][4][4] = {};
    running r[HALVES];
    const auto row_of = [&](int key) { return cache + cache_row(pages, M, L, s, key) * width; };
    /* Keys and values that were in the cache before this run, and those of new rows. */
    const auto take_keys = [&](int first, bool old_ones, bool new_ones) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int key = first + 8 * j + g, column = kv * AF_E + 8 * t;
            const bool old = key <= at && key < from, fresh_one = key <= at && key >= from;
            const bf16 *k = (old && old_ones         ? row_of(key)
                             : fresh_one && new_ones ? fresh + key * ldx
                                                     : qkv) +
                            column;
#pragma unroll
            for (int c = 0; c < AF_E / 32; c++)
                if (old_ones ? true : fresh_one)
                    ks[j][c] = fetch(k + 32 * c, (old && old_ones) || (fresh_one && new_ones));
        }
    };
    const auto take_values = [&](int first, bool old_ones, bool new_ones) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int key = first + 8 * (j / 2) + 2 * t + j % 2, column = (K + kv) * AF_E + 8 * g;
            const bool old = key <= at && key < from, fresh_one = key <= at && key >= from;
            const bf16 *v = (old && old_ones         ? row_of(key)
                             : fresh_one && new_ones ? fresh + key * ldx
                                                     : qkv) +
                            column;
#pragma unroll
            for (int c = 0; c < AF_E / 64; c++)
                if (old_ones ? true : fresh_one)
                    vs[j][c] = fetch(v + 64 * c, (old && old_ones) || (fresh_one && new_ones));
        }
    };
    int first = lo + (rank * WARPS + warp) * KEYS;
    if (AF_ROPE && threadIdx.x < AF_E / 2)
        tab[threadIdx.x] = rotation(positions[n], inv_freq[threadIdx.x], rope_scale);
    take_keys(first, true, false);
    take_values(first, true, false);
    __syncthreads();
    /* What was read is inputs and what earlier runs left: no launch of this one writes it. */
    previous_done();
#pragma unroll
    for (int h = 0; h < HALVES; h++)
#pragma unroll
        for (int c = 0; c < AF_E / 32; c++)
            q[h][c] = fetch(qkv + n * ldx + (i64)(kv * heads + 8 * h + g) * AF_E + 32 * c + 8 * t,
                            8 * h + g < heads);
    take_keys(first, false, true);
    take_values(first, false, true);
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        r[h] = {-INF, 0.0f};
        if (AF_ROPE)
            rotate_head(q[h], tab + 8 * t);
    }
    for (int k0 = lo; k0 <= at; k0 += stride, first += stride) { /* as many rounds for all */
        float score[2][4] = {};
#pragma unroll
        for (int j = 0; j < 2; j++)
            if (first + 8 * j + g == at && kept) { /* the row's own key, and below its value */
                if (AF_ROPE)
                    rotate_head(ks[j], tab + 8 * t);
                keep_row(row_of(at) + kv * AF_E + 8 * t, ks[j], 32);
            }
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
            take_keys(first + stride, true, true);
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
            const float keeps[2] = {__shfl_sync(FULL, keep, 8 * t),
                                    __shfl_sync(FULL, keep, 8 * t + 4)};
#pragma unroll
            for (int c = 0; c < AF_E / 64; c++)
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        acc[h][c][i][j] *= keeps[j % 2];
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (first + 8 * (j / 2) + 2 * t + j % 2 == at && kept)
                keep_row(row_of(at) + (K + kv) * AF_E + 8 * g, vs[j], 64);
#pragma unroll
        for (int c = 0; c < AF_E / 64; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 a[4];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    a[j] = __byte_perm(vs[j / 2 * 2][c].w[i], vs[j / 2 * 2 + 1][c].w[i],
                                       j % 2 ? 0x7632 : 0x5410);
#pragma unroll
                for (int h = 0; h < HALVES; h++)
                    mma(acc[h][c][i], a, p[h], p[2 + h]);
            }
        if (k0 + stride <= at)
            take_values(first + stride, true, true);
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
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    *(float2 *)&part[warp][(8 * h + 2 * t + j) * LINE + 64 * c + 8 * g + 2 * i] =
                        make_float2(acc[h][c][i][j], acc[h][c][i][2 + j]);
    }
    __syncthreads();
    for (int x = threadIdx.x; x < heads * AF_E; x += WARPS * 32) { /* the warps, in order */
        float mx = -INF, l = 0.0f, a = 0.0f;
        for (int w = 0; w < WARPS; w++)
            mx = fmaxf(mx, tops[w][x / AF_E]);
        for (int w = 0; w < WARPS; w++) {
            const float f = mx == -INF ? 0.0f : expf(tops[w][x / AF_E] - mx);
            l += sums[w][x / AF_E] * f;
            a += part[w][x / AF_E * LINE + x % AF_E] * f;
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
