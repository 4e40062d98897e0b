/* gemm_blocks.h - GGUF blocks without decoding them to memory: 32 codes of a row at a time as small
 * integers, with the scales and the offset that belong to them.
 *
 * What a block means is in tensor/codec_decode.c; here only the order of its bits counts. Every
 * supported type is sum of scale[i/16] * code[i] + offset over its 32 elements. */
#ifndef AF_GEMM_BLOCKS_H
#define AF_GEMM_BLOCKS_H

#include "cpu/gemm/gemm_job.h"
#include "tensor/codec_block.h"

enum { AF_BLOCK = 32, AF_BLOCK_ROWS = 64, AF_PLANES = 3 };

/* Up to AF_BLOCK_ROWS rows of activations, made ready once for all rows of a weight. */
typedef struct af_block_x {
    const float *x;       /* [M][K] */
    const float *sums;    /* [K/32][M] */
    const float *scale;   /* [K/32][M][4], where integers are multiplied, and */
    const int8_t *planes; /* [K/32][M][32 planes]; or NULL */
    const int32_t *start; /* [K/32][M][planes][3], what sums begin with (x86_bytes.h) */
    int64_t M, K;
    bool rounded; /* to 8 bits: one plane of bytes instead of AF_PLANES */
} af_block_x;

/* Whether rows of K values of this type are multiplied so. */
AF_INLINE bool af_block_serves(af_dtype type, int64_t K)
{
    static const af_dtype served[] = {AF_DTYPE_Q8_0, AF_DTYPE_Q4_0,   AF_DTYPE_Q4_1,  AF_DTYPE_Q5_0,
                                      AF_DTYPE_Q5_1, AF_DTYPE_Q3_K,   AF_DTYPE_Q4_K,  AF_DTYPE_Q5_K,
                                      AF_DTYPE_Q6_K, AF_DTYPE_IQ4_NL, AF_DTYPE_IQ4_XS};
    for (size_t i = 0; i < AF_LEN(served); i++)
        if (served[i] == type)
            return K % af_dtype_get(type)->elems == 0;
    return false;
}

typedef uint64_t af_block_work_fn(int64_t values); /* bytes for so many activations */
/* x [M][K] f32; work: af_block_work(M K) bytes. */
typedef void af_block_prepare_fn(af_block_x *out, const float *x, int64_t M, int64_t K,
                                 bool rounded, void *work);
/* out [M] rows of ldo: dot products with the stored rows w, w + a row, ... */
typedef void af_block_rows_fn(const af_block_x *x, af_dtype type, const uint8_t *w, int64_t rows,
                              float *out, int64_t ldo);
typedef struct af_block_kernels {
    af_block_work_fn *work;
    af_block_prepare_fn *prepare;
    af_block_rows_fn *rows;
} af_block_kernels;
/* Those of an instruction set. */
#define AF_BLOCK_DECLARE(isa)                                                                      \
    af_block_work_fn AF_ISA_JOIN(af_block_work, isa);                                              \
    af_block_prepare_fn AF_ISA_JOIN(af_block_prepare, isa);                                        \
    af_block_rows_fn AF_ISA_JOIN(af_block_rows, isa)
#define AF_BLOCK_KERNELS(isa)                                                                      \
    {                                                                                              \
        AF_ISA_JOIN(af_block_work, isa), AF_ISA_JOIN(af_block_prepare, isa),                       \
            AF_ISA_JOIN(af_block_rows, isa)                                                        \
    }
AF_BLOCK_DECLARE(AF_ISA);

/* ---- the bits ---- */

AF_INLINE af_u8v af_load(const uint8_t *p) { return *(const af_u8v *)p; }

/* Sixteen bits as bytes of 0 or 16. */
AF_INLINE af_u8v af_fifth_bits(const uint8_t *p)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t pair[2] = {p[0] * ones, p[1] * ones};
    af_u8v v;
    memcpy(&v, pair, sizeof v);
    const af_u8v bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return (af_u8v)((v & bit) != 0) & 16;
}

AF_INLINE af_i8v af_iq4(af_u8v code)
{
    const af_i8v table = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return af_lookup16(table, code);
}

