/* schema_emit.c - flat schemas as automata over the bytes of JSON.
 *
 * White space is bounded, so that an answer cannot go on with it for ever: a blank, or a new line
 * with blanks or tabs, after brackets, commas and colons and before closing brackets. Properties
 * come in the order of the schema, then those that it does not name. */
#include "format/text/unicode.h"
#include "grammar/schema.h"

static uint32_t byte(af_schema *s, uint32_t from, char c) { return af_rtn_text(s->r, from, &c, 1); }

/* Optional white space. */
static uint32_t put_ws(af_schema *s, uint32_t from)
{
    af_rtn *r = s->r;
    if (s->ws == UINT32_MAX) {
        s->ws = af_rtn_rule_new(r, NULL);
        if (r->st != AF_OK)
            return from;
        const uint32_t start = r->rule[s->ws].start, end = r->rule[s->ws].accept;
        af_rtn_free_edge(r, start, end);
        af_rtn_bytes(r, start, ' ', ' ', end);
        uint32_t blanks = byte(s, start, '\n'), tabs = blanks;
        af_rtn_free_edge(r, blanks, end);
        for (int i = 0; i < 32; i++) {
            blanks = byte(s, blanks, ' ');
            af_rtn_free_edge(r, blanks, end);
        }
        for (int i = 0; i < 8; i++) {
            tabs = byte(s, tabs, '\t');
            af_rtn_free_edge(r, tabs, end);
        }
    }
    const uint32_t to = af_rtn_state(r);
    af_rtn_call(r, from, s->ws, to);
    return to;
}

/* ---- strings ---- */

static uint32_t any_char(af_schema *s)
{
    af_rtn *r = s->r;
    if (s->any_char == UINT32_MAX) {
        af_cpset all = {0};
        s->any_char = af_rtn_rule_new(r, NULL);
        af_cpset_add(&all, 0, 0x10ffff);
        if (r->st == AF_OK)
            af_rtn_chars(r, r->rule[s->any_char].start, &all, true, r->rule[s->any_char].accept);
        af_cpset_clear(&all);
    }
    return s->any_char;
}

static void string_of(af_schema *s, uint32_t from, uint64_t min, uint64_t max, uint32_t to)
{
    const uint32_t inside = byte(s, from, '"'), last = af_rtn_state(s->r);
    af_rtn_repeat(s->r, inside, any_char(s), min, max, last);
    af_rtn_bytes(s->r, last, '"', '"', to);
}

/* Any string, from a rule that all of them share. */
static void any_string(af_schema *s, uint32_t from, uint32_t to)
{
    af_rtn *r = s->r;
    if (s->any_string == UINT32_MAX) {
        s->any_string = af_rtn_rule_new(r, NULL);
        if (r->st == AF_OK)
            string_of(s, r->rule[s->any_string].start, 0, UINT64_MAX,
                      r->rule[s->any_string].accept);
    }
    af_rtn_call(r, from, s->any_string, to);
}

static uint32_t text_literal(af_schema *s, uint32_t from, const char *text, size_t n)
{
    af_cpset one = {0};
    uint32_t cp;
    from = byte(s, from, '"');
    for (size_t i = 0; i < n && s->r->st == AF_OK;) {
        const uint32_t to = af_rtn_state(s->r);
        i += af_utf8_get(text + i, &cp);
        one.count = 0;
        af_cpset_add(&one, cp, cp);
        if (cp >= 0x80)
            af_rtn_utf8(s->r, from, cp, cp, to);
        else
            af_rtn_chars(s->r, from, &one, true, to);
        from = to;
    }
    af_cpset_clear(&one);
    return byte(s, from, '"');
}

static af_status emit_string(af_schema *s, const af_flat_schema *f, uint32_t from, uint32_t to)
{
    af_dfa d = {0};
    if (!f->patterns) {
        if (f->min_length == 0 && f->max_length == UINT64_MAX)
            any_string(s, from, to);
        else if (f->min_length <= f->max_length)
            string_of(s, from, f->min_length, f->max_length, to);
        return AF_OK;
    }
    const af_status st = af_schema_string_dfa(s, f, &d);
    if (st == AF_OK) {
        const uint32_t inside = byte(s, from, '"'), last = af_rtn_state(s->r);
        af_dfa_emit(&d, s->r, inside, true, last);
        af_rtn_bytes(s->r, last, '"', '"', to);
    }
    af_dfa_clear(&d);
    return st;
}

