/* attention_sm90.cuh - shared by the Hopper attention kernels.
 *
 * A block stays on its multiprocessor and takes one piece of work after another: rows of one
 * sequence and head, whose other side streams by in tiles of BN rows. GROUPS warpgroups compute,
 * three where the registers suffice, else two (which alternate at the tensor cores where TURNS is
 * set), 64 rows each; those of attention_sm90_wide_dkv.cu share 64 rows. A warp of the last one
 * asks the copy engine for tiles, ahead of them and across the ends of pieces. Barriers in shared
 * memory mark what is full and what is free.
 *
 * Tiles come whole: rows after the end of a sequence are those of the next one (zeros after the
 * last row) and get weight zero, so they must be finite. */
#ifndef AF_ATTENTION_SM90_CUH
#define AF_ATTENTION_SM90_CUH
#include "attention.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

/* Defined before: AF_EP, AF_SOFTCAP; BN; DEPTH_0 and DEPTH_1, stages of the two streams; OWNED,
 * tiles of a piece's own rows; OWN, rows of a piece, where its warpgroups share them; OUT, is there
 * a tile where results are staged; EXTRA, bytes that a kernel keeps besides; TURNS, do two
 * warpgroups, which must take as many steps as each other, alternate at the tensor cores. */
#define GROUPS (AF_EP == 64 ? 3 : 2) /* warpgroups that compute */
#ifndef OWN
#define OWN (GROUPS * 64)
#endif
#define KS         (AF_EP / 16)
#define SLABS      ((AF_EP + 63) / 64) /* of a tile; the rest of the last one is not used */
#define OACC       (AF_EP / 2)         /* accumulators of [64][EP] */
#define SACC       (BN / 2)
#define OWN_BYTES  (OWN * SLABS * 128)
#define TILE_BYTES (BN * SLABS * 128)

#define USERS   (GROUPS * 128)
#define THREADS (USERS + 128) /* the last warpgroup fetches */

extern __shared__ u8 raw[];

/* One piece: rows [at, to) of head `head` (-1: there is no more), whose other side are rows [lo,
 * hi) in `steps` tiles. */
struct af_piece {
    int at, to, lo, hi, steps, head;
};

/* Shared memory from its first multiple of 1024. */
DEV u32 shared_base() { return (smem_at(raw) + 1023) & ~1023u; }
DEV void *shared_ptr(u32 at) { return raw + (at - smem_at(raw)); }

/* The pieces of a block: every round goes over all blocks, there and back, so that those that began
 * with an expensive piece end with a cheap one. */
DEV int rank_of(int round)
{
    return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

#if SM90
/* R rows of a head, whose columns begin at `col`, from row0. */
template <int R> DEV void fetch_rows(u32 tile, const af_map *map, int col, int row0, u32 bar)
{
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++)
#pragma unroll
        for (int r = 0; r < R; r += 64)
            fetch_box(tile + slab * (R * 128) + r * 128, map, col + slab * 64, row0 + r, bar);
}
/* ---- barriers of the block by number, one for each warpgroup ---- */
enum { ALTERNATE = 1, ROWS_THERE = 3 };
/* Two warpgroups alternate at the tensor cores: wait for this one, let the other one in. */
DEV void alternate_wait(int group)
{
    if (TURNS)
        meet(ALTERNATE + group, USERS);
}
DEV void alternate_pass(int group, bool yes)
{
    if (TURNS && yes)
        asm volatile("bar.arrive %0, %1;" ::"r"(ALTERNATE + 1 - group), "r"(USERS) : "memory");
}
#endif

/* Shared memory: owned tiles, stages of two streams, a tile where results are staged, what else a
 * kernel keeps; then barriers, and the piece that is worked on. */
struct shared_layout {
    u32 own[2], tile[2], out, extra, nowhere, own_full, own_free, full[2], free[2], piece;
};
DEV shared_layout shared_layout_of()
{
    shared_layout at;
    at.own[0] = shared_base();
    at.own[1] = at.own[0] + (OWNED - 1) * OWN_BYTES;
    at.tile[0] = at.own[1] + OWN_BYTES;
    at.tile[1] = at.tile[0] + DEPTH_0 * TILE_BYTES;
    at.out = at.tile[1] + DEPTH_1 * TILE_BYTES;
    at.extra = at.out + OUT * OWN_BYTES;
    at.nowhere = at.extra + EXTRA;
    at.own_full = at.nowhere + 8;
    at.own_free = at.own_full + 8;
    at.full[0] = at.own_free + 8;
    at.full[1] = at.full[0] + 8 * DEPTH_0;
    at.free[0] = at.full[1] + 8 * DEPTH_1;
    at.free[1] = at.free[0] + 8 * DEPTH_0;
    at.piece = at.free[1] + 8 * DEPTH_1;
    return at;
}

#if SM90
/* Roles: true for the warps that compute, with their registers; the first warp of the last
 * warpgroup runs fetch(). */
