/* attention_sm90_wide_dq.cu - the gradient of queries on Hopper's warpgroup MMA, bf16, heads of
 * 192 and 256. Contract: attention.c; twin: attention_cpu.c. As attention_sm90.cu, but shared
 * memory has room for few tiles (256: two of keys, one of values): MMAs of one warpgroup overlap
 * with the softmax of the other, and a tile of values comes while both multiply with the slopes.
 *
 * Built with AF_EP, the head (192 or 256), and AF_SOFTCAP (0 or 1). On other architectures the
 * kernel is empty. */
// variants: AF_EP=192 AF_SOFTCAP=0 | AF_EP=256 AF_SOFTCAP=0,1
// common: AF_EP=256 AF_SOFTCAP=0,1
#ifndef AF_EP
#define AF_EP 256
#endif
#ifndef AF_SOFTCAP
#define AF_SOFTCAP 0
#endif
#define BN      64 /* keys of a step */
#define DEPTH_0 (AF_EP > 192 ? 2 : 3)
#define DEPTH_1 (AF_EP > 192 ? 1 : 2)
#define OWNED   2
#define OUT     0
#define TURNS   0
#define EXTRA   0
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
    const u32 q = at.own[0] + group * 64 * 128, go = at.own[1] + group * 64 * 128;
    u32 tile_no = 0, pieces = 0;
    for (;;) {
        const af_piece t = next_piece(at, pieces);
        if (t.head < 0)
            return;
        const int q0 = t.at + threadIdx.x / 32 * 16, qa = q0 + lane / 4;
        const int steps = steps_of(t, group, causal);
        float acc[OACC], l[2], d[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = qa + half * 8;
            l[half] = row < t.to ? lse[(i64)row * H + t.head] * LOG2E : INF;
            if (t.steps == 0)
                continue;
            d[half] = row_delta(o + min(row, t.to - 1) * ldo + t.head * AF_EP, at.own[1],
                                row - t.at, lane % 4);
            if (lane % 4 == 0 && row < t.to)
                delta[(i64)row * H + t.head] = d[half];
        }
#pragma unroll
        for (int i = 0; i < OACC; i++)
            acc[i] = 0.0f;
        for (int step = 0; step < steps; step++) {
            const u32 now = tile_no + step;
            float s[SACC], dp[SACC];
            u32 ds[BN / 16][4];
            wait_full(at, 0, now);
            wgmma_fence();
            scores(s, q, stage_of(at, 0, now));
            wgmma_commit();
            wait_full(at, 1, now);
            wgmma_fence();
            scores(dp, go, stage_of(at, 1, now));
            wgmma_commit();
            wgmma_wait<1>();
            pin(s);
            cap_scores(s, scale, softcap);
            hide_keys(s, mask, t.lo + step * BN, q0, t.hi);
#pragma unroll
            for (int i = 0; i < SACC; i++)
                s[i] = exp2_fast(s[i] * factor - l[i % 4 / 2]) * cap_slope(s[i], softcap);
            finish(s, at.nowhere);
            wgmma_wait<0>();
            pin(dp);
            release(at, 1, now);
            own_done(at, step + 1 == steps);
#pragma unroll
            for (int i = 0; i < SACC; i++)
                s[i] *= dp[i] - d[i % 4 / 2];
            pack_operand(ds, s);
            pin(acc);
            pin(ds);
            wgmma_fence();
            add_mma(acc, ds, stage_of(at, 0, now));
            wgmma_commit();
            wgmma_wait<0>();
            pin(acc);
            release(at, 0, now);
        }
        for (int step = steps; step < t.steps; step++)
            pass_over(at, tile_no + step);
        tile_no += t.steps;
        store_rows(dqkv + (i64)t.head * AF_EP, lddx, at.out, acc, scale, scale, t.at, t.to);
    }
#endif
}