/* ---- arrays ---- */

/* "," and then the value of rule. */
static uint32_t comma_value(af_schema *s, uint32_t from, bool unique, uint32_t rule)
{
    const uint32_t to = af_rtn_state(s->r), comma = af_rtn_state(s->r);
    af_rtn_marked(s->r, from, ',', unique ? AF_RTN_UNIQUE : 0, comma);
    af_rtn_call(s->r, put_ws(s, comma), rule, to);
    return to;
}

/* The items between [ and ], from `at`. */
static void emit_items(af_schema *s, const af_flat_schema *f, bool unique, uint32_t at,
                       uint32_t close)
{
    af_rtn *r = s->r;
    for (uint32_t i = 0; i < f->prefixes && i < f->max_items && r->st == AF_OK; i++) {
        const uint32_t rule = af_schema_rule_of(s, f->prefix[i]);
        if (i >= f->min_items)
            af_rtn_free_edge(r, at, close);
        if (i == 0) {
            const uint32_t next = af_rtn_state(r);
            af_rtn_call(r, at, rule, next);
            at = next;
        } else {
            at = comma_value(s, at, unique, rule);
        }
    }
    const uint64_t n = AF_MIN(f->prefixes, f->max_items);
    uint64_t min = f->min_items > n ? f->min_items - n : 0;
    uint64_t max = f->max_items == UINT64_MAX ? UINT64_MAX : f->max_items - n;
    if (min == 0)
        af_rtn_free_edge(r, at, close);
    if (max > 0) {
        const uint32_t rule = af_schema_rule_of(s, f->rest), start = af_rtn_state(r);
        const uint32_t more = af_rtn_rule_of(r, start, comma_value(s, start, unique, rule));
        if (n == 0) {
            const uint32_t next = af_rtn_state(r);
            af_rtn_call(r, at, rule, next);
            at = next;
            min -= min > 0;
            max -= max != UINT64_MAX;
        }
        af_rtn_repeat(r, at, more, min, max, close);
    }
}

static af_status emit_array(af_schema *s, const af_flat_schema *f, uint32_t from, uint32_t to)
{
    af_status st = AF_OK;
    af_rtn *r = s->r;
    const bool unique = f->unique && f->max_items > 1, outer = s->once;
    const uint32_t open = af_rtn_state(r), close = af_rtn_state(r);
    af_room room = AF_ROOM_MUCH;
    if (unique && f->min_items > 1)
        AF_TRY(af_schema_room(s, f, &room));
    if (f->min_items > f->max_items || room == AF_ROOM_NONE)
        return r->st;
    s->once |= unique;
    af_rtn_marked(r, from, '[',
                  !unique                 ? 0
                  : room == AF_ROOM_TIGHT ? AF_RTN_TIGHT
                                          : AF_RTN_UNIQUE,
                  open);
    emit_items(s, f, unique, put_ws(s, open), close);
    af_rtn_marked(r, put_ws(s, close), ']', unique ? AF_RTN_UNIQUE : 0, to);
    s->once = outer;
    st = r->st;
done:
    return st;
}

/* ---- objects ---- */

/* ":" and the value, after a key; `mark`: AF_RTN_UNIQUE when the key may have been there. */
static void colon_value(af_schema *s, uint32_t from, uint32_t mark, af_schemas value, uint32_t to)
{
    const uint32_t colon = af_rtn_state(s->r);
    af_rtn_marked(s->r, from, ':', mark, colon);
    af_rtn_call(s->r, put_ws(s, colon), af_schema_rule_of(s, value), to);
}

static bool is_named(const af_flat_schema *f, const char *name, uint32_t requireds)
{
    for (uint32_t i = 0; i < f->properties; i++)
        if (strcmp(f->property[i].name, name) == 0)
            return true;
    for (uint32_t i = 0; i < requireds; i++)
        if (strcmp(f->required[i], name) == 0)
            return true;
    return false;
}

