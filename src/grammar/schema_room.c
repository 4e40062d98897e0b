/* schema_room.c - are there enough different values for the items that an array must have?
 *
 * Values of enums, numbers between bounds and short lists of strings are listed; of arrays and
 * objects only that there are many. Where places have different schemas, each must get a value of
 * its own (a matching of places and values). */
#include "base/buf.h"
#include "format/text/unicode.h"
#include "grammar/schema.h"

#include <math.h>

enum {
    LIMIT_MAX = 1 << 16,    /* values that are counted */
    PLACES_MAX = 256,       /* that are matched */
    DEPTH_MAX = 3,          /* of arrays and objects */
    STRING_MAX = 256,       /* bytes of a string that is listed */
    STEPS_PER_VALUE = 1024, /* of the schema's work */
    NUMBERS_MAX = 1 << 20,  /* looked at for one list */
};

typedef struct value_set {
    char **text; /* one for each value */
    size_t count, cap, limit;
    bool many;    /* at least `limit` different ones */
    bool unknown; /* there may be more than are listed */
    bool lists;   /* the same of arrays and objects */
} value_set;

static void clear_set(value_set *v)
{
    for (size_t i = 0; i < v->count; i++)
        free(v->text[i]);
    free(v->text);
    *v = (value_set){0};
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A string as unique.c keeps it: each character in one spelling. */
static void put_string(af_buf *b, const char *text, size_t n)
{
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    af_buf_char(b, '"');
    for (size_t i = 0; i < n; i++) {
        const char *at = text[i] ? strchr(named, text[i]) : NULL;
        if (at && (uint8_t)text[i] < 0x80 && !(text[i] >= 'a' && text[i] <= 'z'))
            af_buf_printf(b, "\\%c", at[1]);
        else if ((uint8_t)text[i] < 0x20)
            af_buf_printf(b, "\\u%04x", (unsigned)(uint8_t)text[i]);
        else
            af_buf_char(b, text[i]);
    }
    af_buf_char(b, '"');
}

static void put_value(af_buf *b, const json_t *v);

static void put_members(af_buf *b, const json_t *v)
{
    const char **name = af_calloc(json_object_size(v) + 1, sizeof *name), *key;
    size_t n = 0;
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)v, key, one)
    {
        if (name)
            name[n++] = key;
    }
    if (n)
        qsort(name, n, sizeof *name, compare_texts);
    for (size_t i = 0; i < n; i++) {
        af_buf_str(b, i ? "," : "");
        put_string(b, name[i], strlen(name[i]));
        af_buf_char(b, ':');
        put_value(b, json_object_get(v, name[i]));
    }
    free(name); /* NULL: latched as a failure of memory */
}

/* A value as unique.c keeps it, properties in the order of their names: equal values have one text.
 */
