/* family_latent.c - families with latent attention. */
#include "format/config/families/families.h"

#include <jansson.h>
#include <math.h>

/* Sizes of latent attention; `lora`, `nope`, `rope`, `v`: what transformers assumes. */
static void latent_keys(af_config_source *s, af_hf_config *c, int lora, int nope, int rope, int v)
{
    af_latent_keys *l = &c->latent;
    const int64_t most = AF_CONFIG_WIDTH_MAX;
    /* null means one projection, absent the usual rank */
    l->q_lora_rank =
        af_config_given(s, "q_lora_rank") ? af_config_size(s, "q_lora_rank", 0, 1, most) : lora;
    l->kv_lora_rank = af_config_size(s, "kv_lora_rank", 512, 1, most);
    l->qk_nope_dim = af_config_size(s, "qk_nope_head_dim", nope, 1, most);
    l->qk_rope_dim = af_config_size(s, "qk_rope_head_dim", rope, 2, most);
    l->v_dim = af_config_size(s, "v_head_dim", v, 1, most);
    if (s->st == AF_OK && l->v_dim > l->qk_nope_dim + l->qk_rope_dim)
        af_config_wrong(s, "v_head_dim", "at most qk_nope_head_dim + qk_rope_head_dim");
    if (s->st == AF_OK && l->qk_rope_dim % 2)
        af_config_wrong(s, "qk_rope_head_dim", "an even number");
    c->head_dim = l->qk_nope_dim + l->qk_rope_dim;
    c->num_key_value_heads = c->num_attention_heads;
    if (c->rope.type != AF_ROPE_PROPORTIONAL)
        c->rope.partial_rotary_factor = 1; /* of the rotated part, which has its own size */
    c->attention_out_bias = c->attention_bias;
}

/* Sigmoid, a bias for the choice, groups by their two best. */
static void sigmoid_router(af_config_source *s, af_hf_config *c)
{
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    c->router.group_best = 2;
    c->latent.rope_halves = !af_config_bool(s, "rope_interleave", true);
}

static void glm4_moe_lite_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 768, 192, 64, 256);
    af_config_deepseek_experts(s, c, 64, 4, 1536, 1);
    sigmoid_router(s, c);
    af_config_mlp_types(s, c);
}

void af_config_deepseek_defaults(af_config_source *s, af_hf_config *c)
{
    if (!af_config_given(s, "n_group"))
        c->router.groups = 8;
    if (!af_config_given(s, "topk_group"))
        c->router.groups_used = 4;
    af_config_router_scale(s, c, 2.5);
}

static void deepseek_v3_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 1536, 128, 64, 128);
    af_config_deepseek_experts(s, c, 256, 8, 2048, 3);
    af_config_deepseek_defaults(s, c);
    sigmoid_router(s, c);
}

/* Of families whose queries always come through a low rank. */
static void need_q_rank(af_config_source *s, const af_hf_config *c)
{
    if (s->st == AF_OK && c->latent.q_lora_rank < 1)
        af_config_wrong(s, "q_lora_rank", "a rank; this family has no queries without one");
}

/* mlp_layer_types, or all layers but the first have experts. */
static void every_layer(af_config_source *s, af_hf_config *c)
{
    af_config_mlp_types(s, c);
    if (!af_config_value(s, "mlp_layer_types") && af_config_int(s, "moe_layer_freq", 1) != 1)
        af_config_wrong(s, "moe_layer_freq", "1, or mlp_layer_types");
}

static void axk1_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 1536, 128, 64, 128);
    need_q_rank(s, c);
    af_config_deepseek_experts(s, c, 192, 8, 2048, 1);
    af_config_deepseek_defaults(s, c);
    sigmoid_router(s, c);
    every_layer(s, c);
}

/* The indexer of sparse attention; MLPs have no biases whatever mlp_bias says. */
static void indexer_keys(af_config_source *s, af_hf_config *c, int heads)
{
    af_latent_keys *l = &c->latent;
    need_q_rank(s, c);
    l->index_topk = af_config_size(s, "index_topk", 2048, 1, INT32_MAX);
    l->index_heads = af_config_size(s, "index_n_heads", heads, 1, AF_CONFIG_HEADS_MAX);
    l->index_dim = af_config_size(s, "index_head_dim", 128, 1, AF_CONFIG_WIDTH_MAX);
    if (s->st == AF_OK && l->index_dim < l->qk_rope_dim)
        af_config_wrong(s, "index_head_dim", "at least qk_rope_head_dim");
    l->rope_halves = c->mlp_bias = false;
}

