/* rows_latent.c - families with latent attention. */
#include "model/arch/arch_rows.h"

#include <math.h>

/* Scores are scaled by the whole head, and by YaRN's m(mscale_all_dim) twice. */
static af_status latent_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    const af_rope_config *r = &c->rope;
    s->attn_scale = 1 / sqrt((double)(c->latent.qk_nope_dim + c->latent.qk_rope_dim));
    if (r->type != AF_ROPE_DEFAULT && r->mscale_all_dim > 0 && r->factor > 1) {
        const double m = 0.1 * r->mscale_all_dim * log(r->factor) + 1;
        s->attn_scale *= m * m;
    }
    s->rope_pairs = !c->latent.rope_halves;
    for (int i = 0; i < s->layers; i++) {
        s->layer[i].mixer = AF_MIXER_LATENT;
        s->layer[i].kv_heads = s->layer[i].heads;
    }
    return af_spec_rope_dims(&s->rope[0], (int)c->latent.qk_rope_dim, err);
}

static af_status mistral4_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    const af_status st = latent_fill(s, c, err);
    return st == AF_OK ? af_fill_query_scale(s, c, err) : st;
}

/* muP: the embedding, the residuals and the logits are scaled. */
static af_status minicpm3_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->embed_scale = c->embedding_multiplier;
    s->embed_scales = true;
    s->residual_scale = c->residual_multiplier;
    s->logit_scale = s->labels ? 1 : 1 / c->logits_scaling;
    return latent_fill(s, c, err);
}

/* Delta nets, with latent attention between. Their convolutions are three tensors in a folder. */
static af_status kimi_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    const af_status st = latent_fill(s, c, err);
    for (int i = 0; i < s->layers; i++) {
        if (c->layer_types[i] != AF_LAYER_FULL && c->layer_types[i] != AF_LAYER_LINEAR)
            return af_fail(err, AF_EFORMAT,
                           "layer_types of %s are linear_attention or full_attention",
                           s->arch->model_type);
        if (c->layer_types[i] == AF_LAYER_LINEAR)
            s->layer[i].mixer = AF_MIXER_DELTA_NET;
    }
    for (int p = 0; p < AF_CONV_PIECES; p++)
        s->conv_rows[p] = s->state.heads * s->state.head_dim;
    s->attn_gate_heads = s->arch->attn_gate_apart;
    return st;
}

/* What layers with Kimi delta attention have; `decay` and `gate`: their last matrices, with the
 * letter of llama.cpp. */
#define KDA_NAMES(module, decay, gate, letter, o)                                                  \
    {AF_SLOT_IN, module ".q_proj.weight", "attn_q.weight"},                                        \
        {AF_SLOT_IN_K, module ".k_proj.weight", "attn_k.weight"},                                  \
        {AF_SLOT_IN_V, module ".v_proj.weight", "attn_v.weight"},                                  \
        {AF_SLOT_IN_B, module ".b_proj.weight", NULL},                                             \
        {AF_SLOT_STEP_OUT, module "." decay ".weight", "ssm_f_" letter ".weight"},                 \
        {AF_SLOT_IN_Z, module "." gate ".weight", "ssm_g_" letter ".weight"},                      \
        {AF_SLOT_CONV, module ".conv1d.weight", NULL}, {AF_SLOT_A_LOG, module ".A_log", NULL},     \
        {AF_SLOT_DT_BIAS, module ".dt_bias", NULL},                                                \
        {AF_SLOT_STATE_NORM, module ".o_norm.weight", NULL},                                       \
    {                                                                                              \
        AF_SLOT_OUT, module "." o ".weight", "attn_output.weight"                                  \
    }

/* Queries come from scaled latents, too: a factor of all scores. */
static af_status longcat_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    const af_status st = latent_fill(s, c, err);
    s->attn_scale *= sqrt((double)c->hidden_size / (double)c->latent.q_lora_rank);
    for (int i = 0; i < s->layers; i++)
        s->layer[i].mlp = AF_MLP_SHORTCUT;
    return st;
}

static const af_slot_name longcat_names[] = {
    {AF_SLOT_ATTN_NORM, "input_layernorm.*.weight", NULL},
    {AF_SLOT_MLP_NORM, "post_attention_layernorm.*.weight", NULL},
    {AF_SLOT_Q_A, "self_attn.*.q_a_proj.weight", NULL},
    {AF_SLOT_Q_A_BIAS, "self_attn.*.q_a_proj.bias", NULL},
    {AF_SLOT_Q_A_NORM, "self_attn.*.q_a_layernorm.weight", NULL},
    {AF_SLOT_Q_B, "self_attn.*.q_b_proj.weight", NULL},
    {AF_SLOT_KV_A, "self_attn.*.kv_a_proj_with_mqa.weight", NULL},
    {AF_SLOT_KV_A_BIAS, "self_attn.*.kv_a_proj_with_mqa.bias", NULL},
    {AF_SLOT_KV_A_NORM, "self_attn.*.kv_a_layernorm.weight", NULL},
    {AF_SLOT_KV_B, "self_attn.*.kv_b_proj.weight", NULL},
    {AF_SLOT_O, "self_attn.*.o_proj.weight", NULL},
    {AF_SLOT_O_BIAS, "self_attn.*.o_proj.bias", NULL},
    {AF_SLOT_GATE, "mlps.*.gate_proj.weight", NULL},
    {AF_SLOT_UP, "mlps.*.up_proj.weight", NULL},
    {AF_SLOT_DOWN, "mlps.*.down_proj.weight", NULL},
    {AF_SLOT_ROUTER, "mlp.router.classifier.weight", NULL},
    {AF_SLOT_ROUTER_CHOICE, "mlp.router.e_score_correction_bias", NULL},
    {0},
};

