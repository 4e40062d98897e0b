/* bnb_linear_sm90.cu - GEMM of 17 to 256 tokens straight from 4-bit weights of bitsandbytes, on
 * Hopper. Contract: af_linear (linear.c), bf16, pieces stacked along the output in one launch.
 *
 * Built with AF_BOOK (nf4_bits, fp4_bits), AF_N (tokens at most: 64, 128, 256), AF_WG (warpgroups
 * that compute) and AF_KS (blocks of a cluster, which divide the inner dimension). Rows of weights
 * are whole 64-value segments, blocks hold at least 64 values.
 *
 * A warpgroup computes 64 rows of one piece for all tokens: weights are the rows of wgmma's tile,
 * from registers, tokens its columns. One warp fetches x in stages of 64 values, another the codes
 * in boxes of 64 rows and 256 values, a ring of them for each warpgroup. Codes become bf16 as in
 * bnb_linear.cu, times their scale: rounded once, as if the scale's 16 leading bits were all of it.
 * The blocks of a cluster exchange sums over shared memory and add them up in order. On other
 * architectures the kernel is empty. */
// variants: AF_BOOK=nf4_bits,fp4_bits AF_N=64,128 AF_WG=2,3 AF_KS=1,2,4 | AF_BOOK=nf4_bits,fp4_bits AF_N=64 AF_WG=4 AF_KS=1,2,4 | AF_BOOK=nf4_bits,fp4_bits AF_N=256 AF_WG=2 AF_KS=1,2,4
// common: AF_BOOK=nf4_bits AF_N=64 AF_WG=3 AF_KS=2
#include "bnb_pairs.cuh"
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
#define BOX      8192          /* bytes of 64 rows of 128 */
#define SEGMENTS 4             /* of a box of codes */
#define X_STAGE  (AF_N * 128)
#define X_STAGES (AF_N <= 64 ? 6 : AF_N == 128 ? 4 : 3)
#define BOXES    (AF_N <= 64 && AF_WG < 4 ? 3 : 2) /* of a warpgroup */
#define SLAB                                                                                       \
    (AF_N < 32 ? AF_N : AF_WG > 2 || AF_N == 32 ? 32 : 64) /* tokens whose sums meet at a time */
#define PITCH    (ROWS + 4)                        /* floats of one token's sums */
#define X_AT     PAIRS                             /* from 1024-byte bounds on */
#define CODES_AT (X_AT + X_STAGES * X_STAGE)
#define SUMS_AT  (CODES_AT + AF_WG * BOXES * BOX)
#define BARS_AT  (SUMS_AT + SLAB * PITCH * 4)
/* Registers of a thread: those that compute take what those that fetch do not need. */
#define FETCH_REGISTERS (AF_N > 64 && AF_WG == 2 ? 24 : AF_WG == 4 ? 32 : 56)
#define SUM_REGISTERS   (AF_WG == 2 ? (AF_N > 64 ? 240 : 216) : AF_WG == 3 ? 152 : 112)
#define PERMUTED        (AF_N <= 64)
#define X_WARPS         3 /* that fetch x where it is permuted */
#define SCALES   (1.0f / BOOK_BY)

extern __shared__ u8 raw[];

#if SM90
/* ---- shared memory: the table of pairs first, in its gaps the map of nested scales ---- */
DEV float *map_at(u32 i) { return (float *)(raw + i / 32 * PAIR_PITCH + 128 + i % 32 * 4); }

