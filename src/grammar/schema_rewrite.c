/* schema_rewrite.c - patternProperties in other words: keys that fit one of the patterns, with one
 * schema for all of them, are "propertyNames" with the pattern and "additionalProperties" with the
 * schema. So an object without "properties" keeps them; without "additionalProperties" it takes no
 * other keys, as objects with "properties" do. */
#include "base/buf.h"
#include "grammar/schema.h"

enum { DEPTH_MAX = 512 };

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

static void rewrite_one(json_t *schema)
{
    json_t *patterns = json_object_get(schema, "patternProperties"), *value = NULL;
    const json_t *more = json_object_get(schema, "additionalProperties");
    json_t *names = json_object_get(schema, "propertyNames");
    af_buf joined = {0};
    const bool named =
        json_object_get(schema, "properties") || (!more && json_object_get(schema, "required"));
    if (!json_is_object(patterns) || named || (more && !json_is_false(more)) ||
        !join_patterns(patterns, &joined, &value) || joined.bad) {
        af_buf_clear(&joined);
        return; /* refused later, where it restricts */
    }
    json_t *own = json_pack("{s:s}", "pattern", joined.data);
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
static void rewrite(json_t *node, bool map, int depth)
{
    static const char *const maps[] = {"properties", "$defs", "definitions", "patternProperties"};
    static const char *const data[] = {"enum", "const", "default", "examples"};
    const char *name;
    json_t *v;
    size_t i;
    if (depth == DEPTH_MAX)
        return;
    if (json_is_object(node) && !map)
        rewrite_one(node);
    json_object_foreach(node, name, v)
    {
        if (map || !is_one_of(name, data, AF_LEN(data)))
            rewrite(v, !map && is_one_of(name, maps, AF_LEN(maps)), depth + 1);
    }
    json_array_foreach(node, i, v) rewrite(v, false, depth + 1);
}

void af_schema_rewrite(json_t *root) { rewrite(root, false, 0); }
