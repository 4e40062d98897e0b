/* dequant.cu - quantised weights back to rows of values: bitsandbytes nf4, fp4 and int8 rows, the
 * GGUF types.
 * Contract: tensor/codec_*.c (the same values, bit for bit, rounded once to AF_T).
 *
 * Built with AF_T (output). Rows of `cols` values go to dst with stride ld. A grid-stride loop over
 * groups of 8 values: one 16-byte store each (bf16), codes and scales read once; nf4 and fp4 rows
 * of whole 64-value segments take bnb_segments, those that are no multiple of 8 or not aligned a
 * slow path. The _gather kernels read row ids[n] of a table instead of row n. Blocks of 256
 * threads. */
// variants: AF_T=bf16,float,half
// common: AF_T=bf16
#include "bnb_decode.cuh"

#define UNROLL 4

/* ---- bitsandbytes ---- */
DEV void put8(AF_T *dst, const float (&v)[8], int round_bf16)
{
    float w[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
        w[k] = round_bf16 && sizeof(AF_T) == 4 ? rounded<bf16>(v[k]) : v[k];
    store_n(dst, w);
}

/* Sixteen-bit outputs, rows of whole 64-value segments (each inside one block): two threads a
 * segment. A thread makes its block's table once. Piece 2u + (thread & 1) of the segment is its
 * u-th: the two threads' stores fill a sector. */
template <class T>
DEV void bnb_segments(T *dst, i64 ld, const u8 *codes, const bnb_scales &s, const u32 *book,
                      i64 rows, i64 cols)
{
    if constexpr (sizeof(T) != 2)
        return;
    else {
        const i64 segments = rows * cols / 64, per_row = cols / 64, stride = gridDim.x * 128ll;
        const i64 first = (i64)blockIdx.x * 128 + threadIdx.x / 2;
        const int step_rows = (int)(stride / per_row), step_cols = (int)(stride % per_row);
        const int odd = threadIdx.x & 1;
        i64 row = first / per_row;
        int col = (int)(first - row * per_row);
        for (i64 g = first; g < segments; g += stride) {
            u32 code[4];
            bnb_table t;
#pragma unroll
            for (int u = 0; u < 4; u++)
                code[u] = ((const u32 *)codes)[g * 8 + 2 * u + odd];
            bnb_values(t, (T *)0, book, scale_of(s, g * 64 >> s.shift));
            T *to = dst + row * ld + col * 64 + odd * 8;
#pragma unroll
            for (int u = 0; u < 4; u++) {
                u32 out[4];
                bnb_lookup(out, t, code[u]);
                *(uint4 *)(to + u * 16) = make_uint4(out[0], out[1], out[2], out[3]);
            }
            const bool over = (col += step_cols) >= per_row;
            col -= over ? (int)per_row : 0;
            row += step_rows + over;
        }
    }
}

DEV void bnb_dequant(AF_T *dst, i64 ld, const u8 *codes, bnb_scales s, const u32 *book, i64 rows,
                     i64 cols, int round_bf16)
{
    __shared__ float map[256];
    bnb_map(map);
    s.map = map;
    __syncthreads();
    if (sizeof(AF_T) == 2 && cols % 64 == 0 && s.shift >= 6 && ld % 8 == 0 && (u64)dst % 16 == 0) {
        bnb_segments(dst, ld, codes, s, book, rows, cols);
        return;
    }
    const float mine = __uint_as_float(book[threadIdx.x % 16]); /* lane l has code l % 16 */
    if (cols % 8 || ld % 8 || (u64)dst % 16) {
        for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < rows * cols; i += gridDim.x * 256ll) {
            const u32 c = i & 1 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
            const float v = mul_flush(__uint_as_float(book[c]), scale_of(s, i >> s.shift));
            store(dst + i / cols * ld + i % cols, round_bf16 ? rounded<bf16>(v) : v);
        }
        return;
    }
    /* A thread's groups are 256 apart: where a group lies in its row is carried on, not divided. */
    const i64 groups = rows * cols / 8, first = (i64)blockIdx.x * 256 * UNROLL + threadIdx.x;
    const i64 jump = (gridDim.x - 1) * 256ll * UNROLL, per_row = cols / 8;
    const int jump_rows = (int)(jump / per_row), jump_cols = (int)(jump % per_row);
    const int step_rows = (int)(256 / per_row), step_cols = (int)(256 % per_row);
    i64 row = first / per_row;
    int col = (int)(first - row * per_row);
    for (i64 g0 = first; g0 - threadIdx.x < groups; g0 += jump + 256 * UNROLL) {
        u32 code[UNROLL];
        float scale[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const i64 g = g0 + u * 256;
            code[u] = g < groups ? ((const u32 *)codes)[g] : 0;
            scale[u] = g < groups ? scale_of(s, g * 8 >> s.shift) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float v[8];
#pragma unroll
            for (int k = 0; k < 8; k++) /* byte k/2, the high nibble first */
                v[k] = mul_flush(
                    __shfl_sync(FULL, mine, code[u] >> (k / 2 * 8 + (k & 1 ? 0 : 4)) & 15),
                    scale[u]);
            if (g0 + u * 256 < groups)
                put8(dst + row * ld + col * 8, v, round_bf16);
            const bool over = (col += step_cols) >= per_row;
            col -= over ? (int)per_row : 0;
            row += step_rows + over;
        }
        const bool over = (col += jump_cols) >= per_row;
        col -= over ? (int)per_row : 0;
        row += jump_rows + over;
    }
}

