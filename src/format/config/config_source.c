/* config_source.c - values of config.json by kind; see config_source.h. */
#include "format/config/config_source.h"

#include <jansson.h>
#include <math.h>

/* What the file calls a key. */
static const char *own_key(const af_config_source *s, const char *key)
{
    for (const char *const(*a)[2] = s->alias; a && (*a)[0]; a++)
        if (strcmp((*a)[0], key) == 0 && json_object_get(s->obj, (*a)[1]))
            return (*a)[1];
    return key;
}

const json_t *af_config_value(const af_config_source *s, const char *key)
{
    const json_t *j = json_object_get(s->obj, own_key(s, key));
    return json_is_null(j) ? NULL : j;
}

bool af_config_given(const af_config_source *s, const char *key)
{
    return json_object_get(s->obj, own_key(s, key)) != NULL;
}

void af_config_wrong(af_config_source *s, const char *key, const char *want)
{
    if (s->st == AF_OK)
        s->st = af_fail(s->err, AF_EFORMAT, "%s: %s is not %s", s->name, own_key(s, key), want);
}

const char *const af_config_parts[] = {"thinker_config", "text_config", "llm_config",
                                       "language_config", NULL};

json_t *af_config_text(const json_t *root)
{
    const json_t *thinker = json_object_get(root, af_config_parts[0]); /* next to a talker */
    const json_t *from = json_is_object(thinker) ? thinker : root;
    for (const char *const *key = af_config_parts + 1; *key; key++) {
        json_t *text = json_object_get(from, *key);
        if (json_is_object(text) &&
            (json_object_get(text, "model_type") || !json_object_get(from, "hidden_size")))
            return text;
    }
    return NULL;
}

json_t *af_config_own(json_t *root)
{
    json_t *text = af_config_text(root);
    return text ? text : root;
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

int64_t af_config_int(af_config_source *s, const char *key, int64_t absent)
{
    const json_t *j = af_config_value(s, key);
    int64_t v = absent;
    if (j && !to_int(j, &v))
        af_config_wrong(s, key, "a whole number");
    return v;
}

double af_config_num(af_config_source *s, const char *key, double absent)
{
    const json_t *j = af_config_value(s, key);
    if (j && !json_is_number(j))
        af_config_wrong(s, key, "a number");
    return j ? json_number_value(j) : absent;
}

bool af_config_bool(af_config_source *s, const char *key, bool absent)
{
    const json_t *j = af_config_value(s, key);
    if (j && !json_is_boolean(j))
        af_config_wrong(s, key, "true or false");
    return j ? json_is_true(j) : absent;
}

const char *af_config_str(af_config_source *s, af_arena *arena, const char *key, const char *absent)
{
    const json_t *j = af_config_value(s, key);
    if (j && !json_is_string(j))
        af_config_wrong(s, key, "a string");
    const char *v = af_arena_strdup(arena, json_is_string(j) ? json_string_value(j) : absent);
    if (!v && s->st == AF_OK)
        s->st = af_fail_nomem(s->err, key, 0);
    return v ? v : "";
}

int af_config_ids(af_config_source *s, const char *key, int64_t ids[AF_CONFIG_EOS_MAX])
{
    const json_t *j = af_config_value(s, key);
    const size_t n = json_is_array(j) ? json_array_size(j) : j != NULL;
    if (n > AF_CONFIG_EOS_MAX) {
        af_config_wrong(s, key, "a short list of token ids");
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        if (!to_int(json_is_array(j) ? json_array_get(j, i) : j, &ids[i]))
            af_config_wrong(s, key, "a token id or a list of them");
    return (int)n;
}

const double *af_config_nums(af_config_source *s, af_arena *arena, const char *key, int max, int *n)
{
    const json_t *j = af_config_value(s, key);
    *n = 0;
    if (!j)
        return NULL;
    if (!json_is_array(j) || json_array_size(j) > (size_t)max) {
        af_config_wrong(s, key, "a list of numbers of sensible length");
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
            af_config_wrong(s, key, "a list of numbers");
        v[i] = json_number_value(item);
    }
    *n = (int)count;
    return v;
}

static bool inside(af_config_source *s, const char *key, int64_t v, int64_t min, int64_t max)
{
    if (v >= min && v <= max)
        return true;
    if (s->st == AF_OK)
        s->st = af_fail(s->err, AF_EFORMAT,
                        "%s: %s is %" PRId64 ", not between %" PRId64 " and %" PRId64, s->name,
                        own_key(s, key), v, min, max);
    return false;
}

int64_t af_config_size(af_config_source *s, const char *key, int64_t absent, int64_t min,
                       int64_t max)
{
    const int64_t v = af_config_int(s, key, absent);
    return !af_config_value(s, key) || inside(s, key, v, min, max) ? v : absent;
}

const int64_t *af_config_per_layer(af_config_source *s, af_hf_config *c, const char *key,
                                   int64_t min, int64_t max)
{
    const json_t *j = af_config_value(s, key);
    const int64_t n = c->num_hidden_layers;
    if (!j || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return NULL; /* a wrong count of layers has its own message */
    if (json_is_array(j) && json_array_size(j) < (size_t)n) {
        af_config_wrong(s, key, "a list with one entry per layer");
        return NULL;
    }
    int64_t *v = af_arena_take(&c->arena, (uint64_t)n * sizeof *v);
    if (!v) {
        s->st = s->st == AF_OK ? af_fail_nomem(s->err, key, (uint64_t)n * sizeof *v) : s->st;
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(j) ? json_array_get(j, (size_t)i) : j;
        if (!to_int(item, &v[i]))
            af_config_wrong(s, key, "a whole number or a list of them");
        else if (!inside(s, key, v[i], min, max))
            break;
    }
    return v;
}

void af_config_mlp_types(af_config_source *s, af_hf_config *c)
{
    const json_t *list = af_config_value(s, "mlp_layer_types");
    const int64_t n = c->num_hidden_layers;
    if (!list || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return;
    int64_t *dense = af_arena_take(&c->arena, (uint64_t)n * sizeof *dense);
    if (!dense) {
        s->st = s->st == AF_OK ? af_fail_nomem(s->err, "mlp_layer_types", (uint64_t)n * 8) : s->st;
        return;
    }
    c->mlp_only_layers = dense;
    c->mlp_only_count = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *kind = json_string_value(json_array_get(list, (size_t)i));
        if (!kind || (strcmp(kind, "dense") != 0 && strcmp(kind, "sparse") != 0)) {
            af_config_wrong(s, "mlp_layer_types", "\"dense\" or \"sparse\" for each layer");
            return;
        }
        if (strcmp(kind, "dense") == 0)
            dense[c->mlp_only_count++] = i;
    }
}