/* The lower or the upper four bits. */
AF_INLINE af_u8v af_nibbles(af_u8v v, int upper)
{
    return upper ? (af_u8v)(v >> 4) : (af_u8v)(v & 15);
}

/* af_codes of Q3_K to Q6_K. */
AF_INLINE void af_codes_k(af_dtype type, const uint8_t *b, int j, af_i8v *lo, af_i8v *hi)
{
    af_u8v q, r;
    switch (type) {
    case AF_DTYPE_Q4_K:
    case AF_DTYPE_Q5_K: {
        const bool five = type == AF_DTYPE_Q5_K;
        const uint8_t *at = b + (five ? 48 : 16) + 32 * (j / 2);
        q = af_nibbles(af_load(at), j % 2);
        r = af_nibbles(af_load(at + 16), j % 2);
        if (five) {
            q |= (af_load(b + 16) >> (uint8_t)j & 1) << 4;
            r |= (af_load(b + 32) >> (uint8_t)j & 1) << 4;
        }
        *lo = (af_i8v)q;
        *hi = (af_i8v)r;
        return;
    }
    case AF_DTYPE_Q6_K: {
        const int quarter = j % 4;
        const uint8_t *at = b + 64 * (j / 4) + 32 * (quarter % 2), *h = b + 128 + 32 * (j / 4);
        const uint8_t up = (uint8_t)(2 * quarter);
        q = af_nibbles(af_load(at), quarter / 2) | (af_load(h) >> up & 3) << 4;
        r = af_nibbles(af_load(at + 16), quarter / 2) | (af_load(h + 16) >> up & 3) << 4;
        *lo = (af_i8v)q - 32;
        *hi = (af_i8v)r - 32;
        return;
    }
    default: { /* AF_DTYPE_Q3_K */
        const uint8_t *at = b + 32 + 32 * (j / 4), shift = (uint8_t)(2 * (j % 4));
        q = (af_load(at) >> shift & 3) | (af_load(b) >> (uint8_t)j & 1) << 2;
        r = (af_load(at + 16) >> shift & 3) | (af_load(b + 16) >> (uint8_t)j & 1) << 2;
        *lo = (af_i8v)q - 4;
        *hi = (af_i8v)r - 4;
        return;
    }
    }
}

/* Elements 32j .. 32j+31 of the block at b, as integers. */
AF_INLINE void af_codes(af_dtype type, const uint8_t *b, int j, af_i8v *lo, af_i8v *hi)
{
    af_u8v q;
    switch (type) {
    case AF_DTYPE_Q8_0:
        *lo = (af_i8v)af_load(b + 2);
        *hi = (af_i8v)af_load(b + 18);
        return;
    case AF_DTYPE_Q4_0:
    case AF_DTYPE_Q4_1:
        q = af_load(b + (type == AF_DTYPE_Q4_1 ? 4 : 2));
        *lo = (af_i8v)(q & 15) - (int8_t)(type == AF_DTYPE_Q4_0 ? 8 : 0);
        *hi = (af_i8v)(q >> 4) - (int8_t)(type == AF_DTYPE_Q4_0 ? 8 : 0);
        return;
    case AF_DTYPE_Q5_0:
    case AF_DTYPE_Q5_1: {
        const uint8_t *fifth = b + (type == AF_DTYPE_Q5_1 ? 4 : 2);
        q = af_load(fifth + 4);
        *lo = (af_i8v)((q & 15) | af_fifth_bits(fifth)) - (int8_t)(type == AF_DTYPE_Q5_0 ? 16 : 0);
        *hi = (af_i8v)((q >> 4) | af_fifth_bits(fifth + 2)) -
              (int8_t)(type == AF_DTYPE_Q5_0 ? 16 : 0);
        return;
    }
    case AF_DTYPE_IQ4_NL:
    case AF_DTYPE_IQ4_XS:
        q = af_load(b + (type == AF_DTYPE_IQ4_XS ? 8 + 16 * j : 2));
        *lo = af_iq4(q & 15);
        *hi = af_iq4(q >> 4);
        return;
    default:
        af_codes_k(type, b, j, lo, hi);
    }
}

