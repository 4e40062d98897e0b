/* attention_sm90.cu - attention on Hopper's warpgroup products, both directions, bf16.
 * Contract: attention.c; twin: attention_cpu.c.  Same work, grid and arguments as attention.cu, for
 * head sizes 64 and 128 without soft cap; everything else is attention.cu's.
 *
 * Built with AF_EP (64 or 128) and AF_BWD (0: forward, 1: the gradients). Blocks of two warpgroups own
 * 128 rows, 64 each. Tiles come by cp.async into swizzled shared memory. The products of one step are
 * in flight while the next step's scores are softened: a step issues the next scores and then this
 * step's sums, and waits for the scores only. On other architectures the kernels are empty. */
// variants: AF_EP=64 AF_BWD=0 | AF_EP=64 AF_BWD=1 | AF_EP=128 AF_BWD=0 | AF_EP=128 AF_BWD=1
// common: AF_EP=64 AF_BWD=0 | AF_EP=64 AF_BWD=1 | AF_EP=128 AF_BWD=0 | AF_EP=128 AF_BWD=1
#include "attention.cuh"
#include "wgmma.cuh"

#ifndef AF_EP
#define AF_EP 128
#endif
#ifndef AF_BWD
#define AF_BWD 0
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SM90 1
#else
#define SM90 0
#endif
#define THREADS 256
#define OWN 128           /* rows of a block */
#define BN (AF_BWD ? 64 : 128) /* streamed rows */
#define KS (AF_EP / 16)
#define OACC (AF_EP / 2) /* accumulators of [64][EP] */
#define SACC (BN / 2)
#define OWN_BYTES (OWN * AF_EP * 2)
#define TILE_BYTES (BN * AF_EP * 2)

extern __shared__ u8 raw[];

/* Shared memory from its first multiple of 1024. */
DEV u32 shared_base() { return (smem_at(raw) + 1023) & ~1023u; }

/* Rows [row0, row0+R) of a head; rows from `end` on are zeros. */
template <int R> DEV void load_tile(u32 tile, const bf16 *src, i64 ld, int row0, int end)
{
    constexpr int C = AF_EP / 8, STEP = THREADS / C; /* rows between a thread's pieces: 16 or 32 */
    const int r = threadIdx.x / C, c = threadIdx.x % C;
    const u32 to = tile + piece_at<R>(r, c); /* STEP is a multiple of 8: the swizzle stays */
    const bf16 *from = src + (i64)(row0 + r) * ld + c * 8;
    const int left = end - row0 - r;
#pragma unroll
    for (int u = 0; u < R / STEP; u++) {
        const bool in = u * STEP < left;
        copy16(to + u * STEP * 128, in ? from + u * STEP * ld : src, in ? 16 : 0);
    }
}

/* The warpgroup's accumulators times f, through its rows of an owned tile, to device memory. */
DEV void store_rows(bf16 *dst, i64 ld, u32 tile, const float (&acc)[OACC], float f0, float f1,
                    int row0, int end)
{
    const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * 16; /* rows of this warp */
#pragma unroll
    for (int j = 0; j < AF_EP / 8; j++) {
        const u32 a = pack_bf16(acc[4 * j] * f0, acc[4 * j + 1] * f0);
        const u32 b = pack_bf16(acc[4 * j + 2] * f1, acc[4 * j + 3] * f1);
        const int r = mine + lane / 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + piece_at<OWN>(r, j) + lane % 4 * 4),
                     "r"(a)
                     : "memory");
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + piece_at<OWN>(r + 8, j) + lane % 4 * 4),
                     "r"(b)
                     : "memory");
    }
    __syncwarp();
#pragma unroll
    for (int u = 0; u < AF_EP / 16; u++) {
        const int i = u * 32 + lane, r = mine + i / (AF_EP / 8), c = i % (AF_EP / 8);
        uint4 v;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(tile + piece_at<OWN>(r, c)));
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
/* acc[64][EP] += p[64][BN] tile, p packed as operands */
DEV void add_product(float (&acc)[OACC], const u32 (&p)[BN / 16][4], u32 tile)
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
/* Copies have landed and every warpgroup is done with what may be overwritten next. */
DEV void tiles_ready()
{
    copy_wait<0>();
    fence_async();
    __syncthreads();
}

