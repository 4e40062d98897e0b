/* family_older.c - families from before llama: LayerNorms, MLPs without a gate, and names of their
 * own. */
#include "format/config/families/families.h"

#include <jansson.h>

static void gpt_neox_keys(af_config_source *s, af_hf_config *c)
{
    const json_t *rope = af_config_value(s, "rope_parameters");
    c->attention_bias = c->attention_out_bias = af_config_bool(s, "attention_bias", true);
    c->use_parallel_residual = af_config_bool(s, "use_parallel_residual", true);
    c->num_key_value_heads = c->num_attention_heads;
    if (!rope) { /* its old spelling */
        c->rope.partial_rotary_factor =
            af_config_num(s, "rotary_pct", c->rope.partial_rotary_factor);
        c->rope.theta = af_config_num(s, "rotary_emb_base", c->rope.theta);
    }
}

static void gpt_neox_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    char key[128];
    snprintf(key, sizeof key, "%.60s.use_parallel_residual", arch);
    c->use_parallel_residual = af_gguf_bool(g, key, true);
    c->attention_bias = c->attention_out_bias = af_gguf_find(g, "blk.0.attn_qkv.bias") != NULL;
}

/* Heads that share keys and values: as many as it says in newer models, all or none in others. */
static void falcon_keys(af_config_source *s, af_hf_config *c)
{
    const bool newer = af_config_bool(s, "new_decoder_architecture", false);
    const bool one = af_config_bool(s, "multi_query", true);
    const int64_t norms = af_config_size(s, "num_ln_in_parallel_attn", newer ? 2 : 1, 1, 2);
    c->num_key_value_heads =
        newer ? af_config_size(s, "num_kv_heads", c->num_attention_heads, 1, AF_CONFIG_HEADS_MAX)
        : one ? 1
              : c->num_attention_heads;
    c->intermediate_size = AF_MIN(c->hidden_size, (int64_t)AF_CONFIG_WIDTH_MAX) * 4;
    c->intermediate_size =
        af_config_size(s, "ffn_hidden_size", c->intermediate_size, 1, AF_CONFIG_WIDTH_MAX);
    c->attention_bias = c->attention_out_bias = c->mlp_bias = af_config_bool(s, "bias", false);
    c->use_parallel_residual = newer || af_config_bool(s, "parallel_attn", true);
    c->two_norms = newer && norms == 2;
    c->hidden_act = af_config_str(s, &c->arena, "activation", "gelu");
    if (af_config_bool(s, "alibi", false) && s->st == AF_OK)
        s->st =
            af_fail(s->err, AF_EUNSUPPORTED, "%s: alibi is true, which is not supported", s->name);
    if (newer && !af_config_bool(s, "parallel_attn", true) && s->st == AF_OK)
        s->st =
            af_fail(s->err, AF_EUNSUPPORTED,
                    "%s: new_decoder_architecture without parallel_attn is not supported", s->name);
    if (!newer && norms == 2 && s->st == AF_OK)
        s->st = af_fail(s->err, AF_EUNSUPPORTED,
                        "%s: num_ln_in_parallel_attn 2 without new_decoder_architecture is not "
                        "supported",
                        s->name);
}

static void falcon_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    (void)arch;
    c->use_parallel_residual = true;
    c->two_norms = af_gguf_find(g, "blk.0.attn_norm_2.weight") != NULL;
}

const af_family af_families_older[] = {
    {.model_type = "gpt_neox",
     .gguf = "gptneox",
     .act = "gelu",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 0.25,
     .keys = gpt_neox_keys,
     .gguf_keys = gpt_neox_gguf},
    {.model_type = "falcon",
     .gguf = "falcon",
     .act = "gelu",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 4544,
     .tied = true,
     .keys = falcon_keys,
     .gguf_keys = falcon_gguf},
    {0},
};
