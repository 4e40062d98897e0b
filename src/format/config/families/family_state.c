/* family_state.c - families with state layers. */
#include "format/config/families/families.h"

#include "base/log.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

af_layer_type *af_config_take_types(af_config_source *s, af_hf_config *c)
{
    const uint64_t n = (uint64_t)c->num_hidden_layers;
    if (c->num_hidden_layers < 1 || c->num_hidden_layers > AF_CONFIG_LAYERS_MAX)
        return NULL; /* has its own message */
    af_layer_type *types = af_arena_take(&c->arena, n * sizeof *types);
    if (!types && s->st == AF_OK)
        s->st = af_fail_nomem(s->err, "layer types", n * sizeof *types);
    return types;
}

static void heads_divide(af_config_source *s, const char *heads, const char *groups,
                         const af_state_keys *k)
{
    if (s->st == AF_OK && k->heads % k->key_heads)
        s->st = af_fail(s->err, AF_EFORMAT, "%s: %s %" PRId64 " is not a multiple of %s %" PRId64,
                        s->name, heads, k->heads, groups, k->key_heads);
}

/* Where a layer has a state: its convolution has the activation of the model. */
static void states_have_silu(af_config_source *s, af_hf_config *c, const char *layers)
{
    bool any = false;
    for (int64_t i = 0; c->layer_types && i < c->num_hidden_layers && s->st == AF_OK; i++)
        any |= c->layer_types[i] > AF_LAYER_SLIDING;
    if (any)
        af_config_only_silu(s, c, "hidden_act", layers);
}

/* ---- gated delta net ---- */

static void read_delta(af_config_source *s, af_hf_config *c)
{
    af_state_keys *k = &c->state;
    k->conv_kernel = af_config_size(s, "linear_conv_kernel_dim", 4, 1, AF_STATE_KERNEL_MAX);
    k->key_dim = af_config_size(s, "linear_key_head_dim", 128, 1, AF_STATE_DIM_MAX);
    k->head_dim = af_config_size(s, "linear_value_head_dim", 128, 1, AF_STATE_DIM_MAX);
    k->key_heads = af_config_size(s, "linear_num_key_heads", 16, 1, AF_CONFIG_HEADS_MAX);
    k->heads = af_config_size(s, "linear_num_value_heads", 32, 1, AF_CONFIG_HEADS_MAX);
    heads_divide(s, "linear_num_value_heads", "linear_num_key_heads", k);
    const int64_t every = af_config_size(s, "full_attention_interval", 4, 1, AF_CONFIG_LAYERS_MAX);
    af_layer_type *types = c->layer_types ? NULL : af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++)
        types[i] = (i + 1) % every ? AF_LAYER_LINEAR : AF_LAYER_FULL;
    if (types)
        c->layer_types = types;
    states_have_silu(s, c, "delta nets");
    /* what the whole model says counts where its text part says nothing */
    if (c->nested && !af_config_value(s, "tie_word_embeddings"))
        c->tie_word_embeddings = json_is_true(json_object_get(c->raw, "tie_word_embeddings"));
}

/* olmo_hybrid: a null rope_theta, or a null rope_type, means no rotation. A null rope_parameters
 * does not: transformers puts its default there. */
static bool has_no_rope(const af_config_source *s)
{
    const json_t *v5 = af_config_value(s, "rope_parameters"),
                 *theta = json_object_get(v5, "rope_theta");
    if (json_is_null(theta) || json_is_null(json_object_get(v5, "rope_type")))
        return true;
    if (theta)
        return false;
    if (af_config_given(s, "rope_parameters") && !v5 && !af_config_given(s, "rope_theta"))
        af_log_write(AF_LOG_WARN,
                     "%s: rope_parameters is null, which transformers takes for rope_theta 10000; "
                     "write \"rope_theta\": null for a model without rotation",
                     s->name);
    return af_config_given(s, "rope_theta") && !af_config_value(s, "rope_theta");
}

