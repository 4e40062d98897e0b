/* rope.cu - rotary positions on the fused q|k|v rows, with optional RMS norm of q and k before the
 * rotation.  Contract: rope.c; twin: rope_cpu.c.
 *
 * Built with AF_T, AF_W (norm weights), AF_VEC, AF_NORM (0 or 1) and AF_PAIRS (neighbours turn
 * together; with AF_NORM only with AF_VEC 1). One block does AF_ROWS rows (rope_fwd: an even share
 * of them, at most as many): it makes their cosines and sines in shared memory, with AF_NORM the
 * norms of their heads (one warp per head, or the heads of a whole row added up), then every pair
 * (i, i + rot/2) of q and k once; v and what comes after `rot` pass through. Rows are read once
 * (twice with AF_NORM, the second time from cache). y may be qkv itself: a pair is read and written
 * by one thread; not with AF_NORM in rope_bwd, where qkv and dy are two buffers. Dynamic shared
 * memory: AF_ROWS * (rot + 2 (H+K)) floats. E and the strides must be multiples of AF_VEC, rot/2
 * with AF_NORM, rot with AF_PAIRS. */
// variants: (AF_T=bf16 AF_W=bf16 AF_VEC=8,1 | AF_T=half AF_W=half AF_VEC=8,1
//      | AF_T=float AF_W=float AF_VEC=4,1) AF_NORM=0,1
//    | (AF_T=bf16,half AF_W=float AF_VEC=8,1 | AF_T=float AF_W=bf16 AF_VEC=4,1) AF_NORM=1
//    | (AF_T=bf16 AF_W=bf16 | AF_T=half AF_W=half | AF_T=float AF_W=float) AF_VEC=1 AF_NORM=0,1
//      AF_PAIRS=1
//    | (AF_T=bf16 AF_W=bf16 AF_VEC=8 | AF_T=half AF_W=half AF_VEC=8
//      | AF_T=float AF_W=float AF_VEC=4) AF_NORM=0 AF_PAIRS=1
//    | (AF_T=bf16,half AF_W=float | AF_T=float AF_W=bf16) AF_VEC=1 AF_NORM=1 AF_PAIRS=1
// common: AF_T=bf16 AF_W=bf16 AF_VEC=8 AF_NORM=0
#include "rotate.cuh"

#ifndef AF_W
#define AF_W AF_T
#endif
#ifndef AF_NORM
#define AF_NORM 0
#endif
#ifndef AF_PAIRS
#define AF_PAIRS 0
#endif
#define AF_ROWS 4

extern __shared__ float shared[];

DEV void make_table(float2 *tab, const int *positions, const float *inv_freq, i64 n0, int rows,
                    int half_rot, float scale)
{
    for (int i = threadIdx.x; i < rows * half_rot; i += blockDim.x)
        tab[i] = rotation(positions[n0 + i / half_rot], inv_freq[i % half_rot], scale);
}

/* Column e of the gradient before the rotation: the transposed rotation of dy. */
DEV float unrotate(const AF_T *dy, const float2 *tab, int e, int half_rot)
{
    if (AF_PAIRS && e < 2 * half_rot) {
        const float2 cs = tab[e / 2];
        return load(dy + e) * cs.x + (e % 2 ? -load(dy + e - 1) : load(dy + e + 1)) * cs.y;
    }
    if (e < half_rot)
        return load(dy + e) * tab[e].x + load(dy + e + half_rot) * tab[e].y;
    if (e < 2 * half_rot)
        return load(dy + e) * tab[e - half_rot].x - load(dy + e - half_rot) * tab[e - half_rot].y;
    return load(dy + e);
}

struct head_norm { /* of one head: what multiplies, and (backward) mean(g x) rstd^2 */
    float rstd, c;
};

/* The sums of one head over columns [i, i + AF_VEC) and those that turn with them, or of the rest
 * of the head after `half_rot` pairs: x^2, and (with dy) x (w + plus_one) unrotate(dy). */
