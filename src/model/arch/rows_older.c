/* rows_older.c - families from before llama. */
#include "model/arch/alibi.h"
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

#define GPT_NAMES                                                                                  \
    {AF_SLOT_EMBED, "transformer.wte.weight", NULL}, {AF_SLOT_ATTN_NORM, "ln_1.weight", NULL},     \
        {AF_SLOT_ATTN_NORM_BIAS, "ln_1.bias", NULL},                                               \
        {AF_SLOT_FINAL_NORM, "transformer.ln_f.weight", NULL},                                     \
    {                                                                                              \
        AF_SLOT_FINAL_NORM_BIAS, "transformer.ln_f.bias", NULL                                     \
    }

static const af_slot_name gpt2_names[] = {
    GPT_NAMES,
    {AF_SLOT_POSITIONS, "transformer.wpe.weight", NULL},
    {AF_SLOT_QKV, "attn.c_attn.weight", NULL},
    {AF_SLOT_QKV_BIAS, "attn.c_attn.bias", NULL},
    {AF_SLOT_O, "attn.c_proj.weight", NULL},
    {AF_SLOT_O_BIAS, "attn.c_proj.bias", NULL},
    {AF_SLOT_MLP_NORM, "ln_2.weight", NULL},
    {AF_SLOT_MLP_NORM_BIAS, "ln_2.bias", NULL},
    {AF_SLOT_UP, "mlp.c_fc.weight", NULL},
    {AF_SLOT_UP_BIAS, "mlp.c_fc.bias", NULL},
    {AF_SLOT_DOWN, "mlp.c_proj.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "mlp.c_proj.bias", NULL},
    {0},
};

/* GPT, the first one: norms of the sums, and none at the end. */
static const af_slot_name openai_names[] = {
    {AF_SLOT_EMBED, "transformer.tokens_embed.weight", NULL},
    {AF_SLOT_POSITIONS, "transformer.positions_embed.weight", NULL},
    {AF_SLOT_ATTN_NORM, "ln_1.weight", NULL},
    {AF_SLOT_ATTN_NORM_BIAS, "ln_1.bias", NULL},
    {AF_SLOT_QKV, "attn.c_attn.weight", NULL},
    {AF_SLOT_QKV_BIAS, "attn.c_attn.bias", NULL},
    {AF_SLOT_O, "attn.c_proj.weight", NULL},
    {AF_SLOT_O_BIAS, "attn.c_proj.bias", NULL},
    {AF_SLOT_MLP_NORM, "ln_2.weight", NULL},
    {AF_SLOT_MLP_NORM_BIAS, "ln_2.bias", NULL},
    {AF_SLOT_UP, "mlp.c_fc.weight", NULL},
    {AF_SLOT_UP_BIAS, "mlp.c_fc.bias", NULL},
    {AF_SLOT_DOWN, "mlp.c_proj.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "mlp.c_proj.bias", NULL},
    {0},
};

static const af_slot_name gpt_neo_names[] = {
    GPT_NAMES,
    {AF_SLOT_POSITIONS, "transformer.wpe.weight", NULL},
    {AF_SLOT_Q, "attn.attention.q_proj.weight", NULL},
    {AF_SLOT_K, "attn.attention.k_proj.weight", NULL},
    {AF_SLOT_V, "attn.attention.v_proj.weight", NULL},
    {AF_SLOT_O, "attn.attention.out_proj.weight", NULL},
    {AF_SLOT_O_BIAS, "attn.attention.out_proj.bias", NULL},
    {AF_SLOT_MLP_NORM, "ln_2.weight", NULL},
    {AF_SLOT_MLP_NORM_BIAS, "ln_2.bias", NULL},
    {AF_SLOT_UP, "mlp.c_fc.weight", NULL},
    {AF_SLOT_UP_BIAS, "mlp.c_fc.bias", NULL},
    {AF_SLOT_DOWN, "mlp.c_proj.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "mlp.c_proj.bias", NULL},
    {0},
};

static const af_slot_name gptj_names[] = {
    GPT_NAMES,
    {AF_SLOT_Q, "attn.q_proj.weight", NULL},
    {AF_SLOT_K, "attn.k_proj.weight", NULL},
    {AF_SLOT_V, "attn.v_proj.weight", NULL},
    {AF_SLOT_QKV, "attn.qkv_proj.weight", NULL},
    {AF_SLOT_O, "attn.out_proj.weight", NULL},
    {AF_SLOT_UP, "mlp.fc_in.weight", NULL},
    {AF_SLOT_UP_BIAS, "mlp.fc_in.bias", NULL},
    {AF_SLOT_DOWN, "mlp.fc_out.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "mlp.fc_out.bias", NULL},
    {0},
};

static const af_slot_name mpt_names[] = {
    {AF_SLOT_EMBED, "transformer.wte.weight", NULL},
    {AF_SLOT_ATTN_NORM, "norm_1.weight", NULL},
    {AF_SLOT_QKV, "attn.Wqkv.weight", NULL},
    {AF_SLOT_O, "attn.out_proj.weight", NULL},
    {AF_SLOT_MLP_NORM, "norm_2.weight", NULL},
    {AF_SLOT_UP, "ffn.up_proj.weight", NULL},
    {AF_SLOT_DOWN, "ffn.down_proj.weight", NULL},
    {AF_SLOT_FINAL_NORM, "transformer.norm_f.weight", NULL},
    {0},
};

/* Layers of decoders that come from fairseq. */
#define FAIRSEQ_NAMES                                                                              \
    {AF_SLOT_ATTN_NORM, "self_attn_layer_norm.weight", NULL},                                      \
        {AF_SLOT_ATTN_NORM_BIAS, "self_attn_layer_norm.bias", NULL},                               \
        {AF_SLOT_O, "self_attn.out_proj.weight", NULL},                                            \
        {AF_SLOT_O_BIAS, "self_attn.out_proj.bias", NULL},                                         \
        {AF_SLOT_MLP_NORM, "final_layer_norm.weight", NULL},                                       \
        {AF_SLOT_MLP_NORM_BIAS, "final_layer_norm.bias", NULL}, {AF_SLOT_UP, "fc1.weight", NULL},  \
        {AF_SLOT_UP_BIAS, "fc1.bias", NULL}, {AF_SLOT_DOWN, "fc2.weight", NULL},                   \
    {                                                                                              \
        AF_SLOT_DOWN_BIAS, "fc2.bias", NULL                                                        \
    }

static const af_slot_name opt_names[] = {
    {AF_SLOT_EMBED, "model.decoder.embed_tokens.weight", NULL},
    {AF_SLOT_POSITIONS, "model.decoder.embed_positions.weight", NULL},
    FAIRSEQ_NAMES,
    {AF_SLOT_FINAL_NORM, "model.decoder.final_layer_norm.weight", NULL},
    {AF_SLOT_FINAL_NORM_BIAS, "model.decoder.final_layer_norm.bias", NULL},
    {0},
};

static const af_slot_name biogpt_names[] = {
    {AF_SLOT_EMBED, "biogpt.embed_tokens.weight", NULL},
    {AF_SLOT_POSITIONS, "biogpt.embed_positions.weight", NULL},
    FAIRSEQ_NAMES,
    {AF_SLOT_FINAL_NORM, "biogpt.layer_norm.weight", NULL},
    {AF_SLOT_FINAL_NORM_BIAS, "biogpt.layer_norm.bias", NULL},
    {AF_SLOT_HEAD, "output_projection.weight", NULL},
    {0},
};

static const af_slot_name xglm_names[] = {
    FAIRSEQ_NAMES,
    {AF_SLOT_FINAL_NORM, "model.layer_norm.weight", NULL},
    {AF_SLOT_FINAL_NORM_BIAS, "model.layer_norm.bias", NULL},
    {0},
};

static const af_slot_name persimmon_names[] = {
    {AF_SLOT_QKV, "self_attn.query_key_value.weight", NULL},
    {AF_SLOT_QKV_BIAS, "self_attn.query_key_value.bias", NULL},
    {AF_SLOT_O, "self_attn.dense.weight", NULL},
    {AF_SLOT_O_BIAS, "self_attn.dense.bias", NULL},
    {AF_SLOT_Q_NORM, "self_attn.q_layernorm.weight", NULL},
    {AF_SLOT_Q_NORM_BIAS, "self_attn.q_layernorm.bias", NULL},
    {AF_SLOT_K_NORM, "self_attn.k_layernorm.weight", NULL},
    {AF_SLOT_K_NORM_BIAS, "self_attn.k_layernorm.bias", NULL},
    {AF_SLOT_UP, "mlp.dense_h_to_4h.weight", NULL},
    {AF_SLOT_UP_BIAS, "mlp.dense_h_to_4h.bias", NULL},
    {AF_SLOT_DOWN, "mlp.dense_4h_to_h.weight", NULL},
    {AF_SLOT_DOWN_BIAS, "mlp.dense_4h_to_h.bias", NULL},
    {AF_SLOT_FINAL_NORM, "model.final_layernorm.weight", NULL},
    {AF_SLOT_FINAL_NORM_BIAS, "model.final_layernorm.bias", NULL},
    {0},
};

/* The names falcon and bloom have in common. */
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

static const af_slot_name bloom_names[] = {
    FALCON_NAMES,
    {AF_SLOT_EMBED_NORM, "transformer.word_embeddings_layernorm.weight", NULL},
    {AF_SLOT_EMBED_NORM_BIAS, "transformer.word_embeddings_layernorm.bias", NULL},
    {0},
};

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

/* Scores fall with the distance: there is no rotation. */
static af_status alibi_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->alibi = c->alibi;
    s->residual_normed = c->residual_normed;
    for (int i = 0; i < s->layers && s->alibi > 0; i++)
        s->layer[i].rope = -1;
    return AF_OK;
}

static af_status mpt_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    if (!(c->alibi > 0))
        return af_fail(err, AF_EUNSUPPORTED, "a model of type mpt without ALiBi is not supported");
    if (c->attention_multiplier > 0)
        s->attn_scale = c->attention_multiplier;
    return alibi_fill(s, c, err);
}

static af_status falcon_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->parallel = c->use_parallel_residual;
    s->parallel_norms = c->two_norms;
    if (c->two_norms)
        s->arch = &falcon_two;
    s->alibi_kind = AF_ALIBI_ROUNDED;
    return alibi_fill(s, c, err);
}

/* Positions are learned: there is no rotation. */
static af_status learned_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    if (c->max_position_embeddings > AF_CONFIG_VOCAB_MAX)
        return af_fail(err, AF_EFORMAT, "%" PRId64 " positions are more than a table can have",
                       c->max_position_embeddings);
    for (int i = 0; i < s->layers; i++)
        s->layer[i].rope = -1;
    return AF_OK;
}

