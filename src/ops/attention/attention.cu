/* attention.cu - attention over packed sequences on tensor cores, both directions, bf16.
 * Contract: attention.c; twin: attention_cpu.c.  Other types and sizes: attention_plain.cu.
 *
 * Built with AF_BWD (0: forward, 1: the gradients' kernels), AF_EP (head size padded to a multiple
 * of 16), AF_WARPS, AF_MT (16-row tiles per warp, forward), AF_BN (rows of the streamed tile),
 * AF_SOFTCAP (0 or 1) and AF_VEC (8: 16-byte loads; 1: any E and stride).
 *
 * attention_fwd: block (h, tile) has AF_WARPS*AF_MT*16 queries of one head and streams keys and
 *   values past them with an online softmax in base 2; q is read once, k and v once per tile. A
 *   k tile is loaded while P V is computed and a v tile while Q K^T is.
 * attention_dq: the same shape; streams k, v; ds k is summed in registers.
 * attention_dkv: block (kv head * splits + split, tile) has AF_WARPS*16 keys; streams q, do of the
 *   query heads of its split. Scores are computed transposed, so that p and ds already are
 *   operands.
 * No atomics: dq and dk|dv have one owner each; scores are computed twice. Rows after the last
 * bound get zeros. Grid: y = tiles (find_tile); heavy tiles of causal sequences first. */
// variants: (AF_BWD=0 AF_EP=64,128 AF_WARPS=4 AF_MT=2 AF_BN=64
//      | AF_BWD=1 AF_EP=64,128 AF_WARPS=4 AF_MT=1 AF_BN=64
//      | AF_BWD=1 AF_EP=128 AF_WARPS=4 AF_MT=1 AF_BN=32
//      | AF_BWD=0,1 AF_EP=256 AF_WARPS=4 AF_MT=1 AF_BN=32) AF_SOFTCAP=0,1 AF_VEC=8
//    | (AF_BWD=0 AF_EP=64 AF_WARPS=4,8 AF_MT=1 AF_BN=64
//      | AF_BWD=0 AF_EP=128 AF_WARPS=4,8 AF_MT=1 AF_BN=64,32
//      | AF_BWD=1 AF_EP=64 AF_WARPS=8 AF_MT=1 AF_BN=64
//      | AF_BWD=1 AF_EP=128 AF_WARPS=8 AF_MT=1 AF_BN=32) AF_SOFTCAP=0 AF_VEC=8
//    | AF_BWD=1 AF_EP=256 AF_WARPS=3 AF_MT=1 AF_BN=16 AF_SOFTCAP=0,1 AF_VEC=8
//    | (AF_BWD=0 AF_EP=32,80,96 AF_WARPS=4 AF_MT=2
//      | AF_BWD=1 AF_EP=32,80,96 AF_WARPS=4 AF_MT=1) AF_BN=64 AF_SOFTCAP=0 AF_VEC=8
// common: (AF_BWD=0 AF_EP=64,128 AF_WARPS=4 AF_MT=2
//      | AF_BWD=1 AF_EP=64,128 AF_WARPS=4 AF_MT=1) AF_BN=64 AF_SOFTCAP=0 AF_VEC=8
#include "attention.cuh"

#ifndef AF_EP
#define AF_EP 128
#endif
#ifndef AF_WARPS
#define AF_WARPS 4
#endif
#ifndef AF_MT
#define AF_MT 1
#endif
#ifndef AF_BN
#define AF_BN 64
#endif
#ifndef AF_BWD
#define AF_BWD 0
#endif
#ifndef AF_SOFTCAP
#define AF_SOFTCAP 0
#endif
#define LDS     (AF_EP + 8) /* odd multiple of 16 bytes: ldmatrix without bank conflicts */
#define THREADS (AF_WARPS * 32)
#define BM      (AF_WARPS * AF_MT * 16)
#define KS      (AF_EP / 16)

extern __shared__ __align__(16) bf16 shared[];

/* Rows [row0, row0+R) of a head into shared memory; rows from `end` on and columns from E on are
 * zeros. */
