/* jinja_attr.c - a.b and a['b']: attributes first for a dot, items first for brackets; and the
 * methods and fields of every type but str.
 *
 * Methods that would change a list or dict do not exist: the sandbox makes them undefined. */
#include "format/jinja/jinja_ast.h"

#include <math.h>

static af_jval m_index(const af_jcall *c)
{
    const af_jlist *l = c->self.l;
    for (int64_t i = 0; i < l->n && !c->j->failed; i++)
        if (af_jequal(c->j, l->item[i], c->arg[0]))
            return af_jint(i);
    return af_jfail(c->j, "the value is not in the %s", af_jtype(c->self));
}

static af_jval m_count(const af_jcall *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->self.l->n && !c->j->failed; i++)
        n += af_jequal(c->j, c->self.l->item[i], c->arg[0]);
    return af_jint(n);
}

static af_jval m_copy(const af_jcall *c) { return c->self; /* never changed: may be shared */ }

static af_jval m_get(const af_jcall *c)
{
    const af_jval *v = af_jdict_get(c->j, c->self.d, c->arg[0]);
    return v ? *v : c->arg[1].kind == AF_JKIND_MISSING ? af_jnone() : c->arg[1];
}

static af_jval m_view(const af_jcall *c)
{
    const af_jdict *d = c->self.d;
    af_jlist *l = c->func->aux == 'i'   ? af_jdict_pairs(c->j, d)
                  : c->func->aux == 'k' ? af_jitems(c->j, c->self)
                                        : af_jlist_new(c->j, d->n);
    for (int64_t i = 0; c->func->aux == 'v' && i < d->n && !c->j->failed; i++)
        af_jlist_add(c->j, l, d->pair[i].val);
    if (!c->j->failed)
        l->view = c->func->name;
    return (af_jval){.kind = AF_JKIND_VIEW, .l = l};
}

static af_jval m_fromkeys(const af_jcall *c)
{
    const af_jlist *l = af_jitems(c->j, c->arg[0]);
    af_jdict *d = af_jdict_new(c->j, l->n);
    for (int64_t i = 0; i < l->n && !c->j->failed; i++)
        af_jdict_set(c->j, d, l->item[i], af_jgiven(c->arg[1]) ? c->arg[1] : af_jnone());
    return af_jdict_v(d);
}

static af_jval m_bit_length(const af_jcall *c)
{
    const int64_t i = af_jinteger(c->self);
    int64_t bits = 0;
    for (uint64_t x = i < 0 ? 0 - (uint64_t)i : (uint64_t)i; x; x >>= 1)
        bits++;
    return af_jint(bits);
}

static af_jval m_is_integer(const af_jcall *c)
{
    return af_jbool(isfinite(c->self.f) && c->self.f == floor(c->self.f));
}

static af_jval m_cycle(const af_jcall *c)
{
    return c->all->n ? c->all->pos[c->self.loop->at % c->all->n]
                     : af_jfail(c->j, "no items for cycling given");
}

static af_jval m_changed(const af_jcall *c)
{
    af_jloop *loop = c->self.loop;
    af_jlist *now = af_jargs_list(c->j, c->all, 0);
    const bool same =
        loop->changed && af_jequal(c->j, af_jtuple_v(loop->changed), af_jtuple_v(now));
    loop->changed = now;
    return af_jbool(!same);
}

static af_jval m_cycler(const af_jcall *c)
{
    af_jcycle *cycle = c->self.cycle;
    const af_jval v = c->func->aux == 'r' ? af_jnone() : cycle->items->item[cycle->at];
    cycle->at = c->func->aux == 'r' ? 0 : (cycle->at + 1) % cycle->items->n;
    return v;
}

