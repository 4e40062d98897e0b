/* attention_sm90.cu - the gradients of attention on Hopper's warpgroup MMA, bf16, heads up to 128.
 * Contract: attention.c; twin: attention_cpu.c. Same results as attention.cu; the forward is
 * attention_sm90_fwd.cu. One block per multiprocessor.
 *
 * Built with AF_EP, the head, and AF_SOFTCAP (0 or 1). In dq the MMAs of one step are in flight
 * during the softmax of the next step; the sums of dk and dv leave no registers for that, so the
 * MMAs of one warpgroup overlap with the softmax of another only. On other architectures the
 * kernels are empty. */
// variants: AF_EP=64,80,96 AF_SOFTCAP=0 | AF_EP=128 AF_SOFTCAP=0,1
// common: AF_EP=64,128 AF_SOFTCAP=0
#ifndef AF_EP
#define AF_EP 128
#endif
#ifndef AF_SOFTCAP
#define AF_SOFTCAP 0
#endif
#define BN      64 /* streamed rows */
#define DEPTH_0 4  /* keys of dq are in use for two steps */
#define DEPTH_1 3
#define OWNED   2
#define OUT     1
#define TURNS   (AF_EP > 64)
#define EXTRA   (GROUPS * 4 * BN * 4) /* lse and delta of streamed rows, twice */
#include "attention_sm90_bwd.cuh"

/* dq = scale * sum over keys of ds k; delta = sum of o times dout, for attention_dkv */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dq(bf16 *dqkv, const __grid_constant__ af_map qkv,
                 const __grid_constant__ af_map dout, const float *lse, float *delta, const bf16 *o,
                 long long ldo, const int *bounds, int S, int N, int H, int K, long long lddx,
                 float scale, float softcap, int window, int causal)
{
#if SM90
    const af_mask mask = {causal, window};
    const int lane = threadIdx.x % 32, group = group_of();
    const shared_layout at = shared_layout_of();
    if (!computes(at, group, [&] { fetch_keys(at, &qkv, &dout, bounds, S, N, H, K, mask); }))
        return;
    const float factor = score_scale(scale) * LOG2E;
    u32 tile_no = 0, pieces = 0;
    for (;;) {
        const af_piece t = next_piece(at, pieces);
        if (t.head < 0)
            return;
        const int q0 = t.at + threadIdx.x / 32 * 16, qa = q0 + lane / 4;
        float acc[OACC], l[2], d[2];
        u32 ds[BN / 16][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = qa + half * 8;
            l[half] = row < t.to ? lse[(i64)row * H + t.head] * LOG2E : INF;
        }
        const u32 q = at.own[0] + group * 64 * 128, go = at.own[1] + group * 64 * 128;
        const int steps = steps_of(t, group, causal);
#pragma unroll
        for (int i = 0; i < OACC; i++)
            acc[i] = 0.0f;
        if (t.steps > 0) {
            float s[SACC], dp[SACC];
            wait_full(at, 0, tile_no);
            wait_full(at, 1, tile_no);
            wgmma_fence();
            scores(s, q, stage_of(at, 0, tile_no));
            scores(dp, go, stage_of(at, 1, tile_no));
            wgmma_commit();
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = qa + half * 8;
                d[half] = row_delta(o + min(row, t.to - 1) * ldo + t.head * AF_EP, at.own[1],
                                    row - t.at, lane % 4);
                if (lane % 4 == 0 && row < t.to)
                    delta[(i64)row * H + t.head] = d[half];
            }
            wgmma_wait<0>();
            pin(s);
            pin(dp);
            release(at, 1, tile_no);
            own_done(at, steps == 1);
            cap_scores(s, scale, softcap);
            hide_keys(s, mask, t.lo, q0, t.hi);
            key_slopes(s, dp, l, d, factor, softcap);
            pack_operand(ds, s);
        }
        for (int step = 1; step < steps; step++) {
            const u32 now = tile_no + step;
            float s[SACC], dp[SACC];
            wait_full(at, 0, now);
            wait_full(at, 1, now);
            pin(acc);
            pin(ds);
            wgmma_fence();
            scores(s, q, stage_of(at, 0, now));
            scores(dp, go, stage_of(at, 1, now));
            wgmma_commit();
            add_mma(acc, ds, stage_of(at, 0, now - 1));
            wgmma_commit();
            wgmma_wait<1>();
            pin(s);
            pin(dp);
            release(at, 1, now);
            own_done(at, step + 1 == steps);
            cap_scores(s, scale, softcap);
            hide_keys(s, mask, t.lo + step * BN, q0, t.hi);
            key_slopes(s, dp, l, d, factor, softcap);
            finish(s, at.nowhere);
            wgmma_wait<0>();
            pin(acc);
            release(at, 0, now - 1);
            pack_operand(ds, s);
        }
        if (t.steps > 0) {
            pin(acc);
            pin(ds);
            wgmma_fence();
            add_mma(acc, ds, stage_of(at, 0, tile_no + steps - 1));
            wgmma_commit();
            wgmma_wait<0>();
            pin(acc);
            release(at, 0, tile_no + steps - 1);
        }
        for (int step = steps; step < t.steps; step++)
            pass_over(at, tile_no + step);
        tile_no += t.steps;
        store_rows(dqkv + (i64)t.head * AF_EP, lddx, at.out, acc, scale, scale, t.at, t.to);
    }