static void read_olmo_hybrid(af_config_source *s, af_hf_config *c)
{
    af_state_keys *k = &c->state;
    const int64_t heads = AF_MIN(AF_MAX(c->num_attention_heads, 1), AF_CONFIG_HEADS_MAX);
    k->apart = true;
    k->norm_eps = 1e-5; /* whatever rms_norm_eps is */
    k->twice_beta = af_config_bool(s, "linear_allow_neg_eigval", true);
    k->conv_kernel = af_config_size(s, "linear_conv_kernel_dim", 4, 1, AF_STATE_KERNEL_MAX);
    k->key_heads = af_config_size(s, "linear_num_key_heads", heads, 1, AF_CONFIG_HEADS_MAX);
    k->heads = af_config_size(s, "linear_num_value_heads", heads, 1, AF_CONFIG_HEADS_MAX);
    heads_divide(s, "linear_num_value_heads", "linear_num_key_heads", k);
    const int64_t keys = s->st == AF_OK ? 3 * af_config_width(c) / (4 * k->key_heads) : 1;
    k->key_dim = af_config_size(s, "linear_key_head_dim", keys, 1, AF_STATE_DIM_MAX);
    k->head_dim = af_config_size(s, "linear_value_head_dim", 2 * k->key_dim, 1, AF_STATE_DIM_MAX);
    if (s->st == AF_OK && (k->key_dim < 1 || AF_MAX(k->key_dim, k->head_dim) > AF_STATE_DIM_MAX))
        s->st = af_fail(s->err, AF_EFORMAT,
                        "%s: linear_key_head_dim is %" PRId64 " and linear_value_head_dim %" PRId64
                        ": they must be 1 to %d",
                        s->name, k->key_dim, k->head_dim, AF_STATE_DIM_MAX);
    af_config_only_silu(s, c, "hidden_act", "delta nets");
    af_layer_type *types = c->layer_types ? NULL : af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++)
        types[i] = i % 4 == 3 || (c->num_hidden_layers < 4 && i == c->num_hidden_layers - 1)
                       ? AF_LAYER_FULL
                       : AF_LAYER_LINEAR;
    if (types)
        c->layer_types = types;
    if (has_no_rope(s))
        af_config_no_ropes(s, c);
}

static void read_experts(af_config_source *s, af_hf_config *c, int64_t experts, int64_t used)
{
    c->num_experts = af_config_int(s, "num_experts", experts);
    c->num_experts_per_tok = af_config_int(s, "num_experts_per_tok", used);
    c->moe_intermediate_size = af_config_int(s, "moe_intermediate_size", 512);
    c->decoder_sparse_step = af_config_int(s, "decoder_sparse_step", 1);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
    c->router.shared_ffn =
        af_config_size(s, "shared_expert_intermediate_size", 512, 0, AF_CONFIG_WIDTH_MAX);
    c->router.shared_gate = true;
}

static void read_qwen3_5_moe(af_config_source *s, af_hf_config *c)
{
    read_delta(s, c);
    read_experts(s, c, 256, 8);
    c->decoder_sparse_step = 1;
    c->mlp_only_count = 0;
    c->norm_topk_prob = true; /* whatever a key says */
}

static void read_qwen3_next(af_config_source *s, af_hf_config *c)
{
    read_delta(s, c);
    c->state.by_key_head = true;
    read_experts(s, c, 512, 10);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
}

/* ---- short convolutions ---- */

static bool is_listed(const double *list, int n, int64_t i)
{
    for (int k = 0; k < n; k++)
        if (list[k] == (double)i)
            return true;
    return false;
}

/* `kernel`: its size when the key is absent. */
static void read_conv_sizes(af_config_source *s, af_hf_config *c, int kernel)
{
    c->state.conv_kernel = af_config_size(s, "conv_L_cache", kernel, 1, AF_STATE_KERNEL_MAX);
    c->state.conv_bias = c->state.proj_bias = af_config_bool(s, "conv_bias", false);
    c->rms_norm_eps = af_config_num(s, "norm_eps", 1e-5);
    c->hidden_act = "silu"; /* whatever a key says */
}

