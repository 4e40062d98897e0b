/* family_routed.c - families whose routers do more than a softmax, with ordinary attention:
 * gpt_oss, glm4_moe; and the router keys that they share with latent attention. */
#include "format/config/families/families.h"

#include <jansson.h>
#include <math.h>

/* The first layers have no experts. */
static void first_dense(af_config_source *s, af_hf_config *c, int64_t first)
{
    const int64_t n = AF_MIN(AF_MIN(first, c->num_hidden_layers), AF_CONFIG_LAYERS_MAX);
    int64_t *list = af_arena_take(&c->arena, (uint64_t)AF_MAX(n, 1) * sizeof *list);
    if (!list && s->st == AF_OK)
        s->st = af_fail_nomem(s->err, "a list of layers", (uint64_t)n * sizeof *list);
    for (int64_t i = 0; list && i < n; i++)
        list[i] = i;
    c->mlp_only_layers = list;
    c->mlp_only_count = list ? (int)AF_MAX(n, 0) : 0;
}

/* A mixture in the words of DeepSeek: n_routed_experts, n_group, first_k_dense_replace. */
void af_config_router_scale(af_config_source *s, af_hf_config *c, double absent)
{
    c->router.scale = af_config_num(s, "routed_scaling_factor", absent);
    if (!(c->router.scale > 0) || c->router.scale > 1e9)
        af_config_wrong(s, "routed_scaling_factor", "a positive number");
}

void af_config_deepseek_experts(af_config_source *s, af_hf_config *c, int experts, int used,
                                int ffn, int dense)
{
    af_router_keys *r = &c->router;
    c->num_experts = af_config_int(
        s, "n_routed_experts",
        af_config_int(s, "num_local_experts", af_config_int(s, "num_experts", experts)));
    c->num_experts_per_tok = af_config_int(s, "num_experts_per_tok", used);
    c->moe_intermediate_size =
        af_config_size(s, "moe_intermediate_size", ffn, 0, AF_CONFIG_WIDTH_MAX);
    c->decoder_sparse_step = 1;
    const int64_t first = af_config_size(s, "first_k_dense_replace", dense, 0, INT32_MAX);
    const int64_t shared = af_config_size(s, "n_shared_experts", 1, 0, AF_CONFIG_EXPERTS_MAX);
    r->shared_ffn = shared * c->moe_intermediate_size;
    af_config_router_scale(s, c, 1);
    r->groups = af_config_size(s, "n_group", 1, 0, AF_CONFIG_EXPERTS_MAX);
    r->groups_used = af_config_size(s, "topk_group", 1, 0, AF_CONFIG_EXPERTS_MAX);
    if (r->groups > 1 && (c->num_experts % r->groups || r->groups_used < 1 ||
                          r->groups_used > r->groups || c->num_experts / r->groups < 2))
        af_config_wrong(s, "n_group", "a number of equal groups of which topk_group are used");
    if (c->moe_intermediate_size < 0 || c->moe_intermediate_size > AF_CONFIG_WIDTH_MAX)
        af_config_wrong(s, "moe_intermediate_size", "a width");
    first_dense(s, c, first);
}

static void gpt_oss_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = c->attention_out_bias = af_config_bool(s, "attention_bias", true);
    c->num_experts = af_config_int(s, "num_local_experts", af_config_int(s, "num_experts", 128));
    c->num_experts_per_tok =
        af_config_int(s, "num_experts_per_tok", af_config_int(s, "experts_per_token", 4));
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true; /* a softmax over the chosen logits alone */
    c->output_router_logits = af_config_bool(s, "output_router_logits", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
    c->router.bias = c->router.expert_bias = true;
    c->router.clamp = af_config_num(s, "swiglu_limit", 7);
    if (!(c->router.clamp > 0) || c->router.clamp > 1e9)
        af_config_wrong(s, "swiglu_limit", "a positive number");
    if (af_config_num(s, "swiglu_alpha", 1.702) != 1.702)
        af_config_wrong(s, "swiglu_alpha", "1.702, the only one that is supported");
    if (!af_config_value(s, "rope_parameters") && !af_config_value(s, "rope_scaling"))
        c->rope = (af_rope_config){.type = AF_ROPE_YARN,
                                   .theta = c->rope.theta,
                                   .factor = 32,
                                   .beta_fast = 32,
                                   .beta_slow = 1,
                                   .partial_rotary_factor = 1,
                                   .original_max_position_embeddings = 4096};
}