static void put_value(af_buf *b, const json_t *v)
{
    char number[48];
    if (json_is_number(v)) {
        af_number_text(v, number);
        af_buf_str(b, number);
    } else if (json_is_string(v)) {
        put_string(b, json_string_value(v), json_string_length(v));
    } else if (json_is_array(v)) {
        af_buf_char(b, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            af_buf_str(b, i ? "," : "");
            put_value(b, json_array_get(v, i));
        }
        af_buf_char(b, ']');
    } else if (json_is_object(v)) {
        af_buf_char(b, '{');
        put_members(b, v);
        af_buf_char(b, '}');
    } else {
        af_buf_str(b, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
    }
}

static af_status add_value(af_schema *s, value_set *to, const json_t *v)
{
    af_buf text = {0};
    if (to->count == to->cap) {
        char **grown = af_realloc(to->text, (uint64_t)to->cap * 2 + 16, sizeof *grown);
        if (!grown)
            return af_fail_nomem(s->err, "the values of a schema", to->cap);
        to->text = grown;
        to->cap = to->cap * 2 + 16;
    }
    put_value(&text, v);
    if (!v || text.bad || af_memory_failed()) {
        af_buf_clear(&text);
        return af_fail_nomem(s->err, "the values of a schema", to->count);
    }
    to->text[to->count++] = text.data;
    return af_schema_count_steps(s, STEPS_PER_VALUE);
}

static af_status add_new(af_schema *s, value_set *to, json_t *v)
{
    const af_status st = add_value(s, to, v);
    json_decref(v);
    return st;
}

/* Leaves each value once. */
static void sort_set(value_set *v)
{
    size_t n = 0;
    if (v->count)
        qsort(v->text, v->count, sizeof *v->text, compare_texts);
    for (size_t i = 0; i < v->count; i++)
        if (n && strcmp(v->text[n - 1], v->text[i]) == 0)
            free(v->text[i]);
        else
            v->text[n++] = v->text[i];
    v->count = n;
    v->many |= n >= v->limit;
}

/* ---- what is listed ---- */

/* Multiples of `multiple` / 10^places between two bounds. */
static af_status list_numbers(af_schema *s, const af_flat_schema *f, unsigned types, value_set *to)
{
    af_status st = AF_OK;
    const bool fractions = types & AF_TYPE_FRACTION;
    size_t made = 0;
    if (!f->least.set || !f->most.set ||
        (fractions && !f->multiple && af_number_compare(f->least.value, f->most.value) < 0)) {
        to->many = true;
        return AF_OK;
    }
    if (fractions && !f->multiple) { /* one value at most */
        return f->least.exclusive || f->most.exclusive ||
                       af_number_compare(f->least.value, f->most.value) != 0
                   ? AF_OK
                   : add_value(s, to, f->least.value);
    }
    const double scale = pow(10, f->multiple ? f->places : 0), step = AF_MAX(f->multiple, 1);
    const double from = floor(json_number_value(f->least.value) * scale / step) - 1;
    const double end = ceil(json_number_value(f->most.value) * scale / step) + 1;
    if (fabs(from) * step > 9e15 || fabs(end) * step > 9e15 || end - from > NUMBERS_MAX) {
        to->many |= end - from > NUMBERS_MAX && !fractions && scale == 1;
        to->unknown = true;
        return AF_OK;
    }
    for (double k = from; k <= end && made < to->limit; k++) {
        const double x = k * step / scale;
        json_t *v = floor(x) == x ? json_integer((json_int_t)x) : json_real(x);
        const int low = v ? af_number_compare(v, f->least.value) : -1;
        const int high = v ? af_number_compare(v, f->most.value) : 1;
        const bool fits = low + !f->least.exclusive > 0 && high - !f->most.exclusive < 0 &&
                          (types & (json_is_integer(v) ? AF_TYPE_INTEGER : AF_TYPE_FRACTION));
        if (fits)
            AF_TRY(add_value(s, to, v));
        made += fits;
        json_decref(v);
    }
    to->many |= made >= to->limit;
done:
    return st;
}

/* The states of an automaton from which a string can end; free. NULL: out of memory. */
static bool *live_states(const af_dfa *d, uint64_t *steps)
{
    bool *live = af_calloc((uint64_t)d->states + 1, sizeof *live);
    bool more = live != NULL;
    if (live)
        memcpy(live, d->accepting, d->states * sizeof *live);
    while (more) {
        more = false;
        for (uint32_t e = d->edges; e-- > 0;) { /* later states mostly come after earlier ones */
            more |= live[d->edge[e].to] && !live[d->edge[e].from];
            live[d->edge[e].from] |= live[d->edge[e].to];
        }
        *steps += d->edges;
    }
    return live;
}

/* The strings that go on from a state of the automaton; `text` begins them. */
static af_status list_from(af_schema *s, const af_dfa *d, const bool *live, uint32_t state,
                           af_buf *text, size_t last, value_set *to)
{
    af_status st = AF_OK;
    const uint64_t len = text->len;
    uint32_t lo = 0, hi = d->edges;
    if (d->accepting[state])
        AF_TRY(add_new(s, to, json_stringn(text->data ? text->data : "", text->len)));
    while (lo < hi) { /* the first edge of the state */
        const uint32_t mid = lo + (hi - lo) / 2;
        if (d->edge[mid].from < state)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < d->edges && d->edge[lo].from == state; lo++)
        for (uint32_t cp = d->edge[lo].lo; cp <= d->edge[lo].hi && to->count < last; cp++) {
            if ((cp >= 0xd800 && cp < 0xe000) || !live[d->edge[lo].to])
                continue;
            to->unknown |= len >= STRING_MAX;
            if (len >= STRING_MAX)
                return AF_OK;
            af_buf_utf8(text, cp);
            AF_TRY(list_from(s, d, live, d->edge[lo].to, text, last, to));
            text->len = len;
        }
done:
    return st;
}

static af_status list_strings(af_schema *s, const af_flat_schema *f, value_set *to)
{
    af_dfa d = {0};
    af_buf text = {0};
    bool *live = NULL;
    const size_t last = to->count + to->limit;
    to->many |= !f->patterns && f->min_length <= f->max_length && f->max_length > 0;
    if (!f->patterns && f->max_length == 0 && f->min_length == 0)
        return add_new(s, to, json_string(""));
    if (!f->patterns || f->min_length > f->max_length)
        return AF_OK;
    af_status st = af_schema_string_dfa(s, f, &d);
    if (st != AF_OK || !d.states)
        goto done;
    uint64_t steps = 0;
    live = live_states(&d, &steps);
    AF_TRY(live ? af_schema_count_steps(s, steps) : af_fail_nomem(s->err, "a schema", d.states));
    AF_TRY(list_from(s, &d, live, 0, &text, last, to));
    to->many |= to->count >= last;
done:
    free(live);
    af_buf_clear(&text);
    af_dfa_clear(&d);
    return st;
}

static af_status collect(af_schema *s, af_schemas all, int depth, value_set *to);

/* Are there many values of a part that each value has? */
static af_status look_inside(af_schema *s, af_schemas all, int depth, value_set *to)
{
    value_set inside = {.limit = to->limit};
    if (to->many || depth == DEPTH_MAX)
        return AF_OK;
    const af_status st = collect(s, all, depth + 1, &inside);
    to->many |= inside.many;
    clear_set(&inside);
    return st;
}

static af_status count_arrays(af_schema *s, const af_flat_schema *f, int depth, value_set *to)
{
    if (f->max_items == 0)
        return f->min_items == 0 ? add_new(s, to, json_array()) : AF_OK;
    to->lists = true;
    return look_inside(s, f->prefixes ? f->prefix[0] : f->rest, depth, to);
}

static af_status count_objects(af_schema *s, const af_flat_schema *f, int depth, value_set *to)
{
    af_status st = AF_OK;
    bool others = f->additional_given || !f->closed_by_default;
    for (uint32_t i = 0; i < f->additional.count; i++)
        others &= !json_is_false(f->additional.item[i]);
    to->lists = true;
    to->many |= others && !f->names.count && f->max_properties > f->requireds;
    for (uint32_t i = 0; i < f->properties && f->max_properties > f->requireds; i++)
        AF_TRY(look_inside(s, f->property[i].value, depth, to));
done:
    return st;
}

static af_status collect_flat(af_schema *s, const af_flat_schema *f, int depth, value_set *to)
{
    af_status st = AF_OK;
    const json_t **value = NULL;
    size_t count = 0;
    const unsigned types = f->typed || !f->hints ? f->types : f->types & f->hints;
    if (f->value_lists) {
        AF_TRY(af_schema_fitting(s, f, NULL, &value, &count));
        for (size_t i = 0; i < count; i++)
            AF_TRY(add_value(s, to, value[i]));
        goto done;
    }
    if (types & AF_TYPE_NULL)
        AF_TRY(add_new(s, to, json_null()));
    if (types & AF_TYPE_BOOL) {
        AF_TRY(add_value(s, to, json_true()));
        AF_TRY(add_value(s, to, json_false()));
    }
    if (types & AF_TYPE_NUMBER)
        AF_TRY(list_numbers(s, f, types, to));
    if (types & AF_TYPE_STRING && !to->many)
        AF_TRY(list_strings(s, f, to));
    if (types & AF_TYPE_ARRAY && !to->many)
        AF_TRY(count_arrays(s, f, depth, to));
    if (types & AF_TYPE_OBJECT && !to->many)
        AF_TRY(count_objects(s, f, depth, to));
done:
    free(value);
    return st;
}

/* The different values of a list of schemas. */
static af_status collect(af_schema *s, af_schemas all, int depth, value_set *to)
{
    af_status st = AF_OK;
    af_flats *flats = af_calloc(1, sizeof *flats);
    if (!flats)
        return af_fail_nomem(s->err, "a schema", sizeof *flats);
    AF_TRY(af_schema_flatten(s, all, flats));
    for (uint32_t i = 0; i < flats->count && !to->many; i++)
        AF_TRY(collect_flat(s, flats->item[i], depth, to));
    sort_set(to);
done:
    free(flats);
    return st;
}

/* ---- places and values ---- */

typedef struct places {
    value_set *set; /* of each place with a schema of its own; the last one is for all others */
    uint32_t sets, count;
    value_set all;
    uint32_t *taken; /* by value: its place + 1 */
    bool *seen;
} places;

/* Finds a value for a place, where places that have one may get another (Kuhn). */
static bool find_value(places *p, uint32_t place)
{
    const value_set *own = &p->set[AF_MIN(place, p->sets - 1)];
    if (own->many || own->unknown || own->lists)
        return true;
    for (size_t i = 0; i < own->count; i++) {
        char **at = bsearch(&own->text[i], p->all.text, p->all.count, sizeof *at, compare_texts);
        const size_t v = (size_t)(at - p->all.text);
        if (p->seen[v])
            continue;
        p->seen[v] = true;
        if (!p->taken[v] || find_value(p, p->taken[v] - 1)) {
            p->taken[v] = place + 1;
            return true;
        }
    }
    return false;
}

/* Can each place get a value that no other has? */
static af_status match(af_schema *s, places *p, bool *yes)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p->sets; i++)
        n += p->set[i].count;
    p->all.text = af_calloc(n + 1, sizeof *p->all.text); /* borrowed */
    p->taken = af_calloc(n + 1, sizeof *p->taken);
    p->seen = af_calloc(n + 1, sizeof *p->seen);
    if (!p->all.text || !p->taken || !p->seen)
        return af_fail_nomem(s->err, "a schema", n);
    for (uint32_t i = 0; i < p->sets; i++)
        for (size_t k = 0; k < p->set[i].count; k++)
            p->all.text[p->all.count++] = p->set[i].text[k];
    if (n)
        qsort(p->all.text, n, sizeof *p->all.text, compare_texts);
    p->all.count = 0;
    for (size_t i = 0; i < n; i++)
        if (!i || strcmp(p->all.text[p->all.count - 1], p->all.text[i]) != 0)
            p->all.text[p->all.count++] = p->all.text[i];
    *yes = true;
    for (uint32_t i = 0; i < p->count && *yes; i++) {
        memset(p->seen, 0, n);
        *yes = find_value(p, i);
    }
    return af_schema_count_steps(s, (uint64_t)p->count * n);
}

