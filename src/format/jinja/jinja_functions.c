/* jinja_functions.c - tests ("is ..."), global functions, and the lookup of every table. */
#include "format/jinja/jinja.h"

#include "format/text/python_text.h"

static af_jval t_kind(const af_jcall *c) { return af_jbool(c->self.kind == c->func->aux); }
static af_jval t_defined(const af_jcall *c) { return af_jbool(c->self.kind != AF_JKIND_UNDEF); }
static af_jval t_number(const af_jcall *c) { return af_jbool(af_jis_number(c->self)); }
static af_jval t_iterable(const af_jcall *c) { return af_jbool(af_jiterable(c->self)); }
static af_jval t_same(const af_jcall *c) { return af_jbool(af_jsame(c->self, c->arg[0])); }
static af_jval t_case(const af_jcall *c)
{
    const af_jstr *s = af_jtostr(c->j, c->self).s;
    return af_jbool(af_py_is_all(s->p, s->n, (char)c->func->aux));
}

static af_jval t_bool(const af_jcall *c)
{
    return af_jbool(c->self.kind == AF_JKIND_BOOL && c->self.b == (c->func->aux == 1));
}

/* odd, even, divisibleby */
static af_jval t_remainder(const af_jcall *c)
{
    const int by = c->func->aux; /* -1: the argument decides */
    const af_jval r = af_jbinary(c->j, '%', c->self, by < 0 ? c->arg[0] : af_jint(2));
    return af_jbool(!c->j->failed && af_jequal(c->j, r, af_jint(AF_MAX(by, 0))));
}

/* Has a length and items by subscript; Jinja finds both in an undefined value too. */
static af_jval t_sequence(const af_jcall *c)
{
    const af_jval v = c->self;
    return af_jbool(af_jiterable(v) && v.kind != AF_JKIND_VIEW && v.kind != AF_JKIND_ITER);
}

static af_jval t_callable(const af_jcall *c)
{
    const uint8_t k = c->self.kind;
    return af_jbool((k >= AF_JKIND_LOOP && k <= AF_JKIND_METHOD) || k == AF_JKIND_JOINER ||
                    k == AF_JKIND_UNDEF);
}

static af_jval t_escaped(const af_jcall *c)
{
    return af_jbool(c->self.kind == AF_JKIND_STR && c->self.markup);
}

/* Whether a filter or test of that name exists. */
static af_jval t_exists(const af_jcall *c)
{
    return af_jbool(c->self.kind == AF_JKIND_STR &&
                    af_jtable_find((af_jtable)c->func->aux, c->self.s) != NULL);
}

static af_jval t_compare(const af_jcall *c)
{
    return af_jbool(af_jcompare(c->j, (af_jcmp)c->func->aux, c->self, c->arg[0]));
}

static const af_jfunc tests[] = {
    {"defined", "", t_defined, 0},
    {"undefined", "", t_kind, AF_JKIND_UNDEF},
    {"none", "", t_kind, AF_JKIND_NONE},
    {"boolean", "", t_kind, AF_JKIND_BOOL},
    {"integer", "", t_kind, AF_JKIND_INT},
    {"float", "", t_kind, AF_JKIND_FLOAT},
    {"string", "", t_kind, AF_JKIND_STR},
    {"mapping", "", t_kind, AF_JKIND_DICT},
    {"true", "", t_bool, 1},
    {"false", "", t_bool, 0},
    {"number", "", t_number, 0},
    {"sequence", "", t_sequence, 0},
    {"iterable", "", t_iterable, 0},
    {"callable", "", t_callable, 0},
    {"sameas", "other", t_same, 0},
    {"escaped", "", t_escaped, 0},
    {"odd", "", t_remainder, 1},
    {"even", "", t_remainder, 0},
    {"divisibleby", "num", t_remainder, -1},
    {"lower", "", t_case, 'l'},
    {"upper", "", t_case, 'u'},
    {"filter", "", t_exists, AF_JTABLE_FILTER},
    {"test", "", t_exists, AF_JTABLE_TEST},
    {"in", "seq", t_compare, AF_JCMP_IN},
    {"==|eq|equalto", "b", t_compare, AF_JCMP_EQ},
    {"!=|ne", "b", t_compare, AF_JCMP_NE},
    {">|gt|greaterthan", "b", t_compare, AF_JCMP_GT},
    {">=|ge", "b", t_compare, AF_JCMP_GE},
    {"<|lt|lessthan", "b", t_compare, AF_JCMP_LT},
    {"<=|le", "b", t_compare, AF_JCMP_LE},
    {0},
};

