/* jinja_exec.c - statements at run time: output, loops, macros, assignments and their scopes. */
#include "format/jinja/jinja_ast.h"

typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } flow;

static flow exec(af_jinja *j, const af_jstmts *body, af_jscope *s);

static void scope_begin(af_jinja *j, af_jscope *s, const af_jstmt *of)
{
    s->n = 0;
    for (int i = 0; i < of->nundef && !j->failed; i++)
        af_jscope_set(j, s, of->undef[i], af_jmissing());
}

static af_jscope *scope_new(af_jinja *j, af_jscope *up, const af_jstmt *of)
{
    af_jscope *s = af_jtake(j, sizeof *s);
    if (!s)
        return up;
    s->up = up;
    scope_begin(j, s, of);
    return s;
}

static void print(af_jinja *j, af_jval v)
{
    if (j->failed)
        return;
    if (v.kind == AF_JKIND_STR)
        af_jstep(j, v.s->n / 64);
    af_jprint(j, j->out, v);
    if (j->out->bad)
        af_jfail(j, "the template writes more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
}

/* Runs a body and returns what it wrote. */
static af_jval capture(af_jinja *j, const af_jstmts *body, af_jscope *s, flow *out)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_buf *saved = j->out;
    j->out = &b;
    *out = exec(j, body, s);
    j->out = saved;
    return af_jstr_take(j, &b);
}

static void assign(af_jinja *j, const af_jexpr *target, af_jscope *s, af_jval v)
{
    if (j->failed)
        return;
    if (target->kind == AF_JEXPR_NAME) {
        af_jscope_set(j, s, target->name.name, v);
    } else if (target->kind == AF_JEXPR_TUPLE) {
        if (!af_jiterable(v))
            af_jfail(j, "cannot unpack non-iterable %s object", af_jtype(v));
        const af_jlist *l = af_jitems(j, v);
        if (!j->failed && l->n != target->items.n)
            af_jfail(j, "%s values to unpack (expected %d, got %" PRId64 ")",
                     l->n < target->items.n ? "not enough" : "too many", target->items.n, l->n);
        for (int i = 0; i < target->items.n && !j->failed; i++)
            assign(j, target->items.item[i], s, l->item[i]);
    } else {
        const af_jval ns = af_jlookup(j, s, target->name.name);
        if (ns.kind != AF_JKIND_NAMESPACE)
            af_jfail(j, "cannot assign attribute on non-namespace object '%s'",
                     target->name.name->p);
        else if (target->name.attr->p[0] == '_')
            af_jfail(j, "a namespace cannot store '%s': it begins with an underscore",
                     target->name.attr->p);
        else
            af_jdict_set(j, ns.d, af_jstr_v(target->name.attr), v);
    }
}

/* The items that pass the loop's own condition. */
static af_jlist *select_items(af_jinja *j, const af_jstmt *n, af_jscope *s, af_jlist *all)
{
    if (!n->loop.test)
        return all;
    af_jlist *passed = af_jlist_new(j, 0);
    for (int64_t i = 0; i < all->n && !j->failed; i++) {
        af_jscope *inner = af_jtake(j, sizeof *inner);
        if (!inner)
            break;
        inner->up = s;
        assign(j, n->loop.target, inner, all->item[i]);
        const af_jval v = j->failed ? af_jnone() : af_jeval(j, n->loop.test, inner);
        if (!j->failed && af_jtruth(&v))
            af_jlist_add(j, passed, all->item[i]);
    }
    return passed;
}

static void run_loop(af_jinja *j, const af_jstmt *n, af_jscope *s, af_jval over, int depth)
{
    af_jlist *items = af_jitems(j, over);
    items = j->failed ? items : select_items(j, n, s, items);
    af_jloop *loop = af_jtake(j, sizeof *loop);
    if (!loop)
        return;
    *loop = (af_jloop){.items = items, .depth = depth, .closure = s};
    loop->of = n->loop.recursive ? n : NULL;
    if (items->n == 0) {
        exec(j, &n->loop.otherwise, s);
        return;
    }
    af_jscope *inner = NULL;
    for (loop->at = 0; loop->at < items->n && af_jstep(j, 1); loop->at++) {
        if (inner && !n->loop.captured) /* nothing kept it: one scope serves all iterations */
            scope_begin(j, inner, n);
        else
            inner = scope_new(j, s, n);
        assign(j, n->loop.target, inner, items->item[loop->at]);
        af_jscope_set(j, inner, j->t->loop, (af_jval){.kind = AF_JKIND_LOOP, .loop = loop});
        if (j->failed || exec(j, &n->body, inner) == FLOW_BREAK)
            break;
    }
}

static af_jval *bound(af_jscope *s, const af_jstr *name)
{
    for (int i = 0; i < s->n; i++)
        if (s->bind[i].name->n == name->n && !memcmp(s->bind[i].name->p, name->p, name->n))
            return &s->bind[i].val;
    return NULL;
}