#define OPT                                                                                        \
    .model_type = "opt", .pre_norm = true, .bias = AF_BIAS_CONFIG, .layer_norm = true,             \
    .plain_mlp = true, .positions = true, .positions_from = 2, .stem = "model.decoder.",           \
    .names = opt_names

static const af_arch opt_bare = {OPT, .norm_bare = true};

/* The 350m is unlike the others: norms after the sums, a narrow embedding. */
static af_status opt_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    if (c->norm_bare)
        s->arch = &opt_bare;
    s->norm_after = c->norm_after;
    s->no_final_norm = c->no_final_norm;
    s->embed_width = c->embed_width ? c->embed_width : s->width;
    return learned_fill(s, c, err);
}

static af_status openai_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->norm_after = s->no_final_norm = true;
    return learned_fill(s, c, err);
}

static af_status fairseq_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->embed_scales = c->embedding_multiplier != 1;
    s->embed_scale = c->embedding_multiplier;
    return learned_fill(s, c, err);
}

/* Scores are not scaled. */
static af_status gpt_neo_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->attn_scale = 1;
    return learned_fill(s, c, err);
}

static const af_slot_name modernbert_names[] = {
    {AF_SLOT_EMBED, "model.embeddings.tok_embeddings.weight", NULL},
    {AF_SLOT_EMBED_NORM, "model.embeddings.norm.weight", NULL},
    {AF_SLOT_ATTN_NORM, "attn_norm.weight", NULL},
    {AF_SLOT_Q, "attn.q_proj.weight", NULL},
    {AF_SLOT_Q_BIAS, "attn.q_proj.bias", NULL},
    {AF_SLOT_K, "attn.k_proj.weight", NULL},
    {AF_SLOT_K_BIAS, "attn.k_proj.bias", NULL},
    {AF_SLOT_V, "attn.v_proj.weight", NULL},
    {AF_SLOT_V_BIAS, "attn.v_proj.bias", NULL},
    {AF_SLOT_O, "attn.Wo.weight", NULL},
    {AF_SLOT_O_BIAS, "attn.Wo.bias", NULL},
    {AF_SLOT_MLP_NORM, "mlp_norm.weight", NULL},
    {AF_SLOT_GATE_UP, "mlp.Wi.weight", NULL},
    {AF_SLOT_DOWN, "mlp.Wo.weight", NULL},
    {AF_SLOT_FINAL_NORM, "model.final_norm.weight", NULL},
    {AF_SLOT_HEAD, "decoder.weight", NULL},
    {AF_SLOT_HEAD_BIAS, "decoder.bias", NULL},
    {0},
};

