/* jinja_compare.c - truth, equality, order, membership and hashes of values as Python has them;
 * dicts and sorting, which rest on them. */
#define _GNU_SOURCE /* memmem */
#include "format/jinja/jinja.h"

#include "base/hash.h"

#include <math.h>

bool af_jtruth(const af_jval *v)
{
    if (v->kind <= AF_JKIND_NONE || v->kind == AF_JKIND_MISSING)
        return false;
    if (v->kind == AF_JKIND_FLOAT)
        return v->f != 0;
    if (v->kind == AF_JKIND_STR)
        return v->s->n != 0;
    /* no length (-1): an object, always true */
    return af_jis_int(*v) ? af_jinteger(*v) != 0 : af_jlength(*v) != 0;
}

bool af_jarg_true(const af_jcall *c, int i) { return af_jtruth(&c->arg[i]); }

static bool lists_equal(af_jinja *j, const af_jlist *a, const af_jlist *b)
{
    if (a == b || a->n != b->n)
        return a == b;
    for (int64_t i = 0; i < a->n; i++)
        if (!af_jequal(j, a->item[i], b->item[i]) || j->failed)
            return false;
    return true;
}

static bool dicts_equal(af_jinja *j, const af_jdict *a, const af_jdict *b)
{
    if (a == b || a->n != b->n)
        return a == b;
    for (int64_t i = 0; i < a->n; i++) {
        const af_jval *other = af_jdict_get(j, b, a->pair[i].key);
        if (!other || j->failed || !af_jequal(j, a->pair[i].val, *other))
            return false;
    }
    return true;
}

bool af_jsame(af_jval a, af_jval b)
{
    if (a.kind != b.kind || a.kind == AF_JKIND_FLOAT)
        return false;
    if (a.kind == AF_JKIND_NONE || a.kind == AF_JKIND_BOOL)
        return a.kind == AF_JKIND_NONE || a.b == b.b;
    if (a.kind == AF_JKIND_INT) /* small integers are one object each in CPython */
        return a.i == b.i && a.i >= -5 && a.i <= 256;
    return a.l == b.l; /* any pointer member: all have the same address */
}

bool af_jequal(af_jinja *j, af_jval a, af_jval b)
{
    if (af_jis_int(a) && af_jis_int(b))
        return af_jinteger(a) == af_jinteger(b);
    if (af_jis_number(a) && af_jis_number(b))
        return af_jnumber(a) == af_jnumber(b);
    if (a.kind != b.kind)
        return false;
    if (a.kind == AF_JKIND_STR) {
        af_jstep(j, a.s->n / 64);
        return a.s == b.s || (a.s->n == b.s->n && !memcmp(a.s->p, b.s->p, a.s->n));
    }
    if (!af_jenter(j))
        return false;
    const bool equal = af_jis_list(a)            ? lists_equal(j, a.l, b.l)
                       : a.kind == AF_JKIND_DICT ? dicts_equal(j, a.d, b.d)
                       : a.kind <= AF_JKIND_NONE ? true /* undefined or None */
                                                 : a.l == b.l;
    af_jleave(j);
    return equal;
}

/* -1, 0, 1; 2 when the two cannot be ordered (a failure is latched), 3 for NaN. */
static int order(af_jinja *j, af_jval a, af_jval b, const char *op)
{
    if (af_jis_int(a) && af_jis_int(b))
        return af_jinteger(a) < af_jinteger(b) ? -1 : af_jinteger(a) > af_jinteger(b);
    if (af_jis_number(a) && af_jis_number(b)) {
        const double x = af_jnumber(a), y = af_jnumber(b);
        return isnan(x) || isnan(y) ? 3 : x < y ? -1 : x > y;
    }
    if (a.kind == AF_JKIND_STR && b.kind == AF_JKIND_STR) {
        const uint64_t n = AF_MIN(a.s->n, b.s->n);
        af_jstep(j, n / 64);
        const int c = memcmp(a.s->p, b.s->p, n);
        return c ? (c < 0 ? -1 : 1) : a.s->n < b.s->n ? -1 : a.s->n > b.s->n;
    }
    if (a.kind == b.kind && (a.kind == AF_JKIND_LIST || a.kind == AF_JKIND_TUPLE)) {
        if (!af_jenter(j))
            return 2;
        const int64_t n = AF_MIN(a.l->n, b.l->n);
        int64_t i = 0;
        while (i < n && !j->failed && af_jequal(j, a.l->item[i], b.l->item[i]))
            i++;
        const int c = i < n ? order(j, a.l->item[i], b.l->item[i], op)
                            : (a.l->n < b.l->n ? -1 : a.l->n > b.l->n);
        af_jleave(j);
        return c;
    }
    af_jfail_type(j, a.kind == AF_JKIND_UNDEF ? a : b,
                  "'%s' not supported between instances of '%s' and '%s'", op, af_jtype(a),
                  af_jtype(b));
    return 2;
}

static bool in_items(af_jinja *j, af_jval item, const af_jlist *l)
{
    for (int64_t i = 0; i < l->n && !j->failed; i++)
        if (af_jequal(j, l->item[i], item))
            return true;
    return false;
}

