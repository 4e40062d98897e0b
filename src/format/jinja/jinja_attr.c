/* jinja_attr.c - a.b, a['b'], a[1:2]: attributes first for a dot, items first for brackets. */
#include "format/jinja/jinja.h"

static af_jv missing(void) { return (af_jv){.kind = AF_J_MISSING}; }

static af_jv no_attribute(af_jinja *j, af_jv obj, const af_jstr *name)
{
    const int n = (int)AF_MIN(name->n, 100);
    if (obj.kind == AF_J_NONE)
        return af_jundef(j, "'None' has no attribute '%.*s'", n, name->p);
    return af_jundef(j, "'%s object' has no attribute '%.*s'", af_jtype(obj), n, name->p);
}

static af_jv undefined_has_none(af_jinja *j, af_jv obj)
{
    return af_jfail(j, "%s", obj.s ? obj.s->p : "a value is undefined");
}

static af_jv loop_field(af_jinja *j, const af_jloop *l, const af_jstr *name)
{
    const int64_t n = l->items->n;
    if (af_jstr_is(name, "index"))
        return af_jint(l->at + 1);
    if (af_jstr_is(name, "index0"))
        return af_jint(l->at);
    if (af_jstr_is(name, "revindex"))
        return af_jint(n - l->at);
    if (af_jstr_is(name, "revindex0"))
        return af_jint(n - l->at - 1);
    if (af_jstr_is(name, "first"))
        return af_jbool(l->at == 0);
    if (af_jstr_is(name, "last"))
        return af_jbool(l->at + 1 == n);
    if (af_jstr_is(name, "length"))
        return af_jint(n);
    if (af_jstr_is(name, "depth"))
        return af_jint(l->depth);
    if (af_jstr_is(name, "depth0"))
        return af_jint(l->depth - 1);
    if (af_jstr_is(name, "previtem"))
        return l->at > 0 ? l->items->item[l->at - 1] : af_jundef(j, "there is no previous item");
    if (af_jstr_is(name, "nextitem"))
        return l->at + 1 < n ? l->items->item[l->at + 1] : af_jundef(j, "there is no next item");
    return missing();
}

static af_jv macro_field(af_jinja *j, const af_jmacro *m, const af_jstr *name)
{
    if (af_jstr_is(name, "name"))
        return (af_jv){.kind = AF_J_STR, .s = m->node->name};
    if (af_jstr_is(name, "catch_kwargs"))
        return af_jbool(m->node->uses & AF_USES_KWARGS);
    if (af_jstr_is(name, "catch_varargs"))
        return af_jbool(m->node->uses & AF_USES_VARARGS);
    if (af_jstr_is(name, "caller"))
        return af_jbool(m->node->uses & AF_USES_CALLER);
    if (!af_jstr_is(name, "arguments"))
        return missing();
    af_jlist *l = af_jlist_new(j, m->node->list2.n);
    for (int i = 0; i < m->node->list2.n; i++)
        af_jlist_add(j, l, (af_jv){.kind = AF_J_STR, .s = m->node->list2.item[i]->name});
    return af_jtuple_v(l);
}

static af_jv number_field(af_jv v, const af_jstr *name)
{
    const bool whole = v.kind != AF_J_FLOAT;
    if (af_jstr_is(name, "real"))
        return v.kind == AF_J_BOOL ? af_jint(v.b) : v;
    if (af_jstr_is(name, "imag"))
        return whole ? af_jint(0) : af_jfloat(0);
    if (whole && af_jstr_is(name, "numerator"))
        return v.kind == AF_J_BOOL ? af_jint(v.b) : v;
    if (whole && af_jstr_is(name, "denominator"))
        return af_jint(1);
    return missing();
}