static void read_conv(af_config_source *s, af_hf_config *c)
{
    read_conv_sizes(s, c, 3);
    c->tie_word_embeddings = af_config_bool(s, "tie_embedding", c->tie_word_embeddings);
    int n = 0;
    const double *full = af_config_nums(s, &c->arena, "full_attn_idxs", AF_CONFIG_LAYERS_MAX, &n);
    af_layer_type *types = c->layer_types ? NULL : af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++)
        types[i] = !full || is_listed(full, n, i) ? AF_LAYER_FULL : AF_LAYER_CONV;
    if (types)
        c->layer_types = types;
}

/* The width of the MLP is a rounded share of what the config says. */
static void read_lfm2(af_config_source *s, af_hf_config *c)
{
    read_conv(s, c);
    c->intermediate_size = af_config_int(s, "block_ff_dim", c->intermediate_size);
    const int64_t of = af_config_size(s, "block_multiple_of", 256, 1, AF_CONFIG_WIDTH_MAX);
    const double factor = af_config_num(s, "block_ffn_dim_multiplier", 1);
    if (!af_config_bool(s, "block_auto_adjust_ff_dim", true) || c->intermediate_size < 1 ||
        c->intermediate_size > AF_CONFIG_WIDTH_MAX)
        return;
    if (!(factor > 0) || factor > 1e6) {
        af_config_wrong(s, "block_ffn_dim_multiplier", "a positive number");
        return;
    }
    const int64_t width = (int64_t)(factor * (double)(2 * c->intermediate_size / 3));
    c->intermediate_size = (width + of - 1) / of * of;
}

static void read_lfm2_moe(af_config_source *s, af_hf_config *c)
{
    read_conv(s, c);
    c->num_experts = af_config_int(s, "num_experts", 32);
    c->num_experts_per_tok = af_config_int(s, "num_experts_per_tok", 4);
    c->moe_intermediate_size = af_config_int(s, "moe_intermediate_size", 1792);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    c->decoder_sparse_step = 1;
    c->router.sigmoid = true;
    c->router.choice_bias = af_config_bool(s, "use_expert_bias", true);
    c->router.eps = 1e-6;
    af_config_router_scale(s, c, 1);
    const int64_t dense = af_config_size(s, "num_dense_layers", 2, 0, AF_CONFIG_LAYERS_MAX);
    int64_t *layers = af_arena_take(&c->arena, (uint64_t)AF_MAX(dense, 1) * sizeof *layers);
    for (int64_t i = 0; layers && i < dense; i++)
        layers[i] = i;
    c->mlp_only_layers = layers;
    c->mlp_only_count = layers ? (int)dense : 0;
}

/* One rope for each kind of attention; without rope_parameters both have defaults, and a rope_theta
 * next to them changes nothing. */
static void read_lfm3_ropes(af_config_source *s, af_hf_config *c)
{
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    const json_t *sets = af_config_value(s, "rope_parameters");
    c->has_local_rope = true;
    if (!sets) {
        c->rope.type = AF_ROPE_PROPORTIONAL;
        c->rope.theta = 1e6;
        c->rope.partial_rotary_factor = 0.5;
        c->local_rope.theta = 1e4;
    } else if (c->local_rope.theta == 0) {
        c->local_rope.theta = af_config_num(s, "rope_theta", 1e6);
    }
    if (json_object_size(af_config_value(s, "rope_scaling")))
        af_config_wrong(s, "rope_scaling", "absent: lfm3 has rope_parameters");
    for (int64_t i = 0; sets && c->layer_types && i < c->num_hidden_layers; i++) {
        const af_layer_type t = c->layer_types[i];
        if (t <= AF_LAYER_SLIDING && !json_is_object(json_object_get(sets, kinds[t])))
            af_config_wrong(s, "rope_parameters", "an object for each kind of attention layers");
    }
    if (c->local_rope.type == AF_ROPE_DEFAULT) /* does not read it */
        c->local_rope.partial_rotary_factor = 1;
}

