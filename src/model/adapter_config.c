/* adapter_config.c - PEFT's adapter_config.json: read, copied, and its rules for matching modules.
 * Written by adapter_write.c. */
#include "model/adapter_config.h"

#include "base/buf.h"
#include "base/word.h"
#include "format/hub/hub_name.h"
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
    for (size_t len = strlen(path); len > 0; len--) { /* the module, then those it is part of */
        for (int i = 0; i < n && (!path[len] || path[len] == '.'); i++) {
            const size_t k = strlen(list[i]);
            if (k > 0 && k <= len && strncmp(path + len - k, list[i], k) == 0)
                return true;
        }
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

/* Another name than that of the model's list of layers would choose other modules. */
static af_status check_layer_list(const af_adapter_config *c, const af_model_spec *s, af_error *err)
{
    const char *name = s->arch->layers ? s->arch->layers : "layers";
    for (int i = 0; i < c->layer_lists; i++)
        if (!*c->layer_list[i] || strcmp(c->layer_list[i], name) == 0)
            return AF_OK;
    return c->layer_lists == 0
               ? AF_OK
               : af_fail(err, AF_EFORMAT,
                         "layers_pattern is '%.64s', but layers of this %s model are in '%s'",
                         c->layer_list[0], s->arch->model_type, name);
}

af_status af_adapter_targets(const af_adapter_config *c, const af_model_spec *s, bool *target,
                             af_error *err)
{
    af_status st = AF_OK;
    bool any = false;
    AF_TRY(check_layer_list(c, s, err));
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

static void get_layer_lists(config_reader *r, af_adapter_config *c)
{
    const char *one = NULL;
    c->layer_list = get_names(r, "layers_pattern", &c->layer_lists, &one);
    const char **list = one && *one ? af_arena_take(r->arena, sizeof *list) : NULL;
    if (list) {
        list[0] = one;
        c->layer_list = list;
        c->layer_lists = 1;
    }
}

static af_peft_type get_type(config_reader *r)
{
    const char *type = json_string_value(get(r, "peft_type"));
    const char *init = json_string_value(get(r, "init_weights"));
    int k = 0;
    while (k < AF_PEFT_TYPES && !(type && strcmp(type, af_peft_forms[k].name) == 0))
        k++;
    if (k == AF_PEFT_TYPES && r->st == AF_OK)
        r->st = af_fail(r->err, AF_EFORMAT,
                        "%s: peft_type is '%.40s', not one of LORA, ADALORA, VERA, LOHA, LOKR, "
                        "MISS, BONE, IA3, OFT",
                        r->name, type ? type : "");
    if (init && strcmp(init, "bat") == 0) /* of MiSS: a product with the base */
        wrong(r, "init_weights", "a kind whose change of a weight does not depend on it");
    return k < AF_PEFT_TYPES ? (af_peft_type)k : AF_PEFT_LORA;
}

/* Variants of LoRA that compute something else than we do. */
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
    for (size_t i = 0; i < AF_LEN(off); i++) {
        const json_t *v = get(r, off[i]);
        const bool empty = !v || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
                           (json_is_object(v) && !json_object_size(v));
        if (!empty)
            wrong(r, off[i], "off: this build supports nothing else");
    }
}

/* NULL = "none" */
static const char *get_bias(config_reader *r)
{
    static const char *const kinds[] = {"all", "lora_only"};
    const char *bias = json_string_value(get(r, "bias"));
    for (size_t i = 0; bias && i < AF_LEN(kinds); i++)
        if (strcmp(bias, kinds[i]) == 0)
            return kinds[i];
    if (bias && af_ends_with(bias, "_only")) /* of other types: vera_only, oft_only, MiSS_only */
        return kinds[1];
    if (get(r, "bias") && !(bias && strcmp(bias, "none") == 0))
        wrong(r, "bias", "'none', 'all' or 'lora_only'");
    return NULL;
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
    wrong(
        r, "init_lora_weights",
        "a kind that leaves the base as it is: save the adapter as one for the plain base (PEFT's "
        "path_initial_model_for_weight_conversion, LLaMA-Factory's pissa_convert)");
    return "true";
}

/* The base, with the revision that PEFT keeps apart from it. */
static const char *get_base(config_reader *r)
{
    const char *base = json_string_value(get(r, "base_model_name_or_path"));
    const char *revision = json_string_value(get(r, "revision"));
    if (!base)
        return NULL;
    if (!revision || !af_hub_is_name(base) || strchr(base, '@'))
        return copy_str(r, base);
    const char *both = af_arena_printf(r->arena, "%s@%s", base, revision);
    if (!both && r->st == AF_OK)
        r->st = af_fail_nomem(r->err, "a name", strlen(base));
    return both;
}

static void read_all(config_reader *r, af_adapter_config *c)
{
    refuse_others(r);
    c->type = get_type(r);
    const af_peft_form *f = &af_peft_forms[c->type];
    const double rank = f->rank ? get_num(r, f->rank, f->rank_default) : 1;
    if (!(rank >= 1) || rank > AF_ADAPTER_RANK_MAX || rank != floor(rank))
        wrong(r, f->rank, "a rank from 1 to 65536");
    c->r = r->st == AF_OK ? (int)rank : 1;
    c->alpha = f->alpha ? get_num(r, f->alpha, 8) : rank;
    c->dropout = f->dropout ? get_num(r, f->dropout, 0) : 0;
    if (!isfinite(c->alpha))
        wrong(r, f->alpha, "a finite number");
    if (!(c->dropout >= 0) || c->dropout >= 1)
        wrong(r, f->dropout, "from 0 to below 1");
    if (c->type == AF_PEFT_OFT && r->st == AF_OK)
        r->st = af_oft_parse(&c->oft, r->root, r->name, r->err);
    c->rslora = get_bool(r, "use_rslora");
    c->dora = get_bool(r, "use_dora");
    c->lora_bias = get_bool(r, "lora_bias");
    if (c->type != AF_PEFT_LORA) /* where PEFT ignores them */
        c->rslora = c->dora = c->lora_bias = false;
    c->bias = get_bias(r);
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
    get_layer_lists(r, c);
    if (c->type != AF_PEFT_ADALORA) /* there it says which of init_r are left */
        c->rank_pattern = get_patterns(r, "rank_pattern", &c->rank_patterns);
    c->alpha_pattern = get_patterns(r, "alpha_pattern", &c->alpha_patterns);
    const char *task = json_string_value(get(r, "task_type"));
    c->classifies = task && strcmp(task, "SEQ_CLS") == 0;
    c->labels = af_adapter_labels_parse(r->arena, get(r, AF_LABELS_KEY));
    c->base_model = get_base(r);
    c->init_weights = get_init(r);
}

/* mlx-lm has one rank and one scale for all, and the settings of the run next to them. */
static void read_mlx(config_reader *r, af_adapter_config *c)
{
    const char *type = json_string_value(get(r, "fine_tune_type"));
    config_reader in = *r;
    in.root = get(r, "lora_parameters");
    c->mlx = true;
    c->dora = type ? strcmp(type, "dora") == 0 : get_bool(r, "use_dora");
    if (type && !c->dora && strcmp(type, "lora") != 0)
        wrong(&in, "fine_tune_type", "lora or dora");
    const double rank = get_num(&in, "rank", 8), scale = get_num(&in, "scale", 20);
    if (!(rank >= 1) || rank > AF_ADAPTER_RANK_MAX || rank != floor(rank))
        wrong(&in, "rank", "a rank from 1 to 65536");
    if (!isfinite(scale))
        wrong(&in, "scale", "a finite number");
    c->r = in.st == AF_OK ? (int)rank : 1;
    c->alpha = scale * c->r;
    c->dropout = get_num(&in, "dropout", 0);
    if (!(c->dropout >= 0) || c->dropout >= 1)
        wrong(&in, "dropout", "from 0 to below 1");
    r->st = in.st;
    const char *base = json_string_value(get(r, "model"));
    c->base_model = base ? copy_str(r, base) : NULL;
    c->init_weights = "true";
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
    if (!get(&r, "peft_type") && json_is_object(get(&r, "lora_parameters")))
        read_mlx(&r, &c);
    else
        read_all(&r, &c);
    json_decref(root);
    if (r.st == AF_OK)
        *out = c;
    return r.st;
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
    d.layer_list = dup_names(a, c->layer_list, c->layer_lists, &bad);
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
