/* adapter_config.c - PEFT's adapter_config.json: read, written, and its rules for matching
 * modules. */
#include "model/adapter_config.h"

#include "base/buf.h"
#include "base/word.h"
#include "format/text/json_text.h"

#include <jansson.h>
#include <math.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { MATCH_LIMIT = 100000, REGEX_BYTES_MAX = 1 << 14 };

/* ---- matching ---- */

af_status af_pattern_matches(bool *out, const char *pattern, const char *subject, bool whole,
                             af_error *err)
{
    int code;
    PCRE2_SIZE at;
    const uint32_t flags = PCRE2_ANCHORED | PCRE2_UTF | (whole ? PCRE2_ENDANCHORED : 0);
    if (strlen(pattern) > REGEX_BYTES_MAX)
        return af_fail(err, AF_EFORMAT, "the module pattern has %zu bytes, more than %d",
                       strlen(pattern), REGEX_BYTES_MAX);
    pcre2_code *re =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, flags, &code, &at, NULL);
    if (!re)
        return af_fail(err, AF_EFORMAT,
                       "the module pattern '%.200s' is not a regular expression "
                       "(at byte %zu)",
                       pattern, (size_t)at);
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    pcre2_match_context *ctx = pcre2_match_context_create(NULL);
    int rc = PCRE2_ERROR_NOMEMORY;
    if (m && ctx) {
        pcre2_set_match_limit(ctx, MATCH_LIMIT);
        rc = pcre2_match(re, (PCRE2_SPTR)subject, PCRE2_ZERO_TERMINATED, 0, 0, m, ctx);
    }
    pcre2_match_context_free(ctx);
    pcre2_match_data_free(m);
    pcre2_code_free(re);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return af_fail(err, AF_EFORMAT, "matching '%.200s' against '%.200s' failed (%d)", pattern,
                       subject, rc);
    *out = rc >= 0;
    return AF_OK;
}

bool af_path_in_list(const char *path, const char *const *list, int n)
{
    const size_t len = strlen(path);
    for (int i = 0; i < n; i++) {
        const size_t k = strlen(list[i]);
        if (k <= len && strcmp(path + len - k, list[i]) == 0 &&
            (k == len || path[len - k - 1] == '.'))
            return true;
    }
    return false;
}

bool af_path_ends_in(const char *path, const char *const *list, int n)
{
    const size_t len = strlen(path);
    for (int i = 0; i < n; i++) {
        const size_t k = strlen(list[i]);
        if (k > 0 && k <= len && strcmp(path + len - k, list[i]) == 0)
            return true;
    }
    return false;
}

af_status af_adapter_pattern_value(double *out, const af_adapter_pattern *p, int n,
                                   const char *path, double absent, af_error *err)
{
    *out = absent;
    for (int i = 0; i < n; i++) {
        af_buf re = {0};
        bool hit = false;
        af_buf_printf(&re, "(.*\\.)?(%s)", p[i].key);
        const af_status st = re.bad ? af_fail_nomem(err, "a pattern", 0)
                                    : af_pattern_matches(&hit, re.data, path, true, err);
        af_buf_clear(&re);
        if (st != AF_OK)
            return st;
        if (hit) {
            *out = p[i].value;
            return AF_OK;
        }
    }
    return AF_OK;
}

static bool layer_chosen(const af_adapter_config *c, const af_model_spec *s, int layer)
{
    for (int i = 0; i < c->layer_count; i++)
        if (c->layers[i] == af_spec_folder_layer(s, layer))
            return true;
    return c->layer_count == 0;
}

/* A module that is named in full is chosen whatever the list of layers says, as in PEFT. */
static bool is_entry(const char *path, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(path, list[i]) == 0)
            return true;
    return false;
}

/* Part of what is trained whole, which PEFT never adapts as well: a name of modules_to_save stands
 * between dots anywhere in the path. */