template <int R> DEV void load_tile(bf16 *tile, const bf16 *src, i64 ld, int row0, int end, int E)
{
#if AF_VEC == 8
    constexpr int C = AF_EP / 8;
#pragma unroll
    for (int u = 0; u < (R * C + THREADS - 1) / THREADS; u++) {
        const int i = u * THREADS + threadIdx.x, r = i / C, c = i % C * 8;
        if (R * C % THREADS && i >= R * C)
            break;
        const bool in = row0 + r < end && c < E;
        copy16(smem_at(tile + r * LDS + c), in ? src + (i64)(row0 + r) * ld + c : src, in ? 16 : 0);
    }
#else
    for (int i = threadIdx.x; i < R * AF_EP; i += THREADS) {
        const int r = i / AF_EP, c = i % AF_EP;
        const bool in = row0 + r < end && c < E;
        tile[r * LDS + c] = in ? src[(i64)(row0 + r) * ld + c] : bf16{0};
    }
#endif
}

/* A warp's rows of a staged tile to device memory. */
DEV void store_rows(bf16 *dst, i64 ld, const bf16 *tile, int rows, int row0, int end, int E)
{
    const int lane = threadIdx.x % 32;
#if AF_VEC == 8
    for (int i = lane; i < rows * (AF_EP / 8); i += 32) {
        const int r = i / (AF_EP / 8), c = i % (AF_EP / 8) * 8;
        if (row0 + r < end && c < E)
            *(uint4 *)(dst + (i64)(row0 + r) * ld + c) = *(const uint4 *)(tile + r * LDS + c);
    }
#else
    for (int i = lane; i < rows * AF_EP; i += 32) {
        const int r = i / AF_EP, c = i % AF_EP;
        if (row0 + r < end && c < E)
            dst[(i64)(row0 + r) * ld + c] = tile[r * LDS + c];
    }
#endif
}

/* Addresses of a lane for the two forms of ldmatrix: a 16 x 16 operand whose rows are the mma's
 * rows (or, transposed by the load, its inner dimension), and one whose rows are the mma's columns.
 */
DEV u32 at_rows(const bf16 *tile)
{
    const int lane = threadIdx.x % 32;
    return smem_at(tile + lane % 16 * LDS + lane / 16 * 8);
}
DEV u32 at_cols(const bf16 *tile)
{
    const int lane = threadIdx.x % 32;
    return smem_at(tile + (lane % 8 + lane / 16 * 8) * LDS + lane / 8 % 2 * 8);
}

