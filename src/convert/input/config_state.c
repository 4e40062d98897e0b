/* config_state.c - the keys of config.json that families with state layers have. */
#include "convert/input/config_dense.h"

static void put_types(json_t *o, const af_hf_config *c, const char *other)
{
    json_t *types = json_array();
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        json_array_append_new(
            types, json_string(c->layer_types[i] == AF_LAYER_FULL ? "full_attention" : other));
    json_object_set_new(o, "layer_types", types);
}

static void put_int(json_t *o, const char *key, int64_t v)
{
    json_object_set_new(o, key, json_integer(v));
}

static void put_granite(json_t *o, const af_hf_config *c)
{
    const af_state_keys *k = &c->state;
    json_t *types = json_array();
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        json_array_append_new(
            types, json_string(c->layer_types[i] == AF_LAYER_FULL ? "attention" : "mamba"));
    json_object_set_new(o, "layer_types", types);
    put_int(o, "mamba_d_conv", k->conv_kernel);
    put_int(o, "mamba_d_state", k->key_dim);
    put_int(o, "mamba_n_groups", k->key_heads);
    put_int(o, "mamba_n_heads", k->heads);
    put_int(o, "mamba_d_head", k->head_dim);
    put_int(o, "mamba_expand", k->heads * k->head_dim / AF_MAX(c->hidden_size, 1));
    json_object_set_new(o, "mamba_conv_bias", json_boolean(k->conv_bias));
    put_int(o, "num_local_experts", c->num_experts);
    put_int(o, "shared_intermediate_size",
            c->num_experts ? c->router.shared_ffn : c->intermediate_size);
    json_object_set_new(o, "position_embedding_type", json_string(c->no_rope ? "nope" : "rope"));
}

static void put_nemotron(json_t *o, const af_hf_config *c)
{
    const af_state_keys *k = &c->state;
    char pattern[AF_CONFIG_LAYERS_MAX + 1];
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        pattern[i] = c->layer_types[i] == AF_LAYER_MAMBA     ? 'M'
                     : c->layer_types[i] == AF_LAYER_EXPERTS ? 'E'
                     : c->layer_types[i] == AF_LAYER_MLP     ? '-'
                                                             : '*';
    pattern[c->num_hidden_layers] = '\0';
    json_object_set_new(o, "hybrid_override_pattern", json_string(pattern));
    put_int(o, "conv_kernel", k->conv_kernel);
    put_int(o, "ssm_state_size", k->key_dim);
    put_int(o, "n_groups", k->key_heads);
    put_int(o, "mamba_num_heads", k->heads);
    put_int(o, "mamba_head_dim", k->head_dim);
    json_object_set_new(o, "use_conv_bias", json_boolean(k->conv_bias));
    json_object_set_new(o, "layer_norm_epsilon", json_real((double)(float)c->rms_norm_eps));
    if (!c->num_experts)
        return;
    put_int(o, "n_routed_experts", c->num_experts);
    put_int(o, "moe_shared_expert_intermediate_size", c->router.shared_ffn);
    put_int(o, "n_group", AF_MAX(c->router.groups, 1));
    put_int(o, "topk_group", AF_MAX(c->router.groups_used, 1));
    json_object_set_new(o, "routed_scaling_factor", json_real(c->router.scale));
    json_object_set_new(o, "norm_topk_prob", json_boolean(c->norm_topk_prob));
    if (c->router.latent)
        put_int(o, "moe_latent_size", c->router.latent);
}

static void put_mamba2(json_t *o, const af_hf_config *c)
{
    const af_state_keys *k = &c->state;
    put_int(o, "conv_kernel", k->conv_kernel);
    put_int(o, "state_size", k->key_dim);
    put_int(o, "n_groups", k->key_heads);
    put_int(o, "num_heads", k->heads);
    put_int(o, "head_dim", k->head_dim);
    put_int(o, "expand", k->heads * k->head_dim / AF_MAX(c->hidden_size, 1));
    json_object_set_new(o, "use_conv_bias", json_boolean(k->conv_bias));
    json_object_set_new(o, "layer_norm_epsilon", json_real((double)(float)c->rms_norm_eps));
    json_object_del(o, "num_attention_heads");
    json_object_del(o, "num_key_value_heads");
    json_object_del(o, "intermediate_size");
}

void af_config_state(json_t *o, const af_hf_config *c)
{
    const af_state_keys *k = &c->state;
    if (strncmp(c->model_type, "lfm2", 4) == 0) {
        put_types(o, c, "conv");
        put_int(o, "conv_L_cache", k->conv_kernel);
        json_object_set_new(o, "block_auto_adjust_ff_dim", json_false());
        json_object_set_new(o, "norm_eps", json_real((double)(float)c->rms_norm_eps));
    }
    if (strcmp(c->model_type, "lfm2_moe") == 0) {
        put_int(o, "num_dense_layers", c->mlp_only_count);
        json_object_set_new(o, "use_expert_bias", json_true());
    }
    if (strcmp(c->model_type, "mamba2") == 0)
        put_mamba2(o, c);
    if (strcmp(c->model_type, "nemotron_h") == 0)
        put_nemotron(o, c);
    if (strcmp(c->model_type, "granitemoehybrid") == 0)
        put_granite(o, c);
    if (strncmp(c->model_type, "qwen3_5", 7) == 0 || strcmp(c->model_type, "qwen3_next") == 0) {
        put_types(o, c, "linear_attention");
        put_int(o, "linear_conv_kernel_dim", k->conv_kernel);
        put_int(o, "linear_key_head_dim", k->key_dim);
        put_int(o, "linear_value_head_dim", k->head_dim);
        put_int(o, "linear_num_key_heads", k->key_heads);
        put_int(o, "linear_num_value_heads", k->heads);
    }
}
