/* merge_config.c - see merge_config.h. */
#include "convert/merge/merge_config.h"

#include "base/log.h"
#include "base/word.h"
#include "convert/output/model_out.h"

#include <stdarg.h>

AF_PRINTF(4, 5)
static af_status wrong(const af_merge_config *c, int line, af_error *err, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return af_fail(err, AF_EUSAGE, "%s:%d: %s", c->file, line, text);
}

static af_status unknown(const af_merge_config *c, int line, const char *what, const char *word,
                         const char *const *known, af_error *err)
{
    const char *near = af_word_nearest(word, known);
    if (near)
        return wrong(c, line, err, "unknown %s '%.80s'; did you mean '%s'?", what, word, near);
    return wrong(c, line, err, "unknown %s '%.80s'", what, word);
}

static af_status check_keys(const af_merge_config *c, const af_yaml *map, const char *what,
                            const char *const *known, af_error *err)
{
    if (map->kind != AF_YAML_MAP) {
        char show[80];
        return wrong(c, map->line, err, "%s is %s, not a map", what,
                     af_yaml_show(map, show, sizeof show));
    }
    for (int i = 0; i < map->count; i++) {
        int k = 0;
        while (known[k] && strcmp(known[k], map->key[i]) != 0)
            k++;
        if (!known[k])
            return unknown(c, map->key_line[i], "key", map->key[i], known, err);
    }
    return AF_OK;
}

static af_status need_text(const af_merge_config *c, const af_yaml *n, const char *what,
                           const char **out, af_error *err)
{
    if (n->kind != AF_YAML_SCALAR || af_yaml_is_null(n))
        return wrong(c, n->line, err, "%s is not a name", what);
    *out = n->text;
    return AF_OK;
}

/* ---- models ---- */

int af_merge_config_model(const af_merge_config *c, const char *name)
{
    for (int i = 0; i < c->models; i++)
        if (strcmp(c->model[i], name) == 0)
            return i;
    return -1;
}

static af_status add_model(af_merge_config *c, const af_yaml *n, int *out, af_error *err)
{
    const char *name = NULL;
    const af_status st = need_text(c, n, "model", &name, err);
    if (st != AF_OK)
        return st;
    const int old = af_merge_config_model(c, name);
    if (old < 0 && c->models == AF_MERGE_MODELS_MAX)
        return wrong(c, n->line, err, "more than %d models", AF_MERGE_MODELS_MAX);
    if (old < 0)
        c->model[c->models] = name;
    *out = old < 0 ? c->models++ : old;
    return AF_OK;
}

/* ---- parameters ---- */

static af_status check_value(const af_merge_config *c, const af_yaml *v, const char *key, int depth,
                             af_error *err)
{
    static const char *const known[] = {"filter", "value", NULL};
    af_status st = AF_OK;
    double x;
    bool b;
    char show[80];
    if (v->kind == AF_YAML_LIST && v->count > 0 && depth < 3) {
        for (int i = 0; i < v->count; i++)
            AF_TRY(check_value(c, v->item[i], key, depth + 1, err));
        return AF_OK;
    }
    if (v->kind == AF_YAML_MAP && depth == 1) {
        AF_TRY(check_keys(c, v, "a filter", known, err));
        if (!af_yaml_get(v, "value"))
            return wrong(c, v->line, err, "a filter of '%s' has no value", key);
        return check_value(c, af_yaml_get(v, "value"), key, depth + 1, err);
    }
    if (!af_yaml_f64(v, &x) && !af_yaml_bool(v, &b))
        return wrong(c, v->line, err, "'%s' is %s, not a number", key,
                     af_yaml_show(v, show, sizeof show));
done:
    return st;
}

/* A parameter of other methods, which mergekit does not read, either. Reported once. */
static void pass_over(af_merge_config *c, const char *key, int line)
{
    const int most = (int)AF_LEN(c->unread);
    for (int i = 0; i < c->unreads; i++)
        if (strcmp(c->unread[i], key) == 0)
            return;
    if (c->unreads < most)
        c->unread[c->unreads++] = key;
    af_log_write(AF_LOG_WARN, "%s:%d: method '%s' does not read '%s': it changes nothing", c->file,
                 line, c->method->name, key);
}