static bool is_saved(const char *path, const char *const *list, int n)
{
    for (int i = 0; i < n; i++) {
        const size_t k = strlen(list[i]);
        for (const char *p = k ? strstr(path, list[i]) : NULL; p; p = strstr(p + 1, list[i]))
            if ((p == path || p[-1] == '.') && (p[k] == '.' || p[k] == '\0'))
                return true;
    }
    return false;
}

static af_status is_target(bool *out, const af_adapter_config *c, const af_model_spec *s,
                           const af_module_spec *m, af_error *err)
{
    af_status st = AF_OK;
    if (m->parameter) { /* which no other key chooses or keeps out, as in PEFT */
        *out = af_path_in_list(m->path, c->param, c->param_count);
        return AF_OK;
    }
    bool hit = false, excluded = af_path_in_list(m->path, c->exclude, c->exclude_count) ||
                                 is_saved(m->path, c->modules_to_save, c->save_count);
    if (c->exclude_regex && !excluded)
        AF_TRY(af_pattern_matches(&excluded, c->exclude_regex, m->path, true, err));
    if (c->target_regex && strcmp(c->target_regex, "all-linear") == 0)
        hit = m->group < AF_GROUP_HEAD && (m->layer < 0 || layer_chosen(c, s, m->layer));
    else if (c->target_regex)
        AF_TRY(af_pattern_matches(&hit, c->target_regex, m->path, true, err));
    else if (af_path_in_list(m->path, c->target, c->target_count))
        hit = layer_chosen(c, s, m->layer) || is_entry(m->path, c->target, c->target_count);
    *out = hit && !excluded && !(s->arch->peft_no_router && m->group == AF_GROUP_ROUTER);
done:
    return st;
}

af_status af_adapter_targets(const af_adapter_config *c, const af_model_spec *s, bool *target,
                             af_error *err)
{
    af_status st = AF_OK;
    bool any = false;
    for (int i = 0; i < s->modules; i++) {
        AF_TRY(is_target(&target[i], c, s, &s->module[i], err));
        any |= target[i];
    }
    if (!any) /* names that match nothing are the likely reason */
        AF_TRY(af_adapter_names_used(c, s, err));
    if (!any)
        return af_fail(err, AF_EUSAGE, "the adapter targets no module of this %s model (%s%s)",
                       s->arch->model_type,
                       c->target_regex   ? c->target_regex
                       : c->target_count ? c->target[0]
                                         : "no target_modules",
                       c->target_count > 1 ? ", ..." : "");
done:
    return st;
}

/* "; did you mean 'q_proj'? Modules: q_proj, k_proj, ..." : the last part of each module's path. */
static void module_names(char *out, size_t size, const char *word, const af_model_spec *s)
{
    enum { NAMES = 32 };
    const char *known[NAMES + 1] = {NULL};
    int count = 0, n;
    for (int i = 0; i < s->modules; i++) {
        const char *dot = strrchr(s->module[i].path, '.');
        const char *name = dot ? dot + 1 : s->module[i].path;
        bool seen = s->module[i].parameter;
        for (int k = 0; k < count; k++)
            seen |= strcmp(known[k], name) == 0;
        if (!seen && count < NAMES)
            known[count++] = name;
    }
    const char *near = af_word_nearest(word, known);
    n = near ? snprintf(out, size, "; did you mean '%s'? Its modules: ", near)
             : snprintf(out, size, "; its modules: ");
    for (int i = 0; i < count && (size_t)n < size; i++)
        n += snprintf(out + n, size - (size_t)n, "%s%s", i ? ", " : "", known[i]);
}

af_status af_adapter_names_used(const af_adapter_config *c, const af_model_spec *s, af_error *err)
{
    for (int i = 0; i < c->target_count; i++) {
        bool used = false;
        for (int k = 0; k < s->modules; k++)
            used |= !s->module[k].parameter && af_path_in_list(s->module[k].path, &c->target[i], 1);
        char names[400];
        if (used)
            continue;
        module_names(names, sizeof names, c->target[i], s);
        return af_fail(err, AF_EUSAGE, "target module '%.128s' matches nothing in this %s model%s",
                       c->target[i], s->arch->model_type, names);
    }
    return af_adapter_params_used(c, s, err);
}