/* Lets unique.c know the values that places may need. */
static void keep_scarce(af_schema *s, const places *p)
{
    for (uint32_t i = 0; i < p->sets; i++) {
        s->r->tight_any |= p->set[i].unknown && !p->set[i].many;
        s->r->tight_lists |= p->set[i].lists && !p->set[i].many;
        for (size_t k = 0; k < p->set[i].count && !p->set[i].many; k++)
            af_rtn_scarce(s->r, p->set[i].text[k]);
    }
}

static af_status room_of(af_schema *s, places *p, af_room *out)
{
    af_status st = AF_OK;
    bool much = true, yes = true;
    for (uint32_t i = 0; i < p->sets; i++)
        much &= p->set[i].many;
    *out = much ? AF_ROOM_MUCH : AF_ROOM_TIGHT;
    if (p->sets == 1 && !much && !p->set[0].unknown && !p->set[0].lists)
        *out = AF_ROOM_NONE;
    else if (!much && p->sets > 1 && p->count > PLACES_MAX)
        return af_fail_subject(s->err, AF_EUNSUPPORTED, "uniqueItems",
                               "'uniqueItems' with 'prefixItems' of few values and 'minItems' "
                               "above %d is not supported",
                               PLACES_MAX);
    else if (!much && p->sets > 1)
        AF_TRY(match(s, p, &yes));
    if (!yes)
        *out = AF_ROOM_NONE;
    if (*out == AF_ROOM_TIGHT)
        keep_scarce(s, p);
done:
    return st;
}

af_status af_schema_room(af_schema *s, const af_flat_schema *f, af_room *out)
{
    af_status st = AF_OK;
    places p = {.count = (uint32_t)AF_MIN(f->min_items, LIMIT_MAX)};
    const uint32_t own = AF_MIN(f->prefixes, p.count);
    p.sets = own + (own < p.count);
    p.set = af_calloc((uint64_t)p.sets + 1, sizeof *p.set);
    if (!p.set)
        return af_fail_nomem(s->err, "a schema", p.sets);
    for (uint32_t i = 0; i < p.sets; i++) {
        p.set[i].limit = p.count;
        AF_TRY(collect(s, i < own ? f->prefix[i] : f->rest, 0, &p.set[i]));
    }
    AF_TRY(room_of(s, &p, out));
done:
    for (uint32_t i = 0; i < p.sets; i++)
        clear_set(&p.set[i]);
    free(p.set);
    free(p.all.text);
    free(p.taken);
    free(p.seen);
    return st;
}
