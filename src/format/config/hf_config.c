/* hf_config.c - config.json, in the spellings of transformers 4 and 5; see hf_config.h. */
#include "format/config/hf_config.h"

#include "format/config/hf_config_check.h"
#include "format/text/json_text.h"

#include <jansson.h>
#include <math.h>
#include <strings.h>

/* One config being read: the object, the file's name for messages. */
typedef struct config_source {
    const json_t *obj;
    const char *name;
    af_error *err;
    af_status st; /* latched: the first wrong value ends it */
} config_source;

/* The value of a key, or NULL when it is absent or null. */
static const json_t *value_of(const config_source *s, const char *key)
{
    const json_t *j = json_object_get(s->obj, key);
    return json_is_null(j) ? NULL : j;
}

static void wrong_kind(config_source *s, const char *key, const char *want)
{
    if (s->st == AF_OK)
        s->st = af_fail(s->err, AF_EFORMAT, "%s: %s is not %s", s->name, key, want);
}

static bool to_int(const json_t *j, int64_t *out)
{
    if (json_is_integer(j)) {
        *out = json_integer_value(j);
        return true;
    }
    if (!json_is_real(j) || fabs(json_real_value(j)) > 9e15 ||
        json_real_value(j) != floor(json_real_value(j)))
        return false;
    *out = (int64_t)json_real_value(j);
    return true;
}

static int64_t get_int(config_source *s, const char *key, int64_t absent)
{
    const json_t *j = value_of(s, key);
    int64_t v = absent;
    if (j && !to_int(j, &v))
        wrong_kind(s, key, "a whole number");
    return v;
}

static double get_num(config_source *s, const char *key, double absent)
{
    const json_t *j = value_of(s, key);
    if (j && !json_is_number(j))
        wrong_kind(s, key, "a number");
    return j ? json_number_value(j) : absent;
}

static bool get_bool(config_source *s, const char *key, bool absent)
{
    const json_t *j = value_of(s, key);
    if (j && !json_is_boolean(j))
        wrong_kind(s, key, "true or false");
    return j ? json_is_true(j) : absent;
}

static const char *get_str(config_source *s, af_arena *arena, const char *key, const char *absent)
{
    const json_t *j = value_of(s, key);
    if (j && !json_is_string(j))
        wrong_kind(s, key, "a string");
    const char *v = af_arena_strdup(arena, json_is_string(j) ? json_string_value(j) : absent);
    if (!v && s->st == AF_OK)
        s->st = af_fail_nomem(s->err, key, 0);
    return v ? v : "";
}