struct layout {
    u32 x, codes, x_full, x_free, codes_full, codes_free, staged, taken;
    float *sums;
};
DEV layout layout_begin()
{
    const u32 base = (smem_at(raw) + 1023) & ~1023u, bars = base + BARS_AT;
    layout s;
    s.x = base + X_AT;
    s.codes = base + CODES_AT;
    s.sums = (float *)(raw + (base - smem_at(raw)) + SUMS_AT);
    s.x_full = bars;
    s.x_free = s.x_full + X_STAGES * 8;
    s.codes_full = s.x_free + X_STAGES * 8;
    s.codes_free = s.codes_full + AF_WG * BOXES * 8;
    s.staged = s.codes_free + AF_WG * BOXES * 8;
    s.taken = s.staged + 8;
    if (threadIdx.x == 0) {
        for (int i = 0; i < X_STAGES; i++) {
            bar_init(s.x_full + i * 8, PERMUTED ? X_WARPS * 32 : 1);
            bar_init(s.x_free + i * 8, AF_WG * 4);
        }
        for (int i = 0; i < AF_WG * BOXES; i++) {
            bar_init(s.codes_full + i * 8, 1);
            bar_init(s.codes_free + i * 8, 4);
        }
        bar_init(s.staged, AF_KS * AF_WG * 4);
        bar_init(s.taken, AF_KS * AF_WG * 4);
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
DEV int tiles_of(const bnb_pieces &w)
{
    int n = 0, from = 0;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        n += ((int)w.at[i].end - from + 63) / 64;
        from = (int)w.at[i].end;
    }
    return n;
}
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
    int tiles, first, segments; /* tiles of 64 rows; the block's part of the inner dimension */
};
DEV work work_of(const bnb_pieces &w, int I)
{
    const int rank = blockIdx.x % AF_KS, all = I / 64, first = all * rank / AF_KS;
    return {tiles_of(w), first, all * (rank + 1) / AF_KS - first};
}

/* Codes and scales are read before it. */
DEV void wait_for_x() { previous_done(); }

/* ---- warps that fetch ---- */
DEV void fetch_codes(const layout &s, const work &k, const bnb_pieces &w, const af_map *m0,
                     const af_map *m1, const af_map *m2)
{
    u32 no = 0;
    for (int t = blockIdx.x / AF_KS * AF_WG; t < k.tiles; t += gridDim.x / AF_KS * AF_WG)
        for (int i = 0; i < k.segments; i += SEGMENTS, no++)
            for (int g = 0; g < AF_WG; g++) {
                const place p = find_tile(w, min(t + g, k.tiles - 1));
                const u32 at = ring_at(g, no), bar = s.codes_full + at * 8;
                bar_wait(s.codes_free + at * 8, no / BOXES & 1 ^ 1);
                bar_expect(bar, BOX);
                fetch_box(s.codes + at * BOX, p.piece == 0 ? m0 : p.piece == 1 ? m1 : m2,
                          (k.first + i) * 16, p.row, bar);
            }
}
DEV void fetch_x(const layout &s, const work &k, const af_map *x)
{
    u32 no = 0;
    for (int t = blockIdx.x / AF_KS * AF_WG; t < k.tiles; t += gridDim.x / AF_KS * AF_WG)
        for (int i = 0; i < k.segments; i++, no++) {
            const u32 at = no % X_STAGES, bar = s.x_full + at * 8;
            bar_wait(s.x_free + at * 8, no / X_STAGES & 1 ^ 1);
            bar_expect(bar, X_STAGE);
            for (int n = 0; n < AF_N / 64; n++)
                fetch_box(s.x + at * X_STAGE + n * BOX, x, (k.first + i) * 64, n * 64, bar);
        }
}
/* The same in the order in which lanes have codes: of every segment lane p of four has the pairs of
 * values 8 p to 8 p + 7, two of them in each of four steps of wgmma. */
DEV void fetch_permuted(const layout &s, const work &k, const bf16 *x, i64 ld, int M)
{
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 - AF_WG * 4 - 1;
    const u32 p = lane / 8, piece = lane % 8;
    const bf16 *from = x + warp * ld + k.first * 64 + lane * 2;
    u32 no = 0;
    for (int t = blockIdx.x / AF_KS * AF_WG; t < k.tiles; t += gridDim.x / AF_KS * AF_WG)
        for (int i = 0; i < k.segments; i++, no++) {
            const u32 at = no % X_STAGES, to = s.x + at * X_STAGE + p * 4;
            const bf16 *row = from + i * 64;
            bar_wait(s.x_free + at * 8, no / X_STAGES & 1 ^ 1);
#pragma unroll 4
            for (int n = warp; n < AF_N; n += X_WARPS, row += X_WARPS * ld)
                copy4(to + n * 128 + ((piece ^ n) % 8) * 16, n < M ? row : x, n < M);
            bar_arrive_copied(s.x_full + at * 8);
        }
    copy_wait<0>();
}

