/* schema_values.c - the values of a schema, as far as they are few: of enums, numbers between
 * bounds, short lists of strings, and what schema_lists.c makes of them. */
#include "grammar/schema_values.h"
#include "format/text/unicode.h"

#include <math.h>

enum {
    STRING_MAX = 1024,      /* bytes of a string that is listed */
    STEPS_PER_VALUE = 1024, /* of the schema's work */
    STEPS_PER_BYTE = 16,
    NUMBERS_MAX = 1 << 20, /* looked at for one list */
};

void af_values_clear(af_value_set *v)
{
    for (size_t i = 0; i < v->count; i++)
        free(v->text[i]);
    free(v->text);
    *v = (af_value_set){0};
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A string as unique.c keeps it: each character in one spelling. */
void af_values_put_string(af_buf *b, const char *text, size_t n)
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
        af_values_put_string(b, name[i], strlen(name[i]));
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
        af_values_put_string(b, json_string_value(v), json_string_length(v));
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

af_status af_values_add(af_schema *s, af_value_set *to, const char *text, uint64_t n)
{
    if (to->count == to->cap) {
        char **grown = af_realloc(to->text, (uint64_t)to->cap * 2 + 16, sizeof *grown);
        if (!grown)
            return af_fail_nomem(s->err, "the values of a schema", to->cap);
        to->text = grown;
        to->cap = to->cap * 2 + 16;
    }
    char *copy = af_calloc(n + 1, 1);
    if (!copy)
        return af_fail_nomem(s->err, "the values of a schema", n);
    memcpy(copy, text, n);
    to->text[to->count++] = copy;
    return af_schema_count_steps(s, STEPS_PER_VALUE + n * STEPS_PER_BYTE);
}

static af_status add_value(af_schema *s, af_value_set *to, const json_t *v)
{
    af_buf text = {0};
    put_value(&text, v);
    const af_status st = !v || text.bad || af_memory_failed()
                             ? af_fail_nomem(s->err, "the values of a schema", to->count)
                             : af_values_add(s, to, text.data, text.len);
    af_buf_clear(&text);
    return st;
}

static af_status add_new(af_schema *s, af_value_set *to, json_t *v)
{
    const af_status st = add_value(s, to, v);
    json_decref(v);
    return st;
}

/* Leaves each value once. */
static void sort_set(af_value_set *v)
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
static af_status list_numbers(af_schema *s, const af_flat_schema *f, unsigned types,
                              af_value_set *to)
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
    if ((scale == 1 || (types & AF_TYPE_NUMBER) == AF_TYPE_NUMBER) &&
        end - from - 4 >= (double)to->limit) {
        to->many = true;
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

/* How many strings there are from each state of an automaton, at most `limit`; free. NULL: out of
 * memory. */
static double *count_strings(const af_dfa *d, double limit, uint64_t *steps)
{
    double *count = af_calloc((uint64_t)d->states + 1, sizeof *count);
    bool more = count != NULL;
    for (uint32_t i = 0; count && i < d->states; i++)
        count[i] = d->accepting[i];
    while (more && *steps < AF_DFA_WORK_MAX && count[0] < limit) {
        more = false;
        for (uint32_t e = d->edges; e > 0;) { /* later states mostly come after earlier ones */
            const uint32_t from = d->edge[e - 1].from;
            double n = d->accepting[from];
            for (; e > 0 && d->edge[e - 1].from == from; e--)
                n += (d->edge[e - 1].hi - d->edge[e - 1].lo + 1.0) * count[d->edge[e - 1].to];
            n = AF_MIN(n, limit);
            more |= n > count[from];
            count[from] = n;
        }
        *steps += d->edges + 1u;
    }
    return count;
}

/* The strings that go on from a state of the automaton; `text` begins them. */
static af_status list_from(af_schema *s, const af_dfa *d, const double *count, uint32_t state,
                           af_buf *text, af_value_set *to)
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
        for (uint32_t cp = d->edge[lo].lo;
             count[d->edge[lo].to] > 0 && cp <= d->edge[lo].hi && !to->unknown; cp++) {
            if (cp >= 0xd800 && cp < 0xe000)
                continue;
            to->unknown |= len >= STRING_MAX;
            if (len >= STRING_MAX)
                return AF_OK;
            af_buf_utf8(text, cp);
            AF_TRY(list_from(s, d, count, d->edge[lo].to, text, to));
            text->len = len;
        }
done:
    return st;
}

static af_status list_strings(af_schema *s, const af_flat_schema *f, af_value_set *to)
{
    af_dfa d = {0};
    af_buf text = {0};
    double *count = NULL;
    uint64_t steps = 0;
    to->many |= !f->patterns && f->min_length <= f->max_length && f->max_length > 0;
    if (!f->patterns && f->max_length == 0 && f->min_length == 0)
        return add_new(s, to, json_string(""));
    if (!f->patterns || f->min_length > f->max_length)
        return AF_OK;
    af_status st = af_schema_string_dfa(s, f, &d);
    if (st != AF_OK || !d.states)
        goto done;
    count = count_strings(&d, (double)to->limit, &steps);
    AF_TRY(count ? af_schema_count_steps(s, steps) : af_fail_nomem(s->err, "a schema", d.states));
    to->many |= count[0] >= (double)to->limit;
    to->unknown |= steps >= AF_DFA_WORK_MAX;
    if (!to->many && !to->unknown)
        AF_TRY(list_from(s, &d, count, 0, &text, to));
done:
    free(count);
    af_buf_clear(&text);
    af_dfa_clear(&d);
    return st;
}

static af_status collect_flat(af_schema *s, const af_flat_schema *f, int depth, af_value_set *to)
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
        AF_TRY(af_values_of_arrays(s, f, depth, to));
    if (types & AF_TYPE_OBJECT && !to->many)
        AF_TRY(af_values_of_objects(s, f, depth, to));
done:
    free(value);
    return st;
}

/* The different values of a list of schemas. */
af_status af_values_collect(af_schema *s, af_schemas all, int depth, af_value_set *to)
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
