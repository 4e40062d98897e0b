/* jinja_eval.c - expressions at run time: names, operators, calls of whatever can be called. */
#include "format/jinja/jinja_ast.h"

void af_jscope_set(af_jinja *j, af_jscope *s, const af_jstr *name, af_jval v)
{
    if (!af_jstep(j, (uint64_t)s->n / 16)) /* each name is compared with those before it */
        return;
    for (int i = 0; i < s->n; i++)
        if (s->bind[i].name == name) {
            s->bind[i].val = v;
            return;
        }
    af_jbind *bind = af_jgrown(j, s->bind, s->n, &s->cap, sizeof *bind);
    if (bind) {
        s->bind = bind;
        s->bind[s->n++] = (af_jbind){.name = name, .val = v};
    }
}

af_jval af_jlookup(af_jinja *j, const af_jscope *s, const af_jstr *name)
{
    uint64_t visited = 0;
    for (; s; s = s->up) {
        visited += (uint64_t)s->n + 1;
        for (int i = 0; i < s->n; i++)
            if (s->bind[i].name == name) {
                af_jstep(j, visited / 16);
                return s->bind[i].val.kind != AF_JKIND_MISSING
                           ? s->bind[i].val
                           : af_jundef(j, "'%s' is undefined", name->p);
            }
    }
    af_jstep(j, visited / 16);
    const af_jval *v = af_jdict_get(j, j->vars, af_jstr_v(name));
    if (v)
        return *v;
    const af_jfunc *f = af_jtable_find(AF_JTABLE_GLOBAL, name);
    return f ? (af_jval){.kind = AF_JKIND_FUNC, .func = f}
             : af_jundef(j, "'%s' is undefined", name->p);
}

static bool too_many(af_jinja *j, int64_t n)
{
    if (n > AF_JINJA_ARGS_MAX)
        af_jfail(j, "a call has more than %d arguments", AF_JINJA_ARGS_MAX);
    return j->failed;
}

void af_jeval_args(af_jinja *j, const af_jcall_args *src, af_jscope *s, af_jargs *out)
{
    out->n = out->nkw = 0;
    if (!src)
        return;
    for (int i = 0; i < src->pos.n && !j->failed; i++)
        out->pos[out->n++] = af_jeval(j, src->pos.item[i], s);
    for (int i = 0; i < src->kw.n && !j->failed; i++)
        out->kw[out->nkw++] = (af_jkeyword){src->kwname[i], af_jeval(j, src->kw.item[i], s)};
    if (src->star && !j->failed) {
        const af_jlist *l = af_jitems(j, af_jeval(j, src->star, s));
        for (int64_t i = 0; !too_many(j, out->n + l->n - i) && i < l->n; i++)
            out->pos[out->n++] = l->item[i];
    }
    if (!src->star_star || j->failed)
        return;
    const af_jval v = af_jeval(j, src->star_star, s);
    if (v.kind != AF_JKIND_DICT)
        af_jfail(j, "argument after ** must be a mapping, not %s", af_jtype(v));
    for (int64_t i = 0; !j->failed && !too_many(j, out->nkw + v.d->n - i) && i < v.d->n; i++)
        if (v.d->pair[i].key.kind != AF_JKIND_STR)
            af_jfail(j, "keywords must be strings");
        else
            out->kw[out->nkw++] = (af_jkeyword){v.d->pair[i].key.s, v.d->pair[i].val};
}

/* Binds arguments to the parameters of a row ("a,b?"): by position, then by name. */
static bool bind(af_jinja *j, const af_jfunc *f, const af_jargs *args, af_jval *out)
{
    const bool positional = *f->params == '/';
    int count = 0, named = 0;
    for (const char *p = f->params + positional; *p; count++) {
        const size_t n = strcspn(p, ",?");
        const bool optional = p[n] == '?';
        out[count] = count < args->n ? args->pos[count] : af_jmissing();
        for (int k = 0; k < args->nkw && !positional; k++) {
            if (args->kw[k].name->n != n || memcmp(args->kw[k].name->p, p, n) != 0)
                continue;
            if (out[count].kind != AF_JKIND_MISSING)
                af_jfail(j, "'%s' got multiple values for argument '%.*s'", f->name, (int)n, p);
            out[count] = args->kw[k].val;
            named++;
        }
        if (!optional && out[count].kind == AF_JKIND_MISSING)
            af_jfail(j, "'%s' misses the argument '%.*s'", f->name, (int)n, p);
        p += n + optional;
        p += *p == ',';
    }
    if (args->n > count || args->nkw > named)
        af_jfail(j, "'%s' takes at most %d arguments%s%s", f->name, count,
                 args->nkw > named ? ", and none called " : "",
                 args->nkw > named ? args->kw[args->nkw - 1].name->p : "");
    return !j->failed;
}

