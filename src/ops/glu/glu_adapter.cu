/* glu_adapter.cu - the gated unit together with the low-rank products next to it, so that its wide
 * values are read once.  Contract: glu_adapter.h.
 *
 * Forward, h = act(gate) * up and xa = h A'. Backward, dgate and dup, and from them g = dgate Bg |
 * dup Bu and the gradients of B, and from h, made once more, the gradient of the next projection's
 * A. Tiles of 16 tokens and 256 columns pass through shared memory, where tensor cores read the
 * rounded values. Sums over columns (g, xa) and over tokens (gradients) end in parts, which
 * adapter_sums adds in order. Ranks are 8 or 16, F is a multiple of 8, rows start on 16 bytes.
 * With AF_CODES the rows that a product in FP8 reads are written as its codes (fp8_codes.cuh): a
 * row is many blocks' work, so its scale comes from a bound, the largest magnitudes of the rows it
 * is made of, which the products before have found. The bf16 rows are written only if others read
 * them. */
// variants: AF_ACT=0..3 | AF_ACT=0..3 AF_CODES=1
// common: AF_ACT=0
#include "fp8_codes.cuh"
#include "glu.cuh"

#ifndef AF_CODES
#define AF_CODES 0
#endif

#define COLS   256 /* of a tile: one access of 16 bytes for each lane of a warp */
#define TOKENS 16
#define RANK   16         /* of each adapter, zeros after its own */
#define PITCH  (COLS + 8) /* rows an odd number of 16 bytes apart */
#define PLANE  (TOKENS * PITCH)
#define ZP     (3 * RANK + 8)
#define BP     (RANK + 8)
#define RP     (RANK + 4)
#define SUMS   (8 * TOKENS * RP)  /* floats: of each warp */
#define WIDE   (AF_CODES ? 4 : 2) /* tiles of a strip of columns, forward */

/* Eight products of a lane's row and columns, in f32 and then as stored. */
DEV void unpack8(float (&f)[8], const uint4 &v)
{
    const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        f[2 * i] = __uint_as_float(w[i] << 16);
        f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}
DEV uint4 pack8(const float (&f)[8])
{
    return make_uint4(pack_bf16(f[0], f[1]), pack_bf16(f[2], f[3]), pack_bf16(f[4], f[5]),
                      pack_bf16(f[6], f[7]));
}
DEV uint4 read16(const bf16 *p, bool in) { return in ? *(const uint4 *)p : make_uint4(0, 0, 0, 0); }

/* d[16][16] += a[16][16] b[16][16] of which b's halves lie in b[0, 1] and b[2, 3]. */
DEV void mma_pair(float (&d)[2][4], const u32 (&a)[4], const u32 (&b)[4])
{
    mma(d[0], a, b[0], b[1]);
    mma(d[1], a, b[2], b[3]);
}
/* A warp's 16 x 16 sums to shared memory, */
DEV void put_sums(float *sum, const float (&acc)[2][4])
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(float2 *)(sum + (lane / 4 + i * 8) * RP + j * 8 + lane % 4 * 2) =
                make_float2(acc[j][2 * i], acc[j][2 * i + 1]);
}
/* and those of `warps` warps together: thread t makes token t / 16, rank t % 16. */
template <int WARPS> DEV float take_sums(const float *sum)
{
    const float *at = sum + threadIdx.x / RANK * RP + threadIdx.x % RANK;
    float v = at[0];
#pragma unroll
    for (int w = 1; w < WARPS; w++)
        v += at[w * TOKENS * RP];
    return v;
}