/* The int8 rows of LLM.int8: code * absmax / 127, in bitsandbytes' order. */
extern "C" __global__ void i8_dequant(AF_T *dst, long long ld, const signed char *codes,
                                      const float *absmax, long long rows, long long cols,
                                      int round_bf16)
{
    const bool wide = cols % 8 == 0 && ld % 8 == 0 && (u64)dst % 16 == 0 && (u64)codes % 8 == 0;
    const i64 stride = gridDim.x * 256ll, first = (i64)blockIdx.x * 256 + threadIdx.x;
    for (i64 i = first; !wide && i < rows * cols; i += stride) {
        const float v = __fmul_rn(__fmul_rn((float)codes[i], absmax[i / cols]), 1.0f / 127.0f);
        store(dst + i / cols * ld + i % cols, round_bf16 ? rounded<bf16>(v) : v);
    }
    for (i64 g = first; wide && g < rows * cols / 8; g += stride) {
        const i64 row = g * 8 / cols, col = g * 8 - row * cols;
        const char4 *c = (const char4 *)codes + g * 2;
        const char4 a = c[0], b = c[1];
        const float q[8] = {(float)a.x, (float)a.y, (float)a.z, (float)a.w,
                            (float)b.x, (float)b.y, (float)b.z, (float)b.w};
        const float scb = absmax[row];
        float v[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            v[k] = __fmul_rn(__fmul_rn(q[k], scb), 1.0f / 127.0f);
        put8(dst + row * ld + col, v, round_bf16);
    }
}

DEV bnb_scales scales(const void *absmax, const float *nested, float offset, int block,
                      int nested_block)
{
    return {
        absmax, nested, 0, offset, 31 - __clz(block), nested_block ? 31 - __clz(nested_block) : -1};
}
extern "C" __global__ void nf4_dequant(AF_T *dst, long long ld, const unsigned char *codes,
                                       const void *absmax, const float *nested, float offset,
                                       long long rows, long long cols, int block, int nested_block,
                                       int round_bf16)
{
    bnb_dequant(dst, ld, codes, scales(absmax, nested, offset, block, nested_block), nf4_bits, rows,
                cols, round_bf16);
}
extern "C" __global__ void fp4_dequant(AF_T *dst, long long ld, const unsigned char *codes,
                                       const void *absmax, const float *nested, float offset,
                                       long long rows, long long cols, int block, int nested_block,
                                       int round_bf16)
{
    bnb_dequant(dst, ld, codes, scales(absmax, nested, offset, block, nested_block), fp4_bits, rows,
                cols, round_bf16);
}

/* Row n of dst is row ids[n] of the table. */
DEV void bnb_gather(AF_T *dst, i64 ld, const u8 *codes, bnb_scales s, const u32 *book,
                    const int *ids, i64 rows, i64 cols, int round_bf16)
{
    __shared__ float map[256];
    bnb_map(map);
    s.map = map;
    __syncthreads();
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < rows * cols; i += gridDim.x * 256ll) {
        const i64 at = ids[i / cols] * cols + i % cols;
        const u32 c = at & 1 ? codes[at / 2] & 15 : codes[at / 2] >> 4;
        const float v = mul_flush(__uint_as_float(book[c]), scale_of(s, at >> s.shift));
        store(dst + i / cols * ld + i % cols, round_bf16 ? rounded<bf16>(v) : v);
    }
}
extern "C" __global__ void nf4_gather(AF_T *dst, long long ld, const unsigned char *codes,
                                      const void *absmax, const float *nested, float offset,
                                      const int *ids, long long rows, long long cols, int block,
                                      int nested_block, int round_bf16)
{
    bnb_gather(dst, ld, codes, scales(absmax, nested, offset, block, nested_block), nf4_bits, ids,
               rows, cols, round_bf16);
}
extern "C" __global__ void fp4_gather(AF_T *dst, long long ld, const unsigned char *codes,
                                      const void *absmax, const float *nested, float offset,
                                      const int *ids, long long rows, long long cols, int block,
                                      int nested_block, int round_bf16)
{
    bnb_gather(dst, ld, codes, scales(absmax, nested, offset, block, nested_block), fp4_bits, ids,
               rows, cols, round_bf16);
}

