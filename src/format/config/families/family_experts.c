/* family_experts.c - families with experts and ordinary attention. */
#include "format/config/families/families.h"

#include <jansson.h>
#include <math.h>

/* The general reader knows the names of qwen3_moe. */
void af_config_mixture(af_config_source *s, af_hf_config *c, const char *key, int64_t count,
                       int64_t used)
{
    c->num_experts = af_config_size(s, key, count, 1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok =
        af_config_size(s, "num_experts_per_tok", used, 1, AF_CONFIG_EXPERTS_MAX);
    c->output_router_logits = af_config_bool(s, "output_router_logits", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
}

/* All layers have experts, as wide as the MLP of mistral. */
static void mixtral(af_config_source *s, af_hf_config *c)
{
    af_config_mixture(s, c, af_config_value(s, "num_experts") ? "num_experts" : "num_local_experts",
                      8, 2);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true;
}

static void olmoe(af_config_source *s, af_hf_config *c)
{
    af_config_mixture(s, c, "num_experts", 64, 8);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.01);
    c->qkv_clip = af_config_clip(s);
}

static void dbrx_attention(af_config_source *s, af_hf_config *c)
{
    af_config_source in;
    c->num_key_value_heads = 1;
    if (!af_config_part(&in, s, "attn_config"))
        return;
    c->num_key_value_heads = af_config_size(&in, "kv_n_heads", 1, 1, AF_CONFIG_HEADS_MAX);
    c->qkv_clip = af_config_clip(&in);
    if (!af_config_value(s, "rope_parameters") && !af_config_value(s, "rope_theta"))
        c->rope.theta = af_config_num(&in, "rope_theta", c->rope.theta); /* as on the hub */
    if (af_config_num(&in, "attn_pdrop", 0) != 0)
        af_config_wrong(&in, "attn_pdrop", "0, the one value this build trains with");
    s->st = in.st;
}

/* Keys in attn_config and ffn_config. */
static void dbrx(af_config_source *s, af_hf_config *c)
{
    af_config_source in, act;
    c->rms_norm_eps = 1e-5;
    c->head_dim = 0;
    c->attention_bias = c->attention_out_bias = c->mlp_bias = false;
    c->decoder_sparse_step = 1;
    dbrx_attention(s, c);
    c->output_router_logits = af_config_bool(s, "output_router_logits", false);
    (void)af_config_part(&in, s,
                         "ffn_config"); /* the numbers of an absent one are the defaults below */
    if (s->st != AF_OK)
        return;
    c->num_experts = af_config_size(&in, "moe_num_experts", 4, 1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok = af_config_size(&in, "moe_top_k", 1, 1, AF_CONFIG_EXPERTS_MAX);
    c->intermediate_size = c->moe_intermediate_size =
        af_config_size(&in, "ffn_hidden_size", 3584, 1, AF_CONFIG_WIDTH_MAX);
    c->norm_topk_prob = af_config_value(&in, "moe_normalize_expert_weights") ||
                        !af_config_given(&in, "moe_normalize_expert_weights");
    c->router_aux_loss_coef = af_config_num(&in, "moe_loss_weight", 0.01);
    if (af_config_num(&in, "moe_normalize_expert_weights", 1) != 1)
        af_config_wrong(&in, "moe_normalize_expert_weights", "1 or null");
    if (af_config_num(&in, "moe_jitter_eps", 0) != 0)
        af_config_wrong(&in, "moe_jitter_eps", "0, the one value this build trains with");
    if (af_config_part(&act, &in, "ffn_act_fn"))
        c->hidden_act = af_config_str(&act, &c->arena, "name", "silu");
    s->st = in.st != AF_OK ? in.st : act.st;
}

static void dbrx_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    c->qkv_clip = af_family_gguf_num(g, arch, "attention.clamp_kqv", 0);
}

static void qwen2_moe(af_config_source *s, af_hf_config *c)
{
    af_config_mixture(
        s, c, af_config_value(s, "num_local_experts") ? "num_local_experts" : "num_experts", 60, 4);
    c->moe_intermediate_size = af_config_int(s, "moe_intermediate_size", 1408);
    c->decoder_sparse_step = af_config_int(s, "decoder_sparse_step", 1);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", false);
    c->attention_bias = af_config_bool(s, "qkv_bias", true);
    c->router.shared_ffn =
        af_config_size(s, "shared_expert_intermediate_size", 5632, 1, AF_CONFIG_WIDTH_MAX);
    c->router.shared_gate = true;
}

/* As wide as the MLP of granite, and one every token sees where it has a width. */
static void granitemoe(af_config_source *s, af_hf_config *c)
{
    af_config_mixture(s, c, "num_local_experts", 8, 2);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true; /* a softmax over the chosen ones is the same */
    c->router.shared_ffn = af_config_size(s, "shared_intermediate_size", 0, 0, AF_CONFIG_WIDTH_MAX);
}

static void granitemoe_swa(af_config_source *s, af_hf_config *c)
{
    granitemoe(s, c);
    af_config_layer_thetas(s, c);
}

/* A mixture of heads, of which each expert has as many as there are for keys. */
static void jetmoe(af_config_source *s, af_hf_config *c)
{
    af_config_mixture(s, c, "num_local_experts", 8, 2);
    c->router_aux_loss_coef = af_config_num(s, "aux_loss_coef", 0.01);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true;
    c->head_dim = af_config_size(s, "kv_channels", 128, 1, AF_CONFIG_WIDTH_MAX);
    c->hidden_act = af_config_str(s, &c->arena, "activation_function", "silu");
    if (c->num_key_value_heads > 0 && c->num_key_value_heads <= AF_CONFIG_WIDTH_MAX)
        c->num_attention_heads = c->num_key_value_heads * c->num_experts_per_tok;
}

/* Of all layers: one number, or a list of equal ones. */
static int64_t same_in_all(af_config_source *s, af_arena *arena, const char *key, int64_t absent)
{
    if (!json_is_array(af_config_value(s, key)))
        return af_config_size(s, key, absent, 1, AF_CONFIG_EXPERTS_MAX);
    int n = 0;
    const double *list = af_config_nums(s, arena, key, AF_CONFIG_LAYERS_MAX, &n);
    for (int i = 0; list && i < n; i++)
        if (!(list[i] >= 1 && list[i] <= AF_CONFIG_EXPERTS_MAX) || list[i] != list[0])
            af_config_wrong(s, key, "the same number for all layers");
    return list && n > 0 && s->st == AF_OK ? (int64_t)list[0] : absent;
}

static void hunyuan_v1_moe(af_config_source *s, af_hf_config *c)
{
    af_config_hunyuan_rope(s, c);
    c->num_experts = same_in_all(s, &c->arena, "num_experts", 1);
    c->num_experts_per_tok = same_in_all(s, &c->arena, "moe_topk", 1);
    c->moe_intermediate_size = c->router.shared_ffn = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true;
}

/* Experts in every `moe_layer_interval`-th layer of a range. */
static void ernie_layers(af_config_source *s, af_hf_config *c)
{
    const int64_t n = c->num_hidden_layers, most = AF_CONFIG_LAYERS_MAX;
    const int64_t first = af_config_size(s, "moe_layer_start_index", 1, 0, INT32_MAX);
    const int64_t end = af_config_int(s, "moe_layer_end_index", -1);
    c->decoder_sparse_step = af_config_size(s, "moe_layer_interval", 1, 1, most);
    if (n < 1 || n > most)
        return; /* has its own message */
    int64_t *dense = af_arena_take(&c->arena, (uint64_t)n * sizeof *dense);
    if (!dense) {
        s->st = s->st == AF_OK ? af_fail_nomem(s->err, "a list of layers", (uint64_t)n * 8) : s->st;
        return;
    }
    c->mlp_only_layers = dense;
    for (int64_t i = 0; i < n; i++)
        if (i < first || (end != -1 && i > end))
            dense[c->mlp_only_count++] = i;
}

/* A size, or that of text in a list where images have their own. */
static int64_t size_of_text(af_config_source *s, af_hf_config *c, const char *key, int absent,
                            int64_t max)
{
    int n = 0;
    if (!json_is_array(af_config_value(s, key)))
        return af_config_size(s, key, absent, 1, max);
    const double *list = af_config_nums(s, &c->arena, key, 2, &n);
    if (s->st != AF_OK)
        return absent;
    if (n < 1 || !(list[0] >= 1 && list[0] <= (double)max) || list[0] != floor(list[0])) {
        af_config_wrong(s, key, "a size, or a list of sizes of text and images");
        return absent;
    }
    return (int64_t)list[0];
}

static void ernie4_5_moe(af_config_source *s, af_hf_config *c)
{
    c->num_experts = size_of_text(s, c, "moe_num_experts", 64, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok = af_config_size(s, "moe_k", 6, 1, AF_CONFIG_EXPERTS_MAX);
    c->moe_intermediate_size =
        size_of_text(s, c, "moe_intermediate_size", 1536, AF_CONFIG_WIDTH_MAX);
    c->router.shared_ffn = c->moe_intermediate_size *
                           af_config_size(s, "moe_num_shared_experts", 2, 0, AF_CONFIG_EXPERTS_MAX);
    ernie_layers(s, c);
    af_config_mlp_types(s, c);
    c->norm_topk_prob = c->router.choice_bias = true;
    c->output_router_logits = af_config_bool(s, "output_router_logits", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
    const double least = af_config_num(s, "moe_norm_min", 1e-12);
    if (!(least >= 0 && least <= 1e-6)) /* beyond, it would cut weights */
        af_config_wrong(s, "moe_norm_min", "between 0 and 1e-6");
    if (af_config_bool(s, "use_bias", false) && s->st == AF_OK)
        s->st = af_fail(s->err, AF_EUNSUPPORTED,
                        "%s: use_bias is true, which is not supported with experts", s->name);
}

/* All layers have experts, and some that every token sees; a softmax over the chosen ones. */
static void aria(af_config_source *s, af_hf_config *c)
{
    c->num_experts = af_config_size(s, "moe_num_experts", 8, 1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok = af_config_size(s, "moe_topk", 2, 1, AF_CONFIG_EXPERTS_MAX);
    c->moe_intermediate_size = AF_MIN(AF_MAX(c->intermediate_size, 0), AF_CONFIG_WIDTH_MAX);
    c->router.shared_ffn = c->moe_intermediate_size *
                           af_config_size(s, "moe_num_shared_experts", 2, 1, AF_CONFIG_EXPERTS_MAX);
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = true;
    const bool silu = strcmp(c->hidden_act, "silu") == 0 || strcmp(c->hidden_act, "swish") == 0;
    if (s->st == AF_OK && (c->mlp_bias || !silu))
        s->st = af_fail(s->err, AF_EUNSUPPORTED,
                        "%s: shared experts of aria are supported with silu and without biases, "
                        "not with hidden_act '%.64s' and mlp_bias %s",
                        s->name, c->hidden_act, c->mlp_bias ? "true" : "false");
}

static void flex_olmo(af_config_source *s, af_hf_config *c)
{
    olmoe(s, c);
    c->num_experts = af_config_size(s, "num_experts", 7, 1, AF_CONFIG_EXPERTS_MAX);
    c->num_experts_per_tok = af_config_size(s, "num_experts_per_tok", 5, 1, AF_CONFIG_EXPERTS_MAX);
}

static void mellum(af_config_source *s, af_hf_config *c)
{
    af_config_mixture(
        s, c, af_config_value(s, "num_local_experts") ? "num_local_experts" : "num_experts", 64, 8);
    c->moe_intermediate_size =
        af_config_size(s, "moe_intermediate_size", 896, 1, AF_CONFIG_WIDTH_MAX);
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    af_config_mlp_types(s, c);
}

/* A factor for short texts and one for long ones: those that are published are equal. */
static void phimoe_rope(af_config_source *s, af_hf_config *c)
{
    const json_t *rope = af_config_value(s, "rope_parameters");
    af_config_source in = af_config_inner(s, rope ? rope : af_config_value(s, "rope_scaling"));
    if (c->rope.type == AF_ROPE_DEFAULT || !json_is_object(in.obj))
        return;
    const double near = af_config_num(&in, "short_mscale", 0),
                 far = af_config_num(&in, "long_mscale", 0);
    s->st = in.st;
    if (near != far || !(near > 0))
        af_config_wrong(s, "short_mscale", "a positive number that long_mscale is, too");
    c->rope.attention_factor = near;
}

/* Experts of the sparse mixer, which always takes two. */
static void phimoe(af_config_source *s, af_hf_config *c)
{
    af_config_mixture(s, c, "num_local_experts", 16, 2);
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->router.near = true;
    c->router.eps = 2 * af_config_num(s, "router_jitter_noise", 0.01);
    c->head_bias = af_config_bool(s, "lm_head_bias", false);
    if (!(c->router.eps >= 0 && c->router.eps <= 1e6))
        af_config_wrong(s, "router_jitter_noise", "between 0 and 5e5");
    if (c->num_experts_per_tok != 2)
        af_config_wrong(s, "num_experts_per_tok", "2, as many as the sparse mixer takes");
    phimoe_rope(s, c);
}

/* The first two layers, every fourth and the last one see everything, and keep no positions. */
static void flint_layers(af_config_source *s, af_hf_config *c)
{
    af_layer_type *types = c->layer_types ? NULL : af_config_take_types(s, c);
    const int64_t n = c->num_hidden_layers;
    for (int64_t i = 0; types && i < n; i++)
        types[i] = i < 2 || i % 4 == 1 || i == n - 1 ? AF_LAYER_FULL : AF_LAYER_SLIDING;
    c->layer_types = types ? types : c->layer_types;
}

static void flint(af_config_source *s, af_hf_config *c)
{
    static const int64_t first[] = {0, 1};
    int n = 0;
    const double *list = af_config_nums(s, &c->arena, "mlp_only_layers", AF_CONFIG_LAYERS_MAX, &n);
    af_config_mixture(s, c,
                      af_config_value(s, "num_local_experts") ? "num_local_experts" : "num_experts",
                      256, 6);
    c->moe_intermediate_size =
        af_config_size(s, "moe_intermediate_size", 512, 1, AF_CONFIG_WIDTH_MAX);
    c->router.shared_ffn =
        af_config_size(s, "shared_expert_intermediate_size", 1024, 1, AF_CONFIG_WIDTH_MAX);
    c->decoder_sparse_step = af_config_size(s, "decoder_sparse_step", 1, 1, AF_CONFIG_LAYERS_MAX);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", true);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.0005);
    c->router.sigmoid = c->rope_sliding_only = true;
    int64_t *dense = af_arena_take(&c->arena, (uint64_t)AF_MAX(n, 1) * sizeof *dense);
    for (int i = 0; dense && list && i < n; i++)
        dense[i] = list[i] >= 0 && list[i] < AF_CONFIG_LAYERS_MAX ? (int64_t)list[i] : -1;
    const bool given = af_config_value(s, "mlp_only_layers") != NULL;
    c->mlp_only_layers = given ? dense : first;
    c->mlp_only_count = given ? (dense ? n : 0) : (int)AF_LEN(first);
    flint_layers(s, c);
}

const af_family af_families_experts[] = {
    {.model_type = "qwen3_moe",
     .gguf = "qwen3moe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .sliding = AF_SLIDING_SWITCHED},
    {.model_type = "qwen2_moe",
     .gguf = "qwen2moe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .sliding = AF_SLIDING_UPPER,
     .keys = qwen2_moe},
    {.model_type = "olmoe",
     .gguf = "olmoe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .keys = olmoe},
    {.model_type = "mixtral",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .kv_heads = 8,
     .sliding = AF_SLIDING_ALL,
     .keys = mixtral},
    {.model_type = "phimoe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e6,
     .kv_heads = 8,
     .sliding = AF_SLIDING_ALL,
     .own_experts = true,
     .keys = phimoe},
    {.model_type = "granitemoe",
     .gguf = "granitemoe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .own_experts = true,
     .keys = granitemoe},
    {.model_type = "jetmoe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .heads = 32,
     .kv_heads = 16,
     .ffn = 5632,
     .tied = true,
     .own_experts = true,
     .keys = jetmoe},
    {.model_type = "granitemoeshared",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .own_experts = true,
     .keys = granitemoe},
    {.model_type = "aria_text",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .heads = 32,
     .vocab = 32000,
     .ffn = 4096,
     .pad = 3,
     .own_experts = true,
     .keys = aria},
    {.model_type = "dbrx",
     .gguf = "dbrx",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 3584,
     .words = {"d_model", "n_layers", "n_heads", "max_seq_len"},
     .own_experts = true,
     .keys = dbrx,
     .gguf_keys = dbrx_gguf},
    {.model_type = "granitemoe_swa",
     .gguf = "granite_swa",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .window = 128,
     .pattern = 4,
     .sliding = AF_SLIDING_BUT_FIRST,
     .own_experts = true,
     .keys = granitemoe_swa},
    {.model_type = "hunyuan_v1_moe",
     .gguf = "hunyuan-moe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .pad = 1,
     .own_experts = true,
     .keys = hunyuan_v1_moe},
    {.model_type = "ernie4_5_moe",
     .gguf = "ernie4_5-moe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 5e5,
     .kv_heads = 4,
     .tied = true,
     .pad = 1,
     .own_experts = true,
     .keys = ernie4_5_moe},
    {.model_type = "ernie4_5_vl_moe_text",
     .act = "silu",
     .eps = 1e-5,
     .theta = 5e5,
     .kv_heads = 4,
     .tied = true,
     .own_experts = true,
     .keys = ernie4_5_moe},
    {.model_type = "flex_olmo",
     .act = "silu",
     .eps = 1e-6,
     .theta = 5e5,
     .pad = 100278,
     .own_experts = true,
     .keys = flex_olmo},
    {.model_type = "mellum",
     .gguf = "mellum",
     .act = "silu",
     .eps = 1e-6,
     .theta = 5e5,
     .local_theta = 1e4,
     .kv_heads = 4,
     .head_dim = 128,
     .partial = 1,
     .window = 1024,
     .sliding = AF_SLIDING_LISTED,
     .own_experts = true,
     .keys = mellum},
    {.model_type = "flint",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .kv_heads = 4,
     .head_dim = 128,
     .ffn = 6144,
     .window = 513,
     .sliding = AF_SLIDING_LISTED,
     .own_experts = true,
     .keys = flint},
    {0},
};
