/* attention_cached.cu - attention of generation: new rows are stored in the cache and look back
 * into it. Contract: attention.c; twin: attention_cpu.c.
 *
 * Built with AF_T, AF_VEC (elements of an access: 16 bytes' worth where heads are whole accesses,
 * else 1) AF_KS (blocks of a cluster that share a head's keys, where there are few rows) and, with
 * AF_CHUNK, `window` is the length of chunks that see nothing of each other. Heads up to 256; lse
 * may be NULL. Keys and values are read once per head, along the row, by the lanes
 * of a group. */
// variants: (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1) AF_KS=1,8 |
//  (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1) AF_KS=1,8 AF_CHUNK=1
// common: AF_T=bf16 AF_VEC=8 AF_KS=1,8
#include "cached_rows.cuh"

#define WARPS 8
#define SLOTS (256 / (32 * AF_VEC)) /* accesses of a row a lane holds at most */
#define KEYS  4                     /* a group has in flight */

/* First half: block n copies the k and v of row n into cache [P][L][2KE] at position
 * start[s] + n - bounds[s]. */
extern "C" __global__ void attention_append(AF_T *cache, const AF_T *qkv, const int *bounds,
                                            const int *start, const int *pages, int S, int M,
                                            long long L, int H, int K, int E, long long ldx)
{
    previous_done();
    const int n = blockIdx.x, s = sequence_of(bounds, S, n);
    const i64 width = 2 * (i64)K * E, at = s < 0 ? 0 : start[s] + n - bounds[s];
    if (s < 0 || at >= M * L)
        return;
    AF_T *to = cache + cache_row(pages, M, L, s, at) * width;
    const AF_T *from = qkv + n * ldx + (i64)H * E;
    for (int c = threadIdx.x * AF_VEC; c < width; c += blockDim.x * AF_VEC) {
        float v[AF_VEC];
        load_n(v, from + c);
        store_n(to + c, v);
    }
}

/* The accesses of a row this lane holds, as they lie in memory; zeros after the end of the head. */
struct slots {
    float v[SLOTS][AF_VEC];
};
#if AF_VEC == 1
struct raw {
    AF_T at[SLOTS];
};
DEV void fetch(raw &r, const AF_T *row, int slot, int lanes, int E, bool there)
{
#pragma unroll
    for (int i = 0; i < SLOTS; i++)
        if (there && slot + i * lanes < E)
            r.at[i] = row[slot + i * lanes];
        else
            store(&r.at[i], 0.0f);
}
DEV void widen(slots &s, const raw &r)
{
#pragma unroll
    for (int i = 0; i < SLOTS; i++)
        s.v[i][0] = load(&r.at[i]);
}
#else
struct raw {
    uint4 at[SLOTS];
};
DEV void fetch(raw &r, const AF_T *row, int slot, int lanes, int E, bool there)
{
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        const int e = (slot + i * lanes) * AF_VEC;
        r.at[i] = there && e < E ? *(const uint4 *)(row + e) : make_uint4(0, 0, 0, 0);
    }
}
DEV void widen(slots &s, const raw &r)
{
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        const u32 w[4] = {r.at[i].x, r.at[i].y, r.at[i].z, r.at[i].w};
        unpack(s.v[i], w, (const AF_T *)0);
    }
}
#endif
/* Sum over the lanes of a group, for each of them. */
DEV float group_sum(float v, int lanes)
{
    for (int d = lanes / 2; d; d >>= 1)
        v += __shfl_xor_sync(FULL, v, d);
    return v;
}

/* The running softmaxes of the block's groups, joined in order, in `mine`: E sums, then the largest
 * score and the sum of weights. */
DEV void join_groups(float *mine, const float *part, const float *tops, const float *sums,
                     int groups, int E)
{
    float mx = -INF, l = 0.0f, a = 0.0f;
    for (int w = 0; w < groups; w++)
        mx = fmaxf(mx, tops[w]);
    for (int w = 0; w < groups; w++) {
        const float f = mx == -INF ? 0.0f : expf(tops[w] - mx);
        l += sums[w] * f;
        a += threadIdx.x < E ? part[w * E + threadIdx.x] * f : 0.0f;
    }
    mine[threadIdx.x] = a;
    if (threadIdx.x == 0) {
        mine[256] = mx;
        mine[257] = l;
    }
}

/* Second half: block (h * AF_KS + rank, n) attends row n to its sequence's cache up to itself.
 * `lanes` threads (a power of two, enough for a head in SLOTS accesses) take one key after another,
 * the next ones in flight; each group has its own running softmax, all of them are
 * joined in order, then the blocks of the cluster. */