static af_jval f_range(const af_jcall *c)
{
    af_jinja *j = c->j;
    const bool one = c->arg[1].kind == AF_JKIND_MISSING;
    if (!af_jis_int(c->arg[0]))
        return af_jfail_type(j, c->arg[0], "range() expects integers");
    const int64_t first = af_jarg_int(c, 0, 0);
    const int64_t start = one ? 0 : first, stop = one ? first : af_jarg_int(c, 1, 0);
    const int64_t step = af_jarg_int(c, 2, 1);
    if (step == 0)
        return af_jfail(j, "range() arg 3 must not be zero");
    const uint64_t a = (uint64_t)start, b = (uint64_t)stop, s = (uint64_t)step;
    const uint64_t n = step > 0 ? (start < stop ? (b - a - 1) / s + 1 : 0)
                                : (start > stop ? (a - b - 1) / (0 - s) + 1 : 0);
    if (n > AF_JINJA_RANGE_MAX)
        return af_jfail(j, "Range too big: %" PRIu64 " items, at most %d are allowed", n,
                        AF_JINJA_RANGE_MAX);
    af_jlist *l = af_jlist_new(j, (int64_t)n);
    for (uint64_t i = 0; i < n && !j->failed; i++)
        af_jlist_add(j, l, af_jint((int64_t)(a + i * s)));
    if (j->failed || !(l->range = af_jtake(j, 3 * sizeof *l->range)))
        return af_jnone();
    memcpy(l->range, (int64_t[3]){start, stop, step}, 3 * sizeof *l->range);
    return (af_jval){.kind = AF_JKIND_RANGE, .l = l};
}

af_jdict *af_jdict_from(af_jinja *j, const af_jargs *args)
{
    af_jdict *d = af_jdict_new(j, args->nkw);
    const af_jval from = args->n ? args->pos[0] : af_jdict_v(&j->no_dict);
    const bool dict = from.kind == AF_JKIND_DICT;
    if (args->n > 1)
        af_jfail(j, "dict expected at most 1 argument, got %d", args->n);
    const af_jlist *l = dict ? NULL : af_jitems(j, from);
    for (int64_t i = 0; i < (dict ? from.d->n : l->n) && !j->failed; i++) {
        const af_jlist *pair = dict ? NULL : af_jitems(j, l->item[i]);
        if (pair && pair->n != 2)
            af_jfail(j, "element %" PRId64 " has %" PRId64 " items; a pair is required", i,
                     pair->n);
        else
            af_jdict_set(j, d, dict ? from.d->pair[i].key : pair->item[0],
                         dict ? from.d->pair[i].val : pair->item[1]);
    }
    for (int i = 0; i < args->nkw && !j->failed; i++)
        af_jdict_set(j, d, af_jstr_v(args->kw[i].name), args->kw[i].val);
    return d;
}

static af_jval f_dict(const af_jcall *c) { return af_jdict_v(af_jdict_from(c->j, c->all)); }

static af_jval f_namespace(const af_jcall *c)
{
    af_jdict *d = af_jdict_from(c->j, c->all);
    for (int64_t i = 0; i < d->n && !c->j->failed; i++) {
        const af_jval key = d->pair[i].key;
        if (key.kind == AF_JKIND_STR && key.s->n && key.s->p[0] == '_')
            af_jfail(c->j, "a namespace cannot store '%s': it begins with an underscore", key.s->p);
    }
    return (af_jval){.kind = AF_JKIND_NAMESPACE, .d = d};
}

static af_jval f_raise(const af_jcall *c)
{
    return af_jfail(c->j, "%s", af_jtostr(c->j, c->arg[0]).s->p);
}

static af_jval f_strftime(const af_jcall *c)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    const af_jstr *fmt = af_jarg_str(c, 0, NULL);
    af_jstep(c->j, fmt->n);
    af_py_strftime(&b, &c->j->now, fmt->p, fmt->n);
    return af_jstr_take(c->j, &b);
}

/* cycler(items ...) and joiner(separator) */
static af_jval f_cycle(const af_jcall *c)
{
    af_jcycle *cycle = af_jtake(c->j, sizeof *cycle);
    af_jlist *l = af_jargs_list(c->j, c->all, 0);
    if (c->func->aux == AF_JKIND_JOINER && l->n == 0)
        af_jlist_add(c->j, l, af_jstr_lit(c->j, ", "));
    if (l->n == 0 || !cycle)
        return af_jfail(c->j, "at least one item has to be provided");
    cycle->items = l;
    return (af_jval){.kind = (uint8_t)c->func->aux, .cycle = cycle};
}

static const af_jfunc globals[] = {
    {"range", "start,stop?,step?", f_range, 0}, {"dict", NULL, f_dict, 0},
    {"namespace", NULL, f_namespace, 0},        {"raise_exception", "message", f_raise, 0},
    {"strftime_now", "format", f_strftime, 0},  {"cycler", NULL, f_cycle, AF_JKIND_CYCLER},
    {"joiner", NULL, f_cycle, AF_JKIND_JOINER}, {0},
};

const af_jfunc *af_jtable_find(af_jtable table, const af_jstr *name)
{
    if (table != AF_JTABLE_FILTER)
        return af_jfunc_find(table == AF_JTABLE_TEST ? tests : globals, name);
    const af_jfunc *f = af_jfunc_find(af_jfilters, name);
    return f ? f : af_jfunc_find(af_jfilters_sequences, name);
}
