/* schema_apart.c - values that fit flat schemas, and pairs of these that no value fits. */
#include "grammar/schema.h"

#include "format/text/json_text.h"

#include <math.h>

enum { APART_DEPTH_MAX = 6, TEXTS_PER_MERGE = 16, PAIRS_PER_MERGE = 256, STEPS_PER_MERGE = 1024 };

static unsigned type_of_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return AF_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return AF_TYPE_BOOL;
    case JSON_INTEGER:
        return AF_TYPE_INTEGER;
    case JSON_REAL:
        return floor(json_real_value(v)) == json_real_value(v) ? AF_TYPE_INTEGER : AF_TYPE_FRACTION;
    case JSON_STRING:
        return AF_TYPE_STRING;
    case JSON_ARRAY:
        return AF_TYPE_ARRAY;
    default:
        return AF_TYPE_OBJECT;
    }
}

int af_number_compare(const json_t *a, const json_t *b)
{
    const long double x =
        json_is_integer(a) ? (long double)json_integer_value(a) : (long double)json_real_value(a);
    const long double y =
        json_is_integer(b) ? (long double)json_integer_value(b) : (long double)json_real_value(b);
    return x < y ? -1 : x > y;
}

/* Bounds the time of what a schema compares. */
static af_status count_merges(af_schema *s, uint64_t n)
{
    s->merges =
        (uint32_t)(AF_MIN(s->merges, AF_SCHEMA_MERGES_MAX) + AF_MIN(n, AF_SCHEMA_MERGES_MAX + 1));
    return s->merges <= AF_SCHEMA_MERGES_MAX
               ? AF_OK
               : af_fail(s->err, AF_EUSAGE, "the schema has too many alternatives");
}

/* ---- strings ---- */

/* Parses the patterns of f into the list; on failure none are left. */
static af_status parse_patterns(af_schema *s, const af_flat_schema *f, af_pattern *p,
                                af_pattern **list)
{
    for (int i = 0; i < f->patterns; i++) {
        const char *text = f->pattern[i];
        const uint64_t n = strlen(text);
        const af_status st = n && af_lookahead(text, n) == n
                                 ? af_lookahead_parse(&p[i], text, n, s->err)
                                 : af_pattern_parse(&p[i], text, n, AF_PATTERN_FIND, s->err);
        if (st != AF_OK) {
            while (i--)
                af_pattern_clear(&p[i]);
            return st;
        }
        list[i] = &p[i];
    }
    return AF_OK;
}

af_status af_schema_count_steps(af_schema *s, uint64_t steps)
{
    return count_merges(s, steps / STEPS_PER_MERGE);
}

af_status af_schema_string_dfa(af_schema *s, const af_flat_schema *f, af_dfa *out)
{
    af_pattern p[AF_SCHEMA_ALL_MAX], *list[AF_SCHEMA_ALL_MAX];
    uint64_t steps = 0;
    af_status st = parse_patterns(s, f, p, list);
    if (st != AF_OK)
        return st;
    for (int i = 0; i < f->patterns; i++)
        steps += p[i].work;
    st = af_schema_count_steps(s, steps);
    if (st == AF_OK)
        st = af_dfa_build(out, list, f->patterns, f->min_length, f->max_length, s->err);
    for (int i = 0; i < f->patterns; i++)
        af_pattern_clear(&p[i]);
    if (st == AF_OK)
        st = af_schema_count_steps(s, out->work);
    if (st != AF_OK)
        af_dfa_clear(out);
    return st;
}

static bool same_strings(const af_flat_schema *a, const af_flat_schema *b)
{
    bool same = a->patterns == b->patterns && a->min_length == b->min_length &&
                a->max_length == b->max_length;
    for (int i = 0; i < a->patterns && same; i++)
        same = strcmp(a->pattern[i], b->pattern[i]) == 0;
    return same;
}

/* The automaton of f's patterns, made once for a list of values. */
static af_status kept_dfa(af_schema *s, const af_flat_schema *f, const af_dfa **out)
{
    af_dfa d = {0};
    *out = &s->strings.dfa;
    if (s->strings.dfa.states && same_strings(&s->strings.of, f))
        return AF_OK;
    const af_status st = af_schema_string_dfa(s, f, &d);
    if (st != AF_OK)
        return st;
    af_dfa_clear(&s->strings.dfa);
    s->strings.dfa = d;
    s->strings.of = *f;
    return AF_OK;
}