static af_jv other_field(af_jinja *j, af_jv obj, const af_jstr *name)
{
    switch ((af_jkind)obj.kind) {
    case AF_J_NS: {
        const af_jv *v = af_jdict_get(j, obj.d, (af_jv){.kind = AF_J_STR, .s = (af_jstr *)name});
        return v ? *v : missing();
    }
    case AF_J_LOOP:
        return loop_field(j, obj.loop, name);
    case AF_J_MACRO:
        return macro_field(j, obj.macro, name);
    case AF_J_BOOL:
    case AF_J_INT:
    case AF_J_FLOAT:
        return number_field(obj, name);
    case AF_J_RANGE:
        return af_jstr_is(name, "start")  ? af_jint(obj.r->start)
               : af_jstr_is(name, "stop") ? af_jint(obj.r->stop)
               : af_jstr_is(name, "step") ? af_jint(obj.r->step)
                                          : missing();
    case AF_J_TUPLE:
        if (obj.l->group && af_jstr_is(name, "grouper"))
            return obj.l->item[0];
        return obj.l->group && af_jstr_is(name, "list") ? obj.l->item[1] : missing();
    case AF_J_CYCLER:
        return af_jstr_is(name, "current") ? obj.cycle->items->item[obj.cycle->at] : missing();
    default:
        return missing();
    }
}

/* Methods that would change a list or dict: the sandbox gives something undefined instead. */
static bool is_unsafe(af_jv obj, const af_jstr *name)
{
    static const char *const list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                       "sort",   "extend", "remove", NULL};
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *p = obj.kind == AF_J_LIST ? list : obj.kind == AF_J_DICT ? dict : NULL;
    for (; p && *p; p++)
        if (af_jstr_is(name, *p))
            return true;
    return false;
}

af_jv af_jattribute(af_jinja *j, af_jv obj, const af_jstr *name)
{
    if (name->n && name->p[0] == '_' && obj.kind != AF_J_NS)
        return missing();
    if (is_unsafe(obj, name))
        return af_jundef(j, "access to attribute '%s' of '%s' object is unsafe.", name->p,
                         af_jtype(obj));
    const af_jfunc *f = af_jmethod_find(obj, name);
    if (f) {
        af_jmethod *m = af_jtake(j, sizeof *m);
        if (!m)
            return missing();
        *m = (af_jmethod){.self = obj, .func = f};
        return (af_jv){.kind = AF_J_METHOD, .method = m};
    }
    return other_field(j, obj, name);
}

/* obj[key] as Python has it; missing when it raises TypeError or LookupError. */
static af_jv item(af_jinja *j, af_jv obj, af_jv key)
{
    if (obj.kind == AF_J_DICT) {
        if (key.kind == AF_J_LIST || key.kind == AF_J_DICT || key.kind == AF_J_VIEW)
            return missing(); /* cannot be hashed */
        const af_jv *v = af_jdict_get(j, obj.d, key);
        return v ? *v : missing();
    }
    if (key.kind != AF_J_INT && key.kind != AF_J_BOOL)
        return missing();
    int64_t i = key.kind == AF_J_BOOL ? key.b : key.i;
    const bool seq = obj.kind == AF_J_STR || obj.kind == AF_J_LIST || obj.kind == AF_J_TUPLE ||
                     obj.kind == AF_J_RANGE;
    const int64_t n = seq ? af_jlength(obj) : 0;
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        return missing();
    if (obj.kind == AF_J_RANGE)
        return af_jint(obj.r->start + i * obj.r->step);
    if (obj.kind != AF_J_STR)
        return obj.l->item[i];
    af_jstep(j, obj.s->cps == obj.s->n ? 0 : obj.s->n / 64);
    const uint64_t from = af_jstr_at(obj.s, (uint64_t)i);
    uint64_t to = from + 1;
    while (to < obj.s->n && ((unsigned char)obj.s->p[to] & 0xc0) == 0x80)
        to++;
    return af_jmark(af_jstr_part(j, obj.s, from, to), obj.markup);
}

af_jv af_jgetattr(af_jinja *j, af_jv obj, const af_jstr *name)
{
    if (obj.kind == AF_J_UNDEF)
        return undefined_has_none(j, obj);
    af_jv v = af_jattribute(j, obj, name);
    if (v.kind == AF_J_MISSING)
        v = item(j, obj, (af_jv){.kind = AF_J_STR, .s = (af_jstr *)name});
    return v.kind == AF_J_MISSING ? no_attribute(j, obj, name) : v;
}