/* Any key but those that the schema names. */
static af_status any_other_key(af_schema *s, const af_flat_schema *f, uint32_t from, uint32_t to)
{
    af_status st = AF_OK;
    af_dfa d = {0};
    const uint64_t n = (uint64_t)f->properties + f->requireds;
    const char **name = af_schema_take(s, (n + 1) * sizeof(char *));
    if (!name)
        return s->r->st;
    for (uint32_t i = 0; i < f->properties; i++)
        name[i] = f->property[i].name;
    for (uint32_t i = 0; i < f->requireds; i++)
        name[f->properties + i] = f->required[i];
    if (n == 0) {
        any_string(s, from, to);
        return s->r->st;
    }
    AF_TRY(af_dfa_other(&d, name, (uint32_t)n, s->err));
    const uint32_t inside = byte(s, from, '"'), last = af_rtn_state(s->r);
    af_dfa_emit(&d, s->r, inside, true, last);
    af_rtn_bytes(s->r, last, '"', '"', to);
done:
    af_dfa_clear(&d);
    return st;
}

/* The keys of one alternative of propertyNames. */
static af_status emit_names(af_schema *s, const af_flat_schema *f, const af_flat_schema *names,
                            uint32_t from, uint32_t to)
{
    if (!(names->types & AF_TYPE_STRING) || names->value_lists) /* lists: see list_names */
        return AF_OK;
    if (!names->patterns && names->min_length == 0 && names->max_length == UINT64_MAX)
        return any_other_key(s, f, from, to);
    af_flat_schema both;
    const af_status st = af_schema_other_names(s, f, names, &both);
    return st == AF_OK ? emit_string(s, &both, from, to) : st;
}

/* Properties that the schema does not name. */
static af_status emit_other(af_schema *s, const af_flat_schema *f, uint32_t from, uint32_t to)
{
    af_status st = AF_OK;
    const uint32_t key = af_rtn_state(s->r);
    af_flats *names = af_calloc(1, sizeof *names);
    if (!names)
        return af_fail_nomem(s->err, "a schema", sizeof *names);
    AF_TRY(af_schema_flatten(s, f->names, names));
    for (uint32_t i = 0; i < names->count; i++)
        AF_TRY(emit_names(s, f, names->item[i], from, key));
    colon_value(s, key, f->max_properties > 1 ? AF_RTN_UNIQUE : 0, f->additional, to);
done:
    free(names);
    return st;
}

/* Names that propertyNames lists become properties that may be left out; *left: others remain. */
static af_status list_names(af_schema *s, af_flat_schema *f, bool *left)
{
    af_status st = AF_OK;
    const json_t **value = NULL;
    size_t count = 0;
    af_flats *names = af_calloc(1, sizeof *names);
    *left = false;
    if (!names)
        return af_fail_nomem(s->err, "a schema", sizeof *names);
    AF_TRY(af_schema_flatten(s, f->names, names));
    for (uint32_t i = 0; i < names->count; i++) {
        *left |= names->item[i]->value_lists == 0;
        if (names->item[i]->value_lists == 0)
            continue;
        AF_TRY(af_schema_fitting(s, names->item[i], NULL, &value, &count));
        if (f->properties + count > AF_SCHEMA_VALUES_MAX)
            AF_TRY(af_schema_many_properties(s));
        af_schema_property *list = af_schema_take(s, (f->properties + count + 1) * sizeof *list);
        if (!list)
            AF_TRY(s->r->st);
        if (f->properties)
            memcpy(list, f->property, f->properties * sizeof *list);
        f->property = list;
        for (size_t k = 0; k < count; k++)
            if (json_is_string(value[k]) && !is_named(f, json_string_value(value[k]), 0))
                list[f->properties++] =
                    (af_schema_property){json_string_value(value[k]), f->additional};
        free(value);
        value = NULL;
    }
done:
    free(value);
    free(names);
    return st;
}

/* Leaves out properties whose names may not be. *possible: no required one is among them. */
static af_status drop_names(af_schema *s, af_flat_schema *f, bool *possible)
{
    af_status st = AF_OK;
    bool fits = true;
    uint32_t kept = 0;
    *possible = true;
    af_schema_property *list = af_schema_take(s, ((uint64_t)f->properties + 1) * sizeof *list);
    if (!list)
        return s->r->st;
    for (uint32_t i = 0; i < f->properties; i++) {
        AF_TRY(af_schema_name_fits(s, f, f->property[i].name, &fits));
        if (fits)
            list[kept++] = f->property[i];
    }
    f->property = list;
    f->properties = kept;
    for (uint32_t i = 0; i < f->requireds && *possible; i++)
        AF_TRY(af_schema_name_fits(s, f, f->required[i], possible));
done:
    return st;
}

/* An object while it is written: at[n] is the state after n properties, the last one also after
 * more than that, unless their number has a limit. */
typedef struct object_path {
    uint32_t *at, last;
    uint64_t min, max;
} object_path;