DEV void add_columns(float &ss, float &gx, const AF_T *x, const AF_T *dy, const float2 *tab,
                     const AF_W *w, int unit, int half_rot, float plus_one)
{
#if AF_VEC > 1
    const int per = half_rot / AF_VEC;
    const bool turns = unit < per;
    const int i = turns ? unit * AF_VEC : 2 * half_rot + (unit - per) * AF_VEC;
    float a[AF_VEC], wa[AF_VEC], g[AF_VEC];
    load_n(a, x + i);
#pragma unroll
    for (int k = 0; k < AF_VEC; k++)
        ss += a[k] * a[k];
    if (dy) {
        load_n(wa, w + i);
        load_n(g, dy + i);
    }
    if (!turns) {
#pragma unroll
        for (int k = 0; dy && k < AF_VEC; k++)
            gx += a[k] * (wa[k] + plus_one) * g[k];
        return;
    }
    float b[AF_VEC], wb[AF_VEC], h[AF_VEC];
    load_n(b, x + i + half_rot);
    if (dy) {
        load_n(wb, w + i + half_rot);
        load_n(h, dy + i + half_rot);
    }
#pragma unroll
    for (int k = 0; k < AF_VEC; k++) {
        ss += b[k] * b[k];
        if (dy)
            gx += a[k] * (wa[k] + plus_one) * (g[k] * tab[i + k].x + h[k] * tab[i + k].y) +
                  b[k] * (wb[k] + plus_one) * (h[k] * tab[i + k].x - g[k] * tab[i + k].y);
    }
#else
    const float v = load(x + unit);
    ss += v * v;
    if (dy)
        gx += v * (load(w + unit) + plus_one) * unrotate(dy, tab, unit, half_rot);
#endif
}

/* Fills hn[rows][H+K]; dy only in the backward. As many lanes a head as it has columns for. */
DEV void make_norms(head_norm *hn, const AF_T *x, const AF_T *dy, const float2 *tab,
                    const AF_W *q_norm, const AF_W *k_norm, int rows, int H, int K, int E,
                    int half_rot, i64 ldx, i64 lddy, float eps, float plus_one, int whole)
{
    const int units = AF_VEC > 1 ? (E - half_rot) / AF_VEC : E, heads = rows * (H + K);
    int lanes = 32;
    while (lanes > 1 && lanes / 2 >= units)
        lanes /= 2;
    const int lane = threadIdx.x % lanes, step = blockDim.x / lanes;
    for (int j0 = 0; j0 < heads; j0 += step) { /* whole warps come to the sums */
        const int j = j0 + threadIdx.x / lanes, r = j / (H + K), h = j % (H + K);
        float ss = 0.0f, gx = 0.0f;
        for (int u = lane; j < heads && u < units; u += lanes) {
            const AF_W *w = h < H ? q_norm : k_norm;
            w += whole ? (i64)(h < H ? h : h - H) * E : 0;
            add_columns(ss, gx, x + r * ldx + (i64)h * E, dy ? dy + r * lddy + (i64)h * E : 0,
                        tab + r * half_rot, w, u, half_rot, plus_one);
        }
        for (int d = lanes / 2; d; d >>= 1) {
            ss += __shfl_xor_sync(FULL, ss, d);
            gx += __shfl_xor_sync(FULL, gx, d);
        }
        if (lane == 0 && j < heads)
            hn[j] = {ss, gx};
    }
    __syncthreads();
    if (whole) { /* one norm for all heads of q, one for those of k */
        for (int j = threadIdx.x; j < rows * 2; j += blockDim.x) {
            head_norm *at = hn + j / 2 * (H + K) + (j % 2 ? H : 0), sum = {0.0f, 0.0f};
            const int heads = j % 2 ? K : H;
            for (int h = 0; h < heads; h++) {
                sum.rstd += at[h].rstd;
                sum.c += at[h].c;
            }
            for (int h = 0; h < heads; h++)
                at[h] = sum;
        }
        __syncthreads();
    }
    for (int j = threadIdx.x; j < rows * (H + K); j += blockDim.x) {
        const float width = whole ? (float)E * (j % (H + K) < H ? H : K) : (float)E;
        const float r = rsqrtf(hn[j].rstd / width + eps);
        hn[j] = {r, hn[j].c / width * r * r};
    }
    __syncthreads();
}

