/* family_minimax.c - the families of MiniMax, all with experts. */
#include "format/config/families/families.h"

#include <jansson.h>

/* Every second layer has linear attention, unless they are listed; a window is of the others. */
static void minimax_layers(af_config_source *s, af_hf_config *c)
{
    const af_layer_type *given = c->layer_types;
    af_layer_type *types = af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++) {
        types[i] = given ? given[i] : i % 2 ? AF_LAYER_LINEAR : AF_LAYER_FULL;
        if (types[i] != AF_LAYER_LINEAR && types[i] != AF_LAYER_FULL)
            af_config_wrong(s, "an entry of layer_types", "full_attention or linear_attention");
        if (types[i] == AF_LAYER_FULL && c->sliding_window > 0)
            types[i] = AF_LAYER_SLIDING;
    }
    c->layer_types = types;
}

static void minimax(af_config_source *s, af_hf_config *c)
{
    static const char *const keys[][2] = {
        {"full_attn_alpha_factor", "full_attn_beta_factor"},
        {"linear_attn_alpha_factor", "linear_attn_beta_factor"},
        {"mlp_alpha_factor", "mlp_beta_factor"},
    };
    af_config_mixture(s, c, af_config_value(s, "num_experts") ? "num_experts" : "num_local_experts",
                      8, 2);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true;
    minimax_layers(s, c);
    for (int i = 0; i < 3; i++) {
        double *const to[] = {&c->residual_keep[i], &c->residual_add[i]};
        for (int k = 0; k < 2; k++) {
            *to[k] = af_config_num(s, keys[i][k], 1);
            if (!(*to[k] > 0 && *to[k] < 1e6))
                af_config_wrong(s, keys[i][k], "a positive number in range");
        }
    }
}

/* rotary_dim: how many values of a head are rotated. */
static void minimax_rotary(af_config_source *s, af_hf_config *c)
{
    const int64_t turned = af_config_size(s, "rotary_dim", 0, 1, AF_CONFIG_WIDTH_MAX);
    const json_t *rope = af_config_value(s, "rope_parameters");
    if (turned > 0 && c->head_dim > 0 && !json_object_get(rope, "partial_rotary_factor") &&
        !af_config_value(s, "partial_rotary_factor"))
        c->rope.partial_rotary_factor = (double)turned / (double)c->head_dim;
}

/* Words of the code in the repositories of MiniMax-Text-01 and MiniMax-M1. */
static const char *const minimax_words[][2] = {
    {"full_attn_alpha_factor", "layernorm_full_attention_alpha"},
    {"full_attn_beta_factor", "layernorm_full_attention_beta"},
    {"linear_attn_alpha_factor", "layernorm_linear_attention_alpha"},
    {"linear_attn_beta_factor", "layernorm_linear_attention_beta"},
    {"mlp_alpha_factor", "layernorm_mlp_alpha"},
    {"mlp_beta_factor", "layernorm_mlp_beta"},
    {0}};

static bool has_shared_experts(const json_t *size)
{
    bool some = json_number_value(size) != 0 || json_is_string(size) || json_is_object(size);
    for (size_t i = 0; i < json_array_size(size); i++)
        some |= json_number_value(json_array_get(size, i)) != 0;
    return some;
}

/* The same blocks. attn_type_list: 1 = softmax. Decays of a number of heads that is not a power of
 * two are others there. */
static void minimax_own(af_config_source *s, af_hf_config *c)
{
    int n = 0;
    const double *kind = af_config_nums(s, &c->arena, "attn_type_list", AF_CONFIG_LAYERS_MAX, &n);
    af_layer_type *types = af_config_take_types(s, c);
    if (s->st != AF_OK || !types)
        return;
    for (int i = 0; i < n && n == c->num_hidden_layers; i++) {
        types[i] = kind[i] == 1 ? AF_LAYER_FULL : AF_LAYER_LINEAR;
        if (kind[i] != 0 && kind[i] != 1)
            af_config_wrong(s, "attn_type_list", "a list of 0 and 1");
    }
    if (n != c->num_hidden_layers)
        af_config_wrong(s, "attn_type_list", "a list with one entry per layer");
    if (!af_config_bool(s, "postnorm", false))
        af_config_wrong(s, "postnorm", "true: sums before the norms are not supported");
    if (has_shared_experts(af_config_value(s, "shared_intermediate_size")))
        af_config_wrong(s, "shared_intermediate_size", "0: shared experts are not supported");
    if (c->num_attention_heads < 1 || (c->num_attention_heads & (c->num_attention_heads - 1)))
        af_config_wrong(s, "num_attention_heads", "a power of two");
    c->layer_types = types;
    minimax_rotary(s, c);
    minimax(s, c);
}

/* Sigmoids, and a bias for the choice; the bias is stored with the experts. */
static void minimax_m2(af_config_source *s, af_hf_config *c)
{
    af_config_mixture(s, c, "num_local_experts", 256, 8);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = c->router.sigmoid = c->router.choice_bias = true;
    minimax_rotary(s, c);
}

/* Whether a list of this name has other than 0 for a layer. */
static bool layer_flag(af_config_source *s, const char *key, int64_t layer)
{
    const json_t *one = json_array_get(af_config_value(s, key), (size_t)layer);
    if (!json_is_number(one) && !json_is_boolean(one))
        af_config_wrong(s, key, "a list with one number per layer");
    return json_is_true(one) || json_number_value(one) != 0;
}

