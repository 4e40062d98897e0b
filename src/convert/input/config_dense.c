/* config_dense.c - see config_dense.h. */
#include "convert/input/config_dense.h"

#include <math.h>

static bool is(const af_hf_config *c, const char *model_type)
{
    return strcmp(c->model_type, model_type) == 0;
}

/* GGUF keeps f32: the short decimal that gives the same f32 is what the config had. */
static json_t *short_real(double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", v);
    return json_real(strtod(text, NULL));
}

static void put_falcon(json_t *o, const af_hf_config *c)
{
    json_object_set_new(o, "new_decoder_architecture", json_true());
    json_object_set_new(o, "num_ln_in_parallel_attn", json_integer(c->two_norms ? 2 : 1));
    json_object_set_new(o, "num_kv_heads", json_integer(c->num_key_value_heads));
    json_object_set_new(o, "ffn_hidden_size", json_integer(c->intermediate_size));
    json_object_set_new(o, "layer_norm_epsilon", short_real(c->rms_norm_eps));
    json_object_set_new(o, "bias", json_boolean(c->attention_bias));
}

/* The names gpt2 has for what others have, too. */
static void put_gpt(json_t *o, const af_hf_config *c)
{
    const struct {
        const char *usual, *own;
        int64_t value;
    } keys[] = {{"hidden_size", "n_embd", c->hidden_size},
                {"num_hidden_layers", "n_layer", c->num_hidden_layers},
                {"num_attention_heads", "n_head", c->num_attention_heads},
                {"max_position_embeddings", "n_positions", c->max_position_embeddings},
                {"intermediate_size", "n_inner", c->intermediate_size}};
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        json_object_del(o, keys[i].usual);
        json_object_set_new(o, keys[i].own, json_integer(keys[i].value));
    }
    json_object_set_new(o, "activation_function", json_string(c->hidden_act));
    json_object_set_new(o, "layer_norm_epsilon", short_real(c->rms_norm_eps));
    if (is(c, "gpt_bigcode"))
        json_object_set_new(o, "multi_query", json_boolean(c->num_key_value_heads == 1));
}

/* Keys of attention, and of experts, are in objects of their own. */
static void put_mosaic(json_t *o, const af_hf_config *c)
{
    json_t *own = json_object(), *ffn = is(c, "dbrx") ? json_object() : NULL;
    if (!ffn) {
        json_object_set_new(own, "alibi", json_true());
        const bool whole = c->alibi == floor(c->alibi);
        json_object_set_new(own, "alibi_bias_max",
                            whole ? json_integer((json_int_t)c->alibi) : short_real(c->alibi));
    } else {
        json_object_set_new(own, "kv_n_heads", json_integer(c->num_key_value_heads));
        json_object_set_new(own, "rope_theta", short_real(c->rope.theta)); /* asked for, too */
        json_object_set_new(ffn, "ffn_hidden_size", json_integer(c->moe_intermediate_size));
        json_object_set_new(ffn, "moe_num_experts", json_integer(c->num_experts));
        json_object_set_new(ffn, "moe_top_k", json_integer(c->num_experts_per_tok));
        json_object_set_new(o, "ffn_config", ffn);
    }
    if (c->qkv_clip > 0)
        json_object_set_new(own, "clip_qkv", short_real(c->qkv_clip));
    json_object_set_new(o, "attn_config", own);
    json_object_set_new(o, "max_seq_len", json_integer(c->max_position_embeddings));
}

/* muP in its own words. */
static void put_minicpm(json_t *o, const af_hf_config *c)
{
    const double depth = sqrt((double)c->num_hidden_layers);
    json_object_set_new(o, "scale_emb", short_real(c->embedding_multiplier));
    json_object_set_new(o, "scale_depth", short_real(c->residual_multiplier * depth));
    json_object_set_new(o, "dim_model_base",
                        json_integer(llround((double)c->hidden_size / c->logits_scaling)));
}

