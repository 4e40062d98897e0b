/* rows_dense.c - dense families with other norms, residual order or MLP than llama. */
#include "model/arch/arch_rows.h"

af_status af_fill_rope_sliding(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    for (int i = 0; i < s->layers; i++)
        if (c->rope_sliding_only && c->layer_types[i] != AF_LAYER_SLIDING)
            s->layer[i].rope = -1;
    if (c->logit_scale > 0)
        s->logit_scale = c->logit_scale;
    return AF_OK;
}

static af_status stablelm_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->parallel = c->use_parallel_residual;
    return AF_OK;
}

static const af_slot_name apertus_names[] = {
    {AF_SLOT_ATTN_NORM, "attention_layernorm.weight", NULL},
    {AF_SLOT_MLP_NORM, "feedforward_layernorm.weight", NULL},
    {0},
};

static const af_slot_name starcoder2_names[] = {
    {AF_SLOT_UP, "mlp.c_fc.weight", NULL},
    {AF_SLOT_UP_BIAS, "mlp.c_fc.bias", NULL},
    {AF_SLOT_DOWN, "mlp.c_proj.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "mlp.c_proj.bias", NULL},
    {0},
};

static const af_slot_name stablelm_names[] = {
    {AF_SLOT_Q_NORM, "self_attn.q_layernorm.norms.weight", NULL},
    {AF_SLOT_K_NORM, "self_attn.k_layernorm.norms.weight", NULL},
    {0},
};

static const af_slot_name phi_names[] = {
    {AF_SLOT_Q_NORM, "self_attn.q_layernorm.weight", NULL},
    {AF_SLOT_Q_NORM_BIAS, "self_attn.q_layernorm.bias", NULL},
    {AF_SLOT_K_NORM, "self_attn.k_layernorm.weight", NULL},
    {AF_SLOT_K_NORM_BIAS, "self_attn.k_layernorm.bias", NULL},
    {AF_SLOT_O, "self_attn.dense.weight", NULL},
    {AF_SLOT_O_BIAS, "self_attn.dense.bias", NULL},
    {AF_SLOT_UP, "mlp.fc1.weight", NULL},
    {AF_SLOT_UP_BIAS, "mlp.fc1.bias", NULL},
    {AF_SLOT_DOWN, "mlp.fc2.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "mlp.fc2.bias", NULL},
    {AF_SLOT_FINAL_NORM, "model.final_layernorm.weight", NULL},
    {AF_SLOT_FINAL_NORM_BIAS, "model.final_layernorm.bias", NULL},
    {0},
};

static const af_slot_name glm4_names[] = {
    {AF_SLOT_POST_ATTN_NORM, "post_self_attn_layernorm.weight", NULL},
    {AF_SLOT_MLP_NORM, "post_attention_layernorm.weight", NULL},
    {AF_SLOT_POST_MLP_NORM, "post_mlp_layernorm.weight", NULL},
    {0},
};

static const af_slot_name hyperclovax_names[] = {
    {AF_SLOT_POST_ATTN_NORM, "post_norm1.weight", NULL},
    {AF_SLOT_MLP_NORM, "post_attention_layernorm.weight", NULL},
    {AF_SLOT_POST_MLP_NORM, "post_norm2.weight", NULL},
    {0},
};

#define HYPERCLOVAX                                                                                \
    .model_type = "hyperclovax", .pre_norm = true, .bias = AF_BIAS_CONFIG, .multipliers = true,    \
    .names = hyperclovax_names

static const af_arch hyperclovax_plain = {HYPERCLOVAX};

static const af_slot_name nanochat_names[] = {
    {AF_SLOT_UP, "mlp.fc1.weight", NULL},
    {AF_SLOT_DOWN, "mlp.fc2.weight", NULL},
    {0},
};

/* Scores, residuals and logits are scaled as granite's, logits by the number itself. */
static af_status hyperclovax_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->logit_scale = s->labels ? 1 : c->logits_scaling;
    if (c->no_post_norm)
        s->arch = &hyperclovax_plain;
    return AF_OK;
}

const af_arch af_rows_dense[] = {
    {.model_type = "olmo3",
     .gguf = "olmo2",
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .qk_norm_row = true},
    {.model_type = "apertus",
     .gguf = "apertus",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .plain_mlp = true,
     .names = apertus_names},
    {.model_type = "arcee",
     .gguf = "arcee",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .plain_mlp = true,
     .gguf_permuted = true},
    {.model_type = "exaone4",
     .gguf = "exaone4",
     .post_norm = true,
     .qk_norm = true,
     .fill = af_fill_rope_sliding},
    {.model_type = "cohere",
     .gguf = "command-r",
     .pre_norm = true,
     .qk_norm_config = true,
     .qk_norm_heads = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .parallel = true,
     .rope_pairs = true,
     .fill = af_fill_rope_sliding},
    {.model_type = "cohere2",
     .gguf = "cohere2",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .parallel = true,
     .rope_pairs = true,
     .fill = af_fill_rope_sliding},
    {.model_type = "cohere_compass_text",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .parallel = true,
     .fill = af_fill_rope_sliding},
    {.model_type = "starcoder2",
     .gguf = "starcoder2",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true,
     .names = starcoder2_names},
    {.model_type = "stablelm",
     .gguf = "stablelm",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .layer_norm = true,
     .norm_bias = true,
     .qk_norm_config = true,
     .qk_norm_heads = true,
     .qk_norm_apart = true,
     .names = stablelm_names,
     .fill = stablelm_fill},
    {.model_type = "nemotron",
     .gguf = "nemotron",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .norm_plus_one = true,
     .plain_mlp = true,
     .gguf_norm_one = true},
    {.model_type = "phi",
     .gguf = "phi2",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .layer_norm = true,
     .norm_bias = true,
     .parallel = true,
     .plain_mlp = true,
     .head_bias = true,
     .qk_norm_config = true,
     .qk_norm_layer = true,
     .names = phi_names},
    {.model_type = "glm4",
     .gguf = "glm4",
     .pre_norm = true,
     .post_norm = true,
     .bias = AF_BIAS_APART,
     .fused_gate_up = true,
     .rope_pairs = true,
     .names = glm4_names},
    {.model_type = "glm",
     .gguf = "chatglm",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .fused_gate_up = true,
     .rope_pairs = true},
    {.model_type = "jais2",
     .gguf = "jais2",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true},
    {HYPERCLOVAX, .post_norm = true, .fill = hyperclovax_fill},
    {.model_type = "olmo",
     .gguf = "olmo",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bare = true,
     .gguf_permuted = true},
    {.model_type = "nanochat",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .norm_bare = true,
     .embed_norm = true,
     .qk_norm_bare = true,
     .qk_norm_after = true,
     .plain_mlp = true,
     .logit_cap = true,
     .names = nanochat_names},
    {.model_type = "diffllama", .pre_norm = true, .bias = AF_BIAS_CONFIG, .differential = true},
    {.model_type = "bitnet", .pre_norm = true, .bias = AF_BIAS_CONFIG, .sub_norms = true},
    {0},
};