af_jv af_jgetitem(af_jinja *j, af_jv obj, af_jv key)
{
    if (obj.kind == AF_J_UNDEF)
        return undefined_has_none(j, obj);
    if (key.kind == AF_J_SLICE)
        return af_jslice_of(j, obj, key.part);
    af_jv v = item(j, obj, key);
    if (v.kind == AF_J_MISSING && key.kind == AF_J_STR)
        v = af_jattribute(j, obj, key.s);
    if (v.kind != AF_J_MISSING)
        return v;
    if (key.kind == AF_J_STR)
        return no_attribute(j, obj, key.s);
    af_buf b = {.limit = 4096};
    af_jrepr(j, &b, key);
    v = af_jundef(j, "'%s object' has no element %s", af_jtype(obj), b.data ? b.data : "");
    af_buf_clear(&b);
    return v;
}

static int64_t slice_index(af_jinja *j, af_jv v, int64_t absent)
{
    if (v.kind == AF_J_NONE)
        return absent;
    if (v.kind != AF_J_INT && v.kind != AF_J_BOOL) {
        af_jfail(j, "slice indices must be integers or None, not '%s'", af_jtype(v));
        return 0;
    }
    return v.kind == AF_J_BOOL ? v.b : v.i;
}

static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
    i += i < 0 ? n : 0;
    return i < low ? low : i > high ? high : i;
}

static af_jv slice_str(af_jinja *j, af_jv obj, int64_t from, int64_t step, int64_t count)
{
    const af_jstr *s = obj.s;
    af_jstep(j, s->n / 64);
    if (step == 1) {
        const uint64_t a = af_jstr_at(s, (uint64_t)from);
        const uint64_t b = af_jstr_at(s, (uint64_t)(from + count));
        return af_jmark(af_jstr_part(j, s, a, b), obj.markup);
    }
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    if (s->cps == s->n) {
        for (int64_t k = 0; k < count; k++)
            af_buf_char(&b, s->p[from + k * step]);
    } else {
        const af_jlist *chars = af_jitems(j, obj);
        for (int64_t k = 0; k < count && !j->failed; k++)
            af_jprint(j, &b, chars->item[from + k * step]);
    }
    return af_jmark(af_jstr_take(j, &b), obj.markup);
}

static af_jv slice_range(af_jinja *j, const af_jrange *r, int64_t from, int64_t stop, int64_t step,
                         int64_t count)
{
    af_jrange *out = af_jtake(j, sizeof *out);
    if (!out)
        return af_jnone();
    *out = (af_jrange){.start = r->start + from * r->step,
                       .stop = r->start + stop * r->step,
                       .step = r->step * step,
                       .n = count};
    return (af_jv){.kind = AF_J_RANGE, .r = out};
}

af_jv af_jslice_of(af_jinja *j, af_jv obj, const af_jv part[3])
{
    if (obj.kind == AF_J_UNDEF)
        return undefined_has_none(j, obj);
    if (obj.kind != AF_J_STR && obj.kind != AF_J_LIST && obj.kind != AF_J_TUPLE &&
        obj.kind != AF_J_RANGE)
        return af_jfail(j, "'%s' object cannot be sliced", af_jtype(obj));
    const int64_t n = af_jlength(obj), step = slice_index(j, part[2], 1);
    if (step == 0)
        return af_jfail(j, "slice step cannot be zero");
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    int64_t from = part[0].kind == AF_J_NONE ? (step < 0 ? high : low)
                                             : clamp(slice_index(j, part[0], 0), n, low, high);
    int64_t to = part[1].kind == AF_J_NONE ? (step < 0 ? low : high)
                                           : clamp(slice_index(j, part[1], 0), n, low, high);
    int64_t count = 0;
    if (step > 0 && from < to)
        count = (to - from - 1) / step + 1;
    else if (step < 0 && to < from)
        count = step == INT64_MIN ? 1 : (from - to - 1) / -step + 1;
    if (j->failed)
        return af_jnone();
    if (count == 0)
        from = 0;
    if (obj.kind == AF_J_STR)
        return slice_str(j, obj, from, count ? step : 1, count);
    if (obj.kind == AF_J_RANGE)
        return slice_range(j, obj.r, from, count ? to : from, count > 1 ? step : 1, count);
    af_jlist *l = af_jlist_new(j, count);
    for (int64_t k = 0; k < count && !j->failed; k++)
        af_jlist_add(j, l, obj.l->item[count > 1 ? from + k * step : from]);
    return obj.kind == AF_J_LIST ? af_jlist_v(l) : af_jtuple_v(l);
}