/* ---- reading ---- */

typedef struct config_reader {
    const json_t *root;
    const char *name;
    af_arena *arena;
    af_error *err;
    af_status st;
} config_reader;

static const json_t *get(const config_reader *r, const char *key)
{
    const json_t *v = json_object_get(r->root, key);
    return json_is_null(v) ? NULL : v;
}

static void wrong(config_reader *r, const char *key, const char *want)
{
    if (r->st == AF_OK)
        r->st = af_fail(r->err, AF_EFORMAT, "%s: %s is not %s", r->name, key, want);
}

static double get_num(config_reader *r, const char *key, double absent)
{
    const json_t *v = get(r, key);
    if (v && !json_is_number(v))
        wrong(r, key, "a number");
    return v ? json_number_value(v) : absent;
}

static bool get_bool(config_reader *r, const char *key)
{
    const json_t *v = get(r, key);
    if (v && !json_is_boolean(v))
        wrong(r, key, "true or false");
    return json_is_true(v);
}

static const char *copy_str(config_reader *r, const char *s)
{
    const char *p = af_arena_strdup(r->arena, s);
    if (!p && r->st == AF_OK)
        r->st = af_fail_nomem(r->err, "a name", strlen(s));
    return p ? p : "";
}

/* A list of strings, or one string (which goes to *single). */
static const char *const *get_names(config_reader *r, const char *key, int *n, const char **single)
{
    const json_t *v = get(r, key);
    *n = 0;
    if (!v)
        return NULL;
    if (single && json_is_string(v)) {
        *single = copy_str(r, json_string_value(v));
        return NULL;
    }
    if (!json_is_array(v) || json_array_size(v) > AF_ADAPTER_PATTERNS_MAX) {
        wrong(r, key, "a list of names");
        return NULL;
    }
    const size_t count = json_array_size(v);
    const char **list = af_arena_take(r->arena, AF_MAX(count, 1) * sizeof *list);
    for (size_t i = 0; list && i < count; i++) {
        const char *s = json_string_value(json_array_get(v, i));
        if (!s)
            wrong(r, key, "a list of names");
        list[i] = copy_str(r, s ? s : "");
    }
    *n = list ? (int)count : 0;
    return list;
}

static const af_adapter_pattern *get_patterns(config_reader *r, const char *key, int *n)
{
    const json_t *v = get(r, key);
    *n = 0;
    if (!v)
        return NULL;
    if (!json_is_object(v) || json_object_size(v) > AF_ADAPTER_PATTERNS_MAX) {
        wrong(r, key, "an object of numbers");
        return NULL;
    }
    af_adapter_pattern *list =
        af_arena_take(r->arena, AF_MAX(json_object_size(v), 1) * sizeof *list);
    const char *k;
    json_t *item;
    json_object_foreach((json_t *)v, k, item)
    {
        if (!json_is_number(item))
            wrong(r, key, "an object of numbers");
        if (list)
            list[(*n)++] = (af_adapter_pattern){copy_str(r, k), json_number_value(item)};
    }
    return list;
}

static const int64_t *get_layers(config_reader *r, int *n)
{
    const json_t *v = get(r, "layers_to_transform");
    const size_t count = json_is_array(v) ? json_array_size(v) : v != NULL;
    *n = 0;
    if (count > AF_CONFIG_LAYERS_MAX) {
        wrong(r, "layers_to_transform", "a list of layer numbers");
        return NULL;
    }
    int64_t *list = af_arena_take(r->arena, AF_MAX(count, 1) * sizeof *list);
    for (size_t i = 0; list && i < count; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(item))
            wrong(r, "layers_to_transform", "a list of layer numbers");
        list[i] = json_integer_value(item);
    }
    *n = list ? (int)count : 0;
    return list;
}