/* Only with AF_CODES. */
struct fp8_out {
    u8 *codes;                 /* rows of F, or of 2 F */
    float *scale;              /* of a row */
    const u32 *most, *most_dy; /* [2][N] of gate and up, [N] of dy: bits of f32 */
};
#if AF_CODES
/* |act(x)| <= |x|, and no slope is above 1.13. Infinities and NaN stay. */
struct bounds {
    u32 gate, up, dy;
};
DEV bounds bounds_at(const fp8_out &f, i64 n, i64 N, bool in)
{
    if (!in)
        return {0, 0, 0};
    return {f.most[n], f.most[N + n], f.most_dy ? f.most_dy[n] : 0};
}
DEV fp8_scale scale_within(float bound, bool finite)
{
    return scale_of(finite ? min(__float_as_uint(bound), 0x7f7fffffu) : 0x7f800000u);
}
DEV fp8_scale scale_fwd(const bounds &b)
{
    return scale_within(__uint_as_float(b.gate) * __uint_as_float(b.up),
                        b.gate < 0x7f800000u && b.up < 0x7f800000u);
}
DEV fp8_scale scale_bwd(const bounds &b)
{
    const float of = fmaxf(__uint_as_float(b.gate), 1.13f * __uint_as_float(b.up));
    return scale_within(__uint_as_float(b.dy) * of,
                        b.gate < 0x7f800000u && b.up < 0x7f800000u && b.dy < 0x7f800000u);
}
#endif

/* ---- forward ---- */

#if AF_CODES /* measured in this form only */
/* Block (x, y): columns [x, x + 1) * WIDE * COLS, tokens [y, y + 1) * span. part[x][n][RANK]. */
extern "C" __global__ void __launch_bounds__(256, 3)
    glu_adapter_fwd_codes(bf16 *y, long long ldy, const bf16 *gate_up, long long ldg, const bf16 *a,
                          long long lda, float *part, long long N, int F, int span, int rank,
                          fp8_out f8)
{
    extern __shared__ __align__(16) bf16 smem[];
    bf16 *planes = smem, *as = planes + 2 * PLANE;
    float *sums = (float *)(as + RANK * (WIDE * COLS + 8));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int c0 = blockIdx.x * WIDE * COLS, count = min((F - c0 + COLS - 1) / COLS, WIDE);
    const i64 from = (i64)blockIdx.y * span, to = min(from + span, N);
    const int steps = (int)((to - from + TOKENS - 1) / TOKENS) * count;
    for (int i = threadIdx.x; i < RANK * WIDE * COLS / 8; i += 256) {
        const int r = i / (WIDE * COLS / 8), c = i % (WIDE * COLS / 8) * 8;
        *(uint4 *)(as + r * (WIDE * COLS + 8) + c) =
            read16(a + r * lda + c0 + c, r < rank && c0 + c < F);
    }
    uint4 g[2], u[2];
    bounds most[2];
    auto fetch = [&](int s) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const i64 n = from + s / count * TOKENS + warp + 8 * i;
            const int c = c0 + s % count * COLS + lane * 8;
            g[i] = read16(gate_up + n * ldg + c, n < to && c < F);
            u[i] = read16(gate_up + n * ldg + F + c, n < to && c < F);
            most[i] = bounds_at(f8, n, N, n < to);
        }
    };
    float acc[2][4] = {};
    fetch(0);
    for (int s = 0; s < steps; s++) {
        const i64 n0 = from + s / count * TOKENS;
        const int k = s % count;
        bf16 *tile = planes + s % 2 * PLANE;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const i64 n = n0 + warp + 8 * i;
            const int c = c0 + k * COLS + lane * 8;
            float gate[8], h[8], slope;
            unpack8(gate, g[i]);
            unpack8(h, u[i]);
#pragma unroll
            for (int j = 0; j < 8; j++)
                h[j] *= act(gate[j], &slope);
            const uint4 v = pack8(h);
            const fp8_scale by = scale_fwd(most[i]);
            if (n < to && c < F)
                *(uint2 *)(f8.codes + n * F + c) = codes_of(v, by.inverse);
            if (n < to && c == 0)
                f8.scale[n] = by.scale;
            if (y && n < to && c < F)
                *(uint4 *)(y + n * ldy + c) = v;
            *(uint4 *)(tile + (warp + 8 * i) * PITCH + lane * 8) = v;
        }
        if (s + 1 < steps)
            fetch(s + 1);
        __syncthreads();
        if (k == 0 && s > 0 && n0 - TOKENS + threadIdx.x / RANK < to)
            part[(blockIdx.x * N + n0 - TOKENS + threadIdx.x / RANK) * RANK + threadIdx.x % RANK] =
                take_sums<8>(sums + s / count % 2 * SUMS);