/* Layers that attend to blocks of keys which an indexer picks. */
static void minimax_m3_indexer(af_config_source *s, af_hf_config *c)
{
    enum { HEADS, SIZE, BLOCK, BLOCKS, KEYS };
    static const char *const keys[KEYS][2] = {{"index_n_heads", "sparse_num_index_heads"},
                                              {"index_head_dim", "sparse_index_dim"},
                                              {"index_block_size", "sparse_block_size"},
                                              {"index_topk_blocks", "sparse_topk_blocks"}};
    static const int64_t usual[KEYS] = {4, 128, 128, 16};
    af_config_source old;
    const json_t *types = af_config_value(s, "layer_types");
    const bool had = af_config_part(&old, s, "sparse_attention_config");
    const int64_t n = c->num_hidden_layers;
    int64_t v[KEYS];
    bool any = false;
    for (int i = 0; i < KEYS; i++) {
        v[i] = af_config_size(s, keys[i][0], usual[i], 1, 1 << 20);
        if (had)
            v[i] = af_config_size(&old, keys[i][1], v[i], 1, 1 << 20);
    }
    bool *plain = n < 1 || n > AF_CONFIG_LAYERS_MAX || old.st != AF_OK
                      ? NULL
                      : af_arena_take(&c->arena, (uint64_t)n * sizeof *plain);
    const bool listed = had && !types && af_config_value(&old, "sparse_attention_freq");
    for (int64_t i = 0; plain && i < n; i++) {
        const char *kind = json_string_value(json_array_get(types, (size_t)i));
        plain[i] = listed ? !layer_flag(&old, "sparse_attention_freq", i)
                          : !kind || strcmp(kind, "minimax_m3_sparse") != 0;
        any |= !plain[i];
    }
    if (s->st == AF_OK)
        s->st = old.st;
    if (!any)
        return;
    c->latent.index_shared = plain;
    c->latent.index_heads = v[HEADS];
    c->latent.index_dim = v[SIZE];
    c->latent.index_topk = v[BLOCK] * v[BLOCKS];
}

/* moe_layer_freq: 0 where a layer has no experts. */
static void minimax_m3_dense(af_config_source *s, af_hf_config *c)
{
    const int64_t n = c->num_hidden_layers;
    if (!af_config_value(s, "moe_layer_freq") || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return;
    int64_t *dense = af_arena_take(&c->arena, (uint64_t)n * sizeof *dense);
    if (!dense)
        s->st = s->st == AF_OK ? af_fail_nomem(s->err, "moe_layer_freq", (uint64_t)n * 8) : s->st;
    c->mlp_only_layers = dense;
    for (int64_t i = 0; dense && i < n; i++)
        if (!layer_flag(s, "moe_layer_freq", i))
            dense[c->mlp_only_count++] = i;
}

/* The clamped unit of gpt_oss in all MLPs, and an expert that every token sees. */
static void minimax_m3(af_config_source *s, af_hf_config *c)
{
    af_config_mixture(s, c, af_config_value(s, "num_experts") ? "num_experts" : "num_local_experts",
                      128, 4);
    c->hidden_act = "silu"; /* published files have "swigluoai" */
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->dense_ffn = af_config_size(s, "dense_intermediate_size", 12288, 1, AF_CONFIG_WIDTH_MAX);
    c->norm_topk_prob = c->router.sigmoid = c->router.choice_bias = true;
    c->router.shared_ffn =
        af_config_size(s, "shared_intermediate_size", 3072, 1, AF_CONFIG_WIDTH_MAX);
    af_config_router_scale(s, c, 2);
    c->router.clamp = af_config_num(s, "swiglu_limit", 7);
    if (!(c->router.clamp > 0) || c->router.clamp > 1e9)
        af_config_wrong(s, "swiglu_limit", "a positive number");
    if (af_config_num(s, "swiglu_alpha", 1.702) != 1.702)
        af_config_wrong(s, "swiglu_alpha", "1.702, the only one that is supported");
    if (af_config_value(s, "mlp_layer_types"))
        af_config_mlp_types(s, c);
    else
        minimax_m3_dense(s, c);
    minimax_m3_indexer(s, c);
}

#define MINIMAX_OWN(type)                                                                          \
    .model_type = type, .act = "silu", .eps = 1e-5, .theta = 1e6, .kv_heads = 8, .partial = 1,     \
    .state_layers = true, .alias = minimax_words, .keys = minimax_own

const af_family af_families_minimax[] = {
    {.model_type = "minimax",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .kv_heads = 8,
     .state_layers = true,
     .keys = minimax},
    {MINIMAX_OWN("minimax_text_01")},
    {MINIMAX_OWN("minimax_m1")},
    {.model_type = "minimax_m2",
     .gguf = "minimax-m2",
     .act = "silu",
     .eps = 1e-6,
     .theta = 5e6,
     .kv_heads = 8,
     .head_dim = 128,
     .partial = 1,
     .own_experts = true,
     .keys = minimax_m2},
    {.model_type = "minimax_m3_vl_text",
     .act = "silu",
     .eps = 1e-6,
     .theta = 5e6,
     .kv_heads = 4,
     .head_dim = 128,
     .partial = 1,
     .own_experts = true,
     .keys = minimax_m3},
    {0},
};