/* Gates of norms and of what attention gives. */
static void axk2_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 384, 64, 32, 64);
    if (!af_config_given(s, "kv_lora_rank"))
        c->latent.kv_lora_rank = 128;
    af_config_deepseek_experts(s, c, 128, 8, 512, 1);
    af_config_router_scale(s, c, 2.5);
    if (c->router.groups > 1)
        af_config_wrong(s, "n_group", "null or 1: experts of other groups count as 0 there");
    sigmoid_router(s, c);
    every_layer(s, c);
    indexer_keys(s, c, 16);
    c->latent.out_gate = true;
    c->latent.norm_gate = af_config_size(s, "gated_norm_rank", 16, 1, AF_CONFIG_WIDTH_MAX);
}

static void deepseek_v32_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 1536, 128, 64, 128);
    af_config_deepseek_experts(s, c, 256, 8, 2048, 3);
    af_config_deepseek_defaults(s, c);
    sigmoid_router(s, c);
    af_config_mlp_types(s, c);
    indexer_keys(s, c, 64);
}

/* Whether layer i uses the choice of an earlier one: by a list, by letters, or by a schedule. */
static bool is_shared(af_config_source *s, int64_t i)
{
    const json_t *types = af_config_value(s, "indexer_types");
    const char *key = types ? "indexer_types" : "index_topk_pattern";
    types = types ? types : af_config_value(s, key);
    if (!types) {
        const int64_t every = af_config_size(s, "index_topk_freq", 1, 0, INT32_MAX),
                      offset = af_config_size(s, "index_skip_topk_offset", 2, 0, INT32_MAX);
        return AF_MAX(i - offset + 1, 0) % AF_MAX(every, 1) != 0;
    }
    const char *letters = json_string_value(types),
               *one = json_string_value(json_array_get(types, (size_t)i));
    if (letters && (size_t)i < json_string_length(types))
        one = letters[i] == 'F' ? "full" : letters[i] == 'S' ? "shared" : NULL;
    const bool shared = one && strcmp(one, "shared") == 0;
    if (!one || (!shared && strcmp(one, "full") != 0) || (shared && i == 0))
        af_config_wrong(s, key, "\"full\" or \"shared\" for each layer, beginning with \"full\"");
    return shared;
}

static void glm_moe_dsa_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 2048, 192, 64, 256);
    af_config_deepseek_experts(s, c, 256, 8, 2048, 3);
    af_config_router_scale(s, c, 2.5);
    sigmoid_router(s, c);
    af_config_mlp_types(s, c);
    indexer_keys(s, c, 32);
    const int64_t n = c->num_hidden_layers;
    if (n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return; /* has its own message */
    bool *shared = af_arena_take(&c->arena, (uint64_t)n * sizeof *shared);
    if (!shared && s->st == AF_OK)
        s->st = af_fail_nomem(s->err, "indexer_types", (uint64_t)n * sizeof *shared);
    for (int64_t i = 0; shared && s->st == AF_OK && i < n; i++)
        shared[i] = is_shared(s, i);
    c->latent.index_shared = shared;
}

void af_config_deepseek_v2_experts(af_config_source *s, af_hf_config *c)
{
    af_config_deepseek_experts(s, c, 64, 0, 1407, 0);
    if (!af_config_given(s, "n_shared_experts"))
        c->router.shared_ffn = 2 * c->moe_intermediate_size;
    const char *method = af_config_str(s, &c->arena, "topk_method", "greedy");
    c->norm_topk_prob = false;
    c->router.group_best = 1;
    if (strcmp(method, "greedy") == 0)
        c->router.groups = 0;
    else if (strcmp(method, "group_limited_greedy") != 0)
        af_config_wrong(s, "topk_method", "greedy or group_limited_greedy");
}

static void deepseek_v2_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 1536, 128, 64, 128);
    af_config_deepseek_v2_experts(s, c);
}

/* Each of its layers is two here: attention and an MLP twice, and a mixture across them. */
static void longcat_layers(af_config_source *s, af_hf_config *c)
{
    const int64_t n = c->num_hidden_layers;
    if (!af_config_value(s, "num_layers") && n % 2)
        af_config_wrong(s, "num_hidden_layers", "an even number: a layer has two attentions");
    else if (af_config_value(s, "num_layers") && n >= 0 && n <= AF_CONFIG_LAYERS_MAX) {
        c->num_hidden_layers = 2 * n;
        if (af_config_int(s, "num_hidden_layers", 2 * n) != 2 * n)
            af_config_wrong(s, "num_hidden_layers", "twice num_layers");
    }
}

