/* neondot_blocks.c - a few rows of activations times rows of GGUF blocks with the dot products of
 * Armv8.2. Four stored rows are interleaved, so that one SDOT multiplies four codes of each with
 * four bytes of a plane of the activations (neon_planes.h) and a vector holds one sum of every row:
 * integers become floats once for four rows. What is interleaved serves all rows of activations. */
#include "cpu/gemm/gemm_blocks.h"

AF_INLINE void put_digits(int8_t *p, int i, const int8x8_t *digit, bool rounded)
{
    for (int d = 0; d < (rounded ? 1 : AF_PLANES); d++)
        vst1_s8(p + AF_BLOCK * d + 8 * i, digit[d]);
}
#include "cpu/gemm/neon/neon_planes.h"

enum { PAIRS = 2, ROWS = 2 * PAIRS }; /* of stored rows */
enum { TOGETHER = 2 };                /* rows of activations */

/* 32 codes of four rows: codes 4i .. 4i+3 of each. */
typedef struct codes {
    int8x16_t at[8];
} codes;

AF_INLINE void interleave(int8x16_t out[4], const af_i8v row[ROWS])
{
    const int32x4_t a = (int32x4_t)row[0], b = (int32x4_t)row[1], c = (int32x4_t)row[2],
                    d = (int32x4_t)row[3];
    const int64x2_t even[2] = {(int64x2_t)vtrn1q_s32(a, b), (int64x2_t)vtrn1q_s32(c, d)},
                    odd[2] = {(int64x2_t)vtrn2q_s32(a, b), (int64x2_t)vtrn2q_s32(c, d)};
    out[0] = (int8x16_t)vtrn1q_s64(even[0], even[1]);
    out[1] = (int8x16_t)vtrn1q_s64(odd[0], odd[1]);
    out[2] = (int8x16_t)vtrn2q_s64(even[0], even[1]);
    out[3] = (int8x16_t)vtrn2q_s64(odd[0], odd[1]);
}

AF_INLINE codes four_codes(af_dtype type, const uint8_t *const w[ROWS], int j)
{
    codes c;
    af_i8v lo[ROWS], hi[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
        af_codes(type, w[r], j, &lo[r], &hi[r]);
    interleave(c.at, lo);
    interleave(c.at + 4, hi);
    return c;
}

/* A sum of 32 products is under 2^20. Counted from the bits of 1.5 2^23 it is a float less that
 * number: converting integers takes four times as long as adding floats. */
static const float origin = 12582912;

AF_INLINE float32x4_t from_origin(int32x4_t s)
{
    return vsubq_f32((float32x4_t)s, vdupq_n_f32(origin));
}

/* In assembly, so that the sums take turns: compilers put the products of one after another, each
 * of which waits for the one before. */
AF_INLINE int32x4_t dot(int32x4_t s, int8x16_t w, int8x16_t x, int lane)
{
#define DOT(i) __asm__ volatile("sdot %0.4s, %1.16b, %2.4b[" #i "]" : "+w"(s) : "w"(w), "w"(x))
    switch (lane) { /* loops over lanes are unrolled: one case is left */
    case 0:
        DOT(0);
        break;
    case 1:
        DOT(1);
        break;
    case 2:
        DOT(2);
        break;
    default:
        DOT(3);
    }
    return s;
}

/* y[r]: the products of four stored rows with `halves` x 16 activations, from number 16 half on, of
 * rows r < R, whose planes lie one after the other. */
AF_INLINE void products(float32x4_t *y, const codes *c, const int8_t *p, bool rounded, int R,
                        int half, int halves)
{
    const int planes = rounded ? 1 : AF_PLANES;
    int32x4_t s[TOGETHER][AF_PLANES];
    int8x16_t x[TOGETHER][AF_PLANES];
#pragma GCC unroll 2
    for (int r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int d = 0; d < planes; d++)
            s[r][d] = (int32x4_t)vdupq_n_f32(origin);
#pragma GCC unroll 2
    for (int h = half; h < half + halves; h++) {
#pragma GCC unroll 2
        for (int r = 0; r < R; r++)
#pragma GCC unroll 3
            for (int d = 0; d < planes; d++)
                x[r][d] = vld1q_s8(p + AF_BLOCK * (planes * r + d) + 16 * h);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
            for (int r = 0; r < R; r++)
#pragma GCC unroll 3
                for (int d = 0; d < planes; d++)
                    s[r][d] = dot(s[r][d], c->at[4 * h + i], x[r][d], i);
    }
#pragma GCC unroll 2
    for (int r = 0; r < R; r++) {
        y[r] = from_origin(s[r][0]);
        if (!rounded) {
            y[r] = vfmaq_n_f32(y[r], from_origin(s[r][1]), 256);
            y[r] = vfmaq_n_f32(y[r], from_origin(s[r][2]), 65536);
        }
    }
}

/* The scales and offsets of four blocks, by group. */
typedef struct scales {
    float32x4_t d[16], o[8];
} scales;

AF_INLINE float32x4_t four_halves(const uint8_t *const w[ROWS], int at)
{
    uint64_t h[ROWS]; /* joined as integers: those units have time */
    for (int r = 0; r < ROWS; r++)
        h[r] = (uint64_t)(w[r][at] | w[r][at + 1] << 8);
    const uint64_t all = (h[0] | h[1] << 16) | (h[2] | h[3] << 16) << 32;
    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(all)));
}

