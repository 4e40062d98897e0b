/* family_mamba.c - families of Mamba layers alone, next to attention, or between layers of other
 * kinds. granitemoehybrid is in family_state.c. */
#include "format/config/families/families.h"

#include <jansson.h>
#include <math.h>

/* The convolution and the gate are silu in every family. */
void af_config_only_silu(af_config_source *s, af_hf_config *c, const char *key, const char *layers)
{
    const char *act = af_config_str(s, &c->arena, key, "silu");
    if (s->st == AF_OK && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        s->st =
            af_fail(s->err, AF_EUNSUPPORTED, "%s: %s is '%.64s': %s are supported with silu alone",
                    s->name, key, act, layers);
}

void af_config_no_ropes(af_config_source *s, af_hf_config *c)
{
    const uint64_t n = (uint64_t)AF_MIN(AF_MAX(c->num_hidden_layers, 1), AF_CONFIG_LAYERS_MAX);
    bool *none = af_arena_take(&c->arena, n);
    if (!none && s->st == AF_OK)
        s->st = af_fail_nomem(s->err, "layers without rotation", n);
    if (none)
        memset(none, 1, n);
    c->no_rope = none;
}

/* Every layer has a Mamba mixer. */
static void only_mamba(af_config_source *s, af_hf_config *c)
{
    af_layer_type *types = af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++)
        types[i] = AF_LAYER_MAMBA;
    c->layer_types = types;
}

static int64_t size_of(af_config_source *s, const char *old, const char *key, int64_t absent,
                       int64_t max)
{
    return af_config_size(s, af_config_value(s, old) ? old : key, absent, 1, max);
}

/* Sizes in the words of mamba2 and nemotron_h; *heads and *dim: what those of a head are called. */
static void read_words(af_config_source *s, af_hf_config *c, const char *heads, const char *dim,
                       const char *state)
{
    af_state_keys *k = &c->state;
    k->conv_kernel = size_of(s, "mamba_d_conv", "conv_kernel", 4, AF_STATE_KERNEL_MAX);
    k->key_dim = af_config_size(s, state, 128, 1, AF_STATE_DIM_MAX);
    k->key_heads = size_of(s, "mamba_n_groups", "n_groups", 8, AF_CONFIG_HEADS_MAX);
    k->heads = af_config_size(s, heads, 128, 1, AF_CONFIG_HEADS_MAX);
    k->head_dim = af_config_size(s, dim, 64, 1, AF_STATE_DIM_MAX);
    k->conv_bias = af_config_bool(s, "use_conv_bias", true);
    k->proj_bias = k->out_bias = af_config_bool(s, "use_bias", false);
    c->rms_norm_eps = af_config_num(s, "layer_norm_epsilon", 1e-5);
    c->padding_row = -1;
    if (s->st == AF_OK && k->heads % k->key_heads)
        s->st =
            af_fail(s->err, AF_EFORMAT, "%s: %s %" PRId64 " is not a multiple of n_groups %" PRId64,
                    s->name, heads, k->heads, k->key_heads);
    af_config_no_ropes(s, c);
}

/* ---- bamba ---- */

static void read_bamba(af_config_source *s, af_hf_config *c)
{
    int n = 0;
    const double *full =
        af_config_nums(s, &c->arena, "attn_layer_indices", AF_CONFIG_LAYERS_MAX, &n);
    af_config_mamba(s, c, af_config_mamba_width(s, c, "mamba_expand"));
    af_config_time_steps(s, c);
    af_config_only_silu(s, c, "hidden_act", "Mamba layers");
    af_layer_type *types = af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++) {
        types[i] = AF_LAYER_MAMBA;
        for (int k = 0; k < n; k++)
            if (full[k] == (double)i)
                types[i] = AF_LAYER_FULL;
    }
    c->layer_types = types;
    if (!json_object_get(af_config_ropes(s), "partial_rotary_factor"))
        c->rope.partial_rotary_factor = 0.5; /* whatever a key outside says */
    if (af_config_num(s, "z_loss_coefficient", 0) != 0 && s->st == AF_OK)
        s->st = af_fail(s->err, AF_EUNSUPPORTED,
                        "%s: z_loss_coefficient is not 0: that loss is not supported", s->name);
}

