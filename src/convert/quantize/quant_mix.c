/* quant_mix.c - see quant_mix.h. The rules are llama.cpp's (llama_tensor_get_type), written as
 * observed: golden/convert/gguf_models/quant_mix.json. */
#include "convert/quantize/quant_mix.h"

#include <strings.h>

static const af_mix_info mixes[AF_MIX_COUNT] = {
    [AF_MIX_F32] = {"f32", 0, AF_DTYPE_F32},
    [AF_MIX_F16] = {"f16", 1, AF_DTYPE_F16},
    [AF_MIX_BF16] = {"bf16", 32, AF_DTYPE_BF16},
    [AF_MIX_Q4_0] = {"q4_0", 2, AF_DTYPE_Q4_0},
    [AF_MIX_Q4_1] = {"q4_1", 3, AF_DTYPE_Q4_1},
    [AF_MIX_Q5_0] = {"q5_0", 8, AF_DTYPE_Q5_0},
    [AF_MIX_Q5_1] = {"q5_1", 9, AF_DTYPE_Q5_1},
    [AF_MIX_Q8_0] = {"q8_0", 7, AF_DTYPE_Q8_0},
    [AF_MIX_Q2_K] = {"q2_k", 10, AF_DTYPE_Q2_K},
    [AF_MIX_Q2_K_S] = {"q2_k_s", 21, AF_DTYPE_Q2_K},
    [AF_MIX_Q3_K_S] = {"q3_k_s", 11, AF_DTYPE_Q3_K},
    [AF_MIX_Q3_K_M] = {"q3_k_m", 12, AF_DTYPE_Q3_K},
    [AF_MIX_Q3_K_L] = {"q3_k_l", 13, AF_DTYPE_Q3_K},
    [AF_MIX_Q4_K_S] = {"q4_k_s", 14, AF_DTYPE_Q4_K},
    [AF_MIX_Q4_K_M] = {"q4_k_m", 15, AF_DTYPE_Q4_K},
    [AF_MIX_Q5_K_S] = {"q5_k_s", 16, AF_DTYPE_Q5_K},
    [AF_MIX_Q5_K_M] = {"q5_k_m", 17, AF_DTYPE_Q5_K},
    [AF_MIX_Q6_K] = {"q6_k", 18, AF_DTYPE_Q6_K},
    [AF_MIX_IQ4_NL] = {"iq4_nl", 25, AF_DTYPE_IQ4_NL},
    [AF_MIX_IQ4_XS] = {"iq4_xs", 30, AF_DTYPE_IQ4_XS},
    [AF_MIX_IQ3_XXS] = {"iq3_xxs", 23, AF_DTYPE_IQ3_XXS},
    [AF_MIX_IQ3_XS] = {"iq3_xs", 22, AF_DTYPE_IQ3_S},
    [AF_MIX_IQ3_S] = {"iq3_s", 26, AF_DTYPE_IQ3_S},
    [AF_MIX_IQ3_M] = {"iq3_m", 27, AF_DTYPE_IQ3_S},
    [AF_MIX_TQ1_0] = {"tq1_0", 36, AF_DTYPE_TQ1_0},
    [AF_MIX_TQ2_0] = {"tq2_0", 37, AF_DTYPE_TQ2_0},
    [AF_MIX_MXFP4_MOE] = {"mxfp4_moe", 38, AF_DTYPE_MXFP4},
};

const af_mix_info *af_mix_get(af_mix m) { return &mixes[m]; }

const char *af_mix_names(void)
{
    return "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q2_k_s q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m "
           "q5_k_s q5_k_m q6_k iq4_nl iq4_xs iq3_xxs iq3_xs iq3_s iq3_m tq1_0 tq2_0 mxfp4_moe";
}

bool af_mix_by_name(af_mix *out, const char *name)
{
    static const struct {
        const char *name;
        af_mix mix;
    } also[] = {{"q3_k", AF_MIX_Q3_K_M},
                {"q4_k", AF_MIX_Q4_K_M},
                {"q5_k", AF_MIX_Q5_K_M},
                {"fp16", AF_MIX_F16},
                {"fp32", AF_MIX_F32}};
    for (int i = 0; i < AF_MIX_COUNT; i++)
        if (strcasecmp(mixes[i].name, name) == 0) {
            *out = (af_mix)i;
            return true;
        }
    for (size_t i = 0; i < AF_LEN(also); i++)
        if (strcasecmp(also[i].name, name) == 0) {
            *out = also[i].mix;
            return true;
        }
    return false;
}

