/* family_llama.c - families of llama's blocks. */
#include "format/config/families/families.h"

#include <jansson.h>
#include <math.h>

/* Queries grow with the position: 1 + beta ln(1 + floor(position / original length)). */
static void ministral3_keys(af_config_source *s, af_hf_config *c)
{
    const json_t *rope = af_config_value(s, "rope_parameters");
    rope = rope ? rope : af_config_value(s, "rope_scaling");
    af_config_source in = {rope ? rope : s->obj, s->name, s->err, s->st};
    c->query_scaling_beta = af_config_num(&in, "llama_4_scaling_beta", 0);
    if (in.st == AF_OK && !(c->query_scaling_beta >= 0 && c->query_scaling_beta < 1e6))
        af_config_wrong(&in, "llama_4_scaling_beta", "a positive number in range");
    s->st = in.st;
}

static void ministral3_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    c->query_scaling_beta = af_family_gguf_num(g, arch, "attention.temperature_scale", 0);
}

static void seed_oss_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = af_config_bool(s, "attention_bias", true);
    c->attention_out_bias = af_config_bool(s, "attention_out_bias", false);
}

static void all_biases_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = c->attention_out_bias = c->mlp_bias = af_config_bool(s, "use_bias", false);
}

/* "dynamic" with a fixed alpha stretches the base once, whatever the length. */
static void hunyuan_keys(af_config_source *s, af_hf_config *c)
{
    const json_t *rope = af_config_value(s, "rope_parameters");
    rope = rope ? rope : af_config_value(s, "rope_scaling");
    af_config_source in = {rope, s->name, s->err, s->st};
    const double alpha = rope ? af_config_num(&in, "alpha", 0) : 0;
    const int64_t heads = c->num_attention_heads;
    const double dim = (double)(c->head_dim ? c->head_dim : heads > 0 ? c->hidden_size / heads : 0);
    s->st = in.st;
    if (c->rope.type != AF_ROPE_DYNAMIC || alpha == 0)
        return;
    if (!(alpha > 0 && alpha < 1e9) || dim < 3)
        af_config_wrong(s, "alpha of the rope scaling", "a positive number in range");
    else
        c->rope.theta *= pow(alpha, dim / (dim - 2));
    c->rope.type = AF_ROPE_DEFAULT;
    c->rope.factor = 1;
}

const af_family af_families_llama[] = {
    {.model_type = "llama", .gguf = "llama", .act = "silu", .eps = 1e-6, .theta = 1e4},
    {.model_type = "mistral",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .window = 4096,
     .sliding = AF_SLIDING_ALL},
    {.model_type = "qwen2",
     .gguf = "qwen2",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .sliding = AF_SLIDING_UPPER},
    {.model_type = "qwen3",
     .gguf = "qwen3",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .head_dim = 128,
     .sliding = AF_SLIDING_UPPER},
    {.model_type = "phi3",
     .gguf = "phi3",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 1,
     .sliding = AF_SLIDING_ALL,
     .pad = 32001},
    {.model_type = "smollm3",
     .gguf = "smollm3",
     .act = "silu",
     .eps = 1e-6,
     .theta = 2e6,
     .kv_heads = 4,
     .sliding = AF_SLIDING_ROPELESS,
     .tied = true,
     .pad = 128005},
    {.model_type = "olmo2", .gguf = "olmo2", .act = "silu", .eps = 1e-5, .theta = 1e4, .pad = 2},
    {.model_type = "granite", .gguf = "granite", .act = "silu", .eps = 1e-6, .theta = 1e4},
    {.model_type = "qwen2_vl_text",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .sliding = AF_SLIDING_UPPER},
    {.model_type = "qwen2_5_vl_text",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .sliding = AF_SLIDING_UPPER},
    {.model_type = "qwen2_vl",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .sliding = AF_SLIDING_UPPER},
    {.model_type = "qwen2_5_vl",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .sliding = AF_SLIDING_UPPER},
    {.model_type = "qwen3_vl_text", .act = "silu", .eps = 1e-6, .theta = 5e5, .head_dim = 128},
    {.model_type = "ministral3",
     .gguf = "mistral3",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .kv_heads = 8,
     .head_dim = 128,
     .sliding = AF_SLIDING_ALL,
     .pad = 12,
     .keys = ministral3_keys,
     .gguf_keys = ministral3_gguf},
    {.model_type = "seed_oss",
     .gguf = "seed_oss",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .kv_heads = 8,
     .head_dim = 128,
     .pad = 2,
     .keys = seed_oss_keys},
    {.model_type = "ernie4_5",
     .gguf = "ernie4_5",
     .act = "silu",
     .eps = 1e-5,
     .theta = 5e5,
     .kv_heads = 2,
     .head_dim = 128,
     .tied = true,
     .pad = 1,
     .keys = all_biases_keys},
    {.model_type = "hunyuan_v1_dense",
     .gguf = "hunyuan-dense",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .pad = 1,
     .keys = hunyuan_keys},
    {0},
};