static void glm4_moe_keys(af_config_source *s, af_hf_config *c)
{
    af_config_deepseek_experts(s, c, 128, 8, 1408, 1);
    c->attention_out_bias = false;
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    c->router.group_best = 2;
    c->qk_norm = af_config_bool(s, "use_qk_norm", false);
}

static void dots1_keys(af_config_source *s, af_hf_config *c)
{
    af_config_deepseek_experts(s, c, 0, 0, 1408, 0);
    c->max_window_layers = af_config_int(s, "max_window_layers", 62);
    if (!af_config_value(s, "n_shared_experts"))
        c->router.shared_ffn = 0;
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", false);
    c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    c->router.group_best = 2;
}

/* All layers have experts. */
static void solar_open_keys(af_config_source *s, af_hf_config *c)
{
    af_config_deepseek_experts(s, c, 128, 8, 1280, 0);
    c->mlp_only_count = 0;
    c->attention_out_bias = false;
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    c->router.group_best = 2;
}

static void exaone_moe_keys(af_config_source *s, af_hf_config *c)
{
    af_config_deepseek_experts(s, c, 64, 8, 1024, 1);
    af_config_mlp_types(s, c);
    c->router.shared_ffn = c->moe_intermediate_size *
                           af_config_size(s, "num_shared_experts", 1, 0, AF_CONFIG_EXPERTS_MAX);
    af_config_router_scale(s, c, 2.5);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    c->router.group_best = 2;
    af_config_exaone_windows(s, c);
}

