/* codec_q_encode.c - encoders of the plain block types (32 elements, one scale). */
#include "tensor/codec_block.h"
#include "tensor/codec_search.h"

enum { BLOCK = 32 };

/* The value of largest magnitude, with its sign; the first of equals. */
static float largest(const float *x)
{
    const float amax = af_amax(x, BLOCK);
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) == amax)
            return x[i];
    return 0; /* NaN only */
}

static void range(const float *x, float *min, float *max)
{
    float lo = x[0], hi = x[0];
    for (int i = 1; i < BLOCK; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    *min = lo;
    *max = hi;
}

/* Codes of 4 bits: element i in the low, i+16 in the high half of byte i. */
static void put_nibbles(uint8_t *dst, const uint8_t *code)
{
    for (int i = 0; i < 16; i++)
        dst[i] = (uint8_t)((code[i] & 15) | code[16 + i] << 4);
}

/* The fifth bits, as a little-endian word. */
static void put_high(uint8_t *dst, const uint8_t *code)
{
    uint32_t h = 0;
    for (int i = 0; i < BLOCK; i++)
        h |= (uint32_t)(code[i] >> 4 & 1) << i;
    for (int i = 0; i < 4; i++)
        dst[i] = (uint8_t)(h >> (8 * i));
}

static void q4_0_put(uint8_t *dst, float d, const uint8_t *code)
{
    af_f16_put(dst, d);
    put_nibbles(dst + 2, code);
}

static void q5_0_put(uint8_t *dst, float d, const uint8_t *code)
{
    af_f16_put(dst, d);
    put_high(dst + 2, code);
    put_nibbles(dst + 6, code);
}

static void q4_1_put(uint8_t *dst, float d, float m, const uint8_t *code)
{
    af_f16_put(dst, d);
    af_f16_put(dst + 2, m);
    put_nibbles(dst + 4, code);
}

static void q5_1_put(uint8_t *dst, float d, float m, const uint8_t *code)
{
    af_f16_put(dst, d);
    af_f16_put(dst + 2, m);
    put_high(dst + 4, code);
    put_nibbles(dst + 8, code);
}

/* Without importance: the largest value gets the code 0, the scale follows. */
static float round_signed(const float *x, float half, uint8_t *code)
{
    const float d = largest(x) / -half, id = d != 0 ? 1.0f / d : 0.0f;
    for (int i = 0; i < BLOCK; i++)
        code[i] = (uint8_t)af_clamp(x[i] * id + (half + 0.5f), 0, 2 * half - 1);
    return d;
}

static float round_affine(const float *x, float top, float *min, uint8_t *code)
{
    float max;
    range(x, min, &max);
    const float d = (max - *min) / top, id = d != 0 ? 1.0f / d : 0.0f;
    for (int i = 0; i < BLOCK; i++)
        code[i] = (uint8_t)af_clamp((x[i] - *min) * id + 0.5f, 0, top);
    return d;
}

/* importance * sqrt(mean square of the row + x*x) of four blocks. */
static void weigh(af_v4 *w, const af_v4 *x, const af_v4 *importance, float sigma2)
{
    for (int i = 0; i < BLOCK; i++) {
        const af_v4 s = af_v4_all(sigma2) + x[i] * x[i];
        w[i] = importance[i] * (af_v4){sqrtf(s[0]), sqrtf(s[1]), sqrtf(s[2]), sqrtf(s[3])};
    }
}

static float mean_square(const float *x, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum / (float)n;
}

typedef void put_signed(uint8_t *dst, float d, const uint8_t *code);
typedef void put_affine(uint8_t *dst, float d, float m, const uint8_t *code);

static void encode_signed(const float *x, uint8_t *dst, int64_t n, const float *importance,
                          float half, int bytes, put_signed *put)
{
    uint8_t code[BLOCK];
    af_v4 v[BLOCK], q[BLOCK], w[BLOCK], c[BLOCK], scale;
    const int64_t blocks = n / BLOCK;
    if (!importance) {
        for (int64_t b = 0; b < blocks; b++, dst += bytes) {
            const float d = round_signed(x + b * BLOCK, half, code);
            put(dst, d, code);
        }
        return;
    }
    const float sigma2 = mean_square(x, n);
    for (int64_t b = 0; b < blocks; b += 4) {
        const int64_t count = AF_MIN(4, blocks - b);
        af_v4_load(v, x + b * BLOCK, BLOCK, count);
        af_v4_load(q, importance + b * BLOCK, BLOCK, count);
        weigh(w, v, q, sigma2);
        af_search_signed(BLOCK, half, v, w, c, &scale);
        for (int k = 0; k < count; k++, dst += bytes) {
            af_v4_codes(code, c, BLOCK, k);
            put(dst, scale[k], code);
        }
    }
}

static void encode_affine(const float *x, uint8_t *dst, int64_t n, const float *importance,
                          float top, int bytes, put_affine *put)
{
    static const af_affine_plan plan = {-0.9f, 0.05f, 36, false};
    uint8_t code[BLOCK];
    af_v4 v[BLOCK], q[BLOCK], w[BLOCK], c[BLOCK], scale, min;
    const int64_t blocks = n / BLOCK;
    if (!importance) {
        for (int64_t b = 0; b < blocks; b++, dst += bytes) {
            float m;
            const float d = round_affine(x + b * BLOCK, top, &m, code);
            put(dst, d, m, code);
        }
        return;
    }
    const float sigma2 = mean_square(x, n);
    for (int64_t b = 0; b < blocks; b += 4) {
        const int64_t count = AF_MIN(4, blocks - b);
        af_v4_load(v, x + b * BLOCK, BLOCK, count);
        af_v4_load(q, importance + b * BLOCK, BLOCK, count);
        weigh(w, v, q, sigma2);
        af_search_affine(BLOCK, top, v, w, c, &scale, &min, &plan);
        for (int k = 0; k < count; k++, dst += bytes) {
            af_v4_codes(code, c, BLOCK, k);
            put(dst, scale[k], -min[k], code);
        }
    }
}

void af_q4_0_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    encode_signed(x, dst, n, importance, 8, 18, q4_0_put);
}

void af_q5_0_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    encode_signed(x, dst, n, importance, 16, 22, q5_0_put);
}

void af_q4_1_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    encode_affine(x, dst, n, importance, 15, 20, q4_1_put);
}

void af_q5_1_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    encode_affine(x, dst, n, importance, 31, 24, q5_1_put);
}

void af_q8_0_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    (void)importance; /* one scale from the largest value, with or without */
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, dst += 34) {
        const float d = af_amax(x, BLOCK) / 127.0f, id = d != 0 ? 1.0f / d : 0.0f;
        af_f16_put(dst, d);
        for (int i = 0; i < BLOCK; i++) { /* half away from zero */
            const float y = af_clamp(x[i] * id, -127, 127), t = (float)(int)y, r = y - t;
            dst[2 + i] = (uint8_t)(int8_t)((int)y + (r >= 0.5f) - (r <= -0.5f));
        }
    }
}
