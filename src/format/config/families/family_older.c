/* family_older.c - families from before llama: LayerNorms, MLPs without a gate, and names of their
 * own. */
#include "format/config/families/families.h"

#include <jansson.h>
#include <math.h>

/* The exponent that slopes of ALiBi go down to, where no key says otherwise. */
static const double ALIBI_MAX = 8;

static void gpt_neox_keys(af_config_source *s, af_hf_config *c)
{
    const json_t *rope = af_config_ropes(s);
    c->attention_bias = c->attention_out_bias = af_config_bool(s, "attention_bias", true);
    c->use_parallel_residual = af_config_bool(s, "use_parallel_residual", true);
    c->padding_row = -1;
    c->num_key_value_heads = c->num_attention_heads;
    /* its own words; those of others outside of the set are not read */
    if (!json_object_get(rope, "partial_rotary_factor"))
        c->rope.partial_rotary_factor = af_config_num(s, "rotary_pct", 0.25);
    if (!json_object_get(rope, "rope_theta"))
        c->rope.theta = af_config_num(s, "rotary_emb_base", 1e4);
}

static void gpt_neox_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    char key[128];
    snprintf(key, sizeof key, "%.60s.use_parallel_residual", arch);
    c->use_parallel_residual = af_gguf_bool(g, key, true);
    c->attention_bias = c->attention_out_bias = af_gguf_find(g, "blk.0.attn_qkv.bias") != NULL;
}

/* Heads that share keys and values: as many as it says in newer models, all or none in others. */
static void falcon_keys(af_config_source *s, af_hf_config *c)
{
    const bool newer = af_config_bool(s, "new_decoder_architecture", false);
    const bool one = af_config_bool(s, "multi_query", true);
    const int64_t norms = af_config_size(s, "num_ln_in_parallel_attn", newer ? 2 : 1, 1, 2);
    c->padding_row = -1;
    c->num_key_value_heads =
        newer ? af_config_size(s, "num_kv_heads", c->num_attention_heads, 1, AF_CONFIG_HEADS_MAX)
        : one ? 1
              : c->num_attention_heads;
    c->intermediate_size = 4 * af_config_width(c);
    c->intermediate_size =
        af_config_size(s, "ffn_hidden_size", c->intermediate_size, 1, AF_CONFIG_WIDTH_MAX);
    c->attention_bias = c->attention_out_bias = c->mlp_bias = af_config_bool(s, "bias", false);
    c->use_parallel_residual = newer || af_config_bool(s, "parallel_attn", true);
    c->two_norms = newer && norms == 2;
    c->hidden_act = af_config_str(s, &c->arena, "activation", "gelu");
    c->alibi = af_config_bool(s, "alibi", false) ? ALIBI_MAX : 0;
    if (newer && !af_config_bool(s, "parallel_attn", true) && s->st == AF_OK)
        s->st =
            af_fail(s->err, AF_EUNSUPPORTED,
                    "%s: new_decoder_architecture without parallel_attn is not supported", s->name);
    if (!newer && norms == 2 && s->st == AF_OK)
        s->st = af_fail(s->err, AF_EUNSUPPORTED,
                        "%s: num_ln_in_parallel_attn 2 without new_decoder_architecture is not "
                        "supported",
                        s->name);
}

static void falcon_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    (void)arch;
    c->use_parallel_residual = true;
    c->two_norms = af_gguf_find(g, "blk.0.attn_norm_2.weight") != NULL;
}

/* What only one value of is known here. */
static void must_be(af_config_source *s, const char *key, bool want)
{
    if (af_config_bool(s, key, want) != want && s->st == AF_OK)
        s->st = af_fail(s->err, AF_EUNSUPPORTED, "%s: %s is %s, which is not supported", s->name,
                        key, want ? "false" : "true");
}