/* ---- warpgroups that compute ---- */
/* v times a scale that is the sum of two bf16, each twice: rounded once to bf16. */
DEV u32 scaled(u32 v, u32 high, u32 low)
{
    u32 w;
    asm("{\n.reg .b32 t;\nmul.rn.bf16x2 t, %1, %3;\nfma.rn.bf16x2 %0, %1, %2, t;\n}"
        : "=r"(w)
        : "r"(v), "r"(high), "r"(low));
    return w;
}
/* A scale as two bf16 in a word. */
DEV u32 split_scale(float f)
{
    const float high = rounded<bf16>(f);
    return pack_bf16(high, f - high);
}
DEV uint2 load8(u32 at)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
DEV uint4 load16(u32 at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at));
    return v;
}
/* The row of a warp's 16, and of 8 more, whose codes lane 4 g + p has as row g of the operand: the
 * first 16 lanes read different banks. */
DEV int row_of() { return threadIdx.x % 16 / 4 * 2 + threadIdx.x % 32 / 16; }
/* Segment i of a box as the operands of four steps of wgmma. Lane p of four has 8 bytes of either
 * row, or, where x has its own order, of every eight values 2 p and 2 p + 1. at: its row of the
 * box. by: the scales of both rows. */
DEV void decode(u32 (&a)[4][4], u32 at, int i, const u32 (&by)[2])
{
    const u32 lane4 = threadIdx.x % 32 * 4, p = threadIdx.x % 4;
#pragma unroll
    for (int t = 0; t < 2; t++) {
        const u32 high = __byte_perm(by[t], 0, 0x1010), low = __byte_perm(by[t], 0, 0x3232);
        u32 v[8];
        if (PERMUTED) {
            const uint2 c = load8(at + t * 1024 + ((i * 2 + p / 2) ^ row_of()) * 16 + p % 2 * 8);
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] = pair_of(raw, j < 4 ? c.x : c.y, lane4, pair_byte(j % 4));
        } else {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint4 c = load16(at + t * 1024 + ((i * 2 + h) ^ row_of()) * 16);
                v[4 * h] = pair_of(raw, c.x, lane4, pair_byte(p));
                v[4 * h + 1] = pair_of(raw, c.y, lane4, pair_byte(p));
                v[4 * h + 2] = pair_of(raw, c.z, lane4, pair_byte(p));
                v[4 * h + 3] = pair_of(raw, c.w, lane4, pair_byte(p));
            }
        }
#pragma unroll
        for (int j = 0; j < 8; j++)
            a[j / 2][j % 2 * 2 + t] = scaled(v[j], high, low);
    }
}
/* The scales of a warpgroup's rows: lane p of four asks for segment 4 b + p of box b. */
struct scales {
    bnb_row row[2];
    bnb_raw raw[2];
    int shift, nested_shift;
    __device__ __forceinline__ void ask(int segment, int end)
    {
        const int s = min(segment + (int)threadIdx.x % 4, end - 1);
#pragma unroll
        for (int t = 0; t < 2; t++)
            raw[t] = ask_scale(row[t], s * 64, shift, nested_shift);
    }
    __device__ __forceinline__ u32 get(int t) const
    {
        const float f = nested_shift < 0
                            ? __uint_as_float(raw[t].absmax)
                            : add_flush(mul_flush(*map_at(raw[t].absmax), raw[t].nested),
                                        row[t].offset);
        return split_scale(f * SCALES);
    }
};
/* acc += segment i of a box times stage `no` of x, begun. */
DEV void begin_segment(float (&acc)[AF_N / 2], u32 (&a)[4][4], const layout &s, u32 at, int i,
                       const u32 (&own)[2], u32 no)
{
    const int lane = threadIdx.x % 32;
    const u32 by[2] = {__shfl_sync(FULL, own[0], lane & 28 | i),
                       __shfl_sync(FULL, own[1], lane & 28 | i)};
    decode(a, at, i, by);
    bar_wait(s.x_full + no % X_STAGES * 8, no / X_STAGES & 1);
    if (PERMUTED)
        fence_async();
    pin(acc);
    pin(a);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; j++)
        wgmma_rs_k(acc, a[j], desc_k<AF_N>(s.x + no % X_STAGES * X_STAGE, j));
    wgmma_commit();
}
/* This warp has no more use for what the barrier is of. */
DEV void release(u32 bar)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        bar_arrive(bar);
}
/* acc = the warpgroup's 64 rows times x, over the block's part of the inner dimension. no, box:
 * stages of x and boxes of codes so far. */