/* Byte `at` of every word, signed. */
AF_INLINE float32x4_t code_floats(int32x4_t v, int at)
{
    const int32x4_t top = vshlq_s32(v, vdupq_n_s32(24 - 8 * at));
    return from_origin(vsraq_n_s32((int32x4_t)vdupq_n_f32(origin), top, 24));
}

AF_INLINE void four_scales(af_dtype type, const uint8_t *const w[ROWS], scales *out)
{
    const float32x4_t by = four_halves(w, af_half_at(type)),
                      offset = af_has_offset(type) ? four_halves(w, 2) : vdupq_n_f32(0);
    if (af_groups(type) == 1) {
        out->d[0] = by;
        out->o[0] = offset;
        return;
    }
    af_i8v row[ROWS];
    int8x16_t small[4];
    for (int r = 0; r < ROWS; r++)
        row[r] = af_scale_codes(type, w[r]);
    interleave(small, row);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const float32x4_t c = code_floats((int32x4_t)small[i / 4], i % 4);
        if (af_by_16(type))
            out->d[i] = vmulq_f32(by, c);
        else if (i < 8)
            out->d[2 * i] = vmulq_f32(by, c);
        else if (af_has_offset(type))
            out->o[i - 8] = vmulq_f32(vnegq_f32(offset), c);
    }
}

/* Four blocks, group by group. */
typedef struct unpacked {
    codes group[8];
    scales s;
} unpacked;

/* Codes are made of bytes at the same places of all rows, so that the bytes can be interleaved
 * first: there are fewer of them. Blocks 0 to 3 have bytes 4i .. 4i+3 of every sixteen of each row
 * next to each other, where a block has its sixteen. */
