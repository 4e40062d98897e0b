/* config_experts.c - the keys of config.json that families with experts and with latent attention
 * have, from what GGUF metadata say. */
#include "convert/input/config_dense.h"

static bool is(const af_hf_config *c, const char *model_type)
{
    return strcmp(c->model_type, model_type) == 0;
}

static void put_int(json_t *o, const char *key, int64_t v)
{
    json_object_set_new(o, key, json_integer(v));
}

static int64_t shared_count(const af_hf_config *c)
{
    return c->router.shared_ffn / AF_MAX(c->moe_intermediate_size, 1);
}

/* A mixture in the words of DeepSeek. */
static void put_deepseek(json_t *o, const af_hf_config *c)
{
    const af_router_keys *r = &c->router;
    put_int(o, c->state.channels ? "num_experts" : "n_routed_experts", c->num_experts);
    put_int(o, "n_shared_experts", shared_count(c));
    put_int(o, "num_shared_experts", shared_count(c));
    put_int(o, "first_k_dense_replace", c->mlp_only_count);
    put_int(o, "n_group", AF_MAX(r->groups, 1));
    put_int(o, "topk_group", AF_MAX(r->groups_used, 1));
    json_object_set_new(o, "routed_scaling_factor", json_real(r->scale > 0 ? r->scale : 1));
    json_object_set_new(o, "scoring_func", json_string(r->sigmoid ? "sigmoid" : "softmax"));
    if (is(c, "deepseek_v2"))
        json_object_set_new(o, "topk_method",
                            json_string(r->groups > 1 ? "group_limited_greedy" : "greedy"));
    if (is(c, "glm4_moe") || is(c, "bailing_moe_v2"))
        json_object_set_new(o, "use_qk_norm", json_boolean(c->qk_norm));
    if (strncmp(c->model_type, "bailing_moe", 11) == 0) {
        json_object_set_new(o, "use_qkv_bias", json_boolean(c->attention_bias));
        json_object_set_new(o, "use_bias", json_boolean(c->attention_out_bias));
    }
}

static void put_latent(json_t *o, const af_hf_config *c)
{
    const af_latent_keys *l = &c->latent;
    json_object_set_new(o, "q_lora_rank",
                        l->q_lora_rank ? json_integer(l->q_lora_rank) : json_null());
    put_int(o, "kv_lora_rank", l->kv_lora_rank);
    put_int(o, "qk_nope_head_dim", l->qk_nope_dim);
    put_int(o, "qk_rope_head_dim", l->qk_rope_dim);
    put_int(o, "v_head_dim", l->v_dim);
    json_object_set_new(o, "rope_interleave", json_boolean(!l->rope_halves));
}

static void put_afmoe(json_t *o, const af_hf_config *c)
{
    put_int(o, "num_shared_experts", shared_count(c));
    put_int(o, "num_dense_layers", c->mlp_only_count);
    put_int(o, "global_attn_every_n_layers", c->sliding_window_pattern);
    json_object_set_new(o, "route_scale", json_real(c->router.scale > 0 ? c->router.scale : 1));
    json_object_set_new(o, "mup_enabled", json_true());
}

static void put_ernie(json_t *o, const af_hf_config *c)
{
    put_int(o, "moe_num_experts", c->num_experts);
    put_int(o, "moe_k", c->num_experts_per_tok);
    put_int(o, "moe_num_shared_experts", shared_count(c));
    put_int(o, "moe_layer_start_index", c->mlp_only_count);
    put_int(o, "moe_layer_end_index", c->num_hidden_layers - 1);
    put_int(o, "moe_layer_interval", 1);
}

static void put_mlp_types(json_t *o, const af_hf_config *c)
{
    json_t *types = json_array();
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        bool dense = false;
        for (int k = 0; k < c->mlp_only_count; k++)
            dense |= c->mlp_only_layers[k] == i;
        json_array_append_new(types, json_string(dense ? "dense" : "sparse"));
    }
    json_object_set_new(o, "mlp_layer_types", types);
}

static void put_laguna(json_t *o, const af_hf_config *c)
{
    json_t *types = json_array(), *heads = json_array();
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        json_array_append_new(types, json_string(c->layer_types[i] == AF_LAYER_SLIDING
                                                     ? "sliding_attention"
                                                     : "full_attention"));
        json_array_append_new(
            heads, json_integer(c->layer_heads ? c->layer_heads[i] : c->num_attention_heads));
    }
    json_object_set_new(o, "layer_types", types);
    json_object_set_new(o, "num_attention_heads_per_layer", heads);
    put_mlp_types(o, c);
    json_object_set_new(o, "gating", json_string(c->attn_gate_heads ? "per-head" : "per-element"));
    json_object_set_new(o, "moe_routed_scaling_factor",
                        json_real(c->router.scale > 0 ? c->router.scale : 1));
}