/* What gpt2 and its descendants share. */
static void gpt_keys(af_config_source *s, af_hf_config *c)
{
    c->padding_row = -1;
    c->num_key_value_heads = c->num_attention_heads;
    if (!af_config_value(s, "n_inner"))
        c->intermediate_size = 4 * af_config_width(c);
    c->hidden_act = af_config_str(s, &c->arena, "activation_function", c->hidden_act);
    must_be(s, "scale_attn_weights", true);
    must_be(s, "scale_attn_by_inverse_layer_idx", false);
    must_be(s, "add_cross_attention", false);
}

/* How many positions are learned where no key says so. */
static void positions(af_config_source *s, af_hf_config *c, int absent)
{
    if (!af_config_value(s, "n_positions") && !af_config_value(s, "max_position_embeddings"))
        c->max_position_embeddings = absent;
}

static void gpt2_keys(af_config_source *s, af_hf_config *c)
{
    gpt_keys(s, c);
    positions(s, c, 1024);
    c->attention_bias = c->attention_out_bias = c->mlp_bias = true;
}

static void gpt_bigcode_keys(af_config_source *s, af_hf_config *c)
{
    gpt2_keys(s, c);
    if (af_config_bool(s, "multi_query", true))
        c->num_key_value_heads = 1;
}

static void gpt2_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    (void)arch;
    c->attention_bias = c->attention_out_bias = af_gguf_find(g, "blk.0.attn_qkv.bias") != NULL;
}

/* attention_types, [[["global", "local"], 12]], as one kind for each layer. */
static void gpt_neo_layers(af_config_source *s, af_hf_config *c)
{
    const json_t *groups = af_config_value(s, "attention_types");
    const int64_t n = c->num_hidden_layers;
    if (n < 1 || n > AF_CONFIG_LAYERS_MAX || s->st != AF_OK)
        return;
    af_layer_type *types = af_arena_take(&c->arena, (uint64_t)n * sizeof *types);
    if (!types) {
        s->st = af_fail_nomem(s->err, "layer types", (uint64_t)n * sizeof *types);
        return;
    }
    int64_t at = 0;
    for (int64_t i = 0; !groups && i < n; i++)
        types[at++] = i % 2 ? AF_LAYER_SLIDING : AF_LAYER_FULL;
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *kinds = json_array_get(json_array_get(groups, i), 0);
        const json_int_t times = json_integer_value(json_array_get(json_array_get(groups, i), 1));
        const int64_t size = (int64_t)json_array_size(kinds);
        if (size < 1 || times < 1 || times > n || size * times > n - at) {
            at = -1;
            break;
        }
        for (int64_t k = 0; k < size * times; k++) {
            const char *kind = json_string_value(json_array_get(kinds, (size_t)(k % size)));
            const bool local = kind && strcmp(kind, "local") == 0;
            if (!local && !(kind && strcmp(kind, "global") == 0))
                af_config_wrong(s, "attention_types", "lists of \"global\" and \"local\"");
            types[at++] = local ? AF_LAYER_SLIDING : AF_LAYER_FULL;
        }
    }
    if (at != n)
        af_config_wrong(s, "attention_types", "a list that gives each layer its kind");
    c->layer_types = types;
}

/* Scores are not scaled, and every second layer sees the last window_size tokens alone. */
static void gpt_neo_keys(af_config_source *s, af_hf_config *c)
{
    c->padding_row = -1;
    c->num_key_value_heads = c->num_attention_heads;
    if (!af_config_value(s, "intermediate_size"))
        c->intermediate_size = 4 * af_config_width(c);
    c->hidden_act = af_config_str(s, &c->arena, "activation_function", c->hidden_act);
    c->sliding_window = af_config_size(s, "window_size", 256, 1, INT32_MAX);
    c->attention_bias = false;
    c->attention_out_bias = c->mlp_bias = true;
    gpt_neo_layers(s, c);
}

