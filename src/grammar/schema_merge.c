/* schema_merge.c - lists of schemas to flat ones: each keyword of each schema is put into the flat
 * schemas so far; anyOf and oneOf multiply them. */
#include "grammar/schema.h"

typedef struct keyword {
    const char *name;
    af_status (*merge)(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node);
    unsigned hints; /* types that it speaks of */
} keyword;

typedef struct count_keyword { /* the least or largest number of something */
    const char *name;
    unsigned hints;
    size_t place; /* in af_flat_schema */
} count_keyword;

static af_status wrong(af_schema *s, const char *name, const char *want)
{
    return af_fail_subject(s->err, AF_EFORMAT, name, "schema keyword '%s' expects %s", name, want);
}

/* ---- plain keywords ---- */

static unsigned type_of(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", AF_TYPE_NULL},       {"boolean", AF_TYPE_BOOL},
                 {"integer", AF_TYPE_INTEGER}, {"number", AF_TYPE_NUMBER},
                 {"string", AF_TYPE_STRING},   {"array", AF_TYPE_ARRAY},
                 {"object", AF_TYPE_OBJECT}};
    for (size_t i = 0; name && i < AF_LEN(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return 0;
}

static af_status merge_type(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node)
{
    unsigned types = type_of(json_string_value(v));
    (void)node;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const unsigned one = type_of(json_string_value(json_array_get(v, i)));
        if (!one)
            return wrong(s, "type", "names of JSON types");
        types |= one;
    }
    if (!types)
        return wrong(s, "type", "the name of a JSON type or a list of them");
    f->types &= types;
    f->typed = true;
    return AF_OK;
}

static af_status add_values(af_schema *s, af_flat_schema *f, const json_t *v, bool is_const)
{
    if (f->value_lists == AF_SCHEMA_ALL_MAX)
        return af_fail(s->err, AF_EUSAGE, "more than %d enums for one value", AF_SCHEMA_ALL_MAX);
    if (!is_const && json_array_size(v) > AF_SCHEMA_VALUES_MAX)
        return af_fail(s->err, AF_EUSAGE, "an enum has more than %d values", AF_SCHEMA_VALUES_MAX);
    f->values[f->value_lists++] = (af_value_list){v, is_const};
    return AF_OK;
}

static af_status merge_enum(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node)
{
    (void)node;
    return json_is_array(v) ? add_values(s, f, v, false) : wrong(s, "enum", "a list");
}

static af_status merge_const(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node)
{
    (void)node;
    return add_values(s, f, v, true);
}

static void tighten(af_number_bound *to, const json_t *v, bool exclusive, int sign)
{
    const int order = to->set ? sign * af_number_compare(v, to->value) : 1;
    if (order > 0)
        *to = (af_number_bound){true, exclusive, v};
    else if (order == 0)
        to->exclusive |= exclusive;
}

static af_status merge_bound(af_schema *s, af_flat_schema *f, const json_t *v, const char *name)
{
    const bool exclusive = name[0] == 'e';
    if (!json_is_number(v))
        return wrong(s, name, "a number");
    if (strstr(name, "inimum"))
        tighten(&f->least, v, exclusive, 1);
    else
        tighten(&f->most, v, exclusive, -1);
    return AF_OK;
}

static af_status merge_multiple(af_schema *s, af_flat_schema *f, const json_t *v,
                                const json_t *node)
{
    static const char name[] = "multipleOf";
    int multiple, places;
    (void)node;
    if (!json_is_number(v) || !(json_number_value(v) > 0))
        return wrong(s, name, "a number above 0");
    if (!af_number_multiple(v, &multiple, &places))
        return af_fail_subject(s->err, AF_EUNSUPPORTED, name,
                               "'multipleOf' of more than %d without its point is not supported",
                               AF_SCHEMA_MULTIPLE_MAX);
    if (f->multiple && (f->multiple != multiple || f->places != places))
        return af_fail_subject(s->err, AF_EUNSUPPORTED, name,
                               "two values of 'multipleOf' for one number are not supported");
    f->multiple = multiple;
    f->places = places;
    return AF_OK;
}