AF_INLINE void unpack_large(af_dtype type, const uint8_t *const w[ROWS], unpacked *out)
{
    uint8_t mixed[4][AF_CODES_MAX];
    const int from = af_codes_at(type), n = af_codes_bytes(type);
    four_scales(type, w, &out->s);
#pragma GCC unroll 12
    for (int p = from; p < from + n; p += 16) {
        const af_i8v row[ROWS] = {(af_i8v)af_load(w[0] + p), (af_i8v)af_load(w[1] + p),
                                  (af_i8v)af_load(w[2] + p), (af_i8v)af_load(w[3] + p)};
        int8x16_t piece[4];
        interleave(piece, row);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            vst1q_s8((int8_t *)mixed[i] + p, piece[i]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            af_i8v lo, hi;
            af_codes(type, mixed[i], j, &lo, &hi);
            out->group[j].at[i] = (int8x16_t)lo;
            out->group[j].at[4 + i] = (int8x16_t)hi;
        }
}

/* Large blocks: one copy per type, in which every shift is a constant. */
#define UNPACK(T)                                                                                  \
    static __attribute__((noinline)) void unpack_##T(const uint8_t *const w[ROWS], unpacked *out)  \
    {                                                                                              \
        unpack_large(AF_DTYPE_##T, w, out);                                                        \
    }
UNPACK(Q3_K)
UNPACK(Q4_K)
UNPACK(Q5_K)
UNPACK(Q6_K)
UNPACK(IQ4_XS)

AF_INLINE void unpack(af_dtype type, const uint8_t *const w[ROWS], unpacked *out)
{
    switch (type) {
    case AF_DTYPE_Q3_K:
        unpack_Q3_K(w, out);
        return;
    case AF_DTYPE_Q4_K:
        unpack_Q4_K(w, out);
        return;
    case AF_DTYPE_Q5_K:
        unpack_Q5_K(w, out);
        return;
    case AF_DTYPE_Q6_K:
        unpack_Q6_K(w, out);
        return;
    case AF_DTYPE_IQ4_XS:
        unpack_IQ4_XS(w, out);
        return;
    default:
        assert(!"a small block");
    }
}

/* Adds group j of four stored rows times R rows of activations from number `at` on. */
AF_INLINE void add_group(float32x4_t *total, const af_block_x *x, af_dtype type, bool rounded,
                         const codes *c, const scales *s, int j, int64_t at, int R)
{
    const int8_t *p = x->planes + at * plane_bytes(rounded);
    float32x4_t y[TOGETHER], z[TOGETHER];
    products(y, c, p, rounded, R, 0, af_by_16(type) ? 1 : 2);
    if (af_by_16(type))
        products(z, c, p, rounded, R, 1, 1);
#pragma GCC unroll 2
    for (int r = 0; r < R; r++) {
        float32x4_t v = vmulq_f32(y[r], s->d[2 * j]);
        if (af_by_16(type))
            v = vfmaq_f32(v, z[r], s->d[2 * j + 1]);
        total[r] = vfmaq_n_f32(total[r], v, x->scale[(at + r) * 4]);
        if (af_has_offset(type))
            total[r] = vfmaq_n_f32(total[r], s->o[j], x->sums[at + r]);
    }
}

/* out [M] rows of ldo: 2 P stored rows, `bytes` apart. */
AF_INLINE void mul_rows(const af_block_x *x, af_dtype type, int64_t M, bool rounded, int P,
                        const uint8_t *w, int64_t bytes, float *out, int64_t ldo)
{
    const int groups = af_groups(type), size = (int)af_dtype_get(type)->bytes;
    const bool ahead = groups > 1 && M == 1; /* one row does not hide the time that shifts take */
    const int64_t blocks = x->K / AF_BLOCK, step = 2 * P * size / groups; /* 136 bytes at most */
    const uint8_t *next = w + 2 * P * bytes;                              /* what is read next */
    const uint8_t *row[ROWS];
    float32x4_t total[AF_BLOCK_ROWS];
    for (int64_t m = 0; m < M; m++)
        total[m] = vdupq_n_f32(0);
    for (int r = 0; r < ROWS; r++)
        row[r] = w + (r < 2 * P ? r : 0) * bytes;
    for (int64_t k = 0; k < blocks;) {
        unpacked b;
        if (ahead)
            unpack(type, row, &b);
        else
            four_scales(type, row, &b.s);
        for (int j = 0; j < groups; j++, k++, next += step) {
            __builtin_prefetch(next);
            __builtin_prefetch(next + 64);
            __builtin_prefetch(next + 128);
            const codes c = ahead ? b.group[j] : four_codes(type, row, j);
            int64_t m = 0;
            for (; m + TOGETHER <= M; m += TOGETHER)
                add_group(total + m, x, type, rounded, &c, &b.s, j, k * M + m, TOGETHER);
            for (; m < M; m++)
                add_group(total + m, x, type, rounded, &c, &b.s, j, k * M + m, 1);
        }
        for (int r = 0; r < ROWS; r++)
            row[r] += size;
    }
    for (int64_t m = 0; m < M; m++)
        memcpy(out + m * ldo, &total[m], (size_t)(2 * P) * sizeof *out);
}

#include "cpu/gemm/gemm_blocks_rows.h"