#pragma unroll
        for (int j = 0; j < 2; j++) { /* a warp's 32 columns */
            u32 x[4], b[4];
            const int c = warp * 32 + j * 16;
            ldmatrix4(x, smem_at(tile + lane % 16 * PITCH + c + lane / 16 * 8));
            ldmatrix4(b, smem_at(as + (lane / 16 * 8 + lane % 8) * (WIDE * COLS + 8) + k * COLS +
                                 c + lane / 8 % 2 * 8));
            mma_pair(acc, x, b);
        }
        if (k == count - 1) {
            put_sums(sums + (s / count + 1) % 2 * SUMS + warp * TOKENS * RP, acc);
#pragma unroll
            for (int j = 0; j < 8; j++)
                acc[j / 4][j % 4] = 0.0f;
        }
    }
    __syncthreads();
    const i64 n = from + (steps / count - 1) * TOKENS + threadIdx.x / RANK;
    if (n < to)
        part[(blockIdx.x * N + n) * RANK + threadIdx.x % RANK] =
            take_sums<8>(sums + steps / count % 2 * SUMS);
}
#else
/* The first unit, of those that blocks share equally, of block b. */
DEV int first_unit(int b, int units) { return (int)((i64)b * units / gridDim.x); }

/* part[strip][n][RANK], strips of WIDE * COLS columns. A unit is a strip's 16 tokens; a block takes
 * one after another, and asks for the first values of the next one before it has ended. */
extern "C" __global__ void __launch_bounds__(256, 3)
    glu_adapter_fwd(bf16 *y, long long ldy, const bf16 *gate_up, long long ldg, const bf16 *a,
                    long long lda, float *part, long long N, int F, int rank)
{
    extern __shared__ __align__(16) bf16 smem[];
    bf16 *as = smem + 2 * PLANE;
    float *sums = (float *)(as + RANK * (WIDE * COLS + 8));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int tiles = (int)((N + TOKENS - 1) / TOKENS);
    const int units = (F + WIDE * COLS - 1) / (WIDE * COLS) * tiles;
    const int from = first_unit(blockIdx.x, units), to = first_unit(blockIdx.x + 1, units);
    int ask = from, ask_tile = from % tiles; /* what is read next: columns from ask_c on */
    int ask_strip = from / tiles * WIDE * COLS, ask_c = ask_strip;
    uint4 g[2], u[2];
    auto fetch = [&]() {
        if (ask == to)
            return;
        const int c = ask_c + lane * 8;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const i64 n = (i64)ask_tile * TOKENS + warp + 8 * i;
            g[i] = read16(gate_up + n * ldg + c, n < N && c < F);
            u[i] = read16(gate_up + n * ldg + F + c, n < N && c < F);
        }
        ask_c += COLS;
        if (ask_c < F && ask_c < ask_strip + WIDE * COLS)
            return;
        ask++;
        if (++ask_tile == tiles) {
            ask_tile = 0;
            ask_strip += WIDE * COLS;
        }
        ask_c = ask_strip;
    };
    fetch();
    float acc[2][4] = {};
    int plane = 0, buffer = 0, tile = from % tiles, strip = from / tiles;
    float *done = 0; /* where the sums of the unit before this one belong */
    for (int unit = from; unit < to; unit++) {
        const int c0 = strip * WIDE * COLS, count = min((F - c0 + COLS - 1) / COLS, WIDE);
        const i64 n0 = (i64)tile * TOKENS;
        if (unit == from || tile == 0) { /* another strip */
            __syncthreads();
            for (int i = threadIdx.x; i < RANK * WIDE * COLS / 8; i += 256) {
                const int r = i / (WIDE * COLS / 8), c = i % (WIDE * COLS / 8) * 8;
                *(uint4 *)(as + r * (WIDE * COLS + 8) + c) =
                    read16(a + r * lda + c0 + c, r < rank && c0 + c < F);
            }
        }
        for (int k = 0; k < count; k++, plane ^= 1) {
            bf16 *at = smem + plane * PLANE;
            const int c = c0 + k * COLS + lane * 8;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const i64 n = n0 + warp + 8 * i;
                float gate[8], h[8], slope;
                unpack8(gate, g[i]);
                unpack8(h, u[i]);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    h[j] *= act(gate[j], &slope);
                const uint4 v = pack8(h);
                if (n < N && c < F)
                    *(uint4 *)(y + n * ldy + c) = v;
                *(uint4 *)(at + (warp + 8 * i) * PITCH + lane * 8) = v;
            }
            fetch();
            __syncthreads();
            if (k == 0 && done)
                *done = take_sums<8>(sums + (buffer ^ 1) * SUMS);
#pragma unroll
            for (int j = 0; j < 2; j++) { /* a warp's 32 columns */
                u32 x[4], b[4];
                const int w = warp * 32 + j * 16;
                ldmatrix4(x, smem_at(at + lane % 16 * PITCH + w + lane / 16 * 8));
                ldmatrix4(b, smem_at(as + (lane / 16 * 8 + lane % 8) * (WIDE * COLS + 8) +
                                     k * COLS + w + lane / 8 % 2 * 8));
                mma_pair(acc, x, b);
            }
        }
        put_sums(sums + buffer * SUMS + warp * TOKENS * RP, acc);