static af_status count_of(af_schema *s, const json_t *v, const char *name, uint64_t *out)
{
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return AF_OK;
    }
    const double x = json_is_real(v) ? json_real_value(v) : -1;
    if (x < 0 || x != (double)(uint64_t)AF_MIN(x, 1e18))
        return wrong(s, name, "a whole number of at least 0");
    *out = (uint64_t)x;
    return AF_OK;
}

static af_status merge_count(af_schema *s, af_flat_schema *f, const json_t *v,
                             const count_keyword *k)
{
    uint64_t n = 0, *to = (uint64_t *)(void *)((char *)f + k->place);
    const af_status st = count_of(s, v, k->name, &n);
    if (st != AF_OK)
        return st;
    if (k->name[1] == 'i') /* min... */
        *to = AF_MAX(*to, n);
    else if (n <= AF_SCHEMA_LENGTH_FREE)
        *to = AF_MIN(*to, n);
    return AF_OK;
}

static af_status add_pattern(af_schema *s, af_flat_schema *f, const char *pattern)
{
    for (int i = 0; i < f->patterns; i++)
        if (strcmp(f->pattern[i], pattern) == 0)
            return AF_OK;
    if (f->patterns == AF_SCHEMA_ALL_MAX)
        return af_fail_subject(s->err, AF_EUSAGE, "pattern", "more than %d patterns for one value",
                               AF_SCHEMA_ALL_MAX);
    f->pattern[f->patterns++] = pattern;
    return AF_OK;
}

/* Assertions at its beginning are patterns of their own. */
static af_status merge_pattern(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node)
{
    (void)node;
    af_status st = json_is_string(v) ? AF_OK : wrong(s, "pattern", "a text");
    const char *text = json_string_value(v);
    uint64_t n;
    while (st == AF_OK && (n = af_lookahead(text, strlen(text))) > 0 && text[n]) {
        char *copy = af_schema_take(s, strlen(text) + 3); /* "^(?!A)" and "^REST" */
        if (!copy)
            return s->r->st;
        snprintf(copy, n + 1, "%s", text);
        snprintf(copy + n + 1, strlen(text) - n + 2, "^%s", text + n);
        st = add_pattern(s, f, copy);
        text = copy + n + 1;
    }
    return st == AF_OK ? add_pattern(s, f, text) : st;
}

static af_status merge_format(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node)
{
    bool kept;
    (void)node;
    if (!json_is_string(v))
        return wrong(s, "format", "a text");
    const char *pattern = af_schema_format(json_string_value(v), &kept);
    if (!kept)
        return af_fail_subject(s->err, AF_EUNSUPPORTED, "format",
                               "schema keyword 'format' with the value '%s' is not supported",
                               json_string_value(v));
    if (!pattern)
        return AF_OK;
    f->hints |= AF_TYPE_STRING;
    return add_pattern(s, f, pattern);
}

/* ---- arrays ---- */

static bool is_schema(const json_t *v) { return json_is_object(v) || json_is_boolean(v); }

/* items and prefixItems belong together: item i is held by its own schema or by `items`. */
static af_status merge_items(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node)
{
    af_status st = AF_OK;
    const json_t *items = json_object_get(node, "items"),
                 *list = json_object_get(node, "prefixItems");
    if (list && v == items)
        return AF_OK;                    /* both at once, when prefixItems is met */
    if (!list && json_is_array(items)) { /* tuples before 2020 */
        list = items;
        items = NULL;
    }
    if ((list && !json_is_array(list)) || (items && !is_schema(items)))
        return wrong(s, list && !json_is_array(list) ? "prefixItems" : "items",
                     list && !json_is_array(list) ? "a list of schemas" : "a schema");
    const uint32_t own = (uint32_t)json_array_size(list), n = AF_MAX(own, f->prefixes);
    af_schemas *prefix = af_schema_take(s, ((uint64_t)n + 1) * sizeof *prefix);
    if (!prefix)
        return s->r->st;
    for (uint32_t i = 0; i < n; i++) {
        prefix[i] = i < f->prefixes ? f->prefix[i] : f->rest;
        const json_t *one = i < own ? json_array_get(list, i) : items;
        if (i < own && !is_schema(one))
            return wrong(s, "prefixItems", "a list of schemas");
        if (one)
            AF_TRY(af_schema_append(s, &prefix[i], one));
    }
    f->prefix = prefix;
    f->prefixes = n;
    if (items)
        AF_TRY(af_schema_append(s, &f->rest, items));
done:
    return st;
}

