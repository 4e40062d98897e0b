/* hf_config.c - config.json, in the spellings of transformers 4 and 5; see hf_config.h. */
#include "format/config/hf_config.h"

#include "format/config/config_source.h"
#include "format/config/hf_config_check.h"
#include "format/text/json_text.h"

#include <jansson.h>
#include <math.h>

static void get_rope_type(af_config_source *s, af_rope_config *r)
{
    const json_t *j = af_config_value(s, "rope_type");
    j = j ? j : af_config_value(s, "type");
    if (!j)
        return;
    const char *type = json_string_value(j);
    if (!type) {
        af_config_wrong(s, "rope_type", "a string");
        return;
    }
    if (strcmp(type, "su") == 0) /* the first name of longrope */
        type = "longrope";
    /* of text, all its positions are the same */
    if (strcmp(type, "mrope") == 0 && af_config_value(s, "mrope_section"))
        type = "default";
    for (int t = 0; t <= AF_ROPE_PROPORTIONAL; t++)
        if (strcmp(type, af_rope_type_name((af_rope_type)t)) == 0) {
            r->type = (af_rope_type)t;
            return;
        }
    if (s->st == AF_OK)
        s->st = af_fail(s->err, AF_EUNSUPPORTED, "%s: unknown rope type '%.64s'", s->name, type);
}

/* The keys of rope_scaling or rope_parameters over what `r` already has. */
static void get_rope(af_config_source *s, const json_t *obj, af_arena *arena, af_rope_config *r)
{
    af_config_source in = af_config_inner(s, obj);
    get_rope_type(&in, r);
    r->theta = af_config_num(&in, "rope_theta", r->theta);
    if (!af_config_value(&in, "factor") &&
        (r->type == AF_ROPE_LINEAR || r->type == AF_ROPE_DYNAMIC || r->type == AF_ROPE_YARN ||
         r->type == AF_ROPE_LLAMA3))
        af_config_wrong(&in, "factor of the rope scaling", "there");
    r->factor = af_config_num(&in, "factor", r->factor);
    r->low_freq_factor = af_config_num(&in, "low_freq_factor", r->low_freq_factor);
    r->high_freq_factor = af_config_num(&in, "high_freq_factor", r->high_freq_factor);
    r->original_max_position_embeddings =
        af_config_int(&in, "original_max_position_embeddings", r->original_max_position_embeddings);
    if (r->original_max_position_embeddings < 0)
        af_config_wrong(&in, "original_max_position_embeddings", "a positive number");
    r->attention_factor = af_config_num(&in, "attention_factor", r->attention_factor);
    r->beta_fast = af_config_num(&in, "beta_fast", r->beta_fast);
    r->beta_slow = af_config_num(&in, "beta_slow", r->beta_slow);
    r->mscale = af_config_num(&in, "mscale", r->mscale);
    r->mscale_all_dim = af_config_num(&in, "mscale_all_dim", r->mscale_all_dim);
    r->truncate = af_config_bool(&in, "truncate", r->truncate);
    r->partial_rotary_factor =
        af_config_num(&in, "partial_rotary_factor", r->partial_rotary_factor);
    const int max = AF_CONFIG_ROPE_FACTORS_MAX;
    r->short_factor = af_config_nums(&in, arena, "short_factor", max, &r->short_count);
    r->long_factor = af_config_nums(&in, arena, "long_factor", max, &r->long_count);
    if (r->type == AF_ROPE_LONGROPE && !af_config_value(&in, "factor"))
        r->factor = 0; /* absent: by the lengths */
    else if (r->factor == 0)
        af_config_wrong(&in, "factor of the rope scaling", "a positive number");
    s->st = in.st;
}

/* What the lengths decide. One set for all layers follows the key outside, where it is there. */
static void finish_rope(const af_hf_config *c, af_rope_config *r, int64_t outside)
{
    if (outside > 0 &&
        (r->type == AF_ROPE_LLAMA3 || r->type == AF_ROPE_YARN || r->type == AF_ROPE_LONGROPE))
        r->original_max_position_embeddings = outside;
    if (r->type == AF_ROPE_LONGROPE && r->factor == 0)
        r->factor =
            r->original_max_position_embeddings > 0
                ? (double)c->max_position_embeddings / (double)r->original_max_position_embeddings
                : 1;
}

