/* family_gemma.c - the gemma families. */
#include "format/config/families/families.h"

#include <jansson.h>
#include <stdlib.h>

/* per_layer_config: {"5": {"head_dim": 512, "num_key_value_heads": 2}, ...} */
static void read_overrides(af_config_source *s, af_hf_config *c, const json_t *layers)
{
    af_layer_keys *k = &c->per_layer;
    const int64_t n = c->num_hidden_layers;
    const char *key;
    json_t *one;
    if (n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return; /* has its own message */
    int64_t *v = af_arena_take(&c->arena, 2 * (uint64_t)n * sizeof *v);
    if (!v) {
        s->st = s->st == AF_OK ? af_fail_nomem(s->err, "per_layer_config", (uint64_t)n) : s->st;
        return;
    }
    k->head_dim = v;
    k->kv_heads = v + n;
    json_object_foreach((json_t *)layers, key, one)
    {
        char *end;
        const long i = strtol(key, &end, 10);
        af_config_source in = af_config_inner(s, one);
        if (*key == '\0' || *end || i < 0 || i >= n || !json_is_object(one)) {
            af_config_wrong(s, "per_layer_config", "settings by the number of a layer");
            return;
        }
        v[i] = af_config_size(&in, "head_dim", 0, 1, AF_CONFIG_WIDTH_MAX);
        v[n + i] = af_config_size(&in, "num_key_value_heads", 0, 1, AF_CONFIG_HEADS_MAX);
        s->st = in.st;
    }
}

/* All layers that slide have the local rope, the others rotate a part of their dimensions. */
static void gemma4_ropes(const af_config_source *s, af_hf_config *c)
{
    if (af_config_value(s, "rope_parameters"))
        return;
    c->rope = c->local_rope = (af_rope_config){
        .theta = 1e6, .factor = 1, .beta_fast = 32, .beta_slow = 1, .partial_rotary_factor = 1};
    c->rope.type = AF_ROPE_PROPORTIONAL;
    c->rope.partial_rotary_factor = 0.25;
    c->local_rope.theta = 1e4;
    c->has_local_rope = true;
}

/* Without experts and inputs per layer. */
static void gemma4_unified_keys(af_config_source *s, af_hf_config *c)
{
    af_layer_keys *k = &c->per_layer;
    const json_t *layers = af_config_value(s, "per_layer_config");
    gemma4_ropes(s, c);
    k->k_is_v = af_config_bool(s, "attention_k_eq_v", false);
    if (layers) {
        read_overrides(s, c, layers);
    } else {
        k->full_head_dim = af_config_size(s, "global_head_dim", 512, 1, AF_CONFIG_WIDTH_MAX);
        k->full_kv_heads =
            af_config_size(s, "num_global_key_value_heads", 0, 1, AF_CONFIG_HEADS_MAX);
    }
    k->kv_shared = af_config_size(s, "num_kv_shared_layers", 0, 0, AF_CONFIG_LAYERS_MAX);
    k->double_wide = af_config_bool(s, "use_double_wide_mlp", false);
    const char *both = af_config_str(s, &c->arena, "use_bidirectional_attention", "");
    if (strcmp(both, "all") == 0)
        af_config_wrong(s, "use_bidirectional_attention", "\"vision\" or null");
    c->num_experts = 0;
}

static void gemma4_keys(af_config_source *s, af_hf_config *c)
{
    af_layer_keys *k = &c->per_layer;
    const int64_t experts = c->num_experts;
    gemma4_unified_keys(s, c);
    k->input = af_config_size(s, "hidden_size_per_layer_input", 256, 0, AF_CONFIG_WIDTH_MAX);
    k->input_vocab =
        af_config_size(s, "vocab_size_per_layer_input", 262144, 1, AF_CONFIG_VOCAB_MAX);
    k->experts = af_config_bool(s, "enable_moe_block", false);
    if (k->experts) {
        c->num_experts = experts;
        c->num_experts_per_tok = af_config_size(s, "top_k_experts", 0, 1, AF_CONFIG_EXPERTS_MAX);
        c->norm_topk_prob = true;
        c->router.expert_scale = true;
    }
}

/* activation_sparsity_pattern: a share below 1 for each layer. */
static void gemma3n_sparsity(af_config_source *s, af_hf_config *c)
{
    enum { SPARSE = 10 };
    const int64_t n = c->num_hidden_layers;
    int listed = 0;
    const double *list =
        af_config_nums(s, &c->arena, "activation_sparsity_pattern", AF_CONFIG_LAYERS_MAX, &listed);
    if (n < 1 || n > AF_CONFIG_LAYERS_MAX || s->st != AF_OK)
        return;
    if (af_config_value(s, "activation_sparsity_pattern") && listed != n)
        af_config_wrong(s, "activation_sparsity_pattern", "a list with one share per layer");
    double *share = af_arena_take(&c->arena, (uint64_t)n * sizeof *share);
    if (!share) {
        s->st = af_fail_nomem(s->err, "activation_sparsity_pattern", (uint64_t)n * sizeof *share);
        return;
    }
    for (int64_t i = 0; i < n && s->st == AF_OK; i++) {
        share[i] = list ? list[i] : n > SPARSE && i < SPARSE ? 0.95 : 0;
        if (!(share[i] >= 0) || share[i] > 0.9999)
            af_config_wrong(s, "activation_sparsity_pattern", "a list of shares below 1");
    }
    c->per_layer.sparsity = share;
}

static void gemma3n_keys(af_config_source *s, af_hf_config *c)
{
    af_layer_keys *k = &c->per_layer;
    k->kv_shared = af_config_size(s, "num_kv_shared_layers", 15, 0, AF_CONFIG_LAYERS_MAX);
    k->input = af_config_size(s, "hidden_size_per_layer_input", 256, 1, AF_CONFIG_WIDTH_MAX);
    k->input_vocab =
        af_config_size(s, "vocab_size_per_layer_input", 262144, 1, AF_CONFIG_VOCAB_MAX);
    if (json_is_array(af_config_value(s, "intermediate_size")))
        k->ffn = af_config_per_layer(s, c, "intermediate_size", 1, AF_CONFIG_WIDTH_MAX);
    c->altup.streams = af_config_size(s, "altup_num_inputs", 4, 2, AF_ALTUP_STREAMS_MAX);
    c->altup.active = af_config_size(s, "altup_active_idx", 0, 0, c->altup.streams - 1);
    c->altup.laurel = af_config_size(s, "laurel_rank", 64, 1, AF_CONFIG_WIDTH_MAX);
    c->altup.scaled = af_config_bool(s, "altup_correct_scale", true);
    gemma3n_sparsity(s, c);
}

#define GEMMA4(type)                                                                               \
    .model_type = type, .gguf = "gemma4", .act = "gelu_pytorch_tanh", .eps = 1e-6, .theta = 1e6,   \
    .local_theta = 1e4, .heads = 8, .kv_heads = 4, .head_dim = 256, .vocab = 262144, .pattern = 6, \
    .sliding = AF_SLIDING_PATTERN, .tied = true, .pad = 1

const af_family af_families_gemma[] = {
    {.model_type = "gemma",
     .gguf = "gemma",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-6,
     .theta = 1e4,
     .head_dim = 256,
     .tied = true,
     .pad = 1},
    {.model_type = "gemma2",
     .gguf = "gemma2",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-6,
     .theta = 1e4,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .window = 4096,
     .pattern = 2,
     .sliding = AF_SLIDING_PATTERN,
     .tied = true,
     .query_scalar = 256,
     .attn_softcap = 50,
     .final_softcap = 30,
     .pad = 1},
    {.model_type = "vaultgemma",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-6,
     .theta = 1e4,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .window = 4096,
     .pattern = 2,
     .sliding = AF_SLIDING_PATTERN,
     .tied = true,
     .query_scalar = 256,
     .attn_softcap = 50,
     .final_softcap = 30,
     .pad = 1},
    {.model_type = "gemma3_text",
     .gguf = "gemma3",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-6,
     .theta = 1e6,
     .local_theta = 1e4,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .vocab = 262208,
     .window = 4096,
     .pattern = 6,
     .sliding = AF_SLIDING_PATTERN,
     .tied = true,
     .query_scalar = 256,
     .pad = 1},
    {GEMMA4("gemma4_text"), .window = 512, .keys = gemma4_keys},
    {GEMMA4("gemma4_unified_text"), .window = 1024, .keys = gemma4_unified_keys},
    {.model_type = "gemma3n_text",
     .gguf = "gemma3n",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-6,
     .theta = 1e6,
     .local_theta = 1e4,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 256,
     .vocab = 262400,
     .ffn = 16384,
     .ffn_listed = true,
     .window = 512,
     .pattern = 5,
     .sliding = AF_SLIDING_PATTERN,
     .tied = true,
     .final_softcap = 30,
     .pad = 1,
     .keys = gemma3n_keys},
    {0},
};
