/* token_draw.cu - the next token of each row of logits. Contract: token_draw.c; twin:
 * token_draw_cpu.c.
 *
 * Built with AF_T, AF_VEC and AF_KS. A row is read once for the largest logit, by the blocks of a
 * cluster, and with a temperature some times more, out of the second-level cache, by the first.
 *
 * Tokens are ordered by q = (bits of the logit, turned so that the largest comes first) << 32 | id,
 * smallest q first. "The first token at which the tokens so far have more than `target`" (in number
 * or in weight) is found without sorting: a histogram over the distance to the largest logit gives
 * a bin, digits of q divide bins that are still large, and what is left is sorted in shared memory.
 * Weights are integers of 2^-44, so that sums have the same bits in any order. */
// variants: (AF_T=bf16,half AF_VEC=8,1 | AF_T=float AF_VEC=4,1) AF_KS=1,8
// common: AF_T=bf16 AF_VEC=8 AF_KS=1,8
#include "cluster.cuh"

#define BINS  1024  /* of the distance, */
#define NATS  32.0f /* which they divide; a smaller weight is 0 */
#define LIST  1024  /* tokens that are sorted at most; a power of two */
#define DIGIT 8     /* bits */
#define WANTS 6     /* token_draw.h, from here on */
#define TOPS  20

struct histogram {
    u64 mass[BINS];
    u32 count[BINS];
};
/* The bin where a target is reached, and what comes before it. */
struct crossing {
    u64 mass, count;
    u32 bin;
};
/* A row, and what is known of it. */
struct row {
    const AF_T *x;
    int V;
    double temperature, top;  /* the largest logit over the temperature */
    float largest, bins_each; /* bins per unit of the logit */
};

/* f(id, logit) for every token of the row; AHEAD accesses are in flight. Long f: 1, for its code is
 * repeated. */
template <int AHEAD, class F> DEV void each(const row &r, F f)
{
    const int step = blockDim.x * AF_VEC;
    for (int from = threadIdx.x * AF_VEC; from < r.V; from += AHEAD * step) {
        float v[AHEAD][AF_VEC];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (from + a * step < r.V)
                load_n(v[a], r.x + from + a * step);
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
#pragma unroll
            for (int i = 0; i < AF_VEC; i++)
                if (from + a * step < r.V)
                    f((u32)(from + a * step + i), v[a][i] == 0.0f ? 0.0f : v[a][i]);
    }
}

DEV u64 order_of(u32 id, float v)
{
    const u32 w = __float_as_uint(v);
    return (u64)(w >> 31 ? w : ~w & 0x7fffffffu) << 32 | id;
}
DEV float logit_of(u64 q)
{
    const u32 w = (u32)(q >> 32);
    return __uint_as_float(w >> 31 ? w : ~w & 0x7fffffffu);
}
DEV double weight(double temperature, double top, float v)
{
    return exp((double)(float)((double)v / temperature) - top);
}
DEV double weight_of(const row &r, float v) { return weight(r.temperature, r.top, v); }
DEV u64 mass_of(const row &r, float v) { return (u64)(weight_of(r, v) * 0x1p44 + 0.5); }
/* Grows as logits become smaller. */
DEV int bin_of(const row &r, float v)
{
    const float at = (r.largest - v) * r.bins_each;
    return at < (float)(BINS - 1) ? (int)at : BINS - 1;
}

