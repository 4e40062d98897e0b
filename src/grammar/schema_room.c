/* schema_room.c - are there enough different values for the items that an array must have? Where
 * places have different schemas, each must get a value of its own (a matching of places and
 * values). */
#include "grammar/schema_values.h"

enum {
    LIMIT_MAX = 1 << 16, /* values that are counted */
    PLACES_MAX = 256,    /* that are matched */
};

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct places {
    af_value_set *set; /* of each place with a schema of its own; the last one is for all others */
    uint32_t sets, count;
    af_value_set all;
    uint32_t *taken; /* by value: its place + 1 */
    bool *seen;
} places;

/* Finds a value for a place, where places that have one may get another (Kuhn). */
static bool find_value(places *p, uint32_t place)
{
    const af_value_set *own = &p->set[AF_MIN(place, p->sets - 1)];
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
static void keep_scarce(af_rtn *r, const places *p)
{
    for (uint32_t i = 0; i < p->sets; i++) {
        r->tight_any |= p->set[i].unknown && !p->set[i].many;
        r->tight_lists |= p->set[i].lists && !p->set[i].many;
        for (size_t k = 0; k < p->set[i].count && !p->set[i].many; k++)
            af_rtn_scarce(r, p->set[i].text[k]);
    }
}

static af_status room_of(af_schema *s, places *p, af_rtn *keep, af_room *out)
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
    if (*out == AF_ROOM_TIGHT && keep)
        keep_scarce(keep, p);
done:
    return st;
}

af_status af_values_room(af_schema *s, const af_flat_schema *f, int depth, af_rtn *keep,
                         af_room *out)
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
        AF_TRY(af_values_collect(s, i < own ? f->prefix[i] : f->rest, depth, &p.set[i]));
    }
    AF_TRY(room_of(s, &p, keep, out));
done:
    for (uint32_t i = 0; i < p.sets; i++)
        af_values_clear(&p.set[i]);
    free(p.set);
    free(p.all.text);
    free(p.taken);
    free(p.seen);
    return st;
}

af_status af_schema_room(af_schema *s, const af_flat_schema *f, af_room *out)
{
    return af_values_room(s, f, 0, s->r, out);
}
