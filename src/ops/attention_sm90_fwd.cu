/* attention_sm90_fwd.cu - the forward of attention_sm90.cu: same contract, grid and arguments.
 *
 * Built with AF_EP (64 or 128). A block owns 128 rows: two warpgroups compute, 64 rows each, two warps
 * bring keys and two bring values, two stages each, by cp.async into swizzled shared memory; barriers
 * in shared memory say what is full and what is free. The warpgroups take turns at the tensor cores:
 * one issues its products while the other softens. A step issues its scores, then the sums of the step
 * before, and waits for the scores only. On other architectures the kernel is empty. */
// variants: AF_EP=64 | AF_EP=128
// common: AF_EP=64 | AF_EP=128
#define BN 128 /* keys of a step */
#include "attention_sm90.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_fwd(bf16 *o, float *lse, const bf16 *qkv, const int *bounds, int S, int N, int H, int K,
                  int E, long long ldo, long long ldx, float scale, float softcap, int window,
                  int causal)
{
#if SM90
    const af_mask mask = {causal, window};
    const int h = blockIdx.x, kv = h / (H / K), lane = threadIdx.x % 32;
    const int group = __shfl_sync(FULL, threadIdx.x / 128, 0); /* uniform, and seen to be */
    af_tile t;
    if (!find_tile(t, gridDim.y - 1 - blockIdx.y, bounds, S, N, OWN))
        return;
    const u32 q_tile = shared_base(), k_tile = q_tile + OWN_BYTES;
    const u32 v_tile = k_tile + 2 * TILE_BYTES, nowhere = v_tile + 2 * TILE_BYTES;
    const u32 k_full = nowhere + 16, k_free = k_full + 16, v_full = k_full + 32, v_free = k_full + 48;
    const int lo = t.from + (first_key(mask, t.at, t.from) - t.from) / BN * BN;
    const int hi = t.dead ? lo : end_key(mask, min(t.at + OWN, t.to), t.to);
    const int steps = (hi - lo + BN - 1) / BN;
    if (threadIdx.x < 2) { /* two warps fill */
        bar_init(k_full + threadIdx.x * 8, 2);
        bar_init(v_full + threadIdx.x * 8, 2);
        bar_init(k_free + threadIdx.x * 8, USERS / 32);
        bar_init(v_free + threadIdx.x * 8, USERS / 32);
    }
    __syncthreads();
    if (group == 2) {
        registers_down();
        const int values = threadIdx.x % 128 / 64, me = threadIdx.x % 64; /* which half of the four */
        const bf16 *src = qkv + (i64)(H + kv + values * K) * E;
        const u32 tile = values ? v_tile : k_tile, full = values ? v_full : k_full;
        const u32 free = values ? v_free : k_free;
        for (int step = 0; step <= steps; step++) {
            const int buf = step & 1;
            if (step < steps) {
                bar_wait(free + buf * 8, (step / 2 + 1) & 1);
                load_tile<BN, 64>(tile + buf * TILE_BYTES, src, ldx, lo + step * BN, hi, me);
            }
            copy_commit();
            copy_wait<1>(); /* the step before has landed */
            fence_async();
            __syncwarp();
            if (step > 0 && lane == 0)
                bar_arrive(full + (buf ^ 1) * 8);
        }
    } else {
        registers_up();
        const u32 mine = q_tile + group * 64 * 128; /* rows of this warpgroup */
        const int q0 = t.at + threadIdx.x / 32 * 16, qa = q0 + lane / 4; /* rows of this warp, lane */
        const float factor = scale * LOG2E;
        float acc[OACC], top[2] = {-INF, -INF}, sum[2] = {0.0f, 0.0f}, keep[2];
        u32 p[BN / 16][4];
#pragma unroll
        for (int i = 0; i < OACC; i++)
            acc[i] = 0.0f;

        /* Scores of a step -> weights in place; keep: what the sums so far are multiplied with. */
        auto soften = [&](float(&s)[SACC], int k0) {
            if (k0 + BN > hi || (causal && k0 + BN - 1 > q0) || (window && k0 <= q0 + 15 - window)) {
                const af_range see[2] = {keys_of(mask, qa, hi), keys_of(mask, qa + 8, hi)};
#pragma unroll
                for (int i = 0; i < SACC; i++) {
                    const int key = k0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    s[i] = outside(see[i % 4 / 2], key) ? -INF : s[i];
                }
            }
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
        };
        load_tile<OWN, USERS>(q_tile, qkv + (i64)h * E, ldx, t.at, t.to, threadIdx.x);
        copy_commit();
        copy_wait<0>();
        fence_async();
        users_meet();
        if (steps > 0) {
            float s[SACC];
            bar_wait(k_full, 0);
            wgmma_fence();
            scores(s, mine, k_tile);
            wgmma_commit();
            wgmma_wait<0>();
            pin(s);
            if (lane == 0)
                bar_arrive(k_free);
            soften(s, lo);
            pack_operand(p, s);
        }
        if (group == 1 && steps > 1)
            turn_pass(1); /* the first turn is the other's */
        for (int step = 1; step < steps; step++) {
            const int k0 = lo + step * BN, buf = step & 1;
            float s[SACC];
            bar_wait(k_full + buf * 8, step / 2 & 1);
            bar_wait(v_full + (buf ^ 1) * 8, (step - 1) / 2 & 1);
            turn_wait(1 + group);
            pin(acc);
            pin(p);
            wgmma_fence();
            scores(s, mine, k_tile + buf * TILE_BYTES);
            wgmma_commit();
            add_product(acc, p, v_tile + (buf ^ 1) * TILE_BYTES);
            wgmma_commit();
            if (group == 0 || step + 1 < steps)
                turn_pass(2 - group);
            wgmma_wait<1>(); /* the scores; the sums of the step before still run */
            pin(s);
            if (lane == 0)
                bar_arrive(k_free + buf * 8);
            soften(s, k0);
            finish(sum, nowhere);
            wgmma_wait<0>();
            pin(acc);
            if (lane == 0)
                bar_arrive(v_free + (buf ^ 1) * 8);
#pragma unroll
            for (int i = 0; i < OACC; i++)
                acc[i] *= keep[i % 4 / 2];
            pack_operand(p, s);
        }
        if (steps > 0) {
            bar_wait(v_full + ((steps - 1) & 1) * 8, (steps - 1) / 2 & 1);
            pin(acc);
            pin(p);
            wgmma_fence();
            add_product(acc, p, v_tile + ((steps - 1) & 1) * TILE_BYTES);
            wgmma_commit();
            wgmma_wait<0>();
            pin(acc);
        }
        float inv[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float l = sum[half];
            l += __shfl_xor_sync(FULL, l, 1);
            l += __shfl_xor_sync(FULL, l, 2);
            inv[half] = l > 0.0f ? 1.0f / l : 0.0f;
            const int row = qa + half * 8;
            if (lane % 4 == 0 && row < t.to)
                lse[(i64)row * H + h] = l > 0.0f ? top[half] * scale + logf(l) : 0.0f;
        }
        store_rows(o + (i64)h * E, ldo, q_tile, acc, inv[0], inv[1], t.at, t.to);
    }
#endif
}
