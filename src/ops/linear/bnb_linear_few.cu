/* bnb_linear_few.cu - GEMM of one or two tokens straight from 4-bit weights of bitsandbytes, on
 * Hopper. Contract: af_linear (linear.c), bf16, pieces stacked along the output in one launch.
 *
 * Built with AF_BOOK (nf4_bits, fp4_bits). Rows are whole units of 256 values, scales nested and of
 * 64 values each, four of them in an aligned word; activations' rows start on 16 bytes.
 *
 * What bounds it are accesses of shared memory and of the L1 cache, not the memory: looking bytes
 * of codes up is one for 64 weights, and a load of codes counts once for every line that it
 * touches. So a load has whole lines, into registers, several units ahead and begun before the
 * kernel in front has ended; scales are loaded in words, decoded once and left for the warp; the
 * table of pairs, and in its gaps that of nested scales, have a copy for each lane, at an address
 * that is known when compiled. Tensor cores multiply the values of the book; a segment's sum is
 * scaled afterwards.
 *
 * Weights are the rows of the tensor core's tile: row 2 r + h of one of its halves has values 128 h
 * and on of row r of the unit, and lanes p of four have 32 p of those and on. Adding up over lanes
 * and rows would mix segments, so x has a column for each: column 4 m + 2 h + s has token m, half
 * h, segment s of it, and zeros where lanes have the other segment. Of the sums those of one's own
 * half are used. */
// variants: AF_BOOK=nf4_bits,fp4_bits
// common: AF_BOOK=nf4_bits
#include "bnb_linear.cuh"

#define WARPS   16 /* of a block at most */
#define TOKENS  2
#define SEGMENT 64
#define ROWS    8    /* of a tile */
#define UNIT    256  /* values of a row: a word of four scales */
#define DEPTH   4    /* units that are fetched ahead */
#define TABLE   1024 /* in the window of shared memory (dev.cuh) */
#define AFTER   (TABLE + PAIRS)
#define SCALES  128 /* floats of a warp: of a tile's rows in DEPTH units */
#define X_LINE  144 /* bytes of x of a segment; the banks differ */

/* The two values of byte i of `code`, and the nested scale of it. */
DEV u32 pair_in(u32 code, u32 lane4, int i)
{
    return window_word<TABLE>(__byte_perm(code, lane4, 0x7604 | i << 4));
}
DEV float scale_in(u32 code, u32 lane4, int i)
{
    return __uint_as_float(window_word<TABLE + 128>(__byte_perm(code, lane4, 0x7604 | i << 4)));
}
DEV u32 word_of(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

DEV void fill_tables(u8 *to)
{
    for (int i = threadIdx.x; i < 256 * 16; i += blockDim.x) {
        const u32 code = i / 16;
        const u32 v = i % 16 < 8 ? pack_bf16(__uint_as_float(AF_BOOK[code / 16]) * BOOK_BY,
                                             __uint_as_float(AF_BOOK[code % 16]) * BOOK_BY)
                                 : dynamic_signed_bits[code];
        *(uint4 *)(to + code * PAIR_PITCH + i % 16 * 16) = make_uint4(v, v, v, v);
    }
}
/* The codes of the lane's two rows of a tile, from the warp's first unit on, and the scales of the
 * row that it decodes for the warp, from its own word on. */
struct tile_at {
    const u8 *codes[2], *absmax;
    const float *nested;
    float offset;
    u32 segment;
};
/* What a lane has fetched: codes of units, and scales of the next DEPTH. */
struct ahead {
    uint4 codes[DEPTH][2];
    u32 absmax;
    float nested;
};
DEV void fetch(ahead &a, const tile_at &at, int u, int i) /* unit u + i, into i % DEPTH */
{
#pragma unroll
    for (int t = 0; t < 2; t++)
        a.codes[i % DEPTH][t] = stream16(at.codes[t] + u * (UNIT / 2) + i * (UNIT / 2));
}
DEV void fetch_scales(ahead &a, const tile_at &at, int u, int count, int nested_shift)
{
    const int word = threadIdx.x % DEPTH, s = u * 4;
    if (s + word * 4 < count * 4) {
        a.absmax = *(const u32 *)(at.absmax + at.segment + s);
        a.nested = at.nested[(at.segment + s) >> nested_shift];
    }
}
/* x of a unit, in the order of codes: stays zero where the lane has none. */
struct lane_x {
    u32 v[16];
};
DEV void load_x(lane_x &x, const u8 *at)
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint4 b = *(const uint4 *)(at + q * 16);
        x.v[q * 4] = b.x;
        x.v[q * 4 + 1] = b.y;
        x.v[q * 4 + 2] = b.z;
        x.v[q * 4 + 3] = b.w;
    }
}
/* sum[0] + sum[1] = a unit of codes times x. */
DEV void multiply(float (&sum)[2][4], const uint4 (&codes)[2], const lane_x &x, u32 lane4)
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const u32 a = word_of(codes[0], j / 2), b = word_of(codes[1], j / 2);
        const int even = j % 2 * 2, odd = even + 1;
        const u32 k[4] = {pair_in(a, lane4, even), pair_in(b, lane4, even), pair_in(a, lane4, odd),
                          pair_in(b, lane4, odd)};
        if (j < 2)
            mma_first(sum[j % 2], k, x.v[2 * j], x.v[2 * j + 1]);
        else
            mma(sum[j % 2], k, x.v[2 * j], x.v[2 * j + 1]);
    }
}

/* y[m][o] = sum_i x[m][i] w[o][i] + bias[o]. A block has `rows` rows and whole times `split` warps,
 * WARPS at most; `split` of them share a tile's row and add up in order. Dynamic shared memory:
 * few90_shared in bnb_linear_cuda.c. */
extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
    bnb_linear_few(bf16 *y, long long ldy, const bf16 *x, long long ldx, bnb_pieces w, float off0,
                   float off1, float off2, const bf16 *bias, int M, int O, int I, int nested_shift,
                   int rows, int split)
{
    extern __shared__ __align__(16) u8 smem[];
    next_may_begin();
    const int start = window_start(smem), warps = blockDim.x / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, p = lane % 4;
    const int group = warp / split, member = warp % split, groups = warps / split;
    const int r0 = (int)blockIdx.x * rows;
    const int here = min(rows, O - r0), tiles = (here + ROWS - 1) / ROWS, units = I / UNIT;
    const int first = units * member / split, count = units * (member + 1) / split - first;
    const int pitch = units * 4 * X_LINE + 16;
    const u32 lane4 = lane * 4 | window_high(smem);
    float *parts = (float *)(smem + (start + AFTER)) + warps * SCALES;
    float *scales = (float *)(smem + (start + AFTER)) + warp * SCALES;
    u8 *xs = (u8 *)(parts + split * rows * TOKENS);
    const bnb_offsets offsets = {{off0, off1, off2}};
    auto find = [&](int tile) {
        tile_at q;
#pragma unroll
        for (int t = 0; t < 2; t++) {
            const int r = tile * ROWS + (t * 4 + g / 2);
            q.codes[t] = find_row(w, offsets, r0 + min(r, here - 1), I).codes + p * 16 +
                         g % 2 * 64 + first * (UNIT / 2);
        }
        const bnb_row s = find_row(w, offsets, r0 + min(tile * ROWS + lane / DEPTH, here - 1), I);
        q.segment = s.segment + first * 4 + lane % DEPTH * 4;
        q.absmax = (const u8 *)s.absmax;
        q.nested = s.nested;
        q.offset = s.offset;
        return q;
    };
    ahead a = {};
    tile_at now = {}, next = {};
    if (group < tiles) {
        now = find(group);
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            if (i < count)
                fetch(a, now, 0, i);
        fetch_scales(a, now, 0, count, nested_shift);
    }
    fill_tables(smem + (start + TABLE));
    previous_done(); /* weights do not wait for it */
    const int chunks = units * (UNIT / 8);
    for (int i = threadIdx.x; i < chunks * M; i += blockDim.x) {
        const int m = i / chunks, c = i % chunks;
        *(uint4 *)(xs + m * pitch + c / 8 * X_LINE + c % 8 * 16) =
            *(const uint4 *)(x + m * ldx + c * 8);
    }
    __syncthreads();
    /* whose x the lane has: a token, and of a unit the segment of its codes */
    const int token = g / 4;
    const int line = g / 2 % 2 * 2 + p / 2;
    const bool own = g % 2 == p / 2;
    const u8 *own_x = xs + token * pitch + (first * 4 + line) * X_LINE + p % 2 * 64;
    lane_x v = {};
    for (int tile = group; tile < tiles; tile += groups) {
        float acc[2][2] = {}; /* of rows, of segments */
        const bool more = tile + groups < tiles;
        if (more)
            next = find(tile + groups);
        for (int u0 = 0; u0 < count; u0 += DEPTH) {
            __syncwarp(); /* the scales before have been read */
            float f[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                f[i] = add_flush(mul_flush(scale_in(a.absmax, lane4, i), a.nested), now.offset);
            *(float4 *)(scales + lane * 4) = {f[0], f[1], f[2], f[3]};
            if (u0 + DEPTH < count)
                fetch_scales(a, now, u0 + DEPTH, count, nested_shift);
            else if (more)
                fetch_scales(a, next, 0, count, nested_shift);
            __syncwarp();
#pragma unroll
            for (int i = 0; i < DEPTH; i++) {
                if (u0 + i < count) {
                    if (own && token < M)
                        load_x(v, own_x + (u0 + i) * (4 * X_LINE));
                    float sum[2][4];
                    multiply(sum, a.codes[i], v, lane4);
#pragma unroll
                    for (int t = 0; t < 2; t++) {
                        const float2 by =
                            *(const float2 *)(scales + (t * 4 + g / 2) * 16 + i * 4 + g % 2 * 2);
                        acc[t][0] += by.x * (sum[0][2 * t] + sum[1][2 * t]);
                        acc[t][1] += by.y * (sum[0][2 * t + 1] + sum[1][2 * t + 1]);
                    }
                }
                if (u0 + i + DEPTH < count)
                    fetch(a, now, u0, i + DEPTH);
                else if (more && (u0 + i < count || u0 == 0) && i < count)
                    fetch(a, next, 0, i);
            }
        }
#pragma unroll
        for (int t = 0; t < 2; t++) { /* lane p has token p / 2, half p % 2 */
            const float s0 = p % 2 == g % 2 ? acc[t][0] + acc[t][1] : 0.0f;
            const float s1 = s0 + __shfl_xor_sync(FULL, s0, 1);
            const float s2 = s1 + __shfl_xor_sync(FULL, s1, 4);
            const int r = tile * ROWS + t * 4 + g / 2;
            if (g % 2 == 0 && p % 2 == 0 && r < rows)
                parts[(member * rows + r) * TOKENS + p / 2] = s2;
        }
        now = next;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < here * M; i += blockDim.x) {
        const int m = i / here, r = i % here;
        float s = 0.0f;
        for (int k = 0; k < split; k++)
            s += parts[(k * rows + r) * TOKENS + m];
        store(y + m * ldy + r0 + r, s * (1.0f / BOOK_BY) + (bias ? load(bias + r0 + r) : 0.0f));
    }
}
