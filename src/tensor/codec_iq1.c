/* codec_iq1.c - block types that are read and not written: iq1_s, iq1_m, iq2_xxs, iq2_xs (eight
 * values at a time are a point of a fixed grid), q1_0 (signs) and q2_0 (two bits).
 *
 * A GPU has no kernels for them: there they are decoded when a model is loaded. */
#include "tensor/codec_block.h"
#include "tensor/iq1_grid.h"

enum { POINT = 8, PART = 32, POINTS = PART / POINT, PARTS = AF_SUPER / PART };

static uint32_t u16_at(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }

static float half_at(const uint8_t *p) { return af_f32_from_f16((uint16_t)u16_at(p)); }

/* Seven signs of a point; the eighth makes their number even. */
static void put_signed(uint32_t point, uint32_t signs, float scale, float *out)
{
    static const float levels[4] = {8, 25, 43};
    uint32_t odd = signs ^ signs >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    signs |= (odd & 1) << 7;
    for (int i = 0; i < POINT; i++) {
        const float x = scale * levels[point >> (2 * i) & 3];
        out[i] = signs >> i & 1 ? -x : x;
    }
}

/* d; for each part four bytes of indexes, then four times seven bits of signs and four of scale. */
void af_iq2_xxs_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += 2 + AF_SUPER / 4) {
        const float d = half_at(src);
        for (int p = 0; p < PARTS; p++) {
            const uint8_t *q = src + 2 + 8 * p;
            const uint32_t more = u16_at(q + 4) | u16_at(q + 6) << 16;
            const float scale = d * (0.5f + (float)(more >> 28)) * 0.25f;
            for (int k = 0; k < POINTS; k++, dst += POINT)
                put_signed(iq2_xxs_grid[q[k]], more >> (7 * k) & 127, scale, dst);
        }
    }
}

/* d, 32 words of nine bits of index and seven of signs, four bits of scale for each half part. */
void af_iq2_xs_decode(const uint8_t *src, float *dst, int64_t n)
{
    enum { SCALES = 2 + AF_SUPER / 4 };
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += SCALES + PARTS) {
        const float d = half_at(src);
        for (int k = 0; k < PARTS * POINTS; k++, dst += POINT) {
            const uint32_t q = u16_at(src + 2 + 2 * k);
            const int four = src[SCALES + k / POINTS] >> (4 * (k % POINTS / 2)) & 15;
            put_signed(iq2_xs_grid[q & 511], q >> 9, d * (0.5f + (float)four) * 0.25f, dst);
        }
    }
}

static void put_shifted(uint32_t point, float scale, bool down, float *out)
{
    const float delta = down ? -0.125f : 0.125f;
    for (int i = 0; i < POINT; i++)
        out[i] = scale * ((float)(point >> (2 * i) & 3) - 1.0f + delta);
}

/* d, low bytes of indexes, for each part a word: four times three upper bits, scale, shift. */
void af_iq1_s_decode(const uint8_t *src, float *dst, int64_t n)
{
    enum { UPPER = 2 + AF_SUPER / POINT };
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += UPPER + 2 * PARTS) {
        const float d = half_at(src);
        for (int k = 0; k < PARTS * POINTS; k++, dst += POINT) {
            const uint32_t h = u16_at(src + UPPER + k / POINTS * 2);
            const uint32_t index = src[2 + k] | (h >> (3 * (k % POINTS)) & 7) << 8;
            put_shifted(iq1_grid[index], d * (float)(2 * (h >> 12 & 7) + 1), h >> 15, dst);
        }
    }
}

/* Low bytes of indexes; three upper bits and a shift of each; four words: scales of three bits for
 * half parts, and in their upper bits d. */
void af_iq1_m_decode(const uint8_t *src, float *dst, int64_t n)
{
    enum { UPPER = AF_SUPER / POINT, SCALES = UPPER + AF_SUPER / POINT / 2 };
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += SCALES + PARTS) {
        uint32_t bits = 0;
        for (int i = 0; i < 4; i++)
            bits |= (u16_at(src + SCALES + 2 * i) >> 12) << (4 * i);
        const float d = af_f32_from_f16((uint16_t)bits);
        for (int k = 0; k < PARTS * POINTS; k++, dst += POINT) {
            const int half = k / 2; /* two points have a scale */
            const uint32_t h = src[UPPER + k / 2] >> (4 * (k % 2)) & 15;
            const uint32_t s = u16_at(src + SCALES + half / 4 * 2) >> (3 * (half % 4)) & 7;
            put_shifted(iq1_grid[src[k] | (h & 7) << 8], d * (float)(2 * s + 1), h >> 3, dst);
        }
    }
}

/* d and 128 signs. */
void af_q1_0_decode(const uint8_t *src, float *dst, int64_t n)
{
    enum { BLOCK = 128 };
    for (int64_t b = 0; b < n / BLOCK; b++, src += 2 + BLOCK / 8, dst += BLOCK) {
        const float d = half_at(src);
        for (int i = 0; i < BLOCK; i++)
            dst[i] = src[2 + i / 8] >> (i % 8) & 1 ? d : -d;
    }
}

/* d and 64 codes for -1 to 2. */
void af_q2_0_decode(const uint8_t *src, float *dst, int64_t n)
{
    enum { BLOCK = 64 };
    for (int64_t b = 0; b < n / BLOCK; b++, src += 2 + BLOCK / 4, dst += BLOCK) {
        const float d = half_at(src);
        for (int i = 0; i < BLOCK; i++)
            dst[i] = (float)((src[2 + i / 4] >> (2 * (i % 4)) & 3) - 1) * d;
    }
}
