/* jinja_eval.c - expressions at run time, and calls of whatever can be called. */
#include "format/jinja/jinja.h"

static af_jv eval_list(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_jlist *l = af_jlist_new(j, n->list.n);
    for (int i = 0; i < n->list.n && !j->failed; i++)
        af_jlist_add(j, l, af_jeval(j, n->list.item[i], s));
    return n->op == AF_N_LIST ? af_jlist_v(l) : af_jtuple_v(l);
}

static af_jv eval_dict(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_jdict *d = af_jdict_new(j, n->list.n);
    for (int i = 0; i < n->list.n && !j->failed; i++) {
        const af_jv key = af_jeval(j, n->list.item[i], s);
        const af_jv val = j->failed ? key : af_jeval(j, n->list2.item[i], s);
        if (!j->failed)
            af_jdict_set(j, d, key, val);
    }
    return af_jdict_v(d);
}

static af_jv eval_slice(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_jv *part = af_jtake(j, 3 * sizeof *part);
    if (!part)
        return af_jnone();
    part[0] = n->a ? af_jeval(j, n->a, s) : af_jnone();
    part[1] = n->b ? af_jeval(j, n->b, s) : af_jnone();
    part[2] = n->c ? af_jeval(j, n->c, s) : af_jnone();
    return (af_jv){.kind = AF_J_SLICE, .part = part};
}

static bool compare(af_jinja *j, int cmp, af_jv a, af_jv b)
{
    switch (cmp) {
    case AF_CMP_EQ:
        return af_jequal(j, a, b);
    case AF_CMP_NE:
        return !af_jequal(j, a, b);
    case AF_CMP_IN:
        return af_jcontains(j, a, b);
    case AF_CMP_NOTIN:
        return !af_jcontains(j, a, b);
    default:
        return af_jorder(j, cmp, a, b);
    }
}

static af_jv eval_compare(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_jv left = af_jeval(j, n->a, s);
    bool holds = true;
    for (int i = 0; i < n->list.n && holds && !j->failed; i++) {
        const af_jnode *o = n->list.item[i];
        const af_jv right = af_jeval(j, o->a, s);
        if (j->failed)
            break;
        j->line = n->line;
        holds = compare(j, o->cmp, left, right);
        left = right;
    }
    return af_jbool(holds);
}

static af_jv eval_concat(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int i = 0; i < n->list.n && !j->failed; i++) {
        const af_jv v = af_jeval(j, n->list.item[i], s);
        if (!j->failed)
            af_jprint(j, &b, v);
    }
    return af_jstr_take(j, &b);
}

static void add_dynamic(af_jinja *j, const af_jcallargs *src, af_jscope *s, af_jargs *out)
{
    if (src->dyn_pos) {
        const af_jlist *l = af_jitems(j, af_jeval(j, src->dyn_pos, s));
        if (out->n + l->n > AF_JINJA_ARGS_MAX)
            af_jfail(j, "a call has more than %d arguments", AF_JINJA_ARGS_MAX);
        for (int64_t i = 0; i < l->n && !j->failed; i++)
            out->pos[out->n++] = l->item[i];
    }
    if (!src->dyn_kw || j->failed)
        return;
    const af_jv v = af_jeval(j, src->dyn_kw, s);
    if (!j->failed && v.kind != AF_J_DICT)
        af_jfail(j, "argument after ** must be a mapping, not %s", af_jtype(v));
    if (!j->failed && out->nkw + v.d->n > AF_JINJA_ARGS_MAX)
        af_jfail(j, "a call has more than %d arguments", AF_JINJA_ARGS_MAX);
    for (int64_t i = 0; !j->failed && i < v.d->n; i++) {
        if (v.d->pair[i].key.kind != AF_J_STR)
            af_jfail(j, "keywords must be strings");
        else
            out->kw[out->nkw++] = (af_jkw){v.d->pair[i].key.s, v.d->pair[i].val};
    }
}

void af_jeval_args(af_jinja *j, const af_jcallargs *src, af_jscope *s, af_jargs *out)
{
    out->n = out->nkw = 0;
    if (!src)
        return;
    for (int i = 0; i < src->pos.n && !j->failed; i++)
        out->pos[out->n++] = af_jeval(j, src->pos.item[i], s);
    for (int i = 0; i < src->kw.n && !j->failed; i++)
        out->kw[out->nkw++] = (af_jkw){src->kwname[i], af_jeval(j, src->kw.item[i], s)};
    if (!j->failed)
        add_dynamic(j, src, s, out);
}

