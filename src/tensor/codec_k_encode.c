/* codec_k_encode.c - encoders of q2_k, q4_k, q5_k: super-blocks of 256 with scales and mins.
 *
 * First every sub-block finds its own scale and min; those are then quantised themselves, and the
 * codes are taken again from the quantised ones. */
#include "tensor/codec_block.h"
#include "tensor/codec_search.h"

typedef struct affine_super {
    float scale[16], min[16];
    float weight[16]; /* sum of the weights of each sub-block */
} affine_super;

static float sum_squares(const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

/* The weights of one super-block for a type: |x|, or rms of the sub-block + |x|, or by importance.
 */
static void weigh(float *w, const float *x, int sub, const float *importance, float sigma2)
{
    for (int j = 0; j < AF_SUPER; j += sub) {
        const float rms =
            sub == 32 && !importance ? sqrtf(sum_squares(x + j, sub) / (float)sub) : 0;
        for (int i = j; i < j + sub; i++)
            w[i] = importance ? importance[i] * sqrtf(sigma2 + x[i] * x[i]) : rms + fabsf(x[i]);
    }
}

static void search_subs(affine_super *s, uint8_t *code, const float *x, const float *w, int sub,
                        float top, const af_affine_plan *plan)
{
    af_v4 v[AF_SEARCH_MAX], u[AF_SEARCH_MAX], c[AF_SEARCH_MAX], scale, min;
    for (int j = 0; j < AF_SUPER / sub; j += 4) {
        af_v4 total = af_v4_all(0);
        af_v4_load(v, x + j * sub, sub, 4);
        af_v4_load(u, w + j * sub, sub, 4);
        for (int i = 0; i < sub; i++)
            total += u[i];
        af_search_affine(sub, top, v, u, c, &scale, &min, plan);
        for (int k = 0; k < 4; k++) {
            s->scale[j + k] = scale[k];
            s->min[j + k] = min[k];
            s->weight[j + k] = total[k];
            af_v4_codes(code + (j + k) * sub, c, sub, k);
        }
    }
}

/* Quantises n positive numbers to 0 .. top; returns their unit. */
static float round_scales(const float *x, const float *weight, int n, float top, uint8_t *code)
{
    if (weight)
        return af_search_positive(n, top, x, weight, code);
    float max = 0;
    for (int i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    const float inverse = max > 0 ? top / max : 0.0f;
    for (int i = 0; i < n; i++)
        code[i] = (uint8_t)af_clamp(af_nearest(inverse * x[i]), 0, top);
    return max / top;
}

/* Codes of one sub-block from its final scale and min; with no scale those of the search stay. */
static void round_codes(uint8_t *code, const float *x, int n, float scale, float min, float top)
{
    if (scale == 0)
        return;
    for (int i = 0; i < n; i++)
        code[i] = (uint8_t)af_clamp(af_nearest((x[i] + min) / scale), 0, top);
}

static void pack_scales(uint8_t *dst, const uint8_t *scale, const uint8_t *min)
{
    for (int j = 0; j < 4; j++) {
        dst[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        dst[j + 4] = (uint8_t)(min[j] | (min[j + 4] >> 4) << 6);
        dst[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

/* The part q4_k and q5_k share: d, dmin, twelve bytes of scales, and the 256 codes. */
static void encode_32(const float *x, uint8_t *dst, uint8_t *code, float top,
                      const af_affine_plan *plan, const float *importance)
{
    float w[AF_SUPER];
    affine_super s;
    uint8_t scale[8], min[8];
    weigh(w, x, 32, importance, importance ? 2 * sum_squares(x, AF_SUPER) / AF_SUPER : 0);
    search_subs(&s, code, x, w, 32, top, plan);
    const float *weight = importance ? s.weight : NULL;
    af_f16_put(dst, round_scales(s.scale, weight, 8, 63, scale));
    af_f16_put(dst + 2, round_scales(s.min, weight, 8, 63, min));
    pack_scales(dst + 4, scale, min);
    const float d = af_f16_at(dst), dmin = af_f16_at(dst + 2);
    for (int j = 0; j < 8; j++)
        round_codes(code + 32 * j, x + 32 * j, 32, d * (float)scale[j], dmin * (float)min[j], top);
}

static const af_affine_plan weighted = {-0.9f, 0.05f, 36, false};

void af_q4_k_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    static const af_affine_plan plain = {-1.0f, 0.1f, 20, false};
    uint8_t code[AF_SUPER];
    for (int64_t b = 0; b < n / AF_SUPER; b++, x += AF_SUPER, dst += 144) {
        const float *imp = importance ? importance + b * AF_SUPER : NULL;
        encode_32(x, dst, code, 15, imp ? &weighted : &plain, imp);
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++)
                dst[16 + 32 * j + i] = (uint8_t)(code[64 * j + i] | code[64 * j + 32 + i] << 4);
    }
}

void af_q5_k_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    static const af_affine_plan plain = {-0.5f, 0.1f, 15, false};
    uint8_t code[AF_SUPER];
    for (int64_t b = 0; b < n / AF_SUPER; b++, x += AF_SUPER, dst += 176) {
        const float *imp = importance ? importance + b * AF_SUPER : NULL;
        encode_32(x, dst, code, 31, imp ? &weighted : &plain, imp);
        memset(dst + 16, 0, 32);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++)
                dst[16 + i] |= (uint8_t)((code[32 * j + i] >> 4) << j);
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++)
                dst[48 + 32 * j + i] =
                    (uint8_t)((code[64 * j + i] & 15) | code[64 * j + 32 + i] << 4);
    }
}

void af_q2_k_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    static const af_affine_plan plain = {-0.5f, 0.1f, 15, true};
    for (int64_t b = 0; b < n / AF_SUPER; b++, x += AF_SUPER, dst += 84) {
        const float *imp = importance ? importance + b * AF_SUPER : NULL;
        const af_affine_plan *plan = imp ? &weighted : &plain;
        float w[AF_SUPER];
        affine_super s;
        uint8_t scale[16], min[16], code[AF_SUPER];
        weigh(w, x, 16, imp, imp ? sum_squares(x, AF_SUPER) / AF_SUPER : 0);
        search_subs(&s, code, x, w, 16, 3, plan);
        const float *weight = imp ? s.weight : NULL;
        af_f16_put(dst + 80, round_scales(s.scale, weight, 16, 15, scale));
        af_f16_put(dst + 82, round_scales(s.min, weight, 16, 15, min));
        const float d = af_f16_at(dst + 80), dmin = af_f16_at(dst + 82);
        for (int j = 0; j < 16; j++) {
            dst[j] = (uint8_t)(scale[j] | min[j] << 4);
            round_codes(code + 16 * j, x + 16 * j, 16, d * (float)scale[j], dmin * (float)min[j],
                        3);
        }
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 32; i++) {
                const uint8_t *c = code + 128 * h + i;
                dst[16 + 32 * h + i] = (uint8_t)(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
            }
    }
}
