/* codec_k_signed.c - encoders of the super-blocks without mins: q3_k, q6_k, and the table types
 * iq4_nl and iq4_xs. */
#include "tensor/codec_block.h"
#include "tensor/codec_search.h"

static float sum_squares(const float *x, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

/* Scales and codes of 16 sub-blocks of 16 with codes 0 .. 2*half-1. */
static void search_subs(float *scale, uint8_t *code, float *total, const float *x, const float *w,
                        float half)
{
    af_v4 v[16], u[16], c[16], s;
    for (int j = 0; j < 16; j += 4) {
        af_v4_load(v, x + 16 * j, 16, 4);
        if (w) {
            af_v4 sum = af_v4_all(0);
            af_v4_load(u, w + 16 * j, 16, 4);
            for (int i = 0; i < 16; i++)
                sum += u[i];
            af_search_signed(16, half, v, u, c, &s);
            for (int k = 0; k < 4; k++)
                total[j + k] = sum[k];
        } else {
            af_search_stepwise(16, half, v, c, &s);
        }
        for (int k = 0; k < 4; k++) {
            scale[j + k] = s[k];
            af_v4_codes(code + 16 * (j + k), c, 16, k);
        }
    }
}

/* Codes again from the rounded scales; a zero scale keeps the code of the search. */
static void round_codes(uint8_t *code, const float *x, float step, float half)
{
    if (step == 0)
        return;
    for (int i = 0; i < 16; i++)
        code[i] = (uint8_t)(af_clamp(af_nearest(x[i] / step), -half, half - 1) + half);
}

/* The sixteen scales of q3_k as 0 .. 63; returns their unit. */
static float q3_k_scales(const float *scale, const float *total, uint8_t *six)
{
    if (total) {
        af_v4 v[16], w[16], c[16], unit;
        af_v4_load(v, scale, 16, 1);
        af_v4_load(w, total, 16, 1);
        af_search_signed(16, 32, v, w, c, &unit);
        af_v4_codes(six, c, 16, 0);
        return unit[0];
    }
    float amax = 0, max = 0;
    for (int j = 0; j < 16; j++)
        if (fabsf(scale[j]) > amax) {
            amax = fabsf(scale[j]);
            max = scale[j];
        }
    if (max == 0) {
        memset(six, 0, 16);
        return 0;
    }
    const float inverse = -32.0f / max;
    for (int j = 0; j < 16; j++)
        six[j] = (uint8_t)(af_clamp(af_nearest(inverse * scale[j]), -32, 31) + 32);
    return 1 / inverse;
}

void af_q3_k_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, x += AF_SUPER, dst += 110) {
        const float *imp = importance ? importance + b * AF_SUPER : NULL;
        float w[AF_SUPER], scale[16], total[16];
        uint8_t code[AF_SUPER], six[16];
        const float sigma2 = imp ? 2 * sum_squares(x, AF_SUPER) / AF_SUPER : 0;
        for (int i = 0; imp && i < AF_SUPER; i++)
            w[i] = imp[i] * sqrtf(sigma2 + x[i] * x[i]);
        search_subs(scale, code, total, x, imp ? w : NULL, 4);
        memset(dst, 0, 110);
        af_f16_put(dst + 108, q3_k_scales(scale, imp ? total : NULL, six));
        for (int j = 0; j < 16; j++) {
            dst[96 + j % 8] |= (uint8_t)((six[j] & 15) << (4 * (j / 8)));
            dst[104 + j % 4] |= (uint8_t)((six[j] >> 4) << (2 * (j / 4)));
        }
        const float d = af_f16_at(dst + 108);
        for (int j = 0; j < 16; j++)
            round_codes(code + 16 * j, x + 16 * j, d * (float)af_q3_k_scale(dst + 96, j), 4);
        for (int i = 0; i < AF_SUPER; i++) {
            dst[i % 32] |= (uint8_t)((code[i] >> 2) << (i / 32));
            dst[32 + 32 * (i / 128) + i % 32] |= (uint8_t)((code[i] & 3) << (2 * (i / 32 % 4)));
        }
    }
}

static void q6_k_pack(uint8_t *dst, const uint8_t *code)
{
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *c = code + 128 * h + i;
            dst[64 * h + i] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
            dst[64 * h + 32 + i] = (uint8_t)((c[32] & 15) | (c[96] & 15) << 4);
            dst[128 + 32 * h + i] =
                (uint8_t)(c[0] >> 4 | (c[32] >> 4) << 2 | (c[64] >> 4) << 4 | (c[96] >> 4) << 6);
        }
}