static void put_hy_v3(json_t *o, const af_hf_config *c)
{
    put_mlp_types(o, c);
    put_int(o, "num_shared_experts", shared_count(c));
    json_object_set_new(o, "router_scaling_factor", json_real(c->router.scale));
}

static void put_mimo(json_t *o, const af_hf_config *c)
{
    put_deepseek(o, c);
    put_mlp_types(o, c);
    put_int(o, "v_head_dim", c->latent.v_dim);
    json_object_set_new(o, "attention_value_scale", json_real(c->value_scale));
}

/* Its kinds of layers are those it has without a list. */
static void put_llama4(json_t *o, const af_hf_config *c)
{
    json_object_del(o, "layer_types");
    json_object_del(o, "sliding_window");
    put_int(o, "num_local_experts", c->num_experts);
    put_int(o, "intermediate_size_mlp", c->dense_ffn);
    put_int(o, "interleave_moe_layer_step", c->decoder_sparse_step);
    put_int(o, "attention_chunk_size", c->sliding_window ? c->sliding_window : 8192);
    put_int(o, "floor_scale", c->query_scaling_length);
    json_object_set_new(o, "use_qk_norm", json_boolean(c->qk_norm));
}

static void put_cohere2_moe(json_t *o, const af_hf_config *c)
{
    put_int(o, "first_k_dense_replace", c->mlp_only_count);
    put_int(o, "prefix_dense_intermediate_size", c->dense_ffn);
    put_int(o, "prefix_dense_sliding_window_pattern", 1);
    put_int(o, "num_shared_experts", shared_count(c));
    json_object_set_new(o, "shared_expert_combination_strategy", json_string("average"));
    json_object_set_new(o, "expert_selection_fn",
                        json_string(c->router.sigmoid ? "sigmoid" : "softmax"));
    json_object_set_new(o, "logit_scale", json_real(c->logit_scale));
    if (!c->rms_norm) {
        json_object_set(o, "layer_norm_eps", json_object_get(o, "rms_norm_eps"));
        json_object_del(o, "rms_norm_eps");
    }
}

void af_config_experts(json_t *o, const af_hf_config *c)
{
    static const char *const deepseek[] = {"deepseek_v2",    "deepseek_v3", "glm4_moe",
                                           "mistral4",       "dots1",       "exaone_moe",
                                           "solar_open",     "deepseek",    "bailing_moe",
                                           "bailing_moe_v2", "kimi_linear", "bailing_hybrid"};
    for (size_t i = 0; i < AF_LEN(deepseek); i++)
        if (is(c, deepseek[i]))
            put_deepseek(o, c);
    if (c->latent.kv_lora_rank)
        put_latent(o, c);
    if (strncmp(c->model_type, "granitemoe", 10) == 0 || is(c, "minimax_m2") || is(c, "gpt_oss"))
        put_int(o, "num_local_experts", c->num_experts);
    if (strncmp(c->model_type, "granite", 7) == 0) {
        json_object_set_new(o, "embedding_multiplier", json_real(c->embedding_multiplier));
        json_object_set_new(o, "residual_multiplier", json_real(c->residual_multiplier));
        json_object_set_new(o, "logits_scaling", json_real(c->logits_scaling));
        json_object_set_new(o, "attention_multiplier", json_real(c->attention_multiplier));
    }
    if (is(c, "granite_swa") || is(c, "granitemoe_swa")) {
        json_t *theta = json_array();
        for (int64_t i = 0; i < c->num_hidden_layers; i++)
            json_array_append_new(
                theta,
                json_real(c->per_layer.rope_theta ? c->per_layer.rope_theta[i] : c->rope.theta));
        json_object_set_new(o, "layer_rope_theta", theta);
    }
    if (is(c, "granitemoeshared") || is(c, "granitemoe_swa"))
        put_int(o, "shared_intermediate_size", c->router.shared_ffn);
    if (is(c, "hunyuan_v1_moe"))
        put_int(o, "moe_topk", c->num_experts_per_tok);
    if (is(c, "afmoe"))
        put_afmoe(o, c);
    if (is(c, "ernie4_5_moe"))
        put_ernie(o, c);
    if (is(c, "hy_v3"))
        put_hy_v3(o, c);
    if (is(c, "laguna"))
        put_laguna(o, c);
    if (is(c, "mimo_v2_flash"))
        put_mimo(o, c);
    if (is(c, "cohere2_moe"))
        put_cohere2_moe(o, c);
    if (is(c, "llama4_text"))
        put_llama4(o, c);
}
