/* attention.cuh - shared by the attention kernels: which rows a block works on, what a query sees.
 */
#ifndef AF_ATTENTION_CUH
#define AF_ATTENTION_CUH
#include "dev.cuh"

/* One tile of `size` rows of one sequence [from, to), first row `at`. `dead`: rows after the last
 * bound, which see nothing. */
struct af_tile {
    int from, to, at;
    bool dead;
};

/* Tile number `tile`, counted through all sequences (and the dead rows last). False when there are
 * fewer. Launch an upper bound: N / size + S + 1 tiles. Every warp must call it whole. */
DEV bool find_tile(af_tile &t, int tile, const int *bounds, int S, int N, int size)
{
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int s0 = 0; s0 <= S; s0 += 32) {
        const int s = s0 + lane, from = s <= S ? bounds[s] : 0, to = s < S ? bounds[s + 1] : N;
        const int count = s <= S && to > from ? (to - from + size - 1) / size : 0;
        int sum = count;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            const int v = __shfl_up_sync(FULL, sum, d);
            sum += lane >= d ? v : 0;
        }
        const u32 hit = __ballot_sync(FULL, before + sum > tile);
        if (hit) {
            const int who = __ffs(hit) - 1;
            t.from = __shfl_sync(FULL, from, who);
            t.to = __shfl_sync(FULL, to, who);
            t.at = t.from + (tile - before - __shfl_sync(FULL, sum - count, who)) * size;
            t.dead = s0 + who == S;
            return true;
        }
        before += __shfl_sync(FULL, sum, 31);
    }
    return false;
}

/* Rows of sequence s of bounds, in tiles; the dead rows are sequence S. */
DEV int tiles_of(int s, const int *bounds, int S, int N, int size)
{
    const int rows = s < S ? bounds[s + 1] - bounds[s] : s == S ? N - bounds[S] : 0;
    return rows > 0 ? (rows + size - 1) / size : 0;
}
/* How many tiles have `least` or more of their sequence's tiles on one side of them, themselves
 * counted. */
DEV int tiles_from(int least, const int *bounds, int S, int N, int size)
{
    int sum = 0;
    for (int s = threadIdx.x % 32; s <= S; s += 32)
        sum += max(0, tiles_of(s, bounds, S, N, size) - least + 1);
    return __reduce_add_sync(FULL, sum);
}
/* As find_tile, but those with the most tiles of their sequence before them come first (most_after:
 * the most after them): under a causal mask that is the order of what they cost. */
DEV bool find_ranked(af_tile &t, int rank, bool most_after, const int *bounds, int S, int N,
                     int size)
{
    if (S > 256) /* many short sequences: their order is not worth the search */
        return find_tile(t, rank, bounds, S, N, size);
    int low = 1, high = (N + size - 1) / size + 1; /* most tiles of a sequence, and one more */
    int above = 0;                                 /* tiles_from(high) */
    if (tiles_from(low, bounds, S, N, size) <= rank)
        return false;
    while (high - low > 1) {
        const int mid = (low + high) / 2, n = tiles_from(mid, bounds, S, N, size);
        if (n > rank) {
            low = mid;
        } else {
            high = mid;
            above = n;
        }
    }
    int left = rank - above; /* sequences with `low` tiles or more to pass over */
    for (int s0 = 0; s0 <= S; s0 += 32) {
        const int s = s0 + threadIdx.x % 32, count = tiles_of(s, bounds, S, N, size);
        u32 hit = __ballot_sync(FULL, count >= low);
        if (left >= __popc(hit)) {
            left -= __popc(hit);
            continue;
        }
        for (; left > 0; left--)
            hit &= hit - 1;
        const int who = s0 + __ffs(hit) - 1;
        t.from = bounds[who];
        t.to = who < S ? bounds[who + 1] : N;
        t.at = t.from + (most_after ? __shfl_sync(FULL, count, who - s0) - low : low - 1) * size;
        t.dead = who == S;
        return true;
    }
    return false;
}

struct af_mask {
    int causal, window; /* window 0 = none */
};
/* What a query at row q sees are keys [low, end); what sees a key at row k are queries [low, end).
 * Compared without branches: a warp's elements disagree. */
struct af_range {
    int low, end;
};
DEV af_range keys_of(af_mask m, int q, int hi)
{
    return {m.window ? q - m.window + 1 : -0x40000000, m.causal ? min(hi, q + 1) : hi};
}
DEV af_range queries_of(af_mask m, int k)
{
    return {m.causal ? k : -0x40000000, m.window ? k + m.window : 0x40000000};
}
DEV bool outside(af_range r, int i) { return (i < r.low) | (i >= r.end); }
/* First key and end of keys that queries [q0, q1) of the sequence can see. */
DEV int first_key(af_mask m, int q0, int from)
{
    return m.window ? max(from, q0 - m.window + 1) : from;
}
DEV int end_key(af_mask m, int q1, int to) { return m.causal ? min(q1, to) : to; }
/* The same for queries that can see keys [k0, k1). */
DEV int first_query(af_mask m, int k0, int from) { return m.causal ? k0 : from; }
DEV int end_query(af_mask m, int k1, int to) { return m.window ? min(to, k1 - 1 + m.window) : to; }
#endif
