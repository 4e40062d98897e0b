/* attention_sm90_fwd.cu - attention on Hopper's warpgroup MMA, bf16, forward.
 * Contract: attention.c; twin: attention_cpu.c. Same results as attention.cu; the gradients are
 * attention_sm90.cu, or attention_sm90_wide_dq.cu and _dkv.cu. One block per multiprocessor.
 *
 * Built with AF_EP, the head, and AF_SOFTCAP (0 or 1). One warpgroup issues its MMAs during the
 * softmax of another. A step issues its scores, then the sums of the step before, and waits for the
 * scores only. On other architectures the kernel is empty. */
// variants: AF_EP=64,80,96,192 AF_SOFTCAP=0 | AF_EP=128,256 AF_SOFTCAP=0,1
// common: AF_EP=64,128 AF_SOFTCAP=0 | AF_EP=256 AF_SOFTCAP=0,1
#ifndef AF_EP
#define AF_EP 128
#endif
#ifndef AF_SOFTCAP
#define AF_SOFTCAP 0
#endif
#define BN      (AF_EP > 128 ? 64 : 128) /* keys of a step */
#define DEPTH_0 2
#define DEPTH_1 (AF_EP > 128 ? 2 : 3) /* values are in use for two steps */
#define OWNED   1
#define OUT     (AF_EP <= 128)
#define TURNS   (AF_EP > 64 && AF_EP <= 128)
#define EXTRA   0
#include "attention_sm90.cuh"

#if SM90
/* Scores of a step become weights in place. A thread has two rows: the largest score so far, the
 * sum of weights, and keep, what sums so far are multiplied with. */
DEV void online_softmax(float (&s)[SACC], float (&top)[2], float (&sum)[2], float (&keep)[2],
                        float factor)
{
    float mx[4] = {top[0], top[0], top[1], top[1]}, add[4] = {}, base[2]; /* short chains */
#pragma unroll
    for (int i = 0; i < SACC; i++)
        mx[i % 4] = fmaxf(mx[i % 4], s[i]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float m = fmaxf(mx[2 * half], mx[2 * half + 1]);
        m = fmaxf(m, __shfl_xor_sync(FULL, m, 1));
        m = fmaxf(m, __shfl_xor_sync(FULL, m, 2));
        base[half] = m == -INF ? 0.0f : m * factor;
        keep[half] = exp2_fast(top[half] * factor - base[half]);
        top[half] = m;
    }
#pragma unroll
    for (int i = 0; i < SACC; i++) {
        s[i] = exp2_fast(s[i] * factor - base[i % 4 / 2]);
        add[i % 4] += s[i];
    }
    sum[0] = sum[0] * keep[0] + (add[0] + add[1]);
    sum[1] = sum[1] * keep[1] + (add[2] + add[3]);
}
/* inv = 1 / sum of both rows; their log sum exp goes to column h of lse. */
DEV void end_softmax(float (&inv)[2], const float (&top)[2], const float (&sum)[2], float scale,
                     float *lse, int lane, int row0, int to, int H, int h)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float l = sum[half];
        l += __shfl_xor_sync(FULL, l, 1);
        l += __shfl_xor_sync(FULL, l, 2);
        inv[half] = l > 0.0f ? 1.0f / l : 0.0f;
        const int row = row0 + half * 8;
        if (lane % 4 == 0 && row < to)
            lse[(i64)row * H + h] = l > 0.0f ? top[half] * scale + logf(l) : 0.0f;
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_fwd(bf16 *o, float *lse, const __grid_constant__ af_map qkv, const int *bounds, int S,
                  int N, int H, int K, long long ldo, float scale, float softcap, int window,
                  int causal)
{
#if SM90
    const af_mask mask = {causal, window};
    const int lane = threadIdx.x % 32, group = group_of();
    const shared_layout at = shared_layout_of();
    if (!computes(at, group, [&] { fetch_keys(at, &qkv, &qkv, bounds, S, N, H, K, mask); }))
        return;
    const float factor = score_scale(scale) * LOG2E;
    u32 tile_no = 0, pieces = 0;
    for (;;) {
        const af_piece t = next_piece(at, pieces);
        if (t.head < 0)
            return;
        const int q0 = t.at + threadIdx.x / 32 * 16,
                  qa = q0 + lane / 4; /* rows of this warp, lane */
        const int steps = steps_of(t, group, causal);
        float acc[OACC], top[2] = {-INF, -INF}, sum[2] = {0.0f, 0.0f}, keep[2];
        u32 p[BN / 16][4];
        const u32 mine = at.own[0] + group * 64 * 128; /* rows of this warpgroup */
#pragma unroll
        for (int i = 0; i < OACC; i++)
            acc[i] = 0.0f;

        if (t.steps > 0) {
            float s[SACC];
            wait_full(at, 0, tile_no);
            wgmma_fence();
            scores(s, mine, stage_of(at, 0, tile_no));
            wgmma_commit();
            wgmma_wait<0>();
            pin(s);
            release(at, 0, tile_no);
            own_done(at, steps == 1);
            cap_scores(s, scale, softcap);
            hide_keys(s, mask, t.lo, q0, t.hi);
            online_softmax(s, top, sum, keep, factor);
            pack_operand(p, s);
        }
        alternate_pass(group, group == 1 && steps > 1); /* the other one is first */
        for (int step = 1; step < steps; step++) {
            const u32 now = tile_no + step;
            float s[SACC];
            wait_full(at, 0, now);
            wait_full(at, 1, now - 1);
            alternate_wait(group);
            pin(acc);
            pin(p);
            wgmma_fence();
            scores(s, mine, stage_of(at, 0, now));
            wgmma_commit();
            add_mma(acc, p, stage_of(at, 1, now - 1));
            wgmma_commit();
            alternate_pass(group, group == 0 || step + 1 < steps);
            wgmma_wait<1>(); /* the scores; the sums of the step before still run */
            pin(s);
            release(at, 0, now);
            own_done(at, step + 1 == steps);
            cap_scores(s, scale, softcap);
            hide_keys(s, mask, t.lo + step * BN, q0, t.hi);
            online_softmax(s, top, sum, keep, factor);
            finish(sum, at.nowhere);
            wgmma_wait<0>();
            pin(acc);
            release(at, 1, now - 1);
#pragma unroll
            for (int i = 0; i < OACC; i++)
                acc[i] *= keep[i % 4 / 2];
            pack_operand(p, s);
        }
        if (t.steps > 0) {
            wait_full(at, 1, tile_no + steps - 1);
            pin(acc);
            pin(p);
            wgmma_fence();
            add_mma(acc, p, stage_of(at, 1, tile_no + steps - 1));
            wgmma_commit();
            wgmma_wait<0>();
            pin(acc);
            release(at, 1, tile_no + steps - 1);
        }
        for (int step = steps; step < t.steps; step++)
            pass_over(at, tile_no + step);
        tile_no += t.steps;
        float inv[2];
        end_softmax(inv, top, sum, score_scale(scale), lse, lane, qa, t.to, H, t.head);
        store_rows(o + (i64)t.head * AF_EP, ldo, at.out, acc, inv[0], inv[1], t.at, t.to);
    }
#endif
}