static const char *const axk2_modules[][2] = {{".W_down.", ".mlp.fc1."},
                                              {".W_up.", ".mlp.fc2."},
                                              {".q_b_proj.", ".q_gate_proj."},
                                              {NULL, NULL}};

static const af_slot_name axk1_names[] = {
    {AF_SLOT_POST_MLP_NORM, "post_mlp_layernorm.weight", NULL},
    AF_SHARED_NAMES("mlp.shared_experts"),
    {0},
};

static const af_slot_name kimi_names[] = {
    KDA_NAMES("self_attn", "f_b_proj", "g_b_proj", "b", "o_proj"),
    {AF_SLOT_IN_A, "self_attn.f_a_proj.weight", "ssm_f_a.weight"},
    AF_SHARED_NAMES("block_sparse_moe.shared_experts"),
    {AF_SLOT_ROUTER_CHOICE, "block_sparse_moe.gate.e_score_correction_bias", NULL},
    {0},
};

static const char *const kimi_modules[][2] = {
    {".self_attn.f_", ".self_attn.forget_gate.f_"}, {".block_sparse_moe.", ".mlp."}, {NULL, NULL}};

static const af_slot_name bailing_names[] = {
    KDA_NAMES("attention", "f_proj", "g_proj", "a", "dense"),
    {AF_SLOT_EMBED, "model.word_embeddings.weight", NULL},
    {AF_SLOT_Q, "attention.q_proj.weight", NULL},
    {AF_SLOT_KV_A, "attention.kv_a_proj_with_mqa.weight", NULL},
    {AF_SLOT_KV_A_BIAS, "attention.kv_a_proj_with_mqa.bias", NULL},
    {AF_SLOT_KV_A_NORM, "attention.kv_a_layernorm.weight", NULL},
    {AF_SLOT_KV_B, "attention.kv_b_proj.weight", NULL},
    {AF_SLOT_ATTN_GATE, "attention.g_proj.weight", NULL},
    {AF_SLOT_O, "attention.dense.weight", NULL},
    {AF_SLOT_O_BIAS, "attention.dense.bias", NULL},
    AF_SHARED_NAMES("mlp.shared_experts"),
    {AF_SLOT_ROUTER_CHOICE, "mlp.gate.expert_bias", NULL},
    {0},
};

static const char *const bailing_modules[][2] = {
    {".attention.dense.", ".self_attn.o_proj."},
    {".attention.f_proj.", ".self_attn.forget_gate.f_proj."},
    {".attention.", ".self_attn."},
    {".word_embeddings.", ".embed_tokens."},
    {NULL, NULL}};

#define DEEPSEEK(type)                                                                             \
    .model_type = type, .pre_norm = true, .bias = AF_BIAS_CONFIG, .moe = true,                     \
    .no_router_loss = true, .names = af_deepseek_names, .fill = latent_fill

const af_arch af_rows_latent[] = {
    {DEEPSEEK("glm4_moe_lite"), .gguf = "deepseek2", .peft_converts = true},
    {DEEPSEEK("deepseek_v2"), .gguf = "deepseek2", .peft_converts = true},
    {DEEPSEEK("deepseek_v3"), .gguf = "deepseek2", .peft_converts = true},
    {DEEPSEEK("kimi_k2"), .gguf = "deepseek2"},
    {.model_type = "axk1",
     .pre_norm = true,
     .post_experts_norm = true,
     .choice_or_none = true,
     .bias = AF_BIAS_CONFIG,
     .moe = true,
     .no_router_loss = true,
     .names = axk1_names,
     .fill = latent_fill},
    {DEEPSEEK("axk2"), .in_memory = axk2_modules},
    {DEEPSEEK("deepseek_v32"), .peft_converts = true},
    {DEEPSEEK("glm_moe_dsa"), .peft_converts = true},
    {.model_type = "longcat_flash",
     .pre_norm = true,
     .two_in_one = true,
     .bias = AF_BIAS_CONFIG,
     .peft_converts = true,
     .peft_no_router = true,
     .router_linear = true,
     .moe = true,
     .no_router_loss = true,
     .names = longcat_names,
     .fill = longcat_fill},
    {.model_type = "youtu",
     .gguf = "deepseek2",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .fill = latent_fill},
    {.model_type = "minicpm3",
     .gguf = "minicpm3",
     .gguf_kv_whole = true,
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .fill = minicpm3_fill},
    {.model_type = "mistral4",
     .gguf = "mistral4",
     .gguf_fused_experts = true,
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .moe = true,
     .experts_whole = true,
     .no_router_loss = true,
     .names = (const af_slot_name[]){AF_SHARED_NAMES("mlp.shared_experts"),
                                     {AF_SLOT_EXPERTS_GATE_UP, NULL, "ffn_gate_up_exps.weight"},
                                     {0}},
     .fill = mistral4_fill},
    {.model_type = "kimi_linear",
     .gguf = "kimi-linear",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .moe = true,
     .no_router_loss = true,
     .names = kimi_names,
     .experts = "block_sparse_moe.experts",
     .expert_part = {"w1", "w3", "w2"},
     .router = "block_sparse_moe.gate.weight",
     .in_memory = kimi_modules,
     .a_log_axes = true,
     .fill = kimi_fill},
    {.model_type = "bailing_hybrid",
     .gguf = "bailingmoe3",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .attn_gate_apart = true,
     .moe = true,
     .no_router_loss = true,
     .names = bailing_names,
     .in_memory = bailing_modules,
     .fill = kimi_fill},
    {0},
};
