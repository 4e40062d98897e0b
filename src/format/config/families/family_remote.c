/* family_remote.c - families whose code lies in their own repositories, not in transformers. */
#include "format/config/families/families.h"

#include "base/log.h"

#include <jansson.h>
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

/* A softmax over all experts; of the first layers none has any. */
static void softmax_router(af_config_source *s, af_hf_config *c, const char *shared, bool norm)
{
    c->router.shared_ffn =
        c->moe_intermediate_size * af_config_size(s, shared, 0, 0, AF_CONFIG_EXPERTS_MAX);
    c->router.groups = c->router.groups_used = 0;
    c->router.scale = 1;
    c->router.eps = 1e-20;
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", norm) && c->num_experts_per_tok > 1;
}

/* Also deepseek_v2 without latent attention, as text models of DeepSeek-OCR and -VL2 are. */
static void deepseek_keys(af_config_source *s, af_hf_config *c)
{
    af_config_deepseek_experts(s, c, 0, 0, 1407, 0);
    const char *method = af_config_str(s, &c->arena, "topk_method", "greedy");
    if (s->st == AF_OK && strcmp(method, "greedy") != 0)
        af_config_wrong(s, "topk_method", "greedy");
    if (af_config_num(s, "routed_scaling_factor", 1) != 1)
        af_config_wrong(s, "routed_scaling_factor", "1");
    softmax_router(s, c, "n_shared_experts", false);
    if (af_config_int(s, "moe_layer_freq", 1) != 1)
        af_config_wrong(s, "moe_layer_freq", "1");
    const char *scores = af_config_str(s, &c->arena, "scoring_func", "softmax");
    if (s->st == AF_OK && strcmp(scores, "softmax") != 0)
        af_config_wrong(s, "scoring_func", "softmax");
}

/* What both kinds of Ling have. */
static void bailing(af_config_source *s, af_hf_config *c)
{
    af_config_deepseek_experts(s, c, 16, 2, 0, 0);
    c->attention_bias = af_config_bool(s, "use_qkv_bias", false);
    c->mlp_bias = false;
    if (af_config_bool(s, "norm_head", false))
        af_config_wrong(s, "norm_head", "false, the one value this build trains with");
    if (af_config_bool(s, "multi_gate", false))
        af_config_wrong(s, "multi_gate", "false, the one value this build trains with");
}

static void bailing_moe_keys(af_config_source *s, af_hf_config *c)
{
    bailing(s, c);
    softmax_router(s, c, "num_shared_experts", true);
    c->attention_out_bias = false;
    if (af_config_bool(s, "use_bias", true))
        af_config_wrong(s, "use_bias", "false: biases of experts are not supported");
}

static void bailing_moe_v2_keys(af_config_source *s, af_hf_config *c)
{
    af_router_keys *r = &c->router;
    bailing(s, c);
    af_config_deepseek_defaults(s, c);
    r->shared_ffn = c->moe_intermediate_size *
                    af_config_size(s, "num_shared_experts", 0, 0, AF_CONFIG_EXPERTS_MAX);
    r->sigmoid = r->choice_bias = true;
    r->eps = 1e-20;
    r->group_best = 2;
    c->norm_topk_prob = c->num_experts_per_tok > 1;
    c->attention_out_bias = af_config_bool(s, "use_bias", true);
    c->qk_norm = af_config_bool(s, "use_qk_norm", true);
}

/* Models with ALiBi have model_max_length alone; those of the second version another vocabulary,
 * and a weight for the size of logits, which is 0. */
static void baichuan_keys(af_config_source *s, af_hf_config *c)
{
    enum { VOCAB_2 = 125696 };
    c->num_key_value_heads = c->num_attention_heads;
    c->head_dim = 0; /* hidden_size / num_attention_heads, whatever a key says */
    c->alibi = af_config_value(s, "max_position_embeddings") ? 0 : 8;
    c->max_position_embeddings =
        af_config_int(s, c->alibi > 0 ? "model_max_length" : "max_position_embeddings", 4096);
    c->head_normed = c->vocab_size == VOCAB_2 || af_config_value(s, "z_loss_weight");
    if (af_config_num(s, "z_loss_weight", 0) != 0)
        af_config_wrong(s, "z_loss_weight", "0, the one value this build trains with");
}

/* llama.cpp takes ALiBi for models of 40 layers; rows of a head have length 1 in a file. */
static void baichuan_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    (void)g, (void)arch;
    c->alibi = c->num_hidden_layers == AF_BAICHUAN_ALIBI_LAYERS ? 8 : 0;
}

static void need(af_config_source *s, const char *key, bool value)
{
    if (af_config_bool(s, key, value) != value)
        af_config_wrong(s, key, value ? "true" : "false");
}

/* ChatGLM 2 and 3, and GLM-4 before transformers had it. */
static void chatglm_keys(af_config_source *s, af_hf_config *c)
{
    const double ratio = af_config_num(s, "rope_ratio", 1);
    c->vocab_size = af_config_int(s, "padded_vocab_size", c->vocab_size);
    c->head_dim = af_config_int(s, "kv_channels", 128);
    c->num_key_value_heads = af_config_int(s, "multi_query_group_num", 1);
    c->rms_norm_eps = af_config_num(s, "layernorm_epsilon", 1e-5);
    c->attention_bias = af_config_bool(s, "add_qkv_bias", false);
    c->attention_out_bias = c->mlp_bias = false;
    c->rope.theta *= ratio;
    c->padding_row = -1; /* all rows of the embedding are trained */
    if (s->st == AF_OK && !(ratio > 0 && ratio < 1e9))
        af_config_wrong(s, "rope_ratio", "a positive number in range");
    if (!af_config_bool(s, "multi_query_attention", false))
        af_config_wrong(s, "multi_query_attention", "true, as in ChatGLM 2 and later ones");
    need(s, "rmsnorm", true);
    need(s, "post_layer_norm", true);
    need(s, "add_bias_linear", false);
    need(s, "apply_residual_connection_post_layernorm", false);
    if (af_config_value(s, "pre_seq_len"))
        af_config_wrong(s, "pre_seq_len", "null: learned prefixes are not supported");
}