/* The first rotary_dim values of a head are rotated. */
static void gptj_keys(af_config_source *s, af_hf_config *c)
{
    const int64_t turned = af_config_size(s, "rotary_dim", 64, 2, AF_CONFIG_WIDTH_MAX);
    gpt_keys(s, c);
    if (c->num_attention_heads < 1 || c->hidden_size < 1)
        return; /* has its own message */
    const int64_t head = c->hidden_size / c->num_attention_heads;
    if (turned > head || turned % 2)
        af_config_wrong(s, "rotary_dim", "an even number up to the size of a head");
    c->rope.partial_rotary_factor = /* whole numbers again, once multiplied and cut */
        turned >= head ? 1 : ((double)turned + 0.01) / (double)head;
}

static void codegen_keys(af_config_source *s, af_hf_config *c)
{
    enum { GROUPS = 4 };
    gptj_keys(s, c);
    if (c->num_attention_heads % GROUPS)
        af_config_wrong(s, "n_head", "a multiple of 4");
}

static void opt_keys(af_config_source *s, af_hf_config *c)
{
    c->num_key_value_heads = c->num_attention_heads;
    c->hidden_act = af_config_str(s, &c->arena, "activation_function", c->hidden_act);
    c->rms_norm_eps = 1e-5;
    c->attention_bias = c->attention_out_bias = c->mlp_bias =
        af_config_bool(s, "enable_bias", true);
    c->norm_after = !af_config_bool(s, "do_layer_norm_before", true);
    c->no_final_norm = c->norm_after || af_config_bool(s, "_remove_final_layer_norm", false);
    c->embed_width = af_config_size(s, "word_embed_proj_dim", 0, 1, AF_CONFIG_WIDTH_MAX);
    c->norm_bare = !af_config_bool(s, "layer_norm_elementwise_affine", true);
    if (af_config_num(s, "layerdrop", 0) != 0)
        af_config_wrong(s, "layerdrop", "0, the one value this build trains with");
}

static void openai_keys(af_config_source *s, af_hf_config *c)
{
    c->padding_row = -1;
    positions(s, c, 512);
    c->num_key_value_heads = c->num_attention_heads;
    c->intermediate_size = 4 * af_config_width(c);
    c->hidden_act = af_config_str(s, &c->arena, "afn", "gelu");
    if (strcmp(c->hidden_act, "gelu") == 0)
        c->hidden_act = "gelu_new"; /* which the word means here */
    c->attention_bias = c->attention_out_bias = c->mlp_bias = true;
}

/* What biogpt and xglm share; `act`: their key of the activation. */
static void fairseq_keys(af_config_source *s, af_hf_config *c, const char *act)
{
    static const char *const none[] = {"layerdrop", "activation_dropout"};
    c->num_key_value_heads = c->num_attention_heads;
    c->hidden_act = af_config_str(s, &c->arena, act, c->hidden_act);
    c->rms_norm_eps = 1e-5;
    c->attention_bias = c->attention_out_bias = c->mlp_bias = true;
    if (af_config_bool(s, "scale_embedding", true))
        c->embedding_multiplier = (double)(float)sqrt((double)af_config_width(c));
    for (size_t i = 0; i < AF_LEN(none); i++)
        if (af_config_num(s, none[i], 0) != 0)
            af_config_wrong(s, none[i], "0, the one value this build trains with");
}

static void biogpt_keys(af_config_source *s, af_hf_config *c)
{
    fairseq_keys(s, c, "hidden_act");
    positions(s, c, 1024);
}

static void xglm_keys(af_config_source *s, af_hf_config *c)
{
    fairseq_keys(s, c, "activation_function");
    must_be(s, "add_cross_attention", false);
}

static void bloom_keys(af_config_source *s, af_hf_config *c)
{
    c->num_key_value_heads = c->num_attention_heads;
    c->intermediate_size = 4 * af_config_width(c);
    c->hidden_act = "gelu_pytorch_tanh";
    c->attention_bias = c->attention_out_bias = c->mlp_bias = true;
    c->alibi = ALIBI_MAX;
    c->head_dim = 0; /* never another than its share of the width */
    c->padding_row = -1;
    c->residual_normed = af_config_bool(s, "apply_residual_connection_post_layernorm", false);
}

