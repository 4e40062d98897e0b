/* jinja_functions.c - the global functions of a template. */
#include "format/jinja/jinja.h"

static af_jv f_range(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)self;
    (void)raw;
    const bool one = a[1].kind == AF_J_MISSING;
    const int64_t start = one ? 0 : af_jneed_int(j, a[0], "range()");
    const int64_t stop = af_jneed_int(j, one ? a[0] : a[1], "range()");
    const int64_t step = a[2].kind == AF_J_MISSING ? 1 : af_jneed_int(j, a[2], "range()");
    af_jrange *r = af_jtake(j, sizeof *r);
    if (!r || j->failed)
        return af_jnone();
    if (step == 0)
        return af_jfail(j, "range() arg 3 must not be zero");
    uint64_t n = 0;
    const uint64_t width =
        step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    const uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 ? start < stop : start > stop)
        n = (width - 1) / stride + 1;
    if (n > AF_JINJA_RANGE_MAX)
        return af_jfail(j, "Range too big: %" PRIu64 " items, at most %d are allowed", n,
                        AF_JINJA_RANGE_MAX);
    *r = (af_jrange){.start = start, .stop = stop, .step = step, .n = (int64_t)n};
    return (af_jv){.kind = AF_J_RANGE, .r = r};
}

/* dict(mapping or pairs, key=value ...), for dict() and namespace(). */
static af_jdict *make_dict(af_jinja *j, const af_jargs *raw)
{
    af_jdict *d = af_jdict_new(j, raw->nkw);
    if (raw->n > 1)
        af_jfail(j, "dict expected at most 1 argument, got %d", raw->n);
    if (raw->n == 1 && raw->pos[0].kind == AF_J_DICT) {
        const af_jdict *from = raw->pos[0].d;
        for (int64_t i = 0; i < from->n && !j->failed; i++)
            af_jdict_set(j, d, from->pair[i].key, from->pair[i].val);
    } else if (raw->n == 1) {
        const af_jlist *l = af_jitems(j, raw->pos[0]);
        for (int64_t i = 0; i < l->n && !j->failed; i++) {
            const af_jlist *pair = af_jitems(j, l->item[i]);
            if (pair->n != 2)
                af_jfail(j,
                         "dictionary update sequence element #%" PRId64 " has length %" PRId64
                         "; 2 is required",
                         i, pair->n);
            else
                af_jdict_set(j, d, pair->item[0], pair->item[1]);
        }
    }
    for (int i = 0; i < raw->nkw && !j->failed; i++)
        af_jdict_set(j, d, (af_jv){.kind = AF_J_STR, .s = raw->kw[i].name}, raw->kw[i].val);
    return d;
}

static af_jv f_dict(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)self;
    (void)a;
    return af_jdict_v(make_dict(j, raw));
}

static af_jv f_namespace(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)self;
    (void)a;
    af_jdict *d = make_dict(j, raw);
    for (int64_t i = 0; i < d->n && !j->failed; i++) {
        const af_jv key = d->pair[i].key;
        if (key.kind == AF_J_STR && key.s->n && key.s->p[0] == '_')
            af_jfail(j, "a namespace cannot store '%s': it begins with an underscore", key.s->p);
    }
    return (af_jv){.kind = AF_J_NS, .d = d};
}

static af_jv f_raise(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)self;
    (void)raw;
    return af_jfail(j, "%s", af_jtostr(j, a[0]).s->p);
}

static af_jv f_strftime(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)self;
    (void)raw;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    const af_jstr *fmt = af_jneed_str(j, a[0], "strftime_now()");
    if (!j->failed)
        af_jstrftime(j, &b, &j->now, fmt);
    return af_jstr_take(j, &b);
}

static af_jv cycle_value(af_jinja *j, af_jkind kind, af_jlist *items)
{
    af_jcycle *c = af_jtake(j, sizeof *c);
    if (!c)
        return af_jnone();
    c->items = items;
    return (af_jv){.kind = (uint8_t)kind, .cycle = c};
}

static af_jv f_cycler(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)self;
    (void)a;
    if (raw->n == 0)
        return af_jfail(j, "at least one item has to be provided");
    af_jlist *l = af_jlist_new(j, raw->n);
    for (int i = 0; i < raw->n; i++)
        af_jlist_add(j, l, raw->pos[i]);
    return j->failed ? af_jnone() : cycle_value(j, AF_J_CYCLER, l);
}

static af_jv f_joiner(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)self;
    (void)raw;
    af_jlist *l = af_jlist_new(j, 1);
    af_jlist_add(j, l, a[0].kind == AF_J_MISSING ? af_jstr_lit(j, ", ") : a[0]);
    return j->failed ? af_jnone() : cycle_value(j, AF_J_JOINER, l);
}

static const af_jfunc globals[] = {
    {"range", "start,stop?,step?", f_range, 0},
    {"dict", NULL, f_dict, 0},
    {"namespace", NULL, f_namespace, 0},
    {"raise_exception", "message", f_raise, 0},
    {"strftime_now", "format", f_strftime, 0},
    {"cycler", NULL, f_cycler, 0},
    {"joiner", "sep?", f_joiner, 0},
    {0},
};

const af_jfunc *af_jglobal_find(const af_jstr *name) { return af_jtable_find(globals, name); }