#pragma unroll
        for (int j = 0; j < 8; j++)
            acc[j / 4][j % 4] = 0.0f;
        const i64 n = n0 + threadIdx.x / RANK;
        done = n < N ? part + (strip * N + n) * RANK + threadIdx.x % RANK : 0;
        buffer ^= 1;
        if (++tile == tiles) {
            tile = 0;
            strip++;
        }
    }
    __syncthreads();
    if (done)
        *done = take_sums<8>(sums + (buffer ^ 1) * SUMS);
}
#endif

/* ---- backward ---- */

struct glu_ranks {
    int gate, up, down; /* down is 0 without that adapter */
};

/* What a thread reads for one tile: two rows of each operand, and 8 of the narrow values. */
struct operands {
    uint4 g[2], u[2], d[2], z;
#if AF_CODES
    bounds most[2];
#endif
};

/* Block (x, y): columns [x, x + 1) * COLS of gate and up, tokens [y, y + 1) * span.
 * low[x][n][2 RANK], and dw[y]: as B's gradient lies, gate's part and up's, then A's. dgate_up may
 * be gate_up. */
extern "C" __global__ void __launch_bounds__(256, 2)
    glu_adapter_bwd(bf16 *dgate_up, long long lddg, const bf16 *gate_up, long long ldg,
                    const bf16 *dy, long long lddy, const bf16 *b, long long ldb, const bf16 *xa,
                    long long ldxa, const bf16 *down, long long ldd, float *low, float *dw,
                    long long N, int F, int span, glu_ranks ranks, fp8_out f8)
{
    extern __shared__ __align__(16) bf16 smem[];
    bf16 *planes = smem, *zs = planes + 2 * 3 * PLANE, *bs = zs + 2 * TOKENS * ZP;
    float *sums = (float *)(bs + 2 * COLS * BP);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int c0 = blockIdx.x * COLS, column = c0 + lane * 8;
    const bool in = column < F;
    const i64 from = (i64)blockIdx.y * span, to = min(from + span, N);
    for (int i = threadIdx.x; i < 2 * COLS * 2; i += 256) {
        const int part = i / (2 * COLS), r = i / 2 % COLS, c = i % 2 * 8;
        *(uint4 *)(bs + (part * COLS + r) * BP + c) =
            read16(b + (part * (i64)F + c0 + r) * ldb + part * ranks.gate + c,
                   c0 + r < F && c < (part ? ranks.up : ranks.gate));
    }
    operands o;
    auto fetch = [&](i64 n0) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const i64 n = n0 + warp + 8 * i;
            const bool yes = in && n < to;
            o.g[i] = read16(gate_up + n * ldg + column, yes);
            o.u[i] = read16(gate_up + n * ldg + F + column, yes);
            o.d[i] = read16(dy + n * lddy + column, yes);
#if AF_CODES
            o.most[i] = bounds_at(f8, n, N, yes);
#endif
        }
        const int r = threadIdx.x / 6, of = threadIdx.x % 6 / 2, c = threadIdx.x % 2 * 8;
        const bool yes = r < TOKENS && n0 + r < to &&
                         c < (of == 0   ? ranks.gate
                              : of == 1 ? ranks.up
                                        : ranks.down);
        o.z = read16(
            of == 2 ? down + (n0 + r) * ldd + c : xa + (n0 + r) * ldxa + of * ranks.gate + c, yes);
    };
    /* a warp's columns: 64 of gate or of up, and 32 of h */
    const int half = warp / 4, w0 = warp % 4 * 64;
    float db[4][2][4] = {}, da[2][2][4] = {};
    fetch(from);
    int s = 0;
    for (i64 n0 = from; n0 < to; n0 += TOKENS, s ^= 1) {
        bf16 *tile = planes + s * 3 * PLANE, *z = zs + s * TOKENS * ZP;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const i64 n = n0 + warp + 8 * i;
            float g[8], u[8], d[8], h[8];
            unpack8(g, o.g[i]);
            unpack8(u, o.u[i]);
            unpack8(d, o.d[i]);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float slope;
                const float y = act(g[j], &slope);
                h[j] = y * u[j];
                g[j] = d[j] * u[j] * slope;
                u[j] = d[j] * y;
            }
            const uint4 dg = pack8(g), du = pack8(u);