static bool contains(af_jinja *j, af_jval item, af_jval in)
{
    if (in.kind == AF_JKIND_STR) {
        if (item.kind != AF_JKIND_STR) {
            af_jfail(j, "'in <string>' requires string as left operand, not %s", af_jtype(item));
            return false;
        }
        af_jstep(j, in.s->n / 64);
        return item.s->n == 0 || memmem(in.s->p, in.s->n, item.s->p, item.s->n) != NULL;
    }
    if (in.kind == AF_JKIND_DICT)
        return af_jdict_get(j, in.d, item) != NULL;
    if (!af_jiterable(in))
        af_jfail(j, "argument of type '%s' is not iterable", af_jtype(in));
    return !j->failed && in_items(j, item, af_jitems(j, in));
}

bool af_jcompare(af_jinja *j, af_jcmp cmp, af_jval a, af_jval b)
{
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    if (cmp == AF_JCMP_EQ || cmp == AF_JCMP_NE)
        return af_jequal(j, a, b) == (cmp == AF_JCMP_EQ);
    if (cmp == AF_JCMP_IN || cmp == AF_JCMP_NOTIN)
        return contains(j, a, b) == (cmp == AF_JCMP_IN);
    const int c = order(j, a, b, names[cmp]);
    return c <= 1 && (cmp == AF_JCMP_LT   ? c < 0
                      : cmp == AF_JCMP_LE ? c <= 0
                      : cmp == AF_JCMP_GT ? c > 0
                                          : c >= 0);
}

/* Binary insertion: few comparisons, which are the slow part, and stable. */
void af_jsort(af_jinja *j, af_jlist *items, af_jlist *keys, bool reverse)
{
    for (int64_t i = 1; i < items->n && af_jstep(j, 1 + (uint64_t)i / 16); i++) {
        const af_jval item = items->item[i], key = keys->item[i];
        int64_t low = 0, high = i;
        while (low < high) {
            const int64_t mid = (low + high) / 2;
            if (af_jcompare(j, reverse ? AF_JCMP_GT : AF_JCMP_LT, key, keys->item[mid]))
                high = mid;
            else
                low = mid + 1;
        }
        memmove(items->item + low + 1, items->item + low, (size_t)(i - low) * sizeof item);
        memmove(keys->item + low + 1, keys->item + low, (size_t)(i - low) * sizeof key);
        items->item[low] = item;
        keys->item[low] = key;
    }
}

static uint64_t hash_of(af_jinja *j, af_jval v)
{
    if (v.kind == AF_JKIND_STR)
        return af_jstr_hash(v.s);
    if (v.kind == AF_JKIND_LIST || v.kind == AF_JKIND_DICT || v.kind == AF_JKIND_VIEW)
        af_jfail(j, "unhashable type: '%s'", af_jtype(v));
    if (af_jis_number(v)) { /* equal numbers have equal hashes: 1 == 1.0 == true */
        const double f = af_jnumber(v) + 0.0;
        return af_fnv1a(AF_FNV_START, &f, sizeof f);
    }
    uint64_t h = v.kind <= AF_JKIND_NONE ? v.kind + 1u : (uint64_t)(uintptr_t)v.l;
    if (af_jis_list(v) && af_jenter(j)) {
        h = v.kind;
        for (int64_t i = 0; i < v.l->n && !j->failed; i++)
            h = h * UINT64_C(0x9e3779b97f4a7c15) + hash_of(j, v.l->item[i]);
        af_jleave(j);
    }
    return h;
}

af_jdict *af_jdict_new(af_jinja *j, int64_t cap)
{
    af_jdict *d = af_jtake(j, sizeof *d);
    if (!d)
        return &j->no_dict;
    d->pair = cap > 0 ? af_jtake(j, (uint64_t)cap * sizeof *d->pair) : NULL;
    d->cap = d->pair ? cap : 0;
    return d;
}

/* Pairs are searched in order, by hash: the dicts of a conversation are small. */
static af_jpair *dict_lookup(af_jinja *j, const af_jdict *d, af_jval key, uint64_t hash)
{
    af_jstep(j, (uint64_t)d->n / 16);
    for (int64_t i = 0; i < d->n && !j->failed; i++)
        if (d->pair[i].hash == hash && af_jequal(j, d->pair[i].key, key))
            return &d->pair[i];
    return NULL;
}

void af_jdict_set(af_jinja *j, af_jdict *d, af_jval key, af_jval val)
{
    const uint64_t hash = hash_of(j, key);
    af_jpair *p = j->failed ? NULL : dict_lookup(j, d, key, hash);
    if (p) {
        p->val = val; /* the key stays the first one, as in Python */
        return;
    }
    af_jpair *pair = af_jstep(j, 1) ? af_jgrown(j, d->pair, d->n, &d->cap, sizeof *pair) : NULL;
    if (pair) {
        d->pair = pair;
        d->pair[d->n++] = (af_jpair){.key = key, .val = val, .hash = hash};
    }
}

af_jval *af_jdict_get(af_jinja *j, const af_jdict *d, af_jval key)
{
    const uint64_t hash = hash_of(j, key);
    af_jpair *p = j->failed ? NULL : dict_lookup(j, d, key, hash);
    return p ? &p->val : NULL;
}

af_jval *af_jdict_find(af_jinja *j, const af_jdict *d, const char *key)
{
    af_jstr s;
    af_jstr_fill(&s, key, strlen(key));
    return af_jdict_get(j, d, af_jstr_v(&s));
}

af_jlist *af_jdict_pairs(af_jinja *j, const af_jdict *d)
{
    af_jlist *l = af_jlist_new(j, d->n);
    for (int64_t i = 0; i < d->n && !j->failed; i++)
        af_jlist_add(j, l, af_jtuple2(j, d->pair[i].key, d->pair[i].val));
    return l;
}
