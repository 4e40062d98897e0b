/* attention_sm90_wide_dkv.cu - the gradients of keys and values on Hopper's warpgroup MMA, bf16,
 * heads of 192 and 256. Contract: attention.c; twin: attention_cpu.c.
 *
 * A piece is 64 keys, because the sums of both gradients do not fit the registers of one
 * warpgroup: the first one computes scores, weights and dv, the second one dp, slopes and dk. A
 * warp of the first hands its weights to that of the second with the same keys.
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
#define BN      64 /* queries of a step */
#define DEPTH_0 (AF_EP > 192 ? 2 : 3)
#define DEPTH_1 DEPTH_0
#define OWNED   2
#define OUT     0
#define TURNS   0
#define OWN     64
#define WEIGHTS (OWN * BN * 4)   /* bytes of the weights that are handed over */
#define ROWS    (2 * 2 * BN * 4) /* lse for one warpgroup, delta for the other, twice */
#define EXTRA   (WEIGHTS + ROWS + 2 * 4 * 8)
#include "attention_sm90_bwd.cuh"

#if SM90
/* What a warpgroup needs to know. */
struct wide_work {
    shared_layout at;
    int group, warp, lane, heads, H;
    u32 weights, given, taken; /* of this warp: a place, and barriers */
    float *rows;               /* of this warpgroup, twice */
    const float *values;       /* lse or delta */
    float factor, scale, softcap;
    af_mask mask;
};
/* Its value of one of the streamed rows from q0, for the first 64 threads. */
DEV float row_value(const wide_work &w, int q0, int h, int hi)
{
    const int row = q0 + threadIdx.x % 64;
    if (threadIdx.x % 128 >= 64 || row >= hi)
        return w.group == 0 ? INF : 0.0f;
    return w.values[(i64)row * w.H + h] * (w.group == 0 ? LOG2E : 1.0f);
}
/* A step's row values to shared memory; those of the next one are asked for. q0 and h move on. */
DEV const float *put_rows(const wide_work &w, const af_piece &t, u32 tile_no, int step,
                          float &value, int &q0, int &h)
{
    float *rows = w.rows + tile_no % 2 * BN;
    if (threadIdx.x % 128 < 64)
        rows[threadIdx.x % 64] = value;
    meet(ROWS_THERE + w.group, 128);
    h += q0 + BN >= t.hi;
    q0 = q0 + BN < t.hi ? q0 + BN : t.lo;
    if (step + 1 < t.steps)
        value = row_value(w, q0, h, t.hi);
    return rows;
}
/* The first warpgroup's piece: acc = dv. */
DEV void sum_values(float (&acc)[OACC], const wide_work &w, const af_piece &t, u32 tile_no)
{
    const int k0 = t.at + w.warp * 16;
    int q0 = t.lo, h = t.head * w.heads;
    float value = row_value(w, q0, h, t.hi);
    u32 p[BN / 16][4];
    for (int step = 0; step < t.steps; step++) {
        const u32 now = tile_no + step;
        const int from = q0;
        float s[SACC];
        wait_full(w.at, 0, now);
        wgmma_fence();
        scores(s, w.at.own[0], stage_of(w.at, 0, now));
        wgmma_commit();
        const float *rows = put_rows(w, t, now, step, value, q0, h);
        if (step > 0) {
            wgmma_wait<1>();
            release(w.at, 1, now - 1);
        }
        wgmma_wait<0>();
        pin(s);
        pin(acc);
        release(w.at, 0, now);
        own_done(w.at, step + 1 == t.steps);
        cap_scores(s, w.scale, w.softcap);
        hide_queries(s, w.mask, from, k0);
        bar_wait(w.taken, (now + 1) & 1);
#pragma unroll
        for (int j = 0; j < BN / 8; j++) {
            const float2 l = *(const float2 *)(rows + j * 8 + w.lane % 4 * 2);
            float4 give;
            float *g = (float *)&give;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float slope = cap_slope(s[4 * j + i], w.softcap);
                s[4 * j + i] = exp2_fast(s[4 * j + i] * w.factor - (i % 2 ? l.y : l.x));
                g[i] = s[4 * j + i] * slope;
            }
            *(float4 *)shared_ptr(w.weights + j * 512) = give;
        }
        __syncwarp();
        if (w.lane == 0)
            bar_arrive(w.given);
        pack_operand(p, s);
        wait_full(w.at, 1, now);
        pin(acc);
        pin(p);
        wgmma_fence();
        add_mma(acc, p, stage_of(w.at, 1, now));
        wgmma_commit();
    }
    wgmma_wait<0>();
    pin(acc);
    if (t.steps > 0)
        release(w.at, 1, tile_no + t.steps - 1);
}
/* The second warpgroup's piece: acc = dk / scale. */
DEV void sum_keys(float (&acc)[OACC], const wide_work &w, const af_piece &t, u32 tile_no)
{
    int q0 = t.lo, h = t.head * w.heads;
    float value = row_value(w, q0, h, t.hi);
    u32 ds[BN / 16][4];
    for (int step = 0; step < t.steps; step++) {
        const u32 now = tile_no + step;
        float dp[SACC];
        wait_full(w.at, 1, now);
        wgmma_fence();
        scores(dp, w.at.own[1], stage_of(w.at, 1, now));
        wgmma_commit();
        const float *rows = put_rows(w, t, now, step, value, q0, h);
        if (step > 0) {
            wgmma_wait<1>();
            release(w.at, 0, now - 1);
        }
        wgmma_wait<0>();
        pin(dp);
        pin(acc);
        release(w.at, 1, now);
        own_done(w.at, step + 1 == t.steps);
        bar_wait(w.given, now & 1);
#pragma unroll
        for (int j = 0; j < BN / 8; j++) {
            const float2 d = *(const float2 *)(rows + j * 8 + w.lane % 4 * 2);
            const float4 p = *(const float4 *)shared_ptr(w.weights + j * 512);
            dp[4 * j] = p.x * (dp[4 * j] - d.x);
            dp[4 * j + 1] = p.y * (dp[4 * j + 1] - d.y);
            dp[4 * j + 2] = p.z * (dp[4 * j + 2] - d.x);
            dp[4 * j + 3] = p.w * (dp[4 * j + 3] - d.y);
        }
        __syncwarp();
        if (w.lane == 0)
            bar_arrive(w.taken);
        pack_operand(ds, dp);
        wait_full(w.at, 0, now);
        pin(acc);
        pin(ds);
        wgmma_fence();
        add_mma(acc, ds, stage_of(w.at, 0, now));
        wgmma_commit();
    }
    wgmma_wait<0>();
    pin(acc);
    if (t.steps > 0)
        release(w.at, 0, tile_no + t.steps - 1);
}
#endif

