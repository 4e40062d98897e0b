/* config_gemma4.c - the keys of config.json that gemma4 and gemma3n have; see config_dense.h. */
#include "convert/input/config_dense.h"

static void put_gemma3n(json_t *o, const af_hf_config *c)
{
    const af_layer_keys *k = &c->per_layer;
    const struct {
        const char *key;
        int64_t v;
    } ints[] = {
        {"altup_num_inputs", c->altup.streams},    {"altup_active_idx", c->altup.active},
        {"laurel_rank", c->altup.laurel},          {"num_kv_shared_layers", k->kv_shared},
        {"hidden_size_per_layer_input", k->input}, {"vocab_size_per_layer_input", k->input_vocab}};
    json_t *share = json_array();
    for (size_t i = 0; i < AF_LEN(ints); i++)
        json_object_set_new(o, ints[i].key, json_integer(ints[i].v));
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        json_array_append_new(share, json_real(k->sparsity[i]));
    json_object_set_new(o, "activation_sparsity_pattern", share);
    json_object_set_new(o, "altup_correct_scale", json_boolean(c->altup.scaled));
}

void af_config_gemma4(json_t *o, const af_hf_config *c)
{
    const af_layer_keys *k = &c->per_layer;
    if (strcmp(c->model_type, "gemma3n_text") == 0)
        put_gemma3n(o, c);
    if (strcmp(c->model_type, "gemma4_text") != 0)
        return;
    const struct {
        const char *key;
        int64_t v;
    } ints[] = {{"global_head_dim", k->full_head_dim},
                {"num_global_key_value_heads", k->full_kv_heads},
                {"num_kv_shared_layers", k->kv_shared},
                {"hidden_size_per_layer_input", k->input},
                {"vocab_size_per_layer_input", k->input_vocab}};
    for (size_t i = 0; i < AF_LEN(ints); i++)
        json_object_set_new(o, ints[i].key, json_integer(ints[i].v));
    json_object_set_new(o, "attention_k_eq_v", json_boolean(k->k_is_v));
    json_object_set_new(o, "use_double_wide_mlp", json_boolean(k->double_wide));
    json_object_set_new(o, "enable_moe_block", json_boolean(k->experts));
    if (k->experts)
        json_object_set_new(o, "top_k_experts", json_integer(c->num_experts_per_tok));
}
