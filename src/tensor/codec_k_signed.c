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

typedef struct signed_subs { /* of one super-block */
    float scale[16], iscale[16];
    float total[16]; /* sums of the weights */
} signed_subs;

/* Scales of 16 sub-blocks of 16 with codes 0 .. 2*half-1. */
static void search_subs(signed_subs *s, const float *x, const float *w, float half)
{
    af_wide v[16], u[16];
    for (int j = 0; j < 16; j += AF_WIDE) {
        af_wide sum = {{{0}}};
        af_wide_load(v, x + 16 * j, 16, AF_WIDE);
        if (w)
            af_wide_load(u, w + 16 * j, 16, AF_WIDE);
        for (int i = 0; i < 16; i++)
            for (int p = 0; p < 2; p++) {
                u[i].v[p] = w ? u[i].v[p] : v[i].v[p] * v[i].v[p];
                sum.v[p] += u[i].v[p];
            }
        af_search_signed(16, half, v, u, s->scale + j, s->iscale + j);
        memcpy(s->total + j, &sum, sizeof sum);
    }
}

static uint8_t code_of(float x, float half)
{
    return (uint8_t)(af_clamp(af_nearest(x), -half, half - 1) + half);
}

/* Codes from the rounded scale of sub-block j; without one those of the search. */
static void round_codes(uint8_t *code, const float *x, const signed_subs *s, int j, float step,
                        float half)
{
    if (step != 0)
        af_round_16(code, x, 0, step, -half, half - 1);
    else
        for (int i = 0; i < 16; i++)
            code[i] = s->iscale[j] != 0 ? code_of(s->iscale[j] * x[i], half) : 0;
}

/* The sixteen scales of q3_k as 0 .. 63; returns their unit. */
static float q3_k_scales(const float *scale, const float *total, uint8_t *six)
{
    if (total) {
        af_wide v[16], w[16];
        float unit[AF_WIDE], iscale[AF_WIDE];
        af_wide_load(v, scale, 16, 1);
        af_wide_load(w, total, 16, 1);
        af_search_signed(16, 32, v, w, unit, iscale);
        for (int j = 0; j < 16; j++)
            six[j] = iscale[0] != 0 ? code_of(iscale[0] * scale[j], 32) : 0;
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
        six[j] = code_of(inverse * scale[j], 32);
    return 1 / inverse;
}

/* Without importance: scales by the other search, which yields the codes as well. */
static void q3_k_plain(signed_subs *s, uint8_t *code, const float *x)
{
    af_vec v[16 * AF_STEPWISE], c[16 * AF_STEPWISE], scale[AF_STEPWISE];
    for (int q = 0; q < AF_STEPWISE; q++)
        af_vec_load(v + q, AF_STEPWISE, x + 16 * q * AF_LANES, 16, AF_LANES);
    af_search_stepwise(16, 4, v, c, scale);
    memcpy(s->scale, scale, sizeof scale);
    for (int j = 0; j < 16; j++)
        for (int i = 0; i < 16; i++)
            code[16 * j + i] = (uint8_t)c[i * AF_STEPWISE + j / AF_LANES][j % AF_LANES];
}

void af_q3_k_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, x += AF_SUPER, dst += 110) {
        const float *imp = importance ? importance + b * AF_SUPER : NULL;
        float w[AF_SUPER];
        uint8_t code[AF_SUPER], six[16];
        signed_subs s;
        const float sigma2 = imp ? 2 * sum_squares(x, AF_SUPER) / AF_SUPER : 0;
        for (int i = 0; imp && i < AF_SUPER; i++)
            w[i] = imp[i] * sqrtf(sigma2 + x[i] * x[i]);
        if (imp)
            search_subs(&s, x, w, 4);
        else
            q3_k_plain(&s, code, x);
        memset(dst, 0, 110);
        af_f16_put(dst + 108, q3_k_scales(s.scale, imp ? s.total : NULL, six));
        for (int j = 0; j < 16; j++) {
            dst[96 + j % 8] |= (uint8_t)((six[j] & 15) << (4 * (j / 8)));
            dst[104 + j % 4] |= (uint8_t)((six[j] >> 4) << (2 * (j / 4)));
        }
        const float d = af_f16_at(dst + 108);
        for (int j = 0; j < 16; j++) {
            const float step = d * (float)af_q3_k_scale(dst + 96, j);
            if (imp || step != 0) /* the plain search has left its codes */
                round_codes(code + 16 * j, x + 16 * j, &s, j, step, 4);
        }
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
        float amax = 0, max = 0;
        uint8_t code[AF_SUPER];
        signed_subs s;
        search_subs(&s, x, importance ? importance + b * AF_SUPER : NULL, 32);
        for (int j = 0; j < 16; j++)
            if (fabsf(s.scale[j]) > amax) {
                amax = fabsf(s.scale[j]);
                max = s.scale[j];
            }
        memset(dst, 0, 210);
        if (!(amax >= 1e-15f))
            continue;
        const float inverse = -128.0f / max;
        af_f16_put(dst + 208, 1 / inverse);
        const float d = af_f16_at(dst + 208);
        for (int j = 0; j < 16; j++) {
            const float scale = af_clamp(af_nearest(inverse * s.scale[j]), -128, 127);
            dst[192 + j] = (uint8_t)(int8_t)scale;
            round_codes(code + 16 * j, x + 16 * j, &s, j, d * scale, 32);
        }
        q6_k_pack(dst, code);
    }
}