static void longcat_flash_keys(af_config_source *s, af_hf_config *c)
{
    af_router_keys *r = &c->router;
    const int64_t X = AF_CONFIG_EXPERTS_MAX, wide = AF_CONFIG_WIDTH_MAX;
    latent_keys(s, c, 1536, 128, 64, 128);
    need_q_rank(s, c);
    longcat_layers(s, c);
    c->num_experts = af_config_size(
        s, af_config_value(s, "num_local_experts") ? "num_local_experts" : "n_routed_experts", 512,
        1, X);
    c->num_experts_per_tok = af_config_size(
        s, af_config_value(s, "num_experts_per_tok") ? "num_experts_per_tok" : "moe_topk", 12, 1,
        X);
    c->moe_intermediate_size =
        af_config_size(s,
                       af_config_value(s, "moe_intermediate_size") ? "moe_intermediate_size"
                                                                   : "expert_ffn_hidden_size",
                       2048, 1, wide);
    r->identity = af_config_given(s, "zero_expert_num")
                      ? af_config_size(s, "zero_expert_num", 0, 0, X - c->num_experts)
                      : 256;
    af_config_router_scale(s, c, 6);
    r->choice_bias = true;
    c->decoder_sparse_step = 1;
    if (s->st == AF_OK)
        c->latent.kv_scale = sqrt((double)c->hidden_size / (double)c->latent.kv_lora_rank);
    if (af_config_bool(s, "router_bias", false))
        af_config_wrong(s, "router_bias", "false: transformers has no effect of such a bias");
    if (strcmp(af_config_str(s, &c->arena, "zero_expert_type", "identity"), "identity") != 0)
        af_config_wrong(s, "zero_expert_type", "identity");
    if (af_config_int(s, "qk_head_dim", c->head_dim) != c->head_dim)
        af_config_wrong(s, "qk_head_dim", "qk_nope_head_dim + qk_rope_head_dim");
    if (af_config_int(s, "head_dim", c->latent.qk_rope_dim) != c->latent.qk_rope_dim)
        af_config_wrong(s, "head_dim", "qk_rope_head_dim");
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "mla_scale_kv_lora" : "mla_scale_q_lora";
        if (!af_config_bool(s, key, true))
            af_config_wrong(s, key, "true, as transformers computes");
    }
}

/* Latent attention alone. */
static void youtu_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 1536, 128, 64, 128);
    c->latent.rope_halves = !af_config_bool(s, "rope_interleave", true);
}

/* A softmax router over groups, and queries that grow with the position. */
static void mistral4_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 1024, 64, 64, 128);
    if (!af_config_given(s, "kv_lora_rank"))
        c->latent.kv_lora_rank = 256;
    af_config_deepseek_experts(s, c, 128, 4, 2048, 0);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    c->router.eps = 1e-20;
    c->router.group_best = 2;
    c->latent.rope_halves = !af_config_bool(s, "rope_interleave", true);
    if (!af_config_value(s, "rope_parameters") && !af_config_value(s, "rope_scaling")) {
        c->rope.type = AF_ROPE_YARN;
        c->rope.factor = 128;
        c->rope.original_max_position_embeddings = 8192;
        c->rope.mscale = c->rope.mscale_all_dim = 1;
        c->query_scaling_beta = 0.1;
        return;
    }
    af_config_query_scaling(s, c);
}

void af_config_minicpm_scales(af_config_source *s, af_hf_config *c, double embed, double depth,
                              int base)
{
    const double root = sqrt((double)AF_MAX(c->num_hidden_layers, 1));
    const int64_t width = af_config_size(
        s, "dim_model_base", af_config_given(s, "dim_model_base") ? c->hidden_size : base, 1,
        AF_CONFIG_WIDTH_MAX);
    c->embedding_multiplier = af_config_num(s, "scale_emb", embed);
    c->residual_multiplier =
        af_config_num(s, "scale_depth", af_config_given(s, "scale_depth") ? root : depth) / root;
    c->logits_scaling = (double)c->hidden_size / (double)AF_MAX(width, 1);
}

