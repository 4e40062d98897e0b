/* rows_mamba.c - families of Mamba-2 layers alone, next to attention, or between layers of other
 * kinds. */
#include "model/arch/arch_rows.h"

#include <math.h>

/* A mixer and an MLP in every layer. */
static af_status fill_both(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    for (int i = 0; i < s->layers; i++)
        if (c->layer_types[i] == AF_LAYER_MAMBA)
            s->layer[i].mixer = AF_MIXER_MAMBA2;
    return AF_OK;
}

/* Mamba-1 in layers without attention, and an MLP or experts in all (jamba), or in none. */
static af_status fill_selective(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    for (int i = 0; i < s->layers; i++) {
        if (c->layer_types[i] == AF_LAYER_MAMBA)
            s->layer[i].mixer = AF_MIXER_MAMBA1;
        if (!s->arch->moe) {
            s->layer[i].mlp = AF_MLP_NONE;
            s->layer[i].ffn = 0;
        }
    }
    return AF_OK;
}

/* One of them in every layer. */
static af_status fill_one(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    bool dense = false;
    for (int i = 0; i < s->layers; i++) {
        const af_layer_type t = c->layer_types[i];
        const bool mixer = t == AF_LAYER_MAMBA || t == AF_LAYER_FULL;
        s->layer[i].mixer = t == AF_LAYER_MAMBA  ? AF_MIXER_MAMBA2
                            : t == AF_LAYER_FULL ? AF_MIXER_ATTENTION
                                                 : AF_MIXER_NONE;
        s->layer[i].mlp = mixer                   ? AF_MLP_NONE
                          : t == AF_LAYER_EXPERTS ? AF_MLP_EXPERTS
                                                  : AF_MLP_PLAIN;
        dense |= s->layer[i].mlp == AF_MLP_PLAIN;
    }
    if (!dense) /* nobody reads it */
        s->ffn = AF_MAX(s->expert_ffn, 1);
    for (int i = 0; i < s->layers; i++)
        s->layer[i].ffn = s->layer[i].mlp == AF_MLP_PLAIN ? s->ffn : 0;
    if (s->experts)
        s->arch++; /* the row of nemotron_h with them */
    return AF_OK;
}

/* Mamba-2 alone, or after a shared transformer. */
static af_status fill_shared(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->attn_scale = 1 / sqrt((double)s->head_dim / 2);
    for (int i = 0; i < s->layers; i++) {
        s->layer[i].mixer = c->layer_types[i] == AF_LAYER_MAMBA ? AF_MIXER_MAMBA2 : AF_MIXER_SHARED;
        s->layer[i].mlp = AF_MLP_NONE;
        s->layer[i].rope = c->state.shared_rope ? 0 : -1;
    }
    return AF_OK;
}

static af_status fill_hybrid(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    for (int i = 0; i < s->layers; i++)
        s->layer[i].mixer = AF_MIXER_HYBRID;
    s->embed_scale = c->embedding_multiplier;
    s->attn_scale *= c->mup.key; /* keys are only multiplied with queries */
    s->logit_scale = s->labels ? 1 : c->mup.head;
    return AF_OK;
}

/* The tensors of a Mamba-2 layer; `in` is what the mixer is called. */
#define MAMBA_NAMES(in)                                                                            \
    {AF_SLOT_IN, in ".in_proj.weight", "ssm_in.weight"},                                           \
        {AF_SLOT_IN_BIAS, in ".in_proj.bias", NULL}, {AF_SLOT_CONV, in ".conv1d.weight", NULL},    \
        {AF_SLOT_CONV_BIAS, in ".conv1d.bias", NULL}, {AF_SLOT_A_LOG, in ".A_log", NULL},          \
        {AF_SLOT_DT_BIAS, in ".dt_bias", NULL}, {AF_SLOT_D, in ".D", NULL},                        \
        {AF_SLOT_STATE_NORM, in ".norm.weight", NULL}, {AF_SLOT_OUT, in ".out_proj.weight", NULL}, \
    {                                                                                              \
        AF_SLOT_OUT_BIAS, in ".out_proj.bias", NULL                                                \
    }