/* Where a keyword argument goes: a parameter, the caller, or kwargs. */
static void bind_keyword(af_jinja *j, const af_jstmt *n, af_jscope *s, const af_jkeyword *kw,
                         af_jdict *rest)
{
    const af_jexprs *param = &n->macro.param;
    for (int i = 0; i < param->n; i++) {
        const af_jstr *name = param->item[i]->name.name;
        if (name->n != kw->name->n || memcmp(name->p, kw->name->p, name->n) != 0)
            continue;
        af_jval *slot = bound(s, name);
        if (slot->kind != AF_JKIND_MISSING)
            af_jfail(j, "macro '%s' got multiple values for argument '%s'", n->macro.name->p,
                     name->p);
        *slot = kw->val;
        return;
    }
    if (af_jstr_is(kw->name, "caller") && (n->macro.uses & AF_JUSES_CALLER))
        af_jscope_set(j, s, j->t->caller, kw->val);
    else if (n->macro.uses & AF_JUSES_KWARGS)
        af_jdict_set(j, rest, af_jstr_v(kw->name), kw->val);
    else
        af_jfail(j, "macro '%s' takes no keyword argument '%s'", n->macro.name->p, kw->name->p);
}

static void bind_defaults(af_jinja *j, const af_jstmt *n, af_jscope *s)
{
    const int first = n->macro.param.n - n->macro.defaults.n;
    for (int i = 0; i < n->macro.param.n && !j->failed; i++) {
        const af_jstr *name = n->macro.param.item[i]->name.name;
        if (bound(s, name)->kind == AF_JKIND_MISSING)
            af_jscope_set(j, s, name,
                          i >= first ? af_jeval(j, n->macro.defaults.item[i - first], s)
                                     : af_jundef(j, "parameter '%s' was not provided", name->p));
    }
}

static void bind_macro(af_jinja *j, const af_jstmt *n, af_jscope *s, const af_jargs *args)
{
    const af_jexprs *param = &n->macro.param;
    for (int i = 0; i < param->n; i++) /* not passed: hides outer names from the defaults */
        af_jscope_set(j, s, param->item[i]->name.name, i < args->n ? args->pos[i] : af_jmissing());
    if (args->n > param->n && !(n->macro.uses & AF_JUSES_VARARGS))
        af_jfail(j, "macro '%s' takes not more than %d argument(s)", n->macro.name->p, param->n);
    af_jdict *rest = af_jdict_new(j, 0);
    if ((n->macro.uses & AF_JUSES_CALLER) && !bound(s, j->t->caller))
        af_jscope_set(j, s, j->t->caller, af_jundef(j, "No caller defined"));
    for (int i = 0; i < args->nkw && !j->failed; i++)
        bind_keyword(j, n, s, &args->kw[i], rest);
    if ((n->macro.uses & AF_JUSES_VARARGS) && !bound(s, j->t->varargs))
        af_jscope_set(j, s, j->t->varargs, af_jtuple_v(af_jargs_list(j, args, param->n)));
    if ((n->macro.uses & AF_JUSES_KWARGS) && !bound(s, j->t->kwargs))
        af_jscope_set(j, s, j->t->kwargs, af_jdict_v(rest));
    bind_defaults(j, n, s);
}

static af_jval call_macro(af_jinja *j, const af_jmacro *m, const af_jargs *args)
{
    flow out;
    af_jscope *s = scope_new(j, m->closure, m->of);
    if (!j->failed)
        bind_macro(j, m->of, s, args);
    return j->failed ? af_jnone() : capture(j, &m->of->body, s, &out);
}

/* loop(items) in a recursive loop. */
static af_jval call_loop(af_jinja *j, const af_jloop *l, const af_jargs *args)
{
    if (!l->of)
        return af_jfail(j, "The loop must have the 'recursive' marker to be called recursively.");
    if (args->n != 1 || args->nkw)
        return af_jfail(j, "loop() takes one argument, got %d", args->n + args->nkw);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_buf *saved = j->out;
    j->out = &b;
    run_loop(j, l->of, l->closure, args->pos[0], l->depth + 1);
    j->out = saved;
    return af_jstr_take(j, &b);
}

static af_jval call_body(af_jinja *j, af_jval callee, const af_jargs *args)
{
    if (j->calls >= AF_JINJA_CALL_MAX)
        return af_jfail(j, "maximum recursion depth of %d exceeded", AF_JINJA_CALL_MAX);
    j->calls++;
    const af_jval v = callee.kind == AF_JKIND_LOOP ? call_loop(j, callee.loop, args)
                                                   : call_macro(j, callee.macro, args);
    j->calls--;
    return v;
}

static af_jval macro_value(af_jinja *j, const af_jstmt *n, af_jscope *s)
{
    af_jmacro *m = af_jtake(j, sizeof *m);
    if (!m)
        return af_jnone();
    *m = (af_jmacro){.of = n, .closure = s};
    return (af_jval){.kind = AF_JKIND_MACRO, .macro = m};
}