/* The list of layers has this name in every model we know; another would choose other modules. */
static void check_layers_pattern(config_reader *r)
{
    const json_t *v = get(r, "layers_pattern");
    const size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    bool fits = n == 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        fits |= name && (strcmp(name, "layers") == 0 || (n == 1 && *name == '\0'));
    }
    if (!fits)
        wrong(r, "layers_pattern", "'layers', the one list of layers this build knows");
}

/* Kinds of adapter that compute something else than we do. */
static void refuse_others(config_reader *r)
{
    static const char *const off[] = {"alora_invocation_tokens",
                                      "arrow_config",
                                      "layer_replication",
                                      "use_bdlora",
                                      "use_qalora",
                                      "kasa_config",
                                      "lora_ga_config",
                                      "monteclora_config",
                                      "velora_config"};
    const char *type = json_string_value(get(r, "peft_type"));
    const char *bias = json_string_value(get(r, "bias"));
    if (!type || strcmp(type, "LORA") != 0)
        wrong(r, "peft_type", "LORA");
    if (bias && strcmp(bias, "none") != 0)
        wrong(r, "bias", "'none', the one kind this build reads");
    for (size_t i = 0; i < AF_LEN(off); i++) {
        const json_t *v = get(r, off[i]);
        const bool empty = !v || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
                           (json_is_object(v) && !json_object_size(v));
        if (!empty)
            wrong(r, off[i], "off: this build supports nothing else");
    }
}

static const char *get_init(config_reader *r)
{
    static const char *const fine[] = {"gaussian", "orthogonal", "eva"};
    const json_t *v = get(r, "init_lora_weights");
    if (!json_is_string(v))
        return "true";
    for (size_t i = 0; i < AF_LEN(fine); i++)
        if (strcmp(fine[i], json_string_value(v)) == 0)
            return fine[i];
    wrong(r, "init_lora_weights", "a kind that leaves the base as it is");
    return "true";
}

static void read_all(config_reader *r, af_adapter_config *c)
{
    refuse_others(r);
    check_layers_pattern(r);
    const double rank = get_num(r, "r", 8);
    if (!(rank >= 1) || rank > AF_ADAPTER_RANK_MAX || rank != floor(rank))
        wrong(r, "r", "a rank from 1 to 65536");
    c->r = r->st == AF_OK ? (int)rank : 1;
    c->alpha = get_num(r, "lora_alpha", 8);
    c->dropout = get_num(r, "lora_dropout", 0);
    if (!isfinite(c->alpha))
        wrong(r, "lora_alpha", "a finite number");
    if (!(c->dropout >= 0) || c->dropout >= 1)
        wrong(r, "lora_dropout", "from 0 to below 1");
    c->rslora = get_bool(r, "use_rslora");
    c->dora = get_bool(r, "use_dora");
    c->lora_bias = get_bool(r, "lora_bias");
    c->ensure_tying = get_bool(r, "ensure_weight_tying");
    c->target = get_names(r, "target_modules", &c->target_count, &c->target_regex);
    c->param = get_names(r, "target_parameters", &c->param_count, NULL);
    c->exclude = get_names(r, "exclude_modules", &c->exclude_count, &c->exclude_regex);
    c->modules_to_save = get_names(r, "modules_to_save", &c->save_count, NULL);
    const json_t *tokens = get(r, "trainable_token_indices");
    if (tokens && !af_adapter_tokens_parse(c->tokens, r->arena, tokens))
        wrong(r, "trainable_token_indices",
              "a list of tokens, or one for embed_tokens and lm_head");
    c->layers = get_layers(r, &c->layer_count);
    c->rank_pattern = get_patterns(r, "rank_pattern", &c->rank_patterns);
    c->alpha_pattern = get_patterns(r, "alpha_pattern", &c->alpha_patterns);
    const char *task = json_string_value(get(r, "task_type"));
    c->classifies = task && strcmp(task, "SEQ_CLS") == 0;
    c->labels = af_adapter_labels_parse(r->arena, get(r, AF_LABELS_KEY));
    const char *base = json_string_value(get(r, "base_model_name_or_path"));
    c->base_model = base ? copy_str(r, base) : NULL;
    c->init_weights = get_init(r);
}