/* Trinity: layers with windows have rope, full ones do not; muP scales the embedding. */
static void afmoe_keys(af_config_source *s, af_hf_config *c)
{
    c->num_experts = af_config_size(s, "num_experts", 64, 1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok = af_config_size(s, "num_experts_per_tok", 6, 1, AF_CONFIG_EXPERTS_MAX);
    c->moe_intermediate_size =
        af_config_size(s, "moe_intermediate_size", 1408, 1, AF_CONFIG_WIDTH_MAX);
    c->router.shared_ffn = c->moe_intermediate_size *
                           af_config_size(s, "num_shared_experts", 2, 0, AF_CONFIG_EXPERTS_MAX);
    c->router.scale = af_config_num(s, "route_scale", 1);
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    c->rope_sliding_only = true;
    c->sliding_window_pattern =
        af_config_size(s, "global_attn_every_n_layers", 4, 1, AF_CONFIG_LAYERS_MAX);
    if (af_config_bool(s, "mup_enabled", false))
        c->embedding_multiplier = sqrt((double)c->hidden_size);
    first_dense(s, c, af_config_size(s, "num_dense_layers", 1, 0, INT32_MAX));
}

/* Which layers have experts: moe_layers, or every interleave_moe_layer_step-th. */
static void llama4_layers(af_config_source *s, af_hf_config *c)
{
    const int64_t n = c->num_hidden_layers,
                  step = af_config_size(s, "interleave_moe_layer_step", 1, 1, AF_CONFIG_LAYERS_MAX);
    int listed = 0;
    const double *list = af_config_nums(s, &c->arena, "moe_layers", AF_CONFIG_LAYERS_MAX, &listed);
    c->decoder_sparse_step = step;
    if (!af_config_value(s, "moe_layers") || n < 1 || n > AF_CONFIG_LAYERS_MAX || s->st != AF_OK)
        return;
    int64_t *dense = af_arena_take(&c->arena, (uint64_t)n * sizeof *dense);
    if (!dense) {
        s->st = af_fail_nomem(s->err, "a list of layers", (uint64_t)n * sizeof *dense);
        return;
    }
    int count = 0;
    for (int64_t i = 0; i < n; i++) {
        bool sparse = false;
        for (int k = 0; k < listed; k++)
            sparse |= list[k] == (double)i;
        if (!sparse)
            dense[count++] = i;
    }
    c->decoder_sparse_step = 1;
    c->mlp_only_layers = dense;
    c->mlp_only_count = count;
}

/* Layers with rope see a chunk alone; the others see everything, their queries grow with the
 * position. */
static void llama4_keys(af_config_source *s, af_hf_config *c)
{
    const json_t *tuned = af_config_value(s, "attn_temperature_tuning"); /* early files: a number */
    const bool grows = json_is_integer(tuned) ? json_integer_value(tuned) != 0
                                              : af_config_bool(s, "attn_temperature_tuning", true);
    c->num_experts = af_config_size(s, "num_local_experts", 16, 1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok = af_config_size(s, "num_experts_per_tok", 1, 1, AF_CONFIG_EXPERTS_MAX);
    c->moe_intermediate_size = c->router.shared_ffn =
        AF_MIN(c->intermediate_size, AF_CONFIG_WIDTH_MAX);
    c->dense_ffn = af_config_size(s, "intermediate_size_mlp", 16384, 1, AF_CONFIG_WIDTH_MAX);
    llama4_layers(s, c);
    c->router.sigmoid = c->router.scale_input = true;
    c->mlp_bias = false;
    c->qk_norm = af_config_bool(s, "use_qk_norm", true);
    c->query_scaling_beta = grows ? af_config_num(s, "attn_scale", 0.1) : 0;
    c->query_scaling_length = af_config_size(s, "floor_scale", 8192, 1, INT32_MAX);
    if (!(c->query_scaling_beta >= 0 && c->query_scaling_beta < 1e6))
        af_config_wrong(s, "attn_scale", "a positive number in range");
    c->sliding_window =
        af_config_size(s, "attention_chunk_size",
                       af_config_given(s, "attention_chunk_size") ? 0 : 8192, 1, INT32_MAX);
}

/* Numbers and widths of experts with a shared one; `experts`, `chosen`: of absent keys. */
static void read_sizes(af_config_source *s, af_hf_config *c, int experts, int chosen)
{
    c->num_experts = af_config_size(
        s, af_config_value(s, "num_local_experts") ? "num_local_experts" : "num_experts", experts,
        1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok =
        af_config_size(s, "num_experts_per_tok", chosen, 1, AF_CONFIG_EXPERTS_MAX);
    c->moe_intermediate_size =
        af_config_size(s, "moe_intermediate_size", 512, 1, AF_CONFIG_WIDTH_MAX);
    c->router.shared_ffn =
        af_config_size(s, "shared_expert_intermediate_size", 512, 1, AF_CONFIG_WIDTH_MAX);
}

/* Layers with windows have a rope of their own; each layer may have its own heads. */
static void laguna_keys(af_config_source *s, af_hf_config *c)
{
    const json_t *gate = af_config_value(s, "gating");
    const char *kind = json_string_value(gate);
    c->attn_gate_heads = !gate || json_is_true(gate) || (kind && strcmp(kind, "per-head") == 0);
    if (!c->attn_gate_heads && !(kind && strcmp(kind, "per-element") == 0))
        af_config_wrong(s, "gating", "true, \"per-head\" or \"per-element\"");
    if (!af_config_value(s, "rope_parameters")) {
        c->rope.theta = 5e5;
        c->rope.partial_rotary_factor = 0.5;
    }
    c->layer_heads =
        af_config_value(s, "num_attention_heads_per_layer")
            ? af_config_per_layer(s, c, "num_attention_heads_per_layer", 1, AF_CONFIG_HEADS_MAX)
            : NULL;
    read_sizes(s, c, 256, 8);
    c->router.scale = af_config_num(s, "moe_routed_scaling_factor", 1);
    c->router.softcap = af_config_num(s, "moe_router_logit_softcapping", 0);
    if (!(c->router.softcap >= 0) || c->router.softcap > 1e9)
        af_config_wrong(s, "moe_router_logit_softcapping", "a positive number");
    c->output_router_logits = af_config_bool(s, "output_router_logits", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = c->router.sigmoid = c->router.choice_bias = true;
    first_dense(s, c, 1);
    af_config_mlp_types(s, c);
    if (af_config_bool(s, "moe_apply_router_weight_on_input", false))
        af_config_wrong(s, "moe_apply_router_weight_on_input", "false, as transformers asks");
}

static void hy_v3_keys(af_config_source *s, af_hf_config *c)
{
    af_config_deepseek_experts(s, c, 192, 8, 1536, 1);
    af_config_mlp_types(s, c);
    c->router.shared_ffn = c->moe_intermediate_size *
                           af_config_size(s, "num_shared_experts", 1, 1, AF_CONFIG_EXPERTS_MAX);
    c->router.scale = af_config_num(s, "router_scaling_factor", 2.826);
    c->router.groups = c->router.groups_used = 0;
    c->norm_topk_prob = c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    if (c->mlp_bias)
        af_config_wrong(s, "mlp_bias", "false, the one value this build knows with experts");
}

/* Every layer has experts; those that see everything have no rope. */
static void kolibri1_keys(af_config_source *s, af_hf_config *c)
{
    read_sizes(s, c, 384, 6);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", false);
    c->router.sigmoid = c->router.choice_bias = c->router.by_logit = true;
    c->decoder_sparse_step = 1;
    if (!c->layer_types && c->sliding_window <= 0)
        af_config_wrong(s, "sliding_window", "a number of tokens, and layers slide");
    af_config_exaone_windows(s, c);
}

/* Layer kinds where they are not listed: the first ones, without experts, have a pattern of their
 * own. */
static void cohere2_moe_layers(af_config_source *s, af_hf_config *c, int64_t dense, int64_t pattern)
{
    const int64_t n = c->num_hidden_layers, every = c->sliding_window_pattern;
    if (c->layer_types || n < 1 || n > AF_CONFIG_LAYERS_MAX || every < 1 || s->st != AF_OK)
        return;
    af_layer_type *types = af_arena_take(&c->arena, (uint64_t)n * sizeof *types);
    if (!types) {
        s->st = af_fail_nomem(s->err, "layer types", (uint64_t)n * sizeof *types);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const bool full = i < dense ? (i + 1) % pattern == 0 : (i - dense + 1) % every == 0;
        types[i] = full ? AF_LAYER_FULL : AF_LAYER_SLIDING;
    }
    c->layer_types = types;
}

static void cohere2_moe_keys(af_config_source *s, af_hf_config *c)
{
    const int64_t pattern =
        af_config_size(s, "prefix_dense_sliding_window_pattern", 1, 1, AF_CONFIG_LAYERS_MAX);
    const int64_t dense = af_config_size(s, "first_k_dense_replace", 0, 0, AF_CONFIG_LAYERS_MAX);
    const int64_t shared = af_config_size(s, "num_shared_experts", 0, 0, AF_CONFIG_EXPERTS_MAX);
    const char *choose = af_config_str(s, &c->arena, "expert_selection_fn", "softmax");
    const char *join = af_config_str(s, &c->arena, "shared_expert_combination_strategy", "average");
    cohere2_moe_layers(s, c, dense, pattern);
    c->num_experts = af_config_size(s, "num_experts", 8, 1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok = af_config_size(s, "num_experts_per_tok", 2, 1, AF_CONFIG_EXPERTS_MAX);
    c->decoder_sparse_step = 1;
    c->moe_intermediate_size = AF_MIN(c->intermediate_size, AF_CONFIG_WIDTH_MAX);
    c->dense_ffn = af_config_size(s, "prefix_dense_intermediate_size", c->intermediate_size, 1,
                                  AF_CONFIG_WIDTH_MAX);
    first_dense(s, c, dense);
    af_config_mlp_types(s, c);
    c->router.shared_ffn = shared * c->moe_intermediate_size;
    c->router.shared_mean = strcmp(join, "average") == 0;
    c->router.sigmoid = strcmp(choose, "sigmoid") == 0;
    c->norm_topk_prob = !c->router.sigmoid || af_config_bool(s, "norm_topk_prob", true);
    if (!c->router.sigmoid && strcmp(choose, "softmax") != 0)
        af_config_wrong(s, "expert_selection_fn", "softmax or sigmoid");
    if (!c->router.shared_mean && strcmp(join, "sum") != 0)
        af_config_wrong(s, "shared_expert_combination_strategy", "average or sum");
    c->rms_norm = af_config_value(s, "rms_norm_eps") != NULL;
    c->rope_sliding_only = true;
    c->rope_dense = pattern == 1;
    c->logit_scale = af_config_num(s, "logit_scale", 0.0625);
    if (!(c->logit_scale > 0) || c->logit_scale > 1e9)
        af_config_wrong(s, "logit_scale", "a positive number");
}

/* Keys of the published config that transformers does not read must say what it assumes. */
static void mimo_published(af_config_source *s, const af_hf_config *c)
{
    const int64_t kv = AF_MIN(AF_MAX(c->num_key_value_heads, 0), (int64_t)AF_CONFIG_HEADS_MAX);
    const struct {
        const char *key, *want;
        int64_t value;
    } same[] = {
        {"swa_num_attention_heads", "num_attention_heads", c->num_attention_heads},
        {"swa_num_key_value_heads", "twice num_key_value_heads", 2 * kv},
        {"swa_head_dim", "head_dim", c->head_dim},
        {"swa_v_head_dim", "v_head_dim", c->latent.v_dim},
    };
    for (size_t i = 0; i < AF_LEN(same); i++)
        if (af_config_int(s, same[i].key, same[i].value) != same[i].value)
            af_config_wrong(s, same[i].key, same[i].want);
    const json_t *list = af_config_value(s, "hybrid_layer_pattern");
    for (size_t i = 0; i < json_array_size(list) && (int64_t)i < c->num_hidden_layers; i++)
        if ((json_integer_value(json_array_get(list, i)) != 0) !=
            (c->layer_types[i] == AF_LAYER_SLIDING))
            af_config_wrong(s, "hybrid_layer_pattern", "1 where layer_types slide");
}

/* The first layer and every sixth see everything, unless they are listed. */
static void mimo_layers(af_config_source *s, af_hf_config *c)
{
    af_layer_type *types = c->layer_types ? NULL : af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++)
        types[i] = i == 0 || (i + 1) % 6 == 0 ? AF_LAYER_FULL : AF_LAYER_SLIDING;
    c->layer_types = types ? types : c->layer_types;
}

/* Layers with a window have a rotation of their own, sinks, and twice the kv heads. */
static void mimo_keys(af_config_source *s, af_hf_config *c)
{
    const json_t *ropes = af_config_value(s, "rope_parameters");
    af_config_deepseek_experts(s, c, 256, 8, 2048, 1);
    first_dense(s, c, 1);
    af_config_mlp_types(s, c);
    c->router.shared_ffn = 0;
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    c->router.group_best = 2;
    c->attention_out_bias = false;
    c->latent.v_dim = af_config_size(s, "v_head_dim", 128, 1, AF_CONFIG_WIDTH_MAX);
    if (c->latent.v_dim > c->head_dim)
        af_config_wrong(s, "v_head_dim", "at most head_dim");
    c->value_scale = af_config_num(s, "attention_value_scale",
                                   af_config_given(s, "attention_value_scale") ? 1 : 0.707);
    if (!(c->value_scale > 0) || c->value_scale > 1e9)
        af_config_wrong(s, "attention_value_scale", "a positive number");
    if (af_config_value(s, "sliding_window_size")) /* without the query itself */
        c->sliding_window = 1 + af_config_size(s, "sliding_window_size", 0, 0, INT32_MAX);
    if (!ropes) { /* rope_theta and partial_rotary_factor are not read */
        c->rope.theta = 5e6;
        c->local_rope.theta = 1e4;
        c->rope.partial_rotary_factor = c->local_rope.partial_rotary_factor = 0.334;
    } else if (!json_is_object(json_object_get(ropes, "full_attention")) ||
               !json_is_object(json_object_get(ropes, "sliding_attention"))) {
        af_config_wrong(s, "rope_parameters",
                        "one for full_attention and one for sliding_attention");
    }
    mimo_layers(s, c);
    if (c->layer_types)
        mimo_published(s, c);
}

const af_family af_families_routed[] = {
    {.model_type = "gpt_oss",
     .gguf = "gpt-oss",
     .act = "silu",
     .eps = 1e-5,
     .theta = 150000,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .vocab = 201088,
     .window = 128,
     .pattern = 2,
     .sliding = AF_SLIDING_PATTERN,
     .keys = gpt_oss_keys},
    {.model_type = "glm4_moe",
     .gguf = "glm4moe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 0.5,
     .keys = glm4_moe_keys},
    {.model_type = "dots1",
     .gguf = "dots1",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .window = 4096,
     .sliding = AF_SLIDING_ABOVE,
     .keys = dots1_keys},
    {.model_type = "solar_open",
     .gguf = "glm4moe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 128,
     .own_experts = true,
     .keys = solar_open_keys},
    {.model_type = "exaone_moe",
     .gguf = "exaone-moe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 32,
     .window = 4096,
     .pattern = 4,
     .sliding = AF_SLIDING_PATTERN,
     .pad = 1,
     .own_experts = true,
     .keys = exaone_moe_keys},
    {.model_type = "afmoe",
     .gguf = "afmoe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .heads = 16,
     .head_dim = 128,
     .window = 1024,
     .pattern = 4,
     .sliding = AF_SLIDING_PATTERN,
     .own_experts = true,
     .keys = afmoe_keys},
    {.model_type = "llama4_text",
     .gguf = "llama4",
     .act = "silu",
     .eps = 1e-5,
     .theta = 5e5,
     .kv_heads = 8,
     .head_dim = 128,
     .sliding = AF_SLIDING_TURNING,
     .own_experts = true,
     .keys = llama4_keys},
    {.model_type = "laguna",
     .gguf = "laguna",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .local_theta = 1e4,
     .kv_heads = 8,
     .head_dim = 128,
     .window = 512,
     .partial = 1,
     .ffn = 8192,
     .sliding = AF_SLIDING_LISTED,
     .own_experts = true,
     .keys = laguna_keys},
    {.model_type = "hy_v3",
     .gguf = "hy_v3",
     .act = "silu",
     .eps = 1e-5,
     .theta = 11158840,
     .kv_heads = 8,
     .head_dim = 128,
     .own_experts = true,
     .keys = hy_v3_keys},
    {.model_type = "kolibri1",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .heads = 48,
     .kv_heads = 4,
     .head_dim = 128,
     .vocab = 128000,
     .window = 513,
     .pattern = 5,
     .ffn = 512,
     .sliding = AF_SLIDING_PATTERN,
     .own_experts = true,
     .keys = kolibri1_keys},
    {.model_type = "cohere2_moe",
     .gguf = "cohere2moe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .head_dim = 128,
     .window = 4096,
     .pattern = 4,
     .sliding = AF_SLIDING_PATTERN,
     .tied = true,
     .pad = 1,
     .own_experts = true,
     .keys = cohere2_moe_keys},
    {.model_type = "mimo_v2_flash",
     .gguf = "mimo2",
     .act = "silu",
     .eps = 1e-5,
     .theta = 5e6,
     .local_theta = 1e4,
     .kv_heads = 4,
     .head_dim = 192,
     .window = 129,
     .partial = 0.334,
     .sliding = AF_SLIDING_LISTED,
     .own_experts = true,
     .keys = mimo_keys},
    {0},
};
