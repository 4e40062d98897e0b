/* dtype.c - the table of types, and conversions of single values and plain rows. */
#include "tensor/dtype.h"

#include "tensor/half.h"

#include <math.h>
#include <strings.h>

static const af_dtype_info table[AF_DTYPE_COUNT] = {
    [AF_DTYPE_F32] = {"f32", "F32", 0, 1, 4},
    [AF_DTYPE_F64] = {"f64", "F64", 28, 1, 8},
    [AF_DTYPE_BF16] = {"bf16", "BF16", 30, 1, 2},
    [AF_DTYPE_F16] = {"f16", "F16", 1, 1, 2},
    [AF_DTYPE_E4M3] = {"e4m3", "F8_E4M3", -1, 1, 1},
    [AF_DTYPE_E5M2] = {"e5m2", "F8_E5M2", -1, 1, 1},
    [AF_DTYPE_I8] = {"i8", "I8", 24, 1, 1},
    [AF_DTYPE_I16] = {"i16", "I16", 25, 1, 2},
    [AF_DTYPE_I32] = {"i32", "I32", 26, 1, 4},
    [AF_DTYPE_I64] = {"i64", "I64", 27, 1, 8},
    [AF_DTYPE_U8] = {"u8", "U8", -1, 1, 1},
    [AF_DTYPE_U16] = {"u16", "U16", -1, 1, 2},
    [AF_DTYPE_U32] = {"u32", "U32", -1, 1, 4},
    [AF_DTYPE_U64] = {"u64", "U64", -1, 1, 8},
    [AF_DTYPE_BOOL] = {"bool", "BOOL", -1, 1, 1},
    [AF_DTYPE_NF4] = {"nf4", NULL, -1, 2, 1},
    [AF_DTYPE_FP4] = {"fp4", NULL, -1, 2, 1},
    [AF_DTYPE_Q4_0] = {"q4_0", NULL, 2, 32, 18},
    [AF_DTYPE_Q4_1] = {"q4_1", NULL, 3, 32, 20},
    [AF_DTYPE_Q5_0] = {"q5_0", NULL, 6, 32, 22},
    [AF_DTYPE_Q5_1] = {"q5_1", NULL, 7, 32, 24},
    [AF_DTYPE_Q8_0] = {"q8_0", NULL, 8, 32, 34},
    [AF_DTYPE_Q8_1] = {"q8_1", NULL, 9, 32, 36},
    [AF_DTYPE_Q2_K] = {"q2_k", NULL, 10, 256, 84},
    [AF_DTYPE_Q3_K] = {"q3_k", NULL, 11, 256, 110},
    [AF_DTYPE_Q4_K] = {"q4_k", NULL, 12, 256, 144},
    [AF_DTYPE_Q5_K] = {"q5_k", NULL, 13, 256, 176},
    [AF_DTYPE_Q6_K] = {"q6_k", NULL, 14, 256, 210},
    [AF_DTYPE_Q8_K] = {"q8_k", NULL, 15, 256, 292},
    [AF_DTYPE_IQ4_NL] = {"iq4_nl", NULL, 20, 32, 18},
    [AF_DTYPE_IQ4_XS] = {"iq4_xs", NULL, 23, 256, 136},
    [AF_DTYPE_IQ2_XXS] = {"iq2_xxs", NULL, 16, 256, 66},
    [AF_DTYPE_IQ2_XS] = {"iq2_xs", NULL, 17, 256, 74},
    [AF_DTYPE_IQ3_XXS] = {"iq3_xxs", NULL, 18, 256, 98},
    [AF_DTYPE_IQ1_S] = {"iq1_s", NULL, 19, 256, 50},
    [AF_DTYPE_IQ3_S] = {"iq3_s", NULL, 21, 256, 110},
    [AF_DTYPE_IQ2_S] = {"iq2_s", NULL, 22, 256, 82},
    [AF_DTYPE_IQ1_M] = {"iq1_m", NULL, 29, 256, 56},
    [AF_DTYPE_TQ1_0] = {"tq1_0", NULL, 34, 256, 54},
    [AF_DTYPE_TQ2_0] = {"tq2_0", NULL, 35, 256, 66},
    [AF_DTYPE_MXFP4] = {"mxfp4", NULL, 39, 32, 17},
    [AF_DTYPE_NVFP4] = {"nvfp4", NULL, 40, 64, 36},
    [AF_DTYPE_Q1_0] = {"q1_0", NULL, 41, 128, 18},
    [AF_DTYPE_Q2_0] = {"q2_0", NULL, 42, 64, 18},
    [AF_DTYPE_E8M0] = {"e8m0", "F8_E8M0", -1, 1, 1},
    [AF_DTYPE_E4M3FNUZ] = {"e4m3fnuz", "F8_E4M3FNUZ", -1, 1, 1},
    [AF_DTYPE_E5M2FNUZ] = {"e5m2fnuz", "F8_E5M2FNUZ", -1, 1, 1},
    [AF_DTYPE_F4] = {"f4", "F4", -1, 2, 1},
    [AF_DTYPE_F6_E2M3] = {"f6_e2m3", "F6_E2M3", -1, 4, 3},
    [AF_DTYPE_F6_E3M2] = {"f6_e3m2", "F6_E3M2", -1, 4, 3},
    [AF_DTYPE_C64] = {"c64", "C64", -1, 1, 8},
};

