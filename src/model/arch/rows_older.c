/* rows_older.c - families from before llama. */
#include "model/arch/arch_rows.h"

static const af_slot_name gpt_neox_names[] = {
    {AF_SLOT_EMBED, "gpt_neox.embed_in.weight", NULL},
    {AF_SLOT_QKV, "attention.query_key_value.weight", NULL},
    {AF_SLOT_QKV_BIAS, "attention.query_key_value.bias", NULL},
    {AF_SLOT_O, "attention.dense.weight", NULL},
    {AF_SLOT_O_BIAS, "attention.dense.bias", NULL},
    {AF_SLOT_UP, "mlp.dense_h_to_4h.weight", NULL},
    {AF_SLOT_UP_BIAS, "mlp.dense_h_to_4h.bias", NULL},
    {AF_SLOT_DOWN, "mlp.dense_4h_to_h.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "mlp.dense_4h_to_h.bias", NULL},
    {AF_SLOT_FINAL_NORM, "gpt_neox.final_layer_norm.weight", NULL},
    {AF_SLOT_FINAL_NORM_BIAS, "gpt_neox.final_layer_norm.bias", NULL},
    {AF_SLOT_HEAD, "embed_out.weight", NULL},
    {0},
};

#define FALCON_NAMES                                                                               \
    {AF_SLOT_EMBED, "transformer.word_embeddings.weight", NULL},                                   \
        {AF_SLOT_QKV, "self_attention.query_key_value.weight", NULL},                              \
        {AF_SLOT_QKV_BIAS, "self_attention.query_key_value.bias", NULL},                           \
        {AF_SLOT_O, "self_attention.dense.weight", NULL},                                          \
        {AF_SLOT_O_BIAS, "self_attention.dense.bias", NULL},                                       \
        {AF_SLOT_UP, "mlp.dense_h_to_4h.weight", NULL},                                            \
        {AF_SLOT_UP_BIAS, "mlp.dense_h_to_4h.bias", NULL},                                         \
        {AF_SLOT_DOWN, "mlp.dense_4h_to_h.weight", NULL},                                          \
        {AF_SLOT_DOWN_BIAS, "mlp.dense_4h_to_h.bias", NULL},                                       \
        {AF_SLOT_FINAL_NORM, "transformer.ln_f.weight", NULL},                                     \
    {                                                                                              \
        AF_SLOT_FINAL_NORM_BIAS, "transformer.ln_f.bias", NULL                                     \
    }

static const af_slot_name falcon_names[] = {FALCON_NAMES, {0}};

/* llama.cpp calls the norm of the MLP by the name that the only one has. */
static const af_slot_name falcon_two_names[] = {
    FALCON_NAMES,
    {AF_SLOT_ATTN_NORM, "ln_attn.weight", "attn_norm_2.weight"},
    {AF_SLOT_ATTN_NORM_BIAS, "ln_attn.bias", "attn_norm_2.bias"},
    {AF_SLOT_MLP_NORM, "ln_mlp.weight", "attn_norm.weight"},
    {AF_SLOT_MLP_NORM_BIAS, "ln_mlp.bias", "attn_norm.bias"},
    {0},
};

#define FALCON                                                                                     \
    .model_type = "falcon", .gguf = "falcon", .pre_norm = true, .bias = AF_BIAS_CONFIG,            \
    .layer_norm = true, .norm_bias = true, .plain_mlp = true, .fused_qkv = true,                   \
    .qkv_grouped = true, .stem = "transformer.", .layers = "h"

static const af_arch falcon_two = {FALCON, .names = falcon_two_names};

static af_status gpt_neox_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->parallel = s->parallel_norms = c->use_parallel_residual;
    return AF_OK;
}

static af_status falcon_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->parallel = c->use_parallel_residual;
    s->parallel_norms = c->two_norms;
    if (c->two_norms)
        s->arch = &falcon_two;
    return AF_OK;
}

const af_arch af_rows_older[] = {
    {.model_type = "gpt_neox",
     .gguf = "gptneox",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true,
     .mlp_bias = true,
     .fused_qkv = true,
     .qkv_grouped = true,
     .stem = "gpt_neox.",
     .names = gpt_neox_names,
     .fill = gpt_neox_fill},
    {FALCON, .names = falcon_names, .fill = falcon_fill},
    {0},
};