af_status af_adapter_config_parse(af_adapter_config *out, af_arena *arena, const char *text,
                                  uint64_t size, const char *name, af_error *err)
{
    json_error_t je;
    af_adapter_config c = {0};
    json_t *root = af_json_load(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(root)) {
        json_decref(root);
        return af_fail(err, AF_EFORMAT, "%s:%d: %s", name, root ? 1 : je.line,
                       root ? "not an object" : je.text);
    }
    config_reader r = {root, name, arena, err, AF_OK};
    read_all(&r, &c);
    json_decref(root);
    if (r.st == AF_OK)
        *out = c;
    return r.st;
}

/* ---- writing ---- */

static json_t *number(double v)
{
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *names_json(const char *const *list, int n, const char *single, bool null_when_empty)
{
    if (single)
        return json_string(single);
    if (n == 0 && null_when_empty)
        return json_null();
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_string(list[i]));
    return a;
}

static json_t *patterns_json(const af_adapter_pattern *p, int n)
{
    json_t *o = json_object();
    for (int i = 0; i < n; i++)
        json_object_set_new(o, p[i].key, number(p[i].value));
    return o;
}

static json_t *layers_json(const af_adapter_config *c)
{
    if (c->layer_count == 0)
        return json_null();
    json_t *a = json_array();
    for (int i = 0; i < c->layer_count; i++)
        json_array_append_new(a, json_integer(c->layers[i]));
    return a;
}

/* Keys of features we do not have, at the values that mean "off". */
static void set_constants(json_t *o)
{
    static const char *const nulls[] = {"alora_invocation_tokens",
                                        "arrow_config",
                                        "auto_mapping",
                                        "corda_config",
                                        "eva_config",
                                        "layer_replication",
                                        "layers_pattern",
                                        "megatron_config",
                                        "revision",
                                        "use_bdlora"};
    static const char *const falses[] = {"ensure_weight_tying", "use_qalora"};
    for (size_t i = 0; i < AF_LEN(nulls); i++)
        json_object_set_new(o, nulls[i], json_null());
    for (size_t i = 0; i < AF_LEN(falses); i++)
        json_object_set_new(o, falses[i], json_false());
    json_object_set_new(o, "bias", json_string("none"));
    json_object_set_new(o, "inference_mode", json_true());
    json_object_set_new(o, "loftq_config", json_object());
    json_object_set_new(o, "megatron_core", json_string("megatron.core"));
    json_object_set_new(o, "peft_type", json_string("LORA"));
    json_object_set_new(o, "peft_version", json_string("0.20.0"));
    json_object_set_new(o, "qalora_group_size", json_integer(16));
}