/* ---- falcon_h1 ---- */

static double multiplier(af_config_source *s, const char *key)
{
    const double v = af_config_num(s, key, 1);
    if (!(fabs(v) > 0) || fabs(v) > 1e6)
        af_config_wrong(s, key, "a number that can be multiplied with");
    return v;
}

static void multipliers(af_config_source *s, af_hf_config *c, const char *key, double *to, int want)
{
    int n = 0;
    const double *list = af_config_nums(s, &c->arena, key, want, &n);
    bool fits = !list || n == want;
    for (int i = 0; i < want; i++) {
        to[i] = list && i < n ? list[i] : 1;
        fits &= fabs(to[i]) > 0 && fabs(to[i]) <= 1e6;
    }
    if (!fits)
        af_config_wrong(s, key, "a list of as many multipliers as there are parts");
}

static void read_falcon_h1(af_config_source *s, af_hf_config *c)
{
    af_mup_keys *m = &c->mup;
    af_state_keys *k = &c->state;
    double mlp[2];
    const int64_t width = af_config_given(s, "mamba_d_ssm") && !af_config_value(s, "mamba_d_ssm")
                              ? af_config_mamba_width(s, c, "mamba_expand")
                              : af_config_size(s, "mamba_d_ssm", 1024, 1, AF_CONFIG_WIDTH_MAX);
    af_config_mamba(s, c, width);
    af_config_time_steps(s, c);
    af_config_only_silu(s, c, "hidden_act", "Mamba layers");
    k->out_bias = af_config_bool(s, "projectors_bias", false);
    k->no_norm = !af_config_bool(s, "mamba_rms_norm", false);
    k->gate_after = af_config_bool(s, "mamba_norm_before_gate", true);
    k->norm_groups = k->key_heads;
    m->given = true;
    m->attn_in = multiplier(s, "attention_in_multiplier");
    m->attn_out = multiplier(s, "attention_out_multiplier");
    m->key = multiplier(s, "key_multiplier");
    m->ssm_in = multiplier(s, "ssm_in_multiplier");
    m->ssm_out = multiplier(s, "ssm_out_multiplier");
    m->head = multiplier(s, "lm_head_multiplier");
    multipliers(s, c, "ssm_multipliers", m->ssm, AF_MUP_PARTS);
    multipliers(s, c, "mlp_multipliers", mlp, 2);
    m->gate = mlp[0];
    m->down = mlp[1];
    only_mamba(s, c);
}

/* ---- mamba2 ---- */

static void read_mamba2(af_config_source *s, af_hf_config *c)
{
    af_state_keys *k = &c->state;
    read_words(s, c, "num_heads", "head_dim", "state_size");
    k->norm_groups = af_config_norm_groups(c);
    af_config_time_steps(s, c);
    af_config_only_silu(s, c, "hidden_act", "Mamba layers");
    const int64_t width = af_config_mamba_width(s, c, "expand");
    if (s->st == AF_OK && k->heads * k->head_dim != width)
        s->st = af_fail(s->err, AF_EFORMAT,
                        "%s: num_heads %" PRId64 " of head_dim %" PRId64
                        " are not expand * hidden_size = %" PRId64,
                        s->name, k->heads, k->head_dim, width);
    c->head_dim = 2; /* of attention, which there is none of */
    only_mamba(s, c);
}

/* ---- Mamba-1 ---- */