static void call_block(af_jinja *j, const af_jstmt *n, af_jscope *s)
{
    const af_jexpr *call = n->macro.call;
    const af_jval callee = af_jeval(j, call->call.operand, s);
    af_jargs args;
    if (!j->failed)
        af_jeval_args(j, call->call.args, s, &args);
    j->line = n->line;
    if (j->failed)
        return;
    if (args.nkw == AF_JINJA_ARGS_MAX) {
        af_jfail(j, "a call has more than %d arguments", AF_JINJA_ARGS_MAX);
        return;
    }
    args.kw[args.nkw++] = (af_jkeyword){j->t->caller, macro_value(j, n, s)};
    print(j, af_jinvoke(j, callee, &args));
}

static flow exec_if(af_jinja *j, const af_jstmt *n, af_jscope *s)
{
    for (; n; n = n->cond.otherwise) {
        const af_jval v = n->cond.test ? af_jeval(j, n->cond.test, s) : af_jbool(true);
        if (j->failed)
            break;
        if (af_jtruth(&v))
            return exec(j, &n->body, s);
    }
    return FLOW_NEXT;
}

static void generation(af_jinja *j, const af_jstmt *n, af_jscope *s)
{
    flow out;
    const uint64_t begin = j->root->len;
    const af_jval v = capture(j, &n->body, scope_new(j, s, n), &out);
    if (j->failed)
        return;
    const af_span span = {.begin = begin, .end = begin + v.s->n};
    af_buf_add(&j->spans, &span, sizeof span);
    print(j, v);
}

static flow exec_with(af_jinja *j, const af_jstmt *n, af_jscope *s)
{
    af_jscope *inner = scope_new(j, s, n);
    for (int i = 0; i < n->with.value.n && !j->failed; i++)
        assign(j, n->with.target.item[i], inner, af_jeval(j, n->with.value.item[i], s));
    return j->failed ? FLOW_NEXT : exec(j, &n->body, inner);
}

/* {% set x %}...{% endset %} and {% filter f %}...{% endfilter %} */
static flow exec_captured(af_jinja *j, const af_jstmt *n, af_jscope *s)
{
    flow out;
    af_jscope *inner = scope_new(j, s, n);
    af_jval v = capture(j, &n->body, inner, &out);
    if (j->failed || out != FLOW_NEXT)
        return out;
    v = af_japply_filters(j, n->set.value, inner, v);
    if (n->kind == AF_JSTMT_SETBLOCK)
        assign(j, n->set.target, s, v);
    else
        print(j, v);
    return FLOW_NEXT;
}

static flow exec_one(af_jinja *j, const af_jstmt *n, af_jscope *s)
{
    switch ((af_jstmt_kind)n->kind) {
    case AF_JSTMT_TEXT:
        print(j, af_jstr_v(n->text));
        break;
    case AF_JSTMT_PRINT:
        for (int i = 0; i < n->print.n && !j->failed; i++)
            print(j, af_jeval(j, n->print.item[i], s));
        break;
    case AF_JSTMT_IF:
        return exec_if(j, n, s);
    case AF_JSTMT_SET:
        assign(j, n->set.target, s, af_jeval(j, n->set.value, s));
        break;
    case AF_JSTMT_BREAK:
        return FLOW_BREAK;
    case AF_JSTMT_CONTINUE:
        return FLOW_CONTINUE;
    case AF_JSTMT_FOR: {
        const af_jval over = af_jeval(j, n->loop.over, s);
        if (!j->failed)
            run_loop(j, n, s, over, 1);
        break;
    }
    case AF_JSTMT_SETBLOCK:
    case AF_JSTMT_FILTERBLOCK:
        return exec_captured(j, n, s);
    case AF_JSTMT_MACRO:
        af_jscope_set(j, s, n->macro.name, macro_value(j, n, s));
        break;
    case AF_JSTMT_CALLBLOCK:
        call_block(j, n, s);
        break;
    case AF_JSTMT_GENERATION:
        generation(j, n, s);
        break;
    case AF_JSTMT_WITH:
        return exec_with(j, n, s);
    case AF_JSTMT_BLOCK:
        while (s->up) /* sees the names of the template only */
            s = s->up;
        exec(j, &n->body, scope_new(j, s, n));
        break;
    case AF_JSTMT_SCOPE:
        return exec(j, &n->body, scope_new(j, s, n));
    }
    return FLOW_NEXT;
}

static flow exec(af_jinja *j, const af_jstmts *body, af_jscope *s)
{
    if (!body->first || !af_jenter(j))
        return FLOW_NEXT;
    flow out = FLOW_NEXT;
    for (const af_jstmt *n = body->first; n && out == FLOW_NEXT && af_jstep(j, 1); n = n->next) {
        j->line = n->line;
        out = exec_one(j, n, s);
    }
    af_jleave(j);
    return out;
}

void af_jrun(af_jinja *j)
{
    j->find = af_jtable_find;
    j->run = af_jrun_func;
    j->call_body = call_body;
    j->out = j->root;
    j->line = 1;
    af_jscope *s = scope_new(j, NULL, j->t->root);
    if (!j->failed)
        exec(j, &j->t->root->body, s);
}