static void put_exaone(json_t *o, const af_hf_config *c)
{
    json_object_del(o, "num_hidden_layers");
    json_object_set_new(o, "num_layers", json_integer(c->num_hidden_layers));
    json_object_set_new(o, "activation_function", json_string(c->hidden_act));
    json_object_set_new(o, "layer_norm_epsilon", short_real(c->rms_norm_eps));
}

/* Next to rope_scaling its own words count alone. */
static void put_gpt_neox(json_t *o, const af_hf_config *c)
{
    json_object_set_new(o, "use_parallel_residual", json_boolean(c->use_parallel_residual));
    json_object_set_new(o, "rotary_emb_base", short_real(c->rope.theta));
    json_object_set_new(o, "rotary_pct", json_real(c->rope.partial_rotary_factor));
}

void af_config_dense(json_t *o, const af_hf_config *c)
{
    if (is(c, "gpt2") || is(c, "gpt_bigcode"))
        put_gpt(o, c);
    if (is(c, "minicpm") || is(c, "minicpm3"))
        put_minicpm(o, c);
    if (is(c, "exaone"))
        put_exaone(o, c);
    if (is(c, "baichuan"))
        json_object_set_new(o, "model_max_length", json_integer(c->max_position_embeddings));
    if (is(c, "baichuan") && c->alibi > 0)
        json_object_del(o, "max_position_embeddings");
    if (is(c, "internlm2"))
        json_object_set_new(o, "bias", json_boolean(c->attention_bias));
    if (is(c, "falcon"))
        put_falcon(o, c);
    if (is(c, "mpt") || is(c, "dbrx"))
        put_mosaic(o, c);
    if (is(c, "bloom") || is(c, "mpt"))
        json_object_set_new(o, "layer_norm_epsilon", short_real(c->rms_norm_eps));
    const bool cohere = is(c, "cohere") || is(c, "cohere2");
    if (cohere || is(c, "stablelm") || is(c, "phi") || is(c, "jais2") || is(c, "gpt_neox"))
        json_object_set_new(o, "layer_norm_eps", short_real(c->rms_norm_eps));
    if (is(c, "starcoder2"))
        json_object_set_new(o, "norm_epsilon", short_real(c->rms_norm_eps));
    if (is(c, "nemotron"))
        json_object_set_new(o, "norm_eps", short_real(c->rms_norm_eps));
    if (is(c, "starcoder2") || is(c, "ernie4_5"))
        json_object_set_new(o, "use_bias", json_boolean(c->attention_bias));
    if (is(c, "seed_oss"))
        json_object_set_new(o, "attention_out_bias", json_boolean(c->attention_out_bias));
    if (c->qkv_clip > 0 && !is(c, "mpt") && !is(c, "dbrx"))
        json_object_set_new(o, "clip_qkv", short_real(c->qkv_clip));
    if (cohere)
        json_object_set_new(o, "logit_scale", short_real(c->logit_scale));
    if (is(c, "gpt_neox"))
        put_gpt_neox(o, c);
    if (is(c, "phi3") && c->rope.original_max_position_embeddings)
        json_object_set_new(o, "original_max_position_embeddings",
                            json_integer(c->rope.original_max_position_embeddings));
    if (is(c, "stablelm")) {
        json_object_set_new(o, "use_qkv_bias", json_boolean(c->attention_bias));
        json_object_set_new(o, "use_parallel_residual", json_boolean(c->use_parallel_residual));
        json_object_set_new(o, "qk_layernorm", json_boolean(c->qk_norm));
    }
    static const char *const sets[] = {"rope_parameters", "rope_scaling"}; /* the last one counts */
    for (size_t i = 0; i < AF_LEN(sets); i++)
        if (c->query_scaling_beta > 0 && !is(c, "llama4_text") && json_object_get(o, sets[i]))
            json_object_set_new(json_object_get(o, sets[i]), "llama_4_scaling_beta",
                                short_real(c->query_scaling_beta));
}
