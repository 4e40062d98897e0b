/* codec_k_encode.c - encoders of q2_k, q4_k, q5_k: super-blocks of 256 with scales and mins.
 *
 * First every sub-block finds its own scale and min; those are then quantised themselves, and the
 * codes are taken again from the quantised ones. */
#include "tensor/codec_block.h"
#include "tensor/codec_search.h"

enum { SUPERS = AF_WIDE / 4, SUBS = 16 * SUPERS }; /* of 32: searched together */

/* What the search found for the sub-blocks of some super-blocks. */
typedef struct affine_subs {
    float scale[SUBS], min[SUBS], iscale[SUBS], from[SUBS];
    float weight[SUBS]; /* sum of the weights of each sub-block */
} affine_subs;

typedef struct affine_type {
    int sub;
    float top, sigma; /* sigma: how often the mean square enters the weights by importance */
    af_affine_plan plain, weighted;
} affine_type;

static float sum_squares(const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

/* Without importance: |x|, for sub-blocks of 32 plus their rms. */
static void weigh_plain(af_wide *w, const af_wide *x, int sub)
{
    for (int p = 0; p < 2; p++) {
        af_vec sum = af_vec_all(0);
        for (int i = 0; i < sub; i++)
            sum += x[i].v[p] * x[i].v[p];
        const af_vec rms = sub == 32 ? af_vec_sqrt(sum / 32.0f) : af_vec_all(0);
        for (int i = 0; i < sub; i++)
            w[i].v[p] = rms + af_vec_abs(x[i].v[p]);
    }
}

/* importance * sqrt(sigma2 of the super-block + x*x); w holds the importance. */
static void weigh_important(af_wide *w, const af_wide *x, int sub, const af_wide *sigma2)
{
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < sub; i++)
            w[i].v[p] *= af_vec_sqrt(sigma2->v[p] + x[i].v[p] * x[i].v[p]);
}

/* Weights of AF_WIDE sub-blocks (`count` of them real) that begin at x. */
static void weigh(af_wide *w, const af_wide *v, int sub, const float *importance, int64_t count,
                  const float *mean2)
{
    af_wide sigma2;
    if (!importance) {
        weigh_plain(w, v, sub);
        return;
    }
    for (int k = 0; k < AF_WIDE; k++)
        sigma2.v[k / AF_LANES][k % AF_LANES] = mean2[AF_MIN(k, count - 1)];
    af_wide_load(w, importance, sub, count);
    weigh_important(w, v, sub, &sigma2);
}

