/* attention_sm90_bwd.cuh - shared by the kernels of attention's gradients on Hopper. */
#ifndef AF_ATTENTION_SM90_BWD_CUH
#define AF_ATTENTION_SM90_BWD_CUH
#include "attention_sm90.cuh"

#if SM90
/* d(capped score) / d(score before it), from the capped score; with a cap 0 for
 * -inf */
DEV float cap_slope(float s, float softcap)
{
    const float t = s * (1.0f / softcap);
    return AF_SOFTCAP ? fmaxf(1.0f - t * t, 0.0f) : 1.0f;
}
/* s := ds of a step, from scores and dp; l, d: log sum exp and delta of a thread's two rows */
DEV void key_slopes(float (&s)[SACC], const float (&dp)[SACC], const float (&l)[2],
                    const float (&d)[2], float factor, float softcap)
{
#pragma unroll
    for (int i = 0; i < SACC; i++) {
        const float p = exp2_fast(s[i] * factor - l[i % 4 / 2]);
        s[i] = p * (dp[i] - d[i % 4 / 2]) * cap_slope(s[i], softcap);
    }
}
/* s := p, dp := ds of a step; rows: log sum exp of the streamed queries, then their delta */
DEV void query_slopes(float (&s)[SACC], float (&dp)[SACC], const float *rows, int lane,
                      float factor, float softcap)
{
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        const float2 l = *(const float2 *)(rows + j * 8 + lane % 4 * 2);
        const float2 d = *(const float2 *)(rows + BN + j * 8 + lane % 4 * 2);
#pragma unroll
        for (int i = 4 * j; i < 4 * j + 4; i++) {
            const float slope = cap_slope(s[i], softcap);
            s[i] = exp2_fast(s[i] * factor - (i % 2 ? l.y : l.x));
            dp[i] = s[i] * (dp[i] - (i % 2 ? d.y : d.x)) * slope;
        }
    }
}
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
/* Scores of queries from q0 that do not see the warp's keys (16 from k0) become -inf. */
DEV void hide_queries(float (&s)[SACC], af_mask mask, int q0, int k0)
{
    const int lane = threadIdx.x % 32, ka = k0 + lane / 4;
    if ((mask.causal && k0 + 15 > q0) || (mask.window && k0 <= q0 + BN - 1 - mask.window)) {
        const af_range seen[2] = {queries_of(mask, ka), queries_of(mask, ka + 8)};
#pragma unroll
        for (int i = 0; i < SACC; i++) {
            const int query = q0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
            s[i] = outside(seen[i % 4 / 2], query) ? -INF : s[i];
        }
    }
}
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
#endif
