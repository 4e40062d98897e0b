/* moe_route.cu - which experts a token takes, and the list of its pairs by expert.
 * Contract: moe.c; twin: moe_cpu.c.
 *
 * Built with AF_T (logits). A pair p = n*k + j is token n at its j-th expert. Pairs are listed by
 * expert, in order: slot s of the list is pair list[s], slots start[e] .. start[e+1] belong to
 * expert e. */
// variants: AF_T=bf16,float,half
// common: AF_T=bf16,float
#include "dev.cuh"

enum { SOFTMAX, SIGMOID, NEAR, NEAR_MAX = 8 };

/* Attributes of the op, as the launcher passes them. */
struct route {
    int X, k, score, norm, groups, groups_used, group_best;
    float eps, scale;
};

/* ---- router: one warp a row; dynamic shared memory: X scores to choose by for each warp, and one
 * for each group ---- */
DEV float group_score(const float *c, int n, int best)
{
    float first = -INF, second = -INF;
    for (int e = 0; e < n; e++) {
        second = fmaxf(second, fminf(first, c[e]));
        first = fmaxf(first, c[e]);
    }
    return best == 2 ? first + second : first;
}
/* Experts of all but the best groups get -INF; s: what the scores of groups are made of. */
DEV void keep_best_groups(const route &r, const float *s, float *c, float *of_group)
{
    const int lane = threadIdx.x % 32, size = r.X / r.groups;
    for (int i = lane; i < r.groups; i += 32)
        of_group[i] = group_score(s + i * size, size, r.group_best);
    __syncwarp();
    for (int e = lane; e < r.X; e += 32) {
        const int i = e / size;
        int better = 0;
        for (int k = 0; k < r.groups; k++)
            better += of_group[k] > of_group[i] || (of_group[k] == of_group[i] && k < i);
        c[e] = better >= r.groups_used ? -INF : c[e];
    }
    __syncwarp();
}
/* The first of the largest values that is not -INF; X: there is none. */
DEV int largest(const float *c, int X)
{
    float best = -INF;
    int at = X;
    for (int e = threadIdx.x % 32; e < X; e += 32)
        if (c[e] > best) {
            best = c[e];
            at = e;
        }
    for (int o = 16; o > 0; o /= 2) {
        const float b = __shfl_xor_sync(FULL, best, o);
        const int a = __shfl_xor_sync(FULL, at, o);
        if (b > best || (b == best && a < at)) {
            best = b;
            at = a;
        }
    }
    return at;
}
/* exp(z - m) where z is near the largest, m; else 0. */
DEV float near_one(float z, float m, float eps)
{
    return z != -INF && m - z <= eps * fmaxf(fabsf(z), m) ? expf(z - m) : 0.0f;
}
DEV float near_sum(const float *c, int X, float m, float eps)
{
    float sum = 0.0f;
    for (int e = threadIdx.x % 32; e < X; e += 32)
        sum += near_one(c[e], m, eps);
    return warp_sum(sum);
}
extern "C" __global__ void moe_route(float *weights, int *index, float *scores, const AF_T *logits,
                                     long long ld, const float *bias, long long N, route r)
{
    extern __shared__ float shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long n = (long long)blockIdx.x * (blockDim.x / 32) + warp;
    float *c = shared + warp * (r.X + r.groups), *s = scores + n * r.X;
    if (n >= N)
        return;
    logits += n * ld;
    index += n * r.k;
    float top = -INF, sum = 0.0f, total = 0.0f;
    for (int e = lane; e < r.X; e += 32)
        top = fmaxf(top, load(logits + e));
    top = warp_max(top);
    for (int e = lane; e < r.X; e += 32)
        sum += expf(load(logits + e) - top);
    sum = warp_sum(sum);
    for (int e = lane; e < r.X; e += 32) {
        const float z = load(logits + e);
        s[e] = r.score == SIGMOID ? 1.0f / (1.0f + expf(-z))
               : r.score == NEAR  ? z
                                  : expf(z - top) / sum;
        c[e] = bias ? s[e] + bias[e] : z;
    }
    __syncwarp();
    if (r.groups > 1)
        keep_best_groups(r, bias ? c : s, c, c + r.X);
    for (int j = 0; j < r.k; j++) {
        int e = largest(c, r.X);
        for (int i = 0; e == r.X; i++) { /* not a number: the first that is not taken */
            e = i;
            for (int t = 0; t < j; t++)
                e = index[t] == i ? r.X : e;
        }
        const float near = r.score == NEAR ? near_sum(c, r.X, c[e], r.eps) : 1.0f;
        if (lane == 0) {
            index[j] = e;
            c[e] = -INF;
            if (r.score == NEAR)
                weights[n * r.k + j] = r.scale / near;
        }
        __syncwarp();
        total += s[e];
    }
    for (int j = lane; j < r.k && r.score != NEAR; j += 32)
        weights[n * r.k + j] = r.scale * s[index[j]] / (r.norm ? total + r.eps : 1.0f);
}