#if AF_CODES
            const fp8_scale by = scale_bwd(o.most[i]);
            if (in && n < to) {
                *(uint2 *)(f8.codes + n * 2 * F + column) = codes_of(dg, by.inverse);
                *(uint2 *)(f8.codes + n * 2 * F + F + column) = codes_of(du, by.inverse);
            }
            if (n < to && column == 0)
                f8.scale[n] = by.scale;
            if (dgate_up && in && n < to) {
#else
            if (in && n < to) {
#endif
                *(uint4 *)(dgate_up + n * lddg + column) = dg;
                *(uint4 *)(dgate_up + n * lddg + F + column) = du;
            }
            bf16 *at = tile + (warp + 8 * i) * PITCH + lane * 8;
            *(uint4 *)at = dg;
            *(uint4 *)(at + PLANE) = du;
            *(uint4 *)(at + 2 * PLANE) = pack8(h);
        }
        if (threadIdx.x < TOKENS * 6)
            *(uint4 *)(z + threadIdx.x / 6 * ZP + threadIdx.x % 6 * 8) = o.z;
        if (n0 + TOKENS < to)
            fetch(n0 + TOKENS);
        __syncthreads();
        const i64 n = n0 - TOKENS + threadIdx.x / RANK;
        if (n0 > from) {
            float *p = low + (blockIdx.x * N + n) * 2 * RANK + threadIdx.x % RANK;
            p[0] = take_sums<4>(sums + (s ^ 1) * SUMS);
            p[RANK] = take_sums<4>(sums + (s ^ 1) * SUMS + 4 * TOKENS * RP);
        }
        float acc[2][4] = {};
        u32 zb[4], a[4], bb[4];
        ldmatrix4_trans(zb, smem_at(z + lane % 16 * ZP + half * RANK + lane / 16 * 8));
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const bf16 *at = tile + half * PLANE + w0 + k * 16;
            ldmatrix4(a, smem_at(at + lane % 16 * PITCH + lane / 16 * 8));
            ldmatrix4_trans(
                bb, smem_at(bs + (half * COLS + w0 + k * 16 + lane % 16) * BP + lane / 16 * 8));
            mma_pair(acc, a, bb);
            ldmatrix4_trans(a, smem_at(at + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8));
            mma_pair(db[k], a, zb);
        }
        ldmatrix4_trans(zb, smem_at(z + lane % 16 * ZP + 2 * RANK + lane / 16 * 8));
