/* rows_routed.c - ordinary attention, and routers that do more than a softmax. */
#include "model/arch/arch_rows.h"

/* muP scales the embedding; layers that see everything keep no positions. */
static af_status afmoe_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->embed_scale = c->embedding_multiplier;
    return af_fill_rope_sliding(s, c, err);
}

static const af_slot_name afmoe_names[] = {
    {AF_SLOT_MLP_NORM, "pre_mlp_layernorm.weight", NULL},
    {AF_SLOT_POST_MLP_NORM, "post_mlp_layernorm.weight", NULL},
    {AF_SLOT_ROUTER, "mlp.router.gate.weight", NULL},
    {AF_SLOT_ROUTER_CHOICE, "mlp.expert_bias", NULL},
    AF_SHARED_NAMES("mlp.shared_experts"),
    {0},
};

static const af_slot_name exaone_moe_names[] = {
    {AF_SLOT_ROUTER_CHOICE, "mlp.e_score_correction_bias", NULL},
    AF_SHARED_NAMES("mlp.shared_experts"),
    {0},
};

const af_slot_name af_deepseek_names[] = {
    AF_SHARED_NAMES("mlp.shared_experts"),
    {0},
};

/* Of laguna and hy_v3. */
static const char *const shared_modules[][2] = {
    {".shared_expert.", ".shared_experts."}, {".shared_mlp.", ".shared_experts."}, {NULL, NULL}};

static const af_slot_name hy_v3_names[] = {
    {AF_SLOT_ROUTER_CHOICE, "mlp.expert_bias", "exp_probs_b"},
    AF_SHARED_NAMES("mlp.shared_mlp"),
    {0},
};

static const af_slot_name llama4_names[] = {
    {AF_SLOT_GATE, "feed_forward.gate_proj.weight", NULL},
    {AF_SLOT_UP, "feed_forward.up_proj.weight", NULL},
    {AF_SLOT_DOWN, "feed_forward.down_proj.weight", NULL},
    {AF_SLOT_ROUTER, "feed_forward.router.weight", NULL},
    {AF_SLOT_EXPERTS_GATE_UP, "feed_forward.experts.gate_up_proj", NULL},
    {AF_SLOT_EXPERTS_DOWN, "feed_forward.experts.down_proj", NULL},
    AF_SHARED_NAMES("feed_forward.shared_expert"),
    {0},
};

static const af_slot_name laguna_names[] = {
    {AF_SLOT_ATTN_GATE, "self_attn.g_proj.weight", NULL},
    {AF_SLOT_ROUTER_CHOICE, "mlp.experts.e_score_correction_bias", NULL},
    {0},
};

static af_status laguna_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->attn_gate_heads = c->attn_gate_heads;
    for (int i = 0; c->layer_heads && i < s->layers; i++) {
        s->layer[i].heads = (int)c->layer_heads[i];
        if (s->layer[i].heads % s->kv_heads)
            return af_fail(err, AF_EFORMAT, "layer %d: %d heads cannot share %d kv heads", i,
                           s->layer[i].heads, s->kv_heads);
    }
    return AF_OK;
}

/* Layers with a window have twice the kv heads. */
static af_status mimo_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)c;
    for (int i = 0; i < s->layers; i++) {
        s->layer[i].kv_heads *= s->layer[i].window ? 2 : 1;
        if (s->heads % s->layer[i].kv_heads)
            return af_fail(err, AF_EFORMAT, "layer %d: %d heads cannot share %d kv heads", i,
                           s->heads, s->layer[i].kv_heads);
    }
    return AF_OK;
}

#define LLAMA4                                                                                     \
    .model_type = "llama4_text", .gguf = "llama4", .pre_norm = true, .bias = AF_BIAS_CONFIG,       \
    .rope_pairs = true, .moe = true, .no_router_loss = true, .experts_swapped = true,              \
    .qk_norm_after = true, .query_scale_still = true, .experts_whole = true,                       \
    .experts_turned = true, .names = llama4_names

static af_status llama4_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->ffn = c->dense_ffn;
    s->qk_norm_still = c->qk_norm;
    s->query_scale = c->query_scaling_beta;
    s->query_scale_from = c->query_scaling_length;
    s->query_scale_offset = 1;
    for (int i = 0; i < s->layers; i++) {
        s->layer[i].chunk = s->layer[i].window;
        s->layer[i].window = 0;
        s->layer[i].ffn = c->dense_ffn;
    }
    return AF_OK;
}