static void selective(af_config_source *s, af_hf_config *c, int64_t states, const char *expand,
                      const char *rank)
{
    af_state_keys *k = &c->state;
    k->inner = af_config_mamba_width(s, c, expand);
    const json_t *given = af_config_value(s, rank);
    k->step_rank = (af_config_width(c) + 15) / 16;
    if (!json_is_string(given) || strcmp(json_string_value(given), "auto") != 0)
        k->step_rank = af_config_size(s, rank, k->step_rank, 1, AF_CONFIG_WIDTH_MAX);
    k->key_dim = states;
    k->head_dim = k->key_heads = 1;
    c->padding_row = -1;
    af_config_no_ropes(s, c);
    af_config_only_silu(s, c, "hidden_act", "Mamba layers");
}

static void read_mamba1(af_config_source *s, af_hf_config *c)
{
    af_state_keys *k = &c->state;
    selective(s, c, af_config_size(s, "state_size", 16, 1, AF_STATE_DIM_MAX), "expand",
              "time_step_rank");
    /* as transformers has it, falcon-mamba-7b with an expand of 16 and 8192 for 4096, too */
    k->inner = af_config_size(s, "intermediate_size", k->inner, 1, 64 * AF_CONFIG_WIDTH_MAX);
    k->heads = k->inner; /* states are [heads][key_dim] */
    k->conv_kernel = af_config_size(s, "conv_kernel", 4, 1, AF_STATE_KERNEL_MAX);
    k->conv_bias = af_config_bool(s, "use_conv_bias", true);
    k->proj_bias = k->out_bias = af_config_bool(s, "use_bias", false);
    c->rms_norm_eps = af_config_num(s, "layer_norm_epsilon", 1e-5);
    if (strcmp(c->model_type, "falcon_mamba") == 0) {
        k->step_eps = af_config_num(s, "mixer_rms_eps", 1e-6);
        if (!(k->step_eps > 0) || k->step_eps > 1)
            af_config_wrong(s, "mixer_rms_eps", "a positive number");
    }
    c->intermediate_size = 1; /* of an MLP, as head_dim of attention: there is none */
    c->head_dim = 2;
    only_mamba(s, c);
}

/* Whether layer i is one of those that come every so many. */
static bool every(af_config_source *s, int64_t i, const char *period, int64_t usual_period,
                  const char *offset, int64_t usual_offset)
{
    const int64_t p = af_config_size(s, period, usual_period, 1, AF_CONFIG_LAYERS_MAX),
                  o = af_config_size(s, offset, usual_offset, 0, AF_CONFIG_LAYERS_MAX);
    return i % p == o;
}

