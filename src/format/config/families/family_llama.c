/* family_llama.c - families of llama's blocks. */
#include "format/config/families/families.h"

#include <jansson.h>
#include <math.h>

void af_config_query_scaling(af_config_source *s, af_hf_config *c)
{
    const json_t *rope = af_config_ropes(s);
    af_config_source in = af_config_inner(s, rope ? rope : s->obj);
    c->query_scaling_beta = af_config_num(&in, "llama_4_scaling_beta", 0);
    if (in.st == AF_OK && !(c->query_scaling_beta >= 0 && c->query_scaling_beta < 1e6))
        af_config_wrong(&in, "llama_4_scaling_beta", "a positive number in range");
    s->st = in.st;
}

/* YaRN where config.json has no rotation, with any rope_theta. */
static void ministral3_keys(af_config_source *s, af_hf_config *c)
{
    af_config_query_scaling(s, c);
    if (af_config_ropes(s))
        return;
    c->rope.type = AF_ROPE_YARN;
    c->rope.theta = 1e6;
    c->rope.factor = 16;
    c->rope.original_max_position_embeddings = 16384;
    c->rope.mscale = c->rope.mscale_all_dim = 1;
    c->query_scaling_beta = 0.1;
}

static void ministral3_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    c->query_scaling_beta = af_family_gguf_num(g, arch, "attention.temperature_scale", 0);
}

/* 4096 where the key outside is absent, whatever the set says. */
static void phi3_keys(af_config_source *s, af_hf_config *c)
{
    enum { ORIGINAL = 4096 };
    if (c->rope.type == AF_ROPE_DEFAULT || af_config_value(s, "original_max_position_embeddings"))
        return;
    c->rope.original_max_position_embeddings = ORIGINAL;
    if (c->rope.type == AF_ROPE_LONGROPE &&
        !json_is_number(json_object_get(af_config_ropes(s), "factor")))
        c->rope.factor = (double)c->max_position_embeddings / ORIGINAL;
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

void af_config_hunyuan_rope(af_config_source *s, af_hf_config *c)
{
    const json_t *rope = af_config_ropes(s);
    af_config_source in = af_config_inner(s, rope);
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

void af_config_layer_thetas(af_config_source *s, af_hf_config *c)
{
    int n = 0;
    const double *theta =
        af_config_nums(s, &c->arena, "layer_rope_theta", AF_CONFIG_LAYERS_MAX, &n);
    double set[2] = {0, 0};
    if (!theta || n < c->num_hidden_layers) {
        if (theta || af_config_value(s, "layer_rope_theta"))
            af_config_wrong(s, "layer_rope_theta", "a list with one entry per layer");
        return;
    }
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        if (theta[i] == 0 || theta[i] == set[0] || theta[i] == set[1])
            continue;
        if (set[1] != 0) {
            af_config_wrong(s, "layer_rope_theta", "one or two different bases (0: none)");
            return;
        }
        set[set[0] != 0] = theta[i];
    }
    c->per_layer.rope_theta = theta;
    if (set[0] != 0)
        c->rope.theta = set[0];
    c->has_local_rope = set[1] != 0;
    c->local_rope = c->rope;
    c->local_rope.theta = set[1] != 0 ? set[1] : c->rope.theta;
}

/* A window over all layers but every fourth, and llama3's scaling where nothing else is said. */
static void cwm_keys(af_config_source *s, af_hf_config *c) { af_config_llama3(s, c, 1e6, 16); }

static void ministral_keys(af_config_source *s, af_hf_config *c)
{
    (void)s;
    c->max_window_layers = 0; /* all have the window unless layer_types says otherwise */
}

static void helium_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_out_bias = false;
    if ((double)c->num_attention_heads * (double)c->head_dim != (double)c->hidden_size)
        af_config_wrong(s, "head_dim", "hidden_size / num_attention_heads");
}

/* One switch for the biases of attention and one for those of the MLP, by other names. */
static void internlm3_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = c->attention_out_bias =
        af_config_bool(s, "qkv_bias", af_config_bool(s, "attention_bias", false));
    c->mlp_bias = af_config_bool(s, "bias", af_config_bool(s, "mlp_bias", false));
    if (c->attention_bias != c->mlp_bias)
        af_config_wrong(s, "qkv_bias", "what bias is, which transformers asks for, too");
}

const af_family af_families_llama[] = {
    {.model_type = "llama",
     .gguf = "llama",
     .inside = &(const af_family_sizes){4096, 32, 32, 0, 11008, 32000},
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4},
    {.model_type = "mistral",
     .inside = &(const af_family_sizes){4096, 32, 32, 8, 14336, 32000},
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .window = 4096,
     .sliding = AF_SLIDING_ALL},
    {.model_type = "qwen2",
     .gguf = "qwen2",
     .inside = &(const af_family_sizes){4096, 32, 32, 32, 22016, 151936},
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
     .pad = 32001,
     .keys = phi3_keys},
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
    {.model_type = "ministral3",
     .gguf = "mistral3",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
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
     .own_experts = true, /* a config that the mixtures share may say num_experts: 1 */
     .keys = af_config_hunyuan_rope},
    {.model_type = "cwm",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .kv_heads = 8,
     .head_dim = 128,
     .window = 8192,
     .pattern = 4,
     .sliding = AF_SLIDING_BUT_FIRST,
     .keys = cwm_keys},
    {.model_type = "ministral",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .kv_heads = 8,
     .window = 4096,
     .sliding = AF_SLIDING_ABOVE,
     .keys = ministral_keys},
    {.model_type = "helium",
     .act = "silu",
     .eps = 1e-8,
     .theta = 1e5,
     .heads = 20,
     .kv_heads = 20,
     .head_dim = 128,
     .pad = 4,
     .keys = helium_keys},
    {.model_type = "granite_swa",
     .gguf = "granite_swa",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 4,
     .window = 128,
     .pattern = 4,
     .sliding = AF_SLIDING_BUT_FIRST,
     .tied = true,
     .keys = af_config_layer_thetas},
    {.model_type = "internlm3",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 2,
     .head_dim = 128,
     .pad = 3,
     .keys = internlm3_keys},
    {.model_type = "iquestcoder",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 8,
     .head_dim = 128},
    {0},
};