template <class F> DEV bool computes(const shared_layout &at, int group, F fetch)
{
    if (threadIdx.x == 0) {
        bar_init(at.own_full, 1);
        bar_init(at.own_free, USERS / 32);
        for (int i = 0; i < DEPTH_0 + DEPTH_1; i++) {
            bar_init(at.full[0] + i * 8, 1);
            bar_init(at.free[0] + i * 8, USERS / 32);
        }
    }
    bars_ready();
    __syncthreads();
    if (group < GROUPS) {
        registers_up<GROUPS == 2 ? 232 : 160>();
        return true;
    }
    registers_down<GROUPS == 2 ? 40 : 32>();
    if (threadIdx.x < USERS + 32)
        fetch();
    return false;
}
/* tile_no counts the tiles of a stream: it gives the stage, and the parity of its uses so far. */
DEV u32 depth(int i) { return i == 0 ? DEPTH_0 : DEPTH_1; }
DEV u32 parity(int i, u32 tile_no) { return tile_no / depth(i) & 1; }
DEV u32 full(const shared_layout &at, int i, u32 tile_no)
{
    return at.full[i] + tile_no % depth(i) * 8;
}
DEV u32 unused(const shared_layout &at, int i, u32 tile_no)
{
    return at.free[i] + tile_no % depth(i) * 8;
}
DEV u32 stage_of(const shared_layout &at, int i, u32 tile_no)
{
    return at.tile[i] + tile_no % depth(i) * TILE_BYTES;
}
DEV void wait_full(const shared_layout &at, int i, u32 tile_no)
{
    bar_wait(full(at, i, tile_no), parity(i, tile_no));
}
/* This warp has no more use for a stage of stream i. */
DEV void release(const shared_layout &at, int i, u32 tile_no)
{
    if (threadIdx.x % 32 == 0)
        bar_arrive(unused(at, i, tile_no));
}
/* This warp needs nothing of these tiles. It waits for them all the same: a barrier counts one
 * phase at a time. */
DEV void pass_over(const shared_layout &at, u32 tile_no)
{
    wait_full(at, 0, tile_no);
    wait_full(at, 1, tile_no);
    __syncwarp();
    release(at, 0, tile_no);
    release(at, 1, tile_no);
}
/* This warp has no more use for the owned tiles. */
DEV void own_done(const shared_layout &at, bool yes)
{
    if (yes && threadIdx.x % 32 == 0)
        bar_arrive(at.own_free);
}
/* The next piece, when its owned tiles are there. */
DEV af_piece next_piece(const shared_layout &at, u32 &pieces)
{
    bar_wait(at.own_full, pieces++ & 1);
    const af_piece p = *(const af_piece *)shared_ptr(at.piece);
    __syncwarp();
    own_done(at, p.steps == 0);
    return p;
}
/* Steps of a piece that have keys its warpgroup's rows see. */
DEV int steps_of(const af_piece &p, int group, int causal)
{
    return causal ? min(p.steps, (p.at + group * 64 + 63 - p.lo) / BN + 1) : p.steps;
}

/* ---- the warp that fetches ---- */

/* Publishes a piece to the warps that compute, with the copies of its owned tiles. */
DEV void announce(const shared_layout &at, const af_piece &p, u32 &pieces, const af_map *m0,
                  int col0, const af_map *m1, int col1)
{
    bar_wait(at.own_free, (pieces++ + 1) & 1);
    if (threadIdx.x % 32 == 0) {
        *(af_piece *)shared_ptr(at.piece) = p;
        bar_expect(at.own_full, p.steps > 0 ? OWNED * OWN_BYTES : 0);
        if (p.steps == 0)
            return;
        fetch_rows<OWN>(at.own[0], m0, col0, p.at, at.own_full);
        if (OWNED > 1)
            fetch_rows<OWN>(at.own[1], m1, col1, p.at, at.own_full);
    }
}
/* The next tile of stream i. */
DEV void stream_tile(const shared_layout &at, int i, u32 tile_no, const af_map *map, int col,
                     int row)
{
    bar_wait(unused(at, i, tile_no), parity(i, tile_no) ^ 1);
    if (threadIdx.x % 32 == 0) {
        bar_expect(full(at, i, tile_no), TILE_BYTES);
        fetch_rows<BN>(stage_of(at, i, tile_no), map, col, row, full(at, i, tile_no));
    }
}
/* Rows of queries (and of the output's gradient), keys and values streaming by. */
DEV void fetch_keys(const shared_layout &at, const af_map *qkv, const af_map *dout,
                    const int *bounds, int S, int N, int H, int K, af_mask mask)
{
    u32 tile_no = 0, pieces = 0;
    for (int round = 0;; round++) {
        const int rank = rank_of(round), h = rank % H, kv = H + h / (H / K);
        af_piece p = {0, 0, 0, 0, 0, -1};
        af_tile t;
        if (find_ranked(t, rank / H, false, bounds, S, N, OWN)) {
            p = {t.at, t.to, t.from + (first_key(mask, t.at, t.from) - t.from) / BN * BN, 0, 0, h};
            p.hi = t.dead ? p.lo : end_key(mask, min(t.at + OWN, t.to), t.to);
            p.steps = (p.hi - p.lo + BN - 1) / BN;
        }
        announce(at, p, pieces, qkv, h * AF_EP, dout, h * AF_EP);
        if (p.head < 0)
            return;
        for (int step = 0; step < p.steps; step++, tile_no++) {
            stream_tile(at, 0, tile_no, qkv, kv * AF_EP, p.lo + step * BN);
            stream_tile(at, 1, tile_no, qkv, (kv + K) * AF_EP, p.lo + step * BN);
        }
    }
}
#endif