static af_status check_params(af_merge_config *c, const af_yaml *p, af_error *err)
{
    af_status st = AF_OK;
    if (!p || af_yaml_is_null(p))
        return AF_OK;
    if (p->kind != AF_YAML_MAP)
        return wrong(c, p->line, err, "parameters is not a map");
    for (int i = 0; i < p->count; i++) {
        if (!af_merge_method_reads(c->method, p->key[i]) && af_merge_is_param(p->key[i])) {
            pass_over(c, p->key[i], p->key_line[i]);
            continue;
        }
        if (strcmp(p->key[i], "dtype") == 0 || strcmp(p->key[i], "out_dtype") == 0) {
            af_log_write(
                AF_LOG_WARN,
                "%s:%d: '%s' is not a parameter and changes nothing here: it belongs next to "
                "'merge_method'",
                c->file, p->key_line[i], p->key[i]);
            continue;
        }
        if (!af_merge_method_reads(c->method, p->key[i])) {
            const char *near = af_word_nearest(p->key[i], c->method->params);
            return wrong(c, p->key_line[i], err, "method '%s' has no parameter '%.80s'%s%s%s",
                         c->method->name, p->key[i], near ? "; did you mean '" : "",
                         near ? near : "", near ? "'?" : "");
        }
        AF_TRY(check_value(c, p->item[i], p->key[i], 0, err));
    }
done:
    return st;
}

static af_status evaluate(const af_yaml *v, const char *tensor, double t, double *out, bool *found)
{
    bool b;
    if (v->kind == AF_YAML_LIST && v->item[0]->kind == AF_YAML_MAP) {
        for (int i = 0; i < v->count; i++) {
            if (v->item[i]->kind != AF_YAML_MAP)
                continue;
            const af_yaml *f = af_yaml_get(v->item[i], "filter");
            const bool all = !f || af_yaml_is_null(f) || (f->text && strcmp(f->text, "*") == 0);
            if (all || (f->text && strstr(tensor, f->text)))
                return evaluate(af_yaml_get(v->item[i], "value"), tensor, t, out, found);
        }
        return AF_OK;
    }
    if (v->kind == AF_YAML_LIST) {
        const double x = t * (v->count - 1);
        const int i = (int)x, next = AF_MIN(v->count - 1, i + 1);
        double a = 0, c = 0;
        if (!af_yaml_f64(v->item[i], &a) || !af_yaml_f64(v->item[next], &c))
            return AF_EUSAGE;
        *out = (1 - (x - i)) * a + (x - i) * c;
        *found = true;
        return AF_OK;
    }
    if (af_yaml_f64(v, out))
        *found = true;
    else if (af_yaml_bool(v, &b)) {
        *out = b;
        *found = true;
    }
    return AF_OK;
}

af_status af_merge_param(const af_merge_config *c, const char *key, const char *tensor, double t,
                         const af_merge_slice *slice, const af_merge_source *source, double *value,
                         bool *found, af_error *err)
{
    const af_yaml *scope[] = {source ? source->params : NULL, slice ? slice->params : NULL,
                              c->module_params, c->params};
    *found = false;
    if (!af_merge_method_reads(c->method, key))
        return AF_OK;
    for (size_t i = 0; i < AF_LEN(scope) && !*found; i++) {
        const af_yaml *v =
            scope[i] && scope[i]->kind == AF_YAML_MAP ? af_yaml_get(scope[i], key) : NULL;
        if (v && evaluate(v, tensor, t, value, found) != AF_OK)
            return wrong(c, v->line, err, "a gradient of '%s' is not a list of numbers", key);
    }
    return AF_OK;
}

/* ---- slices ---- */

static af_status read_range(const af_merge_config *c, const af_yaml *n, af_merge_source *s,
                            af_error *err)
{
    if (!n || n->kind != AF_YAML_LIST || n->count != 2 || !af_yaml_i64(n->item[0], &s->from) ||
        !af_yaml_i64(n->item[1], &s->to) || s->from < 0 || s->to <= s->from)
        return wrong(c, n ? n->line : s->line, err,
                     "layer_range is not two layers [from, to) with from < to");
    return AF_OK;
}

/* mergekit merges all layers of 'models'. */
static void pass_over_range(af_merge_config *c, int line)
{
    if (!c->range_unread)
        af_log_write(
            AF_LOG_WARN,
            "%s:%d: 'layer_range' is for the sources of 'slices': 'models' are merged whole",
            c->file, line);
    c->range_unread = true;
}

