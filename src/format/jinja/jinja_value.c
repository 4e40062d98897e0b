/* jinja_value.c - making values: strings, lists, generators; the latched failure and the limits of
 * a rendering. */
#define _GNU_SOURCE /* pthread_getattr_default_np */
#include "format/jinja/jinja.h"

#include "base/hash.h"

#include <pthread.h>
#include <stdarg.h>

static af_jval latch(af_jinja *j, const char *fmt, va_list ap)
{
    char text[960];
    if (!j->failed) {
        j->failed = true;
        vsnprintf(text, sizeof text, fmt, ap);
        af_fail(j->err, AF_EUSAGE, "line %d: %s", j->line, text);
    }
    return (af_jval){0};
}

af_jval af_jfail(af_jinja *j, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const af_jval v = latch(j, fmt, ap);
    va_end(ap);
    return v;
}

af_jval af_jfail_type(af_jinja *j, af_jval v, const char *fmt, ...)
{
    if (v.kind == AF_JKIND_UNDEF && v.s)
        return af_jfail(j, "%s", v.s->p);
    va_list ap;
    va_start(ap, fmt);
    v = latch(j, fmt, ap);
    va_end(ap);
    return v;
}

void *af_jtake(af_jinja *j, uint64_t bytes)
{
    void *p = j->failed ? NULL : af_arena_take(&j->mem, bytes);
    if (!p)
        af_jfail(j, "the template needs more than %" PRIu64 " MiB of memory",
                 AF_TEMPLATE_MEMORY_MAX >> 20);
    return p;
}

void *af_jgrown(af_jinja *j, void *items, int64_t n, int64_t *cap, uint64_t size)
{
    if (n < *cap || j->failed)
        return j->failed ? NULL : items;
    void *more = af_jtake(j, (uint64_t)AF_MAX(2 * *cap, 4) * size);
    if (more && n)
        memcpy(more, items, (uint64_t)n * size);
    *cap = more ? AF_MAX(2 * *cap, 4) : *cap;
    return more;
}

bool af_jstep(af_jinja *j, uint64_t steps)
{
    j->steps += steps;
    if (j->steps > AF_TEMPLATE_STEPS_MAX)
        af_jfail(j, "the template takes more than %" PRIu64 " steps", AF_TEMPLATE_STEPS_MAX);
    return !j->failed;
}

/* Half of the stack that a thread has. */
static uint64_t stack_half(void)
{
    pthread_attr_t attr;
    size_t size = 0;
    if (pthread_getattr_default_np(&attr) == 0) {
        pthread_attr_getstacksize(&attr, &size);
        pthread_attr_destroy(&attr);
    }
    return (size ? AF_MIN((uint64_t)size, UINT64_C(8) << 20) : UINT64_C(2) << 20) / 2;
}

bool af_jenter(af_jinja *j)
{
    char here;
    const uintptr_t at = (uintptr_t)&here;
    if (j->depth == 0) {
        j->stack = at;
        j->stack_max = stack_half();
    }
    if (j->stack - at > j->stack_max && j->stack > at)
        af_jfail(j, "evaluation needs more than half of the stack of %" PRIu64 " kB",
                 j->stack_max / 512);
    if (j->depth >= AF_JINJA_EVAL_MAX)
        af_jfail(j, "evaluation is nested deeper than %d levels", AF_JINJA_EVAL_MAX);
    if (!af_jstep(j, 1))
        return false;
    j->depth++;
    return true;
}

void af_jleave(af_jinja *j) { j->depth--; }

const char *af_jtype(af_jval v)
{
    static const char *const names[] = {
        "Undefined", "NoneType", "bool",      "int",    "float",     "str",       "list",
        "tuple",     "range",    "dict view", "dict",   "Namespace", "generator", "LoopContext",
        "Macro",     "function", "method",    "Cycler", "Joiner",    "nothing",
    };
    return v.kind == AF_JKIND_STR && v.markup ? "Markup" : names[v.kind];
}

void af_jstr_fill(af_jstr *s, const char *p, uint64_t n)
{
    *s = (af_jstr){.p = p, .n = n, .cps = af_utf8_count(p, n)};
}

bool af_jstr_is(const af_jstr *s, const char *lit)
{
    const char first = s->n ? s->p[0] : '\0'; /* most names differ there: attributes ask often */
    return first == lit[0] && s->n == strlen(lit) && !memcmp(s->p, lit, s->n);
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
    const char *p = s->p, *end = s->p + s->n;
    for (; i > 0 && p < end; i--)
        af_utf8_next(&p);
    return (uint64_t)(p - s->p);
}

static af_jval wrap(af_jinja *j, const char *p, uint64_t n)
{
    af_jstr *s = p ? af_jtake(j, sizeof *s) : NULL;
    if (!s)
        return af_jstr_v(&j->no_str);
    af_jstr_fill(s, p, n);
    return af_jstr_v(s);
}

af_jval af_jstr_new(af_jinja *j, const char *p, uint64_t n)
{
    char *copy = af_jtake(j, n + 1);
    if (copy && n)
        memcpy(copy, p, n);
    return wrap(j, copy, n);
}

af_jval af_jstr_lit(af_jinja *j, const char *s) { return wrap(j, s, strlen(s)); }