af_jval af_jrun_func(af_jinja *j, const af_jfunc *f, af_jval self, const af_jargs *args)
{
    af_jval bound[AF_JINJA_BIND_MAX] = {0};
    if (f->params && !bind(j, f, args, bound))
        return af_jnone();
    return f->run(&(af_jcall){.j = j, .func = f, .self = self, .arg = bound, .all = args});
}

af_jval af_jinvoke(af_jinja *j, af_jval callee, const af_jargs *args)
{
    switch ((af_jkind)callee.kind) {
    case AF_JKIND_MACRO:
    case AF_JKIND_LOOP:
        return j->call_body(j, callee, args);
    case AF_JKIND_FUNC:
        return af_jrun_func(j, callee.func, af_jnone(), args);
    case AF_JKIND_METHOD:
        return af_jrun_func(j, callee.method->func, *callee.method->self, args);
    case AF_JKIND_JOINER: /* nothing the first time, the separator from then on */
        return callee.cycle->at++ ? callee.cycle->items->item[0] : af_jstr_lit(j, "");
    default:
        return af_jfail_type(j, callee, "'%s' object is not callable", af_jtype(callee));
    }
}

/* A call, filter or test whose operand is `v`. Not inlined: the arguments are large, and af_jeval
 * is what recursion is made of. */
__attribute__((noinline)) static af_jval eval_call(af_jinja *j, const af_jexpr *e, af_jscope *s,
                                                   af_jval v)
{
    af_jargs args;
    af_jeval_args(j, e->call.args, s, &args);
    j->line = e->line;
    if (j->failed)
        return af_jnone();
    if (e->kind == AF_JEXPR_CALL)
        return af_jinvoke(j, v, &args);
    if (!e->call.func)
        return af_jfail(j, "No %s named '%s' found.", e->kind == AF_JEXPR_TEST ? "test" : "filter",
                        e->call.name->p);
    return af_jrun_func(j, e->call.func, v, &args);
}

af_jval af_japply_filters(af_jinja *j, const af_jexpr *e, af_jscope *s, af_jval v)
{
    if (!e || j->failed || !af_jenter(j))
        return v;
    v = af_japply_filters(j, e->call.operand, s, v);
    if (!j->failed)
        v = eval_call(j, e, s, v);
    af_jleave(j);
    return v;
}

static af_jval eval_items(af_jinja *j, const af_jexpr *e, af_jscope *s)
{
    af_jlist *l = af_jlist_new(j, e->items.n);
    for (int i = 0; i < e->items.n && !j->failed; i++)
        af_jlist_add(j, l, af_jeval(j, e->items.item[i], s));
    return e->kind == AF_JEXPR_LIST ? af_jlist_v(l) : af_jtuple_v(l);
}

static af_jval eval_dict(af_jinja *j, const af_jexpr *e, af_jscope *s)
{
    af_jdict *d = af_jdict_new(j, e->dict.keys.n);
    for (int i = 0; i < e->dict.keys.n && !j->failed; i++) {
        const af_jval key = af_jeval(j, e->dict.keys.item[i], s);
        const af_jval val = j->failed ? key : af_jeval(j, e->dict.values.item[i], s);
        if (!j->failed)
            af_jdict_set(j, d, key, val);
    }
    return af_jdict_v(d);
}

static af_jval eval_concat(af_jinja *j, const af_jexpr *e, af_jscope *s)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int i = 0; i < e->items.n && !j->failed; i++) {
        const af_jval v = af_jeval(j, e->items.item[i], s);
        if (!j->failed)
            af_jprint(j, &b, v);
    }
    return af_jstr_take(j, &b);
}

