/* schema_lists.c - arrays and objects of few values, listed: an item or a property after the other.
 * Of more than are counted some go on, which says enough when they are many at the end. */
#include "grammar/schema_values.h"

enum {
    DEPTH_MAX = 3,      /* arrays and objects inside each other */
    LENGTH_MAX = 64,    /* items that are listed */
    STEPS_PER_TRY = 16, /* of the schema's work */
};

#define MARK "\x01" /* before and after each part: no text of JSON has it */

/* Lists as they are while they grow. */
typedef struct growth {
    af_value_set level; /* MARK part MARK part MARK */
    bool cut;           /* some were left out */
} growth;

/* Adds each part, after a text, to each list; `once`: to those that do not have it; `keep`: they
 * also stay as they are. */
static af_status add_parts(af_schema *s, growth *g, const char *before, const af_value_set *part,
                           bool once, bool keep)
{
    af_status st = AF_OK;
    const size_t most = g->level.limit * (keep ? 2 : 1);
    af_value_set next = {.limit = g->level.limit};
    af_buf b = {0};
    for (size_t i = 0; i < g->level.count; i++) {
        if (keep)
            AF_TRY(af_values_add(s, &next, g->level.text[i], strlen(g->level.text[i])));
        AF_TRY(af_schema_count_steps(s, part->count * STEPS_PER_TRY));
        for (size_t k = 0; k < part->count && next.count < most; k++) {
            b.len = 0;
            af_buf_printf(&b, MARK "%s%s" MARK, before, part->text[k]);
            if (b.bad)
                AF_TRY(af_fail_nomem(s->err, "the values of a schema", b.len));
            if (once && strstr(g->level.text[i], b.data))
                continue;
            const uint64_t n = strlen(g->level.text[i]);
            af_buf whole = {0};
            af_buf_add(&whole, g->level.text[i], n);
            af_buf_add(&whole, b.data + 1, b.len - 1);
            st = whole.bad ? af_fail_nomem(s->err, "the values of a schema", n)
                           : af_values_add(s, &next, whole.data, whole.len);
            af_buf_clear(&whole);
            AF_TRY(st);
        }
        g->cut |= next.count >= most;
    }
    af_values_clear(&g->level);
    g->level = next;
    next = (af_value_set){0};
done:
    af_buf_clear(&b);
    af_values_clear(&next);
    return st;
}

/* Takes the lists of `min` to `max` parts as they are now. */
static af_status close_lists(af_schema *s, const growth *g, const char *brackets, uint64_t min,
                             uint64_t max, af_value_set *to)
{
    af_status st = AF_OK;
    af_buf b = {0};
    for (size_t i = 0; i < g->level.count; i++) {
        uint64_t parts = 0;
        b.len = 0;
        af_buf_char(&b, brackets[0]);
        for (const char *c = g->level.text[i] + 1; *c; c++) {
            parts += *c == MARK[0];
            if (*c != MARK[0] || c[1])
                af_buf_char(&b, *c == MARK[0] ? ',' : *c);
        }
        af_buf_char(&b, brackets[1]);
        if (b.bad)
            AF_TRY(af_fail_nomem(s->err, "the values of a schema", b.len));
        if (parts >= min && parts <= max)
            AF_TRY(af_values_add(s, to, b.data, b.len));
    }
done:
    af_buf_clear(&b);
    return st;
}

/* Is all of a part listed? If not, neither is the whole: it has many values where a part has that
 * can be there. */
static bool is_listed(const af_value_set *part, af_value_set *to, bool there)
{
    if (!part->many && !part->unknown && !part->lists)
        return true;
    to->lists = true;
    to->many |= part->many && there;
    return false;
}

af_status af_values_of_arrays(af_schema *s, const af_flat_schema *f, int depth, af_value_set *to)
{
    af_status st = AF_OK;
    const size_t last = to->count + to->limit;
    af_value_set item = {.limit = to->limit};
    growth g = {.level = {.limit = to->limit}};
    af_room room = AF_ROOM_MUCH;
    to->lists |= depth == DEPTH_MAX;
    if (depth == DEPTH_MAX || f->min_items > f->max_items)
        return AF_OK;
    if (f->unique && f->min_items > 1)
        AF_TRY(af_values_room(s, f, depth + 1, NULL, &room));
    if (room == AF_ROOM_NONE)
        goto done;
    AF_TRY(af_values_add(s, &g.level, MARK, 1));
    for (uint64_t i = 0; g.level.count && to->count < last; i++) {
        if (i >= f->min_items)
            AF_TRY(close_lists(s, &g, "[]", 0, UINT64_MAX, to));
        if (i == f->max_items)
            break;
        if (i == LENGTH_MAX) {
            to->lists = true;
            to->many |= !f->unique && g.level.count >= to->limit;
            break;
        }
        if (i <= f->prefixes) {
            af_values_clear(&item);
            item.limit = to->limit;
            AF_TRY(
                af_values_collect(s, i < f->prefixes ? f->prefix[i] : f->rest, depth + 1, &item));
        }
        if (!is_listed(&item, to, true))
            break;
        AF_TRY(add_parts(s, &g, "", &item, f->unique, false));
    }
    to->many |= to->count >= last;
    to->lists |= g.cut;
done:
    af_values_clear(&item);
    af_values_clear(&g.level);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const af_schema_property *)a)->name, ((const af_schema_property *)b)->name);
}