af_jval af_jstr_take(af_jinja *j, af_buf *b)
{
    if (b->bad)
        af_jfail(j, "a text has more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
    const af_jval v = af_jstr_new(j, b->len ? b->data : "", b->bad ? 0 : b->len);
    af_buf_clear(b);
    return v;
}

af_jval af_jstr_part(af_jinja *j, af_jval v, uint64_t from, uint64_t to)
{
    return af_jmark(wrap(j, v.s->p + from, to > from ? to - from : 0), v.markup);
}

af_jval af_jundef(af_jinja *j, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    uint64_t n = strlen(text);
    while (n && af_utf8_valid(text, n) != n) /* a cut in the middle of a character */
        n--;
    af_jval v = af_jstr_new(j, text, n);
    v.kind = AF_JKIND_UNDEF;
    return v;
}

af_jlist *af_jlist_new(af_jinja *j, int64_t cap)
{
    af_jlist *l = af_jtake(j, sizeof *l);
    if (!l)
        return &j->no_list;
    l->item = cap > 0 ? af_jtake(j, (uint64_t)cap * sizeof *l->item) : NULL;
    l->cap = l->item ? cap : 0;
    return l;
}

void af_jlist_add(af_jinja *j, af_jlist *l, af_jval v)
{
    af_jval *item = af_jstep(j, 1) ? af_jgrown(j, l->item, l->n, &l->cap, sizeof v) : NULL;
    if (item) {
        l->item = item;
        l->item[l->n++] = v;
    }
}

af_jlist *af_jargs_list(af_jinja *j, const af_jargs *args, int from)
{
    af_jlist *l = af_jlist_new(j, args->n - from);
    for (int i = from; i < args->n; i++)
        af_jlist_add(j, l, args->pos[i]);
    return l;
}

af_jval af_jtuple2(af_jinja *j, af_jval a, af_jval b)
{
    af_jlist *l = af_jlist_new(j, 2);
    af_jlist_add(j, l, a);
    af_jlist_add(j, l, b);
    return af_jtuple_v(l);
}

af_jval af_jgenerator(const af_jcall *call, af_jlist *(*make)(const af_jcall *call))
{
    af_jinja *j = call->j;
    struct saved {
        af_jiter it;
        af_jcall call;
        af_jval arg[AF_JINJA_BIND_MAX];
        af_jargs all;
    } *s = af_jtake(j, sizeof *s);
    if (!s)
        return af_jnone();
    s->call = *call;
    if (call->arg)
        s->call.arg = memcpy(s->arg, call->arg, sizeof s->arg);
    s->call.all = memcpy(&s->all, call->all, sizeof s->all);
    s->it = (af_jiter){.make = make, .call = &s->call};
    return (af_jval){.kind = AF_JKIND_ITER, .iter = &s->it};
}

bool af_jiter_next(af_jinja *j, af_jiter *it, af_jval *out)
{
    if (!it->list) {
        it->list = &j->no_list; /* a generator that uses itself finds nothing left */
        if (af_jenter(j)) {
            af_jlist *made = it->make(it->call);
            it->list = j->failed ? it->list : made;
            af_jleave(j);
        }
    }
    if (it->at >= it->list->n || j->failed)
        return false;
    *out = it->list->item[it->at++];
    return true;
}

static void add_chars(af_jinja *j, af_jlist *out, af_jval v)
{
    const char *p = v.s->p, *end = p + v.s->n;
    while (p < end && !j->failed) {
        const char *from = p;
        af_utf8_next(&p);
        af_jlist_add(
            j, out,
            af_jmark(af_jstr_part(j, v, (uint64_t)(from - v.s->p), (uint64_t)(p - v.s->p)), false));
    }
}

af_jlist *af_jitems(af_jinja *j, af_jval v)
{
    if (af_jis_list(v))
        return v.l;
    af_jlist *out = af_jlist_new(j, AF_MAX(af_jlength(v), 0));
    if (v.kind == AF_JKIND_STR)
        add_chars(j, out, v);
    else if (v.kind == AF_JKIND_DICT)
        for (int64_t i = 0; i < v.d->n && !j->failed; i++)
            af_jlist_add(j, out, v.d->pair[i].key);
    else if (v.kind == AF_JKIND_ITER)
        for (af_jval next; af_jiter_next(j, v.iter, &next);)
            af_jlist_add(j, out, next);
    else if (v.kind != AF_JKIND_UNDEF)
        af_jfail(j, "'%s' object is not iterable", af_jtype(v));
    return out;
}

bool af_jiterable(af_jval v)
{
    return af_jis_list(v) || v.kind == AF_JKIND_UNDEF || v.kind == AF_JKIND_STR ||
           v.kind == AF_JKIND_DICT || v.kind == AF_JKIND_ITER;
}

int64_t af_jlength(af_jval v)
{
    return af_jis_list(v)             ? v.l->n
           : v.kind == AF_JKIND_UNDEF ? 0
           : v.kind == AF_JKIND_STR   ? (int64_t)v.s->cps
           : v.kind == AF_JKIND_DICT  ? v.d->n
           : v.kind == AF_JKIND_LOOP  ? v.loop->items->n
                                      : -1;
}

int64_t af_jarg_int(const af_jcall *c, int i, int64_t absent)
{
    const af_jval v = c->arg[i];
    if (!af_jgiven(v) || c->j->failed)
        return absent;
    if (!af_jis_int(v))
        af_jfail_type(c->j, v, "'%s' expects an integer, got '%s'", c->func->name, af_jtype(v));
    return c->j->failed ? absent : af_jinteger(v);
}

const af_jstr *af_jarg_str(const af_jcall *c, int i, const char *absent)
{
    const af_jval v = c->arg[i];
    if (v.kind == AF_JKIND_STR)
        return v.s;
    if (!af_jgiven(v) && absent)
        return af_jstr_lit(c->j, absent).s;
    af_jfail_type(c->j, v, "'%s' expects a string, got '%s'", c->func->name, af_jtype(v));
    return &c->j->no_str;
}