static af_jval eval_slice(af_jinja *j, const af_jexpr *e, af_jscope *s)
{
    const af_jexpr *on = e->slice.object;
    af_jval part[3];
    const af_jval v = af_jeval(j, on, s);
    for (int i = 0; i < 3; i++)
        part[i] = e->slice.part[i] && !j->failed ? af_jeval(j, e->slice.part[i], s) : af_jnone();
    j->line = e->line;
    if (j->failed)
        return v;
    /* Jinja folds literals before it runs anything: one that cannot be sliced is undefined then */
    on = on->kind == AF_JEXPR_NEG ? on->binary.left : on;
    if (on->kind == AF_JEXPR_CONST && v.kind != AF_JKIND_STR)
        return af_jundef(j, "'%s object' has no such element", af_jtype(v));
    return af_jslice(j, v, part);
}

static af_jval eval_compare(af_jinja *j, const af_jexpr *e, af_jscope *s)
{
    af_jval left = af_jeval(j, e->compare.left, s);
    bool holds = true;
    for (; e && holds && !j->failed; e = e->compare.chain) {
        const af_jval right = af_jeval(j, e->compare.right, s);
        j->line = e->line;
        holds = !j->failed && af_jcompare(j, (af_jcmp)e->op, left, right);
        left = right;
    }
    return af_jbool(holds);
}

static af_jval eval_cond(af_jinja *j, const af_jexpr *e, af_jscope *s)
{
    const af_jval test = af_jeval(j, e->cond.test, s);
    if (j->failed)
        return test;
    const af_jexpr *taken = af_jtruth(&test) ? e->cond.then : e->cond.otherwise;
    return taken ? af_jeval(j, taken, s)
                 : af_jundef(j,
                             "the inline if-expression on line %d evaluated to false and no else "
                             "section was defined.",
                             e->line);
}

/* What has one or two operands, evaluated from left to right. */
static af_jval eval_operands(af_jinja *j, const af_jexpr *e, af_jscope *s)
{
    const af_jval a = af_jeval(j, e->binary.left, s);
    if (j->failed)
        return a;
    if (e->kind == AF_JEXPR_OR || e->kind == AF_JEXPR_AND)
        return af_jtruth(&a) == (e->kind == AF_JEXPR_OR) ? a : af_jeval(j, e->binary.right, s);
    const bool two = e->kind == AF_JEXPR_BINARY || e->kind == AF_JEXPR_ITEM;
    const af_jval b = two ? af_jeval(j, e->binary.right, s) : af_jnone();
    j->line = e->line;
    if (j->failed)
        return b;
    switch ((af_jexpr_kind)e->kind) {
    case AF_JEXPR_ATTR:
        return af_jgetattr(j, a, e->attr.name);
    case AF_JEXPR_ITEM:
        return af_jgetitem(j, a, b);
    case AF_JEXPR_NOT:
        return af_jbool(!af_jtruth(&a));
    case AF_JEXPR_NEG:
        return af_jnegate(j, a);
    case AF_JEXPR_BINARY:
        return af_jbinary(j, (char)e->op, a, b);
    default:
        return eval_call(j, e, s, a);
    }
}

static af_jval eval_one(af_jinja *j, const af_jexpr *e, af_jscope *s)
{
    switch ((af_jexpr_kind)e->kind) {
    case AF_JEXPR_CONST:
        return e->value;
    case AF_JEXPR_NAME:
        return af_jlookup(j, s, e->name.name);
    case AF_JEXPR_LIST:
    case AF_JEXPR_TUPLE:
        return eval_items(j, e, s);
    case AF_JEXPR_CONCAT:
        return eval_concat(j, e, s);
    case AF_JEXPR_DICT:
        return eval_dict(j, e, s);
    case AF_JEXPR_SLICE:
        return eval_slice(j, e, s);
    case AF_JEXPR_COMPARE:
        return eval_compare(j, e, s);
    case AF_JEXPR_COND:
        return eval_cond(j, e, s);
    default:
        return eval_operands(j, e, s);
    }
}

af_jval af_jeval(af_jinja *j, const af_jexpr *e, af_jscope *s)
{
    if (!af_jenter(j))
        return af_jnone();
    j->line = e->line;
    const af_jval v = eval_one(j, e, s);
    af_jleave(j);
    return v;
}
