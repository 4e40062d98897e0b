/* bnb_linear_sm90.cuh - shared memory, work and fetching of bnb_linear_sm90.cu. */
#ifndef AF_BNB_LINEAR_SM90_CUH
#define AF_BNB_LINEAR_SM90_CUH
#include "bnb_linear.cuh"
#include "cluster.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

#ifndef AF_N
#define AF_N 64
#endif
#ifndef AF_WG
#define AF_WG 2
#endif
#define ROWS     (AF_WG * 64)
#define THREADS  (AF_WG * 128) /* that compute */
#define WARPS    (AF_WG * 4)
#define BOX      8192                 /* bytes of 64 rows of 128 */
#define SEGMENTS 4                    /* of a box of codes */
#define BOXES    (AF_N <= 64 ? 3 : 2) /* of a warpgroup */
#define X_STAGE  (AF_N * 128)         /* bytes of x of a segment */
#define X_STAGES (AF_N == 256 ? 3 : AF_N == 8 ? 0 : SEGMENTS)
#define BY_BOX   (X_STAGES == SEGMENTS)  /* stage i has segment i of a box, whichever that is */
#define SLAB     (AF_N < 32 ? AF_N : 32) /* tokens whose sums are exchanged at a time */
#define OWNERS   (AF_KS < SLAB / 8 ? AF_KS : SLAB / 8) /* blocks that add up some of them */
#define SHARE    (SLAB / 2 / OWNERS)                   /* sums of a thread, for an owner */
#define SENT     ((AF_KS - 1) * SHARE * THREADS * 4)   /* bytes, to an owner */
#define PITCH    (ROWS + 4)                            /* floats of one token's sums */
#define CODES_AT PAIRS                                 /* from 1024-byte bounds on */
#define X_AT     (CODES_AT + AF_WG * BOXES * BOX)
#define SENT_AT  (X_AT + X_STAGES * X_STAGE)
#define SUMS_AT  (SENT_AT + 2 * SENT)
#define BARS_AT  (SUMS_AT + SLAB / OWNERS * PITCH * 4)
#define BARS     (2 * X_STAGES + 2 * AF_WG * BOXES + 4)
#define WHOLE_AT ((BARS_AT + BARS * 8 + 1023) / 1024 * 1024) /* x of few tokens, all of it */
/* Registers of a thread: those that compute take what those that fetch do not need. */
#define FETCH_REGISTERS (AF_N > 64 && AF_WG == 2 ? 24 : 56)
#define SUM_REGISTERS   (AF_WG == 3 ? 152 : AF_N > 64 ? 240 : 216)
#define SCALE_SUMS      (AF_N == 8) /* of segments, rather than weights: fewer instructions */
#define WHOLE_X         (AF_N == 8) /* stays in shared memory */

extern __shared__ u8 raw[];

#if SM90
/* ---- shared memory: the table of pairs first, in its gaps the map of nested scales ---- */
DEV float *map_at(u32 i) { return (float *)(raw + i / 32 * PAIR_PITCH + 128 + i % 32 * 4); }

/* Both, by the threads that compute: as fill_pairs, but a lane reads one value of the book. */
DEV void fill_tables()
{
    const float own = __uint_as_float(AF_BOOK[threadIdx.x % 16]) * BOOK_BY;
    for (int i = threadIdx.x; i < 256; i += THREADS)
        *map_at(i) = __uint_as_float(dynamic_signed_bits[i]);
    for (int i = threadIdx.x; i < 256 * 8; i += THREADS) {
        const int code = i / 8;
        const float first = __shfl_sync(FULL, own, code / 16),
                    second = __shfl_sync(FULL, own, code % 16);
        const u32 v = pack_bf16(first, second);
        *(uint4 *)(raw + code * PAIR_PITCH + i % 8 * 16) = make_uint4(v, v, v, v);
    }
    meet(1, THREADS);
}

struct layout {
    u32 x, codes, sent, x_full, x_free, codes_full, codes_free, arrived, taken;
    float *sums;
};
DEV layout layout_begin()
{
    const u32 base = (smem_at(raw) + 1023) & ~1023u, bars = base + BARS_AT;
    layout s;
    s.x = base + (WHOLE_X ? WHOLE_AT : X_AT);
    s.codes = base + CODES_AT;
    s.sent = base + SENT_AT;
    s.sums = (float *)(raw + (base - smem_at(raw)) + SUMS_AT);
    s.x_full = bars;
    s.x_free = s.x_full + X_STAGES * 8;
    s.codes_full = s.x_free + X_STAGES * 8;
    s.codes_free = s.codes_full + AF_WG * BOXES * 8;
    s.arrived = s.codes_free + AF_WG * BOXES * 8;
    s.taken = s.arrived + 16;
    if (threadIdx.x == 0) {
        for (int i = 0; i < X_STAGES; i++) {
            bar_init(s.x_full + i * 8, 1);
            bar_init(s.x_free + i * 8, WARPS);
        }
        for (int i = 0; i < AF_WG * BOXES; i++) {
            bar_init(s.codes_full + i * 8, 1);
            bar_init(s.codes_free + i * 8, 4);
        }
        for (int i = 0; i < 2; i++) {
            bar_init(s.arrived + i * 8, 1);
            bar_init(s.taken + i * 8, OWNERS * WARPS);
        }
    }
    bars_ready();
    return s;
}
/* Box `no` of a warpgroup's ring. */
DEV u32 ring_at(int group, u32 no) { return group * BOXES + no % BOXES; }