/* The parameter list "a,b?,c?": the next name, its length, and whether it may be absent. */
static const char *next_param(const char *p, int *n, bool *optional)
{
    *n = (int)strcspn(p, ",");
    *optional = *n > 0 && p[*n - 1] == '?';
    return p + *n + (p[*n] == ',');
}

static int param_index(const char *params, const af_jstr *name)
{
    int index = 0;
    for (const char *p = params; *p; index++) {
        int n;
        bool optional;
        const char *next = next_param(p, &n, &optional);
        n -= optional;
        if ((uint64_t)n == name->n && !memcmp(p, name->p, name->n))
            return index;
        p = next;
    }
    return -1;
}

af_jv af_jfunc_run(af_jinja *j, const af_jfunc *f, const char *kind, af_jv self,
                   const af_jargs *args)
{
    const bool positional = f->params && *f->params == '/';
    const char *params = positional ? f->params + 1 : f->params;
    af_jv bound[8];
    int count = 0;
    if (positional && args->nkw)
        return af_jfail(j, "%s '%s' takes no keyword arguments", kind, f->name);
    for (const char *p = params; p && *p; count++) {
        int n;
        bool optional;
        p = next_param(p, &n, &optional);
        bound[count] = (af_jv){.kind = AF_J_MISSING};
    }
    if (params && args->n > count)
        return af_jfail(j, "%s '%s' takes at most %d arguments, %d were given", kind, f->name,
                        count, args->n);
    for (int i = 0; params && i < args->n; i++)
        bound[i] = args->pos[i];
    for (int i = 0; params && i < args->nkw; i++) {
        const int k = param_index(params, args->kw[i].name);
        if (k < 0 || bound[k].kind != AF_J_MISSING)
            return af_jfail(j, "%s '%s' got an unexpected or repeated argument '%s'", kind, f->name,
                            args->kw[i].name->p);
        bound[k] = args->kw[i].val;
    }
    int at = 0;
    for (const char *p = params; p && *p; at++) {
        int n;
        bool optional;
        const char *name = p;
        p = next_param(p, &n, &optional);
        if (!optional && bound[at].kind == AF_J_MISSING)
            return af_jfail(j, "%s '%s' misses the argument '%.*s'", kind, f->name, n, name);
    }
    j->aux = f->aux;
    return f->call(j, self, bound, args);
}

af_jv af_jinvoke(af_jinja *j, af_jv callee, const af_jargs *args)
{
    switch ((af_jkind)callee.kind) {
    case AF_J_MACRO:
        return af_jmacro_call(j, callee.macro, args);
    case AF_J_FUNC:
        return af_jfunc_run(j, callee.func, "function", af_jnone(), args);
    case AF_J_METHOD:
        return af_jfunc_run(j, callee.method->func, "method", callee.method->self, args);
    case AF_J_LOOP:
        return af_jloop_call(j, callee.loop, args);
    case AF_J_JOINER: { /* nothing the first time, the separator from then on */
        const bool first = callee.cycle->at++ == 0;
        return first ? af_jstr_lit(j, "") : callee.cycle->items->item[0];
    }
    case AF_J_UNDEF:
        return af_jfail(j, "%s", callee.s ? callee.s->p : "a value is undefined");
    default:
        return af_jfail(j, "'%s' object is not callable", af_jtype(callee));
    }
}

/* Not inlined: the arguments are large, and af_jeval is what recursion is made of. */
__attribute__((noinline)) static af_jv eval_call(af_jinja *j, const af_jnode *n, af_jscope *s,
                                                 af_jv callee)
{
    af_jargs args;
    af_jeval_args(j, n->args, s, &args);
    j->line = n->line;
    return j->failed ? af_jnone() : af_jinvoke(j, callee, &args);
}

__attribute__((noinline)) static af_jv eval_row(af_jinja *j, const af_jnode *n, af_jscope *s,
                                                af_jv self)
{
    const char *kind = n->op == AF_N_TEST ? "test" : "filter";
    af_jargs args;
    af_jeval_args(j, n->args, s, &args);
    j->line = n->line;
    if (j->failed)
        return af_jnone();
    if (!n->func)
        return af_jfail(j, "No %s named '%s' found.", kind, n->name->p);
    return af_jfunc_run(j, n->func, kind, self, &args);
}

