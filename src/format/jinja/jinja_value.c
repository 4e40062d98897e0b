/* jinja_value.c - making values: strings, lists, dicts; and the latched failure of a rendering. */
#include "format/jinja/jinja.h"

#include "base/hash.h"

#include <stdarg.h>

#define SMALL_DICT 8 /* up to here a dict is searched in order */

af_jv af_jfail(af_jinja *j, const char *fmt, ...)
{
    const af_jv none = {0};
    if (j->failed)
        return none;
    j->failed = true;
    char text[960];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    af_fail(j->err, AF_EUSAGE, "line %d: %s", j->line, text);
    return none;
}

void *af_jtake(af_jinja *j, uint64_t bytes)
{
    void *p = j->failed ? NULL : af_arena_take(&j->mem, bytes);
    if (!p && !j->failed)
        j->limit = true;
    if (!p)
        af_jfail(j, "the template needs more than %" PRIu64 " MiB of memory",
                 AF_TEMPLATE_MEMORY_MAX >> 20);
    return p;
}

bool af_jstep(af_jinja *j, uint64_t steps)
{
    j->steps += steps;
    if (j->steps <= AF_TEMPLATE_STEPS_MAX)
        return !j->failed;
    j->limit = true;
    af_jfail(j, "the template takes more than %" PRIu64 " steps", AF_TEMPLATE_STEPS_MAX);
    return !j->failed;
}

bool af_jenter(af_jinja *j)
{
    j->limit = j->limit || j->depth >= AF_JINJA_EVAL_MAX;
    if (j->depth >= AF_JINJA_EVAL_MAX)
        af_jfail(j, "evaluation is nested deeper than %d levels", AF_JINJA_EVAL_MAX);
    if (!af_jstep(j, 1))
        return false;
    j->depth++;
    return true;
}

void af_jleave(af_jinja *j) { j->depth--; }

af_jv af_jnone(void) { return (af_jv){.kind = AF_J_NONE}; }
af_jv af_jbool(bool b) { return (af_jv){.kind = AF_J_BOOL, .b = b}; }
af_jv af_jint(int64_t i) { return (af_jv){.kind = AF_J_INT, .i = i}; }
af_jv af_jfloat(double f) { return (af_jv){.kind = AF_J_FLOAT, .f = f}; }
af_jv af_jlist_v(af_jlist *l) { return (af_jv){.kind = AF_J_LIST, .l = l}; }
af_jv af_jtuple_v(af_jlist *l) { return (af_jv){.kind = AF_J_TUPLE, .l = l}; }
af_jv af_jdict_v(af_jdict *d) { return (af_jv){.kind = AF_J_DICT, .d = d}; }

af_jv af_jmark(af_jv s, bool markup)
{
    s.markup = markup;
    return s;
}

bool af_jstr_fill(af_jstr *s, const char *p, uint64_t n)
{
    *s = (af_jstr){.p = p, .n = n, .cps = af_jutf8_count(p, n)};
    return p != NULL;
}

bool af_jstr_is(const af_jstr *s, const char *lit)
{
    const uint64_t n = strlen(lit);
    return s->n == n && !memcmp(s->p, lit, n);
}

uint64_t af_jstr_hash(af_jstr *s)
{
    if (!s->hash) {
        const uint64_t h = af_fnv1a(AF_FNV_START, s->p, s->n);
        s->hash = h ? h : 1;
    }
    return s->hash;
}

uint64_t af_jstr_at(const af_jstr *s, uint64_t i)
{
    if (s->cps == s->n)
        return AF_MIN(i, s->n);
    uint64_t at = 0;
    for (; i > 0 && at < s->n; i--) {
        at++;
        while (at < s->n && ((unsigned char)s->p[at] & 0xc0) == 0x80)
            at++;
    }
    return at;
}

static af_jv wrap(af_jinja *j, const char *p, uint64_t n)
{
    af_jstr *s = p ? af_jtake(j, sizeof *s) : NULL;
    if (!s)
        return (af_jv){.kind = AF_J_STR, .s = &j->no_str};
    af_jstr_fill(s, p, n);
    return (af_jv){.kind = AF_J_STR, .s = s};
}

af_jv af_jstr_new(af_jinja *j, const char *p, uint64_t n)
{
    char *copy = af_jtake(j, n + 1);
    if (copy && n)
        memcpy(copy, p, n);
    return wrap(j, copy, n);
}

af_jv af_jstr_lit(af_jinja *j, const char *s) { return wrap(j, s, strlen(s)); }

