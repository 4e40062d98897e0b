/* codec_decode.c - every GGUF block type that can be read, to f32.
 *
 * Values must equal the reference bit for bit, so each product is formed in its order: first
 * scale times sub-scale, then times the code. Inner loops have constant counts and no branches. */
#include "tensor/codec_block.h"
#include "tensor/codec_vec.h"

void af_q4_0_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / 32; b++, src += 18, dst += 32) {
        const float d = af_f16_at(src);
        const uint8_t *q = src + 2;
        for (int i = 0; i < 16; i++)
            dst[i] = (float)((q[i] & 15) - 8) * d;
        for (int i = 0; i < 16; i++)
            dst[16 + i] = (float)((q[i] >> 4) - 8) * d;
    }
}

void af_q4_1_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / 32; b++, src += 20, dst += 32) {
        const float d = af_f16_at(src), m = af_f16_at(src + 2);
        const uint8_t *q = src + 4;
        for (int i = 0; i < 16; i++)
            dst[i] = (float)(q[i] & 15) * d + m;
        for (int i = 0; i < 16; i++)
            dst[16 + i] = (float)(q[i] >> 4) * d + m;
    }
}

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Thirty-two codes of five bits minus `less`: element i is in the low, i+16 in the high half of
 * byte i, their fifth bits are those of h. */
static inline void codes_of_5(af_quad code[8], uint32_t h, const uint8_t *q, int less)
{
    const af_bytes none = {0};
    af_bytes both, half[2];
    memcpy(&both, q, sizeof both);
    half[0] = both & 15;
    half[1] = both >> 4;
    for (int k = 0; k < 8; k++) {
        const af_bytes b = half[k / 4];
        const af_bytes pair = k / 2 % 2
                                  ? __builtin_shufflevector(b, none, 8, 16, 9, 17, 10, 18, 11, 19,
                                                            12, 20, 13, 21, 14, 22, 15, 23)
                                  : __builtin_shufflevector(b, none, 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                                            20, 5, 21, 6, 22, 7, 23);
        const af_words w = (af_words)pair, zero = (af_words)none;
        const af_iquad low =
            (af_iquad)(k % 2 ? __builtin_shufflevector(w, zero, 4, 8, 5, 9, 6, 10, 7, 11)
                             : __builtin_shufflevector(w, zero, 0, 8, 1, 9, 2, 10, 3, 11));
        const uint32_t one = 1u << 4 * k;
        const af_iquad bit = {(int32_t)one, (int32_t)(one << 1), (int32_t)(one << 2),
                              (int32_t)(one << 3)};
        const af_iquad clear = (bit & (int32_t)h) == 0;
        code[k] = __builtin_convertvector(low + (16 - less) - (clear & 16), af_quad);
    }
}

void af_q5_0_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / 32; b++, src += 22, dst += 32) {
        const float d = af_f16_at(src);
        af_quad code[8];
        codes_of_5(code, u32_at(src + 2), src + 6, 16);
        for (int k = 0; k < 8; k++) {
            code[k] *= d;
            memcpy(dst + 4 * k, &code[k], sizeof code[k]);
        }
    }
}

void af_q5_1_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / 32; b++, src += 24, dst += 32) {
        const float d = af_f16_at(src), m = af_f16_at(src + 2);
        af_quad code[8];
        codes_of_5(code, u32_at(src + 4), src + 8, 0);
        for (int k = 0; k < 8; k++) {
            code[k] = code[k] * d + m;
            memcpy(dst + 4 * k, &code[k], sizeof code[k]);
        }
    }
}

void af_q8_0_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / 32; b++, src += 34, dst += 32) {
        const float d = af_f16_at(src);
        const int8_t *q = (const int8_t *)src + 2;
        for (int i = 0; i < 32; i++)
            dst[i] = (float)q[i] * d;
    }
}

/* scales[16] (low nibble scale, high nibble min), codes[64] of two bits, d, dmin */
void af_q2_k_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += 84, dst += AF_SUPER) {
        const float d = af_f16_at(src + 80), dmin = af_f16_at(src + 82);
        for (int j = 0; j < 16; j++) { /* 16 elements: byte row j/8, shift (j/2)%4, half j%2 */
            const uint8_t *q = src + 16 + 32 * (j / 8) + 16 * (j % 2);
            const int shift = 2 * (j / 2 % 4);
            const float scale = d * (float)(src[j] & 15), min = dmin * (float)(src[j] >> 4);
            for (int i = 0; i < 16; i++)
                dst[16 * j + i] = scale * (float)(q[i] >> shift & 3) - min;
        }
    }
}

