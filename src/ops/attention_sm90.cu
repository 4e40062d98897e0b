/* attention_sm90.cu - the gradients of attention on Hopper's warpgroup products, bf16.
 * Contract: attention.c; twin: attention_cpu.c. Same results as attention.cu for head sizes 64 and 128
 * without soft cap; the forward is attention_sm90_fwd.cu. One block a multiprocessor.
 *
 * Built with AF_EP (64 or 128). The warpgroups take turns at the tensor cores. In dq the products of one
 * step are in flight while the next step's scores are softened; the sums of dk and dv leave no registers
 * for that, so one warpgroup's products run beside the other's softening alone. On other architectures
 * the kernels are empty. */
// variants: AF_EP=64 | AF_EP=128
// common: AF_EP=64 | AF_EP=128
#define BN 64 /* streamed rows */
#define STAGES 3
#define OWNED 2
#include "attention_sm90.cuh"
/* dq = scale * sum over keys of ds k */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dq(bf16 *dqkv, const __grid_constant__ af_map qkv, const __grid_constant__ af_map dout,
                 const float *lse, const float *delta, const int *bounds, int S, int N, int H, int K,
                 long long lddx, float scale, int window, int causal)
{
#if SM90
    const af_mask mask = {causal, window};
    const int lane = threadIdx.x % 32;
    const int group = __shfl_sync(FULL, threadIdx.x / 128, 0); /* uniform, and seen to be */
    const places at = places_of();
    bars_new(at, 1);
    if (group == 2) {
        registers_down();
        if (threadIdx.x < USERS + 32)
            fetch_keys(at, &qkv, &dout, bounds, S, N, H, K, mask);
        return;
    }
    registers_up();
    const float factor = scale * LOG2E;
    u32 turn = 0;
    for (int round = 0;; round++) {
        bar_wait(at.own_full, round & 1);
        const af_piece t = *piece_of(at);
        if (t.head < 0)
            return;
        const int q0 = t.at + threadIdx.x / 32 * 16, qa = q0 + lane / 4;
        float acc[OACC], l[2], d[2];
        u32 ds[BN / 16][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = qa + half * 8;
            l[half] = row < t.to ? lse[(i64)row * H + t.head] * LOG2E : INF;
            d[half] = row < t.to ? delta[(i64)row * H + t.head] : 0.0f;
        }
        const u32 q = at.own[0] + group * 64 * 128, go = at.own[1] + group * 64 * 128;
        own_done(at, t.steps == 0);
#pragma unroll
        for (int i = 0; i < OACC; i++)
            acc[i] = 0.0f;
        /* s := ds */
        auto slopes = [&](float(&s)[SACC], const float(&dp)[SACC], int k0) {
            hide_keys(s, mask, k0, q0, t.hi);
#pragma unroll
            for (int i = 0; i < SACC; i++)
                s[i] = exp2_fast(s[i] * factor - l[i % 4 / 2]) * (dp[i] - d[i % 4 / 2]);
        };
        if (t.steps > 0) {
            float s[SACC], dp[SACC];
            wait_full(at, 0, turn);
            wait_full(at, 1, turn);
            wgmma_fence();
            scores(s, q, stage_of(at, 0, turn));
            scores(dp, go, stage_of(at, 1, turn));
            wgmma_commit();
            wgmma_wait<0>();
            pin(s);
            pin(dp);
            release(at, 1, turn);
            own_done(at, t.steps == 1);
            slopes(s, dp, t.lo);
            pack_operand(ds, s);
        }
        if (group == 1 && t.steps > 1)
            turn_pass(1); /* the first turn is the other's */
        for (int step = 1; step < t.steps; step++) {
            const u32 now = turn + step;
            float s[SACC], dp[SACC];
            wait_full(at, 0, now);
            wait_full(at, 1, now);
            turn_wait(1 + group);
            pin(acc);
            pin(ds);
            wgmma_fence();
            scores(s, q, stage_of(at, 0, now));
            scores(dp, go, stage_of(at, 1, now));
            wgmma_commit();
            add_product(acc, ds, stage_of(at, 0, now - 1));
            wgmma_commit();
            if (group == 0 || step + 1 < t.steps)
                turn_pass(2 - group);
            wgmma_wait<1>();
            pin(s);
            pin(dp);
            release(at, 1, now);
            own_done(at, step + 1 == t.steps);
            slopes(s, dp, t.lo + step * BN);
            finish(s, at.nowhere);
            wgmma_wait<0>();
            pin(acc);
            release(at, 0, now - 1);
            pack_operand(ds, s);
        }
        turn += t.steps;
        if (t.steps > 0) {
            pin(acc);
            pin(ds);
            wgmma_fence();
            add_product(acc, ds, stage_of(at, 0, turn - 1));
            wgmma_commit();
            wgmma_wait<0>();
            pin(acc);
            release(at, 0, turn - 1);
        }
        store_rows(dqkv + (i64)t.head * AF_EP, lddx, at.out, acc, scale, scale, t.at, t.to);
    }
#endif
}