const af_dtype_info *af_dtype_get(af_dtype t)
{
    assert((unsigned)t < AF_DTYPE_COUNT);
    return &table[t];
}

bool af_dtype_known(af_dtype t) { return (unsigned)t < AF_DTYPE_COUNT; }

const char *af_dtype_name(af_dtype t) { return (unsigned)t < AF_DTYPE_COUNT ? table[t].name : "?"; }

bool af_dtype_by_name(af_dtype *out, const char *name)
{
    for (int i = 0; i < AF_DTYPE_COUNT; i++)
        if (strcasecmp(table[i].name, name) == 0) {
            *out = (af_dtype)i;
            return true;
        }
    return false;
}

bool af_dtype_by_safetensors(af_dtype *out, const char *name)
{
    for (int i = 0; i < AF_DTYPE_COUNT; i++)
        if (table[i].safetensors && strcmp(table[i].safetensors, name) == 0) {
            *out = (af_dtype)i;
            return true;
        }
    return false;
}

bool af_dtype_by_gguf(af_dtype *out, uint32_t number)
{
    for (int i = 0; i < AF_DTYPE_COUNT; i++)
        if (table[i].gguf >= 0 && (uint32_t)table[i].gguf == number) {
            *out = (af_dtype)i;
            return true;
        }
    return false;
}

bool af_dtype_is_block(af_dtype t) { return af_dtype_get(t)->elems > 1; }

bool af_dtype_bytes(af_dtype t, uint64_t n, uint64_t *bytes)
{
    const af_dtype_info *d = af_dtype_get(t);
    const uint64_t e = (uint64_t)d->elems;
    const bool loose = t == AF_DTYPE_NF4 || t == AF_DTYPE_FP4;
    if (n % e != 0 && !loose)
        return false;
    return af_mul_ok(n / e + (n % e != 0), (uint64_t)d->bytes, bytes);
}

uint16_t af_bf16_from_f32(float x) { return af_bf16_down(x); }
float af_f32_from_bf16(uint16_t x) { return af_bf16_up(x); }
uint16_t af_f16_from_f32(float x) { return af_f16_down(x); }
float af_f32_from_f16(uint16_t x) { return af_f16_up(x); }

/* Rounds to a small float with `ebits` exponent and `mbits` mantissa bits, bias 2^(ebits-1)-1.
 * Gives sign, and the magnitude as if there were no special values; the caller deals with overflow.
 */
static uint32_t small_from_f32(uint32_t magnitude, int ebits, int mbits)
{
    const int bias = (1 << (ebits - 1)) - 1;
    const int e = (int)(magnitude >> 23) - 127 + bias; /* biased exponent in the small type */
    const int shift = 23 - mbits + (e < 1 ? 1 - e : 0);
    if (shift > 24 + 1)
        return 0; /* under half of the smallest subnormal */
    const uint32_t significand = (magnitude & 0x7fffffu) | (magnitude >> 23 ? 0x800000u : 0);
    const uint32_t kept = significand >> shift, rest = significand & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    const uint32_t up = rest > half || (rest == half && (kept & 1));
    const uint32_t base = e < 1 ? 0 : (uint32_t)(e - 1) << mbits; /* kept holds the implicit bit */
    return base + kept + up;
}