static bool is_required(const af_flat_schema *f, const char *name)
{
    for (uint32_t i = 0; i < f->requireds; i++)
        if (strcmp(f->required[i], name) == 0)
            return true;
    return false;
}

/* Has an object only properties with names, all of them listed? */
static bool is_closed(const af_flat_schema *f, bool *others)
{
    bool closed = f->names.count == 0;
    *others = (f->additional_given || !f->closed_by_default) && f->max_properties > f->requireds;
    for (uint32_t i = 0; i < f->additional.count; i++)
        *others &= !json_is_false(f->additional.item[i]);
    for (uint32_t i = 0; i < f->requireds && closed; i++) {
        bool named = false;
        for (uint32_t k = 0; k < f->properties && !named; k++)
            named = strcmp(f->property[k].name, f->required[i]) == 0;
        closed = named;
    }
    return closed && !*others;
}

/* Are there many values of one property that the schema does not name? */
static af_status look_at_other(af_schema *s, const af_flat_schema *f, int depth, af_value_set *to)
{
    af_status st = AF_OK;
    af_value_set name = {.limit = to->limit, .many = !f->names.count}, value = {.limit = to->limit};
    if (!name.many)
        AF_TRY(af_values_collect(s, f->names, depth + 1, &name));
    AF_TRY(af_values_collect(s, f->additional, depth + 1, &value));
    to->many = (name.many || value.many) && (name.many || name.count) &&
               (value.many || value.count || value.lists);
done:
    af_values_clear(&name);
    af_values_clear(&value);
    return st;
}

af_status af_values_of_objects(af_schema *s, const af_flat_schema *f, int depth, af_value_set *to)
{
    af_status st = AF_OK;
    bool others, listed = is_closed(f, &others), possible = true;
    growth g = {.level = {.limit = to->limit}};
    af_value_set value = {0}, found = {0};
    af_buf name = {0};
    const bool room = f->max_properties > f->requireds; /* for one that is not required */
    if (depth == DEPTH_MAX) {
        to->lists = true;
        return AF_OK;
    }
    found.lists = !listed;
    found.limit = to->limit;
    if (others)
        AF_TRY(look_at_other(s, f, depth, &found));
    af_schema_property *list = af_schema_take(s, ((uint64_t)f->properties + 1) * sizeof *list);
    if (!list)
        return s->r->st;
    if (f->properties) {
        memcpy(list, f->property, f->properties * sizeof *list);
        qsort(list, f->properties, sizeof *list, by_name);
    }
    AF_TRY(af_values_add(s, &g.level, MARK, 1));
    for (uint32_t i = 0; i < f->properties && possible; i++) {
        const bool required = is_required(f, list[i].name);
        if (found.many && !required)
            continue;
        af_values_clear(&value);
        value.limit = to->limit;
        AF_TRY(af_values_collect(s, list[i].value, depth + 1, &value));
        possible = !required || value.count || !is_listed(&value, &found, true);
        listed &= is_listed(&value, &found, required || room);
        name.len = 0;
        af_values_put_string(&name, list[i].name, strlen(list[i].name));
        af_buf_char(&name, ':');
        if (name.bad)
            AF_TRY(af_fail_nomem(s->err, "the values of a schema", name.len));
        if (listed && !found.many)
            AF_TRY(add_parts(s, &g, name.data, &value, false, !required));
        found.many |= g.level.count >= to->limit && f->max_properties == UINT64_MAX &&
                      f->min_properties <= f->requireds;
    }
    if (!possible)
        goto done;
    if (listed && !found.many)
        AF_TRY(close_lists(s, &g, "{}", f->min_properties, f->max_properties, to));
    to->many |= found.many;
    to->lists |= g.cut || found.lists;
done:
    af_buf_clear(&name);
    af_values_clear(&value);
    af_values_clear(&g.level);
    return st;
}