/* ---- work: tiles of 64 rows of one piece, AF_WG after another for a block ---- */
struct place {
    int piece, row, rows, from; /* first row in the piece, those it has, its first in the stack */
};
DEV place find_tile(const bnb_pieces &w, int tile)
{
    int from = 0;
    place p = {};
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const int rows = (int)w.at[i].end - from, tiles = (rows + 63) / 64;
        if (tile >= 0 && tile < tiles)
            p = {i, tile * 64, rows, from};
        tile -= tiles;
        from = (int)w.at[i].end;
    }
    return p;
}
struct work {
    int tiles;           /* of 64 rows: the first after the launch's */
    int first, segments; /* the block's part of the inner dimension */
    int begin, every;    /* its first tile, and from there to the next */
};
DEV int split_rank() { return blockIdx.x % AF_KS; }
DEV work work_of(int I, int from, int to)
{
    const int all = I / 64, first = all * split_rank() / AF_KS;
    return {to, first, all * (split_rank() + 1) / AF_KS - first,
            from + (int)blockIdx.x / AF_KS * AF_WG, (int)gridDim.x / AF_KS * AF_WG};
}

/* ---- warps that fetch ---- */
DEV void fetch_codes(const layout &s, const work &k, const bnb_pieces &w, const af_map *m0,
                     const af_map *m1, const af_map *m2)
{
    u32 no = 0;
    for (int t = k.begin; t < k.tiles; t += k.every)
        for (int i = 0; i < k.segments; i += SEGMENTS, no++)
            for (int g = 0; g < AF_WG; g++) {
                const place p = find_tile(w, min(t + g, k.tiles - 1));
                const u32 at = ring_at(g, no), bar = s.codes_full + at * 8;
                bar_wait(s.codes_free + at * 8, no / BOXES & 1 ^ 1);
                bar_expect(bar, BOX);
                fetch_box(s.codes + at * BOX,
                          p.piece == 0   ? m0
                          : p.piece == 1 ? m1
                                         : m2,
                          (k.first + i) * 16, p.row, bar);
            }
}
DEV void fetch_x(const layout &s, const work &k, const af_map *x)
{
#if AF_N > 8
    u32 no = 0;
    const int stages = BY_BOX ? (k.segments + SEGMENTS - 1) / SEGMENTS * SEGMENTS : k.segments;
    for (int t = k.begin; t < k.tiles; t += k.every)
        for (int i = 0; i < stages; i++, no++) {
            const u32 at = no % X_STAGES, bar = s.x_full + at * 8;
            bar_wait(s.x_free + at * 8, no / X_STAGES & 1 ^ 1);
            bar_expect(bar, X_STAGE);
            for (int n = 0; n < AF_N / 64; n++)
                fetch_box(s.x + at * X_STAGE + n * BOX, x, (k.first + i) * 64, n * 64, bar);
        }
#endif
}
/* x of the block's part of the inner dimension, by the threads that compute, in the order in which
 * lanes have codes: of every segment lane p of four has the pairs of values 8 p to 8 p + 7, two of
 * them in each of four steps of wgmma. Rows after M are not written: nobody stores their sums. */
DEV void load_whole_x(const layout &s, const work &k, const bf16 *x, i64 ld, int M)
{
    const int q = threadIdx.x % 8;
    for (int i = threadIdx.x / 8; i < k.segments; i += THREADS / 8) {
        const bf16 *from = x + (k.first + i) * 64 + q * 8;
        uint4 v[8];
#pragma unroll
        for (int m = 0; m < 8; m++)
            if (m < M)
                v[m] = *(const uint4 *)(from + m * ld);
#pragma unroll
        for (int m = 0; m < 8; m++) {
            u8 *to = raw + (s.x - smem_at(raw)) + i * 1024 + m * 128 + q / 2 * 4;
            const u32 w[4] = {v[m].x, v[m].y, v[m].z, v[m].w};
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (m < M)
                    *(u32 *)(to + ((q % 2 * 4 + e) ^ m) * 16) = w[e];
        }
    }
    fence_async();
    meet(1, THREADS);
}
#endif
#endif