/* Groups of 32 in a block. */
AF_INLINE int af_groups(af_dtype t)
{
    return t == AF_DTYPE_Q3_K || t == AF_DTYPE_Q4_K || t == AF_DTYPE_Q5_K || t == AF_DTYPE_Q6_K ||
                   t == AF_DTYPE_IQ4_XS
               ? 8
               : 1;
}

/* Where the codes of a large block begin, and their bytes: in pieces of sixteen. */
enum { AF_CODES_MAX = 192 };
AF_INLINE int af_codes_at(af_dtype t)
{
    return t == AF_DTYPE_Q4_K || t == AF_DTYPE_Q5_K ? 16 : t == AF_DTYPE_IQ4_XS ? 8 : 0;
}
AF_INLINE int af_codes_bytes(af_dtype t)
{
    return t == AF_DTYPE_Q3_K ? 96 : t == AF_DTYPE_Q5_K ? 160 : t == AF_DTYPE_Q6_K ? 192 : 128;
}

/* Types whose scales change every 16 elements instead of every 32. */
AF_INLINE bool af_by_16(af_dtype t) { return t == AF_DTYPE_Q6_K || t == AF_DTYPE_Q3_K; }

AF_INLINE bool af_has_offset(af_dtype t)
{
    return t == AF_DTYPE_Q4_1 || t == AF_DTYPE_Q5_1 || t == AF_DTYPE_Q4_K || t == AF_DTYPE_Q5_K;
}

/* Where the half-precision number is that scales the others (or is the scale). */
AF_INLINE int af_half_at(af_dtype t)
{
    return t == AF_DTYPE_Q6_K ? 208 : t == AF_DTYPE_Q3_K ? 108 : 0;
}

/* The small integers that scale the groups of a large block: sixteen, or eight and then eight that
 * scale the offsets. */
AF_INLINE af_i8v af_scale_codes(af_dtype type, const uint8_t *b)
{
    af_i8v v = {0};
    switch (type) {
    case AF_DTYPE_Q4_K:
    case AF_DTYPE_Q5_K: { /* af_scale_min, four at a time */
        const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
        uint32_t s[3];
        memcpy(s, b + 4, sizeof s);
        const uint32_t all[4] = {s[0] & six, (s[2] & four) | (s[0] >> 6 & two) << 4, s[1] & six,
                                 (s[2] >> 4 & four) | (s[1] >> 6 & two) << 4};
        memcpy(&v, all, sizeof v);
        return v;
    }
    case AF_DTYPE_IQ4_XS: {
        const int high = b[2] | b[3] << 8;
        for (int j = 0; j < 8; j++)
            v[j] =
                (int8_t)(((b[4 + j / 2] >> (4 * (j % 2)) & 15) | (high >> (2 * j) & 3) << 4) - 32);
        return v;
    }
    case AF_DTYPE_Q6_K:
        return (af_i8v)af_load(b + 192);
    default: /* AF_DTYPE_Q3_K */
        for (int j = 0; j < 16; j++)
            v[j] = (int8_t)af_q3_k_scale(b + 96, j);
        return v;
    }
}

/* All scales of the block at b: d[2j] and d[2j+1] for the halves of group j (d[2j] where the type
 * has one), and the offset m[j]. */
AF_INLINE void af_scales(af_dtype type, const uint8_t *b, float d[16], float m[8])
{
    const float by = af_half(b + af_half_at(type));
    const float offset = af_has_offset(type) ? af_half(b + 2) : 0;
    if (af_groups(type) == 1) {
        d[0] = by;
        m[0] = offset;
        return;
    }
    const af_i8v c = af_scale_codes(type, b);
    for (int j = 0; j < 8; j++) {
        d[2 * j] = by * (float)c[af_by_16(type) ? 2 * j : j];
        if (af_by_16(type))
            d[2 * j + 1] = by * (float)c[2 * j + 1];
        if (af_has_offset(type))
            m[j] = -offset * (float)c[8 + j];
    }
}
#endif