static af_jv eval_logic(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_jv v = af_jeval(j, n->op == AF_N_COND ? n->b : n->a, s);
    if (j->failed)
        return v;
    const bool truth = af_jtruth(&v);
    switch (n->op) {
    case AF_N_NOT:
        return af_jbool(!truth);
    case AF_N_OR:
        return truth ? v : af_jeval(j, n->b, s);
    case AF_N_AND:
        return truth ? af_jeval(j, n->b, s) : v;
    default:
        if (truth)
            return af_jeval(j, n->a, s);
        return n->c ? af_jeval(j, n->c, s)
                    : af_jundef(j,
                                "the inline if-expression on line %d evaluated to false and no "
                                "else section was defined.",
                                n->line);
    }
}

static af_jv eval_unary(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    const af_jv v = af_jeval(j, n->a, s);
    if (j->failed)
        return v;
    j->line = n->line;
    switch (n->op) {
    case AF_N_GETATTR:
        return af_jgetattr(j, v, n->name);
    case AF_N_CALL:
        return eval_call(j, n, s, v);
    case AF_N_FILTER:
    case AF_N_TEST:
        return eval_row(j, n, s, v);
    case AF_N_NEG:
        return af_jnegate(j, v);
    default: /* +x is x for numbers and an error for the rest, as -x */
        return af_jis_number(v) ? (v.kind == AF_J_BOOL ? af_jint(v.b) : v) : af_jnegate(j, v);
    }
}

/* Jinja folds expressions of literals before it runs anything. */
static bool is_constant(const af_jnode *n)
{
    const bool leaf = n->op == AF_N_CONST;
    const bool pure = leaf || (n->op >= AF_N_LIST && n->op != AF_N_CALL);
    if (!pure || (n->a && !is_constant(n->a)) || (n->b && !is_constant(n->b)) ||
        (n->c && !is_constant(n->c)))
        return false;
    for (int i = 0; i < n->list.n; i++)
        if (!is_constant(n->list.item[i]))
            return false;
    for (int i = 0; i < n->list2.n; i++)
        if (!is_constant(n->list2.item[i]))
            return false;
    return !n->args || n->args->pos.n + n->args->kw.n == 0;
}

/* A literal that cannot be sliced gives something undefined when folded, not an error. */
static bool folds_to_undefined(af_jv a, af_jv b, const af_jnode *n)
{
    return n->op == AF_N_GETITEM && b.kind == AF_J_SLICE && a.kind != AF_J_STR &&
           a.kind != AF_J_LIST && a.kind != AF_J_TUPLE && a.kind != AF_J_RANGE &&
           a.kind != AF_J_UNDEF && is_constant(n->a);
}

static af_jv eval_binary(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    const af_jv a = af_jeval(j, n->a, s);
    if (j->failed)
        return a;
    const af_jv b = af_jeval(j, n->b, s);
    if (j->failed)
        return b;
    j->line = n->line;
    if (folds_to_undefined(a, b, n))
        return af_jundef(j, "'%s object' has no such element", af_jtype(a));
    return n->op == AF_N_GETITEM ? af_jgetitem(j, a, b) : af_jbinary(j, (af_jop)n->op, a, b);
}

static af_jv eval_one(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    switch ((af_jop)n->op) {
    case AF_N_CONST:
        return n->value;
    case AF_N_NAME:
        return af_jlookup(j, s, n->name);
    case AF_N_LIST:
    case AF_N_TUPLE:
        return eval_list(j, n, s);
    case AF_N_DICT:
        return eval_dict(j, n, s);
    case AF_N_SLICE:
        return eval_slice(j, n, s);
    case AF_N_COMPARE:
        return eval_compare(j, n, s);
    case AF_N_CONCAT:
        return eval_concat(j, n, s);
    case AF_N_COND:
    case AF_N_OR:
    case AF_N_AND:
    case AF_N_NOT:
        return eval_logic(j, n, s);
    case AF_N_GETATTR:
    case AF_N_CALL:
    case AF_N_FILTER:
    case AF_N_TEST:
    case AF_N_NEG:
    case AF_N_POS:
        return eval_unary(j, n, s);
    default:
        return eval_binary(j, n, s);
    }
}

af_jv af_jeval(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    if (!af_jenter(j))
        return af_jnone();
    j->line = n->line;
    const af_jv v = eval_one(j, n, s);
    af_jleave(j);
    return v;
}