static void minicpm3_keys(af_config_source *s, af_hf_config *c)
{
    const int64_t heads = AF_MAX(c->num_attention_heads, 1);
    latent_keys(s, c, 768, 64, 32, (int)AF_MIN(c->hidden_size / heads, AF_CONFIG_WIDTH_MAX));
    if (!af_config_given(s, "kv_lora_rank"))
        c->latent.kv_lora_rank = 256;
    c->latent.rope_halves = true;
    af_config_minicpm_scales(s, c, 12, 1.4, 256);
}

/* full_attn_layers and kda_layers: numbers of layers from 1 on. */
static void kimi_layers(af_config_source *s, af_hf_config *c, af_layer_type *types)
{
    static const char *const lists[] = {"full_attn_layers", "kda_layers"};
    const int64_t n = c->num_hidden_layers;
    int64_t listed = 0;
    if (!types || !af_config_value(s, lists[0]) || !af_config_value(s, lists[1]))
        return;
    for (int64_t i = 0; i < n; i++)
        types[i] = AF_LAYER_SLIDING; /* in none of them yet */
    for (int k = 0; k < 2; k++) {
        int count = 0;
        const double *list = af_config_nums(s, &c->arena, lists[k], AF_CONFIG_LAYERS_MAX, &count);
        for (int i = 0; i < count; i++) {
            if (!(list[i] >= 1) || list[i] > (double)n || list[i] != floor(list[i])) {
                af_config_wrong(s, lists[k], "a list of layer numbers from 1 on");
                return;
            }
            af_layer_type *type = &types[(int64_t)list[i] - 1];
            listed += *type == AF_LAYER_SLIDING;
            *type = k ? AF_LAYER_LINEAR : AF_LAYER_FULL;
        }
    }
    if (listed != n)
        af_config_wrong(s, "kda_layers", "the list of all layers that full_attn_layers lacks");
}

/* Kimi delta attention has as many heads and channels of keys as of values. The head is not tied,
 * whatever a key says. */
static void kda_sizes(af_config_source *s, af_hf_config *c, int64_t rank)
{
    af_state_keys *k = &c->state;
    k->key_heads = k->heads;
    k->key_dim = k->head_dim;
    k->gate_rank = rank;
    k->channels = k->apart = true;
    c->tie_word_embeddings = false;
    af_config_only_silu(s, c, "hidden_act", "delta nets");
}

/* Kimi delta attention: sizes and kinds of layers, which files may have in a part of their own. */
static void kimi_state(af_config_source *s, af_hf_config *c)
{
    af_state_keys *k = &c->state;
    af_config_source part;
    k->heads = af_config_size(s, "linear_num_heads", 32, 1, AF_CONFIG_HEADS_MAX);
    k->head_dim = af_config_size(s, "linear_head_dim", 128, 1, AF_STATE_DIM_MAX);
    k->conv_kernel = af_config_size(s, "linear_conv_kernel_dim", 4, 1, AF_STATE_KERNEL_MAX);
    af_layer_type *types = c->layer_types ? NULL : af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++)
        types[i] = i > 0 && i % 4 == 0 ? AF_LAYER_FULL : AF_LAYER_LINEAR;
    if (af_config_part(&part, s, "linear_attn_config")) {
        k->heads = af_config_size(&part, "num_heads", k->heads, 1, AF_CONFIG_HEADS_MAX);
        k->head_dim = af_config_size(&part, "head_dim", k->head_dim, 1, AF_STATE_DIM_MAX);
        k->conv_kernel =
            af_config_size(&part, "short_conv_kernel_size", k->conv_kernel, 1, AF_STATE_KERNEL_MAX);
        kimi_layers(&part, c, types);
        s->st = s->st == AF_OK ? part.st : s->st;
    }
    c->layer_types = types ? types : c->layer_types;
    kda_sizes(s, c, k->head_dim);
}

static void kimi_linear_keys(af_config_source *s, af_hf_config *c)
{
    latent_keys(s, c, 0, 128, 64, 128);
    af_config_deepseek_experts(s, c, 256, 8, 1024, 1);
    sigmoid_router(s, c);
    af_config_router_scale(s, c, 2.446);
    af_config_mlp_types(s, c);
    kimi_state(s, c);
    c->rope.type = AF_ROPE_DEFAULT;
    af_config_no_ropes(s, c);
}

