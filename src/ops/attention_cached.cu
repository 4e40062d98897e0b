/* attention_cached.cu - attention of generation: new rows are stored in the cache and look back into
 * it. Contract: attention.c; twin: attention_cpu.c.
 *
 * Built with AF_T and AF_VEC (elements of an access: 16 bytes' worth where heads are whole accesses,
 * else 1). Heads up to 256. Keys are read once a head, along the row, by the lanes of a group. */
// variants: AF_T=bf16 AF_VEC=8 | AF_T=bf16 AF_VEC=1 | AF_T=half AF_VEC=8 | AF_T=half AF_VEC=1 | AF_T=float AF_VEC=4 | AF_T=float AF_VEC=1
#include "dev.cuh"

#define WARPS 8
#define SLOTS (256 / (32 * AF_VEC)) /* accesses of a row a lane holds at most */
#define KEYS 4                      /* a group has in flight */

/* The sequence of row n, or -1. */
DEV int sequence_of(const int *bounds, int S, int n)
{
    if (n >= bounds[S])
        return -1;
    int lo = 0, hi = S; /* the last s with bounds[s] <= n */
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (bounds[mid] <= n)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* First half: block n copies the k and v of row n into cache [S][L][2KE] at position
 * start[s] + n - bounds[s]. */
extern "C" __global__ void attention_append(AF_T *cache, const AF_T *qkv, const int *bounds,
                                            const int *start, int S, long long L, int H, int K, int E,
                                            long long ldx)
{
    const int n = blockIdx.x, s = sequence_of(bounds, S, n);
    const i64 width = 2 * (i64)K * E, at = s < 0 ? 0 : start[s] + n - bounds[s];
    if (s < 0 || at >= L)
        return;
    AF_T *to = cache + ((i64)s * L + at) * width;
    const AF_T *from = qkv + n * ldx + (i64)H * E;
    for (int c = threadIdx.x * AF_VEC; c < width; c += blockDim.x * AF_VEC) {
        float v[AF_VEC];
        load_n(v, from + c);
        store_n(to + c, v);
    }
}

/* The row's values this lane holds, zeros behind the head's end. */
DEV void row_slots(float (&v)[SLOTS][AF_VEC], const AF_T *row, int slot, int lanes, int E, bool there)
{
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        const int e = (slot + i * lanes) * AF_VEC;
        if (there && e < E) {
            load_n(v[i], row + e);
        } else {
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                v[i][k] = 0.0f;
        }
    }
}
/* Sum over the lanes of a group, for each of them. */
DEV float group_sum(float v, int lanes)
{
    for (int d = lanes / 2; d; d >>= 1)
        v += __shfl_xor_sync(FULL, v, d);
    return v;
}

/* Second half: block (h, n) attends row n to its sequence's cache up to itself. `lanes` threads (a
 * power of two, enough for a head in SLOTS accesses) take one key after another; each group has its
 * own running softmax and all of them are joined in order. */
extern "C" __global__ void __launch_bounds__(256)
    attention_cached(AF_T *o, const AF_T *qkv, const AF_T *cache, const int *bounds, const int *start,
                     int S, long long L, int H, int K, int E, long long ldo, long long ldx,
                     float scale, float softcap, int window, int lanes)
{
    __shared__ float part[WARPS * 256], tops[256], sums[256];
    const int h = blockIdx.x, n = blockIdx.y, kv = h / (H / K), s = sequence_of(bounds, S, n);
    const int groups = 256 / lanes, group = threadIdx.x / lanes, slot = threadIdx.x % lanes;
    const i64 width = 2 * (i64)K * E, at = s < 0 ? -1 : min(start[s] + (i64)n - bounds[s], L - 1);
    const AF_T *k = cache + (s < 0 ? 0 : s) * L * width + (i64)kv * E, *v = k + (i64)K * E;
    const i64 lo = window ? max(0ll, at - window + 1) : 0;
    float q[SLOTS][AF_VEC], acc[SLOTS][AF_VEC] = {}, top = -INF, sum = 0.0f;
    row_slots(q, qkv + n * ldx + (i64)h * E, slot, lanes, E, true);
    for (i64 k0 = lo; k0 <= at; k0 += groups * KEYS) { /* the same number of turns for every lane */
        float score[KEYS], mx = top;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            const i64 key = k0 + j * groups + group;
            float row[SLOTS][AF_VEC], d = 0.0f;
            row_slots(row, k + key * width, slot, lanes, E, key <= at);
#pragma unroll
            for (int i = 0; i < SLOTS; i++)
#pragma unroll
                for (int c = 0; c < AF_VEC; c++)
                    d += q[i][c] * row[i][c];
            d = group_sum(d, lanes) * scale;
            d = softcap > 0.0f ? softcap * tanhf(d / softcap) : d;
            score[j] = key <= at ? d : -INF;
            mx = fmaxf(mx, score[j]);
        }
        const float base = mx == -INF ? 0.0f : mx, keep = expf(top - base);
        top = mx;
        sum *= keep;
#pragma unroll
        for (int i = 0; i < SLOTS; i++)
#pragma unroll
            for (int c = 0; c < AF_VEC; c++)
                acc[i][c] *= keep;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            const i64 key = k0 + j * groups + group;
            const float p = expf(score[j] - base);
            float row[SLOTS][AF_VEC];
            row_slots(row, v + key * width, slot, lanes, E, key <= at);
            sum += p;
#pragma unroll
            for (int i = 0; i < SLOTS; i++)
#pragma unroll
                for (int c = 0; c < AF_VEC; c++)
                    acc[i][c] += p * row[i][c];
        }
    }
#pragma unroll
    for (int i = 0; i < SLOTS; i++)
#pragma unroll
        for (int c = 0; c < AF_VEC; c++) {
            const int e = (slot + i * lanes) * AF_VEC + c;
            if (e < E)
                part[group * E + e] = acc[i][c];
        }
    if (slot == 0) {
        tops[group] = top;
        sums[group] = sum;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < E; e += 256) {
        float mx = -INF, l = 0.0f, a = 0.0f;
        for (int w = 0; w < groups; w++)
            mx = fmaxf(mx, tops[w]);
        for (int w = 0; w < groups; w++) {
            const float f = mx == -INF ? 0.0f : expf(tops[w] - mx);
            l += sums[w] * f;
            a += part[w * E + e] * f;
        }
        store(o + n * ldo + (i64)h * E + e, l > 0.0f ? a / l : 0.0f);
    }
}