static void read_lfm3(af_config_source *s, af_hf_config *c)
{
    const double eps = c->rms_norm_eps;
    read_conv_sizes(s, c, 7);
    if (af_config_value(s, "rms_norm_eps"))
        c->rms_norm_eps = eps;
    c->no_post_norm = !af_config_bool(s, "use_sandwich_norm", true);
    c->attn_gate_heads = af_config_bool(s, "use_attention_gate", true);
    af_layer_type *types = c->layer_types ? NULL : af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++)
        types[i] = i % 4 == 2            ? AF_LAYER_FULL
                   : i % 4 == 0 && i > 0 ? AF_LAYER_SLIDING
                                         : AF_LAYER_CONV;
    if (types)
        c->layer_types = types;
    read_lfm3_ropes(s, c);
}

/* ---- Mamba-2 ---- */

int64_t af_config_norm_groups(const af_hf_config *c)
{
    enum { MAJOR = 5, MINOR = 23 };
    char *end;
    const char *version = c->transformers_version ? c->transformers_version : "";
    const long major = strtol(version, &end, 10),
               minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    const bool old = major > 0 && (major < MAJOR || (major == MAJOR && minor < MINOR));
    return old ? 1 : c->state.key_heads;
}

void af_config_mamba(af_config_source *s, af_hf_config *c, int64_t width)
{
    af_state_keys *k = &c->state;
    k->conv_kernel = af_config_size(s, "mamba_d_conv", 4, 1, AF_STATE_KERNEL_MAX);
    k->key_dim = af_config_size(s, "mamba_d_state", 256, 1, AF_STATE_DIM_MAX);
    k->key_heads = af_config_size(s, "mamba_n_groups", 1, 1, AF_CONFIG_HEADS_MAX);
    k->norm_groups = af_config_norm_groups(c);
    k->heads = af_config_size(s, "mamba_n_heads", 128, 1, AF_CONFIG_HEADS_MAX);
    k->conv_bias = af_config_bool(s, "mamba_conv_bias", true);
    k->proj_bias = k->out_bias = af_config_bool(s, "mamba_proj_bias", false);
    heads_divide(s, "mamba_n_heads", "mamba_n_groups", k);
    k->head_dim = s->st == AF_OK ? width / k->heads : 1;
    if (json_is_integer(af_config_value(s, "mamba_d_head"))) /* or "auto" */
        k->head_dim = af_config_size(s, "mamba_d_head", 1, 1, AF_STATE_DIM_MAX);
    if (s->st == AF_OK && (k->head_dim * k->heads != width || k->head_dim > AF_STATE_DIM_MAX))
        s->st = af_fail(s->err, AF_EFORMAT,
                        "%s: mamba_n_heads %" PRId64 " of %" PRId64
                        " are not mamba_expand * hidden_size (mamba_d_ssm) = %" PRId64,
                        s->name, k->heads, k->head_dim, width);
}

int64_t af_config_mamba_width(af_config_source *s, const af_hf_config *c, const char *expand)
{
    return af_config_size(s, expand, 2, 1, 64) * af_config_width(c);
}

/* [low, high], where high may be infinity: as a word, or as transformers writes it. */
void af_config_time_steps(af_config_source *s, af_hf_config *c)
{
    const json_t *limit = af_config_value(s, "time_step_limit");
    const json_t *low = json_array_get(limit, 0), *high = json_array_get(limit, 1);
    if (!limit)
        return;
    c->state.step_min = json_number_value(low);
    c->state.step_max =
        json_is_number(high) && isfinite(json_number_value(high)) ? json_number_value(high) : 0;
    const bool positive = !json_is_number(high) || json_number_value(high) > c->state.step_min;
    if (!json_is_array(limit) || json_array_size(limit) != 2 || !json_is_number(low) ||
        !(c->state.step_min >= 0) || c->state.step_min > 1e6 || !positive ||
        c->state.step_max > 1e6)
        af_config_wrong(s, "time_step_limit",
                        "a list of two rising numbers, the first not below 0");
}