/* Of a sparse mixer: a row of logits z, and of their gradient. */
DEV void near_back(AF_T *dz, const float *z, const int *index, const float *dw, const route &r)
{
    const int lane = threadIdx.x % 32;
    float sum[NEAR_MAX];
    for (int pass = 0; pass < 2; pass++) {
        float part[NEAR_MAX] = {0.0f};
        for (int e = lane; e < r.X; e += 32) {
            float d = 0.0f;
            for (int j = 0; j < r.k && (j == 0 || index[j - 1] != e); j++) {
                const float one = near_one(z[e], z[index[j]], r.eps);
                if (pass == 0)
                    part[j] += one;
                else
                    d += r.scale * dw[j] / sum[j] * ((index[j] == e ? 1.0f : 0.0f) - one / sum[j]);
            }
            if (pass == 1)
                store(dz + e, d);
        }
        for (int j = 0; j < r.k && pass == 0; j++)
            sum[j] = warp_sum(part[j]);
    }
}
extern "C" __global__ void __launch_bounds__(128)
    moe_route_bwd(AF_T *dlogits, long long ld, const float *scores, const int *index,
                  const float *dw, long long N, route r)
{
    const long long n = (long long)blockIdx.x * 4 + threadIdx.x / 32;
    if (n >= N)
        return;
    scores += n * r.X;
    index += n * r.k;
    dw += n * r.k;
    if (r.score == NEAR) {
        near_back(dlogits + n * ld, scores, index, dw, r);
        return;
    }
    float total = r.norm ? r.eps : 1.0f, mean = 0.0f, dot = 0.0f;
    for (int j = 0; j < r.k && r.norm; j++)
        total += scores[index[j]];
    const float by = r.scale / total;
    for (int j = 0; j < r.k && r.norm; j++)
        mean += by * dw[j] * scores[index[j]] / total;
    for (int j = 0; j < r.k; j++)
        dot += (by * dw[j] - mean) * scores[index[j]];
    for (int e = threadIdx.x % 32; e < r.X; e += 32) {
        float d = 0.0f;
        for (int j = 0; j < r.k; j++)
            d += index[j] == e ? by * dw[j] - mean : 0.0f;
        const float s = scores[e];
        store(dlogits + n * ld + e, r.score == SIGMOID ? d * s * (1.0f - s) : s * (d - dot));
    }
}

/* ---- the list: a stable counting sort in chunks of 1024 pairs ---- */
#define CHUNK 1024