/* An id or a list of ids. */
static int get_ids(config_source *s, const char *key, int64_t ids[AF_CONFIG_EOS_MAX])
{
    const json_t *j = value_of(s, key);
    const size_t n = json_is_array(j) ? json_array_size(j) : j != NULL;
    if (n > AF_CONFIG_EOS_MAX) {
        wrong_kind(s, key, "a short list of token ids");
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        if (!to_int(json_is_array(j) ? json_array_get(j, i) : j, &ids[i]))
            wrong_kind(s, key, "a token id or a list of them");
    return (int)n;
}

/* A list of at most `max` numbers in the arena, or NULL with *n = 0 when absent. */
static const double *get_nums(config_source *s, af_arena *arena, const char *key, int max, int *n)
{
    const json_t *j = value_of(s, key);
    *n = 0;
    if (!j)
        return NULL;
    if (!json_is_array(j) || json_array_size(j) > (size_t)max) {
        wrong_kind(s, key, "a list of numbers of sensible length");
        return NULL;
    }
    const size_t count = json_array_size(j);
    double *v = af_arena_take(arena, AF_MAX(count, 1) * sizeof *v);
    if (!v) {
        s->st = s->st == AF_OK ? af_fail_nomem(s->err, key, count * sizeof *v) : s->st;
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(j, i);
        if (!json_is_number(item))
            wrong_kind(s, key, "a list of numbers");
        v[i] = json_number_value(item);
    }
    *n = (int)count;
    return v;
}

static void get_rope_type(config_source *s, af_rope_config *r)
{
    const json_t *j = value_of(s, "rope_type");
    j = j ? j : value_of(s, "type");
    if (!j)
        return;
    const char *type = json_string_value(j);
    if (!type) {
        wrong_kind(s, "rope_type", "a string");
        return;
    }
    if (strcmp(type, "su") == 0) /* the first name of longrope */
        type = "longrope";
    for (int t = 0; t <= AF_ROPE_PROPORTIONAL; t++)
        if (strcmp(type, af_rope_type_name((af_rope_type)t)) == 0) {
            r->type = (af_rope_type)t;
            return;
        }
    if (s->st == AF_OK)
        s->st = af_fail(s->err, AF_EUNSUPPORTED, "%s: unknown rope type '%.64s'", s->name, type);
}

/* The keys of rope_scaling or rope_parameters over what `r` already has. */
static void get_rope(config_source *s, const json_t *obj, af_arena *arena, af_rope_config *r)
{
    config_source in = {obj, s->name, s->err, s->st};
    get_rope_type(&in, r);
    r->theta = get_num(&in, "rope_theta", r->theta);
    if (!value_of(&in, "factor") && (r->type == AF_ROPE_LINEAR || r->type == AF_ROPE_DYNAMIC ||
                                     r->type == AF_ROPE_YARN || r->type == AF_ROPE_LLAMA3))
        wrong_kind(&in, "factor of the rope scaling", "there");
    r->factor = get_num(&in, "factor", r->factor);
    r->low_freq_factor = get_num(&in, "low_freq_factor", r->low_freq_factor);
    r->high_freq_factor = get_num(&in, "high_freq_factor", r->high_freq_factor);
    r->original_max_position_embeddings =
        get_int(&in, "original_max_position_embeddings", r->original_max_position_embeddings);
    if (r->original_max_position_embeddings < 0)
        wrong_kind(&in, "original_max_position_embeddings", "a positive number");
    r->attention_factor = get_num(&in, "attention_factor", r->attention_factor);
    r->beta_fast = get_num(&in, "beta_fast", r->beta_fast);
    r->beta_slow = get_num(&in, "beta_slow", r->beta_slow);
    r->mscale = get_num(&in, "mscale", r->mscale);
    r->mscale_all_dim = get_num(&in, "mscale_all_dim", r->mscale_all_dim);
    r->truncate = get_bool(&in, "truncate", r->truncate);
    r->partial_rotary_factor = get_num(&in, "partial_rotary_factor", r->partial_rotary_factor);
    const int max = AF_CONFIG_ROPE_FACTORS_MAX;
    r->short_factor = get_nums(&in, arena, "short_factor", max, &r->short_count);
    r->long_factor = get_nums(&in, arena, "long_factor", max, &r->long_count);
    s->st = in.st;
}

/* v4: rope_theta and rope_scaling at the top; v5: rope_parameters, one set or one per layer type.
 */
static void get_ropes(config_source *s, af_hf_config *c, const af_family *f)
{
    af_rope_config base = {.theta = get_num(s, "rope_theta", f->theta),
                           .factor = 1,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .truncate = true};
    base.partial_rotary_factor =
        get_num(s, "partial_rotary_factor", f->partial > 0 ? f->partial : 1);
    base.original_max_position_embeddings = get_int(s, "original_max_position_embeddings", 0);
    if (base.original_max_position_embeddings < 0)
        wrong_kind(s, "original_max_position_embeddings", "a positive number");
    c->rope = c->local_rope = base;
    c->has_local_rope = f->local_theta > 0;
    c->local_rope.theta = get_num(s, "rope_local_base_freq", f->local_theta);

    const json_t *v4 = value_of(s, "rope_scaling"), *v5 = value_of(s, "rope_parameters");
    if ((v4 && !json_is_object(v4)) || (v5 && !json_is_object(v5))) {
        wrong_kind(s, v5 ? "rope_parameters" : "rope_scaling", "an object");
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
        get_rope(s, local, &c->arena, &c->local_rope);
    }
    const double part = c->rope.partial_rotary_factor;
    const bool known = strcmp(f->model_type, c->model_type) == 0; /* others may read it */
    if (known && f->partial == 0 && c->rope.type == AF_ROPE_DEFAULT && part > 0 && part <= 1)
        /* this family does not read it */
        c->rope.partial_rotary_factor = c->local_rope.partial_rotary_factor = 1;
    if (c->rope.type == AF_ROPE_LONGROPE && c->rope.factor == 1 &&
        c->rope.original_max_position_embeddings > 0)
        c->rope.factor =
            (double)c->max_position_embeddings / (double)c->rope.original_max_position_embeddings;
}

static void get_layer_types(config_source *s, af_hf_config *c)
{
    const json_t *j = value_of(s, "layer_types");
    const int64_t n = c->num_hidden_layers;
    if (!j || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return; /* a wrong count of layers has its own message */
    if (!json_is_array(j) || json_array_size(j) < (size_t)n) {
        wrong_kind(s, "layer_types", "a list with one entry a layer");
        return;
    }
    af_layer_type *types = af_arena_take(&c->arena, (uint64_t)n * sizeof *types);
    if (!types) {
        s->st = af_fail_nomem(s->err, "layer types", (uint64_t)n * sizeof *types);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const char *t = json_string_value(json_array_get(j, (size_t)i));
        if (t && strcmp(t, "sliding_attention") == 0)
            types[i] = AF_LAYER_SLIDING;
        else if (!t || strcmp(t, "full_attention") != 0)
            wrong_kind(s, "an entry of layer_types", "full_attention or sliding_attention");
    }
    c->layer_types = types;
}

/* smollm3: no_rope_layers[i] is 1 where the layer HAS rope. */
static void get_no_rope(config_source *s, af_hf_config *c)
{
    const json_t *j = value_of(s, "no_rope_layers");
    const int64_t n = c->num_hidden_layers;
    const int64_t every =
        get_int(s, "no_rope_layer_interval", strcmp(c->model_type, "smollm3") == 0 ? 4 : 0);
    if ((!j && every <= 0) || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return;
    if (j && (!json_is_array(j) || json_array_size(j) < (size_t)n)) {
        wrong_kind(s, "no_rope_layers", "a list with one entry a layer");
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
            wrong_kind(s, "no_rope_layers", "a list of 0 and 1");
        none[i] = j ? !(json_is_true(item) || json_integer_value(item)) : (i + 1) % every == 0;
    }
    c->no_rope = none;
}

static void get_window(config_source *s, af_hf_config *c, const af_family *f)
{
    const bool present = json_object_get(s->obj, "sliding_window") != NULL;
    const bool switched = f->sliding == AF_SLIDING_UPPER || f->sliding == AF_SLIDING_SWITCHED ||
                          f->sliding == AF_SLIDING_ROPELESS;
    c->use_sliding_window = get_bool(s, "use_sliding_window", false);
    c->sliding_window = get_int(s, "sliding_window", present ? 0 : f->window);
    if (switched && !c->use_sliding_window && c->sliding_window > 0)
        c->sliding_window = 0;
    c->max_window_layers = get_int(s, "max_window_layers", 28);
    int64_t pattern = get_int(s, "_sliding_window_pattern", f->pattern ? f->pattern : 1);
    c->sliding_window_pattern = get_int(s, "sliding_window_pattern", pattern);
    get_no_rope(s, c);
    get_layer_types(s, c);
}

static void get_experts(config_source *s, af_hf_config *c)
{
    c->num_experts = get_int(s, "num_experts", 0);
    if (strcmp(c->model_type, "qwen3_moe") == 0) /* written as num_local_experts by v5 */
        c->num_experts = get_int(s, "num_local_experts", get_int(s, "num_experts", 128));
    if (c->num_experts == 0)
        return;
    c->num_experts_per_tok = get_int(s, "num_experts_per_tok", 8);
    c->moe_intermediate_size = get_int(s, "moe_intermediate_size", 768);
    c->decoder_sparse_step = get_int(s, "decoder_sparse_step", 1);
    c->norm_topk_prob = get_bool(s, "norm_topk_prob", false);
    c->output_router_logits = get_bool(s, "output_router_logits", false);
    c->router_aux_loss_coef = get_num(s, "router_aux_loss_coef", 0.001);
    int n = 0;
    const double *list = get_nums(s, &c->arena, "mlp_only_layers", AF_CONFIG_LAYERS_MAX, &n);
    int64_t *layers = af_arena_take(&c->arena, (uint64_t)AF_MAX(n, 1) * sizeof *layers);
    if (!layers)
        return;
    for (int i = 0; i < n; i++)
        if (list[i] >= 0 && list[i] < AF_CONFIG_LAYERS_MAX)
            layers[i] = (int64_t)list[i];
        else
            wrong_kind(s, "mlp_only_layers", "a list of layer numbers");
    c->mlp_only_layers = layers;
    c->mlp_only_count = n;
}

/* Block sizes and bits of the tools whose weights are read as codes. */
static void get_coded(config_source *in, af_hf_config *c)
{
    const json_t *block = value_of(in, "weight_block_size");
    const int64_t bits = get_int(in, "bits", 4);
    c->quant.bits = (int)bits;
    if (c->quant.method == AF_QUANT_GPTQ && bits != 2 && bits != 3 && bits != 4 && bits != 8)
        wrong_kind(in, "bits", "2, 3, 4 or 8");
    if (c->quant.method == AF_QUANT_AWQ &&
        (bits != 4 || strcasecmp(get_str(in, &c->arena, "version", "gemm"), "gemm") != 0))
        wrong_kind(in, "bits", "4 with version gemm, as other AWQ files are not read");
    c->quant.zeros_as_used =
        strcmp(get_str(in, &c->arena, "checkpoint_format", "gptq"), "gptq_v2") == 0;
    if (!block || json_is_null(block))
        return;
    for (int i = 0; i < 2; i++)
        c->quant.block[i] = json_integer_value(json_array_get(block, (size_t)i));
    if (json_array_size(block) != 2 || c->quant.block[0] < 1 || c->quant.block[1] < 1)
        wrong_kind(in, "weight_block_size", "two positive numbers");
}

static void get_quant(config_source *s, af_hf_config *c)
{
    static const struct {
        const char *name;
        af_quant_method method;
    } coded[] = {{"fp8", AF_QUANT_FP8},
                 {"mxfp4", AF_QUANT_MXFP4},
                 {"compressed-tensors", AF_QUANT_COMPRESSED},
                 {"modelopt", AF_QUANT_MODELOPT},
                 {"gptq", AF_QUANT_GPTQ},
                 {"awq", AF_QUANT_AWQ}};
    const json_t *q = value_of(s, "quantization_config");
    if (!q)
        return;
    config_source in = {q, s->name, s->err, s->st};
    const char *method = get_str(&in, &c->arena, "quant_method", "bitsandbytes");
    for (size_t i = 0; i < AF_LEN(coded); i++)
        if (strcmp(method, coded[i].name) == 0) {
            c->quant.method = coded[i].method;
            get_coded(&in, c);
            s->st = in.st;
            return;
        }
    if (strcmp(method, "bitsandbytes") != 0 && in.st == AF_OK)
        in.st = af_fail(s->err, AF_EUNSUPPORTED,
                        "%s: weights quantised with '%.64s' are not supported, only with "
                        "bitsandbytes, fp8, mxfp4, compressed-tensors, modelopt, gptq and awq",
                        s->name, method);
    const bool four = get_bool(&in, "load_in_4bit", false);
    const bool eight = get_bool(&in, "load_in_8bit", false);
    const char *type = get_str(&in, &c->arena, "bnb_4bit_quant_type", "fp4");
    c->quant.method = four ? AF_QUANT_BNB_4BIT : eight ? AF_QUANT_BNB_8BIT : AF_QUANT_NONE;
    c->quant.double_quant = get_bool(&in, "bnb_4bit_use_double_quant", false);
    c->quant.type = strcmp(type, "nf4") == 0 ? AF_DTYPE_NF4 : AF_DTYPE_FP4;
    if (strcmp(type, "nf4") != 0 && strcmp(type, "fp4") != 0)
        wrong_kind(&in, "bnb_4bit_quant_type", "nf4 or fp4");
    const json_t *skip = value_of(&in, "llm_int8_skip_modules");
    const size_t n = json_is_array(skip) ? json_array_size(skip) : 0;
    const char **list = af_arena_take(&c->arena, AF_MAX(n, 1) * sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        const char *m = json_string_value(json_array_get(skip, i));
        if (!m)
            wrong_kind(&in, "llm_int8_skip_modules", "a list of names");
        else if ((m = af_arena_strdup(&c->arena, m)))
            list[c->quant.skip_count++] = m;
    }
    c->quant.skip_modules = list;
    s->st = in.st;
}

static void get_dtype(config_source *s, af_hf_config *c)
{
    static const struct {
        const char *name;
        af_dtype dtype;
    } names[] = {{"float32", AF_DTYPE_F32}, {"float", AF_DTYPE_F32}, {"bfloat16", AF_DTYPE_BF16},
                 {"float16", AF_DTYPE_F16}, {"half", AF_DTYPE_F16},  {"float64", AF_DTYPE_F64},
                 {"auto", AF_DTYPE_F32}};
    const json_t *j = value_of(s, "dtype");
    j = j ? j : value_of(s, "torch_dtype");
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
    wrong_kind(s, "dtype", "float32, bfloat16 or float16");
}

/* -1 for a number the caller must have. */
static void get_sizes(config_source *s, af_hf_config *c, const af_family *f)
{
    c->vocab_size = get_int(s, "vocab_size", f->vocab ? f->vocab : -1);
    c->hidden_size = get_int(s, "hidden_size", -1);
    c->intermediate_size = get_int(s, "intermediate_size", -1);
    c->num_hidden_layers = get_int(s, "num_hidden_layers", -1);
    c->num_attention_heads = get_int(s, "num_attention_heads", f->heads ? f->heads : -1);
    c->num_key_value_heads =
        get_int(s, "num_key_value_heads", f->kv_heads ? f->kv_heads : c->num_attention_heads);
    c->head_dim = get_int(s, "head_dim", f->head_dim);
    c->max_position_embeddings = get_int(s, "max_position_embeddings", 2048);
    const struct {
        const char *key;
        int64_t value;
    } needed[] = {{"vocab_size", c->vocab_size},
                  {"hidden_size", c->hidden_size},
                  {"intermediate_size", c->intermediate_size},
                  {"num_hidden_layers", c->num_hidden_layers},
                  {"num_attention_heads", c->num_attention_heads}};
    for (size_t i = 0; i < AF_LEN(needed); i++)
        if (needed[i].value == -1 && !value_of(s, needed[i].key))
            wrong_kind(s, needed[i].key, "there");
}

static void get_scales(config_source *s, af_hf_config *c, const af_family *f)
{
    const double eps = get_num(s, "layer_norm_eps", get_num(s, "layer_norm_epsilon", f->eps));
    c->rms_norm_eps = get_num(s, "rms_norm_eps", eps);
    c->initializer_range = get_num(s, "initializer_range", 0.02);
    c->query_pre_attn_scalar = get_num(s, "query_pre_attn_scalar", f->query_scalar);
    const bool attn = json_object_get(s->obj, "attn_logit_softcapping") != NULL;
    const bool final = json_object_get(s->obj, "final_logit_softcapping") != NULL;
    c->attn_logit_softcapping = get_num(s, "attn_logit_softcapping", attn ? 0 : f->attn_softcap);
    c->final_logit_softcapping =
        get_num(s, "final_logit_softcapping", final ? 0 : f->final_softcap);
    const bool granite = strcmp(c->model_type, "granite") == 0;
    c->embedding_multiplier = get_num(s, "embedding_multiplier", 1);
    c->attention_multiplier = get_num(s, "attention_multiplier", granite ? 1 : 0);
    c->residual_multiplier = get_num(s, "residual_multiplier", 1);
    c->logits_scaling = get_num(s, "logits_scaling", 1);
}

/* Models that attend to later tokens, too, are made for other things than the next token. */
static af_status check_causal(const config_source *s, const char *model_type)
{
    const bool gemma3 = strcmp(model_type, "gemma3_text") == 0;
    const bool both = gemma3 && json_is_true(value_of(s, "use_bidirectional_attention"));
    if (!both && !json_is_false(value_of(s, "is_causal")))
        return AF_OK;
    return af_fail(s->err, AF_EUNSUPPORTED,
                   "%s: %s: the tokens of this model see later ones, and only models of the next "
                   "token are supported",
                   s->name, both ? "use_bidirectional_attention is true" : "is_causal is false");
}

static af_status read_object(af_hf_config *c, const json_t *root, const char *name, af_error *err)
{
    config_source s = {root, name, err, AF_OK};
    const json_t *text = json_object_get(root, "text_config");
    if (json_is_object(text) && !json_object_get(root, "hidden_size"))
        s.obj = text;
    c->nested = s.obj == text;
    if (!value_of(&s, "model_type"))
        return af_fail(err, AF_EFORMAT, "%s: model_type is missing", name);
    c->model_type = get_str(&s, &c->arena, "model_type", "");
    const af_status causal = check_causal(&s, c->model_type);
    if (causal != AF_OK)
        return causal;
    const af_family *f = af_family_find(c->model_type);
    const json_t *arch = json_object_get(root, "architectures");
    const char *first = json_string_value(json_array_get(arch, 0));
    c->architecture = af_arena_strdup(&c->arena, first ? first : "");
    c->transformers_version = get_str(&s, &c->arena, "transformers_version", "");
    get_sizes(&s, c, f);
    c->hidden_act = get_str(&s, &c->arena, "hidden_act", f->act);
    c->hidden_act = get_str(&s, &c->arena, "hidden_activation", c->hidden_act);
    if (strcmp(c->model_type, "gemma") == 0) {
        if (strcmp(c->hidden_act, "gelu") == 0)
            c->hidden_act = f->act; /* early files have "gelu" and mean the tanh form */
    } else if (strncmp(c->model_type, "gemma", 5) == 0 && !value_of(&s, "hidden_activation")) {
        c->hidden_act = f->act; /* the later ones do not read hidden_act */
    }
    get_scales(&s, c, f);
    c->tie_word_embeddings = get_bool(&s, "tie_word_embeddings", f->tied);
    c->attention_bias = get_bool(&s, "attention_bias", false);
    c->mlp_bias = get_bool(&s, "mlp_bias", false);
    c->bos_token_id = get_int(&s, "bos_token_id", -1);
    c->padding_row = c->pad_token_id = get_int(&s, "pad_token_id", -1);
    if (!json_object_get(s.obj, "pad_token_id"))
        c->padding_row = f->pad - 1;
    c->eos_count = get_ids(&s, "eos_token_id", c->eos_token_id);
    get_dtype(&s, c);
    get_ropes(&s, c, f);
    get_window(&s, c, f);
    get_experts(&s, c);
    get_quant(&s, c);
    if (s.st != AF_OK && s.st != AF_ENOMEM && !af_family_known(c->model_type)) {
        char names[AF_FAMILY_NAMES], why[300] = "";
        snprintf(why, sizeof why, "%.299s", err ? err->msg : "");
        return af_fail(err, AF_EUNSUPPORTED, "%s: model_type '%.64s' is not known (%s)%s", name,
                       c->model_type, why, af_family_names(c->model_type, false, names));
    }
    if (s.st != AF_OK)
        return s.st;
    if (!c->architecture)
        return af_fail_nomem(err, "a name", 0);
    const bool types = f->sliding == AF_SLIDING_UPPER || f->sliding == AF_SLIDING_PATTERN ||
                       f->sliding == AF_SLIDING_ROPELESS; /* the others never look at the list */
    return af_hf_config_finish(c, f, types && c->layer_types, name, err);
}

af_status af_hf_config_parse(af_hf_config *out, const char *text, uint64_t size, const char *name,
                             af_error *err)
{
    af_hf_config c = {0};
    json_error_t je;
    c.raw = af_json_load(text, size, JSON_REJECT_DUPLICATES, &je);
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
    json_t *root = af_json_load(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(root)) {
        json_decref(root);
        return af_fail(err, AF_EFORMAT, "%s:%d: %s", name, root ? 1 : je.line,
                       root ? "not an object" : je.text);
    }
    config_source s = {root, name, err, AF_OK};
    af_generation_config g = {0};
    g.bos_token_id = get_int(&s, "bos_token_id", -1);
    g.pad_token_id = get_int(&s, "pad_token_id", -1);
    g.eos_count = get_ids(&s, "eos_token_id", g.eos_token_id);
    g.do_sample = get_bool(&s, "do_sample", false);
    g.temperature = get_num(&s, "temperature", 1);
    g.top_p = get_num(&s, "top_p", 1);
    g.repetition_penalty = get_num(&s, "repetition_penalty", 1);
    g.top_k = get_int(&s, "top_k", 0);
    g.max_new_tokens = get_int(&s, "max_new_tokens", 0);
    json_decref(root);
    for (int i = 0; i < g.eos_count && s.st == AF_OK; i++)
        if (g.eos_token_id[i] < 0 || g.eos_token_id[i] >= AF_CONFIG_VOCAB_MAX)
            wrong_kind(&s, "eos_token_id", "a token id");
    if (s.st == AF_OK)
        *out = g;
    return s.st;
}