/* Its classifiers have a linear and a norm of their own before the scores, which no language model
 * has. */
static af_status modernbert_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    if (s->labels)
        return af_fail(err, AF_EUNSUPPORTED, "classification with '%s' is not supported",
                       c->model_type);
    return AF_OK;
}

const af_arch af_rows_older[] = {
    {.model_type = "modernbert-decoder",
     .pre_norm = true,
     .no_first_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .embed_norm = true,
     .fused_gate_up = true,
     .head_dense = true,
     .head_bias = true,
     .names = modernbert_names,
     .fill = modernbert_fill},
    {.model_type = "gpt2",
     .gguf = "gpt2",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true,
     .fused_qkv = true,
     .linears_turned = true,
     .positions = true,
     .stem = "transformer.",
     .layers = "h",
     .names = gpt2_names,
     .fill = learned_fill},
    {.model_type = "openai-gpt",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true,
     .fused_qkv = true,
     .linears_turned = true,
     .positions = true,
     .stem = "transformer.",
     .layers = "h",
     .names = openai_names,
     .fill = openai_fill},
    {.model_type = "gpt_bigcode",
     .gguf = "starcoder",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true,
     .fused_qkv = true,
     .qkv_grouped = true,
     .positions = true,
     .stem = "transformer.",
     .layers = "h",
     .names = gpt2_names,
     .fill = learned_fill},
    {.model_type = "gpt_neo",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true,
     .mlp_bias = true,
     .positions = true,
     .stem = "transformer.",
     .layers = "h",
     .names = gpt_neo_names,
     .fill = gpt_neo_fill},
    {.model_type = "gptj",
     .pre_norm = true,
     .layer_norm = true,
     .norm_bias = true,
     .parallel = true,
     .plain_mlp = true,
     .mlp_bias = true,
     .head_bias = true,
     .rope_pairs = true,
     .stem = "transformer.",
     .layers = "h",
     .names = gptj_names},
    {.model_type = "codegen",
     .pre_norm = true,
     .layer_norm = true,
     .norm_bias = true,
     .parallel = true,
     .plain_mlp = true,
     .mlp_bias = true,
     .head_bias = true,
     .rope_pairs = true,
     .fused_qkv = true,
     .qkv_grouped = true,
     .qkv_groups = 4,
     .stem = "transformer.",
     .layers = "h",
     .names = gptj_names},
    {OPT, .norm_bias = true, .fill = opt_fill},
    {.model_type = "biogpt",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true,
     .positions = true,
     .positions_from = 2,
     .stem = "biogpt.",
     .names = biogpt_names,
     .fill = fairseq_fill},
    {.model_type = "xglm",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true,
     .positions = true,
     .positions_from = 2,
     .sinusoids = true,
     .names = xglm_names,
     .fill = fairseq_fill},
    {.model_type = "bloom",
     .gguf = "bloom",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .embed_norm = true,
     .plain_mlp = true,
     .fused_qkv = true,
     .qkv_grouped = true,
     .stem = "transformer.",
     .layers = "h",
     .names = bloom_names,
     .fill = alibi_fill},
    {.model_type = "mpt",
     .gguf = "mpt",
     .pre_norm = true,
     .layer_norm = true,
     .plain_mlp = true,
     .fused_qkv = true,
     .stem = "transformer.",
     .layers = "blocks",
     .names = mpt_names,
     .fill = mpt_fill},
    {.model_type = "persimmon",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true,
     .plain_mlp = true,
     .fused_qkv = true,
     .qkv_grouped = true,
     .qk_norm_config = true,
     .qk_norm_layer = true,
     .names = persimmon_names},
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
     .head_module = "lm_head",
     .names = gpt_neox_names,
     .fill = gpt_neox_fill},
    {FALCON, .names = falcon_names, .fill = falcon_fill},
    {0},
};