static af_status merge_unique(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node)
{
    (void)node;
    f->unique |= json_is_true(v);
    return json_is_boolean(v) ? AF_OK : wrong(s, "uniqueItems", "true or false");
}

/* ---- objects ---- */

static af_schema_property *property_of(const af_flat_schema *f, const char *name)
{
    for (uint32_t i = 0; i < f->properties; i++)
        if (strcmp(f->property[i].name, name) == 0)
            return &f->property[i];
    return NULL;
}

af_status af_schema_many_properties(af_schema *s)
{
    return af_fail(s->err, AF_EUSAGE, "an object has more than %d properties",
                   AF_SCHEMA_VALUES_MAX);
}

static af_status merge_required(af_schema *s, af_flat_schema *f, const json_t *v,
                                const json_t *node)
{
    const size_t n = json_array_size(v);
    (void)node;
    if (f->requireds + n > AF_SCHEMA_VALUES_MAX)
        return af_schema_many_properties(s);
    const char **list = af_schema_take(s, (f->requireds + n + 1) * sizeof(char *));
    if (!list)
        return s->r->st;
    if (!json_is_array(v))
        return wrong(s, "required", "a list of names");
    if (f->requireds)
        memcpy(list, f->required, f->requireds * sizeof(char *));
    f->required = list;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (!name)
            return wrong(s, "required", "a list of names");
        list[f->requireds++] = name;
    }
    return AF_OK;
}

/* properties and additionalProperties belong together: a property that one schema does not name is
 * held by its additionalProperties. */
static af_status merge_object(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node)
{
    af_status st = AF_OK;
    const json_t *own = json_object_get(node, "properties");
    const json_t *more = json_object_get(node, "additionalProperties");
    if (own && v == more)
        return AF_OK; /* both at once, when properties is met */
    if (own && !json_is_object(own))
        return wrong(s, "properties", "an object of schemas");
    if (more && !is_schema(more))
        return wrong(s, "additionalProperties", "a schema");
    const uint64_t n = f->properties + json_object_size(own);
    if (n > AF_SCHEMA_VALUES_MAX)
        return af_schema_many_properties(s);
    af_schema_property *list = af_schema_take(s, (n + 1) * sizeof *list);
    if (!list)
        return s->r->st;
    for (uint32_t i = 0; i < f->properties; i++) {
        list[i] = f->property[i];
        if (more && !json_object_get(own, list[i].name))
            AF_TRY(af_schema_append(s, &list[i].value, more));
    }
    f->property = list;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)own, name, value)
    {
        af_schema_property *p = property_of(f, name);
        if (!is_schema(value))
            return wrong(s, "properties", "an object of schemas");
        if (!p) {
            p = &list[f->properties++];
            *p = (af_schema_property){.name = name, .value = f->additional};
        }
        AF_TRY(af_schema_append(s, &p->value, value));
    }
    f->closed_by_default |= own != NULL;
    f->additional_given |= more != NULL;
    if (more)
        AF_TRY(af_schema_append(s, &f->additional, more));
done:
    return st;
}

static af_status merge_names(af_schema *s, af_flat_schema *f, const json_t *v, const json_t *node)
{
    (void)node;
    return is_schema(v) ? af_schema_append(s, &f->names, v) : wrong(s, "propertyNames", "a schema");
}

/* ---- which keyword does what ---- */