#if !AF_BWD
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_fwd(bf16 *o, float *lse, const bf16 *qkv, const int *bounds, int S, int N, int H, int K,
                  int E, long long ldo, long long ldx, float scale, float softcap, int window,
                  int causal)
{
#if SM90
    const af_mask mask = {causal, window};
    const int h = blockIdx.x, kv = h / (H / K), lane = threadIdx.x % 32, group = threadIdx.x / 128;
    af_tile t;
    if (!find_tile(t, gridDim.y - 1 - blockIdx.y, bounds, S, N, OWN))
        return;
    const u32 q_tile = shared_base(), k_tile = q_tile + OWN_BYTES, v_tile = k_tile + 2 * TILE_BYTES;
    const u32 mine = q_tile + group * 64 * 128; /* rows of this warpgroup */
    const u32 nowhere = v_tile + 2 * TILE_BYTES;
    const bf16 *q = qkv + (i64)h * E, *k = qkv + (i64)(H + kv) * E, *v = k + (i64)K * E;
    const int lo = t.from + (first_key(mask, t.at, t.from) - t.from) / BN * BN;
    const int hi = t.dead ? lo : end_key(mask, min(t.at + OWN, t.to), t.to);
    const int steps = (hi - lo + BN - 1) / BN;
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
    load_tile<OWN>(q_tile, q, ldx, t.at, t.to);
    if (steps > 0)
        load_tile<BN>(k_tile, k, ldx, lo, hi);
    copy_commit();
    tiles_ready();
    if (steps > 0) {
        float s[SACC];
        wgmma_fence();
        scores(s, mine, k_tile);
        wgmma_commit();
        load_tile<BN>(v_tile, v, ldx, lo, hi);
        if (steps > 1)
            load_tile<BN>(k_tile + TILE_BYTES, k, ldx, lo + BN, hi);
        copy_commit();
        wgmma_wait<0>();
        pin(s);
        soften(s, lo);
        pack_operand(p, s);
    }
    for (int step = 1; step < steps; step++) {
        const int k0 = lo + step * BN, buf = step & 1;
        tiles_ready();
        float s[SACC];
        pin(acc);
        pin(p);
        wgmma_fence();
        scores(s, mine, k_tile + buf * TILE_BYTES);
        wgmma_commit();
        add_product(acc, p, v_tile + (buf ^ 1) * TILE_BYTES);
        wgmma_commit();
        load_tile<BN>(v_tile + buf * TILE_BYTES, v, ldx, k0, hi);
        if (step + 1 < steps)
            load_tile<BN>(k_tile + (buf ^ 1) * TILE_BYTES, k, ldx, k0 + BN, hi);
        copy_commit();
        wgmma_wait<1>(); /* the scores; the sums of the step before still run */
        pin(s);
        soften(s, k0);
        finish(sum, nowhere);
        wgmma_wait<0>();
        pin(acc);
#pragma unroll
        for (int i = 0; i < OACC; i++)
            acc[i] *= keep[i % 4 / 2];
        pack_operand(p, s);
    }
    if (steps > 0) {
        tiles_ready();
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
#endif
}
#else

/* dq = scale * sum over keys of ds k */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dq(bf16 *dqkv, const bf16 *qkv, const bf16 *dout, const float *lse, const float *delta,
                 const int *bounds, int S, int N, int H, int K, int E, long long lddx, long long ldx,
                 long long lddo, float scale, float softcap, int window, int causal)
{
#if SM90
    const af_mask mask = {causal, window};
    const int h = blockIdx.x, kv = h / (H / K), lane = threadIdx.x % 32, group = threadIdx.x / 128;
    af_tile t;
    if (!find_tile(t, gridDim.y - 1 - blockIdx.y, bounds, S, N, OWN))
        return;
    const u32 q_tile = shared_base(), o_tile = q_tile + OWN_BYTES, k_tile = o_tile + OWN_BYTES;
    const u32 v_tile = k_tile + 3 * TILE_BYTES, mine = group * 64 * 128;
    const u32 nowhere = v_tile + 3 * TILE_BYTES;
    const bf16 *k = qkv + (i64)(H + kv) * E, *v = k + (i64)K * E;
    const int lo = t.from + (first_key(mask, t.at, t.from) - t.from) / BN * BN;
    const int hi = t.dead ? lo : end_key(mask, min(t.at + OWN, t.to), t.to);
    const int steps = (hi - lo + BN - 1) / BN;
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
    auto fetch = [&](int step) {
        if (step < steps) {
            const int slot = step % 3;
            load_tile<BN>(k_tile + slot * TILE_BYTES, k, ldx, lo + step * BN, hi);
            load_tile<BN>(v_tile + slot * TILE_BYTES, v, ldx, lo + step * BN, hi);
        }
        copy_commit();
    };
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
    load_tile<OWN>(q_tile, qkv + (i64)h * E, ldx, t.at, t.to);
    load_tile<OWN>(o_tile, dout + (i64)h * E, lddo, t.at, t.to);
    fetch(0);
    tiles_ready();
    if (steps > 0) {
        float s[SACC], dp[SACC];
        wgmma_fence();
        scores(s, q_tile + mine, k_tile);
        scores(dp, o_tile + mine, v_tile);
        wgmma_commit();
        fetch(1);
        wgmma_wait<0>();
        pin(s);
        pin(dp);
        slopes(s, dp, lo);
        pack_operand(ds, s);
    }
    for (int step = 1; step < steps; step++) {
        const u32 now = step % 3 * TILE_BYTES, before = (step - 1) % 3 * TILE_BYTES;
        tiles_ready();
        float s[SACC], dp[SACC];
        pin(acc);
        pin(ds);
        wgmma_fence();
        scores(s, q_tile + mine, k_tile + now);
        scores(dp, o_tile + mine, v_tile + now);
        wgmma_commit();
        add_product(acc, ds, k_tile + before);
        wgmma_commit();
        fetch(step + 1);
        wgmma_wait<1>();
        pin(s);
        pin(dp);
        slopes(s, dp, lo + step * BN);
        finish(s, nowhere);
        wgmma_wait<0>();
        pin(acc);
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
    __syncthreads(); /* q is staging space now */
    store_rows(dqkv + (i64)h * E, lddx, q_tile, acc, scale, scale, t.at, t.to);
#endif
}

/* dv = sum over queries of p^T do, dk = scale * sum of ds^T q; as in attention.cu. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
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
            load_tile<BN>(q_tile + slot * TILE_BYTES, qkv + (i64)h * E, ldx, q0, hi);
            load_tile<BN>(o_tile + slot * TILE_BYTES, dout + (i64)h * E, lddo, q0, hi);
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
    load_tile<OWN>(k_tile, k, ldx, t.at, t.to);
    load_tile<OWN>(v_tile, k + (i64)K * E, ldx, t.at, t.to);
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
#endif