/* All sub-blocks of `supers` super-blocks. */
static void search_subs(affine_subs *s, const affine_type *t, const float *x, int supers,
                        const float *importance)
{
    const int sub = t->sub, per = AF_SUPER / sub, blocks = supers * per;
    af_wide v[2 * AF_SEARCH_MAX], w[2 * AF_SEARCH_MAX];
    float mean2[SUBS] = {0};
    af_affine found[2];
    for (int k = 0; k < blocks && importance; k++)
        mean2[k] =
            k % per ? mean2[k - 1] : t->sigma * sum_squares(x + k * sub, AF_SUPER) / AF_SUPER;
    for (int j = 0; j < blocks; j += 2 * AF_WIDE) {
        const int wides = blocks - j > AF_WIDE ? 2 : 1;
        for (int q = 0; q < wides; q++) {
            const int at = j + q * AF_WIDE, count = AF_MIN(AF_WIDE, blocks - at);
            af_wide_load(v + q * sub, x + at * sub, sub, count);
            weigh(w + q * sub, v + q * sub, sub, importance ? importance + at * sub : NULL, count,
                  mean2 + at);
        }
        af_search_affine(sub, t->top, wides, v, w, found, importance ? &t->weighted : &t->plain);
        for (int k = j; k < AF_MIN(j + 2 * AF_WIDE, blocks); k++) {
            const int q = (k - j) / AF_WIDE, lane = (k - j) % AF_WIDE;
            float total = 0;
            for (int i = 0; i < sub && importance; i++)
                total += w[q * sub + i].v[lane / AF_LANES][lane % AF_LANES];
            s->scale[k] = found[q].scale[lane];
            s->min[k] = found[q].min[lane];
            s->iscale[k] = found[q].iscale[lane];
            s->from[k] = found[q].from[lane];
            s->weight[k] = total;
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

/* Codes of sub-block j from its final scale and min; with no scale those of the search. */
static void round_codes(uint8_t *code, const float *x, const affine_type *t, const affine_subs *s,
                        int j, float scale, float min)
{
    if (scale == 0)
        for (int i = 0; i < t->sub; i++)
            code[i] = (uint8_t)af_clamp(af_nearest(s->iscale[j] * (x[i] - s->from[j])), 0, t->top);
    else
        for (int i = 0; i < t->sub; i += 16)
            af_round_16(code + i, x + i, min, scale, 0, t->top);
}

static void pack_scales(uint8_t *dst, const uint8_t *scale, const uint8_t *min)
{
    for (int j = 0; j < 4; j++) {
        dst[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        dst[j + 4] = (uint8_t)(min[j] | (min[j + 4] >> 4) << 6);
        dst[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

/* The part q4_k and q5_k share: d, dmin, twelve bytes of scales, and the 256 codes of the
 * super-block whose sub-blocks begin at `at`. */
static void put_32(const affine_type *t, const affine_subs *s, int at, const float *x, uint8_t *dst,
                   uint8_t *code, bool important)
{
    uint8_t scale[8], min[8];
    const float *weight = important ? s->weight + at : NULL;
    af_f16_put(dst, round_scales(s->scale + at, weight, 8, 63, scale));
    af_f16_put(dst + 2, round_scales(s->min + at, weight, 8, 63, min));
    pack_scales(dst + 4, scale, min);
    const float d = af_f16_at(dst), dmin = af_f16_at(dst + 2);
    for (int j = 0; j < 8; j++)
        round_codes(code + 32 * j, x + 32 * j, t, s, at + j, d * (float)scale[j],
                    dmin * (float)min[j]);
}

static void put_q4_k(const affine_type *t, const affine_subs *s, int at, const float *x,
                     uint8_t *dst, bool important)
{
    uint8_t code[AF_SUPER];
    put_32(t, s, at, x, dst, code, important);
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 32; i++)
            dst[16 + 32 * j + i] = (uint8_t)(code[64 * j + i] | code[64 * j + 32 + i] << 4);
}

static void put_q5_k(const affine_type *t, const affine_subs *s, int at, const float *x,
                     uint8_t *dst, bool important)
{
    uint8_t code[AF_SUPER];
    put_32(t, s, at, x, dst, code, important);
    memset(dst + 16, 0, 32);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++)
            dst[16 + i] |= (uint8_t)((code[32 * j + i] >> 4) << j);
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 32; i++)
            dst[48 + 32 * j + i] = (uint8_t)((code[64 * j + i] & 15) | code[64 * j + 32 + i] << 4);
}

static void put_q2_k(const affine_type *t, const affine_subs *s, int at, const float *x,
                     uint8_t *dst, bool important)
{
    uint8_t scale[16], min[16], code[AF_SUPER];
    const float *weight = important ? s->weight + at : NULL;
    af_f16_put(dst + 80, round_scales(s->scale + at, weight, 16, 15, scale));
    af_f16_put(dst + 82, round_scales(s->min + at, weight, 16, 15, min));
    const float d = af_f16_at(dst + 80), dmin = af_f16_at(dst + 82);
    for (int j = 0; j < 16; j++) {
        dst[j] = (uint8_t)(scale[j] | min[j] << 4);
        round_codes(code + 16 * j, x + 16 * j, t, s, at + j, d * (float)scale[j],
                    dmin * (float)min[j]);
    }
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *c = code + 128 * h + i;
            dst[16 + 32 * h + i] = (uint8_t)(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
        }
}

typedef void put_fn(const affine_type *t, const affine_subs *s, int at, const float *x,
                    uint8_t *dst, bool important);

static void encode(const affine_type *t, put_fn *put, int bytes, const float *x, uint8_t *dst,
                   int64_t n, const float *importance)
{
    affine_subs s;
    for (int64_t b = 0; b < n / AF_SUPER; b += SUPERS) {
        const int supers = (int)AF_MIN(SUPERS, n / AF_SUPER - b);
        search_subs(&s, t, x, supers, importance ? importance + b * AF_SUPER : NULL);
        for (int k = 0; k < supers; k++, x += AF_SUPER, dst += bytes)
            put(t, &s, k * (AF_SUPER / t->sub), x, dst, importance != NULL);
    }
}

void af_q4_k_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    static const affine_type type = {
        32, 15, 2, {-1.0f, 0.1f, 20, false}, {-0.9f, 0.05f, 36, false}};
    encode(&type, put_q4_k, 144, x, dst, n, importance);
}

void af_q5_k_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    static const affine_type type = {
        32, 31, 2, {-0.5f, 0.1f, 15, false}, {-0.9f, 0.05f, 36, false}};
    encode(&type, put_q5_k, 176, x, dst, n, importance);
}

void af_q2_k_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    static const affine_type type = {16, 3, 1, {-0.5f, 0.1f, 15, true}, {-0.9f, 0.05f, 36, false}};
    encode(&type, put_q2_k, 84, x, dst, n, importance);
}