char *af_adapter_config_text(const af_adapter_config *c)
{
    json_t *o = json_object();
    json_error_t why;
    const bool is_true = !c->init_weights || strcmp(c->init_weights, "true") == 0;
    set_constants(o);
    json_object_set_new(o, "alpha_pattern", patterns_json(c->alpha_pattern, c->alpha_patterns));
    json_object_set_new(o, "base_model_name_or_path",
                        c->base_model ? json_string(c->base_model) : json_null());
    json_object_set_new(o, "exclude_modules",
                        names_json(c->exclude, c->exclude_count, c->exclude_regex, true));
    json_object_set_new(o, "fan_in_fan_out", json_boolean(c->fan_in_fan_out));
    json_object_set_new(o, "init_lora_weights",
                        is_true ? json_true() : json_string(c->init_weights));
    json_object_set_new(o, "layers_to_transform", layers_json(c));
    json_object_set_new(o, "lora_alpha", number(c->alpha));
    json_object_set_new(o, "lora_bias", json_boolean(c->lora_bias));
    json_object_set_new(o, "lora_dropout", json_real(c->dropout));
    json_object_set_new(o, "task_type", json_string(c->classifies ? "SEQ_CLS" : "CAUSAL_LM"));
    if (c->labels)
        json_object_set_new(o, AF_LABELS_KEY, af_json_load(c->labels, strlen(c->labels), 0, &why));
    json_object_set_new(o, "modules_to_save",
                        names_json(c->modules_to_save, c->save_count, NULL, true));
    json_object_set_new(o, "r", json_integer(c->r));
    json_object_set_new(o, "rank_pattern", patterns_json(c->rank_pattern, c->rank_patterns));
    json_object_set_new(o, "target_modules",
                        names_json(c->target, c->target_count, c->target_regex, false));
    json_object_set_new(o, "target_parameters", names_json(c->param, c->param_count, NULL, true));
    json_object_set_new(o, "trainable_token_indices",
                        af_adapter_tokens_json(c->tokens, c->table_names));
    json_object_set_new(o, "use_dora", json_boolean(c->dora));
    json_object_set_new(o, "use_rslora", json_boolean(c->rslora));
    char *text = af_json_dump(o, JSON_SORT_KEYS | JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(o);
    return text;
}

/* ---- copying ---- */

static const char *dup(af_arena *a, const char *s, bool *bad)
{
    const char *p = s ? af_arena_strdup(a, s) : NULL;
    *bad |= s && !p;
    return p;
}

static const char *const *dup_names(af_arena *a, const char *const *list, int n, bool *bad)
{
    const char **p = n ? af_arena_take(a, (uint64_t)n * sizeof *p) : NULL;
    *bad |= n && !p;
    for (int i = 0; p && i < n; i++)
        p[i] = dup(a, list[i], bad);
    return p;
}

static const af_adapter_pattern *dup_patterns(af_arena *a, const af_adapter_pattern *list, int n,
                                              bool *bad)
{
    af_adapter_pattern *p = n ? af_arena_take(a, (uint64_t)n * sizeof *p) : NULL;
    *bad |= n && !p;
    for (int i = 0; p && i < n; i++)
        p[i] = (af_adapter_pattern){dup(a, list[i].key, bad), list[i].value};
    return p;
}

static const int64_t *dup_i64(af_arena *a, const int64_t *list, int n, bool *bad)
{
    int64_t *p = n ? af_arena_take(a, (uint64_t)n * sizeof *p) : NULL;
    *bad |= n && !p;
    if (p)
        memcpy(p, list, (size_t)n * sizeof *p);
    return p;
}

af_status af_adapter_config_copy(af_adapter_config *out, const af_adapter_config *c, af_arena *a,
                                 af_error *err)
{
    bool bad = false;
    af_adapter_config d = *c;
    d.target_regex = dup(a, c->target_regex, &bad);
    d.exclude_regex = dup(a, c->exclude_regex, &bad);
    d.base_model = dup(a, c->base_model, &bad);
    d.init_weights = dup(a, c->init_weights, &bad);
    d.target = dup_names(a, c->target, c->target_count, &bad);
    d.param = dup_names(a, c->param, c->param_count, &bad);
    d.exclude = dup_names(a, c->exclude, c->exclude_count, &bad);
    d.labels = dup(a, c->labels, &bad);
    d.modules_to_save = dup_names(a, c->modules_to_save, c->save_count, &bad);
    d.rank_pattern = dup_patterns(a, c->rank_pattern, c->rank_patterns, &bad);
    d.alpha_pattern = dup_patterns(a, c->alpha_pattern, c->alpha_patterns, &bad);
    d.layers = dup_i64(a, c->layers, c->layer_count, &bad);
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        d.tokens[k].index = dup_i64(a, c->tokens[k].index, c->tokens[k].count, &bad);
    if (bad)
        return af_fail_nomem(err, "an adapter's settings", 0);
    *out = d;
    return AF_OK;
}