/* acc[16][NT*8] += rows[16][EP] * cols[NT*8][EP]^T, both in shared memory */
template <int NT> DEV void mul_nt(float (&acc)[NT][4], u32 rows, u32 cols)
{
#pragma unroll
    for (int k = 0; k < KS; k++) {
        u32 a[4], b[4];
        ldmatrix4(a, rows + k * 32);
#pragma unroll
        for (int n = 0; n < NT / 2; n++) {
            ldmatrix4(b, cols + (n * 16 * LDS + k * 16) * 2);
            mma(acc[2 * n], a, b[0], b[1]);
            mma(acc[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* acc[16][EP] += p[16][NT*8] * m[NT*8][EP]: p from registers, m in shared memory */
template <int NT> DEV void mul_nn(float (&acc)[AF_EP / 8][4], const float (&p)[NT][4], u32 m)
{
#pragma unroll
    for (int k = 0; k < NT / 2; k++) {
        const u32 a[4] = {pack_bf16(p[2 * k][0], p[2 * k][1]), pack_bf16(p[2 * k][2], p[2 * k][3]),
                          pack_bf16(p[2 * k + 1][0], p[2 * k + 1][1]),
                          pack_bf16(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < KS; n++) {
            u32 b[4];
            ldmatrix4_trans(b, m + (k * 16 * LDS + n * 16) * 2);
            mma(acc[2 * n], a, b[0], b[1]);
            mma(acc[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* Stages acc * factor[row half] in the warp's own rows of a tile. */
DEV void stage(bf16 *tile, const float (&acc)[AF_EP / 8][4], float f0, float f1)
{
    const int lane = threadIdx.x % 32;
    bf16 *at = tile + lane / 4 * LDS + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < AF_EP / 8; n++) {
        *(u32 *)(at + n * 8) = pack_bf16(acc[n][0] * f0, acc[n][1] * f0);
        *(u32 *)(at + 8 * LDS + n * 8) = pack_bf16(acc[n][2] * f1, acc[n][3] * f1);
    }
    __syncwarp();
}

/* Scores in base 2: s * scale * log2(e), through the soft cap where there is one. */
template <int NT> DEV void cap_scores(float (&s)[NT][4], float scale, float softcap)
{
    if (AF_SOFTCAP) {
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = softcap * LOG2E * tanh_exp(s[n][i] * (scale / softcap));
    } else {
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] *= scale * LOG2E;
    }
}
/* d(capped score) / d(score before it), from the capped score in base 2 */
DEV float cap_slope(float s, float softcap)
{
    const float t = AF_SOFTCAP ? s * (LN2 / softcap) : 0.0f;
    return 1.0f - t * t;
}

#if !AF_BWD
/* Scores become weights relative to the largest score so far; the sums follow it. A thread has two
 * rows, 8 apart. */
DEV void online_softmax(float (&s)[AF_BN / 8][4], float (&acc)[AF_EP / 8][4], float (&top)[2],
                        float (&sum)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float mx = top[half];
#pragma unroll
        for (int n = 0; n < AF_BN / 8; n++)
            mx = fmaxf(mx, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        mx = fmaxf(mx, __shfl_xor_sync(FULL, mx, 1));
        mx = fmaxf(mx, __shfl_xor_sync(FULL, mx, 2));
        const float base = mx == -INF ? 0.0f : mx;
        const float keep = exp2_fast(top[half] - base);
        top[half] = mx;
        float add = 0.0f;
#pragma unroll
        for (int n = 0; n < AF_BN / 8; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = exp2_fast(s[n][i] - base);
                add += s[n][i];
            }
        sum[half] = sum[half] * keep + add;
#pragma unroll
        for (int n = 0; n < AF_EP / 8; n++) {
            acc[n][2 * half] *= keep;
            acc[n][2 * half + 1] *= keep;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_fwd(bf16 *o, float *lse, const bf16 *qkv, const int *bounds, int S, int N, int H,
                  int K, int E, long long ldo, long long ldx, float scale, float softcap,
                  int window, int causal)
{
    constexpr int NT = AF_BN / 8;
    const af_mask mask = {causal, window};
    const int h = blockIdx.x, kv = h / (H / K), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    af_tile t;
    if (!find_tile(t, gridDim.y - 1 - blockIdx.y, bounds, S, N, BM))
        return;
    bf16 *q_tile = shared, *k_tile = q_tile + BM * LDS, *v_tile = k_tile + AF_BN * LDS;
    const bf16 *q = qkv + (i64)h * E, *k = qkv + (i64)(H + kv) * E, *v = k + (i64)K * E;
    const int lo = t.from + (first_key(mask, t.at, t.from) - t.from) / AF_BN * AF_BN;
    const int hi = t.dead ? lo : end_key(mask, min(t.at + BM, t.to), t.to);
    const int row0 = warp * AF_MT * 16;

    load_tile<BM>(q_tile, q, ldx, t.at, t.to, E);
    load_tile<AF_BN>(k_tile, k, ldx, lo, hi, E);
    copy_commit();
    float acc[AF_MT][AF_EP / 8][4] = {}, top[AF_MT][2], sum[AF_MT][2] = {};
#pragma unroll
    for (int m = 0; m < AF_MT; m++)
        top[m][0] = top[m][1] = -INF;

    for (int k0 = lo; k0 < hi; k0 += AF_BN) {
        copy_wait<0>();
        __syncthreads();
        load_tile<AF_BN>(v_tile, v, ldx, k0, hi, E);
        copy_commit();
        float s[AF_MT][NT][4] = {};
#pragma unroll
        for (int c = 0; c < KS; c++) {
            u32 a[AF_MT][4], b[4];
#pragma unroll
            for (int m = 0; m < AF_MT; m++)
                ldmatrix4(a[m], at_rows(q_tile + (row0 + m * 16) * LDS) + c * 32);
#pragma unroll
            for (int n = 0; n < NT / 2; n++) {
                ldmatrix4(b, at_cols(k_tile) + (n * 16 * LDS + c * 16) * 2);
#pragma unroll
                for (int m = 0; m < AF_MT; m++) {
                    mma(s[m][2 * n], a[m], b[0], b[1]);
                    mma(s[m][2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < AF_MT; m++) {
            const int q0 = t.at + row0 + m * 16, qa = q0 + lane / 4;
            cap_scores(s[m], scale, softcap);
            if (k0 + AF_BN > hi || (causal && k0 + AF_BN - 1 > q0) ||
                (window && k0 <= q0 + 15 - window)) {
                const af_range see[2] = {keys_of(mask, qa, hi), keys_of(mask, qa + 8, hi)};
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int key = k0 + n * 8 + lane % 4 * 2 + i % 2;
                        s[m][n][i] = outside(see[i / 2], key) ? -INF : s[m][n][i];
                    }
            }
            online_softmax(s[m], acc[m], top[m], sum[m]);
        }
        copy_wait<0>();
        __syncthreads();
        if (k0 + AF_BN < hi) {
            load_tile<AF_BN>(k_tile, k, ldx, k0 + AF_BN, hi, E);
            copy_commit();
        }
#pragma unroll
        for (int c = 0; c < NT / 2; c++) {
            u32 a[AF_MT][4], b[4];
#pragma unroll
            for (int m = 0; m < AF_MT; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[m][i] = pack_bf16(s[m][2 * c + i / 2][i % 2 * 2],
                                        s[m][2 * c + i / 2][i % 2 * 2 + 1]);
#pragma unroll
            for (int n = 0; n < KS; n++) {
                ldmatrix4_trans(b, at_rows(v_tile) + (c * 16 * LDS + n * 16) * 2);
#pragma unroll
                for (int m = 0; m < AF_MT; m++) {
                    mma(acc[m][2 * n], a[m], b[0], b[1]);
                    mma(acc[m][2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    copy_wait<0>();
    __syncthreads(); /* q may still be in flight when there was no key */
#pragma unroll
    for (int m = 0; m < AF_MT; m++) {
        float inv[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float l = sum[m][half];
            l += __shfl_xor_sync(FULL, l, 1);
            l += __shfl_xor_sync(FULL, l, 2);
            inv[half] = l > 0.0f ? 1.0f / l : 0.0f;
            const int row = t.at + row0 + m * 16 + lane / 4 + half * 8;
            if (lane % 4 == 0 && row < t.to)
                lse[(i64)row * H + h] = l > 0.0f ? top[m][half] * LN2 + logf(l) : 0.0f;
        }
        bf16 *mine = q_tile + (row0 + m * 16) * LDS;
        stage(mine, acc[m], inv[0], inv[1]);
        store_rows(o + (i64)h * E, ldo, mine, 16, t.at + row0 + m * 16, t.to, E);
    }
}

#else
/* dq[16 per warp] = scale * sum over keys of ds k,  ds = p (dp - delta),  p = exp(s - lse) */
extern "C" __global__ void __launch_bounds__(THREADS)
    attention_dq(bf16 *dqkv, const bf16 *qkv, const bf16 *dout, const float *lse,
                 const float *delta, const int *bounds, int S, int N, int H, int K, int E,
                 long long lddx, long long ldx, long long lddo, float scale, float softcap,
                 int window, int causal)
{
    constexpr int NT = AF_BN / 8, R = AF_WARPS * 16;
    const af_mask mask = {causal, window};
    const int h = blockIdx.x, kv = h / (H / K), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    af_tile t;
    if (!find_tile(t, gridDim.y - 1 - blockIdx.y, bounds, S, N, R))
        return;
    bf16 *q_tile = shared, *o_tile = q_tile + R * LDS, *k_tile = o_tile + R * LDS;
    bf16 *v_tile = k_tile + 2 * AF_BN * LDS; /* two stages of each */
    const bf16 *q = qkv + (i64)h * E, *k = qkv + (i64)(H + kv) * E, *v = k + (i64)K * E;
    const int lo = t.from + (first_key(mask, t.at, t.from) - t.from) / AF_BN * AF_BN;
    const int hi = t.dead ? lo : end_key(mask, min(t.at + R, t.to), t.to);
    const int q0 = t.at + warp * 16, qa = q0 + lane / 4;

    load_tile<R>(q_tile, q, ldx, t.at, t.to, E);
    load_tile<R>(o_tile, dout + (i64)h * E, lddo, t.at, t.to, E);
    load_tile<AF_BN>(k_tile, k, ldx, lo, hi, E);
    load_tile<AF_BN>(v_tile, v, ldx, lo, hi, E);
    copy_commit();
    float acc[AF_EP / 8][4] = {}, l[2], d[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = qa + half * 8;
        l[half] = row < t.to ? lse[(i64)row * H + h] * LOG2E : INF;
        d[half] = row < t.to ? delta[(i64)row * H + h] : 0.0f;
    }
    const af_range see[2] = {keys_of(mask, qa, hi), keys_of(mask, qa + 8, hi)};
    int buf = 0;
    for (int k0 = lo; k0 < hi; k0 += AF_BN, buf ^= 1) {
        copy_wait<0>();
        __syncthreads();
        if (k0 + AF_BN < hi) {
            load_tile<AF_BN>(k_tile + (buf ^ 1) * AF_BN * LDS, k, ldx, k0 + AF_BN, hi, E);
            load_tile<AF_BN>(v_tile + (buf ^ 1) * AF_BN * LDS, v, ldx, k0 + AF_BN, hi, E);
            copy_commit();
        }
        const bf16 *kt = k_tile + buf * AF_BN * LDS, *vt = v_tile + buf * AF_BN * LDS;
        float s[NT][4] = {}, dp[NT][4] = {};
        mul_nt(s, at_rows(q_tile + warp * 16 * LDS), at_cols(kt));
        mul_nt(dp, at_rows(o_tile + warp * 16 * LDS), at_cols(vt));
        cap_scores(s, scale, softcap);
        const bool edge = k0 + AF_BN > hi || (causal && k0 + AF_BN - 1 > q0) ||
                          (window && k0 <= q0 + 15 - window);
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = k0 + n * 8 + lane % 4 * 2 + i % 2;
                float p = exp2_fast(s[n][i] - l[i / 2]);
                p = edge & outside(see[i / 2], key) ? 0.0f : p;
                s[n][i] = p * (dp[n][i] - d[i / 2]) * cap_slope(s[n][i], softcap);
            }
        mul_nn(acc, s, at_rows(kt));
    }
    copy_wait<0>();
    __syncthreads();
    stage(q_tile + warp * 16 * LDS, acc, scale, scale);
    store_rows(dqkv + (i64)h * E, lddx, q_tile + warp * 16 * LDS, 16, q0, t.to, E);
}

/* Scores of queries from q0 become weights, 0 where `edge` and not seen; slope: that of the soft
 * cap. lt: log sum exp of the queries. */
DEV void weigh_queries(float (&s)[AF_BN / 8][4], float (&slope)[AF_BN / 8][4], const float *lt,
                       const af_range (&seen)[2], bool edge, int q0, float softcap)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < AF_BN / 8; n++) {
        const float2 l = *(const float2 *)(lt + n * 8);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            slope[n][i] = cap_slope(s[n][i], softcap);
            s[n][i] = exp2_fast(s[n][i] - (i % 2 ? l.y : l.x));
            if (edge & outside(seen[i / 2], q0 + n * 8 + lane % 4 * 2 + i % 2))
                s[n][i] = 0.0f;
        }
    }
}

/* dv = sum over queries of p^T do, dk = scale * sum of ds^T q; part `split` of `splits` goes to
 * dkv + split * stride: row n, columns kv*E (dk) and (K+kv)*E (dv). */
extern "C" __global__ void __launch_bounds__(THREADS)
    attention_dkv(bf16 *dkv, const bf16 *qkv, const bf16 *dout, const float *lse,
                  const float *delta, const int *bounds, int S, int N, int H, int K, int E,
                  long long lddkv, long long ldx, long long lddo, float scale, float softcap,
                  int window, int causal, int splits, long long stride)
{
    constexpr int NT = AF_BN / 8, R = AF_WARPS * 16;
    const af_mask mask = {causal, window};
    const int kv = blockIdx.x / splits, split = blockIdx.x % splits, heads = H / K / splits;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    af_tile t;
    if (!find_tile(t, blockIdx.y, bounds, S, N, R))
        return;
    bf16 *k_tile = shared, *v_tile = k_tile + R * LDS, *q_tile = v_tile + R * LDS;
    bf16 *o_tile = q_tile + 2 * AF_BN * LDS; /* two stages of each */
    float *l_tile = (float *)(o_tile + 2 * AF_BN * LDS), *d_tile = l_tile + 2 * AF_BN;
    const bf16 *k = qkv + (i64)(H + kv) * E;
    const int lo = first_query(mask, t.at, t.from);
    const int hi = t.dead ? lo : end_query(mask, min(t.at + R, t.to), t.to);
    const int tiles = hi > lo ? (hi - lo + AF_BN - 1) / AF_BN : 0;
    const int k0 = t.at + warp * 16, ka = k0 + lane / 4;

    auto fetch = [&](int it, int buf) {
        const int h = kv * (H / K) + split * heads + it / tiles, q0 = lo + it % tiles * AF_BN;
        load_tile<AF_BN>(q_tile + buf * AF_BN * LDS, qkv + (i64)h * E, ldx, q0, hi, E);
        load_tile<AF_BN>(o_tile + buf * AF_BN * LDS, dout + (i64)h * E, lddo, q0, hi, E);
        for (int i = threadIdx.x; i < AF_BN; i += THREADS) {
            const bool in = q0 + i < hi;
            l_tile[buf * AF_BN + i] = in ? lse[(i64)(q0 + i) * H + h] * LOG2E : INF;
            d_tile[buf * AF_BN + i] = in ? delta[(i64)(q0 + i) * H + h] : 0.0f;
        }
    };

    load_tile<R>(k_tile, k, ldx, t.at, t.to, E);
    load_tile<R>(v_tile, k + (i64)K * E, ldx, t.at, t.to, E);
    if (tiles)
        fetch(0, 0);
    copy_commit();
    const af_range seen[2] = {queries_of(mask, ka), queries_of(mask, ka + 8)};
    float dk[AF_EP / 8][4] = {}, dv[AF_EP / 8][4] = {};
    for (int it = 0; it < heads * tiles; it++) {
        const int buf = it & 1, q0 = lo + it % tiles * AF_BN;
        copy_wait<0>();
        __syncthreads();
        if (it + 1 < heads * tiles) {
            fetch(it + 1, buf ^ 1);
            copy_commit();
        }
        const bf16 *qt = q_tile + buf * AF_BN * LDS, *ot = o_tile + buf * AF_BN * LDS;
        const float *lt = l_tile + buf * AF_BN + lane % 4 * 2,
                    *dt = d_tile + buf * AF_BN + lane % 4 * 2;
        float s[NT][4] = {}, dp[NT][4] = {}, slope[NT][4];
        mul_nt(s, at_rows(k_tile + warp * 16 * LDS), at_cols(qt));
        cap_scores(s, scale, softcap);
        const bool edge = (causal && k0 + 15 > q0) || (window && k0 <= q0 + AF_BN - 1 - window);
        weigh_queries(s, slope, lt, seen, edge, q0, softcap);
        mul_nn(dv, s, at_rows(ot));
        mul_nt(dp, at_rows(v_tile + warp * 16 * LDS), at_cols(ot));
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const float2 d = *(const float2 *)(dt + n * 8);
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] *= (dp[n][i] - (i % 2 ? d.y : d.x)) * slope[n][i];
        }
        mul_nn(dk, s, at_rows(qt));
    }
    copy_wait<0>();
    __syncthreads();
    bf16 *mine = k_tile + warp * 16 * LDS;
    dkv += split * stride + (i64)kv * E;
    stage(mine, dk, scale, scale);
    store_rows(dkv, lddkv, mine, 16, k0, t.to, E);
    mine = v_tile + warp * 16 * LDS;
    stage(mine, dv, 1.0f, 1.0f);
    store_rows(dkv + (i64)K * E, lddkv, mine, 16, k0, t.to, E);
}
#endif