#define COHERE2_MOE                                                                                \
    .model_type = "cohere2_moe", .gguf = "cohere2moe", .pre_norm = true, .bias = AF_BIAS_CONFIG,   \
    .parallel = true, .rope_pairs = true, .moe = true, .peft_converts = true,                      \
    .no_router_loss = true, .names = af_deepseek_names

static const af_arch cohere2_moe_rms = {COHERE2_MOE};

static af_status cohere2_moe_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    const af_status st = af_fill_rope_sliding(s, c, err);
    s->ffn = c->dense_ffn;
    for (int i = 0; i < s->layers; i++) {
        if (s->layer[i].mlp == AF_MLP_EXPERTS)
            continue;
        s->layer[i].ffn = c->dense_ffn;
        if (c->rope_dense)
            s->layer[i].rope = 0;
    }
    if (c->rms_norm)
        s->arch = &cohere2_moe_rms;
    return st;
}

static const af_slot_name glm4_moe_names[] = {
    AF_SHARED_NAMES("mlp.shared_experts"),
    {AF_SLOT_MLP_NORM, NULL, "post_attention_norm.weight"},
    {0},
};

static const af_slot_name kolibri1_names[] = {
    {AF_SLOT_POST_ATTN_NORM, "post_attn_norm.weight", NULL},
    {AF_SLOT_MLP_NORM, "post_attention_layernorm.weight", NULL},
    {AF_SLOT_POST_MLP_NORM, "post_ffn_norm.weight", NULL},
    {AF_SLOT_ROUTER_CHOICE, "moe.router.expert_bias", NULL},
    AF_SHARED_NAMES("mlp.shared_experts"),
    {0},
};

const af_arch af_rows_routed[] = {
    {.model_type = "gpt_oss",
     .gguf = "gpt-oss",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .moe = true,
     .experts_whole = true,
     .experts_turned = true,
     .experts_alternate = true,
     .names = (const af_slot_name[]){{AF_SLOT_ROUTER, "mlp.router.weight", NULL},
                                     {AF_SLOT_MLP_NORM, NULL, "post_attention_norm.weight"},
                                     {0}},
     .sinks = true},
    {.model_type = "glm4_moe",
     .gguf = "glm4moe",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .qk_norm_config = true,
     .peft_converts = true,
     .moe = true,
     .no_router_loss = true,
     .names = glm4_moe_names},
    {.model_type = "dots1",
     .gguf = "dots1",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .peft_converts = true,
     .moe = true,
     .no_router_loss = true,
     .names = af_deepseek_names},
    {.model_type = "solar_open",
     .gguf = "glm4moe",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .peft_converts = true,
     .moe = true,
     .no_router_loss = true,
     .names = glm4_moe_names},
    {.model_type = "exaone_moe",
     .gguf = "exaone-moe",
     .pre_norm = true,
     .qk_norm = true,
     .peft_converts = true,
     .moe = true,
     .no_router_loss = true,
     .names = exaone_moe_names,
     .fill = af_fill_rope_sliding},
    {.model_type = "afmoe",
     .gguf = "afmoe",
     .pre_norm = true,
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .attn_gate_apart = true,
     .peft_converts = true,
     .moe = true,
     .no_router_loss = true,
     .names = afmoe_names,
     .fill = afmoe_fill},
    {LLAMA4, .fill = llama4_fill},
    {.model_type = "laguna",
     .gguf = "laguna",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .attn_gate_apart = true,
     .attn_gate_soft = true,
     .moe = true,
     .in_memory = shared_modules,
     .names = laguna_names,
     .fill = laguna_fill},
    {.model_type = "hy_v3",
     .gguf = "hy_v3",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .moe = true,
     .no_router_loss = true,
     .router = "mlp.router.gate.weight",
     .in_memory = shared_modules,
     .names = hy_v3_names},
    {.model_type = "deepseek_ocr2_text", /* deepseek, with the modules of transformers */
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .moe = true,
     .no_router_loss = true,
     .names = af_deepseek_names},
    {.model_type = "kolibri1",
     .pre_norm = true,
     .post_norm = true,
     .qk_norm = true,
     .moe = true,
     .no_router_loss = true,
     .names = kolibri1_names,
     .fill = af_fill_rope_sliding},
    {COHERE2_MOE, .layer_norm = true, .fill = cohere2_moe_fill},
    {.model_type = "mimo_v2_flash",
     .gguf = "mimo2",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .sinks = true,
     .sinks_sliding = true,
     .moe = true,
     .no_router_loss = true,
     .names = (const af_slot_name[]){{AF_SLOT_SINKS, "self_attn.attention_sink_bias", NULL}, {0}},
     .fill = mimo_fill},
    {0},
};