static void read_granite_hybrid(af_config_source *s, af_hf_config *c)
{
    af_config_mamba(s, c, af_config_mamba_width(s, c, "mamba_expand"));
    af_config_time_steps(s, c);
    c->attention_multiplier = af_config_num(s, "attention_multiplier", 1);
    const int64_t experts = af_config_size(s, "num_local_experts", 8, 0, AF_CONFIG_EXPERTS_MAX);
    const int64_t shared =
        af_config_size(s, "shared_intermediate_size", 1024, 1, AF_CONFIG_WIDTH_MAX);
    c->num_experts = experts;
    c->num_experts_per_tok = experts ? af_config_int(s, "num_experts_per_tok", 2) : 0;
    c->moe_intermediate_size = experts ? c->intermediate_size : 0;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true; /* a softmax over the chosen ones is the same */
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
    if (experts)
        c->router.shared_ffn = shared;
    else
        c->intermediate_size = shared;
    af_layer_type *types = c->layer_types ? NULL : af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++)
        types[i] = AF_LAYER_MAMBA;
    if (types)
        c->layer_types = types;
    states_have_silu(s, c, "Mamba layers");
    const char *position = af_config_str(s, &c->arena, "position_embedding_type", "nope");
    if (strcmp(position, "rope") != 0)
        af_config_no_ropes(s, c);
}

const af_family af_families_state[] = {
    {.model_type = "qwen3_5_text",
     .gguf = "qwen35",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .partial = 0.25,
     .heads = 16,
     .kv_heads = 4,
     .head_dim = 256,
     .sliding = AF_SLIDING_LISTED,
     .state_layers = true,
     .keys = read_delta},
    {.model_type = "qwen3_5_moe_text",
     .gguf = "qwen35moe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .partial = 0.25,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .sliding = AF_SLIDING_LISTED,
     .state_layers = true,
     .ffn = 512,
     .keys = read_qwen3_5_moe},
    {.model_type = "qwen3_next",
     .gguf = "qwen3next",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .partial = 0.25,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .sliding = AF_SLIDING_LISTED,
     .state_layers = true,
     .keys = read_qwen3_next},
    {.model_type = "olmo_hybrid",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .heads = 30,
     .vocab = 100352,
     .pad = 100278,
     .sliding = AF_SLIDING_LISTED,
     .state_layers = true,
     .keys = read_olmo_hybrid},
    {.model_type = "lfm2",
     .gguf = "lfm2",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .heads = 32,
     .kv_heads = 8,
     .vocab = 65536,
     .sliding = AF_SLIDING_LISTED,
     .tied = true,
     .pad = 1,
     .state_layers = true,
     .keys = read_lfm2},
    {.model_type = "lfm2_moe",
     .gguf = "lfm2moe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .heads = 32,
     .kv_heads = 8,
     .vocab = 65536,
     .sliding = AF_SLIDING_LISTED,
     .tied = true,
     .pad = 1,
     .state_layers = true,
     .keys = read_lfm2_moe},
    {.model_type = "lfm3",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .heads = 16,
     .kv_heads = 4,
     .head_dim = 128,
     .vocab = 128000,
     .window = 256,
     .ffn = 7680,
     .sliding = AF_SLIDING_LISTED,
     .tied = true,
     .pad = 124894,
     .state_layers = true,
     .keys = read_lfm3},
    {.model_type = "granitemoehybrid",
     .gguf = "granitehybrid",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .sliding = AF_SLIDING_LISTED,
     .state_layers = true,
     .keys = read_granite_hybrid},
    {0},
};