static void bloom_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    (void)g, (void)arch;
    c->attention_bias = c->attention_out_bias = c->mlp_bias = true;
    c->alibi = ALIBI_MAX;
}

/* What attn_config has: MPT's own words. */
static void mpt_attention(af_config_source *s, af_hf_config *c)
{
    af_config_source in;
    if (!af_config_part(&in, s, "attn_config"))
        return;
    const char *type = af_config_str(&in, &c->arena, "attn_type", "multihead_attention");
    if (in.st == AF_OK && strcmp(type, "multihead_attention") != 0)
        af_config_wrong(&in, "attn_type", "multihead_attention, the one kind that is supported");
    c->alibi = af_config_num(&in, "alibi_bias_max", ALIBI_MAX);
    if (!(c->alibi > 0 && c->alibi <= 1000))
        af_config_wrong(&in, "alibi_bias_max", "between 0 and 1000");
    c->qkv_clip = af_config_num(&in, "clip_qkv", 0);
    if (!(c->qkv_clip >= 0 && c->qkv_clip < 1e9))
        af_config_wrong(&in, "clip_qkv", "a positive number");
    c->attention_multiplier = af_config_num(&in, "softmax_scale", 0);
    if (af_config_value(&in, "softmax_scale") &&
        !(c->attention_multiplier > 0 && c->attention_multiplier < 1e9))
        af_config_wrong(&in, "softmax_scale", "a positive number");
    if (af_config_num(&in, "attn_pdrop", 0) != 0)
        af_config_wrong(&in, "attn_pdrop", "0, the one value this build trains with");
    must_be(&in, "alibi", true);
    must_be(&in, "qk_ln", false);
    must_be(&in, "prefix_lm", false);
    s->st = in.st;
}

static void mpt_keys(af_config_source *s, af_hf_config *c)
{
    c->num_key_value_heads = c->num_attention_heads;
    c->intermediate_size = 4 * af_config_width(c);
    c->hidden_act = "gelu";
    c->alibi = ALIBI_MAX;
    c->head_dim = 0; /* never another than its share of the width */
    c->padding_row = -1;
    must_be(s, "no_bias", true);
    mpt_attention(s, c);
}

static void mpt_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    c->alibi = af_family_gguf_num(g, arch, "attention.max_alibi_bias", 0);
    c->qkv_clip = af_family_gguf_num(g, arch, "attention.clamp_kqv", 0);
}

static void persimmon_keys(af_config_source *s, af_hf_config *c)
{
    c->num_key_value_heads = c->num_attention_heads;
    c->attention_bias = c->attention_out_bias = c->mlp_bias = true;
    c->qk_norm = af_config_bool(s, "qk_layernorm", true);
}

static const char *const modernbert_words[][2] = {
    {"rms_norm_eps", "norm_eps"},
    {"rope_theta", "global_rope_theta"},
    {"rope_local_base_freq", "local_rope_theta"},
    {"sliding_window_pattern", "global_attn_every_n_layers"},
    {0}};

/* Ettin's decoders. local_attention counts keys on both sides, as ModernBERT has it. */
static void modernbert_keys(af_config_source *s, af_hf_config *c)
{
    c->num_key_value_heads = c->num_attention_heads;
    c->head_dim = 0; /* never another than its share of the width */
    c->mlp_bias = false;
    c->sliding_window = af_config_size(s, "local_attention", 128, 2, INT32_MAX) / 2;
    must_be(s, "norm_bias", false);
    must_be(s, "mlp_bias", false);
    must_be(s, "classifier_bias", false);
    must_be(s, "decoder_bias", true);
    const char *act = af_config_str(s, &c->arena, "classifier_activation", "gelu");
    if (s->st == AF_OK && strcmp(act, c->hidden_act) != 0)
        af_config_wrong(s, "classifier_activation", "the same as hidden_activation");
}

