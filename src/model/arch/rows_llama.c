/* rows_llama.c - families of llama's blocks: a norm before attention, a norm before a gated MLP. */
#include "model/arch/arch_rows.h"

af_status af_fill_query_scale(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->query_scale = c->query_scaling_beta;
    s->query_scale_from = c->rope.original_max_position_embeddings;
    if (s->query_scale > 0 && s->query_scale_from < 1)
        return af_fail(
            err, AF_EFORMAT,
            "llama_4_scaling_beta needs original_max_position_embeddings, which is %" PRId64,
            s->query_scale_from);
    return AF_OK;
}

af_status af_fill_layer_thetas(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    const double *theta = c->per_layer.rope_theta;
    (void)err;
    for (int i = 0; theta && i < s->layers; i++)
        s->layer[i].rope = theta[i] == 0 ? -1 : theta[i] == c->rope.theta ? 0 : 1;
    return AF_OK;
}

const af_arch af_rows_llama[] = {
    {.model_type = "llama",
     .gguf = "llama",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .gguf_permuted = true},
    {.model_type = "mistral", .gguf = "llama", .pre_norm = true, .gguf_permuted = true},
    {.model_type = "qwen2", .gguf = "qwen2", .pre_norm = true, .bias = AF_BIAS_QKV},
    {.model_type = "qwen3",
     .gguf = "qwen3",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true},
    {.model_type = "phi3",
     .gguf = "phi3",
     .pre_norm = true,
     .fused_qkv = true,
     .fused_gate_up = true},
    {.model_type = "smollm3",
     .gguf = "smollm3",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .gguf_permuted = true},
    {.model_type = "olmo2",
     .gguf = "olmo2",
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .qk_norm_row = true},
    {.model_type = "granite",
     .gguf = "granite",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .multipliers = true,
     .gguf_permuted = true},
    {.model_type = "mllama_text_model", .pre_norm = true},
    {.model_type = "ministral3",
     .gguf = "mistral3",
     .pre_norm = true,
     .gguf_permuted = true,
     .fill = af_fill_query_scale},
    {.model_type = "seed_oss",
     .gguf = "seed_oss",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .names = (const af_slot_name[]){{AF_SLOT_MLP_NORM, NULL, "post_attention_norm.weight"}, {0}}},
    {.model_type = "ernie4_5",
     .gguf = "ernie4_5",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .rope_pairs = true},
    {.model_type = "hunyuan_v1_dense",
     .gguf = "hunyuan-dense",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .qk_norm_after = true,
     .names = (const af_slot_name[]){{AF_SLOT_Q_NORM, "self_attn.query_layernorm.weight", NULL},
                                     {AF_SLOT_K_NORM, "self_attn.key_layernorm.weight", NULL},
                                     {0}}},
    {.model_type = "cwm", .pre_norm = true},
    {.model_type = "ministral", .pre_norm = true},
    {.model_type = "helium", .pre_norm = true, .bias = AF_BIAS_APART, .rope_pairs = true},
    {.model_type = "granite_swa",
     .gguf = "granite_swa",
     .gguf_permuted = true,
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .sinks = true,
     .multipliers = true,
     .fill = af_fill_layer_thetas},
    {.model_type = "internlm3",
     .gguf = "llama",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .gguf_permuted = true},
    {.model_type = "iquestcoder",
     .gguf = "llama",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .gguf_permuted = true},
    {0},
};
