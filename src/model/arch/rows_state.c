/* rows_state.c - families with state layers: delta net, Mamba-2, short convolution. */
#include "model/arch/arch_rows.h"

/* Layers that are not attention have this mixer. */
static void fill_mixer(af_model_spec *s, const af_hf_config *c, af_mixer mixer)
{
    for (int i = 0; i < s->layers; i++)
        if (c->layer_types[i] != AF_LAYER_FULL)
            s->layer[i].mixer = mixer;
}

static af_status fill_delta(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    fill_mixer(s, c, AF_MIXER_DELTA_NET);
    return AF_OK;
}
/* Tensors of the folders that were published: three convolutions, and names of norms that tell
 * layers apart. */
static af_status fill_olmo_hybrid(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    const af_state_keys *k = &s->state;
    bool other = false;
    fill_mixer(s, c, AF_MIXER_DELTA_NET);
    for (int i = 0; i < s->layers; i++)
        other |= c->layer_types[i] != AF_LAYER_FULL && c->layer_types[i] != AF_LAYER_LINEAR;
    if (other)
        return af_fail(err, AF_EFORMAT,
                       "layer_types of olmo_hybrid are linear_attention or full_attention");
    s->conv_rows[0] = s->conv_rows[1] = k->key_heads * k->key_dim;
    s->conv_rows[2] = k->heads * k->head_dim;
    return AF_OK;
}
static af_status fill_conv(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    fill_mixer(s, c, AF_MIXER_SHORT_CONV);
    return AF_OK;
}
static af_status fill_mamba(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    fill_mixer(s, c, AF_MIXER_MAMBA2);
    return AF_OK;
}

static const af_slot_name next_names[] = {
    {AF_SLOT_IN, "linear_attn.in_proj_qkvz.weight", "ssm_in.weight"},
    {AF_SLOT_IN_B, "linear_attn.in_proj_ba.weight", "ssm_ba.weight"},
    {AF_SLOT_MLP_NORM, NULL, "post_attention_norm.weight"},
    {0},
};

static const af_slot_name olmo_hybrid_names[] = {
    {AF_SLOT_ATTN_NORM, "attention_layer_norm.weight", NULL},
    {AF_SLOT_MLP_NORM, "feedforward_layer_norm.weight", NULL},
    {AF_SLOT_IN, "linear_attn.q_proj.weight", NULL},
    {AF_SLOT_IN_Z, "linear_attn.g_proj.weight", NULL},
    {AF_SLOT_IN_A, "linear_attn.a_proj.weight", NULL},
    {AF_SLOT_IN_B, "linear_attn.b_proj.weight", NULL},
    {AF_SLOT_STATE_NORM, "linear_attn.o_norm.weight", NULL},
    {AF_SLOT_OUT, "linear_attn.o_proj.weight", NULL},
    {0},
};

static const af_slot_name qwen35_names[] = {
    {AF_SLOT_MLP_NORM, NULL, "post_attention_norm.weight"},
    {0},
};

#define CONV_NAMES                                                                                 \
    {AF_SLOT_ATTN_NORM, "operator_norm.weight", NULL},                                             \
        {AF_SLOT_MLP_NORM, "ffn_norm.weight", NULL},                                               \
        {AF_SLOT_FINAL_NORM, "model.embedding_norm.weight", "token_embd_norm.weight"},             \
        {AF_SLOT_GATE, "feed_forward.w1.weight", NULL},                                            \
        {AF_SLOT_UP, "feed_forward.w3.weight", NULL},                                              \
        {AF_SLOT_DOWN, "feed_forward.w2.weight", NULL},                                            \
        {AF_SLOT_IN, "conv.in_proj.weight", "shortconv.in_proj.weight"},                           \
        {AF_SLOT_IN_BIAS, "conv.in_proj.bias", "shortconv.in_proj.bias"},                          \
        {AF_SLOT_CONV, "conv.conv.weight", "shortconv.conv.weight"},                               \
        {AF_SLOT_CONV_BIAS, "conv.conv.bias", "shortconv.conv.bias"},                              \
        {AF_SLOT_OUT, "conv.out_proj.weight", "shortconv.out_proj.weight"},                        \
    {                                                                                              \
        AF_SLOT_OUT_BIAS, "conv.out_proj.bias", "shortconv.out_proj.bias"                          \
    }

#define LFM2_NAMES                                                                                 \
    CONV_NAMES, {AF_SLOT_Q_NORM, "self_attn.q_layernorm.weight", NULL},                            \
        {AF_SLOT_K_NORM, "self_attn.k_layernorm.weight", NULL},                                    \
    {                                                                                              \
        AF_SLOT_O, "self_attn.out_proj.weight", NULL                                               \
    }

static const af_slot_name lfm2_names[] = {LFM2_NAMES, {0}};

static const af_slot_name lfm3_names[] = {
    CONV_NAMES,
    {AF_SLOT_POST_ATTN_NORM, "post_operator_norm.weight", NULL},
    {AF_SLOT_POST_MLP_NORM, "post_ffn_norm.weight", NULL},
    {0},
};

static const char *const lfm3_modules[][2] = {{".gate_proj.", ".g_proj."}, {NULL, NULL}};

#define LFM3                                                                                       \
    .model_type = "lfm3", .pre_norm = true, .bias = AF_BIAS_CONFIG, .qk_norm = true,               \
    .in_memory = lfm3_modules, .names = lfm3_names