af_jv af_jstr_take(af_jinja *j, af_buf *b)
{
    if (b->bad)
        af_jfail(j, "a text has more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
    const af_jv v = af_jstr_new(j, b->len ? b->data : "", b->bad ? 0 : b->len);
    af_buf_clear(b);
    return v;
}

af_jv af_jstr_part(af_jinja *j, const af_jstr *s, uint64_t from, uint64_t to)
{
    return wrap(j, s->p + from, to > from ? to - from : 0);
}

af_jv af_jundef(af_jinja *j, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    uint64_t n = strlen(text);
    while (n && !af_jutf8_valid(text, n)) /* a cut in the middle of a character */
        n--;
    af_jv v = af_jstr_new(j, text, n);
    v.kind = AF_J_UNDEF;
    return v;
}

af_jlist *af_jlist_new(af_jinja *j, int64_t cap)
{
    af_jlist *l = af_jtake(j, sizeof *l);
    if (!l)
        return &j->no_list;
    cap = AF_MAX(cap, 0);
    l->item = cap ? af_jtake(j, (uint64_t)cap * sizeof *l->item) : NULL;
    l->cap = l->item ? cap : 0;
    return l;
}

void af_jlist_add(af_jinja *j, af_jlist *l, af_jv v)
{
    if (!af_jstep(j, 1))
        return;
    if (l->n == l->cap) {
        const int64_t cap = l->cap ? l->cap * 2 : 8;
        af_jv *item = af_jtake(j, (uint64_t)cap * sizeof *item);
        if (!item)
            return;
        if (l->n)
            memcpy(item, l->item, (size_t)l->n * sizeof *item);
        l->item = item;
        l->cap = cap;
    }
    l->item[l->n++] = v;
}

af_jv af_jpair_v(af_jinja *j, af_jv a, af_jv b)
{
    af_jlist *l = af_jlist_new(j, 2);
    af_jlist_add(j, l, a);
    af_jlist_add(j, l, b);
    return af_jtuple_v(l);
}

/* A generator runs when it is gone over: what failed while its items were made comes up behind
 * them, and never when nobody gets that far. */
af_jv af_jiter_v(af_jinja *j, af_jlist *l)
{
    const bool defer = j->failed && !j->limit && j->err;
    if (defer)
        j->failed = false;
    af_jiter *it = af_jtake(j, sizeof *it);
    if (!it)
        return af_jnone();
    it->list = l;
    if (defer) { /* without the line: it gets the one where it comes up */
        const char *text = strstr(j->err->msg, ": ");
        it->error = af_arena_strdup(&j->mem, text ? text + 2 : j->err->msg);
    }
    return (af_jv){.kind = AF_J_ITER, .iter = it};
}

bool af_jiter_next(af_jinja *j, af_jiter *it, af_jv *out)
{
    if (it->at < it->list->n && !j->failed) {
        *out = it->list->item[it->at++];
        return true;
    }
    if (it->error && !j->failed)
        af_jfail(j, "%s", it->error);
    return false;
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

static void index_put(af_jdict *d, int64_t i)
{
    uint64_t k = d->pair[i].hash & (uint64_t)(d->slots - 1);
    while (d->slot[k] >= 0)
        k = (k + 1) & (uint64_t)(d->slots - 1);
    d->slot[k] = (int32_t)i;
}

static bool dict_grow(af_jinja *j, af_jdict *d)
{
    if (d->n == d->cap) {
        const int64_t cap = d->cap ? d->cap * 2 : 4;
        af_jpair *pair = af_jtake(j, (uint64_t)cap * sizeof *pair);
        if (!pair || cap > INT32_MAX)
            return false;
        if (d->n)
            memcpy(pair, d->pair, (size_t)d->n * sizeof *pair);
        d->pair = pair;
        d->cap = cap;
    }
    if (d->n >= SMALL_DICT && (d->n + 1) * 2 > d->slots) {
        const int64_t slots = d->slots ? d->slots * 2 : 32;
        int32_t *slot = af_jtake(j, (uint64_t)slots * sizeof *slot);
        if (!slot)
            return false;
        for (int64_t i = 0; i < slots; i++)
            slot[i] = -1;
        d->slot = slot;
        d->slots = slots;
        for (int64_t i = 0; i < d->n; i++)
            index_put(d, i);
    }
    return true;
}

static af_jpair *dict_lookup(af_jinja *j, const af_jdict *d, af_jv key, uint64_t hash)
{
    if (!d->slot) {
        for (int64_t i = 0; i < d->n && !j->failed; i++)
            if (d->pair[i].hash == hash && af_jequal(j, d->pair[i].key, key))
                return &d->pair[i];
        return NULL;
    }
    uint64_t k = hash & (uint64_t)(d->slots - 1);
    for (; d->slot[k] >= 0 && !j->failed; k = (k + 1) & (uint64_t)(d->slots - 1)) {
        af_jpair *p = &d->pair[d->slot[k]];
        if (p->hash == hash && af_jequal(j, p->key, key))
            return p;
        af_jstep(j, 1);
    }
    return NULL;
}

void af_jdict_set(af_jinja *j, af_jdict *d, af_jv key, af_jv val)
{
    const uint64_t hash = af_jhash(j, key);
    af_jpair *p = j->failed ? NULL : dict_lookup(j, d, key, hash);
    if (p) {
        p->val = val; /* the key stays the first one, as in Python */
        return;
    }
    if (!af_jstep(j, 1) || !dict_grow(j, d))
        return;
    d->pair[d->n] = (af_jpair){.key = key, .val = val, .hash = hash};
    if (d->slot)
        index_put(d, d->n);
    d->n++;
}

void af_jdict_put(af_jinja *j, af_jdict *d, const char *key, af_jv val)
{
    af_jdict_set(j, d, af_jstr_lit(j, key), val);
}

af_jv *af_jdict_get(af_jinja *j, const af_jdict *d, af_jv key)
{
    const uint64_t hash = af_jhash(j, key);
    af_jpair *p = j->failed ? NULL : dict_lookup(j, d, key, hash);
    return p ? &p->val : NULL;
}

af_jv *af_jdict_find(af_jinja *j, const af_jdict *d, const char *key)
{
    af_jstr s;
    af_jstr_fill(&s, key, strlen(key));
    return af_jdict_get(j, d, (af_jv){.kind = AF_J_STR, .s = &s});
}
