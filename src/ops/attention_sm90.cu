/* attention_sm90.cu - the gradients of attention on Hopper's warpgroup products, bf16.
 * Contract: attention.c; twin: attention_cpu.c.  Same work, grid and arguments as attention.cu, for
 * head sizes 64 and 128 without soft cap; everything else is attention.cu's. The forward is
 * attention_sm90_fwd.cu.
 *
 * Built with AF_EP (64 or 128). Blocks own 128 rows, two warpgroups compute 64 each. Tiles come by
 * cp.async into swizzled shared memory. The products of one step are in flight while the next step's
 * scores are softened: a step issues the next scores and then this step's sums, and waits for the
 * scores only. dq has a third warpgroup that fetches, as the forward; the sums of dk and dv leave no
 * registers for one. On other architectures the kernels are empty. */
// variants: AF_EP=64 | AF_EP=128
// common: AF_EP=64 | AF_EP=128
#define BN 64 /* streamed rows */
#include "attention_sm90.cuh"

/* dq = scale * sum over keys of ds k */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dq(bf16 *dqkv, const bf16 *qkv, const bf16 *dout, const float *lse, const float *delta,
                 const int *bounds, int S, int N, int H, int K, int E, long long lddx, long long ldx,
                 long long lddo, float scale, float softcap, int window, int causal)
{
#if SM90
    const af_mask mask = {causal, window};
    const int h = blockIdx.x, kv = h / (H / K), lane = threadIdx.x % 32;
    const int group = __shfl_sync(FULL, threadIdx.x / 128, 0); /* uniform, and seen to be */
    af_tile t;
    if (!find_tile(t, gridDim.y - 1 - blockIdx.y, bounds, S, N, OWN))
        return;
    const u32 q_tile = shared_base(), o_tile = q_tile + OWN_BYTES, k_tile = o_tile + OWN_BYTES;
    const u32 v_tile = k_tile + 3 * TILE_BYTES, mine = group * 64 * 128;
    const u32 nowhere = v_tile + 3 * TILE_BYTES, k_full = nowhere + 16, k_free = k_full + 24;
    const u32 v_full = k_free + 24, v_free = v_full + 24;
    const int lo = t.from + (first_key(mask, t.at, t.from) - t.from) / BN * BN;
    const int hi = t.dead ? lo : end_key(mask, min(t.at + OWN, t.to), t.to);
    const int steps = (hi - lo + BN - 1) / BN;
    if (threadIdx.x < 3) { /* two warps fill */
        bar_init(k_full + threadIdx.x * 8, 2);
        bar_init(v_full + threadIdx.x * 8, 2);
        bar_init(k_free + threadIdx.x * 8, USERS / 32);
        bar_init(v_free + threadIdx.x * 8, USERS / 32);
    }
    __syncthreads();
    if (group == 2) {
        registers_down();
        const int values = threadIdx.x % 128 / 64, me = threadIdx.x % 64; /* two warps each */
        const bf16 *src = qkv + (i64)(H + kv + values * K) * E;
        const u32 tile = values ? v_tile : k_tile, full = values ? v_full : k_full;
        const u32 free = values ? v_free : k_free;
        for (int step = 0; step <= steps; step++) {
            const int slot = step % 3;
            if (step < steps) {
                bar_wait(free + slot * 8, (step / 3 + 1) & 1);
                load_tile<BN, 64>(tile + slot * TILE_BYTES, src, ldx, lo + step * BN, hi, me);
            }
            copy_commit();
            copy_wait<1>(); /* the step before has landed */
            fence_async();
            __syncwarp();
            if (step > 0 && lane == 0)
                bar_arrive(full + (step - 1) % 3 * 8);
        }
    } else {
        registers_up();
        const int q0 = t.at + threadIdx.x / 32 * 16, qa = q0 + lane / 4;
        const float factor = scale * LOG2E;
        float acc[OACC], l[2], d[2];
        u32 ds[BN / 16][4];
#pragma unroll
        for (int i = 0; i < OACC; i++)
            acc[i] = 0.0f;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = qa + half * 8;
            l[half] = row < t.to ? lse[(i64)row * H + h] * LOG2E : INF;
            d[half] = row < t.to ? delta[(i64)row * H + h] : 0.0f;
        }
        /* s := ds */
        auto slopes = [&](float(&s)[SACC], const float(&dp)[SACC], int k0) {
            if (k0 + BN > hi || (causal && k0 + BN - 1 > q0) || (window && k0 <= q0 + 15 - window)) {
                const af_range see[2] = {keys_of(mask, qa, hi), keys_of(mask, qa + 8, hi)};
#pragma unroll
                for (int i = 0; i < SACC; i++) {
                    const int key = k0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    s[i] = outside(see[i % 4 / 2], key) ? -INF : s[i];
                }
            }
#pragma unroll
            for (int i = 0; i < SACC; i++)
                s[i] = exp2_fast(s[i] * factor - l[i % 4 / 2]) * (dp[i] - d[i % 4 / 2]);
        };
        load_tile<OWN, USERS>(q_tile, qkv + (i64)h * E, ldx, t.at, t.to, threadIdx.x);
        load_tile<OWN, USERS>(o_tile, dout + (i64)h * E, lddo, t.at, t.to, threadIdx.x);
        copy_commit();
        copy_wait<0>();
        fence_async();
        users_meet();
        if (steps > 0) {
            float s[SACC], dp[SACC];
            bar_wait(k_full, 0);
            bar_wait(v_full, 0);
            wgmma_fence();
            scores(s, q_tile + mine, k_tile);
            scores(dp, o_tile + mine, v_tile);
            wgmma_commit();
            wgmma_wait<0>();
            pin(s);
            pin(dp);
            if (lane == 0)
                bar_arrive(v_free);
            slopes(s, dp, lo);
            pack_operand(ds, s);
        }
        if (group == 1 && steps > 1)
            turn_pass(1); /* the first turn is the other's */
        for (int step = 1; step < steps; step++) {
            const int slot = step % 3, old = (step - 1) % 3;
            const u32 now = slot * TILE_BYTES, before = old * TILE_BYTES;
            float s[SACC], dp[SACC];
            bar_wait(k_full + slot * 8, step / 3 & 1);
            bar_wait(v_full + slot * 8, step / 3 & 1);
            turn_wait(1 + group);
            pin(acc);
            pin(ds);
            wgmma_fence();
            scores(s, q_tile + mine, k_tile + now);
            scores(dp, o_tile + mine, v_tile + now);
            wgmma_commit();
            add_product(acc, ds, k_tile + before);
            wgmma_commit();
            if (group == 0 || step + 1 < steps)
                turn_pass(2 - group);
            wgmma_wait<1>();
            pin(s);
            pin(dp);
            if (lane == 0)
                bar_arrive(v_free + slot * 8);
            slopes(s, dp, lo + step * BN);
            finish(s, nowhere);
            wgmma_wait<0>();
            pin(acc);
            if (lane == 0)
                bar_arrive(k_free + old * 8);
            pack_operand(ds, s);
        }
        if (steps > 0) {
            pin(acc);
            pin(ds);
            wgmma_fence();
            add_product(acc, ds, k_tile + (steps - 1) % 3 * TILE_BYTES);
            wgmma_commit();
            wgmma_wait<0>();
            pin(acc);
        }
        users_meet(); /* q is staging space now */
        store_rows(dqkv + (i64)h * E, lddx, q_tile, acc, scale, scale, t.at, t.to);
    }