/* By use_sandwich_norm and use_attention_gate. */
static const af_arch lfm3_rows[2][2] = {
    {{LFM3}, {LFM3, .attn_gate_apart = true}},
    {{LFM3, .post_norm = true}, {LFM3, .post_norm = true, .attn_gate_apart = true}},
};

static af_status fill_lfm3(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    for (int i = 0; i < s->layers; i++) {
        if (c->layer_types[i] == AF_LAYER_CONV)
            s->layer[i].mixer = AF_MIXER_SHORT_CONV;
        else if (c->layer_types[i] > AF_LAYER_SLIDING)
            return af_fail(err, AF_EFORMAT,
                           "layer_types of lfm3 are conv, full_attention or sliding_attention");
    }
    s->arch = &lfm3_rows[!c->no_post_norm][c->attn_gate_heads];
    s->attn_gate_heads = c->attn_gate_heads;
    return AF_OK;
}

static const af_slot_name lfm2_moe_names[] = {
    LFM2_NAMES,
    {AF_SLOT_ROUTER, "feed_forward.gate.weight", NULL},
    {AF_SLOT_ROUTER_CHOICE, "feed_forward.expert_bias", NULL},
    {AF_SLOT_EXPERTS_GATE_UP, "feed_forward.experts.gate_up_proj", NULL},
    {AF_SLOT_EXPERTS_DOWN, "feed_forward.experts.down_proj", NULL},
    {0},
};

static const af_slot_name mamba_names[] = {
    {AF_SLOT_IN, "mamba.in_proj.weight", "ssm_in.weight"},
    {AF_SLOT_IN_BIAS, "mamba.in_proj.bias", NULL},
    {AF_SLOT_CONV, "mamba.conv1d.weight", NULL},
    {AF_SLOT_CONV_BIAS, "mamba.conv1d.bias", NULL},
    {AF_SLOT_A_LOG, "mamba.A_log", NULL},
    {AF_SLOT_DT_BIAS, "mamba.dt_bias", NULL},
    {AF_SLOT_D, "mamba.D", NULL},
    {AF_SLOT_STATE_NORM, "mamba.norm.weight", NULL},
    {AF_SLOT_OUT, "mamba.out_proj.weight", NULL},
    {AF_SLOT_OUT_BIAS, "mamba.out_proj.bias", NULL},
    {AF_SLOT_GATE_UP, "shared_mlp.input_linear.weight", NULL},
    {AF_SLOT_DOWN, "shared_mlp.output_linear.weight", NULL},
    {AF_SLOT_SHARED_GATE_UP, "shared_mlp.input_linear.weight", NULL},
    {AF_SLOT_SHARED_DOWN, "shared_mlp.output_linear.weight", NULL},
    {AF_SLOT_ROUTER, "block_sparse_moe.router.layer.weight", NULL},
    {AF_SLOT_EXPERTS_GATE_UP, "block_sparse_moe.input_linear.weight", NULL},
    {AF_SLOT_EXPERTS_DOWN, "block_sparse_moe.output_linear.weight", NULL},
    {0},
};

const af_arch af_rows_state[] = {
    {.model_type = "qwen3_5_text",
     .gguf = "qwen35",
     .gguf_norm_one = true,
     .gguf_tiled = true,
     .names = qwen35_names,
     .pre_norm = true,
     .norm_plus_one = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .attn_gate = true,
     .fill = fill_delta},
    {.model_type = "qwen3_5_moe_text",
     .gguf = "qwen35moe",
     .gguf_norm_one = true,
     .gguf_tiled = true,
     .names = qwen35_names,
     .pre_norm = true,
     .norm_plus_one = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .attn_gate = true,
     .moe = true,
     .experts_whole = true,
     .fill = fill_delta},
    {.model_type = "qwen3_next",
     .gguf = "qwen3next",
     .gguf_norm_one = true,
     .pre_norm = true,
     .norm_plus_one = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .attn_gate = true,
     .peft_converts = true,
     .moe = true,
     .names = next_names,
     .fill = fill_delta},
    {.model_type = "olmo_hybrid",
     .pre_norm = true,
     .post_norm = true,
     .norm_by_mixer = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .qk_norm_row = true,
     .names = olmo_hybrid_names,
     .fill = fill_olmo_hybrid},
    {.model_type = "lfm2",
     .gguf = "lfm2",
     .pre_norm = true,
     .qk_norm = true,
     .names = lfm2_names,
     .fill = fill_conv},
    {.model_type = "lfm2_moe",
     .gguf = "lfm2moe",
     .pre_norm = true,
     .qk_norm = true,
     .moe = true,
     .no_router_loss = true,
     .names = lfm2_moe_names,
     .experts = "feed_forward.experts",
     .expert_part = {"w1", "w3", "w2"},
     .fill = fill_conv},
    {LFM3, .fill = fill_lfm3},
    {.model_type = "granitemoehybrid",
     .gguf = "granitehybrid",
     .gguf_permuted = true,
     .gguf_cut_mlp = true,
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .fused_gate_up = true,
     .multipliers = true,
     .moe = true,
     .experts_module = "block_sparse_moe.experts",
     .moe_or_dense = true,
     .experts_whole = true,
     .names = mamba_names,
     .fill = fill_mamba},
    {0},
};