DEV const AF_W *norm_weight(const AF_W *q_norm, const AF_W *k_norm, int h, int H, int E, int whole)
{
    const AF_W *w = h < H ? q_norm : k_norm;
    return whole ? w + (i64)(h < H ? h : h - H) * E : w;
}

/* v *= rstd * (w + plus_one) */
template <int N> DEV void apply_norm(float (&v)[N], const AF_W *w, float rstd, float plus_one)
{
    float wv[N];
    load_n(wv, w);
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] *= rstd * (wv[k] + plus_one);
}
/* g := rstd * (g * (w + plus_one) - x * c) */
template <int N>
DEV void apply_norm_bwd(float (&g)[N], const AF_W *w, const AF_T *x, head_norm hn, float plus_one)
{
    float wv[N], xv[N];
    load_n(wv, w);
    load_n(xv, x);
#pragma unroll
    for (int k = 0; k < N; k++)
        g[k] = hn.rstd * (g[k] * (wv[k] + plus_one) - xv[k] * hn.c);
}

#if AF_PAIRS && AF_VEC > 1
/* Neighbours turn together, several pairs a thread. */
DEV void rotate_pairs(AF_T *y, const AF_T *x, const float2 *tab, int rows, int H, int K, int E,
                      int half_rot, i64 ldy, i64 ldx, float sign)
{
    const int per_head = 2 * half_rot / AF_VEC, units = (H + K) * per_head;
    for (int j = threadIdx.x; j < rows * units; j += blockDim.x) {
        const int r = j / units, h = j % units / per_head, i = j % per_head * AF_VEC;
        const i64 at = (i64)h * E + i;
        float a[AF_VEC];
        load_n(a, x + r * ldx + at);
#pragma unroll
        for (int k = 0; k < AF_VEC; k += 2) {
            const float2 cs = tab[r * half_rot + (i + k) / 2];
            rotate_pair(a[k], a[k + 1], make_float2(cs.x, cs.y * sign));
        }
        store_n(y + r * ldy + at, a);
    }
}
#endif

/* sign +1: y = rotate(norm(x)); sign -1: y = norm'(unrotate(x = dy)) with `pre` the forward's qkv.
 * N columns, and those that turn with them, a thread. */
template <int N>
DEV void rotate_rows(AF_T *y, const AF_T *x, const AF_T *pre, const float2 *tab,
                     const head_norm *hn, const AF_W *q_norm, const AF_W *k_norm, int rows, int H,
                     int K, int E, int half_rot, i64 ldy, i64 ldx, i64 ldp, float plus_one,
                     int whole, float sign)
{
    const int per_head = half_rot / N, pairs = (H + K) * per_head;
    for (int j = threadIdx.x; j < rows * pairs; j += blockDim.x) {
        const int r = j / pairs, h = j % pairs / per_head, i = j % per_head * N;
        const int first = AF_PAIRS ? 2 * i : i, other = AF_PAIRS ? 1 : half_rot;
        const i64 at = (i64)h * E + first;
        float a[N], b[N];
        load_n(a, x + r * ldx + at);
        load_n(b, x + r * ldx + at + other);
        const AF_W *w = AF_NORM ? norm_weight(q_norm, k_norm, h, H, E, whole) + first : 0;
        if (AF_NORM && sign > 0) {
            apply_norm(a, w, hn[r * (H + K) + h].rstd, plus_one);
            apply_norm(b, w + other, hn[r * (H + K) + h].rstd, plus_one);
        }
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float2 cs = tab[r * half_rot + i + k];
            rotate_pair(a[k], b[k], make_float2(cs.x, cs.y * sign));
        }
        if (AF_NORM && sign < 0) {
            apply_norm_bwd(a, w, pre + r * ldp + at, hn[r * (H + K) + h], plus_one);
            apply_norm_bwd(b, w + other, pre + r * ldp + at + other, hn[r * (H + K) + h], plus_one);
        }
        store_n(y + r * ldy + at, a);
        store_n(y + r * ldy + at + other, b);
    }
}