/* One half of a block of nemotron-nas: whether it is there. */
static bool half_there(af_config_source *half)
{
    const bool none = af_config_bool(half, "no_op", false);
    if (!none && af_config_bool(half, "replace_with_linear", false))
        af_config_wrong(half, "replace_with_linear", "false: such blocks are not supported");
    if (af_config_value(half, "window_length"))
        af_config_wrong(half, "window_length", "null: windows of this family are not supported");
    if (af_config_value(half, "num_sink_tokens"))
        af_config_wrong(half, "num_sink_tokens", "null: sinks of this family are not supported");
    return !none;
}

static int64_t heads_in_group(af_config_source *attention, int64_t heads)
{
    const int64_t group = af_config_int(attention, "n_heads_in_group", 0);
    if (group < 1 || group > heads || heads % group)
        af_config_wrong(attention, "n_heads_in_group", "a part of num_attention_heads");
    return AF_MAX(group, 1);
}

/* The width of an MLP, as its code has it: a multiple of 256. */
static int64_t nas_width(af_config_source *ffn, const af_hf_config *c)
{
    const double mult = af_config_num(ffn, "ffn_mult", 0);
    const double width = 2 * mult * (double)c->hidden_size / 3;
    if (!(mult > 0 && width >= 1 && width < AF_CONFIG_WIDTH_MAX)) {
        af_config_wrong(ffn, "ffn_mult", "a positive number in range");
        return 1;
    }
    return ((int64_t)width + 255) / 256 * 256;
}

/* Layers have their own number of kv heads and width of the MLP, or lack one of the two: 0. */
static void nas_keys(af_config_source *s, af_hf_config *c)
{
    const json_t *blocks = af_config_value(s, "block_configs");
    const int64_t n = c->num_hidden_layers, heads = c->num_attention_heads;
    if (n < 1 || n > AF_CONFIG_LAYERS_MAX || heads < 1)
        return; /* has its own message */
    if (!json_is_array(blocks) || json_array_size(blocks) != (size_t)n) {
        af_config_wrong(s, "block_configs", "a list with one entry per layer");
        return;
    }
    int64_t *kv = af_arena_take(&c->arena, 2 * (uint64_t)n * sizeof *kv);
    if (!kv) {
        s->st = af_fail_nomem(s->err, "block_configs", 2 * (uint64_t)n * sizeof *kv);
        return;
    }
    int64_t *ffn = kv + n;
    for (int64_t i = 0; i < n && s->st == AF_OK; i++) {
        af_config_source block = af_config_inner(s, json_array_get(blocks, (size_t)i)), half;
        kv[i] = ffn[i] = 0;
        if (af_config_part(&half, &block, "attention") && half_there(&half))
            kv[i] = heads / heads_in_group(&half, heads);
        block.st = block.st == AF_OK ? half.st : block.st;
        if (af_config_part(&half, &block, "ffn") && half_there(&half))
            ffn[i] = nas_width(&half, c);
        s->st = block.st == AF_OK ? half.st : block.st;
        if (s->st == AF_OK && !kv[i] && !ffn[i])
            af_config_wrong(s, "block_configs", "a list of blocks with attention or an MLP");
        c->intermediate_size = AF_MAX(c->intermediate_size, ffn[i]);
    }
    c->num_key_value_heads = heads;
    c->per_layer.kv_heads = kv;
    c->per_layer.ffn = ffn;
}

const af_family af_families_remote[] = {
    {.model_type = "nemotron-nas",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .ffn = 1,
     .keys = nas_keys},
    {.model_type = "internlm2",
     .gguf = "internlm2",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .pad = 1,
     .keys = internlm2_keys,
     .gguf_keys = internlm2_gguf},
    {.model_type = "internlm",
     .same = "llama",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .pad = 1,
     .keys = internlm2_keys},
    {.model_type = "PanguEmbedded",
     .same = "llama",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .pad = 1,
     .keys = internlm2_keys},
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
    {.model_type = "deepseek",
     .gguf = "deepseek",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .own_experts = true,
     .keys = deepseek_keys},
    {.model_type = "bailing_moe",
     .gguf = "bailingmoe",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .pad = 126082,
     .own_experts = true,
     .keys = bailing_moe_keys},
    {.model_type = "bailing_moe_v2",
     .gguf = "bailingmoe2",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 1,
     .pad = 126082,
     .own_experts = true,
     .keys = bailing_moe_v2_keys},
    {.model_type = "baichuan",
     .gguf = "baichuan",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .pad = 1,
     .keys = baichuan_keys,
     .gguf_keys = baichuan_gguf},
    {.model_type = "chatglm",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .vocab = 65024,
     .partial = 0.5,
     .words = {NULL, "num_layers", NULL, "seq_length", "ffn_hidden_size"},
     .keys = chatglm_keys},
    {0},
};