DEV void multiply(float (&acc)[AF_N / 2], const layout &s, const work &k, scales &q, u32 &no,
                  u32 &box)
{
    const int group = group_of(), end = k.first + k.segments;
    const u32 row = (threadIdx.x % 128 / 32 * 16 + row_of()) * 128;
    u32 a[2][4][4], own[2];
    int left = k.segments;
#pragma unroll
    for (int i = 0; i < AF_N / 2; i++)
        acc[i] = 0.0f;
    auto enter = [&]() { /* the next box: its place */
        const u32 ring = ring_at(group, box);
        own[0] = q.get(0);
        own[1] = q.get(1);
        q.ask(end - left + SEGMENTS, end);
        bar_wait(s.codes_full + ring * 8, box / BOXES & 1);
        return s.codes + ring * BOX + row;
    };
    q.ask(k.first, end);
    for (; left >= SEGMENTS; left -= SEGMENTS, box++) { /* one segment is decoded, one multiplied */
        const u32 at = enter();
#pragma unroll
        for (int i = 0; i < SEGMENTS; i++, no++) {
            begin_segment(acc, a[i % 2], s, at, i, own, no);
            wgmma_wait<1>();
            pin(acc);
            if (i > 0 || left < k.segments)
                release(s.x_free + (no - 1) % X_STAGES * 8);
        }
        release(s.codes_free + ring_at(group, box) * 8);
    }
    wgmma_wait<0>();
    pin(acc);
    if (k.segments >= SEGMENTS)
        release(s.x_free + (no - 1) % X_STAGES * 8);
    if (left > 0) {
        const u32 at = enter();
        for (int i = 0; i < left; i++, no++) {
            begin_segment(acc, a[0], s, at, i, own, no);
            wgmma_wait<0>();
            pin(acc);
            release(s.x_free + no % X_STAGES * 8);
        }
        release(s.codes_free + ring_at(group, box++) * 8);
    }
}
/* ---- sums of the cluster's blocks ---- */
DEV float4 peer4(const float *p, int rank)
{
    float4 v = *(const float4 *)p;
#if AF_KS > 1
    asm volatile("{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [at];\n}"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(smem_at(p)), "r"(rank)
                 : "memory");
#endif
    return v;
}
struct output {
    bf16 *y;
    i64 ld;
    const bf16 *bias;
    int M;
};
/* y of SLAB tokens from `token`: the sums of all blocks, each adds up some of the tokens. */
DEV void store_slab(const output &o, const layout &s, const bnb_pieces &w, const work &k, int tile,
                    int token)
{
    const int f = threadIdx.x % (ROWS / 4) * 4, t = tile + f / 64;
    const place p = find_tile(w, min(t, k.tiles - 1));
    const int row = p.row + f % 64, left = t < k.tiles ? p.rows - row : 0;
    float add[4] = {};
    const i64 col = p.from + row;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (o.bias && i < left)
            add[i] = load(o.bias + col + i);
    const bool whole = left >= 4 && (o.ld | col) % 4 == 0 && (u64)o.y % 8 == 0;
    for (int n = threadIdx.x / (ROWS / 4) + blockIdx.x % AF_KS * 8; n < min(SLAB, o.M - token);
         n += 8 * AF_KS) {
        float v[4] = {};
#pragma unroll
        for (int rank = 0; rank < AF_KS; rank++) {
            const float4 part = peer4(s.sums + n * PITCH + f, rank);
            v[0] += part.x;
            v[1] += part.y;
            v[2] += part.z;
            v[3] += part.w;
        }
        bf16 *to = o.y + (token + n) * o.ld + col;
        if (whole)
            *(uint2 *)to = {pack_bf16(v[0] + add[0], v[1] + add[1]),
                            pack_bf16(v[2] + add[2], v[3] + add[3])};
        else
            for (int i = 0; i < 4; i++)
                if (i < left)
                    store(to + i, v[i] + add[i]);
    }
}
DEV void store_tile(const float (&acc)[AF_N / 2], const output &o, const layout &s,
                    const bnb_pieces &w, const work &k, int tile, u32 &turn)
{
    const int lane = threadIdx.x % 32;
    float *to = s.sums + lane % 4 * 2 * PITCH + threadIdx.x / 32 * 16 + row_of();
#pragma unroll
    for (int n = 0; n < AF_N; n += SLAB) {
        if (n >= o.M)
            break;
        bar_wait(s.taken, turn & 1 ^ 1);
#pragma unroll
        for (int i = 0; i < SLAB / 2; i++) /* sum i: token i / 4 * 8 + i % 2, row i / 2 % 2 * 8 */
            to[(i / 4 * 8 + i % 2) * PITCH + i / 2 % 2 * 8] = acc[n / 2 + i];
        __syncwarp();
        if (lane < AF_KS)
            bar_publish_at(s.staged, lane);
        bar_wait_peers(s.staged, turn & 1);
        store_slab(o, s, w, k, tile, n);
        __syncwarp();
        if (lane < AF_KS)
            bar_arrive_at(s.taken, lane);
        turn++;
    }
}
#endif