#if AF_NORM && AF_VEC > 1
/* As rotate_rows after make_norms, bit for bit, where all of a head turns and a power of two of
 * lanes has it: what is read is kept until the norm is known. */
DEV void turn_rows(AF_T *y, const AF_T *x, const AF_T *pre, const float2 *tab, const AF_W *q_norm,
                   const AF_W *k_norm, int rows, int H, int K, int E, i64 ldy, i64 ldx, i64 ldp,
                   float eps, float plus_one, float sign)
{
    const int half_rot = E / 2, lanes = half_rot / AF_VEC, pairs = (H + K) * lanes;
    for (int j0 = 0; j0 < rows * pairs; j0 += blockDim.x) { /* whole warps come to the sums */
        const int j = min(j0 + (int)threadIdx.x, rows * pairs - 1);
        const int r = j / pairs, h = j % pairs / lanes, i = j % lanes * AF_VEC;
        const i64 at = (i64)h * E + i;
        const AF_W *w = (h < H ? q_norm : k_norm) + i;
        const float2 *cs = tab + r * half_rot + i;
        float a[AF_VEC], b[AF_VEC], wa[AF_VEC], wb[AF_VEC], g[AF_VEC], d[AF_VEC];
        float ss = 0.0f, gx = 0.0f;
        load_n(a, (sign > 0 ? x + r * ldx : pre + r * ldp) + at);
        load_n(b, (sign > 0 ? x + r * ldx : pre + r * ldp) + at + half_rot);
        load_n(wa, w);
        load_n(wb, w + half_rot);
        if (sign < 0) {
            load_n(g, x + r * ldx + at);
            load_n(d, x + r * ldx + at + half_rot);
        }
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            ss += a[k] * a[k];
#pragma unroll
        for (int k = 0; k < AF_VEC; k++) {
            ss += b[k] * b[k];
            if (sign < 0)
                gx += a[k] * (wa[k] + plus_one) * (g[k] * cs[k].x + d[k] * cs[k].y) +
                      b[k] * (wb[k] + plus_one) * (d[k] * cs[k].x - g[k] * cs[k].y);
        }
        for (int far = lanes / 2; far; far >>= 1) {
            ss += __shfl_xor_sync(FULL, ss, far);
            gx += __shfl_xor_sync(FULL, gx, far);
        }
        const float rstd = rsqrtf(ss / (float)E + eps), c = gx / (float)E * rstd * rstd;
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            if (sign > 0) {
                a[k] *= rstd * (wa[k] + plus_one);
                b[k] *= rstd * (wb[k] + plus_one);
                rotate_pair(a[k], b[k], cs[k]);
            } else {
                rotate_pair(g[k], d[k], make_float2(cs[k].x, -cs[k].y));
                a[k] = rstd * (g[k] * (wa[k] + plus_one) - a[k] * c);
                b[k] = rstd * (d[k] * (wb[k] + plus_one) - b[k] * c);
            }
        if (j0 + (int)threadIdx.x < rows * pairs) {
            store_n(y + r * ldy + at, a);
            store_n(y + r * ldy + at + half_rot, b);
        }
    }
}
#endif

