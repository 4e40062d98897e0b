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

/* Sizes in the words of granitemoehybrid and bamba. */
static void put_heads(json_t *o, const af_hf_config *c)
{
    const af_state_keys *k = &c->state;
    put_int(o, "mamba_d_conv", k->conv_kernel);
    put_int(o, "mamba_d_state", k->key_dim);
    put_int(o, "mamba_n_groups", k->key_heads);
    put_int(o, "mamba_n_heads", k->heads);
    put_int(o, "mamba_d_head", k->head_dim);
    put_int(o, "mamba_expand", k->heads * k->head_dim / AF_MAX(c->hidden_size, 1));
    json_object_set_new(o, "mamba_conv_bias", json_boolean(k->conv_bias));
}

static void put_bamba(json_t *o, const af_hf_config *c)
{
    json_t *full = json_array();
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        if (c->layer_types[i] == AF_LAYER_FULL)
            json_array_append_new(full, json_integer(i));
    json_object_set_new(o, "attn_layer_indices", full);
    put_heads(o, c);
    json_object_set_new(o, "attention_bias", json_boolean(c->attention_bias));
    json_object_set_new(o, "mlp_bias", json_boolean(c->mlp_bias));
}

static void put_falcon_h1(json_t *o, const af_hf_config *c)
{
    const af_mup_keys *m = &c->mup;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"attention_in_multiplier", m->attn_in},
                   {"attention_out_multiplier", m->attn_out},
                   {"key_multiplier", m->key},
                   {"ssm_in_multiplier", m->ssm_in},
                   {"ssm_out_multiplier", m->ssm_out},
                   {"lm_head_multiplier", m->head},
                   {"embedding_multiplier", c->embedding_multiplier}};
    json_t *parts = json_array();
    put_heads(o, c);
    put_int(o, "mamba_expand", 2); /* not used: mamba_d_ssm is */
    put_int(o, "mamba_d_ssm", c->state.heads * c->state.head_dim);
    for (size_t i = 0; i < AF_LEN(numbers); i++)
        json_object_set_new(o, numbers[i].key, json_real(numbers[i].value));
    for (int i = 0; i < AF_MUP_PARTS; i++)
        json_array_append_new(parts, json_real(m->ssm[i]));
    json_object_set_new(o, "ssm_multipliers", parts);
    json_object_set_new(o, "mlp_multipliers", json_pack("[ff]", m->gate, m->down));
    json_object_set_new(o, "mamba_rms_norm", json_boolean(!c->state.no_norm));
    json_object_set_new(o, "mamba_norm_before_gate", json_false());
    json_object_set_new(o, "attention_bias", json_boolean(c->attention_bias));
    json_object_set_new(o, "mlp_bias", json_boolean(c->mlp_bias));
}

static void put_granite(json_t *o, const af_hf_config *c)
{
    json_t *types = json_array();
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        json_array_append_new(
            types, json_string(c->layer_types[i] == AF_LAYER_FULL ? "attention" : "mamba"));
    json_object_set_new(o, "layer_types", types);
    put_heads(o, c);
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

/* Mamba layers alone. */
static void put_bare(json_t *o, const af_hf_config *c)
{
    const af_state_keys *k = &c->state;
    put_int(o, "conv_kernel", k->conv_kernel);
    put_int(o, "state_size", k->key_dim);
    put_int(o, "expand", k->heads * k->head_dim / AF_MAX(c->hidden_size, 1));
    if (k->inner) {
        put_int(o, "time_step_rank", k->step_rank);
        json_object_del(o, "head_dim");
    } else {
        put_int(o, "n_groups", k->key_heads);
        put_int(o, "num_heads", k->heads);
        put_int(o, "head_dim", k->head_dim);
    }
    if (k->step_eps > 0)
        json_object_set_new(o, "mixer_rms_eps", json_real(k->step_eps));
    json_object_set_new(o, "use_conv_bias", json_boolean(k->conv_bias));
    json_object_set_new(o, "layer_norm_epsilon", json_real((double)(float)c->rms_norm_eps));
    json_object_del(o, "num_attention_heads");
    json_object_del(o, "num_key_value_heads");
    json_object_del(o, "intermediate_size");
}

/* Every so many layers, from which on: those of a list of which `has` says whether they are of the
 * kind. Without any, one after the last. */
static void put_period(json_t *o, const af_hf_config *c, const char *period, const char *offset,
                       bool (*has)(const af_hf_config *, int64_t))
{
    const int64_t n = c->num_hidden_layers;
    int64_t first = 0, next;
    while (first < n && !has(c, first))
        first++;
    next = first + 1;
    while (next < n && !has(c, next))
        next++;
    put_int(o, period, next < n ? next - first : AF_MAX(n, first + 1));
    put_int(o, offset, first);
}

static bool attends(const af_hf_config *c, int64_t i) { return c->layer_types[i] == AF_LAYER_FULL; }

static bool has_experts(const af_hf_config *c, int64_t i)
{
    for (int k = 0; k < c->mlp_only_count; k++)
        if (c->mlp_only_layers[k] == i)
            return false;
    return true;
}

static void put_jamba(json_t *o, const af_hf_config *c)
{
    const af_state_keys *k = &c->state;
    put_int(o, "mamba_d_conv", k->conv_kernel);
    put_int(o, "mamba_d_state", k->key_dim);
    put_int(o, "mamba_dt_rank", k->step_rank);
    put_int(o, "mamba_expand", k->inner / AF_MAX(c->hidden_size, 1));
    json_object_set_new(o, "mamba_conv_bias", json_boolean(k->conv_bias));
    json_object_set_new(o, "mamba_proj_bias", json_false());
    put_int(o, "num_experts", c->num_experts);
    put_int(o, "num_experts_per_tok", c->num_experts_per_tok);
    put_period(o, c, "attn_layer_period", "attn_layer_offset", attends);
    put_period(o, c, "expert_layer_period", "expert_layer_offset", has_experts);
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
    if (strncmp(c->model_type, "mamba", 5) == 0 || strcmp(c->model_type, "falcon_mamba") == 0)
        put_bare(o, c);
    if (strcmp(c->model_type, "bamba") == 0)
        put_bamba(o, c);
    if (strcmp(c->model_type, "falcon_h1") == 0)
        put_falcon_h1(o, c);
    if (strcmp(c->model_type, "jamba") == 0)
        put_jamba(o, c);
    if (strcmp(c->model_type, "nemotron_h") == 0)
        put_nemotron(o, c);
    if (strcmp(c->model_type, "granitemoehybrid") == 0)
        put_granite(o, c);
    if (k->channels) {
        put_types(o, c, "linear_attention");
        put_int(o, "linear_conv_kernel_dim", k->conv_kernel);
        put_int(o, "linear_head_dim", k->head_dim);
        put_int(o, "linear_num_heads", k->heads);
    }
    if (k->decay_bound != 0)
        json_object_set_new(o, "kda_lower_bound", json_real(k->decay_bound));
    if (strncmp(c->model_type, "qwen3_5", 7) == 0 || strcmp(c->model_type, "qwen3_next") == 0) {
        put_types(o, c, "linear_attention");
        put_int(o, "linear_conv_kernel_dim", k->conv_kernel);
        put_int(o, "linear_key_head_dim", k->key_dim);
        put_int(o, "linear_value_head_dim", k->head_dim);
        put_int(o, "linear_num_key_heads", k->key_heads);
        put_int(o, "linear_num_value_heads", k->heads);
    }
}