static float f32_from_small(uint32_t magnitude, int ebits, int mbits)
{
    const int bias = (1 << (ebits - 1)) - 1;
    const uint32_t e = magnitude >> mbits, m = magnitude & ((1u << mbits) - 1);
    if (e == 0)
        return ldexpf((float)m, 1 - bias - mbits);
    return ldexpf((float)(m | 1u << mbits), (int)e - bias - mbits);
}

uint8_t af_e5m2_from_f32(float x)
{
    const uint32_t u = af_bits_of(x), sign = u >> 24 & 0x80u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    const uint32_t r = mag >= 0x7f800000u ? 0x7cu : small_from_f32(mag, 5, 2);
    return (uint8_t)(sign | AF_MIN(r, 0x7cu));
}

float af_f32_from_e5m2(uint8_t x) { return af_f32_from_f16((uint16_t)(x << 8)); }

uint8_t af_e4m3_from_f32(float x)
{
    const uint32_t u = af_bits_of(x), sign = u >> 24 & 0x80u, mag = u & 0x7fffffffu;
    if (mag >= 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    const uint32_t r = small_from_f32(mag, 4, 3); /* 0x7e = 448 is the largest, 0x7f is NaN */
    return (uint8_t)(sign | AF_MIN(r, 0x7fu));
}

float af_f32_from_e4m3(uint8_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x80u) << 24, mag = x & 0x7fu;
    if (mag == 0x7fu)
        return af_float_of(sign | 0x7fc00000u);
    return af_float_of(sign | af_bits_of(f32_from_small(mag, 4, 3)));
}

double af_load_f64(const void *base, af_dtype t, uint64_t i)
{
    switch (t) {
    case AF_DTYPE_F32:
        return ((const float *)base)[i];
    case AF_DTYPE_F64:
        return ((const double *)base)[i];
    case AF_DTYPE_BF16:
        return af_f32_from_bf16(((const uint16_t *)base)[i]);
    case AF_DTYPE_F16:
        return af_f32_from_f16(((const uint16_t *)base)[i]);
    case AF_DTYPE_E4M3:
        return af_f32_from_e4m3(((const uint8_t *)base)[i]);
    case AF_DTYPE_E5M2:
        return af_f32_from_e5m2(((const uint8_t *)base)[i]);
    case AF_DTYPE_I8:
        return ((const int8_t *)base)[i];
    case AF_DTYPE_I16:
        return ((const int16_t *)base)[i];
    case AF_DTYPE_I32:
        return ((const int32_t *)base)[i];
    case AF_DTYPE_I64:
        return (double)((const int64_t *)base)[i];
    case AF_DTYPE_U8:
    case AF_DTYPE_BOOL:
        return ((const uint8_t *)base)[i];
    case AF_DTYPE_U16:
        return ((const uint16_t *)base)[i];
    case AF_DTYPE_U32:
        return ((const uint32_t *)base)[i];
    case AF_DTYPE_U64:
        return (double)((const uint64_t *)base)[i];
    default:
        assert(!"a plain type");
        return 0;
    }
}

/* double to float keeps round-to-nearest-even only in one step, so f16 and bf16 go through a float
 * that was rounded to odd: its last bit is sticky, and the second rounding is then exact. */
static float round_to_odd(double v)
{
    float f = (float)v;
    if ((double)f != v && isfinite(f)) {
        uint32_t u = af_bits_of(f);
        if (fabs((double)f) > fabs(v)) /* truncate towards zero first */
            u--;
        f = af_float_of(u | 1u);
    } else if (isinf(f) && isfinite(v)) {
        f = copysignf(3.4028235e38f, (float)(v > 0 ? 1 : -1));
    }
    return f;
}