/* The rest of each q and k head, then v, as they are but for the norm. */
DEV void pass_rest(AF_T *y, const AF_T *x, const AF_T *pre, const head_norm *hn, const AF_W *q_norm,
                   const AF_W *k_norm, int rows, int H, int K, int E, int half_rot, i64 ldy,
                   i64 ldx, i64 ldp, float plus_one, int whole, float sign)
{
    const int first = (2 * half_rot + AF_VEC - 1) / AF_VEC * AF_VEC, odd = first - 2 * half_rot;
    const int rest = (E - first) / AF_VEC, tails = (H + K) * rest, vs = K * E / AF_VEC;
    if (y == x && !(AF_NORM && rest))
        return;
    for (int j = threadIdx.x; j < rows * (H + K) * odd; j += blockDim.x) { /* without AF_NORM */
        const int r = j / ((H + K) * odd), h = j / odd % (H + K);
        const i64 at = (i64)h * E + 2 * half_rot + j % odd;
        y[r * ldy + at] = x[r * ldx + at];
    }
    for (int j = threadIdx.x; j < rows * (tails + vs); j += blockDim.x) {
        const int r = j / (tails + vs), t = j % (tails + vs);
        const int h = t < tails ? t / rest : 0, e = t < tails ? first + t % rest * AF_VEC : 0;
        const i64 at = t < tails ? (i64)h * E + e : (i64)(H + K) * E + (i64)(t - tails) * AF_VEC;
        float a[AF_VEC];
        load_n(a, x + r * ldx + at);
        if (AF_NORM && t < tails) {
            const AF_W *w = norm_weight(q_norm, k_norm, h, H, E, whole) + e;
            if (sign > 0)
                apply_norm(a, w, hn[r * (H + K) + h].rstd, plus_one);
            else
                apply_norm_bwd(a, w, pre + r * ldp + at, hn[r * (H + K) + h], plus_one);
        }
        store_n(y + r * ldy + at, a);
    }
}

/* One row after another: see rotate_rows. */
DEV void rope_rows(AF_T *y, const AF_T *x, const AF_T *pre, const int *positions,
                   const float *inv_freq, const AF_W *q_norm, const AF_W *k_norm, i64 n0, int rows,
                   int H, int K, int E, int half_rot, i64 ldy, i64 ldx, i64 ldp, float scale,
                   float eps, float plus_one, int whole, float sign)
{
    float2 *tab = (float2 *)shared;
    head_norm *hn = (head_norm *)(tab + AF_ROWS * half_rot);
    make_table(tab, positions, inv_freq, n0, rows, half_rot, scale);
    __syncthreads();
#if AF_NORM && AF_VEC > 1
    const int lanes = half_rot / AF_VEC;
    if (2 * half_rot == E && !whole && lanes <= 32 && (lanes & (lanes - 1)) == 0)
        turn_rows(y, x, pre, tab, q_norm, k_norm, rows, H, K, E, ldy, ldx, ldp, eps, plus_one,
                  sign);
    else
#endif
    {
        if (AF_NORM)
            make_norms(hn, sign > 0 ? x : pre, sign > 0 ? 0 : x, tab, q_norm, k_norm, rows, H, K, E,
                       half_rot, sign > 0 ? ldx : ldp, ldx, eps, plus_one, whole);
#if AF_PAIRS && AF_VEC > 1
        rotate_pairs(y, x, tab, rows, H, K, E, half_rot, ldy, ldx, sign);
#else
        if (AF_VEC > 1 && half_rot % AF_VEC)
            rotate_rows<1>(y, x, pre, tab, hn, q_norm, k_norm, rows, H, K, E, half_rot, ldy, ldx,
                           ldp, plus_one, whole, sign);
        else
            rotate_rows<AF_VEC>(y, x, pre, tab, hn, q_norm, k_norm, rows, H, K, E, half_rot, ldy,
                                ldx, ldp, plus_one, whole, sign);
#endif
    }
    pass_rest(y, x, pre, hn, q_norm, k_norm, rows, H, K, E, half_rot, ldy, ldx, ldp, plus_one,
              whole, sign);
}

extern "C" __global__ void rope_fwd(AF_T *y, const AF_T *qkv, const int *positions,
                                    const float *inv_freq, const AF_W *q_norm, const AF_W *k_norm,
                                    long long rows, int H, int K, int E, int rot, long long ldy,
                                    long long ldx, float scale, float eps, float plus_one,
                                    int whole)
{
    previous_done();
    const i64 per = (rows + gridDim.x - 1) / gridDim.x, n0 = blockIdx.x * per;
    const int live = (int)min(rows - n0, per);
    rope_rows(y + n0 * ldy, qkv + n0 * ldx, 0, positions, inv_freq, q_norm, k_norm, n0, live, H, K,
              E, rot / 2, ldy, ldx, 0, scale, eps, plus_one, whole, 1.0f);
}

