/* family_experts.c - families with experts and ordinary attention. */
#include "format/config/families/families.h"

/* What every mixture has; the general reader knows the names of qwen3_moe. */
static void experts(af_config_source *s, af_hf_config *c, const char *key, int64_t count,
                    int64_t used)
{
    c->num_experts = af_config_size(s, key, count, 1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok =
        af_config_size(s, "num_experts_per_tok", used, 1, AF_CONFIG_EXPERTS_MAX);
    c->output_router_logits = af_config_bool(s, "output_router_logits", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
}

/* All layers have experts, as wide as the MLP of mistral. */
static void mixtral(af_config_source *s, af_hf_config *c)
{
    experts(s, c, af_config_value(s, "num_experts") ? "num_experts" : "num_local_experts", 8, 2);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true;
}

static void olmoe(af_config_source *s, af_hf_config *c)
{
    experts(s, c, "num_experts", 64, 8);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.01);
    if (af_config_value(s, "clip_qkv") && s->st == AF_OK)
        s->st = af_fail(s->err, AF_EUNSUPPORTED, "%s: clip_qkv is not supported", s->name);
}

static void qwen2_moe(af_config_source *s, af_hf_config *c)
{
    experts(s, c, af_config_value(s, "num_local_experts") ? "num_local_experts" : "num_experts", 60,
            4);
    c->moe_intermediate_size = af_config_int(s, "moe_intermediate_size", 1408);
    c->decoder_sparse_step = af_config_int(s, "decoder_sparse_step", 1);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", false);
    c->attention_bias = af_config_bool(s, "qkv_bias", true);
    c->router.shared_ffn =
        af_config_size(s, "shared_expert_intermediate_size", 5632, 1, AF_CONFIG_WIDTH_MAX);
    c->router.shared_gate = true;
}

const af_family af_families_experts[] = {
    {.model_type = "qwen3_moe",
     .gguf = "qwen3moe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .sliding = AF_SLIDING_SWITCHED},
    {.model_type = "qwen2_moe",
     .gguf = "qwen2moe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .sliding = AF_SLIDING_UPPER,
     .keys = qwen2_moe},
    {.model_type = "olmoe",
     .gguf = "olmoe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .keys = olmoe},
    {.model_type = "mixtral",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .kv_heads = 8,
     .sliding = AF_SLIDING_ALL,
     .keys = mixtral},
    {0},
};