/* To a key after n properties. */
static void next_key(af_schema *s, const object_path *p, uint32_t n, uint32_t key)
{
    af_rtn_free_edge(s->r, n ? put_ws(s, byte(s, p->at[n], ',')) : p->at[n], key);
}

/* One property, which may be left out unless it is required. */
static void emit_property(af_schema *s, object_path *p, const char *name, af_schemas value,
                          bool required)
{
    af_rtn *r = s->r;
    uint32_t *next = af_schema_take(s, ((uint64_t)p->last + 1) * sizeof *next);
    if (!next)
        return;
    for (uint32_t n = 0; n <= p->last; n++)
        next[n] = af_rtn_state(r);
    for (uint32_t n = 0; n <= p->last && !required; n++)
        af_rtn_free_edge(r, p->at[n], next[n]);
    for (uint32_t n = 1; n <= p->last && r->st == AF_OK; n++) {
        const uint32_t key = af_rtn_state(r);
        next_key(s, p, n - 1, key);
        if (n == p->last && p->max == UINT64_MAX)
            next_key(s, p, n, key);
        colon_value(s, text_literal(s, key, name, strlen(name)), 0, value, next[n]);
    }
    p->at = next;
}

/* Any number of others, or as many as the limit leaves. How many keys there are is not known: for
 * the least number of properties they count as one. */
static af_status emit_others(af_schema *s, const af_flat_schema *f, const object_path *p,
                             uint32_t close)
{
    af_rtn *r = s->r;
    const uint32_t one = af_rtn_rule_new(r, NULL), start = af_rtn_state(r), end = af_rtn_state(r),
                   loop = af_rtn_state(r);
    if (r->st != AF_OK)
        return r->st;
    const af_status st = emit_other(s, f, r->rule[one].start, r->rule[one].accept);
    af_rtn_call(r, put_ws(s, byte(s, start, ',')), one, end);
    const uint32_t more = af_rtn_rule_of(r, start, end);
    for (uint32_t n = 0; n <= p->last && st == AF_OK && r->st == AF_OK; n++) {
        const uint32_t key = af_rtn_state(r), after = af_rtn_state(r);
        if (n + 1 < p->min || n >= p->max)
            continue;
        next_key(s, p, n, key);
        af_rtn_call(r, key, one, p->max == UINT64_MAX ? loop : after);
        if (p->max != UINT64_MAX)
            af_rtn_repeat(r, after, more, 0, p->max - n - 1, close);
    }
    af_rtn_repeat(r, loop, more, 0, UINT64_MAX, close);
    return st;
}

static af_status emit_members(af_schema *s, const af_flat_schema *f, bool others, uint32_t from,
                              uint32_t to)
{
    af_rtn *r = s->r;
    uint64_t named = f->properties;
    for (uint32_t i = 0; i < f->requireds; i++)
        named += !is_named(f, f->required[i], i);
    object_path p = {.min = f->min_properties, .max = f->max_properties};
    if (p.max >= named && !others)
        p.max = UINT64_MAX;
    if (others && p.min > named + 1)
        return af_fail_subject(s->err, AF_EUNSUPPORTED, "minProperties",
                               "'minProperties' above 1 is supported for properties with names in "
                               "the schema alone");
    if (p.min > p.max || p.min > named + others)
        return AF_OK; /* none fits */
    p.last =
        (uint32_t)(p.max == UINT64_MAX ? AF_MAX(1, AF_MIN(p.min, named)) : AF_MIN(p.max, named));
    p.at = af_schema_take(s, ((uint64_t)p.last + 1) * sizeof *p.at);
    if (!p.at)
        return r->st;
    const uint32_t open = af_rtn_state(r);
    af_rtn_marked(r, from, '{',
                  !others || p.max < 2 ? 0
                  : f->names.count     ? AF_RTN_TIGHT
                                       : AF_RTN_UNIQUE,
                  open);
    p.at[0] = put_ws(s, open);
    for (uint32_t n = 1; n <= p.last; n++)
        p.at[n] = af_rtn_state(r);
    for (uint32_t i = 0; i < f->properties && r->st == AF_OK; i++) {
        bool required = false;
        for (uint32_t k = 0; k < f->requireds && !required; k++)
            required = strcmp(f->required[k], f->property[i].name) == 0;
        emit_property(s, &p, f->property[i].name, f->property[i].value, required);
    }
    for (uint32_t i = 0; i < f->requireds && r->st == AF_OK; i++)
        if (!is_named(f, f->required[i], i))
            emit_property(s, &p, f->required[i], f->additional, true);
    const uint32_t close = af_rtn_state(r);
    for (uint32_t n = (uint32_t)p.min; n <= p.last && r->st == AF_OK; n++)
        af_rtn_free_edge(r, p.at[n], close);
    const af_status st = others && r->st == AF_OK ? emit_others(s, f, &p, close) : AF_OK;
    af_rtn_bytes(r, put_ws(s, close), '}', '}', to);
    return st;
}