static const struct {
    af_jkind from, to; /* the kinds of value that have the method */
    af_jfunc func;
} methods[] = {
    {AF_JKIND_LIST, AF_JKIND_RANGE, {"index", "/value", m_index, 0}},
    {AF_JKIND_LIST, AF_JKIND_RANGE, {"count", "/value", m_count, 0}},
    {AF_JKIND_LIST, AF_JKIND_LIST, {"copy", "", m_copy, 0}},
    {AF_JKIND_DICT, AF_JKIND_DICT, {"get", "/key,default?", m_get, 0}},
    {AF_JKIND_DICT, AF_JKIND_DICT, {"items", "", m_view, 'i'}},
    {AF_JKIND_DICT, AF_JKIND_DICT, {"keys", "", m_view, 'k'}},
    {AF_JKIND_DICT, AF_JKIND_DICT, {"values", "", m_view, 'v'}},
    {AF_JKIND_DICT, AF_JKIND_DICT, {"copy", "", m_copy, 0}},
    {AF_JKIND_DICT, AF_JKIND_DICT, {"fromkeys", "/iterable,value?", m_fromkeys, 0}},
    {AF_JKIND_FUNC, AF_JKIND_FUNC, {"fromkeys", "/iterable,value?", m_fromkeys, 0}},
    {AF_JKIND_BOOL, AF_JKIND_INT, {"bit_length", "", m_bit_length, 0}},
    {AF_JKIND_FLOAT, AF_JKIND_FLOAT, {"is_integer", "", m_is_integer, 0}},
    {AF_JKIND_LOOP, AF_JKIND_LOOP, {"cycle", NULL, m_cycle, 0}},
    {AF_JKIND_LOOP, AF_JKIND_LOOP, {"changed", NULL, m_changed, 0}},
    {AF_JKIND_CYCLER, AF_JKIND_CYCLER, {"next", "", m_cycler, 'n'}},
    {AF_JKIND_CYCLER, AF_JKIND_CYCLER, {"reset", "", m_cycler, 'r'}},
};

const af_jfunc *af_jfunc_find(const af_jfunc *rows, const af_jstr *name)
{
    for (; rows->name; rows++)
        for (const char *p = rows->name; *p; p += strspn(p, "|")) {
            const size_t n = strcspn(p, "|");
            if (n == name->n && !memcmp(p, name->p, n))
                return rows;
            p += n;
        }
    return NULL;
}

static const af_jfunc *method_find(af_jval obj, const af_jstr *name)
{
    if (obj.kind == AF_JKIND_STR)
        return af_jfunc_find(af_jmethods_str, name);
    if (obj.kind == AF_JKIND_FUNC && strcmp(obj.func->name, "dict") != 0)
        return NULL;
    for (size_t i = 0; i < AF_LEN(methods); i++)
        if (obj.kind >= methods[i].from && obj.kind <= methods[i].to &&
            af_jstr_is(name, methods[i].func.name))
            return &methods[i].func;
    return NULL;
}

static af_jval loop_field(af_jinja *j, const af_jloop *l, const af_jstr *name)
{
    const int64_t n = l->items->n, at = l->at;
    const struct {
        const char *name;
        af_jval value;
    } fields[] = {
        {"index", af_jint(at + 1)},
        {"index0", af_jint(at)},
        {"first", af_jbool(at == 0)},
        {"last", af_jbool(at + 1 == n)},
        {"length", af_jint(n)},
        {"revindex", af_jint(n - at)},
        {"revindex0", af_jint(n - at - 1)},
        {"depth", af_jint(l->depth)},
        {"depth0", af_jint(l->depth - 1)},
    };
    for (size_t i = 0; i < AF_LEN(fields); i++)
        if (af_jstr_is(name, fields[i].name))
            return fields[i].value;
    if (af_jstr_is(name, "previtem"))
        return at > 0 ? l->items->item[at - 1] : af_jundef(j, "there is no previous item");
    if (af_jstr_is(name, "nextitem"))
        return at + 1 < n ? l->items->item[at + 1] : af_jundef(j, "there is no next item");
    return af_jmissing();
}

static af_jval macro_field(af_jinja *j, const af_jstmt *m, const af_jstr *name)
{
    if (af_jstr_is(name, "name"))
        return af_jstr_v(m->macro.name);
    if (af_jstr_is(name, "catch_kwargs"))
        return af_jbool(m->macro.uses & AF_JUSES_KWARGS);
    if (!af_jstr_is(name, "arguments"))
        return af_jmissing();
    af_jlist *l = af_jlist_new(j, m->macro.param.n);
    for (int i = 0; i < m->macro.param.n; i++)
        af_jlist_add(j, l, af_jstr_v(m->macro.param.item[i]->name.name));
    return af_jtuple_v(l);
}

