/* family_inside.c - text models that only multimodal ones have: blocks of another family, and what
 * transformers assumes where a key is absent. */
#include "format/config/families/families.h"

#include <jansson.h>

#define QWEN2_VL(type)                                                                             \
    .model_type = type, .same = "qwen2", .gguf = "qwen2vl", .act = "silu", .eps = 1e-5,            \
    .theta = 1e6, .sliding = AF_SLIDING_UPPER

/* Shares of the chosen experts always add up to one, or do so unless the config says otherwise. */
static void vl_moe_keys(af_config_source *s, af_hf_config *c)
{
    (void)s;
    c->norm_topk_prob = true;
}

static void omni_moe_keys(af_config_source *s, af_hf_config *c)
{
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
}

static void glm_ocr_keys(af_config_source *s, af_hf_config *c)
{
    (void)s;
    c->attention_bias = c->attention_out_bias = false;
}

static void glm4v_keys(af_config_source *s, af_hf_config *c)
{
    glm_ocr_keys(s, c);
    c->attention_bias = true;
}

static void paddleocr_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = c->attention_out_bias = c->mlp_bias = af_config_bool(s, "use_bias", false);
}

static void docling_keys(af_config_source *s, af_hf_config *c)
{
    c->embedding_multiplier = af_config_num(s, "embedding_multiplier", 12);
    c->attention_multiplier = af_config_num(s, "attention_multiplier", 0.015625);
    c->residual_multiplier = af_config_num(s, "residual_multiplier", 0.263);
    c->logits_scaling = af_config_num(s, "logits_scaling", 4);
}

static void deepseek_ocr2_keys(af_config_source *s, af_hf_config *c)
{
    af_config_deepseek_v2_experts(s, c);
    af_config_mlp_types(s, c);
}

/* rope_parameters has null for kinds of layers without rotation. */
static void cohere_compass_keys(af_config_source *s, af_hf_config *c)
{
    const json_t *ropes = af_config_value(s, "rope_parameters");
    c->logit_scale = af_config_num(s, "logit_scale", 1);
    if (!(c->logit_scale > 0 && c->logit_scale < 1e9))
        af_config_wrong(s, "logit_scale", "a positive number in range");
    c->rope_sliding_only = json_is_null(json_object_get(ropes, "full_attention"));
    if (json_is_null(json_object_get(ropes, "sliding_attention")))
        af_config_wrong(s, "rope_parameters", "an object with sliding_attention");
}

static double positive(af_config_source *s, const char *key, double absent)
{
    const double v = af_config_num(s, key, absent);
    if (!(v > 0 && v < 1e9))
        af_config_wrong(s, key, "a positive number in range");
    return v;
}

/* Every fourth layer, counted from the last, sees everything and has no rotation: unless lists say
 * otherwise. Of layer_rope_theta transformers reads only which are 0. */
static void muse_glimmer_keys(af_config_source *s, af_hf_config *c)
{
    int n = 0;
    const int64_t layers = c->num_hidden_layers;
    const double *theta =
        af_config_nums(s, &c->arena, "layer_rope_theta", AF_CONFIG_LAYERS_MAX, &n);
    c->attention_multiplier = positive(s, "qk_scale_factor", 3.87);
    c->logit_scale = positive(s, "output_multiplier", 0.19611613513818404);
    c->post_norm_eps = positive(s, "post_norm_eps", 1e-8);
    af_layer_type *types = af_config_take_types(s, c);
    if (s->st != AF_OK || !types)
        return;
    if (af_config_value(s, "layer_rope_theta") && n != layers)
        af_config_wrong(s, "layer_rope_theta", "a list with one entry per layer");
    bool *none = af_arena_take(&c->arena, (uint64_t)layers * sizeof *none);
    if (!none) {
        s->st = af_fail_nomem(s->err, "layer_rope_theta", (uint64_t)layers);
        return;
    }
    for (int64_t i = 0; i < layers && s->st == AF_OK; i++) {
        const bool full = (layers - 1 - i) % 4 == 0;
        types[i] = full ? AF_LAYER_FULL : AF_LAYER_SLIDING;
        none[i] = n ? theta[i] == 0 : full;
        if (n && theta[i] != 0 && theta[i] != c->rope.theta)
            af_config_wrong(s, "layer_rope_theta", "a list of 0 and the base of rope_parameters");
    }
    c->no_rope = none;
    if (!c->layer_types)
        c->layer_types = types;
}