#if SM90
/* Two warps: one asks for tiles, the other brings lse and delta of the streamed rows. `heads` query heads
 * of a kv head are walked one after another; piece.head is kv * splits + split. */
DEV void dkv_fetch(const places &at, const af_map *qkv, const af_map *dout, const float *lse,
                   const float *delta, const int *bounds, int S, int N, int H, int K, af_mask mask,
                   int splits)
{
    const int lane = threadIdx.x % 32, heads = H / K / splits;
    const bool tiles = threadIdx.x / 32 % 2 == 0;
    float2 *rows = (float2 *)shared_ptr(at.rows);
    u32 turn = 0;
    for (int round = 0;; round++) {
        const int rank = rank_of(round), part = rank % (K * splits), kv = part / splits;
        const int h0 = part * heads;
        af_piece p = {0, 0, 0, 0, 0, -1};
        af_tile t;
        if (find_ranked(t, rank / (K * splits), true, bounds, S, N, OWN)) {
            p = {t.at, t.to, first_query(mask, t.at, t.from), 0, 0, part};
            p.hi = t.dead ? p.lo : end_query(mask, min(t.at + OWN, t.to), t.to);
            p.steps = p.hi > p.lo ? (p.hi - p.lo + BN - 1) / BN * heads : 0;
        }
        if (tiles)
            announce(at, p, round, qkv, (H + kv) * AF_EP, qkv, (H + K + kv) * AF_EP);
        if (p.head < 0)
            return;
        for (int step = 0, row = p.lo, h = h0; step < p.steps; step++, turn++) {
            const u32 stage = turn % STAGES;
            if (tiles) {
                stream_tile(at, 0, turn, qkv, h * AF_EP, row);
                stream_tile(at, 1, turn, dout, h * AF_EP, row);
            } else {
                float2 v[BN / 32];
#pragma unroll
                for (int i = 0; i < BN / 32; i++) {
                    const int r = row + i * 32 + lane;
                    const i64 from = (i64)r * H + h;
                    v[i] = r < p.hi ? make_float2(lse[from] * LOG2E, delta[from])
                                    : make_float2(INF, 0.0f);
                }
                bar_wait(at.free[0] + stage * 8, (turn / STAGES + 1) & 1);
#pragma unroll
                for (int i = 0; i < BN / 32; i++)
                    rows[stage * BN + i * 32 + lane] = v[i];
                __syncwarp();
                if (lane == 0)
                    bar_arrive(at.full[0] + stage * 8);
            }
            h += row + BN >= p.hi;
            row = row + BN < p.hi ? row + BN : p.lo;
        }
    }
}
#endif