/* The chunk's pairs from and to, of which each warp has as many, one after another. */
struct share {
    int from, end;
};
DEV share warp_share(int P)
{
    const int of_warp = CHUNK / (blockDim.x / 32),
              from = blockIdx.x * CHUNK + threadIdx.x / 32 * of_warp;
    return {from, (int)min(from + of_warp, P)};
}
/* Pair p's expert, and the lanes that have the same one; 0 without an expert. */
DEV u32 same_expert(const int *index, int p, const share &s, int X, int &e)
{
    e = p < s.end ? index[p] : -1;
    const u32 lanes = __match_any_sync(FULL, e);
    return e >= 0 && e < X ? lanes : 0;
}
/* count[chunk][e] = pairs of the chunk at expert e. Dynamic shared memory: [X]. */
extern "C" __global__ void moe_count(int *count, const int *index, int P, int X)
{
    extern __shared__ int sum[];
    for (int e = threadIdx.x; e < X; e += blockDim.x)
        sum[e] = 0;
    __syncthreads();
    const share s = warp_share(P);
    for (int p = s.from + threadIdx.x % 32; p < s.end; p += 32)
        if (index[p] >= 0 && index[p] < X)
            atomicAdd(&sum[index[p]], 1);
    __syncthreads();
    for (int e = threadIdx.x; e < X; e += blockDim.x)
        count[blockIdx.x * X + e] = sum[e];
}
/* v becomes the sum of what lies before it. One warp. */
DEV void sums_before(int *v, int n)
{
    const int lane = threadIdx.x % 32;
    int carry = 0;
    for (int i = lane; i - lane < n; i += 32) {
        const int own = i < n ? v[i] : 0;
        int sum = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const int below = __shfl_up_sync(FULL, sum, d);
            sum += lane >= d ? below : 0;
        }
        if (i < n)
            v[i] = carry + sum - own;
        carry += __shfl_sync(FULL, sum, 31);
    }
}
/* Dynamic shared memory: [warps + 1][X]. Every block adds up all counts: that is less than another
 * launch. */
extern "C" __global__ void moe_list(int *list, int *slot, int *start, const int *count,
                                    const int *index, int P, int X)
{
    extern __shared__ int next[]; /* slots of a warp's pairs; the last row: where experts begin */
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    int *mine = next + threadIdx.x / 32 * X, *begin = next + warps * X, e;
    for (int i = threadIdx.x; i < warps * X; i += blockDim.x)
        next[i] = 0;
    for (e = threadIdx.x; e < X; e += blockDim.x) {
        int sum = 0;
#pragma unroll 16
        for (int i = 0; i < (int)gridDim.x; i++)
            sum += count[i * X + e];
        begin[e] = sum;
    }
    __syncthreads();
    const share s = warp_share(P);
    for (int p = s.from + lane; p - lane < s.end; p += 32) {
        const u32 lanes = same_expert(index, p, s, X, e);
        if (lanes && __ffs(lanes) - 1 == lane)
            mine[e] += __popc(lanes);
        __syncwarp();
    }
    if (threadIdx.x < 32)
        sums_before(begin, X);
    __syncthreads();
    for (e = threadIdx.x; e < X; e += blockDim.x) {
        int at = begin[e];
        if (blockIdx.x == 0)
            start[e] = at;
#pragma unroll 16
        for (int i = 0; i < (int)blockIdx.x; i++)
            at += count[i * X + e];
        for (int w = 0; w < warps; w++) {
            const int n = next[w * X + e];
            next[w * X + e] = at;
            at += n;
        }
        if (blockIdx.x == gridDim.x - 1 && e == X - 1) /* after the last pair of the last chunk */
            start[X] = at;
    }
    __syncthreads();
    for (int p = s.from + lane; p - lane < s.end; p += 32) {
        const u32 lanes = same_expert(index, p, s, X, e);
        const int at = lanes ? mine[e] + __popc(lanes & ((1u << lane) - 1)) : 0;
        if (lanes) {
            list[at] = p;
            slot[p] = at;
        }
        __syncwarp();
        if (lanes && __ffs(lanes) - 1 == lane)
            mine[e] += __popc(lanes);
        __syncwarp();
    }
}
