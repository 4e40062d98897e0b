/* schema_rewrite.c - patternProperties in other words: keys that fit one of the patterns, with one
 * schema for all of them, are "propertyNames" with the pattern (or one of "properties") and
 * "additionalProperties" with the schema. Other keys do not come, as in objects with "properties".
 */
#include "base/buf.h"
#include "grammar/schema.h"

enum { DEPTH_MAX = 512, STEPS_PER_BYTE = 4096 /* of a pattern that cannot be read */ };

/* The patterns as one; false: their schemas differ. */
static bool join_patterns(json_t *patterns, af_buf *out, json_t **value)
{
    const char *pattern;
    json_t *v;
    *value = NULL;
    json_object_foreach(patterns, pattern, v)
    {
        if (*value && !json_equal(*value, v))
            return false;
        if (json_object_size(patterns) == 1)
            af_buf_str(out, pattern);
        else
            af_buf_printf(out, *value ? "|(?:%s)" : "(?:%s)", pattern);
        *value = v;
    }
    return *value != NULL;
}

/* The automaton of a pattern; what it takes is counted, also where there is none. */
static bool make_dfa(af_schema *s, const af_buf *pattern, af_dfa *out)
{
    af_pattern p = {0}, *list[] = {&p};
    uint64_t steps = pattern->len * STEPS_PER_BYTE;
    bool good = af_pattern_parse(&p, pattern->data, pattern->len, AF_PATTERN_FIND, NULL) == AF_OK;
    if (good) {
        good = af_dfa_build(out, list, 1, 0, UINT64_MAX, NULL) == AF_OK;
        steps = p.work + (good ? out->work : AF_DFA_WORK_MAX);
    }
    af_pattern_clear(&p);
    return af_schema_count_steps(s, steps) == AF_OK && good;
}

/* The names of a schema that the pattern fits also have its value: their own is joined with it.
 * False: a name that is required has no value, or the pattern cannot be read. */
static bool join_values(af_schema *s, json_t *schema, const af_buf *pattern, json_t *value)
{
    json_t *properties = json_object_get(schema, "properties"), *own;
    const json_t *required = json_object_get(schema, "required");
    af_dfa d = {0};
    const char *name;
    void *next;
    bool good = make_dfa(s, pattern, &d);
    for (size_t i = 0; i < json_array_size(required) && good; i++) {
        const char *one = json_string_value(json_array_get(required, i));
        good = one && (json_object_get(properties, one) || af_dfa_matches(&d, one, strlen(one)));
    }
    json_object_foreach_safe(properties, next, name, own)
    {
        if (good && af_dfa_matches(&d, name, strlen(name)))
            good = !json_object_set_new(properties, name,
                                        json_pack("{s:[O, O]}", "allOf", own, value));
    }
    af_dfa_clear(&d);
    return good;
}

/* Names that the schema lists, and those that the pattern fits. */
static json_t *names_of(const json_t *schema, const char *pattern)
{
    json_t *list = json_array();
    const char *name;
    json_t *v;
    json_object_foreach(json_object_get(schema, "properties"), name, v)
        json_array_append_new(list, json_string(name));
    json_t *fitting = json_pack("{s:s}", "pattern", pattern);
    if (json_array_size(list))
        return json_pack("{s:[{s:o}, o]}", "anyOf", "enum", list, fitting);
    json_decref(list);
    return fitting;
}

static void rewrite_one(af_schema *s, json_t *schema)
{
    json_t *patterns = json_object_get(schema, "patternProperties"), *value = NULL;
    const json_t *more = json_object_get(schema, "additionalProperties");
    json_t *names = json_object_get(schema, "propertyNames");
    af_buf joined = {0};
    if (!json_is_object(patterns) || (more && !json_is_false(more)) ||
        !join_patterns(patterns, &joined, &value) || joined.bad ||
        !join_values(s, schema, &joined, value)) {
        af_buf_clear(&joined);
        return; /* refused later, where it restricts */
    }
    json_t *own = names_of(schema, joined.data);
    if (names)
        own = json_pack("{s:[O, o]}", "allOf", names, own);
    json_object_set(schema, "additionalProperties", value);
    json_object_set_new(schema, "propertyNames", own);
    json_object_del(schema, "patternProperties");
    af_buf_clear(&joined);
}

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

/* `map`: an object of schemas by name, not a schema. */
static void rewrite(af_schema *s, json_t *node, bool map, int depth)
{
    static const char *const maps[] = {"properties", "$defs", "definitions", "patternProperties"};
    static const char *const data[] = {"enum", "const", "default", "examples"};
    const char *name;
    json_t *v;
    size_t i;
    if (depth == DEPTH_MAX || s->merges > AF_SCHEMA_MERGES_MAX)
        return;
    if (json_is_object(node) && !map)
        rewrite_one(s, node);
    json_object_foreach(node, name, v)
    {
        if (map || !is_one_of(name, data, AF_LEN(data)))
            rewrite(s, v, !map && is_one_of(name, maps, AF_LEN(maps)), depth + 1);
    }
    json_array_foreach(node, i, v) rewrite(s, v, false, depth + 1);
}

af_status af_schema_rewrite(af_schema *s, json_t *root)
{
    rewrite(s, root, false, 0);
    return af_schema_count_steps(s, 0);
}

static void put_escaped(af_buf *b, const char *name)
{
    for (; *name; name++) {
        af_buf_str(b, strchr("\\^$.|?*+()[]{}", *name) ? "\\" : "");
        af_buf_char(b, *name);
    }
}

af_status af_schema_other_names(af_schema *s, const af_flat_schema *f, const af_flat_schema *names,
                                af_flat_schema *out)
{
    const uint32_t n = f->properties + f->requireds;
    af_buf b = {0};
    *out = *names;
    if (n == 0)
        return AF_OK;
    if (out->patterns == AF_SCHEMA_ALL_MAX)
        return af_fail_subject(s->err, AF_EUSAGE, "propertyNames", "more than %d patterns",
                               AF_SCHEMA_ALL_MAX - 1);
    af_buf_str(&b, "^(?!(?:");
    for (uint32_t i = 0; i < n; i++) {
        af_buf_str(&b, i ? "|" : "");
        put_escaped(&b, i < f->properties ? f->property[i].name : f->required[i - f->properties]);
    }
    af_buf_str(&b, ")$)");
    char *text = b.bad ? NULL : af_schema_take(s, b.len + 1);
    if (text)
        memcpy(text, b.data, b.len + 1);
    af_buf_clear(&b);
    out->pattern[out->patterns++] = text;
    return text ? AF_OK : af_fail_nomem(s->err, "a schema", 0);
}