extern "C" __global__ void CLUSTER __launch_bounds__(256)
    attention_cached(AF_T *o, float *lse, const AF_T *qkv, const AF_T *cache, const int *bounds,
                     const int *start, const int *pages, int S, int M, long long L, int H, int K,
                     int E, long long ldo, long long ldx, float scale, float softcap, int window,
                     int lanes)
{
    previous_done();
    __shared__ float part[WARPS * 256], tops[256], sums[256], mine[256 + 2];
    const int h = blockIdx.x / AF_KS, rank = blockIdx.x % AF_KS, n = blockIdx.y, kv = h / (H / K);
    const int groups = 256 / lanes, slot = threadIdx.x % lanes, s = sequence_of(bounds, S, n);
    const int group = threadIdx.x / lanes;
    const i64 width = 2 * (i64)K * E,
              at = s < 0 ? -1 : min(start[s] + (i64)n - bounds[s], M * L - 1);
#ifdef AF_CHUNK
    const i64 lo = s < 0 ? 0 : at / window * window;
#else
    const i64 lo = window ? max(0ll, at - window + 1) : 0;
#endif
    const i64 stride = (i64)AF_KS * groups * KEYS;
    const AF_T *k = cache + (i64)kv * E, *v = k + (i64)K * E;
    slots q, acc = {};
    raw ks[KEYS], vs[KEYS];
    float top = -INF, sum = 0.0f;
    auto take = [&](i64 first) {
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            const i64 key = first + j * groups;
            const i64 row = key <= at ? cache_row(pages, M, L, s, key) * width : 0;
            fetch(ks[j], k + row, slot, lanes, E, key <= at);
            fetch(vs[j], v + row, slot, lanes, E, key <= at);
        }
    };
    i64 key = lo + (i64)rank * groups * KEYS + group;
    take(key);
    raw own;
    fetch(own, qkv + n * ldx + (i64)h * E, slot, lanes, E, true);
    widen(q, own);
    for (i64 k0 = lo; k0 <= at; k0 += stride, key += stride) { /* as many rounds for every lane */
        slots values[KEYS];
        float score[KEYS], mx = top;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            slots row;
            float d = 0.0f;
            widen(row, ks[j]);
            widen(values[j], vs[j]);
#pragma unroll
            for (int i = 0; i < SLOTS; i++)
#pragma unroll
                for (int c = 0; c < AF_VEC; c++)
                    d += q.v[i][c] * row.v[i][c];
            score[j] = d;
        }
        if (k0 + stride <= at)
            take(key + stride);
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            float d = group_sum(score[j], lanes) * scale;
            d = softcap > 0.0f ? softcap * tanhf(d / softcap) : d;
            score[j] = key + j * groups <= at ? d : -INF;
            mx = fmaxf(mx, score[j]);
        }
        const float base = mx == -INF ? 0.0f : mx, keep = expf(top - base);
        top = mx;
        sum *= keep;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            score[j] = expf(score[j] - base);
            sum += score[j];
        }
#pragma unroll
        for (int i = 0; i < SLOTS; i++)
#pragma unroll
            for (int c = 0; c < AF_VEC; c++) {
                acc.v[i][c] *= keep;
#pragma unroll
                for (int j = 0; j < KEYS; j++)
                    acc.v[i][c] += score[j] * values[j].v[i][c];
            }
    }
#pragma unroll
    for (int i = 0; i < SLOTS; i++)
#pragma unroll
        for (int c = 0; c < AF_VEC; c++) {
            const int e = (slot + i * lanes) * AF_VEC + c;
            if (e < E)
                part[group * E + e] = acc.v[i][c];
        }
    if (slot == 0) {
        tops[group] = top;
        sums[group] = sum;
    }
    __syncthreads();
    join_groups(mine, part, tops, sums, groups, E);
    cluster_meet();
    for (int e = rank * 256 + threadIdx.x; e < E; e += AF_KS * 256) {
        float mx = -INF, l = 0.0f, a = 0.0f;
        for (int r = 0; r < AF_KS; r++)
            mx = fmaxf(mx, peer(&mine[256], r));
        for (int r = 0; r < AF_KS; r++) {
            const float f = mx == -INF ? 0.0f : expf(peer(&mine[256], r) - mx);
            l += peer(&mine[257], r) * f;
            a += peer(&mine[e], r) * f;
        }
        store(o + n * ldo + (i64)h * E + e, l > 0.0f ? a / l : 0.0f);
        if (lse && e == 0)
            lse[(i64)n * H + h] = l > 0.0f ? mx + logf(l) : 0.0f;
    }
    cluster_meet(); /* no block exits while others read its shared memory */
}