void af_q6_k_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, x += AF_SUPER, dst += 210) {
        float w[AF_SUPER], scale[16], total[16], amax = 0, max = 0;
        uint8_t code[AF_SUPER];
        for (int i = 0; i < AF_SUPER; i++)
            w[i] = importance ? importance[b * AF_SUPER + i] : x[i] * x[i];
        search_subs(scale, code, total, x, w, 32);
        for (int j = 0; j < 16; j++)
            if (fabsf(scale[j]) > amax) {
                amax = fabsf(scale[j]);
                max = scale[j];
            }
        memset(dst, 0, 210);
        if (!(amax >= 1e-15f))
            continue;
        const float inverse = -128.0f / max;
        af_f16_put(dst + 208, 1 / inverse);
        const float d = af_f16_at(dst + 208);
        for (int j = 0; j < 16; j++) {
            const float s = af_clamp(af_nearest(inverse * scale[j]), -128, 127);
            dst[192 + j] = (uint8_t)(int8_t)s;
            round_codes(code + 16 * j, x + 16 * j, d * s, 32);
        }
        q6_k_pack(dst, code);
    }
}

/* Weights of the table types: importance * sqrt(2*mean square + x*x), or x*x. */
static void iq4_weigh(af_v4 *w, const af_v4 *x, const af_v4 *importance, af_v4 sigma2)
{
    for (int i = 0; i < 32; i++) {
        const af_v4 s = sigma2 + x[i] * x[i];
        w[i] = importance
                   ? importance[i] * (af_v4){sqrtf(s[0]), sqrtf(s[1]), sqrtf(s[2]), sqrtf(s[3])}
                   : x[i] * x[i];
    }
}

static void iq4_codes(uint8_t *code, const float *x, float inverse)
{
    for (int i = 0; i < 32; i += 4) {
        af_v4 value, c, v = {x[i], x[i + 1], x[i + 2], x[i + 3]};
        af_iq4_nearest(v * af_v4_all(inverse), &value, &c);
        for (int k = 0; k < 4; k++)
            code[i + k] = (uint8_t)c[k];
    }
}

static void put_nibbles(uint8_t *dst, const uint8_t *code)
{
    for (int i = 0; i < 16; i++)
        dst[i] = (uint8_t)(code[i] | code[16 + i] << 4);
}

void af_iq4_nl_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    af_v4 v[32], q[32], w[32], scale;
    uint8_t code[32];
    const int64_t blocks = n / 32;
    for (int64_t b = 0; b < blocks; b += 4) {
        const int64_t count = AF_MIN(4, blocks - b);
        af_v4 sigma2 = af_v4_all(0);
        af_v4_load(v, x + 32 * b, 32, count);
        for (int i = 0; i < 32; i++)
            sigma2 += v[i] * v[i];
        sigma2 *= af_v4_all(2.0f / 32);
        if (importance)
            af_v4_load(q, importance + 32 * b, 32, count);
        iq4_weigh(w, v, importance ? q : NULL, sigma2);
        af_search_iq4(32, v, w, &scale);
        for (int k = 0; k < count; k++, dst += 18) {
            const float d = scale[k];
            af_f16_put(dst, d);
            iq4_codes(code, x + 32 * (b + k), d != 0 ? 1 / d : 0);
            put_nibbles(dst + 2, code);
        }
    }
}

void af_iq4_xs_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    af_v4 v[32], q[32], w[32], found;
    for (int64_t b = 0; b < n / AF_SUPER; b++, x += AF_SUPER, dst += 136) {
        const af_v4 sigma2 = af_v4_all(sum_squares(x, AF_SUPER) * (2.0f / AF_SUPER));
        float scale[8], amax = 0, max = 0;
        for (int j = 0; j < 8; j += 4) {
            af_v4_load(v, x + 32 * j, 32, 4);
            if (importance)
                af_v4_load(q, importance + b * AF_SUPER + 32 * j, 32, 4);
            iq4_weigh(w, v, importance ? q : NULL, sigma2);
            af_search_iq4(32, v, w, &found);
            for (int k = 0; k < 4; k++)
                scale[j + k] = found[k];
        }
        for (int j = 0; j < 8; j++)
            if (fabsf(scale[j]) > amax) {
                amax = fabsf(scale[j]);
                max = scale[j];
            }
        const float d = -max / 32, id = d != 0 ? 1 / d : 0;
        memset(dst, 0, 8);
        af_f16_put(dst, d);
        for (int j = 0; j < 8; j++) {
            uint8_t code[32];
            const float l = af_clamp(af_nearest(id * scale[j]), -32, 31), step = d * l;
            const unsigned six = (unsigned)(l + 32);
            iq4_codes(code, x + 32 * j, step != 0 ? 1 / step : 0);
            put_nibbles(dst + 8 + 16 * j, code);
            dst[4 + j / 2] |= (uint8_t)((six & 15) << (4 * (j % 2)));
            dst[2 + j / 4] |= (uint8_t)((six >> 4) << (2 * (j % 4)));
        }
    }
}