#define GPT_WORDS                                                                                  \
    {                                                                                              \
        "n_embd", "n_layer", "n_head", "n_positions", "n_inner"                                    \
    }

const af_family af_families_older[] = {
    {.model_type = "gpt2",
     .gguf = "gpt2",
     .act = "gelu_new",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 768,
     .tied = true,
     .words = GPT_WORDS,
     .keys = gpt2_keys,
     .gguf_keys = gpt2_gguf},
    {.model_type = "gpt_bigcode",
     .gguf = "starcoder",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 768,
     .tied = true,
     .words = GPT_WORDS,
     .keys = gpt_bigcode_keys,
     .gguf_keys = gpt2_gguf},
    {.model_type = "gpt_neo",
     .act = "gelu_new",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 2048,
     .sliding = AF_SLIDING_LISTED,
     .tied = true,
     .words = {NULL, "num_layers", "num_heads"},
     .keys = gpt_neo_keys},
    {.model_type = "gptj",
     .act = "gelu_new",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 4096,
     .partial = 1,
     .words = GPT_WORDS,
     .keys = gptj_keys},
    {.model_type = "codegen",
     .act = "gelu_new",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 4096,
     .partial = 1,
     .words = GPT_WORDS,
     .keys = codegen_keys},
    {.model_type = "opt",
     .act = "relu",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 3072,
     .tied = true,
     .pad = 2,
     .words = {NULL, NULL, NULL, NULL, "ffn_dim"},
     .keys = opt_keys},
    {.model_type = "openai-gpt",
     .act = "gelu_new",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 768,
     .tied = true,
     .words = {"n_embd", "n_layer", "n_head", "n_positions"},
     .keys = openai_keys},
    {.model_type = "biogpt",
     .act = "gelu",
     .eps = 1e-5,
     .theta = 1e4,
     .tied = true,
     .pad = 1 + 1,
     .keys = biogpt_keys},
    {.model_type = "xglm",
     .act = "gelu",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4096,
     .tied = true,
     .pad = 1 + 1,
     .words = {"d_model", "num_layers", "attention_heads", NULL, "ffn_dim"},
     .keys = xglm_keys},
    {.model_type = "bloom",
     .gguf = "bloom",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 64,
     .tied = true,
     .words = {"n_embed", "n_layer", "n_head", "seq_length"},
     .keys = bloom_keys,
     .gguf_keys = bloom_gguf},
    {.model_type = "mpt",
     .gguf = "mpt",
     .act = "gelu",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 2048,
     .tied = true,
     .words = {"d_model", "n_layers", "n_heads", "max_seq_len"},
     .keys = mpt_keys,
     .gguf_keys = mpt_gguf},
    {.model_type = "persimmon",
     .act = "relu2",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 0.5,
     .keys = persimmon_keys},
    {.model_type = "modernbert-decoder",
     .act = "gelu",
     .eps = 1e-5,
     .theta = 160000,
     .local_theta = 1e4,
     .window = 64,
     .pattern = 3,
     .sliding = AF_SLIDING_BUT_FIRST,
     .tied = true,
     .pad = 50283 + 1,
     .alias = modernbert_words,
     .keys = modernbert_keys},
    {.model_type = "gpt_neox",
     .gguf = "gptneox",
     .act = "gelu",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 0.25,
     .keys = gpt_neox_keys,
     .gguf_keys = gpt_neox_gguf},
    {.model_type = "falcon",
     .gguf = "falcon",
     .act = "gelu",
     .eps = 1e-5,
     .theta = 1e4,
     .ffn = 4 * 4544,
     .tied = true,
     .keys = falcon_keys,
     .gguf_keys = falcon_gguf},
    {0},
};