static void read_jamba(af_config_source *s, af_hf_config *c)
{
    af_state_keys *k = &c->state;
    const int64_t pad = c->padding_row;
    selective(s, c, af_config_size(s, "mamba_d_state", 16, 1, AF_STATE_DIM_MAX), "mamba_expand",
              "mamba_dt_rank");
    c->padding_row = pad;
    k->heads = k->inner;
    k->conv_kernel = af_config_size(s, "mamba_d_conv", 4, 1, AF_STATE_KERNEL_MAX);
    k->conv_bias = af_config_bool(s, "mamba_conv_bias", true);
    k->proj_bias = k->out_bias = af_config_bool(s, "mamba_proj_bias", false);
    k->step_norms = true;
    k->step_eps = c->rms_norm_eps;
    c->num_experts = af_config_size(
        s, af_config_value(s, "num_local_experts") ? "num_local_experts" : "num_experts", 16, 1,
        AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok = af_config_size(s, "num_experts_per_tok", 2, 1, AF_CONFIG_EXPERTS_MAX);
    c->output_router_logits = af_config_bool(s, "output_router_logits", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
    c->moe_intermediate_size = AF_MIN(c->intermediate_size, AF_CONFIG_WIDTH_MAX);
    c->decoder_sparse_step = 1;
    af_layer_type *types = af_config_take_types(s, c);
    const int64_t n = types ? c->num_hidden_layers : 0;
    int64_t *dense = af_arena_take(&c->arena, (uint64_t)AF_MAX(n, 1) * sizeof *dense);
    if (!dense && s->st == AF_OK)
        s->st = af_fail_nomem(s->err, "a list of layers", (uint64_t)n * sizeof *dense);
    for (int64_t i = 0; dense && i < n; i++) {
        types[i] = every(s, i, "attn_layer_period", 8, "attn_layer_offset", 4) ? AF_LAYER_FULL
                                                                               : AF_LAYER_MAMBA;
        if (c->num_experts == 1 || !every(s, i, "expert_layer_period", 2, "expert_layer_offset", 1))
            dense[c->mlp_only_count++] = i;
    }
    c->mlp_only_layers = dense;
    c->layer_types = types;
    if (c->num_experts == 1)
        c->num_experts_per_tok = 1;
}

/* ---- nemotron_h ---- */

/* "M*-E", or a list of words. */
static bool kind_of(const json_t *list, size_t i, af_layer_type *out)
{
    static const struct {
        char letter;
        const char *word, *old;
        af_layer_type type;
    } kinds[] = {{'M', "linear_attention", "mamba", AF_LAYER_MAMBA},
                 {'*', "full_attention", "attention", AF_LAYER_FULL},
                 {'-', "mlp", "mlp", AF_LAYER_MLP},
                 {'E', "moe", "moe", AF_LAYER_EXPERTS}};
    const char *word = json_string_value(json_array_get(list, i)),
               *letters = json_string_value(list);
    for (size_t k = 0; k < AF_LEN(kinds); k++)
        if (letters ? letters[i] == kinds[k].letter
                    : word && (!strcmp(word, kinds[k].word) || !strcmp(word, kinds[k].old))) {
            *out = kinds[k].type;
            return true;
        }
    return false;
}

/* Whether a layer has experts. */
static bool read_kinds(af_config_source *s, af_hf_config *c)
{
    const json_t *list = af_config_value(s, "layers_block_type");
    list = list ? list : af_config_value(s, "hybrid_override_pattern");
    bool experts = false;
    af_layer_type *types = af_config_take_types(s, c);
    if (!list || (!json_is_array(list) && !json_is_string(list))) {
        af_config_wrong(s, "hybrid_override_pattern (layers_block_type)",
                        "a text or a list with one entry per layer");
        return false;
    }
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++) {
        if (!kind_of(list, (size_t)i, &types[i]))
            af_config_wrong(s, "an entry of hybrid_override_pattern (layers_block_type)",
                            "one of M, *, - and E (mamba, attention, mlp, moe)");
        experts |= types[i] == AF_LAYER_EXPERTS;
    }
    c->layer_types = types;
    return experts;
}

static void read_experts(af_config_source *s, af_hf_config *c)
{
    c->num_experts = af_config_size(s, "n_routed_experts", 8, 1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok = af_config_int(s, "num_experts_per_tok", 2);
    c->moe_intermediate_size =
        af_config_size(s, "moe_intermediate_size", 7688, 1, AF_CONFIG_WIDTH_MAX);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    c->decoder_sparse_step = 1;
    c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    af_config_router_scale(s, c, 1);
    c->router.groups = af_config_size(s, "n_group", 1, 1, AF_CONFIG_EXPERTS_MAX);
    c->router.groups_used = af_config_int(s, "topk_group", 1);
    c->router.group_best = 2;
    c->router.shared_ffn =
        af_config_size(s, "moe_shared_expert_intermediate_size", 7688, 1, AF_CONFIG_WIDTH_MAX);
    if (af_config_value(s, "moe_latent_size"))
        c->router.latent = af_config_size(s, "moe_latent_size", 1, 1, AF_CONFIG_WIDTH_MAX);
    if (c->mlp_bias && s->st == AF_OK)
        s->st = af_fail(s->err, AF_EUNSUPPORTED,
                        "%s: mlp_bias is true: experts with biases are not supported", s->name);
}

static void read_nemotron_h(af_config_source *s, af_hf_config *c)
{
    c->num_experts = c->num_experts_per_tok = c->moe_intermediate_size = 0;
    read_words(s, c, "mamba_num_heads", "mamba_head_dim", "ssm_state_size");
    c->state.norm_groups = c->state.key_heads;
    c->state.step_min = af_config_num(
        s, af_config_value(s, "mamba_dt_min") ? "mamba_dt_min" : "time_step_min", 0.001);
    if (!(c->state.step_min >= 0) || c->state.step_min > 1e6)
        af_config_wrong(s, "time_step_min", "a number from 0 on");
    af_config_only_silu(s, c, "mamba_hidden_act", "Mamba layers");
    c->hidden_act = af_config_str(s, &c->arena, "mlp_hidden_act", "relu2");
    if (read_kinds(s, c))
        read_experts(s, c);
}

/* ---- zamba2 ---- */

/* Layers of Mamba-2, some of them after a transformer that they share with others. */
static void zamba_layers(af_config_source *s, af_hf_config *c)
{
    const json_t *list = af_config_value(s, "layers_block_type");
    af_layer_type *types = af_config_take_types(s, c);
    int64_t uses = 0;
    if (!json_is_array(list)) {
        af_config_wrong(s, "layers_block_type", "a list with one entry per layer");
        return;
    }
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++) {
        const char *kind = json_string_value(json_array_get(list, (size_t)i));
        types[i] = kind && strcmp(kind, "hybrid") == 0 ? AF_LAYER_FULL : AF_LAYER_MAMBA;
        if (!kind || (types[i] == AF_LAYER_MAMBA && strcmp(kind, "mamba") != 0 &&
                      strcmp(kind, "linear_attention") != 0))
            af_config_wrong(s, "an entry of layers_block_type", "mamba or hybrid");
        uses += types[i] == AF_LAYER_FULL;
    }
    if (uses > c->state.shared_blocks && !c->tie_word_embeddings)
        af_config_wrong(s, "tie_word_embeddings",
                        "true, without which transformers shares nothing");
    c->layer_types = types;
}

/* Heads of attention read the residual and the embedding, side by side. */
static void zamba_heads(af_config_source *s, af_hf_config *c)
{
    const int64_t wide = 2 * af_config_width(c), H = c->num_attention_heads;
    c->attention_bias = c->attention_out_bias = false;
    c->head_dim = H > 0 ? wide / H : 1;
    if (c->state.use_qkv && s->st == AF_OK &&
        (c->num_key_value_heads != H || c->head_dim * H != wide))
        s->st = af_fail(s->err, AF_EFORMAT,
                        "%s: use_shared_attention_adapter, but num_key_value_heads %" PRId64
                        " and num_attention_heads %" PRId64 " do not divide %" PRId64 " alike",
                        s->name, c->num_key_value_heads, H, wide);
}

static void read_zamba2(af_config_source *s, af_hf_config *c)
{
    af_state_keys *k = &c->state;
    const int64_t width = af_config_mamba_width(s, c, "mamba_expand");
    k->conv_kernel = af_config_size(s, "mamba_d_conv", 4, 1, AF_STATE_KERNEL_MAX);
    k->key_dim = af_config_size(s, "mamba_d_state", 64, 1, AF_STATE_DIM_MAX);
    k->norm_groups = k->key_heads = af_config_size(s, "mamba_ngroups", 1, 1, AF_CONFIG_HEADS_MAX);
    k->heads = af_config_size(s, "n_mamba_heads", 8, 1, AF_CONFIG_HEADS_MAX);
    k->conv_bias = true;
    k->proj_bias = k->out_bias = c->mlp_bias = af_config_bool(s, "add_bias_linear", false);
    k->norm_eps = 1e-5;
    k->step_min = af_config_num(s, "time_step_min", 0.001);
    k->shared_blocks = af_config_size(s, "num_mem_blocks", 1, 1, AF_CONFIG_LAYERS_MAX);
    k->use_rank = af_config_size(s, "adapter_rank", 128, 1, AF_CONFIG_WIDTH_MAX);
    k->use_qkv = af_config_bool(s, "use_shared_attention_adapter", false);
    k->shared_rope = af_config_bool(s, "use_mem_rope", false);
    if (!(k->step_min >= 0) || k->step_min > 1e6)
        af_config_wrong(s, "time_step_min", "a number from 0 on");
    if (s->st == AF_OK && (k->heads % k->key_heads || width % k->heads ||
                           width / k->heads > AF_STATE_DIM_MAX || width % k->key_heads))
        s->st = af_fail(s->err, AF_EFORMAT,
                        "%s: n_mamba_heads %" PRId64 " and mamba_ngroups %" PRId64
                        " do not divide mamba_expand * hidden_size = %" PRId64,
                        s->name, k->heads, k->key_heads, width);
    k->head_dim = s->st == AF_OK ? width / k->heads : 1;
    if (!af_config_value(s, "intermediate_size"))
        c->intermediate_size = 4 * af_config_width(c);
    if (af_config_bool(s, "use_long_context", false))
        c->max_position_embeddings = 16384;
    zamba_layers(s, c);
    zamba_heads(s, c);
}

/* The same with experts, which llama.cpp gives another name. */
#define NEMOTRON_H(file)                                                                           \
    .gguf = file, .model_type = "nemotron_h", .act = "relu2", .eps = 1e-5, .theta = 1e4,           \
    .heads = 32, .kv_heads = 8, .head_dim = 128, .ffn = 21504,                                     \
    .kinds = {"layers_block_type", "hybrid_override_pattern"}, .sliding = AF_SLIDING_LISTED,       \
    .own_experts = true, .state_layers = true, .keys = read_nemotron_h

#define MAMBA1(type)                                                                               \
    {                                                                                              \
        .model_type = type, .gguf = "mamba", .act = "silu", .eps = 1e-5, .theta = 1e4, .heads = 1, \
        .kv_heads = 1, .ffn = 1, .sliding = AF_SLIDING_LISTED, .tied = true, .own_experts = true,  \
        .state_layers = true, .keys = read_mamba1                                                  \
    }

const af_family af_families_mamba[] = {
    {NEMOTRON_H("nemotron_h")},
    /* with experts, what llama.cpp calls it */
    {NEMOTRON_H("nemotron_h_moe")},
    {.model_type = "bamba",
     .gguf = "granitehybrid",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 0.5,
     .kv_heads = 8,
     .sliding = AF_SLIDING_LISTED,
     .pad = 1,
     .own_experts = true,
     .state_layers = true,
     .keys = read_bamba},
    {.model_type = "falcon_h1",
     .gguf = "falcon-h1",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 8,
     .sliding = AF_SLIDING_LISTED,
     .pad = 1,
     .own_experts = true,
     .state_layers = true,
     .keys = read_falcon_h1},
    {.model_type = "mamba2",
     .gguf = "mamba2",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .heads = 1,
     .kv_heads = 1,
     .ffn = 1,
     .sliding = AF_SLIDING_LISTED,
     .own_experts = true,
     .state_layers = true,
     .keys = read_mamba2},
    MAMBA1("mamba"),
    MAMBA1("falcon_mamba"),
    {.model_type = "jamba",
     .gguf = "jamba",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .kv_heads = 8,
     .sliding = AF_SLIDING_LISTED,
     .pad = 1,
     .own_experts = true,
     .state_layers = true,
     .keys = read_jamba},
    {.model_type = "zamba2",
     .act = "gelu",
     .eps = 1e-5,
     .theta = 1e4,
     .heads = 32,
     .ffn = 1,
     .kinds = {"layers_block_type"},
     .sliding = AF_SLIDING_LISTED,
     .tied = true,
     .pad = 1,
     .own_experts = true,
     .state_layers = true,
     .keys = read_zamba2},
    {0},
};