/* Layers that attend to images add nothing to text alone: they are left out. */
static void mllama_keys(af_config_source *s, af_hf_config *c)
{
    int n = 0, left = 0;
    const int64_t all = c->num_hidden_layers;
    const double *list =
        af_config_nums(s, &c->arena, "cross_attention_layers", AF_CONFIG_LAYERS_MAX, &n);
    if (all < 1 || all > AF_CONFIG_LAYERS_MAX || s->st != AF_OK)
        return; /* a wrong count of layers has its own message */
    int64_t *kept = af_arena_take(&c->arena, (uint64_t)all * sizeof *kept);
    if (!kept) {
        s->st = af_fail_nomem(s->err, "cross_attention_layers", (uint64_t)all * sizeof *kept);
        return;
    }
    for (int64_t i = 0; i < all; i++) {
        bool sees = !af_config_value(s, "cross_attention_layers") && i % 5 == 3;
        for (int k = 0; k < n; k++)
            sees |= list[k] == (double)i;
        if (!sees)
            kept[left++] = i;
    }
    if (left == 0)
        af_config_wrong(s, "cross_attention_layers", "a list that leaves a layer of text");
    c->folder_layers = kept;
    c->num_hidden_layers = left;
    c->embed_more = 8; /* of image tokens */
}

#define GLM4V(type)                                                                                \
    .model_type = type, .same = "glm4", .act = "silu", .eps = 1e-5, .theta = 1e4, .partial = 1

const af_family af_families_inside[] = {
    {QWEN2_VL("qwen2_vl_text")},
    {QWEN2_VL("qwen2_5_vl_text")},
    {QWEN2_VL("qwen2_vl"), .whole = true},
    {QWEN2_VL("qwen2_5_vl"), .whole = true},
    {.model_type = "qwen2_5_omni_text",
     .same = "qwen2",
     .gguf = "qwen2vl",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e6,
     .sliding = AF_SLIDING_UPPER,
     .tied = true},
    {.model_type = "qwen3_vl_text",
     .same = "qwen3",
     .gguf = "qwen3vl",
     .act = "silu",
     .eps = 1e-6,
     .theta = 5e5,
     .head_dim = 128},
    {.model_type = "qwen3_vl_moe_text",
     .same = "qwen3_moe",
     .gguf = "qwen3vlmoe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 5e5,
     .kv_heads = 16,
     .head_dim = 128,
     .tied = true,
     .keys = vl_moe_keys},
    {.model_type = "qwen3_omni_moe_text",
     .same = "qwen3_moe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e6,
     .kv_heads = 4,
     .keys = omni_moe_keys},
    {GLM4V("glm4v_text"), .kv_heads = 2, .keys = glm4v_keys},
    {GLM4V("glm_ocr_text"), .kv_heads = 8, .keys = glm_ocr_keys},
    {.model_type = "glm4v_moe_text",
     .same = "glm4_moe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 8,
     .partial = 0.5},
    {.model_type = "paddleocr_vl_text",
     .same = "llama", /* ernie4_5 rotates pairs of neighbours */
     .act = "silu",
     .eps = 1e-5,
     .theta = 5e5,
     .kv_heads = 2,
     .head_dim = 128,
     .tied = true,
     .pad = 1,
     .keys = paddleocr_keys},
    {.model_type = "hunyuan_vl_text",
     .same = "hunyuan_v1_dense",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .own_experts = true,
     .tied = true,
     .pad = 1},
    {.model_type = "granite4_vision_text",
     .same = "granite",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4},
    {.model_type = "granite_docling_text",
     .same = "granite",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 4,
     .tied = true,
     .pad = 100257,
     .keys = docling_keys},
    {.model_type = "emu3_text_model",
     .same = "llama",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .kv_heads = 8,
     .pad = 151644},
    {.model_type = "mllama_text_model",
     .act = "silu",
     .eps = 1e-5,
     .theta = 5e5,
     .kv_heads = 8,
     .pad = 128005,
     .keys = mllama_keys},
    {.model_type = "deepseek_ocr2_text",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .keys = deepseek_ocr2_keys},
    {.model_type = "cohere_compass_text",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .window = 4096,
     .sliding = AF_SLIDING_LISTED,
     .tied = true,
     .keys = cohere_compass_keys},
    {.model_type = "muse_glimmer_text",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 2,
     .head_dim = 128,
     .window = 2048,
     .sliding = AF_SLIDING_LISTED,
     .final_softcap = 20,
     .keys = muse_glimmer_keys},
    /* code in repositories */
    {QWEN2_VL("dots_ocr"), .whole = true},
    {.model_type = "minicpmv2_6",
     .same = "qwen2",
     .whole = true,
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .kv_heads = 32,
     .sliding = AF_SLIDING_UPPER},
    {.model_type = "minicpmv4",
     .same = "llama",
     .whole = true,
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4},
    {.model_type = "minicpmv4_5",
     .same = "qwen3",
     .whole = true,
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .kv_heads = 32,
     .head_dim = 128,
     .sliding = AF_SLIDING_UPPER},
    {.model_type = "phi3_v",
     .same = "phi3",
     .whole = true,
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 1,
     .sliding = AF_SLIDING_ALL,
     .pad = 32001},
    {.model_type = "phi4_multimodal",
     .same = "phi3",
     .whole = true,
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 8,
     .partial = 1,
     .sliding = AF_SLIDING_ALL,
     .pad = 200000},
    {0},
};