/* The first and last eighth of the layers, and every third between. */
static bool more_bits(int i, int n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

static af_dtype plain_type_of_v(af_mix m, const af_mix_model *model, int i, af_dtype t)
{
    const bool shared = model->gqa >= 4;
    switch (m) {
    case AF_MIX_Q2_K:
        return shared ? AF_DTYPE_Q4_K : AF_DTYPE_Q3_K;
    case AF_MIX_Q2_K_S:
        return shared ? AF_DTYPE_Q4_K : t;
    case AF_MIX_Q3_K_M:
        return i < 2 ? AF_DTYPE_Q5_K : AF_DTYPE_Q4_K;
    case AF_MIX_Q3_K_L:
        return AF_DTYPE_Q5_K;
    case AF_MIX_IQ4_NL:
    case AF_MIX_IQ4_XS:
        return shared ? AF_DTYPE_Q5_K : t;
    case AF_MIX_IQ3_XXS:
        return shared ? AF_DTYPE_Q4_K : model->has_imatrix ? t : AF_DTYPE_IQ3_S;
    case AF_MIX_IQ3_XS:
    case AF_MIX_IQ3_S:
        return shared ? AF_DTYPE_Q4_K : t;
    case AF_MIX_IQ3_M:
        return AF_DTYPE_Q4_K;
    case AF_MIX_Q4_K_M:
    case AF_MIX_Q5_K_M:
        return more_bits(i, model->layers) ? AF_DTYPE_Q6_K : t;
    case AF_MIX_Q4_K_S:
        return i < 4 ? AF_DTYPE_Q5_K : t;
    default:
        return t;
    }
}

/* Values, and fused q|k|v. */
static af_dtype type_of_v(af_mix m, const af_mix_model *model, int i, af_dtype t)
{
    if (model->experts == 8)
        return AF_DTYPE_Q8_0;
    const af_dtype v = plain_type_of_v(m, model, i, t);
    const bool seventy = model->layers == 80 && model->gqa > 1; /* what it takes for a 70B model */
    return seventy && (v == AF_DTYPE_Q3_K || v == AF_DTYPE_Q4_K) ? AF_DTYPE_Q5_K : v;
}

static af_dtype type_of_down(af_mix m, const af_mix_model *model, int i, af_dtype t)
{
    const int n = model->layers;
    switch (m) {
    case AF_MIX_Q2_K:
        return AF_DTYPE_Q3_K;
    case AF_MIX_Q2_K_S:
        return i < n / 8 ? AF_DTYPE_Q4_K : t;
    case AF_MIX_Q3_K_M:
        return i < n / 16 ? AF_DTYPE_Q5_K : AF_DTYPE_Q4_K;
    case AF_MIX_Q3_K_L:
        return AF_DTYPE_Q5_K;
    case AF_MIX_Q4_K_M:
    case AF_MIX_Q5_K_M:
        return more_bits(i, n) ? AF_DTYPE_Q6_K : t;
    case AF_MIX_IQ4_NL:
    case AF_MIX_IQ4_XS:
        return i < n / 8 && !model->has_imatrix ? AF_DTYPE_Q5_K : t;
    case AF_MIX_IQ3_XXS:
        return model->has_imatrix ? t : i < n / 8 ? AF_DTYPE_Q4_K : AF_DTYPE_Q3_K;
    case AF_MIX_IQ3_M:
        return i < n / 8 || (model->experts == 8 && more_bits(i, n)) ? AF_DTYPE_Q4_K : t;
    case AF_MIX_Q4_K_S:
        return i < n / 8 ? AF_DTYPE_Q5_K : t;
    case AF_MIX_Q4_0:
        return model->has_imatrix && i < n / 8 ? AF_DTYPE_Q4_1 : t;
    case AF_MIX_Q5_0:
        return model->has_imatrix && i < n / 8 ? AF_DTYPE_Q5_1 : t;
    default:
        return t;
    }
}

static af_dtype type_of_output(af_mix m, const af_mix_model *model, af_dtype t)
{
    if (model->experts == 8)
        switch (m) {
        case AF_MIX_Q2_K:
        case AF_MIX_Q3_K_S:
        case AF_MIX_Q3_K_M:
        case AF_MIX_IQ4_NL:
        case AF_MIX_Q4_K_S:
        case AF_MIX_Q4_K_M:
        case AF_MIX_IQ4_XS:
        case AF_MIX_IQ3_XXS:
        case AF_MIX_IQ3_XS:
        case AF_MIX_IQ3_S:
        case AF_MIX_IQ3_M:
            return AF_DTYPE_Q5_K;
        default:
            return t;
        }
    return m == AF_MIX_Q2_K      ? AF_DTYPE_Q3_K
           : m == AF_MIX_Q3_K_M  ? AF_DTYPE_Q4_K
           : m == AF_MIX_IQ3_M   ? AF_DTYPE_Q4_K
           : m == AF_MIX_IQ3_XXS ? AF_DTYPE_IQ3_S
           : m == AF_MIX_Q3_K_L  ? AF_DTYPE_Q5_K
                                 : t;
}

/* What iq3_xs has in iq3_xxs: queries and keys, gate and up of all but the outer layers. */
static bool is_smaller(const af_mix_model *model, const char *name, int i)
{
    const int n = model->layers;
    if (strstr(name, "attn_k.weight") || strstr(name, "attn_q.weight"))
        return true;
    return (strstr(name, "ffn_gate") || strstr(name, "ffn_up")) && i >= n / 8 && i < 7 * n / 8;
}

static af_dtype wanted(af_mix m, const af_mix_model *model, const char *name, int64_t cols,
                       int layer)
{
    const af_dtype t = mixes[m].base;
    if (m == AF_MIX_MXFP4_MOE)
        return strstr(name, "_exps.weight") ? t : AF_DTYPE_Q8_0;
    if (strcmp(name, "output.weight") == 0 ||
        (model->tied && strcmp(name, "token_embd.weight") == 0)) {
        if (cols % af_dtype_get(t)->elems != 0)
            return AF_DTYPE_Q8_0;
        return t == AF_DTYPE_Q8_0 ? t : m == AF_MIX_IQ3_XXS ? AF_DTYPE_Q5_K : AF_DTYPE_Q6_K;
    }
    if (strcmp(name, "token_embd.weight") == 0 && m == AF_MIX_IQ3_XXS)
        return AF_DTYPE_IQ3_S;
    if (strcmp(name, "token_embd.weight") == 0 && (m == AF_MIX_TQ1_0 || m == AF_MIX_TQ2_0))
        return AF_DTYPE_Q4_K;
    if (strstr(name, "attn_v.weight") || strstr(name, "attn_qkv.weight"))
        return type_of_v(m, model, layer, t);
    if (strstr(name, "attn_k.weight") && model->experts == 8)
        return AF_DTYPE_Q8_0;
    if (m == AF_MIX_IQ3_XS && is_smaller(model, name, layer))
        return AF_DTYPE_IQ3_XXS;
    if (m == AF_MIX_IQ3_XXS && (strstr(name, "attn_k.weight") || strstr(name, "attn_q.weight")))
        return AF_DTYPE_IQ2_S;
    if (strstr(name, "ffn_down"))
        return type_of_down(m, model, layer, t);
    if (strstr(name, "attn_output.weight"))
        return type_of_output(m, model, t);
    return t;
}

/* The type for rows that do not fill blocks of 256. */
static af_dtype fall_back(af_dtype t)
{
    switch (t) {
    case AF_DTYPE_Q2_K:
    case AF_DTYPE_Q3_K:
    case AF_DTYPE_TQ1_0:
    case AF_DTYPE_TQ2_0:
        return AF_DTYPE_Q4_0;
    case AF_DTYPE_IQ2_S:
    case AF_DTYPE_IQ3_XXS:
    case AF_DTYPE_IQ3_S:
    case AF_DTYPE_IQ4_XS:
        return AF_DTYPE_IQ4_NL;
    case AF_DTYPE_Q4_K:
        return AF_DTYPE_Q5_0;
    case AF_DTYPE_Q5_K:
        return AF_DTYPE_Q5_1;
    case AF_DTYPE_Q6_K:
        return AF_DTYPE_Q8_0;
    default:
        return AF_DTYPE_F16;
    }
}

af_dtype af_mix_type(af_mix m, const af_mix_model *model, const char *name, int ndim, int64_t cols,
                     int layer, bool *fell_back)
{
    *fell_back = false;
    if (ndim < 2 || strcmp(name, "position_embd.weight") == 0 || strstr(name, "ffn_gate_inp") ||
        strstr(name, "conv.weight") || strstr(name, "ssm_conv1d") ||
        (strstr(name, "altup") && strstr(name, "_coef")))
        return AF_DTYPE_F32;
    if (!af_dtype_is_block(mixes[m].base))
        return mixes[m].base;
    if (strstr(name, "altup") || strstr(name, "laurel")) /* small */
        return AF_DTYPE_F16;
    af_dtype t = model->pure ? mixes[m].base : wanted(m, model, name, cols, layer);
    if (cols % af_dtype_get(t)->elems != 0) {
        t = fall_back(t);
        *fell_back = true;
    }
    return cols % af_dtype_get(t)->elems != 0 ? AF_DTYPE_F16 : t;
}