/* ---- GGUF: 8 values from position `at` (a multiple of 8) of one block ---- */
DEV float half_at(const u8 *p)
{
    const half h = {(u16)(p[0] | p[1] << 8)};
    return load(&h);
}
DEV u32 word_at(const u8 *p) { return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24; }
/* The nibble of value i of 32: the low ones are 0..15, the high ones 16..31. */
DEV int nibble32(const u8 *qs, int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

#define VALUE static __device__ __forceinline__ float value(const u8 *b, int i)

struct q4_0 {
    enum { ELEMS = 32, BYTES = 18 };
    VALUE { return (nibble32(b + 2, i) - 8) * half_at(b); }
};
struct q4_1 {
    enum { ELEMS = 32, BYTES = 20 };
    VALUE { return __fadd_rn(__fmul_rn(nibble32(b + 4, i), half_at(b)), half_at(b + 2)); }
};
struct q5_0 {
    enum { ELEMS = 32, BYTES = 22 };
    VALUE
    {
        const int q = nibble32(b + 6, i) | (word_at(b + 2) >> i & 1) << 4;
        return (q - 16) * half_at(b);
    }
};
struct q5_1 {
    enum { ELEMS = 32, BYTES = 24 };
    VALUE
    {
        const int q = nibble32(b + 8, i) | (word_at(b + 4) >> i & 1) << 4;
        return __fadd_rn(__fmul_rn(q, half_at(b)), half_at(b + 2));
    }
};
struct q8_0 {
    enum { ELEMS = 32, BYTES = 34 };
    VALUE { return (i8)b[2 + i] * half_at(b); }
};
struct q2_k {
    enum { ELEMS = 256, BYTES = 84 };
    VALUE
    {
        const int n = i / 128, j = i % 128 / 32, l = i % 32;
        const int q = b[16 + n * 32 + l] >> (2 * j) & 3, sc = b[n * 8 + 2 * j + l / 16];
        return __fsub_rn(__fmul_rn(half_at(b + 80) * (sc & 15), q), half_at(b + 82) * (sc >> 4));
    }
};
struct q3_k {
    enum { ELEMS = 256, BYTES = 110 };
    VALUE
    {
        const int n = i / 128, j = i % 128 / 32, l = i % 32, is = n * 8 + 2 * j + l / 16;
        const u8 *sc = b + 96;
        const int low = is < 8 ? sc[is] & 15 : sc[is - 8] >> 4;
        const int scale = low | (sc[8 + is % 4] >> (is / 4 * 2) & 3) << 4;
        const int q = (b[32 + n * 32 + l] >> (2 * j) & 3) - (b[l] >> (n * 4 + j) & 1 ? 0 : 4);
        return half_at(b + 108) * (scale - 32) * q;
    }
};
/* Scale and minimum number j of q4_k and q5_k: 6 bits each in 12 bytes. */
DEV void scale_min(const u8 *s, int j, int &scale, int &min)
{
    scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}
struct q4_k {
    enum { ELEMS = 256, BYTES = 144 };
    VALUE
    {
        int sc, m;
        scale_min(b + 4, i / 32, sc, m);
        const int byte = b[16 + i / 64 * 32 + i % 32], q = i % 64 < 32 ? byte & 15 : byte >> 4;
        return __fsub_rn(__fmul_rn(half_at(b) * sc, q), half_at(b + 2) * m);
    }
};
struct q5_k {
    enum { ELEMS = 256, BYTES = 176 };
    VALUE
    {
        int sc, m;
        scale_min(b + 4, i / 32, sc, m);
        const int byte = b[48 + i / 64 * 32 + i % 32], low = i % 64 < 32 ? byte & 15 : byte >> 4;
        const int q = low | (b[16 + i % 32] >> (i / 32) & 1) << 4;
        return __fsub_rn(__fmul_rn(half_at(b) * sc, q), half_at(b + 2) * m);
    }
};
struct q6_k {
    enum { ELEMS = 256, BYTES = 210 };
    VALUE
    {
        const int n = i / 128, j = i % 128 / 32, l = i % 32;
        const int byte = b[n * 64 + (j & 1) * 32 + l], low = j < 2 ? byte & 15 : byte >> 4;
        const int q = (low | (b[128 + n * 32 + l] >> (2 * j) & 3) << 4) - 32;
        return half_at(b + 208) * (i8)b[192 + n * 8 + l / 16 + 2 * j] * q;
    }
};
/* The 16 values of iq4, as signed bytes. */
DEV int iq4_value(int q)
{
    const u32 w[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
    return (i8)(w[q / 4] >> (q % 4 * 8));
}
struct iq4_nl {
    enum { ELEMS = 32, BYTES = 18 };
    VALUE { return half_at(b) * iq4_value(nibble32(b + 2, i)); }
};
struct iq4_xs {
    enum { ELEMS = 256, BYTES = 136 };
    VALUE
    {
        const int s = i / 32, high = (b[2] | b[3] << 8) >> (2 * s) & 3;
        const int scale = (b[4 + s / 2] >> (s % 2 * 4) & 15) | high << 4;
        return half_at(b) * (scale - 32) * iq4_value(nibble32(b + 8 + s * 16, i % 32));
    }
};
#include "iq_decode.cuh"
/* Twice the values of e2m1, as signed bytes. */
DEV int e2m1_doubled(int q)
{
    const int v = 0xc8643210u >> (q % 8 * 4) & 15;
    return q < 8 ? v : -v;
}
struct mxfp4 {
    enum { ELEMS = 32, BYTES = 17 };
    VALUE
    {
        const u32 e = b[0]; /* 2^(e - 128): the smallest two have no exponent of their own */
        const float d = __uint_as_float(e < 2 ? 0x200000u << e : (e - 1) << 23);
        return d * e2m1_doubled(nibble32(b + 1, i));
    }
};
struct nvfp4 {
    enum { ELEMS = 64, BYTES = 36 };
    VALUE
    {
        const int x = b[i / 16], e = x >> 3 & 15, m = x & 7, at = i % 16;
        const float d = __uint_as_float((u32)((e ? e : 1) - 11 + 127) << 23) * (e ? m + 8 : m);
        const u8 *qs = b + 4 + i / 16 * 8;
        return (x == 0x7f ? 0.0f : d) * e2m1_doubled(at < 8 ? qs[at] & 15 : qs[at - 8] >> 4);
    }
};
struct tq1_0 {
    enum { ELEMS = 256, BYTES = 54 };
    VALUE /* runs of 32, 16 and 4 bytes */
    {
        const int wide = i < 160 ? 32 : i < 240 ? 16 : 4, from = i < 160 ? 0 : i < 240 ? 160 : 240;
        int rest = b[(i < 160 ? 0 : i < 240 ? 32 : 48) + (i - from) % wide];
        for (int k = (i - from) / wide; k > 0; k--)
            rest = rest * 3 & 255;
        return ((rest * 3 >> 8) - 1) * half_at(b + 52);
    }
};
struct tq2_0 {
    enum { ELEMS = 256, BYTES = 66 };
    VALUE { return ((b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1) * half_at(b + 64); }
};

template <class B>
DEV void gguf_dequant(AF_T *dst, i64 ld, const u8 *src, const int *ids, i64 rows, i64 cols)
{
    const i64 groups = rows * cols / 8, per_row = cols / 8;
    for (i64 g = (i64)blockIdx.x * 256 + threadIdx.x; g < groups; g += gridDim.x * 256ll) {
        const i64 row = g / per_row, from = ids ? ids[row] : row, col = (g - row * per_row) * 8;
        const u8 *b = src + (from * cols + col) / B::ELEMS * B::BYTES;
        const int i = (int)(col % B::ELEMS); /* rows are whole blocks */
        float v[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            v[k] = B::value(b, i + k);
        AF_T *to = dst + row * ld + col;
        if ((u64)to % 16 == 0) {
            store_n(to, v);
        } else {
#pragma unroll
            for (int k = 0; k < 8; k++)
                store(to + k, v[k]);
        }
    }
}
extern "C" __global__ void q4_0_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q4_0>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q4_0_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q4_0>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void q4_1_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q4_1>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q4_1_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q4_1>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void q5_0_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q5_0>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q5_0_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q5_0>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void q5_1_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q5_1>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q5_1_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q5_1>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void q8_0_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q8_0>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q8_0_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q8_0>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void q2_k_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q2_k>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q2_k_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q2_k>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void q3_k_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q3_k>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q3_k_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q3_k>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void q4_k_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q4_k>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q4_k_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q4_k>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void q5_k_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q5_k>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q5_k_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q5_k>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void q6_k_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                        long long rows, long long cols)
{
    gguf_dequant<q6_k>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void q6_k_gather(AF_T *dst, long long ld, const unsigned char *src,
                                       const int *ids, long long rows, long long cols)
{
    gguf_dequant<q6_k>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void iq4_nl_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                          long long rows, long long cols)
{
    gguf_dequant<iq4_nl>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void iq4_nl_gather(AF_T *dst, long long ld, const unsigned char *src,
                                         const int *ids, long long rows, long long cols)
{
    gguf_dequant<iq4_nl>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void iq4_xs_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                          long long rows, long long cols)
{
    gguf_dequant<iq4_xs>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void iq4_xs_gather(AF_T *dst, long long ld, const unsigned char *src,
                                         const int *ids, long long rows, long long cols)
{
    gguf_dequant<iq4_xs>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void mxfp4_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                         long long rows, long long cols)
{
    gguf_dequant<mxfp4>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void mxfp4_gather(AF_T *dst, long long ld, const unsigned char *src,
                                        const int *ids, long long rows, long long cols)
{
    gguf_dequant<mxfp4>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void nvfp4_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                         long long rows, long long cols)
{
    gguf_dequant<nvfp4>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void nvfp4_gather(AF_T *dst, long long ld, const unsigned char *src,
                                        const int *ids, long long rows, long long cols)
{
    gguf_dequant<nvfp4>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void tq1_0_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                         long long rows, long long cols)
{
    gguf_dequant<tq1_0>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void tq1_0_gather(AF_T *dst, long long ld, const unsigned char *src,
                                        const int *ids, long long rows, long long cols)
{
    gguf_dequant<tq1_0>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void tq2_0_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                         long long rows, long long cols)
{
    gguf_dequant<tq2_0>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void tq2_0_gather(AF_T *dst, long long ld, const unsigned char *src,
                                        const int *ids, long long rows, long long cols)
{
    gguf_dequant<tq2_0>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void iq2_s_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                         long long rows, long long cols)
{
    gguf_dequant<iq2_s>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void iq2_s_gather(AF_T *dst, long long ld, const unsigned char *src,
                                        const int *ids, long long rows, long long cols)
{
    gguf_dequant<iq2_s>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void iq3_xxs_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                           long long rows, long long cols)
{
    gguf_dequant<iq3_xxs>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void iq3_xxs_gather(AF_T *dst, long long ld, const unsigned char *src,
                                          const int *ids, long long rows, long long cols)
{
    gguf_dequant<iq3_xxs>(dst, ld, src, ids, rows, cols);
}
extern "C" __global__ void iq3_s_dequant(AF_T *dst, long long ld, const unsigned char *src,
                                         long long rows, long long cols)
{
    gguf_dequant<iq3_s>(dst, ld, src, 0, rows, cols);
}
extern "C" __global__ void iq3_s_gather(AF_T *dst, long long ld, const unsigned char *src,
                                        const int *ids, long long rows, long long cols)
{
    gguf_dequant<iq3_s>(dst, ld, src, ids, rows, cols);
}