void af_store_f64(void *base, af_dtype t, uint64_t i, double v)
{
    switch (t) {
    case AF_DTYPE_F32:
        ((float *)base)[i] = (float)v;
        break;
    case AF_DTYPE_F64:
        ((double *)base)[i] = v;
        break;
    case AF_DTYPE_BF16:
        ((uint16_t *)base)[i] = af_bf16_from_f32(round_to_odd(v));
        break;
    case AF_DTYPE_F16:
        ((uint16_t *)base)[i] = af_f16_from_f32(round_to_odd(v));
        break;
    case AF_DTYPE_E4M3:
        ((uint8_t *)base)[i] = af_e4m3_from_f32(round_to_odd(v));
        break;
    case AF_DTYPE_E5M2:
        ((uint8_t *)base)[i] = af_e5m2_from_f32(round_to_odd(v));
        break;
    case AF_DTYPE_I8:
        ((int8_t *)base)[i] = (int8_t)v;
        break;
    case AF_DTYPE_I16:
        ((int16_t *)base)[i] = (int16_t)v;
        break;
    case AF_DTYPE_I32:
        ((int32_t *)base)[i] = (int32_t)v;
        break;
    case AF_DTYPE_I64:
        ((int64_t *)base)[i] = (int64_t)v;
        break;
    case AF_DTYPE_U8:
    case AF_DTYPE_BOOL:
        ((uint8_t *)base)[i] = (uint8_t)v;
        break;
    case AF_DTYPE_U16:
        ((uint16_t *)base)[i] = (uint16_t)v;
        break;
    case AF_DTYPE_U32:
        ((uint32_t *)base)[i] = (uint32_t)v;
        break;
    case AF_DTYPE_U64:
        ((uint64_t *)base)[i] = (uint64_t)v;
        break;
    default:
        assert(!"a plain type");
    }
}

void af_convert(void *dst, af_dtype dst_type, const void *src, af_dtype src_type, uint64_t n)
{
    if (dst_type == src_type) {
        memcpy(dst, src, n * (uint64_t)af_dtype_get(dst_type)->bytes);
    } else if (dst_type == AF_DTYPE_F32 && src_type == AF_DTYPE_BF16) {
        for (uint64_t i = 0; i < n; i++)
            ((float *)dst)[i] = af_bf16_up(((const uint16_t *)src)[i]);
    } else if (dst_type == AF_DTYPE_BF16 && src_type == AF_DTYPE_F32) {
        for (uint64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = af_bf16_down(((const float *)src)[i]);
    } else if (dst_type == AF_DTYPE_F32 && src_type == AF_DTYPE_F16) {
        for (uint64_t i = 0; i < n; i++)
            ((float *)dst)[i] = af_f16_up(((const uint16_t *)src)[i]);
    } else if (dst_type == AF_DTYPE_F16 && src_type == AF_DTYPE_F32) {
        for (uint64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = af_f16_down(((const float *)src)[i]);
    } else {
        for (uint64_t i = 0; i < n; i++)
            af_store_f64(dst, dst_type, i, af_load_f64(src, src_type, i));
    }
}

bool af_all_finite(af_dtype dtype, const void *data, int64_t n)
{
    enum { LANES = 8 };
    uint64_t ones, odd[LANES] = {0}, high = UINT64_C(0x8000800080008000);
    switch (dtype) { /* an exponent of ones and its last bit carry into the place of the sign */
    case AF_DTYPE_BF16:
        ones = UINT64_C(0x7f807f807f807f80);
        break;
    case AF_DTYPE_F16:
        ones = UINT64_C(0x7c007c007c007c00);
        break;
    case AF_DTYPE_F32:
        ones = UINT64_C(0x7f8000007f800000);
        high = UINT64_C(0x8000000080000000);
        break;
    default: /* not looked at */
        return true;
    }
    const uint8_t *p = data;
    const int64_t bytes = n * af_dtype_get(dtype)->bytes;
    int64_t at = 0;
    for (; at <= bytes - LANES * 8; at += LANES * 8)
        for (int k = 0; k < LANES; k++) {
            uint64_t word;
            memcpy(&word, p + at + k * 8, sizeof word);
            odd[k] |= (word & ones) + (high - ones);
        }
    for (; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, p + at, (size_t)AF_MIN(8, bytes - at));
        odd[0] |= (word & ones) + (high - ones);
    }
    for (int k = 1; k < LANES; k++)
        odd[0] |= odd[k];
    return !(odd[0] & high);
}