static const af_slot_name nemotron_names[] = {
    MAMBA_NAMES("mixer"),
    {AF_SLOT_EMBED, "backbone.embeddings.weight", NULL},
    {AF_SLOT_FINAL_NORM, "backbone.norm_f.weight", NULL},
    {AF_SLOT_ATTN_NORM, "norm.weight", NULL},
    {AF_SLOT_Q, "mixer.q_proj.weight", NULL},
    {AF_SLOT_K, "mixer.k_proj.weight", NULL},
    {AF_SLOT_V, "mixer.v_proj.weight", NULL},
    {AF_SLOT_O, "mixer.o_proj.weight", NULL},
    {AF_SLOT_UP, "mixer.up_proj.weight", NULL},
    {AF_SLOT_UP_BIAS, "mixer.up_proj.bias", NULL},
    {AF_SLOT_DOWN, "mixer.down_proj.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "mixer.down_proj.bias", NULL},
    {AF_SLOT_ROUTER, "mixer.gate.weight", NULL},
    {AF_SLOT_ROUTER_CHOICE, "mixer.gate.e_score_correction_bias", NULL},
    {AF_SLOT_EXPERTS_UP, "mixer.experts.up_proj", NULL},
    {AF_SLOT_EXPERTS_DOWN, "mixer.experts.down_proj", NULL},
    {AF_SLOT_SHARED_UP, "mixer.shared_experts.up_proj.weight", NULL},
    {AF_SLOT_SHARED_DOWN, "mixer.shared_experts.down_proj.weight", NULL},
    {AF_SLOT_EXPERTS_IN, "mixer.fc1_latent_proj.weight", NULL},
    {AF_SLOT_EXPERTS_OUT, "mixer.fc2_latent_proj.weight", NULL},
    {0},
};

#define FEED_FORWARD_NAMES                                                                         \
    {AF_SLOT_GATE, "feed_forward.gate_proj.weight", NULL},                                         \
        {AF_SLOT_UP, "feed_forward.up_proj.weight", NULL},                                         \
        {AF_SLOT_DOWN, "feed_forward.down_proj.weight", NULL},                                     \
        {AF_SLOT_GATE_BIAS, "feed_forward.gate_proj.bias", NULL},                                  \
        {AF_SLOT_UP_BIAS, "feed_forward.up_proj.bias", NULL},                                      \
    {                                                                                              \
        AF_SLOT_DOWN_BIAS, "feed_forward.down_proj.bias", NULL                                     \
    }

static const af_slot_name falcon_h1_names[] = {
    MAMBA_NAMES("mamba"),
    {AF_SLOT_FINAL_NORM, "model.final_layernorm.weight", NULL},
    {AF_SLOT_MLP_NORM, "pre_ff_layernorm.weight", "ffn_norm"}, /* as llama.cpp has it */
    FEED_FORWARD_NAMES,
    {0},
};

static const af_slot_name bamba_names[] = {
    MAMBA_NAMES("mamba"),
    {AF_SLOT_FINAL_NORM, "model.final_layernorm.weight", NULL},
    {AF_SLOT_MLP_NORM, "pre_ff_layernorm.weight", NULL},
    FEED_FORWARD_NAMES,
    {0},
};

static const af_slot_name zamba2_names[] = {
    MAMBA_NAMES("mamba"),
    {AF_SLOT_FINAL_NORM, "model.final_layernorm.weight", NULL},
    {AF_SLOT_MLP_NORM, "pre_ff_layernorm.weight", NULL},
    {AF_SLOT_GATE_UP, "feed_forward.gate_up_proj.weight", NULL},
    {AF_SLOT_GATE_BIAS, "feed_forward.gate_up_proj.bias", NULL},
    {AF_SLOT_DOWN, "feed_forward.down_proj.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "feed_forward.down_proj.bias", NULL},
    {0},
};

#define BACKBONE_NAMES                                                                             \
    MAMBA_NAMES("mixer"), {AF_SLOT_EMBED, "backbone.embeddings.weight", NULL},                     \
        {AF_SLOT_FINAL_NORM, "backbone.norm_f.weight", NULL},                                      \
    {                                                                                              \
        AF_SLOT_ATTN_NORM, "norm.weight", NULL                                                     \
    }

static const af_slot_name mamba2_names[] = {BACKBONE_NAMES, {0}};

static const af_slot_name mamba1_names[] = {
    {AF_SLOT_DT_BIAS, "mixer.dt_proj.bias", NULL}, /* the first one counts */
    BACKBONE_NAMES,
    {0},
};

static const af_slot_name jamba_names[] = {
    {AF_SLOT_DT_BIAS, "mamba.dt_proj.bias", NULL},
    MAMBA_NAMES("mamba"),
    {AF_SLOT_STEP_IN, "mamba.x_proj.weight", NULL},
    {AF_SLOT_STEP_OUT, "mamba.dt_proj.weight", NULL},
    {AF_SLOT_FINAL_NORM, "model.final_layernorm.weight", NULL},
    {AF_SLOT_MLP_NORM, "pre_ff_layernorm.weight", NULL},
    {AF_SLOT_GATE, "feed_forward.gate_proj.weight", NULL},
    {AF_SLOT_UP, "feed_forward.up_proj.weight", NULL},
    {AF_SLOT_DOWN, "feed_forward.down_proj.weight", NULL},
    {AF_SLOT_ROUTER, "feed_forward.router.weight", NULL},
    {AF_SLOT_EXPERTS_GATE_UP, "feed_forward.experts.gate_up_proj", NULL},
    {AF_SLOT_EXPERTS_DOWN, "feed_forward.experts.down_proj", NULL},
    {0},
};

/* The same with experts, which llama.cpp gives another name. */
#define NEMOTRON_H(file)                                                                           \
    .gguf = file, .model_type = "nemotron_h", .stem = "backbone.", .memory_stem = "model.",        \
    .peft_no_out = true, .pre_norm = true, .plain_mlp = true, .moe = true, .moe_or_dense = true,   \
    .no_router_loss = true, .experts = "mixer.experts",                                            \
    .expert_part = {NULL, "up_proj", "down_proj"}, .names = nemotron_names, .fill = fill_one

#define MAMBA1(type)                                                                               \
    {                                                                                              \
        .model_type = type, .gguf = "mamba", .stem = "backbone.", .peft_no_out = true,             \
        .peft_no_step = true, .pre_norm = true, .names = mamba1_names, .fill = fill_selective      \
    }

const af_arch af_rows_mamba[] = {
    {NEMOTRON_H("nemotron_h")},
    /* with experts, what llama.cpp calls it: see fill_one */
    {NEMOTRON_H("nemotron_h_moe")},
    {.model_type = "bamba",
     .gguf = "granitehybrid",
     .gguf_permuted = true,
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .names = bamba_names,
     .fill = fill_both},
    {.model_type = "falcon_h1",
     .gguf = "falcon-h1",
     .peft_no_out = true,
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .names = falcon_h1_names,
     .fill = fill_hybrid},
    {.model_type = "mamba2",
     .gguf = "mamba2",
     .stem = "backbone.",
     .peft_no_out = true,
     .pre_norm = true,
     .names = mamba2_names,
     .fill = fill_one},
    MAMBA1("mamba"),
    MAMBA1("falcon_mamba"),
    {.model_type = "jamba",
     .gguf = "jamba",
     .peft_no_step = true,
     .pre_norm = true,
     .moe = true,
     .experts = "feed_forward.experts",
     .expert_part = {"gate_proj", "up_proj", "down_proj"},
     .names = jamba_names,
     .fill = fill_selective},
    {.model_type = "zamba2", .pre_norm = true, .names = zamba2_names, .fill = fill_shared},
    {0},
};