static af_status string_fits(af_schema *s, const af_flat_schema *f, const json_t *v, bool *fits)
{
    const char *text = json_string_value(v);
    uint64_t chars = 0;
    const af_dfa *d;
    for (size_t i = 0; i < json_string_length(v); i++)
        chars += ((uint8_t)text[i] & 0xc0) != 0x80;
    *fits = chars >= f->min_length && chars <= f->max_length;
    if (!*fits || !f->patterns)
        return AF_OK;
    const af_status st = kept_dfa(s, f, &d);
    if (st == AF_OK)
        *fits = af_dfa_matches(d, text, json_string_length(v));
    return st;
}

/* ---- values ---- */

static af_status value_fits(af_schema *s, const af_flat_schema *f, const json_t *v, bool *fits);

static af_status in_list(af_schema *s, const af_value_list *l, const json_t *v, bool *found)
{
    const size_t n = l->is_const ? 0 : json_array_size(l->value);
    *found = l->is_const && json_equal(l->value, v);
    for (size_t i = 0; i < n && !*found; i++)
        *found = json_equal(json_array_get(l->value, i), v);
    return count_merges(s, n / PAIRS_PER_MERGE);
}

af_status af_schema_fits(af_schema *s, af_schemas all, const json_t *v, bool *fits)
{
    af_status st = AF_OK;
    af_flats *flats = af_calloc(1, sizeof *flats);
    *fits = false;
    if (!flats)
        return af_fail_nomem(s->err, "a schema", sizeof *flats);
    AF_TRY(af_schema_flatten(s, all, flats));
    for (uint32_t i = 0; i < flats->count && !*fits; i++) {
        const af_flat_schema *f = flats->item[i];
        *fits = true;
        for (int k = 0; k < f->value_lists && *fits; k++)
            AF_TRY(in_list(s, &f->values[k], v, fits));
        if (*fits)
            AF_TRY(value_fits(s, f, v, fits));
    }
done:
    free(flats);
    return st;
}

static const af_schema_property *property_of(const af_flat_schema *f, const char *name)
{
    for (uint32_t i = 0; i < f->properties; i++)
        if (strcmp(f->property[i].name, name) == 0)
            return &f->property[i];
    return NULL;
}

af_status af_schema_name_fits(af_schema *s, const af_flat_schema *f, const char *name, bool *fits)
{
    json_t *text = f->names.count ? json_string(name) : NULL;
    *fits = true;
    if (f->names.count && !text)
        return af_fail_nomem(s->err, "a schema", strlen(name));
    const af_status st = text ? af_schema_fits(s, f->names, text, fits) : AF_OK;
    json_decref(text);
    return st;
}

static af_status object_fits(af_schema *s, const af_flat_schema *f, const json_t *v, bool *fits)
{
    const char *name;
    json_t *value;
    af_status st = AF_OK;
    *fits = json_object_size(v) >= f->min_properties && json_object_size(v) <= f->max_properties;
    for (uint32_t i = 0; i < f->requireds; i++)
        *fits &= json_object_get(v, f->required[i]) != NULL;
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        const af_schema_property *p = property_of(f, name);
        if (*fits)
            AF_TRY(af_schema_fits(s, p ? p->value : f->additional, value, fits));
        if (*fits)
            AF_TRY(af_schema_name_fits(s, f, name, fits));
    }
done:
    return st;
}

static bool same_value(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? af_number_compare(a, b) == 0 : json_equal(a, b);
}

static bool has_twins(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++)
        for (size_t k = 0; k < i; k++)
            if (same_value(json_array_get(v, i), json_array_get(v, k)))
                return true;
    return false;
}

static af_status array_fits(af_schema *s, const af_flat_schema *f, const json_t *v, bool *fits)
{
    af_status st = AF_OK;
    const size_t n = json_array_size(v);
    if (f->unique)
        AF_TRY(count_merges(s, (uint64_t)n * n / PAIRS_PER_MERGE));
    *fits = n >= f->min_items && n <= f->max_items && !(f->unique && has_twins(v));
    for (size_t i = 0; i < n && *fits; i++)
        AF_TRY(af_schema_fits(s, i < f->prefixes ? f->prefix[i] : f->rest, json_array_get(v, i),
                              fits));
done:
    return st;
}

/* Does a value fit, which the enums have? */
static af_status value_fits(af_schema *s, const af_flat_schema *f, const json_t *v, bool *fits)
{
    const unsigned type = type_of_value(v);
    *fits = (f->types & type) != 0;
    const af_status st = *fits ? count_merges(s, 1) : AF_OK;
    if (!*fits || st != AF_OK)
        return st;
    if (type & AF_TYPE_NUMBER) {
        const int low = f->least.set ? af_number_compare(v, f->least.value) : 1;
        const int high = f->most.set ? af_number_compare(v, f->most.value) : -1;
        *fits = (low > 0 || (low == 0 && !f->least.exclusive)) &&
                (high < 0 || (high == 0 && !f->most.exclusive)) &&
                (!f->multiple || af_number_is_multiple(v, f->multiple, f->places));
    }
    if (type == AF_TYPE_STRING)
        return string_fits(s, f, v, fits);
    if (type == AF_TYPE_ARRAY)
        return array_fits(s, f, v, fits);
    return type == AF_TYPE_OBJECT ? object_fits(s, f, v, fits) : AF_OK;
}