/* The keys of a model. A parameter among them would be lost in mergekit. */
static af_status check_source(af_merge_config *c, const af_yaml *n, bool ranged, af_error *err)
{
    static const char *const known[] = {"model", "layer_range", "parameters", NULL};
    for (int i = 0; n->kind == AF_YAML_MAP && i < n->count; i++) {
        if (af_merge_is_param(n->key[i]))
            return wrong(c, n->key_line[i], err, "'%s' belongs under 'parameters' of its model",
                         n->key[i]);
        if (!ranged && strcmp(n->key[i], "layer_range") == 0)
            pass_over_range(c, n->key_line[i]);
    }
    return check_keys(c, n, "a model", known, err);
}

static af_status read_source(af_merge_config *c, const af_yaml *n, bool ranged, af_merge_source *s,
                             af_error *err)
{
    af_status st = AF_OK;
    *s = (af_merge_source){.line = n->line, .to = -1};
    AF_TRY(check_source(c, n, ranged, err));
    if (!af_yaml_get(n, "model"))
        return wrong(c, n->line, err, "'model' is missing");
    AF_TRY(add_model(c, af_yaml_get(n, "model"), &s->model, err));
    s->params = af_yaml_get(n, "parameters");
    AF_TRY(check_params(c, s->params, err));
    if (ranged)
        AF_TRY(read_range(c, af_yaml_get(n, "layer_range"), s, err));
done:
    return st;
}

static af_status read_sources(af_merge_config *c, const af_yaml *list, bool ranged,
                              af_merge_slice *s, af_error *err)
{
    af_status st = AF_OK;
    if (!list || list->kind != AF_YAML_LIST || list->count == 0 ||
        list->count > AF_MERGE_MODELS_MAX)
        return wrong(c, list ? list->line : 1, err, "%s is not a list of 1 to %d models",
                     ranged ? "sources" : "models", AF_MERGE_MODELS_MAX);
    s->source = af_arena_take(&c->arena, (uint64_t)(list->count + 1) * sizeof *s->source);
    if (!s->source)
        return af_fail_nomem(err, "sources", 0);
    for (int i = 0; i < list->count; i++) {
        AF_TRY(read_source(c, list->item[i], ranged, &s->source[s->sources], err));
        const af_merge_source *a = &s->source[0], *b = &s->source[s->sources++];
        if (ranged && b->to - b->from != a->to - a->from)
            return wrong(c, b->line, err,
                         "layer_range has %lld layers, but the first source of the slice %lld",
                         (long long)(b->to - b->from), (long long)(a->to - a->from));
    }
done:
    return st;
}

/* A base that is not among the sources is one without parameters. */
static void add_base(af_merge_slice *s)
{
    for (int i = 0; i < s->sources; i++)
        if (s->source[i].model == s->base)
            return;
    if (s->base < 0)
        return;
    s->source[s->sources] = s->source[0];
    s->source[s->sources].model = s->base;
    s->source[s->sources++].params = NULL;
}

static af_status read_slice(af_merge_config *c, const af_yaml *n, af_error *err)
{
    static const char *const known[] = {"sources", "base_model", "parameters", NULL};
    af_status st = AF_OK;
    af_merge_slice *s = &c->slice[c->slices++];
    *s = (af_merge_slice){.base = c->method->base == AF_BASE_NONE ? -1 : c->base};
    AF_TRY(check_keys(c, n, "a slice", known, err));
    if (af_yaml_get(n, "base_model") && c->method->base != AF_BASE_NONE)
        AF_TRY(add_model(c, af_yaml_get(n, "base_model"), &s->base, err));
    s->params = af_yaml_get(n, "parameters");
    AF_TRY(check_params(c, s->params, err));
    AF_TRY(read_sources(c, af_yaml_get(n, "sources"), true, s, err));
    add_base(s);
done:
    return st;
}