/* dv = sum over queries of p^T do, dk = scale * sum of ds^T q; part `split` of the query heads at
 * dkv + split * stride. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dkv(bf16 *dkv, const __grid_constant__ af_map qkv,
                  const __grid_constant__ af_map dout, const float *lse, const float *delta,
                  const int *bounds, int S, int N, int H, int K, long long lddkv, float scale,
                  float softcap, int window, int causal, int splits, long long stride)
{
#if SM90
    wide_work w;
    w.at = shared_layout_of();
    w.group = group_of();
    w.warp = threadIdx.x / 32 % 4;
    w.lane = threadIdx.x % 32;
    w.heads = H / K / splits;
    w.H = H;
    w.weights = w.at.extra + w.warp * (WEIGHTS / 4) + w.lane * 16;
    w.rows = (float *)shared_ptr(w.at.extra + WEIGHTS) + w.group * 2 * BN;
    w.given = w.at.extra + WEIGHTS + ROWS + w.warp * 8;
    w.taken = w.given + 4 * 8;
    w.values = w.group == 0 ? lse : delta;
    w.factor = score_scale(scale) * LOG2E;
    w.scale = scale;
    w.softcap = softcap;
    w.mask = {causal, window};
    if (threadIdx.x < 128 && w.lane == 0) {
        bar_init(w.given, 1);
        bar_init(w.taken, 1);
    }
    if (!computes(w.at, w.group,
                  [&] { fetch_queries(w.at, &qkv, &dout, bounds, S, N, H, K, w.mask, splits); }))
        return;
    u32 tile_no = 0, pieces = 0;
    for (;;) {
        const af_piece t = next_piece(w.at, pieces);
        if (t.head < 0)
            return;
        float acc[OACC];
#pragma unroll
        for (int i = 0; i < OACC; i++)
            acc[i] = 0.0f;
        bf16 *to = dkv + t.head % splits * stride + (i64)(t.head / splits) * AF_EP;
        const int k0 = t.at + w.warp * 16;
        if (w.group == 0) {
            sum_values(acc, w, t, tile_no);
            store_turned(to + (i64)K * AF_EP, lddkv, acc, 1.0f, 1.0f, k0, t.to);
        } else {
            sum_keys(acc, w, t, tile_no);
            store_turned(to, lddkv, acc, scale, scale, k0, t.to);
        }
        tile_no += t.steps;
    }
#endif
}
