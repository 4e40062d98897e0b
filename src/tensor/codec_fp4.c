/* codec_fp4.c - block types of 4-bit floats (e2m1): mxfp4, 32 values under a power of two; nvfp4,
 * four times 16 values under an unsigned e4m3 each. Codes stand for twice their value, so scales
 * are halved. */
#include "tensor/codec_block.h"

enum { MX_BLOCK = 32, MX_BYTES = 17, NV_BLOCK = 64, NV_PART = 16, NV_BYTES = 36 };

static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void decode_part(const uint8_t *codes, float d, float *dst, int n)
{
    for (int i = 0; i < n / 2; i++) {
        dst[i] = (float)doubled[codes[i] & 15] * d;
        dst[n / 2 + i] = (float)doubled[codes[i] >> 4] * d;
    }
}

/* The nearest code; of equals the first. */
static uint8_t nearest(float x, float d)
{
    uint8_t best = 0;
    for (uint8_t i = 1; i < 16; i++)
        if (fabsf((float)doubled[i] * d - x) < fabsf((float)doubled[best] * d - x))
            best = i;
    return best;
}

static void encode_part(const float *x, float d, uint8_t *codes, int n)
{
    for (int i = 0; i < n / 2; i++)
        codes[i] = (uint8_t)(nearest(x[i], d) | nearest(x[n / 2 + i], d) << 4);
}

static float largest(const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = most < fabsf(x[i]) ? fabsf(x[i]) : most;
    return most;
}

void af_mxfp4_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / MX_BLOCK; b++, src += MX_BYTES, dst += MX_BLOCK)
        decode_part(src + 1, ldexpf(1.0f, (int)src[0] - 128), dst, MX_BLOCK);
}

void af_mxfp4_encode(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    (void)importance;
    for (int64_t b = 0; b < n / MX_BLOCK; b++, dst += MX_BYTES, src += MX_BLOCK) {
        const float most = largest(src, MX_BLOCK); /* 6 = 1.5 * 2^2 is the largest code */
        dst[0] = most > 0 ? (uint8_t)af_clamp(floorf(log2f(most)) - 2 + 127, 0, 255) : 0;
        encode_part(src, ldexpf(1.0f, (int)dst[0] - 128), dst + 1, MX_BLOCK);
    }
}

/* Half of an unsigned e4m3. */
static float nv_scale(uint8_t x)
{
    const int exponent = x >> 3 & 15, mantissa = x & 7;
    if (x == 0 || x == 0x7f)
        return 0;
    return exponent == 0 ? ldexpf((float)mantissa, -10)
                         : ldexpf((float)(8 + mantissa), exponent - 11);
}

/* The nearest unsigned e4m3: ties away from zero, small ones without exponent, at most 448. */
static uint8_t nv_scale_of(float x)
{
    uint32_t bits;
    x = af_clamp(x, 0, 448);
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 23 & 0xff) - 127 + 7;
    if (exponent <= 0)
        return (uint8_t)af_clamp(floorf(x * 512 + 0.5f), 0, 7);
    const uint32_t code = ((uint32_t)exponent << 3 | (bits >> 20 & 7)) + (bits >> 19 & 1);
    return (uint8_t)AF_MIN(code, 0x7eu);
}

void af_nvfp4_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / NV_BLOCK; b++, src += NV_BYTES, dst += NV_BLOCK)
        for (int k = 0; k < NV_BLOCK / NV_PART; k++)
            decode_part(src + 4 + k * NV_PART / 2, nv_scale(src[k]), dst + k * NV_PART, NV_PART);
}

void af_nvfp4_encode(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    (void)importance;
    for (int64_t b = 0; b < n / NV_BLOCK; b++, dst += NV_BYTES, src += NV_BLOCK)
        for (int k = 0; k < NV_BLOCK / NV_PART; k++) {
            const float *x = src + k * NV_PART;
            dst[k] = nv_scale_of(largest(x, NV_PART) / 6.0f);
            encode_part(x, nv_scale(dst[k]), dst + 4 + k * NV_PART / 2, NV_PART);
        }
}