/* modules: {default: {slices or models, parameters}}: the text model is the only module here. */
static af_status read_modules(af_merge_config *c, const af_yaml *root, const af_yaml **body,
                              af_error *err)
{
    static const char *const known[] = {"slices", "models", "parameters", "name", NULL};
    const af_yaml *modules = af_yaml_get(root, "modules");
    *body = root;
    if (!modules || af_yaml_is_null(modules))
        return AF_OK;
    if (af_yaml_get(root, "models") || af_yaml_get(root, "slices"))
        return wrong(c, modules->line, err,
                     "exactly one of 'models', 'slices' and 'modules' is needed, not several");
    if (modules->kind != AF_YAML_MAP || modules->count == 0)
        return wrong(c, modules->line, err, "modules is not a map, {default: {slices: ...}}");
    for (int i = 0; i < modules->count; i++)
        if (strcmp(modules->key[i], "default") != 0)
            return wrong(c, modules->key_line[i], err,
                         "module '%.80s' is not supported: models of text have one, 'default'",
                         modules->key[i]);
    *body = modules->item[0];
    const af_status st = check_keys(c, *body, "a module", known, err);
    c->module_params = st == AF_OK ? af_yaml_get(*body, "parameters") : NULL;
    return st == AF_OK ? check_params(c, c->module_params, err) : st;
}

static af_status read_body(af_merge_config *c, const af_yaml *root, af_error *err)
{
    af_status st = AF_OK;
    const af_yaml *models = af_yaml_get(root, "models"), *slices = af_yaml_get(root, "slices");
    if (!models == !slices)
        return wrong(c, root->line, err, "%s of 'models' and 'slices' is needed, not %s",
                     "exactly one", models ? "both" : "none");
    const int n = slices && slices->kind == AF_YAML_LIST ? slices->count : slices ? 0 : 1;
    if (n < 1 || n > AF_MERGE_SLICES_MAX)
        return wrong(c, slices->line, err, "slices is not a list of 1 to %d", AF_MERGE_SLICES_MAX);
    c->slice = af_arena_take(&c->arena, (uint64_t)n * sizeof *c->slice);
    if (!c->slice)
        return af_fail_nomem(err, "slices", 0);
    for (int i = 0; slices && i < n; i++)
        AF_TRY(read_slice(c, slices->item[i], err));
    if (models) {
        c->slices = 1;
        c->slice[0] = (af_merge_slice){.base = c->method->base == AF_BASE_NONE ? -1 : c->base};
        AF_TRY(read_sources(c, models, false, &c->slice[0], err));
        add_base(&c->slice[0]);
    }
done:
    return st;
}

/* ---- the document ---- */

static af_status read_method(af_merge_config *c, const af_yaml *root, af_error *err)
{
    const af_yaml *n = af_yaml_get(root, "merge_method");
    if (!n || !n->text)
        return wrong(c, root->line, err, "merge_method is missing");
    c->method = af_merge_method_find(n->text);
    if (!c->method)
        return unknown(c, n->line, "merge_method", n->text, af_merge_method_names(), err);
    return AF_OK;
}

static af_status read_type(af_merge_config *c, const af_yaml *n, bool *has, af_dtype *out,
                           af_error *err)
{
    if (!n || af_yaml_is_null(n))
        return AF_OK;
    if (!n->text || !af_torch_type(out, n->text))
        return wrong(c, n->line, err, "'%.40s' is not one of float32, float16, bfloat16",
                     n->text ? n->text : "?");
    *has = true;
    return AF_OK;
}

static af_status read_tokens(af_merge_config *c, const af_yaml *root, af_error *err)
{
    static const char *const known[] = {"source", "tokens", "pad_to_multiple_of", NULL};
    af_status st = AF_OK;
    const af_yaml *old = af_yaml_get(root, "tokenizer_source"), *n = af_yaml_get(root, "tokenizer");
    const af_yaml *chat = af_yaml_get(root, "chat_template");
    if (old && n)
        return wrong(c, n->line, err, "'tokenizer' and 'tokenizer_source' exclude each other");
    if (n && !af_yaml_is_null(n)) {
        AF_TRY(check_keys(c, n, "tokenizer", known, err));
        c->tokenizer = n;
        c->tokenizer_source = "union";
        if (af_yaml_get(n, "source"))
            AF_TRY(need_text(c, af_yaml_get(n, "source"), "source", &c->tokenizer_source, err));
    }
    if (old && !af_yaml_is_null(old))
        AF_TRY(need_text(c, old, "tokenizer_source", &c->tokenizer_source, err));
    if (chat && !af_yaml_is_null(chat))
        AF_TRY(need_text(c, chat, "chat_template", &c->chat_template, err));
done:
    return st;
}

/* What later documents call the result. Options of mergekit's command line are not read from its
 * files. */