/* ---- the block as a whole; every thread gets the result ---- */
template <class T, class F> DEV T fold(T v, F f)
{
    __shared__ T part[32];
    for (int d = 16; d; d >>= 1)
        v = f(v, __shfl_xor_sync(FULL, v, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++)
        v = f(v, part[w]);
    return v;
}

/* The first token, in order, of those at `from` or after it. */
DEV u64 first_from(const row &r, u64 from)
{
    u64 best = ~0ull;
    each<4>(r, [&](u32 id, float v) {
        const u64 q = order_of(id, v);
        best = q >= from && q < best ? q : best;
    });
    return fold(best, [](u64 a, u64 b) { return a < b ? a : b; });
}

/* The first token of all in order; a logit that is not a number makes it ~0. The cluster's blocks
 * take accesses in turn; the first block has the result. */
DEV u64 first_of_all(const row &r, int rank)
{
    enum { AHEAD = 4 };
    __shared__ float mine[3];
    const int step = AF_KS * blockDim.x * AF_VEC;
    float best = -INF;
    int at = -1, bad = 0;
    for (int from = (rank * blockDim.x + threadIdx.x) * AF_VEC; from < r.V; from += AHEAD * step) {
        float v[AHEAD][AF_VEC];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (from + a * step < r.V)
                load_n(v[a], r.x + from + a * step);
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (from + a * step < r.V) {
                float most = v[a][0];
#pragma unroll
                for (int i = 0; i < AF_VEC; i++) {
                    most = fmaxf(most, v[a][i]);
                    bad |= v[a][i] != v[a][i];
                }
                at = most > best || at < 0 ? from + a * step : at;
                best = fmaxf(most, best);
            }
    }
    u64 first = ~0ull;
    for (int i = AF_VEC - 1; at >= 0 && i >= 0; i--)
        if (load(r.x + at + i) == best)
            first = order_of((u32)(at + i), best == 0.0f ? 0.0f : best);
    const auto least = [](u64 a, u64 b) { return a < b ? a : b; };
    first = fold(first, least);
    bad = fold(bad, [](int a, int b) { return a | b; });
    if (threadIdx.x == 0) {
        mine[0] = __uint_as_float((u32)first);
        mine[1] = __uint_as_float((u32)(first >> 32));
        mine[2] = bad ? 1.0f : 0.0f;
    }
    cluster_meet();
    for (int b = 0; rank == 0 && b < AF_KS; b++) {
        const u64 q =
            (u64)__float_as_uint(peer(&mine[1], b)) << 32 | __float_as_uint(peer(&mine[0], b));
        first = least(first, q);
        bad |= peer(&mine[2], b) != 0.0f;
    }
    cluster_meet(); /* no block exits while others read its shared memory */
    return bad ? ~0ull : first;
}

/* Of the logits as they come. */
DEV double log_sum_exp(const row &r)
{
    double sum = 0;
    each<1>(r, [&](u32, float v) { sum += weight(1, r.largest, v); });
    return r.largest + log(fold(sum, [](double a, double b) { return a + b; }));
}

/* The first of n bins up to which there is more than target. */
DEV crossing cross(const histogram &h, u32 n, u64 target, bool by_mass)
{
    __shared__ u64 mass[32], count[32];
    __shared__ crossing found;
    const u32 lane = threadIdx.x, each = (n + 31) / 32;
    if (threadIdx.x < 32) { /* lanes have neighbouring bins */
        mass[lane] = count[lane] = 0;
        for (u32 b = lane * each; b < n && b < (lane + 1) * each; b++) {
            mass[lane] += h.mass[b];
            count[lane] += h.count[b];
        }
        __syncwarp();
        crossing c = {0, 0, lane * each};
        for (u32 l = 0; l < lane; l++) {
            c.mass += mass[l];
            c.count += count[l];
        }
        const u64 before = by_mass ? c.mass : c.count;
        if (before <= target && target < before + (by_mass ? mass[lane] : count[lane])) {
            while (target >= (by_mass ? c.mass + h.mass[c.bin] : c.count + h.count[c.bin])) {
                c.mass += h.mass[c.bin];
                c.count += h.count[c.bin++];
            }
            found = c;
        }
    }
    __syncthreads();
    const crossing c = found;
    __syncthreads();
    return c;
}

DEV void clear(histogram &h, u32 n)
{
    for (u32 b = threadIdx.x; b < n; b += blockDim.x) {
        h.mass[b] = 0;
        h.count[b] = 0;
    }
    __syncthreads();
}
DEV void add(histogram &h, u32 bin, u64 mass)
{
    atomicAdd(&h.mass[bin], mass);
    atomicAdd(&h.count[bin], 1u);
}

/* Ascending; what lies after n becomes the largest. */
DEV void sort_list(u64 *list, u32 n)
{
    u32 all = 2;
    while (all < n)
        all *= 2;
    for (u32 i = n + threadIdx.x; i < all; i += blockDim.x)
        list[i] = ~0ull;
    for (u32 size = 2; size <= all; size *= 2)
        for (u32 step = size / 2; step; step /= 2) {
            __syncthreads();
            for (u32 i = threadIdx.x; i < all; i += blockDim.x) {
                const u32 j = i ^ step;
                const u64 a = list[i], b = j > i ? list[j] : 0;
                if (j > i && (a > b) == !(i & size)) {
                    list[i] = b;
                    list[j] = a;
                }
            }
        }
    __syncthreads();
}

/* ---- the token at which a target is reached, *mass: of all up to it and with it ---- */
DEV u32 token_at(const row &r, const histogram &all, u64 target, bool by_mass, u64 *mass)
{
    __shared__ histogram part;
    __shared__ u64 list[LIST];
    __shared__ u32 n;
    crossing c = cross(all, BINS, target, by_mass);
    const int bin = (int)c.bin;
    u64 before = c.mass, prefix = 0;
    u32 left = all.count[bin];
    int shift = 64;
    target -= by_mass ? c.mass : c.count;
    const auto inside = [&](u64 q, float v) {
        return bin_of(r, v) == bin && (shift == 64 || q >> shift == prefix);
    };
    while (left > LIST) {
        clear(part, 1u << DIGIT);
        each<1>(r, [&](u32 id, float v) {
            const u64 q = order_of(id, v);
            if (inside(q, v))
                add(part, (u32)(q >> (shift - DIGIT)) & ((1u << DIGIT) - 1), mass_of(r, v));
        });
        __syncthreads();
        c = cross(part, 1u << DIGIT, target, by_mass);
        left = part.count[c.bin];
        before += c.mass;
        target -= by_mass ? c.mass : c.count;
        prefix = prefix << DIGIT | c.bin;
        shift -= DIGIT;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        n = 0;
    __syncthreads();
    each<2>(r, [&](u32 id, float v) {
        const u64 q = order_of(id, v);
        if (inside(q, v))
            list[atomicAdd(&n, 1u)] = q;
    });
    __syncthreads();
    sort_list(list, left);
    for (u32 i = threadIdx.x; i < left; i += blockDim.x) {
        part.mass[i] = mass_of(r, logit_of(list[i]));
        part.count[i] = 1;
    }
    __syncthreads();
    c = cross(part, left, target, by_mass);
    *mass = before + c.mass + part.mass[c.bin];
    const u32 id = (u32)list[c.bin];
    __syncthreads();
    return id;
}

/* By temperature, top-k, top-p, min-p and the random number. */
DEV u32 draw(const row &r, const double *want)
{
    __shared__ histogram all;
    const double top_k = want[1], top_p = want[2], min_p = want[3];
    const auto plus = [](u64 a, u64 b) { return a + b; };
    u64 kept = 0, high = 0;
    clear(all, BINS);
    each<1>(r, [&](u32, float v) {
        const double w = weight_of(r, v);
        const u64 mass = (u64)(w * 0x1p44 + 0.5);
        add(all, (u32)bin_of(r, v), mass);
        kept += mass;
        high += w >= min_p ? mass : 0;
    });
    kept = fold(kept, plus);
    high = fold(high, plus);
    u32 id = 0;
#pragma unroll 1
    for (int stage = 0; stage < 3; stage++) { /* top-k, top-p, the draw: one piece of code */
        u64 target;
        if (stage == 0) {
            if (!(top_k > 0 && top_k < r.V))
                continue;
            target = (u64)top_k - 1;
        } else if (stage == 1) {
            const u64 enough = (u64)ceil(top_p * (double)kept);
            if (!(top_p > 0 && top_p < 1))
                continue;
            target = enough > 0 ? enough - 1 : 0;
        } else {
            kept = high < kept ? high : kept;
            target = (u64)(want[4] * (double)kept);
            target = target < kept ? target : kept - 1;
        }
        id = token_at(r, all, target, stage > 0, &kept);
    }
    return id;
}

extern "C" __global__ void CLUSTER __launch_bounds__(512)
    token_draw(double *choice, double *top, const AF_T *logits, long long ld, const double *wants,
               int V)
{
    previous_done();
    const int n = blockIdx.x / AF_KS, rank = blockIdx.x % AF_KS;
    const double *want = wants + (i64)n * WANTS;
    row r = {logits + n * ld, V, want[0], 0, 0, 0};
    const int tops = (int)want[5];
    choice += (i64)n * 2;
    top += (i64)n * 2 * TOPS;
    u64 first = r.temperature >= 0 ? first_of_all(r, rank) : ~0ull;
    const bool none = first == ~0ull;
    if (rank > 0)
        return;
    u32 id = (u32)first;
    r.largest = logit_of(first);
    if (!none && r.temperature > 0 && r.largest > -INF) {
        r.top = (double)(float)((double)r.largest / r.temperature);
        r.bins_each = (float)(BINS / NATS / r.temperature);
        id = draw(r, want);
    }
    const double lse = !none && tops >= 0 ? log_sum_exp(r) : 0;
    if (threadIdx.x == 0) {
        choice[0] = none ? -1 : (double)id;
        const float v = none ? 0.0f : load(r.x + id);
        choice[1] = !none && tops >= 0 ? (double)v - lse : 0;
    }
    for (int i = 0; i < TOPS; i++) {
        const bool there = !none && i < tops && i < V;
        if (there && i > 0)
            first = first_from(r, first + 1);
        if (threadIdx.x == 0) {
            top[2 * i] = there ? (double)(u32)first : -1;
            top[2 * i + 1] = there ? (double)logit_of(first) - lse : 0;
        }
    }
}