static af_status emit_object(af_schema *s, const af_flat_schema *f, uint32_t from, uint32_t to)
{
    af_status st = AF_OK;
    af_flat_schema own = *f;
    bool others = f->additional_given || !f->closed_by_default, possible = true;
    for (uint32_t i = 0; i < f->additional.count; i++)
        others &= !json_is_false(f->additional.item[i]);
    if (f->names.count)
        AF_TRY(drop_names(s, &own, &possible));
    if (f->names.count && others)
        AF_TRY(list_names(s, &own, &others));
    if (possible)
        AF_TRY(emit_members(s, &own, others, from, to));
done:
    return st;
}

/* ---- values ---- */

static uint32_t put_literal(af_schema *s, uint32_t from, const json_t *v);

static uint32_t list_literal(af_schema *s, uint32_t from, const json_t *v)
{
    const char *name;
    json_t *value;
    uint32_t n = 0;
    from = put_ws(s, byte(s, from, json_is_array(v) ? '[' : '{'));
    for (size_t i = 0; i < json_array_size(v); i++, n++)
        from = put_literal(s, n ? put_ws(s, byte(s, from, ',')) : from, json_array_get(v, i));
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        from = n++ ? put_ws(s, byte(s, from, ',')) : from;
        from = byte(s, text_literal(s, from, name, strlen(name)), ':');
        from = put_literal(s, put_ws(s, from), value);
    }
    return byte(s, n ? put_ws(s, from) : from, json_is_array(v) ? ']' : '}');
}

static uint32_t put_literal(af_schema *s, uint32_t from, const json_t *v)
{
    char text[48];
    if (s->r->st != AF_OK)
        return from;
    switch (json_typeof(v)) {
    case JSON_NULL:
        return af_rtn_text(s->r, from, "null", 4);
    case JSON_TRUE:
        return af_rtn_text(s->r, from, "true", 4);
    case JSON_FALSE:
        return af_rtn_text(s->r, from, "false", 5);
    case JSON_STRING:
        return text_literal(s, from, json_string_value(v), json_string_length(v));
    case JSON_INTEGER:
    case JSON_REAL:
        af_number_text(v, text);
        return af_rtn_text(s->r, from, text, strlen(text));
    default:
        return list_literal(s, from, v);
    }
}

static af_status emit_values(af_schema *s, const af_flat_schema *f, uint32_t from, uint32_t to)
{
    const json_t **value = NULL;
    size_t count = 0;
    const af_status st = af_schema_fitting(s, f, NULL, &value, &count);
    for (size_t i = 0; st == AF_OK && i < count; i++)
        af_rtn_free_edge(s->r, put_literal(s, from, value[i]), to);
    free(value);
    return st;
}

af_status af_schema_emit(af_schema *s, const af_flat_schema *f, uint32_t from, uint32_t to)
{
    af_status st = AF_OK;
    af_rtn *r = s->r;
    const unsigned types = f->typed || !f->hints ? f->types : f->types & f->hints;
    if (f->value_lists)
        return emit_values(s, f, from, to);
    if (types & AF_TYPE_NULL)
        af_rtn_free_edge(r, af_rtn_text(r, from, "null", 4), to);
    if (types & AF_TYPE_BOOL) {
        af_rtn_free_edge(r, af_rtn_text(r, from, "true", 4), to);
        af_rtn_free_edge(r, af_rtn_text(r, from, "false", 5), to);
    }
    if (types & AF_TYPE_NUMBER)
        af_number_emit(r, from, types, f, s->once, to);
    if (types & AF_TYPE_STRING)
        AF_TRY(emit_string(s, f, from, to));
    if (types & AF_TYPE_ARRAY)
        AF_TRY(emit_array(s, f, from, to));
    if (types & AF_TYPE_OBJECT)
        AF_TRY(emit_object(s, f, from, to));
    st = r->st;
done:
    return st;
}