static af_status read_names(af_merge_config *c, const af_yaml *root, af_error *err)
{
    static const char *const options[] = {"random_seed",    "embed_slerp",  "write_readme",
                                          "copy_tokenizer", "allow_crimes", "lazy_unpickle"};
    const af_yaml *name = af_yaml_get(root, "name"), *path = af_yaml_get(root, "out_path");
    af_status st = AF_OK;
    if (name && !af_yaml_is_null(name))
        AF_TRY(need_text(c, name, "name", &c->name, err));
    if (path && !af_yaml_is_null(path))
        AF_TRY(need_text(c, path, "out_path", &c->out_path, err));
    for (int i = 0; i < root->count; i++)
        for (size_t k = 0; k < AF_LEN(options); k++)
            if (strcmp(root->key[i], options[k]) == 0)
                af_log_write(AF_LOG_WARN,
                             "%s:%d: '%s' is an option of mergekit's command line and changes "
                             "nothing in a file",
                             c->file, root->key_line[i], options[k]);
done:
    return st;
}

static af_status read_all(af_merge_config *c, const af_yaml *root, af_error *err)
{
    static const char *const known[] = {
        "merge_method", "base_model",     "models",           "slices",        "parameters",
        "dtype",        "out_dtype",      "tokenizer_source", "tokenizer",     "chat_template",
        "name",         "out_path",       "modules",          "random_seed",   "embed_slerp",
        "write_readme", "copy_tokenizer", "allow_crimes",     "lazy_unpickle", NULL};
    const af_yaml *body;
    af_status st = AF_OK;
    c->base = -1;
    if (root->kind == AF_YAML_MAP && af_yaml_get(root, "experts"))
        return wrong(c, af_yaml_get(root, "experts")->line, err,
                     "'experts': files of mergekit-moe are not supported");
    AF_TRY(check_keys(c, root, "the file", known, err));
    AF_TRY(read_names(c, root, err));
    AF_TRY(read_method(c, root, err));
    const af_yaml *base = af_yaml_get(root, "base_model");
    if (base && !af_yaml_is_null(base))
        AF_TRY(add_model(c, base, &c->base, err));
    c->params = af_yaml_get(root, "parameters");
    AF_TRY(check_params(c, c->params, err));
    AF_TRY(read_type(c, af_yaml_get(root, "dtype"), &c->has_dtype, &c->dtype, err));
    AF_TRY(read_type(c, af_yaml_get(root, "out_dtype"), &c->has_out_dtype, &c->out_dtype, err));
    AF_TRY(read_tokens(c, root, err));
    AF_TRY(read_modules(c, root, &body, err));
    AF_TRY(read_body(c, body, err));
    for (int i = 0; i < c->slices; i++) {
        const af_merge_slice *s = &c->slice[i];
        const int n = s->sources - (s->base >= 0);
        if (c->method->base == AF_BASE_NEEDED && s->base < 0)
            return wrong(c, s->source[0].line, err, "method '%s' needs a base_model",
                         c->method->name);
        if (n < c->method->min_models || n > c->method->max_models)
            return wrong(c, s->source[0].line, err,
                         "method '%s' needs %d to %d models besides the base, got %d",
                         c->method->name, c->method->min_models, c->method->max_models, n);
    }
done:
    return st;
}

af_status af_merge_config_parse(af_merge_config *out, const char *text, uint64_t size,
                                const char *name, af_error *err)
{
    af_status st = AF_OK;
    af_merge_config c = {0};
    af_yaml *root;
    c.file = af_arena_strdup(&c.arena, name);
    if (!c.file)
        AF_TRY(af_fail_nomem(err, "a path", strlen(name)));
    AF_TRY(af_yaml_parse(&root, &c.arena, text, size, name, err));
    AF_TRY(read_all(&c, root, err));
    *out = c;
    c = (af_merge_config){0};
done:
    af_merge_config_clear(&c);
    return st;
}

af_status af_merge_config_read(af_merge_config *out, const char *path, af_error *err)
{
    char *text = NULL;
    uint64_t n = 0;
    if (af_dir_exists(path))
        return af_fail(err, AF_EUSAGE,
                       "'%.120s' is a folder, not a merge file; adapters go into a model with "
                       "'afinar merge MODEL --adapter DIR -o OUT'",
                       path);
    af_status st = af_file_read(&text, &n, path, AF_YAML_BYTES_MAX, err);
    if (st == AF_OK)
        st = af_merge_config_parse(out, text, n, path, err);
    free(text);
    return st;
}

void af_merge_config_clear(af_merge_config *c)
{
    af_arena_clear(&c->arena);
    *c = (af_merge_config){0};
}