static const keyword keywords[] = {
    {"type", merge_type, 0},
    {"enum", merge_enum, 0},
    {"const", merge_const, 0},
    {"multipleOf", merge_multiple, AF_TYPE_NUMBER},
    {"pattern", merge_pattern, AF_TYPE_STRING},
    {"format", merge_format, 0},
    {"uniqueItems", merge_unique, AF_TYPE_ARRAY},
    {"items", merge_items, AF_TYPE_ARRAY},
    {"prefixItems", merge_items, AF_TYPE_ARRAY},
    {"required", merge_required, AF_TYPE_OBJECT},
    {"properties", merge_object, AF_TYPE_OBJECT},
    {"additionalProperties", merge_object, AF_TYPE_OBJECT},
    {"propertyNames", merge_names, AF_TYPE_OBJECT},
};

static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

static const count_keyword counts[] = {
    {"minLength", AF_TYPE_STRING, offsetof(af_flat_schema, min_length)},
    {"maxLength", AF_TYPE_STRING, offsetof(af_flat_schema, max_length)},
    {"minItems", AF_TYPE_ARRAY, offsetof(af_flat_schema, min_items)},
    {"maxItems", AF_TYPE_ARRAY, offsetof(af_flat_schema, max_items)},
    {"minProperties", AF_TYPE_OBJECT, offsetof(af_flat_schema, min_properties)},
    {"maxProperties", AF_TYPE_OBJECT, offsetof(af_flat_schema, max_properties)},
};

/* Keywords that restrict and that no network here keeps. */
static const char *const refused[] = {
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "dependentRequired",
    "additionalItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
};

static bool says_nothing(const char *name, const json_t *v)
{
    return (strcmp(name, "patternProperties") == 0 && json_is_object(v) && !json_object_size(v)) ||
           (strncmp(name, "unevaluated", 11) == 0 && json_is_true(v));
}

static af_status check_keywords(af_schema *s, const json_t *node)
{
    for (size_t i = 0; i < AF_LEN(refused); i++) {
        const json_t *v = json_object_get(node, refused[i]);
        if (v && !says_nothing(refused[i], v))
            return af_fail_subject(s->err, AF_EUNSUPPORTED, refused[i],
                                   "schema keyword '%s' is not supported", refused[i]);
    }
    return AF_OK;
}

static af_status merge_keyword(af_schema *s, af_flat_schema *f, const char *name, const json_t *v,
                               const json_t *node)
{
    for (size_t i = 0; i < AF_LEN(keywords); i++)
        if (strcmp(keywords[i].name, name) == 0) {
            f->hints |= keywords[i].hints;
            return keywords[i].merge(s, f, v, node);
        }
    for (size_t i = 0; i < AF_LEN(bounds); i++)
        if (strcmp(bounds[i], name) == 0) {
            f->hints |= AF_TYPE_NUMBER;
            return merge_bound(s, f, v, name);
        }
    for (size_t i = 0; i < AF_LEN(counts); i++)
        if (strcmp(counts[i].name, name) == 0) {
            f->hints |= counts[i].hints;
            return merge_count(s, f, v, &counts[i]);
        }
    return AF_OK;
}

/* Members in the schema's own order: that of properties is kept. */
static af_status merge_plain(af_schema *s, af_flat_schema *f, const json_t *node)
{
    af_status st = AF_OK;
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)node, name, v)
    {
        AF_TRY(merge_keyword(s, f, name, v, node));
    }
done:
    return st;
}

/* ---- several schemas ---- */

static af_status merge_node(af_schema *s, af_flats *to, const json_t *node, int depth);

static af_status copy_flats(af_schema *s, af_flats *to, const af_flats *from)
{
    for (uint32_t i = 0; i < from->count; i++) {
        if (to->count == AF_SCHEMA_FLATS_MAX)
            return af_fail(s->err, AF_EUSAGE, "a value has more than %d alternatives",
                           AF_SCHEMA_FLATS_MAX);
        af_flat_schema *f = af_schema_take(s, sizeof *f);
        if (!f)
            return s->r->st;
        *f = *from->item[i];
        to->item[to->count++] = f;
    }
    return AF_OK;
}