#pragma unroll
        for (int k = 0; k < 2; k++) {
            ldmatrix4_trans(a, smem_at(tile + 2 * PLANE + warp * 32 + k * 16 +
                                       (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8));
            mma_pair(da[k], a, zb);
        }
        put_sums(sums + s * SUMS + warp * TOKENS * RP, acc);
    }
    __syncthreads();
    const i64 n = to - (to - from - 1) % TOKENS - 1 + threadIdx.x / RANK; /* of the last tile */
    if (n < to) {
        float *p = low + (blockIdx.x * N + n) * 2 * RANK + threadIdx.x % RANK;
        p[0] = take_sums<4>(sums + (s ^ 1) * SUMS);
        p[RANK] = take_sums<4>(sums + (s ^ 1) * SUMS + 4 * TOKENS * RP);
    }
    const i64 FB = (i64)F * (ranks.gate + ranks.up);
    dw += blockIdx.y * (FB + (i64)F * ranks.down);
    const int rank = half ? ranks.up : ranks.gate;
    float *out = dw + (half ? (i64)F * ranks.gate : 0);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int r = i / 4 * 8 + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 % 2 * 8;
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (c0 + w0 + k * 16 + row < F && r < rank)
                out[(i64)(c0 + w0 + k * 16 + row) * rank + r] = db[k][i / 4][i % 4];
#pragma unroll
        for (int k = 0; k < 2; k++)
            if (c0 + warp * 32 + k * 16 + row < F && r < ranks.down)
                dw[FB + (i64)r * F + c0 + warp * 32 + k * 16 + row] = da[k][i / 4][i % 4];
    }
}

/* ---- sums of parts, in order ---- */

#define DEEP 24 /* parts that are read at once */

DEV void add_parts(float (&v)[4], const float *part, i64 stride, int parts)
{
    load_n(v, part);
    for (int s = 1; s < parts; s += DEEP) {
        float more[DEEP][4];
#pragma unroll
        for (int i = 0; i < DEEP; i++)
            if (s + i < parts)
                load_n(more[i], part + (s + i) * stride);
#pragma unroll
        for (int i = 0; i < DEEP; i++)
            if (s + i < parts)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    v[k] += more[i][k];
    }
}

struct low_parts {
    const float *part;
    bf16 *out;
    long long ld;
    int parts, adapters, rank[2], wide; /* columns of out from the last rank to wide become zeros */
    float scale[2];
};
struct dw_parts {
    const float *part;
    float *db, *da;
    long long n_db, n; /* values: of db, of both */
    int parts, add_db, add_da, unused;
};

/* Blocks below `low_blocks`: out[n][r] = scale * the sum of part[.][n][r]; others: gradients. */
extern "C" __global__ void __launch_bounds__(256)
    adapter_sums(low_parts l, dw_parts w, long long N, int low_blocks)
{
    float v[4];
    if ((int)blockIdx.x < low_blocks) {
        const int quads = l.adapters * RANK / 4;
        const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, n = i / quads;
        const int q = (int)(i - n * quads), of = q / (RANK / 4), r = q % (RANK / 4) * 4;
        if (n >= N)
            return;
        add_parts(v, l.part + i * 4, N * quads * 4, l.parts);
        bf16 *out = l.out + n * l.ld;
        const float scale = of ? l.scale[1] : l.scale[0];
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] *= scale;
        if (r < (of ? l.rank[1] : l.rank[0]))
            store_n(out + (of ? l.rank[0] : 0) + r, v);
        const float zeros[4] = {};
        for (int c = l.rank[0] + l.rank[1] + q * 4; c < l.wide; c += quads * 4)
            store_n(out + c, zeros);
        return;
    }
    const i64 i = ((i64)(blockIdx.x - low_blocks) * 256 + threadIdx.x) * 4;
    if (i >= w.n)
        return;
    add_parts(v, w.part + i, w.n, w.parts);
    float *to = i < w.n_db ? w.db + i : w.da + (i - w.n_db);
    const bool add = i < w.n_db ? w.add_db : w.add_da;
#pragma unroll
    for (int k = 0; k < 4; k++) /* a gradient may begin anywhere */
        to[k] = add ? to[k] + v[k] : v[k];
}