/* Ling 3: a gate for each head of latent attention, and decays with a bound. */
static void bailing_keys(af_config_source *s, af_hf_config *c)
{
    af_state_keys *k = &c->state;
    const int64_t heads = AF_MIN(AF_MAX(c->num_attention_heads, 1), AF_CONFIG_HEADS_MAX),
                  dim = af_config_size(s, "head_dim", 128, 1, AF_STATE_DIM_MAX),
                  taps = af_config_size(s, "short_conv_kernel_size", 4, 1, AF_STATE_KERNEL_MAX),
                  every = af_config_size(s, "layer_group_size", 6, 1, AF_CONFIG_LAYERS_MAX);
    latent_keys(s, c, 0, 128, 64, 128);
    c->latent.q_lora_rank = 0;
    af_config_deepseek_experts(s, c, 512, 8, 768, 2);
    af_config_deepseek_defaults(s, c);
    sigmoid_router(s, c);
    c->latent.rope_halves = false;
    af_config_mlp_types(s, c);
    k->heads = af_config_size(s, "linear_num_heads", heads, 1, AF_CONFIG_HEADS_MAX);
    k->head_dim = af_config_size(s, "linear_head_dim", dim, 1, AF_STATE_DIM_MAX);
    k->conv_kernel = af_config_size(s, "linear_conv_kernel_dim", taps, 1, AF_STATE_KERNEL_MAX);
    kda_sizes(s, c, 0);
    const double bound = af_config_num(s, "kda_lower_bound", -5);
    k->decay_bound = af_config_bool(s, "kda_safe_gate", true) ? bound : 0;
    if (!(bound < 0) || bound < -1e4)
        af_config_wrong(s, "kda_lower_bound", "a number below 0");
    af_layer_type *types = c->layer_types ? NULL : af_config_take_types(s, c);
    for (int64_t i = 0; types && i < c->num_hidden_layers; i++)
        types[i] = (i + 1) % every ? AF_LAYER_LINEAR : AF_LAYER_FULL;
    c->layer_types = types ? types : c->layer_types;
}

/* What transformers calls keys of kimi_linear and bailing_hybrid as it writes them. */
static const char *const kimi_words[][2] = {{"max_position_embeddings", "model_max_length"},
                                            {"norm_topk_prob", "moe_renormalize"},
                                            {"n_group", "num_expert_group"},
                                            {"num_local_experts", "num_experts"},
                                            {"num_experts_per_tok", "num_experts_per_token"},
                                            {"n_shared_experts", "num_shared_experts"},
                                            {NULL, NULL}};

const af_family af_families_latent[] = {
    {.model_type = "glm4_moe_lite",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .keys = glm4_moe_lite_keys},
    {.model_type = "deepseek_v2",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .keys = deepseek_v2_keys},
    {.model_type = "deepseek_v3",
     .gguf = "deepseek2", /* also of the others; see hf_config_gguf.c */
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .keys = deepseek_v3_keys},
    {.model_type = "kimi_k2", /* DeepSeek V3, with the modules of its own code */
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .keys = deepseek_v3_keys},
    {.model_type = "axk1",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .own_experts = true,
     .keys = axk1_keys},
    {.model_type = "axk2",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .own_experts = true,
     .keys = axk2_keys},
    {.model_type = "deepseek_v32",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .own_experts = true,
     .keys = deepseek_v32_keys},
    {.model_type = "glm_moe_dsa",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .own_experts = true,
     .keys = glm_moe_dsa_keys},
    {.model_type = "longcat_flash",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e7,
     .words = {NULL, "num_layers", NULL, NULL, "ffn_hidden_size"},
     .own_experts = true,
     .keys = longcat_flash_keys},
    {.model_type = "youtu",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .tied = true,
     .keys = youtu_keys},
    {.model_type = "minicpm3",
     .gguf = "minicpm3",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .tied = true,
     .keys = minicpm3_keys},
    {.model_type = "mistral4",
     .gguf = "mistral4",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .pad = 12,
     .own_experts = true,
     .keys = mistral4_keys},
    {.model_type = "kimi_linear",
     .gguf = "kimi-linear",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .pad = 163840,
     .sliding = AF_SLIDING_LISTED,
     .own_experts = true,
     .state_layers = true,
     .alias = kimi_words,
     .keys = kimi_linear_keys},
    {.model_type = "bailing_hybrid",
     .gguf = "bailingmoe3",
     .act = "silu",
     .eps = 1e-6,
     .theta = 6e6,
     .pad = 156893,
     .sliding = AF_SLIDING_LISTED,
     .own_experts = true,
     .state_layers = true,
     .alias = kimi_words,
     .keys = bailing_keys},
    {0},
};
