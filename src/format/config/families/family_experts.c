/* family_experts.c - families with experts and ordinary attention. */
#include "format/config/families/families.h"

static void mixtral_keys(af_config_source *s, af_hf_config *c)
{
    c->num_experts = af_config_int(s, "num_local_experts", 8);
    c->num_experts_per_tok = af_config_int(s, "num_experts_per_tok", 2);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true;
    c->output_router_logits = af_config_bool(s, "output_router_logits", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
}

/* The expert that sees every token has a gate of its own. */
static void qwen2_moe_keys(af_config_source *s, af_hf_config *c)
{
    c->num_experts = af_config_int(s, "num_local_experts", af_config_int(s, "num_experts", 60));
    c->num_experts_per_tok = af_config_int(s, "num_experts_per_tok", 4);
    c->moe_intermediate_size = af_config_int(s, "moe_intermediate_size", 1408);
    c->decoder_sparse_step = af_config_int(s, "decoder_sparse_step", 1);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
    c->router.shared_ffn =
        af_config_size(s, "shared_expert_intermediate_size", 5632, 1, AF_CONFIG_WIDTH_MAX);
    c->router.shared_gate = true;
    c->attention_bias = af_config_bool(s, "qkv_bias", true);
    c->attention_out_bias = false;
}

const af_family af_families_experts[] = {
    {.model_type = "qwen3_moe",
     .gguf = "qwen3moe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .sliding = AF_SLIDING_SWITCHED},
    {.model_type = "mixtral",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .kv_heads = 8,
     .sliding = AF_SLIDING_ALL,
     .keys = mixtral_keys},
    {.model_type = "qwen2_moe",
     .gguf = "qwen2moe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .kv_heads = 16,
     .sliding = AF_SLIDING_UPPER,
     .keys = qwen2_moe_keys},
    {0},
};