/* dv = sum over queries of p^T do, dk = scale * sum of ds^T q; part `split` of the query heads at
 * dkv + split * stride. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dkv(bf16 *dkv, const __grid_constant__ af_map qkv, const __grid_constant__ af_map dout,
                  const float *lse, const float *delta, const int *bounds, int S, int N, int H, int K,
                  long long lddkv, float scale, int window, int causal, int splits, long long stride)
{
#if SM90
    const af_mask mask = {causal, window};
    const int lane = threadIdx.x % 32;
    const int group = __shfl_sync(FULL, threadIdx.x / 128, 0); /* uniform, and seen to be */
    const places at = places_of();
    bars_new(at, 2);
    if (group == 2) {
        registers_down();
        if (threadIdx.x < USERS + 64)
            dkv_fetch(at, &qkv, &dout, lse, delta, bounds, S, N, H, K, mask, splits);
        return;
    }
    registers_up();
    const float factor = scale * LOG2E;
    const u32 k = at.own[0] + group * 64 * 128, v = at.own[1] + group * 64 * 128;
    u32 turn = 0;
    for (int round = 0;; round++) {
        bar_wait(at.own_full, round & 1);
        const af_piece t = *piece_of(at);
        if (t.head < 0)
            return;
        const int k0 = t.at + threadIdx.x / 32 * 16, ka = k0 + lane / 4;
        float dk[OACC], dv[OACC];
        u32 p[BN / 16][4], ds[BN / 16][4];
        own_done(at, t.steps == 0);
#pragma unroll
        for (int i = 0; i < OACC; i++)
            dk[i] = dv[i] = 0.0f;
        /* s := p, dp := ds */
        auto slopes = [&](float(&s)[SACC], float(&dp)[SACC], u32 stage, int q0) {
            const float2 *rows = (const float2 *)shared_ptr(at.rows) + stage * BN + lane % 4 * 2;
            if ((causal && k0 + 15 > q0) || (window && k0 <= q0 + BN - 1 - window)) {
                const af_range seen[2] = {queries_of(mask, ka), queries_of(mask, ka + 8)};
#pragma unroll
                for (int i = 0; i < SACC; i++) {
                    const int query = q0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    s[i] = outside(seen[i % 4 / 2], query) ? -INF : s[i];
                }
            }
#pragma unroll
            for (int j = 0; j < BN / 8; j++) {
                const float4 r = *(const float4 *)(rows + j * 8);
#pragma unroll
                for (int i = 4 * j; i < 4 * j + 4; i++) {
                    s[i] = exp2_fast(s[i] * factor - (i % 2 ? r.z : r.x));
                    dp[i] = s[i] * (dp[i] - (i % 2 ? r.w : r.y));
                }
            }
        };
        if (group == 1 && t.steps > 0)
            turn_pass(1); /* the first turn is the other's */
        for (int step = 0, q0 = t.lo; step < t.steps; step++, turn++) {
            float s[SACC], dp[SACC];
            wait_full(at, 0, turn);
            wait_full(at, 1, turn);
            turn_wait(1 + group);
            wgmma_fence();
            scores(s, k, stage_of(at, 0, turn));
            scores(dp, v, stage_of(at, 1, turn));
            wgmma_commit();
            if (group == 0 || step + 1 < t.steps)
                turn_pass(2 - group);
            wgmma_wait<0>();
            pin(s);
            pin(dp);
            own_done(at, step + 1 == t.steps);
            slopes(s, dp, turn % STAGES, q0);
            pack_operand(p, s);
            pack_operand(ds, dp);
            pin(dk);
            pin(dv);
            pin(p);
            pin(ds);
            wgmma_fence();
            add_product(dv, p, stage_of(at, 1, turn));
            add_product(dk, ds, stage_of(at, 0, turn));
            wgmma_commit();
            q0 = q0 + BN < t.hi ? q0 + BN : t.lo;
            wgmma_wait<0>();
            pin(dk);
            pin(dv);
            release(at, 0, turn);
            release(at, 1, turn);
        }
        bf16 *to = dkv + t.head % splits * stride + (i64)(t.head / splits) * AF_EP;
        store_rows(to, lddkv, at.out, dk, scale, scale, t.at, t.to);
        store_rows(to + (i64)K * AF_EP, lddkv, at.out, dv, 1.0f, 1.0f, t.at, t.to);
    }
#endif
}