/* ---- values of enums ---- */

static size_t list_size(const af_value_list *l)
{
    return l->is_const ? 1 : json_array_size(l->value);
}

static const json_t *list_value(const af_value_list *l, size_t i)
{
    return l->is_const ? l->value : json_array_get(l->value, i);
}

static void free_texts(char **text, size_t n)
{
    for (size_t i = 0; text && i < n; i++)
        free(text[i]);
    free(text);
}

/* The values as JSON text, equal text for equal values; free_texts. NULL: out of memory. */
static char **list_texts(const af_value_list *l)
{
    const size_t n = list_size(l);
    char **text = af_calloc(n + 1, sizeof *text);
    for (size_t i = 0; text && i < n; i++) {
        text[i] = af_json_dump(list_value(l, i), JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
        if (!text[i]) {
            free_texts(text, n);
            return NULL;
        }
    }
    return text;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* keep[i] stays when value i of `l` is in all enums of f after the first `known`. */
static af_status keep_listed(af_schema *s, const af_value_list *l, const af_flat_schema *f,
                             int known, bool *keep)
{
    if (known >= f->value_lists)
        return AF_OK;
    const size_t n = list_size(l);
    af_status st = AF_OK;
    char **own = list_texts(l);
    for (int i = known; own && i < f->value_lists; i++) {
        const size_t count = list_size(&f->values[i]);
        st = count_merges(s, (n + count) / TEXTS_PER_MERGE); /* as texts, for each pair */
        if (st != AF_OK)
            break;
        char **other = list_texts(&f->values[i]);
        if (!other) {
            st = af_fail_nomem(s->err, "an enum", count * sizeof *other);
            break;
        }
        qsort(other, count, sizeof *other, compare_texts);
        for (size_t k = 0; k < n; k++)
            keep[k] = keep[k] && bsearch(&own[k], other, count, sizeof *other, compare_texts);
        free_texts(other, count);
    }
    free_texts(own, n);
    return own ? st : af_fail_nomem(s->err, "an enum", n * sizeof *own);
}

af_status af_schema_fitting(af_schema *s, const af_flat_schema *a, const af_flat_schema *b,
                            const json_t ***out, size_t *count)
{
    af_status st = AF_OK;
    const af_value_list *l = &a->values[0];
    const size_t n = list_size(l);
    const json_t **list = af_calloc(n + 1, sizeof *list);
    bool *keep = af_calloc(n + 1, sizeof *keep);
    if (!list || !keep)
        AF_TRY(af_fail_nomem(s->err, "an enum", n * sizeof *list));
    memset(keep, true, n);
    AF_TRY(keep_listed(s, l, a, 1, keep));
    if (b)
        AF_TRY(keep_listed(s, l, b, 0, keep));
    *count = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = list_value(l, i);
        bool fits = keep[i];
        if (fits)
            AF_TRY(value_fits(s, a, v, &fits));
        if (fits && b)
            AF_TRY(value_fits(s, b, v, &fits));
        if (fits)
            list[(*count)++] = v;
    }
    *out = list;
    list = NULL;
done:
    free(keep);
    free(list);
    return st;
}

/* ---- apart ---- */

static bool numbers_apart(const af_flat_schema *a, const af_flat_schema *b)
{
    if (!a->most.set || !b->least.set)
        return false;
    const int order = af_number_compare(a->most.value, b->least.value);
    return order < 0 || (order == 0 && (a->most.exclusive || b->least.exclusive));
}

static af_status strings_apart(af_schema *s, const af_flat_schema *a, const af_flat_schema *b,
                               bool *yes)
{
    af_flat_schema both = *a;
    af_dfa d = {0};
    both.min_length = AF_MAX(a->min_length, b->min_length);
    both.max_length = AF_MIN(a->max_length, b->max_length);
    *yes = both.min_length > both.max_length;
    if (*yes || !a->patterns || !b->patterns || a->patterns + b->patterns > AF_SCHEMA_ALL_MAX)
        return AF_OK;
    for (int i = 0; i < b->patterns; i++)
        both.pattern[both.patterns++] = b->pattern[i];
    const af_status st = af_schema_string_dfa(s, &both, &d);
    if (st == AF_OK)
        *yes = af_dfa_is_empty(&d);
    af_dfa_clear(&d);
    return st;
}

static af_status apart(af_schema *s, const af_flat_schema *a, const af_flat_schema *b, int depth,
                       bool *yes);

static af_status lists_apart(af_schema *s, af_schemas a, af_schemas b, int depth, bool *yes)
{
    af_status st = AF_OK;
    af_flats *x = af_calloc(2, sizeof *x);
    if (!x)
        return af_fail_nomem(s->err, "a schema", sizeof *x);
    af_flats *y = x + 1;
    AF_TRY(af_schema_flatten(s, a, x));
    AF_TRY(af_schema_flatten(s, b, y));
    *yes = true;
    for (uint32_t i = 0; i < x->count && *yes; i++)
        for (uint32_t k = 0; k < y->count && *yes; k++)
            AF_TRY(apart(s, x->item[i], y->item[k], depth + 1, yes));
done:
    free(x);
    return st;
}

/* A property that a requires and that has in b, where it may be, values apart from those in a. */
static af_status objects_apart(af_schema *s, const af_flat_schema *a, const af_flat_schema *b,
                               int depth, bool *yes)
{
    af_status st = AF_OK;
    for (uint32_t i = 0; i < a->requireds && !*yes; i++) {
        const char *name = a->required[i];
        const af_schema_property *p = property_of(a, name), *q = property_of(b, name);
        AF_TRY(
            lists_apart(s, p ? p->value : a->additional, q ? q->value : b->additional, depth, yes));
    }
done:
    return st;
}

static af_status arrays_apart(af_schema *s, const af_flat_schema *a, const af_flat_schema *b,
                              int depth, bool *yes)
{
    af_status st = AF_OK;
    *yes = a->max_items < b->min_items || b->max_items < a->min_items;
    const uint64_t both = AF_MAX(a->min_items, b->min_items);
    for (uint32_t i = 0; i < both && i <= AF_MAX(a->prefixes, b->prefixes) && !*yes; i++)
        AF_TRY(lists_apart(s, i < a->prefixes ? a->prefix[i] : a->rest,
                           i < b->prefixes ? b->prefix[i] : b->rest, depth, yes));
done:
    return st;
}

static af_status values_apart(af_schema *s, const af_flat_schema *a, const af_flat_schema *b,
                              bool *yes)
{
    const json_t **both = NULL;
    size_t count = 0;
    const af_status st = af_schema_fitting(s, a, b, &both, &count);
    *yes = count == 0;
    free(both);
    return st;
}

/* The types that are written for a flat schema. */
static unsigned written_types(const af_flat_schema *f)
{
    const unsigned hinted = f->types & f->hints;
    return f->typed || f->value_lists || !f->hints ? f->types : hinted;
}

static af_status apart(af_schema *s, const af_flat_schema *a, const af_flat_schema *b, int depth,
                       bool *yes)
{
    af_status st = AF_OK;
    const unsigned common = (written_types(a) & b->types) | (a->types & written_types(b));
    *yes = false;
    if (depth > APART_DEPTH_MAX)
        return AF_OK;
    if (a->value_lists || b->value_lists)
        return a->value_lists ? values_apart(s, a, b, yes) : values_apart(s, b, a, yes);
    *yes = !(common & (AF_TYPE_NULL | AF_TYPE_BOOL));
    if (*yes && (common & AF_TYPE_NUMBER))
        *yes = numbers_apart(a, b) || numbers_apart(b, a);
    if (*yes && (common & AF_TYPE_STRING))
        AF_TRY(strings_apart(s, a, b, yes));
    if (*yes && (common & AF_TYPE_ARRAY))
        AF_TRY(arrays_apart(s, a, b, depth, yes));
    if (*yes && (common & AF_TYPE_OBJECT)) {
        *yes = false;
        AF_TRY(objects_apart(s, a, b, depth, yes));
        if (!*yes)
            AF_TRY(objects_apart(s, b, a, depth, yes));
    }
done:
    return st;
}

/* What is near is looked at first: a const next to a schema that refers to itself decides. */
af_status af_schema_apart(af_schema *s, const af_flat_schema *a, const af_flat_schema *b, bool *yes)
{
    af_status st = AF_OK;
    *yes = s->comparing;
    if (s->comparing) /* of a value inside: asked again when that is written */
        return AF_OK;
    s->comparing = true;
    for (int depth = APART_DEPTH_MAX; depth >= 0 && st == AF_OK && !*yes; depth--)
        st = apart(s, a, b, depth, yes);
    s->comparing = false;
    return st;
}