/* Words w[0..3] of four lanes, turned: lane i of them gets word i of each. */
DEV uint4 turn_words(u32 (&w)[4])
{
    const bool odd = threadIdx.x % 2, high = threadIdx.x % 4 / 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const u32 got = __shfl_xor_sync(FULL, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? got : w[i];
        w[i + 1] = odd ? w[i + 1] : got;
    }
    const u32 a = __shfl_xor_sync(FULL, high ? w[0] : w[2], 2);
    const u32 b = __shfl_xor_sync(FULL, high ? w[1] : w[3], 2);
    return high ? make_uint4(a, b, w[2], w[3]) : make_uint4(w[0], w[1], a, b);
}
/* A warp's accumulators times f (f1: the last eight rows) to row0 and the 15 after it; none from
 * `end` on. */
DEV void store_turned(bf16 *dst, i64 ld, const float (&acc)[OACC], float f0, float f1, int row0,
                      int end)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + lane / 4 + half * 8;
        const float f = half ? f1 : f0;
        bf16 *to = dst + row * ld + lane % 4 * 8;
#pragma unroll
        for (int j = 0; j < AF_EP / 8; j += 4) { /* 8 columns each */
            u32 w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int k = 4 * (j + i) + 2 * half;
                w[i] = pack_bf16(acc[k] * f, acc[k + 1] * f);
            }
            const uint4 v = turn_words(w);
            if (row < end)
                *(uint4 *)(to + j * 8) = v;
        }
    }
}
/* The same for all warps of a piece from row0, through a tile where there is one: whole lines are
 * stored. */
DEV void store_rows(bf16 *dst, i64 ld, u32 tile, const float (&acc)[OACC], float f0, float f1,
                    int row0, int end)
{
    const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * 16;
    if (!OUT) {
        store_turned(dst, ld, acc, f0, f1, row0 + mine, end);
        return;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < OACC; i += 2) {
        const int r = mine + lane / 4 + i / 2 % 2 * 8;
        const float f = i / 2 % 2 ? f1 : f0;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + piece_at<OWN>(r, i / 4) + lane % 4 * 4),
                     "r"(pack_bf16(acc[i] * f, acc[i + 1] * f))
                     : "memory");
    }
    __syncwarp();
#pragma unroll
    for (int u = 0; u < AF_EP / 16; u++) {
        const int i = u * 32 + lane, r = mine + i / (AF_EP / 8), c = i % (AF_EP / 8);
        uint4 v;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(tile + piece_at<OWN>(r, c))
                     : "memory");
        if (row0 + r < end)
            *(uint4 *)(dst + (i64)(row0 + r) * ld + c * 8) = v;
    }
}

/* d[64][N] = own rows times tile^T over the head */
template <int N> DEV void scores(float (&d)[N], u32 own, u32 tile)
{
#pragma unroll
    for (int k = 0; k < KS; k++)
        wgmma_ss(d, desc_k<OWN>(own, k), desc_k<BN>(tile, k), k > 0);
}
/* Scores as the softmax takes them: times scale, through the soft cap where there is one. Without
 * one they stay, and their factor has the scale. */
DEV void cap_scores(float (&s)[SACC], float scale, float softcap)
{
#pragma unroll
    for (int i = 0; i < SACC && AF_SOFTCAP; i++)
        s[i] = softcap * tanh_exp(s[i] * (scale / softcap));
}
DEV float score_scale(float scale) { return AF_SOFTCAP ? 1.0f : scale; }
/* Scores of keys from k0 that the warp's queries (16 from q0) do not see become -inf; none from
 * `hi` on. */
DEV void hide_keys(float (&s)[SACC], af_mask mask, int k0, int q0, int hi)
{
    const int lane = threadIdx.x % 32, qa = q0 + lane / 4;
    if (k0 + BN <= hi && !(mask.causal && k0 + BN - 1 > q0) &&
        !(mask.window && k0 <= q0 + 15 - mask.window))
        return;
    const af_range see[2] = {keys_of(mask, qa, hi), keys_of(mask, qa + 8, hi)};
#pragma unroll
    for (int i = 0; i < SACC; i++) {
        const int key = k0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        s[i] = outside(see[i % 4 / 2], key) ? -INF : s[i];
    }
}
/* acc[64][EP] += p[64][BN] tile, p packed as operands */
DEV void add_mma(float (&acc)[OACC], const u32 (&p)[BN / 16][4], u32 tile)
{
#pragma unroll
    for (int k = 0; k < BN / 16; k++)
        wgmma_rs(acc, p[k], desc_mn<BN>(tile, k));
}
DEV void pack_operand(u32 (&p)[BN / 16][4], const float (&s)[SACC])
{
#pragma unroll
    for (int k = 0; k < BN / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[k][i] = pack_bf16(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
}
#endif
