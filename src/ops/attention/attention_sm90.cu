/* attention_sm90.cu - the gradients of attention on Hopper's warpgroup MMA, bf16.
 * Contract: attention.c; twin: attention_cpu.c. Same results as attention.cu for head sizes 64 and
 * 128 without soft cap; the forward is attention_sm90_fwd.cu. One block per multiprocessor.
 *
 * Built with AF_EP (64 or 128). In dq the MMAs of one step are in flight during the softmax of the
 * next step; the sums of dk and dv leave no registers for that, so the MMAs of one warpgroup
 * overlap with the softmax of another only. On other architectures the kernels are empty. */
// variants: AF_EP=64,128
// common: AF_EP=64,128
#define BN      64 /* streamed rows */
#define DEPTH_0 4  /* keys of dq are in use for two steps */
#define DEPTH_1 3
#define OWNED   2
#include "attention_sm90.cuh"
#if SM90
/* s := ds of a step, from scores and dp; l, d: log sum exp and delta of a thread's two rows */
DEV void key_slopes(float (&s)[SACC], const float (&dp)[SACC], const float (&l)[2],
                    const float (&d)[2], float factor)
{
#pragma unroll
    for (int i = 0; i < SACC; i++)
        s[i] = exp2_fast(s[i] * factor - l[i % 4 / 2]) * (dp[i] - d[i % 4 / 2]);
}
/* s := p, dp := ds of a step; rows: log sum exp of the streamed queries, then their delta */
DEV void query_slopes(float (&s)[SACC], float (&dp)[SACC], const float *rows, int lane,
                      float factor)
{
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        const float2 l = *(const float2 *)(rows + j * 8 + lane % 4 * 2);
        const float2 d = *(const float2 *)(rows + BN + j * 8 + lane % 4 * 2);
#pragma unroll
        for (int i = 4 * j; i < 4 * j + 4; i++) {
            s[i] = exp2_fast(s[i] * factor - (i % 2 ? l.y : l.x));
            dp[i] = s[i] * (dp[i] - (i % 2 ? d.y : d.x));
        }
    }
}
#endif

#if SM90
/* delta of a row's head, a quarter of it in each of four lanes: the sum of o times its gradient,
 * which is row r of a tile. */
DEV float row_delta(const bf16 *o, u32 tile, int r, int quarter)
{
    float sum = 0.0f;
#pragma unroll
    for (int c = quarter; c < AF_EP / 8; c += 4) {
        const uint4 a = *(const uint4 *)(o + c * 8);
        uint4 b;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)
                     : "r"(tile + piece_at<OWN>(r, c)));
        const u32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float u[2], w[2];
            unpack2((bf16 *)0, x[i], u);
            unpack2((bf16 *)0, y[i], w);
            sum += u[0] * w[0] + u[1] * w[1];
        }
    }
    sum += __shfl_xor_sync(FULL, sum, 1);
    return sum + __shfl_xor_sync(FULL, sum, 2);
}
#endif

/* dq = scale * sum over keys of ds k; delta = sum of o times dout, for attention_dkv */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dq(bf16 *dqkv, const __grid_constant__ af_map qkv,
                 const __grid_constant__ af_map dout, const float *lse, float *delta, const bf16 *o,
                 long long ldo, const int *bounds, int S, int N, int H, int K, long long lddx,
                 float scale, int window, int causal)
{
#if SM90
    const af_mask mask = {causal, window};
    const int lane = threadIdx.x % 32, group = group_of();
    const shared_layout at = shared_layout_of();
    if (!computes(at, group, [&] { fetch_keys(at, &qkv, &dout, bounds, S, N, H, K, mask); }))
        return;
    const float factor = scale * LOG2E;
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
            hide_keys(s, mask, t.lo, q0, t.hi);
            key_slopes(s, dp, l, d, factor);
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
            hide_keys(s, mask, t.lo + step * BN, q0, t.hi);
            key_slopes(s, dp, l, d, factor);
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

#if SM90
/* Rows of keys and values, queries and the output's gradient streaming by: `heads` query heads of a
 * kv head one after another. piece.head is kv * splits + split. */
DEV void fetch_queries(const shared_layout &at, const af_map *qkv, const af_map *dout,
                       const int *bounds, int S, int N, int H, int K, af_mask mask, int splits)
{
    const int heads = H / K / splits;
    u32 tile_no = 0, pieces = 0;
    for (int round = 0;; round++) {
        const int rank = rank_of(round), part = rank % (K * splits), kv = H + part / splits;
        af_piece p = {0, 0, 0, 0, 0, -1};
        af_tile t;
        if (find_ranked(t, rank / (K * splits), true, bounds, S, N, OWN)) {
            p = {t.at, t.to, first_query(mask, t.at, t.from), 0, 0, part};
            p.hi = t.dead ? p.lo : end_query(mask, min(t.at + OWN, t.to), t.to);
            p.steps = p.hi > p.lo ? (p.hi - p.lo + BN - 1) / BN * heads : 0;
        }
        announce(at, p, pieces, qkv, kv * AF_EP, qkv, (kv + K) * AF_EP);
        if (p.head < 0)
            return;
        for (int step = 0, row = p.lo, h = part * heads; step < p.steps; step++, tile_no++) {
            stream_tile(at, 0, tile_no, qkv, h * AF_EP, row);
            stream_tile(at, 1, tile_no, dout, h * AF_EP, row);
            h += row + BN >= p.hi;
            row = row + BN < p.hi ? row + BN : p.lo;
        }
    }
}
#endif

/* dv = sum over queries of p^T do, dk = scale * sum of ds^T q; part `split` of the query heads at
 * dkv + split * stride. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_dkv(bf16 *dkv, const __grid_constant__ af_map qkv,
                  const __grid_constant__ af_map dout, const float *lse, const float *delta,
                  const int *bounds, int S, int N, int H, int K, long long lddkv, float scale,
                  int window, int causal, int splits, long long stride)
{
#if SM90
    const af_mask mask = {causal, window};
    const int lane = threadIdx.x % 32, group = group_of();
    const shared_layout at = shared_layout_of();
    if (!computes(at, group,
                  [&] { fetch_queries(at, &qkv, &dout, bounds, S, N, H, K, mask, splits); }))
        return;
    const float factor = scale * LOG2E;
    const u32 k = at.own[0] + group * 64 * 128, v = at.own[1] + group * 64 * 128;
    const int heads = H / K / splits;
    float *row_tile = (float *)shared_ptr(at.rows) + group * 4 * BN; /* of this warpgroup, twice */
    u32 tile_no = 0, pieces = 0;
    for (;;) {
        const af_piece t = next_piece(at, pieces);
        if (t.head < 0)
            return;
        const int k0 = t.at + threadIdx.x / 32 * 16, ka = k0 + lane / 4;
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
        /* scores of queries from q0 that do not see the warp's keys become -inf */
        auto hide_queries = [&](float(&s)[SACC], int q0) {
            if ((causal && k0 + 15 > q0) || (window && k0 <= q0 + BN - 1 - window)) {
                const af_range seen[2] = {queries_of(mask, ka), queries_of(mask, ka + 8)};
#pragma unroll
                for (int i = 0; i < SACC; i++) {
                    const int query = q0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    s[i] = outside(seen[i % 4 / 2], query) ? -INF : s[i];
                }
            }
        };
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
            hide_queries(s, now);
            query_slopes(s, dp, rows, lane, factor);
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
