/* family_remote.c - families whose code lies in their own repositories, not in transformers. */
#include "format/config/families/families.h"

#include "base/log.h"

#include <math.h>

/* One switch for q, k, v and o; the MLP has no biases. */
static void internlm2_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = c->attention_out_bias = af_config_bool(s, "bias", true);
    c->mlp_bias = false;
}

static void internlm2_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    (void)g, (void)arch;
    c->attention_bias = c->attention_out_bias = c->mlp_bias = false;
}

static void minicpm_keys(af_config_source *s, af_hf_config *c)
{
    if (af_config_int(s, "num_experts", 0) != 0)
        af_config_wrong(s, "num_experts", "0: mixtures of this family are not supported");
    if (af_config_value(s, "sparse_config"))
        af_log_write(AF_LOG_WARN,
                     "%s: sparse_config: every token sees all before it here, as the model's own "
                     "code has it up to dense_len tokens",
                     s->name);
    c->attention_multiplier = 0; /* 1 / sqrt(head_dim) */
    af_config_minicpm_scales(s, c, 1, 1, 1);
}

/* Older files have none of the keys: numbers of llama.cpp itself. */
static void minicpm_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    const double depth = sqrt((double)AF_MAX(c->num_hidden_layers, 1));
    c->embedding_multiplier = af_family_gguf_num(g, arch, "embedding_scale", 12);
    c->residual_multiplier = af_family_gguf_num(g, arch, "residual_scale", 1.4 / depth);
    c->logits_scaling = af_family_gguf_num(g, arch, "logit_scale", (double)c->hidden_size / 256);
}

static void exaone_keys(af_config_source *s, af_hf_config *c)
{
    c->hidden_act = af_config_str(s, &c->arena, "activation_function", c->hidden_act);
    if (!af_config_value(s, "intermediate_size"))
        c->intermediate_size = 4 * af_config_width(c);
    c->mlp_bias = false;
}

const af_family af_families_remote[] = {
    {.model_type = "internlm2",
     .gguf = "internlm2",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .pad = 1,
     .keys = internlm2_keys,
     .gguf_keys = internlm2_gguf},
    {.model_type = "minicpm",
     .gguf = "minicpm",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .tied = true,
     .own_experts = true,
     .keys = minicpm_keys,
     .gguf_keys = minicpm_gguf},
    {.model_type = "exaone",
     .gguf = "exaone",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 2048,
     .tied = true,
     .words = {NULL, "num_layers"},
     .keys = exaone_keys},
    {.model_type = "orion", .gguf = "orion", .act = "silu", .eps = 1e-5, .theta = 1e4, .pad = 1},
    {.model_type = "xverse", .gguf = "xverse", .act = "silu", .eps = 1e-6, .theta = 1e4},
    {.model_type = "mimo", .act = "silu", .eps = 1e-6, .theta = 1e4, .sliding = AF_SLIDING_UPPER},
    {0},
};