/* hmask[32], codes[64] of two bits, scales[12], d */
void af_q3_k_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += 110, dst += AF_SUPER) {
        const float d = af_f16_at(src + 108);
        for (int j = 0; j < 16; j++) {
            const uint8_t *q = src + 32 + 32 * (j / 8) + 16 * (j % 2), *h = src + 16 * (j % 2);
            const int shift = 2 * (j / 2 % 4), bit = j / 2;
            const float scale = d * (float)af_q3_k_scale(src + 96, j);
            for (int i = 0; i < 16; i++)
                dst[16 * j + i] = scale * (float)((q[i] >> shift & 3) + (h[i] >> bit & 1) * 4 - 4);
        }
    }
}

/* d, dmin, scales[12], codes[128] */
void af_q4_k_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += 144, dst += AF_SUPER) {
        const float d = af_f16_at(src), dmin = af_f16_at(src + 2);
        for (int j = 0; j < 8; j++) {
            int s, m;
            af_scale_min(src + 4, j, &s, &m);
            const float scale = d * (float)s, min = dmin * (float)m;
            const uint8_t *q = src + 16 + 32 * (j / 2);
            const int shift = 4 * (j % 2);
            for (int i = 0; i < 32; i++)
                dst[32 * j + i] = scale * (float)(q[i] >> shift & 15) - min;
        }
    }
}

/* d, dmin, scales[12], high bits[32], codes[128] */
void af_q5_k_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += 176, dst += AF_SUPER) {
        const float d = af_f16_at(src), dmin = af_f16_at(src + 2);
        for (int j = 0; j < 8; j++) {
            int s, m;
            af_scale_min(src + 4, j, &s, &m);
            const float scale = d * (float)s, min = dmin * (float)m;
            const uint8_t *h = src + 16, *q = src + 48 + 32 * (j / 2);
            const int shift = 4 * (j % 2);
            for (int i = 0; i < 32; i++)
                dst[32 * j + i] =
                    scale * (float)((q[i] >> shift & 15) + (h[i] >> j & 1) * 16) - min;
        }
    }
}

/* low bits[128], high bits[64], scales[16] of i8, d */
void af_q6_k_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += 210, dst += AF_SUPER) {
        const float d = af_f16_at(src + 208);
        const int8_t *scales = (const int8_t *)src + 192;
        for (int j = 0; j < 16; j++) { /* 16 elements: half j/8, quarter (j/2)%4 */
            const int quarter = j / 2 % 4;
            const uint8_t *q = src + 64 * (j / 8) + 32 * (quarter % 2) + 16 * (j % 2);
            const uint8_t *h = src + 128 + 32 * (j / 8) + 16 * (j % 2);
            const int shift = 4 * (quarter / 2), up = 2 * quarter;
            const float scale = d * (float)scales[j];
            for (int i = 0; i < 16; i++)
                dst[16 * j + i] =
                    scale * (float)(((q[i] >> shift & 15) | (h[i] >> up & 3) << 4) - 32);
        }
    }
}

void af_iq4_nl_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / 32; b++, src += 18, dst += 32) {
        const float d = af_f16_at(src);
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)af_iq4_values[src[2 + i] & 15];
            dst[16 + i] = d * (float)af_iq4_values[src[2 + i] >> 4];
        }
    }
}

/* d, two high bits of 8 scales, four low bits of 8 scales, codes[128] */
void af_iq4_xs_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += 136, dst += AF_SUPER) {
        const float d = af_f16_at(src);
        const int high = src[2] | src[3] << 8;
        for (int j = 0; j < 8; j++) {
            const int s = (src[4 + j / 2] >> (4 * (j % 2)) & 15) | (high >> (2 * j) & 3) << 4;
            const float scale = d * (float)(s - 32);
            const uint8_t *q = src + 8 + 16 * j;
            for (int i = 0; i < 16; i++) {
                dst[32 * j + i] = scale * (float)af_iq4_values[q[i] & 15];
                dst[32 * j + 16 + i] = scale * (float)af_iq4_values[q[i] >> 4];
            }
        }
    }
}