/* Of a family that does not read it. */
static void ignore_part(af_rope_config *r)
{
    if (r->type == AF_ROPE_DEFAULT && r->partial_rotary_factor > 0 && r->partial_rotary_factor <= 1)
        r->partial_rotary_factor = 1;
}

/* v4: rope_theta and rope_scaling at the top; v5: rope_parameters, one set or one per layer type.
 */
static void get_ropes(af_config_source *s, af_hf_config *c, const af_family *f)
{
    af_rope_config base = {.theta = af_config_num(s, "rope_theta", f->theta),
                           .factor = 1,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .truncate = true};
    base.partial_rotary_factor =
        af_config_num(s, "partial_rotary_factor", f->partial > 0 ? f->partial : 1);
    base.original_max_position_embeddings = af_config_int(s, "original_max_position_embeddings", 0);
    if (base.original_max_position_embeddings < 0)
        af_config_wrong(s, "original_max_position_embeddings", "a positive number");
    c->rope = c->local_rope = base;
    c->has_local_rope = f->local_theta > 0;
    c->local_rope.theta = af_config_num(s, "rope_local_base_freq", f->local_theta);

    const json_t *v4 = af_config_value(s, "rope_scaling"),
                 *v5 = af_config_value(s, "rope_parameters");
    if ((v4 && !json_is_object(v4)) || (v5 && !json_is_object(v5))) {
        af_config_wrong(s, v5 ? "rope_parameters" : "rope_scaling", "an object");
        return;
    }
    const json_t *full = json_object_get(v5, "full_attention");
    const json_t *local = json_object_get(v5, "sliding_attention");
    v4 = json_object_size(v4) ? v4 : NULL;
    if (v5 && !full && !local && !v4) /* the old key was added to the new one */
        get_rope(s, v5, &c->arena, &c->rope);
    if (json_is_object(full))
        get_rope(s, full, &c->arena, &c->rope);
    if (v4)
        get_rope(s, v4, &c->arena, &c->rope);
    if (json_is_object(local)) {
        c->has_local_rope = true;
        if (c->local_rope.theta == 0)
            c->local_rope.theta = base.theta;
        get_rope(s, local, &c->arena, &c->local_rope);
    }
    finish_rope(c, &c->rope, json_is_object(full) ? 0 : base.original_max_position_embeddings);
    finish_rope(c, &c->local_rope, 0);
    const bool known =
        f->same || strcmp(f->model_type, c->model_type) == 0; /* others may read it */
    if (known && f->partial == 0) {
        ignore_part(&c->rope);
        ignore_part(&c->local_rope);
    }
}