extern "C" __global__ void rope_bwd(AF_T *dqkv, const AF_T *dy, const AF_T *qkv,
                                    const int *positions, const float *inv_freq, const AF_W *q_norm,
                                    const AF_W *k_norm, long long rows, int H, int K, int E,
                                    int rot, long long lddx, long long lddy, long long ldx,
                                    float scale, float eps, float plus_one, int whole)
{
    previous_done();
    const i64 n0 = (i64)blockIdx.x * AF_ROWS;
    const int live = (int)min(rows - n0, (i64)AF_ROWS);
    rope_rows(dqkv + n0 * lddx, dy + n0 * lddy, qkv + n0 * ldx, positions, inv_freq, q_norm, k_norm,
              n0, live, H, K, E, rot / 2, lddx, lddy, ldx, scale, eps, plus_one, whole, -1.0f);
}

/* The first `width` columns of each row times 1 + beta ln(1 + floor((position + from) /
 * length)); block (x, y) does columns of row x. */
extern "C" __global__ void rope_query(AF_T *y, const int *positions, int width, long long ldy,
                                      float beta, int length, int from)
{
    previous_done();
    const int c = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    const float by = 1.0f + beta * logf(1.0f + (float)((positions[blockIdx.x] + from) / length));
    if (c < width)
        store(y + blockIdx.x * ldy + c, load(y + blockIdx.x * ldy + c) * by);
}

/* Gradients of the norm weights, stage one: block p sums rows p*per .. into part[p][widths of
 * q_norm and k_norm]: E and E, or H*E and K*E when `whole`. Each column belongs to one thread.
 * Dynamic shared memory: AF_ROWS * (rot + 2 (H+K)) + both widths, floats. Stage two: reduce_parts.
 */
extern "C" __global__ void rope_dnorm(float *part, const AF_T *dy, const AF_T *qkv,
                                      const int *positions, const float *inv_freq,
                                      const AF_W *q_norm, const AF_W *k_norm, long long rows, int H,
                                      int K, int E, int rot, long long lddy, long long ldx,
                                      float scale, float eps, float plus_one, int whole,
                                      long long per)
{
    previous_done();
    const int half_rot = rot / 2, wq = whole ? H * E : E, wk = whole ? K * E : E;
    float2 *tab = (float2 *)shared;
    head_norm *hn = (head_norm *)(tab + AF_ROWS * half_rot);
    float *acc = (float *)(hn + AF_ROWS * (H + K));
    for (int c = threadIdx.x; c < wq + wk; c += blockDim.x)
        acc[c] = 0.0f;
    const i64 to = min(rows, (blockIdx.x + 1) * per);
    for (i64 n0 = blockIdx.x * per; n0 < to; n0 += AF_ROWS) {
        const int live = (int)min(to - n0, (i64)AF_ROWS);
        __syncthreads();
        make_table(tab, positions, inv_freq, n0, live, half_rot, scale);
        __syncthreads();
        make_norms(hn, qkv + n0 * ldx, 0, tab, q_norm, k_norm, live, H, K, E, half_rot, ldx, 0, eps,
                   plus_one, whole);
        for (int c = threadIdx.x; c < wq + wk; c += blockDim.x) {
            const bool is_q = c < wq;
            const int col = is_q ? c : c - wq, e = col % E;
            const int h0 = (is_q ? 0 : H) + col / E, heads = whole ? 1 : is_q ? H : K;
            for (int r = 0; r < live; r++)
                for (int h = h0; h < h0 + heads; h++) {
                    const i64 at = (i64)h * E;
                    acc[c] += unrotate(dy + (n0 + r) * lddy + at, tab + r * half_rot, e, half_rot) *
                              load(qkv + (n0 + r) * ldx + at + e) * hn[r * (H + K) + h].rstd;
                }
        }
    }
    __syncthreads();
    for (int c = threadIdx.x; c < wq + wk; c += blockDim.x)
        part[(i64)blockIdx.x * (wq + wk) + c] = acc[c];
}