#endif
}

/* dv = sum over queries of p^T do, dk = scale * sum of ds^T q; part `split` of the query heads at
 * dkv + split * stride. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dkv(bf16 *dkv, const __grid_constant__ af_map qkv,
                  const __grid_constant__ af_map dout, const float *lse, const float *delta,
                  const int *bounds, int S, int N, int H, int K, long long lddkv, float scale,
                  float softcap, int window, int causal, int splits, long long stride)
{
#if SM90
    const af_mask mask = {causal, window};
    const int lane = threadIdx.x % 32, group = group_of();
    const shared_layout at = shared_layout_of();
    if (!computes(at, group,
                  [&] { fetch_queries(at, &qkv, &dout, bounds, S, N, H, K, mask, splits); }))
        return;
    const float factor = score_scale(scale) * LOG2E;
    const u32 k = at.own[0] + group * 64 * 128, v = at.own[1] + group * 64 * 128;
    const int heads = H / K / splits;
    float *row_tile = (float *)shared_ptr(at.extra) + group * 4 * BN; /* of this warpgroup, twice */
    u32 tile_no = 0, pieces = 0;
    for (;;) {
        const af_piece t = next_piece(at, pieces);
        if (t.head < 0)
            return;
        const int k0 = t.at + threadIdx.x / 32 * 16;
        float dk[OACC], dv[OACC];
        u32 p[BN / 16][4], ds[BN / 16][4];
        /* A thread's share of lse and delta of a tile's 64 rows, fetched one step early. */
        auto row_value = [&](int q0, int h) {
            const int row = q0 + threadIdx.x % 64;
            const i64 from = (i64)row * H + h;
            if (threadIdx.x % 128 < 64)
                return row < t.hi ? lse[from] : INF;
            return row < t.hi ? delta[from] : 0.0f;
        };
#pragma unroll
        for (int i = 0; i < OACC; i++)
            dk[i] = dv[i] = 0.0f;
        alternate_pass(group, group == 1 && t.steps > 0); /* the other one is first */
        float fetched = row_value(t.lo, t.head * heads);
        for (int step = 0, q0 = t.lo, h = t.head * heads; step < t.steps; step++, tile_no++) {
            float s[SACC], dp[SACC], *rows = row_tile + tile_no % 2 * 2 * BN;
            wait_full(at, 0, tile_no);
            wait_full(at, 1, tile_no);
            alternate_wait(group);
            wgmma_fence();
            scores(s, k, stage_of(at, 0, tile_no));
            scores(dp, v, stage_of(at, 1, tile_no));
            wgmma_commit();
            alternate_pass(group, group == 0 || step + 1 < t.steps);
            rows[threadIdx.x % 128] = fetched * (threadIdx.x % 128 < 64 ? LOG2E : 1.0f);
            meet(ROWS_THERE + group, 128);
            const int now = q0;
            h += q0 + BN >= t.hi;
            q0 = q0 + BN < t.hi ? q0 + BN : t.lo;
            if (step + 1 < t.steps)
                fetched = row_value(q0, h);
            wgmma_wait<0>();
            pin(s);
            pin(dp);
            own_done(at, step + 1 == t.steps);
            cap_scores(s, scale, softcap);
            hide_queries(s, mask, now, k0);
            query_slopes(s, dp, rows, lane, factor, softcap);
            pack_operand(p, s);
            pack_operand(ds, dp);
            pin(dk);
            pin(dv);
            pin(p);
            pin(ds);
            wgmma_fence();
            add_mma(dv, p, stage_of(at, 1, tile_no));
            add_mma(dk, ds, stage_of(at, 0, tile_no));
            wgmma_commit();
            wgmma_wait<0>();
            pin(dk);
            pin(dv);
            release(at, 0, tile_no);
            release(at, 1, tile_no);
        }
        bf16 *to = dkv + t.head % splits * stride + (i64)(t.head / splits) * AF_EP;
        store_rows(to, lddkv, at.out, dk, scale, scale, t.at, t.to);
        store_rows(to + (i64)K * AF_EP, lddkv, at.out, dv, 1.0f, 1.0f, t.at, t.to);
    }
#endif
}