/* Weights of the table types: importance * sqrt(2*mean square + x*x), or x*x. */
static void iq4_weigh(af_vec *w, const af_vec *x, const af_vec *importance, af_vec sigma2)
{
    for (int i = 0; i < 32; i++)
        w[i] = importance ? importance[i] * af_vec_sqrt(sigma2 + x[i] * x[i]) : x[i] * x[i];
}

static void put_nibbles(uint8_t *dst, const uint8_t *code)
{
    for (int i = 0; i < 16; i++)
        dst[i] = (uint8_t)(code[i] | code[16 + i] << 4);
}

void af_iq4_nl_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    af_vec v[32], q[32], w[32], scale;
    uint8_t code[32];
    const int64_t blocks = n / 32;
    for (int64_t b = 0; b < blocks; b += AF_LANES) {
        const int64_t count = AF_MIN(AF_LANES, blocks - b);
        af_vec sigma2 = af_vec_all(0);
        af_vec_load(v, 1, x + 32 * b, 32, count);
        for (int i = 0; i < 32; i++)
            sigma2 += v[i] * v[i];
        sigma2 *= af_vec_all(2.0f / 32);
        if (importance)
            af_vec_load(q, 1, importance + 32 * b, 32, count);
        iq4_weigh(w, v, importance ? q : NULL, sigma2);
        af_search_iq4(32, v, w, &scale);
        for (int k = 0; k < count; k++, dst += 18) {
            const float d = scale[k];
            af_f16_put(dst, d);
            af_iq4_codes(code, x + 32 * (b + k), 32, d != 0 ? 1 / d : 0);
            put_nibbles(dst + 2, code);
        }
    }
}

void af_iq4_xs_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    af_vec v[32], q[32], w[32], found;
    for (int64_t b = 0; b < n / AF_SUPER; b++, x += AF_SUPER, dst += 136) {
        const af_vec sigma2 = af_vec_all(sum_squares(x, AF_SUPER) * (2.0f / AF_SUPER));
        float scale[8], amax = 0, max = 0;
        for (int j = 0; j < 8; j += AF_LANES) {
            af_vec_load(v, 1, x + 32 * j, 32, AF_LANES);
            if (importance)
                af_vec_load(q, 1, importance + b * AF_SUPER + 32 * j, 32, AF_LANES);
            iq4_weigh(w, v, importance ? q : NULL, sigma2);
            af_search_iq4(32, v, w, &found);
            memcpy(scale + j, &found, sizeof found);
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
            af_iq4_codes(code, x + 32 * j, 32, step != 0 ? 1 / step : 0);
            put_nibbles(dst + 8 + 16 * j, code);
            dst[4 + j / 2] |= (uint8_t)((six & 15) << (4 * (j % 2)));
            dst[2 + j / 4] |= (uint8_t)((six >> 4) << (2 * (j % 4)));
        }
    }
}