#endif
}

/* Copies have landed and every warpgroup is done with what may be overwritten next. */
DEV void tiles_ready()
{
    copy_wait<0>();
    fence_async();
    __syncthreads();
}

/* dv = sum over queries of p^T do, dk = scale * sum of ds^T q; as in attention.cu. */
extern "C" __global__ void __launch_bounds__(USERS, 1)
    attention_dkv(bf16 *dkv, const bf16 *qkv, const bf16 *dout, const float *lse, const float *delta,
                  const int *bounds, int S, int N, int H, int K, int E, long long lddkv,
                  long long ldx, long long lddo, float scale, float softcap, int window, int causal,
                  int splits, long long stride)
{
#if SM90
    const af_mask mask = {causal, window};
    const int kv = blockIdx.x / splits, split = blockIdx.x % splits, heads = H / K / splits;
    const int lane = threadIdx.x % 32, group = threadIdx.x / 128;
    af_tile t;
    if (!find_tile(t, blockIdx.y, bounds, S, N, OWN))
        return;
    const u32 k_tile = shared_base(), v_tile = k_tile + OWN_BYTES, q_tile = v_tile + OWN_BYTES;
    const u32 o_tile = q_tile + 3 * TILE_BYTES, mine = group * 64 * 128;
    float2 *row_tile = (float2 *)(raw + (o_tile + 3 * TILE_BYTES - smem_at(raw))); /* lse, delta */
    const u32 nowhere = o_tile + 3 * TILE_BYTES + 3 * BN * 8;
    const bf16 *k = qkv + (i64)(H + kv) * E;
    const int lo = first_query(mask, t.at, t.from);
    const int hi = t.dead ? lo : end_query(mask, min(t.at + OWN, t.to), t.to);
    const int tiles = hi > lo ? (hi - lo + BN - 1) / BN : 0, steps = heads * tiles;
    const int k0 = t.at + threadIdx.x / 32 * 16, ka = k0 + lane / 4;
    const float factor = scale * LOG2E;
    float dk[OACC], dv[OACC];
    u32 p[BN / 16][4], ds[BN / 16][4];
#pragma unroll
    for (int i = 0; i < OACC; i++)
        dk[i] = dv[i] = 0.0f;
    auto fetch = [&](int step) {
        if (step < steps) {
            const int slot = step % 3, h = kv * (H / K) + split * heads + step / tiles;
            const int q0 = lo + step % tiles * BN;
            load_tile<BN, USERS>(q_tile + slot * TILE_BYTES, qkv + (i64)h * E, ldx, q0, hi, threadIdx.x);
            load_tile<BN, USERS>(o_tile + slot * TILE_BYTES, dout + (i64)h * E, lddo, q0, hi, threadIdx.x);
            if (threadIdx.x < BN) {
                const i64 at = (i64)(q0 + threadIdx.x) * H + h;
                const bool in = q0 + (int)threadIdx.x < hi;
                row_tile[slot * BN + threadIdx.x] =
                    in ? make_float2(lse[at] * LOG2E, delta[at]) : make_float2(INF, 0.0f);
            }
        }
        copy_commit();
    };
    /* s := p, dp := ds */
    auto slopes = [&](float(&s)[SACC], float(&dp)[SACC], int step) {
        const float2 *rows = row_tile + step % 3 * BN + lane % 4 * 2;
        const int q0 = lo + step % tiles * BN;
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
            const float2 a = rows[j * 8], b = rows[j * 8 + 1];
#pragma unroll
            for (int i = 4 * j; i < 4 * j + 4; i++) {
                s[i] = exp2_fast(s[i] * factor - (i % 2 ? b.x : a.x));
                dp[i] = s[i] * (dp[i] - (i % 2 ? b.y : a.y));
            }
        }
    };
    load_tile<OWN, USERS>(k_tile, k, ldx, t.at, t.to, threadIdx.x);
    load_tile<OWN, USERS>(v_tile, k + (i64)K * E, ldx, t.at, t.to, threadIdx.x);
    fetch(0);
    tiles_ready();
    if (steps > 0) {
        float s[SACC], dp[SACC];
        wgmma_fence();
        scores(s, k_tile + mine, q_tile);
        scores(dp, v_tile + mine, o_tile);
        wgmma_commit();
        fetch(1);
        wgmma_wait<0>();
        pin(s);
        pin(dp);
        slopes(s, dp, 0);
        pack_operand(p, s);
        pack_operand(ds, dp);
    }
    for (int step = 1; step < steps; step++) {
        const u32 now = step % 3 * TILE_BYTES, before = (step - 1) % 3 * TILE_BYTES;
        tiles_ready();
        fetch(step + 1);
        float s[SACC], dp[SACC];
        pin(dk);
        pin(dv);
        pin(p);
        pin(ds);
        wgmma_fence();
        scores(s, k_tile + mine, q_tile + now);
        scores(dp, v_tile + mine, o_tile + now);
        wgmma_commit();
        add_product(dv, p, o_tile + before);
        add_product(dk, ds, q_tile + before);
        wgmma_commit();
        wgmma_wait<1>();
        pin(s);
        pin(dp);
        slopes(s, dp, step);
        finish(dp, nowhere);
        wgmma_wait<0>();
        pin(dk);
        pin(dv);
        pack_operand(p, s);
        pack_operand(ds, dp);
    }
    if (steps > 0) {
        const u32 last = (steps - 1) % 3 * TILE_BYTES;
        pin(dk);
        pin(dv);
        pin(p);
        pin(ds);
        wgmma_fence();
        add_product(dv, p, o_tile + last);
        add_product(dk, ds, q_tile + last);
        wgmma_commit();
        wgmma_wait<0>();
        pin(dk);
        pin(dv);
    }
    __syncthreads(); /* k and v are staging space now */
    dkv += split * stride + (i64)kv * E;
    store_rows(dkv, lddkv, k_tile, dk, scale, scale, t.at, t.to);
    store_rows(dkv + (i64)K * E, lddkv, v_tile, dv, 1.0f, 1.0f, t.at, t.to);
#endif
}