static af_status check_apart(af_schema *s, const af_flats *all, uint32_t from, const char *name)
{
    af_status st = AF_OK;
    for (uint32_t i = 0; i < from; i++)
        for (uint32_t k = from; k < all->count; k++) {
            bool apart = false;
            AF_TRY(af_schema_apart(s, all->item[i], all->item[k], &apart));
            if (!apart)
                return af_fail_subject(s->err, AF_EUNSUPPORTED, name,
                                       "two alternatives of '%s' can hold for one value; write "
                                       "them as anyOf, or tell them apart by a required property "
                                       "with a const",
                                       name);
        }
done:
    return st;
}

static af_status merge_any(af_schema *s, af_flats *to, const json_t *node, const char *name,
                           int depth)
{
    af_status st = AF_OK;
    const json_t *list = json_object_get(node, name);
    if (!list)
        return AF_OK;
    if (!json_is_array(list) || !json_array_size(list))
        return wrong(s, name, "a list of schemas");
    af_flats *sum = af_calloc(2, sizeof *sum);
    if (!sum)
        return af_fail_nomem(s->err, "a schema", sizeof *sum);
    af_flats *part = sum + 1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const uint32_t before = sum->count;
        part->count = 0;
        AF_TRY(copy_flats(s, part, to));
        AF_TRY(merge_node(s, part, json_array_get(list, i), depth + 1));
        AF_TRY(copy_flats(s, sum, part));
        if (name[0] == 'o')
            AF_TRY(check_apart(s, sum, before, name));
    }
    *to = *sum;
done:
    free(sum);
    return st;
}

static void drop_impossible(af_flats *to)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < to->count; i++)
        if (to->item[i]->types)
            to->item[n++] = to->item[i];
    to->count = n;
}

static af_status merge_node(af_schema *s, af_flats *to, const json_t *node, int depth)
{
    af_status st = AF_OK;
    if (depth > AF_SCHEMA_DEPTH_MAX)
        return af_fail(s->err, AF_EUSAGE,
                       "the schema refers to itself without an object or array between, or nests "
                       "allOf, anyOf and oneOf more than %d deep",
                       AF_SCHEMA_DEPTH_MAX);
    s->merges += 1 + to->count;
    if (s->merges > AF_SCHEMA_MERGES_MAX)
        return af_fail(s->err, AF_EUSAGE, "the schema has too many alternatives");
    if (json_is_false(node))
        to->count = 0;
    if (json_is_boolean(node))
        return AF_OK;
    if (!json_is_object(node))
        return af_fail(s->err, AF_EFORMAT, "a schema is an object, true or false");
    AF_TRY(check_keywords(s, node));
    for (uint32_t i = 0; i < to->count; i++)
        AF_TRY(merge_plain(s, to->item[i], node));
    drop_impossible(to);
    const json_t *ref = json_object_get(node, "$ref"), *all = json_object_get(node, "allOf"), *at;
    if (ref) {
        if (!json_is_string(ref))
            return wrong(s, "$ref", "a text");
        AF_TRY(af_schema_resolve(s, json_string_value(ref), &at));
        AF_TRY(merge_node(s, to, at, depth + 1));
    }
    if (all && (!json_is_array(all) || !json_array_size(all)))
        return wrong(s, "allOf", "a list of schemas");
    for (size_t i = 0; i < json_array_size(all); i++)
        AF_TRY(merge_node(s, to, json_array_get(all, i), depth + 1));
    AF_TRY(merge_any(s, to, node, "anyOf", depth));
    AF_TRY(merge_any(s, to, node, "oneOf", depth));
done:
    return st;
}

af_status af_schema_flatten(af_schema *s, af_schemas all, af_flats *out)
{
    af_status st = AF_OK;
    af_flat_schema *first = af_schema_take(s, sizeof *first);
    if (!first)
        return s->r->st;
    *first = (af_flat_schema){.types = AF_TYPE_ANY,
                              .max_length = UINT64_MAX,
                              .max_items = UINT64_MAX,
                              .max_properties = UINT64_MAX};
    out->item[0] = first;
    out->count = 1;
    for (uint32_t i = 0; i < all.count; i++)
        AF_TRY(merge_node(s, out, all.item[i], 0));
    drop_impossible(out);
done:
    return st;
}
