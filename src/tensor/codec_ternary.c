/* codec_ternary.c - block types whose values are -1, 0 or 1 times a scale: tq1_0 puts five of them
 * into a byte, tq2_0 four. */
#include "tensor/codec_block.h"

enum { TQ1_BYTES = 54, TQ2_BYTES = 66, TQ2_CODES = 64 };

/* The bytes of tq1_0 by runs: byte i of a run holds elements i, i + bytes, i + 2 bytes, ... */
static const struct {
    int byte, element, bytes, elements; /* first ones; how many, and elements of a byte */
} runs[] = {{0, 0, 32, 5}, {32, 160, 16, 5}, {48, 240, 4, 4}};

static float scale_of(const uint8_t *at)
{
    uint16_t h;
    memcpy(&h, at, sizeof h);
    return af_f16_up(h);
}

/* The scale of a block, which is stored, and what values are multiplied with. */
static float put_scale(const float *x, uint8_t *at)
{
    float most = 0;
    for (int i = 0; i < AF_SUPER; i++)
        most = most > fabsf(x[i]) ? most : fabsf(x[i]);
    const uint16_t h = af_f16_down(most);
    memcpy(at, &h, sizeof h);
    return most != 0 ? 1.0f / most : 0;
}

/* 0, 1 or 2; halves away from zero. */
static unsigned digit(float x) { return x >= 0.5f ? 2 : x > -0.5f ? 1 : 0; }

/* Digits are kept as a fraction of 256, the first in front, so that multiplying by 3 brings each
 * above the point in turn. */
void af_tq1_0_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += TQ1_BYTES, dst += AF_SUPER) {
        const float d = scale_of(src + TQ1_BYTES - 2);
        for (size_t r = 0; r < AF_LEN(runs); r++)
            for (int i = 0; i < runs[r].bytes; i++) {
                unsigned rest = src[runs[r].byte + i];
                for (int k = 0; k < runs[r].elements; k++) {
                    rest *= 3;
                    dst[runs[r].element + k * runs[r].bytes + i] =
                        (float)((int)(rest >> 8) - 1) * d;
                    rest &= 255;
                }
            }
    }
}

void af_tq1_0_encode(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    (void)importance;
    for (int64_t b = 0; b < n / AF_SUPER; b++, dst += TQ1_BYTES, src += AF_SUPER) {
        const float by = put_scale(src, dst + TQ1_BYTES - 2);
        for (size_t r = 0; r < AF_LEN(runs); r++)
            for (int i = 0; i < runs[r].bytes; i++) {
                unsigned number = 0;
                for (int k = 0; k < 5; k++)
                    number =
                        number * 3 + (k < runs[r].elements
                                          ? digit(src[runs[r].element + k * runs[r].bytes + i] * by)
                                          : 0);
                dst[runs[r].byte + i] = (uint8_t)((number * 256 + 242) / 243); /* 3^5 = 243 */
            }
    }
}

void af_tq2_0_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += TQ2_BYTES, dst += AF_SUPER) {
        const float d = scale_of(src + TQ2_CODES);
        for (int i = 0; i < AF_SUPER; i++)
            dst[i] = (float)((src[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1) * d;
    }
}

void af_tq2_0_encode(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    (void)importance;
    for (int64_t b = 0; b < n / AF_SUPER; b++, dst += TQ2_BYTES, src += AF_SUPER) {
        const float by = put_scale(src, dst + TQ2_CODES);
        memset(dst, 0, TQ2_CODES);
        for (int i = 0; i < AF_SUPER; i++)
            dst[i / 128 * 32 + i % 32] |= (uint8_t)(digit(src[i] * by) << (i % 128 / 32 * 2));
    }
}