static bool layer_type(const char *name, af_layer_type *out)
{
    static const struct {
        const char *name;
        af_layer_type type;
    } kinds[] = {{"full_attention", AF_LAYER_FULL}, {"sliding_attention", AF_LAYER_SLIDING},
                 {"attention", AF_LAYER_FULL},      {"linear_attention", AF_LAYER_LINEAR},
                 {"conv", AF_LAYER_CONV},           {"mamba", AF_LAYER_MAMBA}};
    for (size_t i = 0; name && i < AF_LEN(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0) {
            *out = kinds[i].type;
            return true;
        }
    return false;
}

static void get_layer_types(af_config_source *s, af_hf_config *c, const af_family *f)
{
    static const char local[] = "sliding_attention";
    const json_t *j = af_config_value(s, "layer_types");
    const int64_t n = c->num_hidden_layers;
    if (!j || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return; /* a wrong count of layers has its own message */
    if (!json_is_array(j) || json_array_size(j) < (size_t)n) {
        af_config_wrong(s, "layer_types", "a list with one entry per layer");
        return;
    }
    af_layer_type *types = af_arena_take(&c->arena, (uint64_t)n * sizeof *types);
    if (!types) {
        s->st = af_fail_nomem(s->err, "layer types", (uint64_t)n * sizeof *types);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const char *t = json_string_value(json_array_get(j, (size_t)i));
        const bool chunked = t && strcmp(t, "chunked_attention") == 0;
        if (f->sliding == AF_SLIDING_TURNING && (chunked || (t && strcmp(t, local) == 0)))
            t = chunked ? local : "";
        if (f->sliding == AF_SLIDING_NEVER && t &&
            (strcmp(t, "indexed_attention") == 0 || strcmp(t, "minimax_m3_sparse") == 0))
            t = "full_attention"; /* up to the keys that an indexer picks */
        if (!layer_type(t, &types[i]) || (types[i] > AF_LAYER_SLIDING && !f->state_layers))
            af_config_wrong(s, "an entry of layer_types",
                            f->state_layers ? "a known kind of layer"
                            : f->sliding == AF_SLIDING_TURNING
                                ? "full_attention or chunked_attention"
                                : "full_attention or sliding_attention");
    }
    c->layer_types = types;
}

/* smollm3: no_rope_layers[i] is 1 where the layer HAS rope. */
static void get_no_rope(af_config_source *s, af_hf_config *c)
{
    const json_t *j = af_config_value(s, "no_rope_layers");
    const int64_t n = c->num_hidden_layers;
    const bool llama4 = strcmp(c->model_type, "llama4_text") == 0;
    const int64_t every = af_config_int(s, "no_rope_layer_interval",
                                        llama4 || strcmp(c->model_type, "smollm3") == 0 ? 4 : 0);
    if (llama4 && json_is_array(j) && json_array_size(j) == 0)
        j = NULL;
    if ((!j && every <= 0) || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return;
    if (j && (!json_is_array(j) || json_array_size(j) < (size_t)n)) {
        af_config_wrong(s, "no_rope_layers", "a list with one entry per layer");
        return;
    }
    bool *none = af_arena_take(&c->arena, (uint64_t)n * sizeof *none);
    if (!none) {
        s->st = af_fail_nomem(s->err, "no_rope_layers", (uint64_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(j, (size_t)i);
        if (j && !json_is_integer(item) && !json_is_boolean(item))
            af_config_wrong(s, "no_rope_layers", "a list of 0 and 1");
        none[i] = j ? !(json_is_true(item) || json_integer_value(item)) : (i + 1) % every == 0;
    }
    c->no_rope = none;
}

static void get_window(af_config_source *s, af_hf_config *c, const af_family *f)
{
    const bool present = json_object_get(s->obj, "sliding_window") != NULL;
    const bool switched = f->sliding == AF_SLIDING_UPPER || f->sliding == AF_SLIDING_SWITCHED ||
                          f->sliding == AF_SLIDING_ROPELESS;
    c->use_sliding_window = af_config_bool(s, "use_sliding_window", false);
    c->sliding_window = af_config_int(s, "sliding_window", present ? 0 : f->window);
    if (switched && !c->use_sliding_window && c->sliding_window > 0)
        c->sliding_window = 0;
    c->max_window_layers = af_config_int(s, "max_window_layers", 28);
    int64_t pattern = af_config_int(s, "_sliding_window_pattern", f->pattern ? f->pattern : 1);
    const json_t *letters = af_config_value(s, "sliding_window_pattern"); /* or "LLLG" */
    c->sliding_window_pattern = json_is_string(letters)
                                    ? (int64_t)json_string_length(letters)
                                    : af_config_int(s, "sliding_window_pattern", pattern);
    get_no_rope(s, c);
    get_layer_types(s, c, f);
}

static void get_experts(af_config_source *s, af_hf_config *c, const af_family *f)
{
    if (f->own_experts)
        return;
    c->num_experts = af_config_int(s, "num_experts", 0);
    if (strcmp(c->model_type, "qwen3_moe") == 0) /* written as num_local_experts by v5 */
        c->num_experts =
            af_config_int(s, "num_local_experts", af_config_int(s, "num_experts", 128));
    if (c->num_experts == 0)
        return;
    c->num_experts_per_tok = af_config_int(s, "num_experts_per_tok", 8);
    c->moe_intermediate_size = af_config_int(s, "moe_intermediate_size", 768);
    c->decoder_sparse_step = af_config_int(s, "decoder_sparse_step", 1);
    c->norm_topk_prob = af_config_bool(s, "norm_topk_prob", false);
    c->output_router_logits = af_config_bool(s, "output_router_logits", false);
    c->router_aux_loss_coef = af_config_num(s, "router_aux_loss_coef", 0.001);
    int n = 0;
    const double *list = af_config_nums(s, &c->arena, "mlp_only_layers", AF_CONFIG_LAYERS_MAX, &n);
    int64_t *layers = af_arena_take(&c->arena, (uint64_t)AF_MAX(n, 1) * sizeof *layers);
    if (!layers)
        return;
    for (int i = 0; i < n; i++)
        if (list[i] >= 0 && list[i] < AF_CONFIG_LAYERS_MAX)
            layers[i] = (int64_t)list[i];
        else
            af_config_wrong(s, "mlp_only_layers", "a list of layer numbers");
    c->mlp_only_layers = layers;
    c->mlp_only_count = n;
}

static void get_dtype(af_config_source *s, af_hf_config *c)
{
    static const struct {
        const char *name;
        af_dtype dtype;
    } names[] = {{"float32", AF_DTYPE_F32}, {"float", AF_DTYPE_F32}, {"bfloat16", AF_DTYPE_BF16},
                 {"float16", AF_DTYPE_F16}, {"half", AF_DTYPE_F16},  {"float64", AF_DTYPE_F64},
                 {"auto", AF_DTYPE_F32}};
    const json_t *j = af_config_value(s, "dtype");
    j = j ? j : af_config_value(s, "torch_dtype");
    const char *t = json_string_value(j);
    if (!t)
        return;
    t = strncmp(t, "torch.", 6) == 0 ? t + 6 : t;
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i].name, t) == 0) {
            c->dtype = names[i].dtype;
            c->has_dtype = strcmp(t, "auto") != 0;
            return;
        }
    af_config_wrong(s, "dtype", "float32, bfloat16 or float16");
}

/* The family's own name of a key, where the file has it. */
static const char *word(const af_config_source *s, const af_family *f, int i, const char *usual)
{
    return f->words[i] && af_config_value(s, f->words[i]) ? f->words[i] : usual;
}

/* -1 for a number the caller must have. */
static void get_sizes(af_config_source *s, af_hf_config *c, const af_family *f)
{
    enum { HIDDEN, LAYERS, HEADS, POSITIONS, FFN };
    const char *hidden = word(s, f, HIDDEN, "hidden_size");
    const char *layers = word(s, f, LAYERS, "num_hidden_layers");
    const char *heads = word(s, f, HEADS, "num_attention_heads");
    const af_family_sizes *inside = c->nested ? f->inside : NULL;
    c->vocab_size = af_config_int(s, "vocab_size",
                                  f->vocab ? f->vocab
                                  : inside ? inside->vocab
                                           : -1);
    c->hidden_size = af_config_int(s, hidden, inside ? inside->hidden : -1);
    /* families without a dense MLP have no such key, others another name for it */
    const char *ffn = af_config_value(s, "intermediate_size") ? "intermediate_size"
                      : af_config_value(s, "block_ff_dim")    ? "block_ff_dim"
                                                              : "moe_intermediate_size";
    ffn = word(s, f, FFN, ffn);
    const json_t *list = f->ffn_listed ? af_config_value(s, ffn) : NULL;
    c->intermediate_size = json_is_array(list) ? json_integer_value(json_array_get(list, 0))
                                               : af_config_int(s, ffn,
                                                               f->ffn   ? f->ffn
                                                               : inside ? inside->ffn
                                                                        : -1);
    c->num_hidden_layers = af_config_int(s, layers, inside ? inside->layers : -1);
    for (int i = 0; i < 2 && f->kinds[i]; i++) { /* whichever comes first */
        const json_t *kinds = af_config_value(s, f->kinds[i]);
        if (!kinds)
            continue;
        c->num_hidden_layers =
            (int64_t)(json_is_array(kinds) ? json_array_size(kinds) : json_string_length(kinds));
        break;
    }
    c->num_attention_heads = af_config_int(s, heads,
                                           f->heads ? f->heads
                                           : inside ? inside->heads
                                                    : -1);
    const int64_t kv = f->kv_heads                  ? f->kv_heads
                       : inside && inside->kv_heads ? inside->kv_heads
                                                    : c->num_attention_heads;
    c->num_key_value_heads = af_config_int(s, "num_key_value_heads", kv);
    c->head_dim = af_config_int(s, "head_dim", f->head_dim);
    c->max_position_embeddings =
        af_config_int(s, word(s, f, POSITIONS, "max_position_embeddings"), 2048);
    const struct {
        const char *key;
        int64_t value;
    } needed[] = {{"vocab_size", c->vocab_size},
                  {hidden, c->hidden_size},
                  {"intermediate_size", c->intermediate_size},
                  {layers, c->num_hidden_layers},
                  {heads, c->num_attention_heads}};
    for (size_t i = 0; i < AF_LEN(needed); i++)
        if (needed[i].value == -1 && !af_config_value(s, needed[i].key))
            af_config_wrong(s, needed[i].key, "there");
}

static void get_scales(af_config_source *s, af_hf_config *c, const af_family *f)
{
    const double eps =
        af_config_num(s, "layer_norm_eps", af_config_num(s, "layer_norm_epsilon", f->eps));
    c->rms_norm_eps = af_config_num(s, "rms_norm_eps", eps);
    c->initializer_range = af_config_num(s, "initializer_range", 0.02);
    c->query_pre_attn_scalar = af_config_num(s, "query_pre_attn_scalar", f->query_scalar);
    const bool attn = json_object_get(s->obj, "attn_logit_softcapping") != NULL;
    const bool final = json_object_get(s->obj, "final_logit_softcapping") != NULL;
    c->attn_logit_softcapping =
        af_config_num(s, "attn_logit_softcapping", attn ? 0 : f->attn_softcap);
    c->final_logit_softcapping =
        af_config_num(s, "final_logit_softcapping", final ? 0 : f->final_softcap);
    const bool granite = strncmp(c->model_type, "granite", 7) == 0;
    c->embedding_multiplier = af_config_num(s, "embedding_multiplier", 1);
    c->attention_multiplier = af_config_num(s, "attention_multiplier", granite ? 1 : 0);
    c->residual_multiplier = af_config_num(s, "residual_multiplier", 1);
    c->logits_scaling = af_config_num(s, "logits_scaling", 1);
}

/* Models that attend to later tokens, too, are made for other things than the next token. */
static af_status check_causal(const af_config_source *s, const char *model_type)
{
    const bool gemma3 = strcmp(model_type, "gemma3_text") == 0;
    const bool both = gemma3 && json_is_true(af_config_value(s, "use_bidirectional_attention"));
    if (!both && !json_is_false(af_config_value(s, "is_causal")))
        return AF_OK;
    return af_fail(s->err, AF_EUNSUPPORTED,
                   "%s: %s: the tokens of this model see later ones, and only models of the next "
                   "token are supported",
                   s->name, both ? "use_bidirectional_attention is true" : "is_causal is false");
}

/* As transformers counts them: two unless the names say otherwise. */
static int64_t count_labels(af_config_source *s, const json_t *root, const char *architecture)
{
    static const char tail[] = "ForSequenceClassification";
    const json_t *names = json_object_get(root, "id2label");
    const size_t n = strlen(architecture), m = sizeof tail - 1;
    if (n < m || strcmp(architecture + n - m, tail) != 0)
        return 0;
    return json_is_object(names) && json_object_size(names) ? (int64_t)json_object_size(names)
                                                            : af_config_int(s, "num_labels", 2);
}

/* What a text_config leaves to the config around it. */
static void get_shared(af_config_source *s, af_hf_config *c, const json_t *root)
{
    af_config_source top = {.obj = root, .name = s->name, .err = s->err, .st = s->st};
    const json_t *tied = af_config_value(&top, "tie_word_embeddings");
    if (json_is_boolean(tied))
        c->tie_word_embeddings = json_is_true(tied);
    c->tie_open = !tied;
    if (c->eos_count == 0)
        c->eos_count = af_config_ids(&top, "eos_token_id", c->eos_token_id);
    if (!c->has_dtype)
        get_dtype(&top, c);
    if (c->quant.method == AF_QUANT_NONE)
        af_config_quant(&top, c);
    s->st = top.st;
}

/* Ling 2 is of type bailing_moe as Ling 1 is: the class tells them apart. */
static const af_family *family_of(af_config_source *s, af_hf_config *c, const char *architecture)
{
    if (strcmp(c->model_type, "bailing_moe") == 0 && strncmp(architecture, "BailingMoeV2", 12) == 0)
        c->model_type = "bailing_moe_v2";
    if (strcmp(c->model_type, "deepseek_v2") == 0 && !af_config_bool(s, "use_mla", true))
        c->model_type = "deepseek";
    if (strcmp(c->model_type, "minicpmv") == 0 || strcmp(c->model_type, "minicpmo") == 0) {
        const double version = af_config_num(s, "version", 0);
        c->model_type = version == 2.6   ? "minicpmv2_6"
                        : version == 4   ? "minicpmv4"
                        : version == 4.5 ? "minicpmv4_5"
                                         : c->model_type;
    }
    return af_family_find(c->model_type);
}

static void get_act(af_config_source *s, af_hf_config *c, const af_family *f)
{
    c->hidden_act = af_config_str(s, &c->arena, "hidden_act", f->act);
    c->hidden_act = af_config_str(s, &c->arena, "hidden_activation", c->hidden_act);
    if (strcmp(c->model_type, "gemma") == 0) {
        if (strcmp(c->hidden_act, "gelu") == 0)
            c->hidden_act = f->act; /* early files have "gelu" and mean the tanh form */
    } else if (strncmp(c->model_type, "gemma", 5) == 0 &&
               !af_config_value(s, "hidden_activation")) {
        c->hidden_act = f->act; /* the later ones do not read hidden_act */
    }
}

static af_status read_object(af_hf_config *c, const json_t *root, const char *name, af_error *err)
{
    af_config_source s = {.obj = root, .name = name, .err = err};
    const json_t *text = af_config_text(root);
    s.obj = text ? text : root;
    if (!af_config_value(&s, "model_type"))
        return af_fail(err, AF_EFORMAT, "%s: model_type is missing", name);
    c->model_type = af_config_str(&s, &c->arena, "model_type", "");
    const af_status causal = check_causal(&s, c->model_type);
    if (causal != AF_OK)
        return causal;
    const json_t *arch = json_object_get(root, "architectures");
    const char *first = json_string_value(json_array_get(arch, 0));
    const af_family *f = family_of(&s, c, first ? first : "");
    s.alias = f->alias;
    c->nested = text || (f->whole && strcmp(f->model_type, c->model_type) == 0);
    const char *whole = json_string_value(json_object_get(root, "model_type"));
    c->whole = af_arena_strdup(&c->arena, c->nested && whole ? whole : "");
    c->model_type = f->same ? f->same : c->model_type;
    c->gguf = c->nested && f->same ? f->gguf : NULL;
    c->architecture = af_arena_strdup(&c->arena, first ? first : "");
    c->labels = count_labels(&s, root, first ? first : "");
    c->transformers_version = af_config_str(&s, &c->arena, "transformers_version", "");
    get_sizes(&s, c, f);
    get_act(&s, c, f);
    get_scales(&s, c, f);
    c->tie_word_embeddings = af_config_bool(&s, "tie_word_embeddings", f->tied);
    c->attention_bias = af_config_bool(&s, "attention_bias", false);
    c->attention_out_bias = af_config_bool(&s, "attention_out_bias", c->attention_bias);
    c->mlp_bias = af_config_bool(&s, "mlp_bias", false);
    c->bos_token_id = af_config_int(&s, "bos_token_id", -1);
    c->padding_row = c->pad_token_id = af_config_int(&s, "pad_token_id", -1);
    if (!json_object_get(s.obj, "pad_token_id"))
        c->padding_row = f->pad - 1;
    c->eos_count = af_config_ids(&s, "eos_token_id", c->eos_token_id);
    get_dtype(&s, c);
    get_ropes(&s, c, f);
    get_window(&s, c, f);
    get_experts(&s, c, f);
    af_config_quant(&s, c);
    if (c->nested)
        get_shared(&s, c, root);
    const af_family *base = f->same && !f->keys ? af_family_find(f->same) : f;
    if (base->keys && s.st == AF_OK)
        base->keys(&s, c);
    if (s.st != AF_OK && s.st != AF_ENOMEM && !af_family_known(c->model_type)) {
        char names[AF_FAMILY_NAMES], why[300] = "";
        snprintf(why, sizeof why, "%.299s", err ? err->msg : "");
        return af_fail(err, AF_EUNSUPPORTED, "%s: model_type '%.64s' is not known (%s)%s", name,
                       c->model_type, why, af_family_names(c->model_type, false, names));
    }
    if (s.st != AF_OK)
        return s.st;
    if (!c->architecture || !c->whole)
        return af_fail_nomem(err, "a name", 0);
    const bool types = f->sliding >= AF_SLIDING_UPPER || f->state_layers; /* see there */
    return af_hf_config_finish(c, f, types && c->layer_types, name, err);
}

af_status af_hf_config_parse(af_hf_config *out, const char *text, uint64_t size, const char *name,
                             af_error *err)
{
    af_hf_config c = {0};
    json_error_t je;
    c.raw = af_json_load_python(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!c.raw)
        return af_fail(err, AF_EFORMAT, "%s:%d: %s", name, je.line, je.text);
    const af_status st = json_is_object(c.raw)
                             ? read_object(&c, c.raw, name, err)
                             : af_fail(err, AF_EFORMAT, "%s: not a JSON object", name);
    if (st != AF_OK) {
        af_hf_config_clear(&c);
        return st;
    }
    *out = c;
    return AF_OK;
}

void af_hf_config_clear(af_hf_config *c)
{
    json_decref(c->raw);
    af_arena_clear(&c->arena);
    *c = (af_hf_config){0};
}

af_status af_generation_config_parse(af_generation_config *out, const char *text, uint64_t size,
                                     const char *name, af_error *err)
{
    json_error_t je;
    json_t *root = af_json_load_python(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(root)) {
        json_decref(root);
        return af_fail(err, AF_EFORMAT, "%s:%d: %s", name, root ? 1 : je.line,
                       root ? "not an object" : je.text);
    }
    af_config_source s = {.obj = root, .name = name, .err = err};
    af_generation_config g = {0};
    g.bos_token_id = af_config_int(&s, "bos_token_id", -1);
    g.pad_token_id = af_config_int(&s, "pad_token_id", -1);
    g.eos_count = af_config_ids(&s, "eos_token_id", g.eos_token_id);
    g.do_sample = af_config_bool(&s, "do_sample", false);
    g.temperature = af_config_num(&s, "temperature", 1);
    g.top_p = af_config_num(&s, "top_p", 1);
    g.min_p = af_config_num(&s, "min_p", 0);
    g.repetition_penalty = af_config_num(&s, "repetition_penalty", 1);
    g.top_k = af_config_int(&s, "top_k", 0);
    json_decref(root);
    for (int i = 0; i < g.eos_count && s.st == AF_OK; i++)
        if (g.eos_token_id[i] < 0 || g.eos_token_id[i] >= AF_CONFIG_VOCAB_MAX)
            af_config_wrong(&s, "eos_token_id", "a token id");
    if (s.st == AF_OK)
        *out = g;
    return s.st;
}