/* y[m][o] = sum_i x[m][i] w[o][i] + bias[o]. shift, nested_shift: bnb_linear.cuh. The grid is a
 * multiple of AF_KS, the block has four warps more than
 * compute. Dynamic shared memory: BARS_AT +
 * 1024 + 16 (X_STAGES + AF_WG BOXES + 1) bytes. */
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS + 128, 1)
    bnb_linear_sm90(bf16 *y, long long ldy, const bf16 *x, long long ldx,
                    const __grid_constant__ af_map x_map,
                    const __grid_constant__ af_map codes0, const __grid_constant__ af_map codes1,
                    const __grid_constant__ af_map codes2, bnb_pieces w, float off0, float off1,
                    float off2, const bf16 *bias, int M, int I, int shift, int nested_shift)
{
#if SM90
    const layout s = layout_begin();
    const work k = work_of(w, I);
    fill_pairs(raw);
    for (int i = threadIdx.x; i < 256; i += THREADS + 128)
        *map_at(i) = __uint_as_float(dynamic_signed_bits[i]);
    cluster_meet();
    const int warp = __shfl_sync(FULL, threadIdx.x / 32, 0);
    if (warp >= AF_WG * 4) {
        registers_down<FETCH_REGISTERS>();
        if (threadIdx.x == THREADS)
            fetch_codes(s, k, w, &codes0, &codes1, &codes2);
        if (threadIdx.x >= THREADS + 32) {
            wait_for_x();
            if (PERMUTED)
                fetch_permuted(s, k, x, ldx, M);
            else if (threadIdx.x == THREADS + 32)
                fetch_x(s, k, &x_map);
        }
        return;
    }
    registers_up<SUM_REGISTERS>();
    wait_for_x();
    const output o = {y, ldy, bias, M};
    const bnb_offsets offsets = {{off0, off1, off2}};
    float acc[AF_N / 2];
    u32 no = 0, box = 0, turn = 0;
    for (int t = blockIdx.x / AF_KS * AF_WG; t < k.tiles; t += gridDim.x / AF_KS * AF_WG) {
        const place p = find_tile(w, min(t + group_of(), k.tiles - 1));
        scales q;
#pragma unroll
        for (int h = 0; h < 2; h++)
            q.row[h] = find_row(w, offsets,
                                p.from + min(p.row + (int)threadIdx.x % 128 / 32 * 16 +
                                                 row_of() + h * 8,
                                             p.rows - 1),
                                I);
        q.shift = shift;
        q.nested_shift = nested_shift;
        multiply(acc, s, k, q, no, box);
        store_tile(acc, o, s, w, k, t, turn);
    }
    if (turn > 0) /* the other blocks have read what they need of this one */
        bar_wait(s.taken, turn - 1 & 1);
#endif
}