static af_jval field(af_jinja *j, af_jval obj, const af_jstr *name)
{
    switch ((af_jkind)obj.kind) {
    case AF_JKIND_NAMESPACE: {
        const af_jval *v = af_jdict_get(j, obj.d, af_jstr_v(name));
        return v ? *v : af_jmissing();
    }
    case AF_JKIND_LOOP:
        return loop_field(j, obj.loop, name);
    case AF_JKIND_MACRO:
        return macro_field(j, obj.macro->of, name);
    case AF_JKIND_BOOL:
    case AF_JKIND_INT:
        return af_jstr_is(name, "real") || af_jstr_is(name, "numerator") ? af_jint(af_jinteger(obj))
               : af_jstr_is(name, "imag")                                ? af_jint(0)
               : af_jstr_is(name, "denominator")                         ? af_jint(1)
                                                                         : af_jmissing();
    case AF_JKIND_TUPLE:
        if (obj.l->group && (af_jstr_is(name, "grouper") || af_jstr_is(name, "list")))
            return obj.l->item[name->p[0] == 'l'];
        return af_jmissing();
    case AF_JKIND_CYCLER:
        return af_jstr_is(name, "current") ? obj.cycle->items->item[obj.cycle->at] : af_jmissing();
    default:
        return af_jmissing();
    }
}

/* Methods that would change a list or dict: the sandbox makes them undefined. */
static bool is_unsafe(af_jval obj, const af_jstr *name)
{
    static const char *const list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                       "sort",   "extend", "remove", NULL};
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *p = obj.kind == AF_JKIND_LIST   ? list
                           : obj.kind == AF_JKIND_DICT ? dict
                                                       : NULL;
    for (; p && *p; p++)
        if (af_jstr_is(name, *p))
            return true;
    return false;
}

af_jval af_jattribute(af_jinja *j, af_jval obj, const af_jstr *name)
{
    if (name->n && name->p[0] == '_' && obj.kind != AF_JKIND_NAMESPACE)
        return af_jmissing();
    if (is_unsafe(obj, name))
        return af_jundef(j, "access to attribute '%s' of '%s' object is unsafe.", name->p,
                         af_jtype(obj));
    const af_jfunc *f = method_find(obj, name);
    if (!f)
        return field(j, obj, name);
    struct bound {
        af_jmethod method;
        af_jval self;
    } *m = af_jtake(j, sizeof *m);
    if (!m)
        return af_jmissing();
    *m = (struct bound){{f, &m->self}, obj};
    return (af_jval){.kind = AF_JKIND_METHOD, .method = &m->method};
}

static af_jval no_attribute(af_jinja *j, af_jval obj, const af_jstr *name)
{
    const int n = (int)AF_MIN(name->n, 100);
    if (obj.kind == AF_JKIND_NONE)
        return af_jundef(j, "'None' has no attribute '%.*s'", n, name->p);
    return af_jundef(j, "'%s object' has no attribute '%.*s'", af_jtype(obj), n, name->p);
}

af_jval af_jgetattr(af_jinja *j, af_jval obj, const af_jstr *name)
{
    if (obj.kind == AF_JKIND_UNDEF)
        return af_jfail_type(j, obj, "a value is undefined");
    af_jval v = af_jattribute(j, obj, name);
    if (v.kind == AF_JKIND_MISSING)
        v = af_jitem(j, obj, af_jstr_v(name));
    return v.kind == AF_JKIND_MISSING ? no_attribute(j, obj, name) : v;
}

af_jval af_jgetitem(af_jinja *j, af_jval obj, af_jval key)
{
    if (obj.kind == AF_JKIND_UNDEF)
        return af_jfail_type(j, obj, "a value is undefined");
    af_jval v = af_jitem(j, obj, key);
    if (v.kind == AF_JKIND_MISSING && key.kind == AF_JKIND_STR)
        v = af_jattribute(j, obj, key.s);
    if (v.kind != AF_JKIND_MISSING)
        return v;
    if (key.kind == AF_JKIND_STR)
        return no_attribute(j, obj, key.s);
    v = af_jtostr(j, key);
    return af_jundef(j, "'%s object' has no element %.100s", af_jtype(obj), v.s->p);
}
