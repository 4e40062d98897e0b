/* jinja_exec.c - statements at run time: output, loops, macros, assignments and their scopes. */
#include "format/jinja/jinja.h"

/* --- scopes -------------------------------------------------------------------------------- */

static void scope_begin(af_jinja *j, af_jscope *s, const af_jnode *node)
{
    s->n = 0;
    for (int i = 0; i < node->nundef && !j->failed; i++)
        af_jscope_set(j, s, node->undef[i], (af_jv){.kind = AF_J_MISSING});
}

af_jscope *af_jscope_new(af_jinja *j, af_jscope *up, const af_jnode *node)
{
    af_jscope *s = af_jtake(j, sizeof *s);
    if (!s)
        return up;
    s->up = up;
    scope_begin(j, s, node);
    return s;
}

void af_jscope_set(af_jinja *j, af_jscope *s, const af_jstr *name, af_jv v)
{
    for (int i = 0; i < s->n; i++)
        if (s->bind[i].name == name) {
            s->bind[i].val = v;
            return;
        }
    if (s->n == s->cap) {
        const int cap = s->cap ? s->cap * 2 : 4;
        af_jbind *bind = af_jtake(j, (uint64_t)cap * sizeof *bind);
        if (!bind)
            return;
        if (s->n)
            memcpy(bind, s->bind, (size_t)s->n * sizeof *bind);
        s->bind = bind;
        s->cap = cap;
    }
    s->bind[s->n++] = (af_jbind){.name = name, .val = v};
}

af_jv af_jlookup(af_jinja *j, const af_jscope *s, const af_jstr *name)
{
    uint64_t looked = 0;
    for (; s; s = s->up) {
        looked += (uint64_t)s->n + 1;
        for (int i = 0; i < s->n; i++)
            if (s->bind[i].name == name) {
                af_jstep(j, looked / 16);
                if (s->bind[i].val.kind != AF_J_MISSING)
                    return s->bind[i].val;
                return af_jundef(j, "'%s' is undefined", name->p);
            }
    }
    af_jstep(j, looked / 16);
    const af_jv key = {.kind = AF_J_STR, .s = (af_jstr *)name};
    const af_jv *v = af_jdict_get(j, j->vars, key);
    if (v)
        return *v;
    const af_jfunc *f = af_jglobal_find(name);
    return f ? (af_jv){.kind = AF_J_FUNC, .func = f} : af_jundef(j, "'%s' is undefined", name->p);
}

/* --- output --------------------------------------------------------------------------------- */

static void check_output(af_jinja *j)
{
    if (j->out->bad)
        af_jfail(j, "the template writes more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
}

static void print(af_jinja *j, af_jv v)
{
    if (v.kind == AF_J_STR)
        af_jstep(j, v.s->n / 64);
    af_jprint(j, j->out, v);
    check_output(j);
}

/* Runs a body and gives what it wrote. */
static af_jv capture(af_jinja *j, const af_jnodes *body, af_jscope *s, af_jflow *flow)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_buf *saved = j->out;
    j->out = &b;
    *flow = af_jexec(j, body, s);
    j->out = saved;
    return af_jstr_take(j, &b);
}

/* A chain of filters whose innermost has no operand of its own: it gets `v`. */
static af_jv filtered(af_jinja *j, const af_jnode *n, af_jscope *s, af_jv v)
{
    if (!n || j->failed)
        return v;
    v = filtered(j, n->a, s, v);
    af_jargs args;
    if (!j->failed)
        af_jeval_args(j, n->args, s, &args);
    j->line = n->line;
    if (j->failed)
        return v;
    if (!n->func)
        return af_jfail(j, "No filter named '%s' found.", n->name->p);
    return af_jfunc_run(j, n->func, "filter", v, &args);
}

/* --- assignment ------------------------------------------------------------------------------- */

static void assign(af_jinja *j, const af_jnode *target, af_jscope *s, af_jv v);

static void unpack(af_jinja *j, const af_jnode *target, af_jscope *s, af_jv v)
{
    if (!af_jiterable(v)) {
        af_jfail(j, "cannot unpack non-iterable %s object", af_jtype(v));
        return;
    }
    const af_jlist *l = af_jitems(j, v);
    if (!j->failed && l->n != target->list.n)
        af_jfail(j, "%s values to unpack (expected %d, got %" PRId64 ")",
                 l->n < target->list.n ? "not enough" : "too many", target->list.n, l->n);
    for (int i = 0; i < target->list.n && !j->failed; i++)
        assign(j, target->list.item[i], s, l->item[i]);
}

static void assign(af_jinja *j, const af_jnode *target, af_jscope *s, af_jv v)
{
    if (target->op == AF_N_NAME) {
        af_jscope_set(j, s, target->name, v);
        return;
    }
    if (target->op == AF_N_TUPLE) {
        unpack(j, target, s, v);
        return;
    }
    const af_jv ns = af_jlookup(j, s, target->name);
    if (ns.kind != AF_J_NS)
        af_jfail(j, "cannot assign attribute on non-namespace object '%s'", target->name->p);
    else if (target->name2->p[0] == '_')
        af_jfail(j, "a namespace cannot store '%s': it begins with an underscore",
                 target->name2->p);
    else
        af_jdict_set(j, ns.d, (af_jv){.kind = AF_J_STR, .s = target->name2}, v);
}

/* --- loops --------------------------------------------------------------------------------------
 */

/* The items that pass the loop's own condition. */
static af_jlist *select_items(af_jinja *j, const af_jnode *n, af_jscope *s, af_jlist *all)
{
    if (!n->c)
        return all;
    af_jlist *kept = af_jlist_new(j, 0);
    for (int64_t i = 0; i < all->n && !j->failed; i++) {
        af_jscope *inner = af_jtake(j, sizeof *inner);
        if (!inner)
            break;
        inner->up = s;
        assign(j, n->a, inner, all->item[i]);
        const af_jv keep = j->failed ? af_jnone() : af_jeval(j, n->c, inner);
        if (!j->failed && af_jtruth(&keep))
            af_jlist_add(j, kept, all->item[i]);
    }
    return kept;
}

static void run_loop(af_jinja *j, const af_jnode *n, af_jscope *s, af_jv over, int depth)
{
    af_jlist *items = af_jitems(j, over);
    items = j->failed ? items : select_items(j, n, s, items);
    af_jloop *loop = af_jtake(j, sizeof *loop);
    if (!loop)
        return;
    *loop = (af_jloop){.items = items, .depth = depth, .node = n->flag ? n : NULL, .closure = s};
    if (items->n == 0) {
        af_jexec(j, &n->list2, s);
        return;
    }
    af_jscope *inner = NULL;
    for (loop->at = 0; loop->at < items->n && af_jstep(j, 1); loop->at++) {
        if (inner && !n->captured) /* nobody kept it: one scope serves all iterations */
            scope_begin(j, inner, n);
        else
            inner = af_jscope_new(j, s, n);
        assign(j, n->a, inner, items->item[loop->at]);
        af_jscope_set(j, inner, j->t->loop, (af_jv){.kind = AF_J_LOOP, .loop = loop});
        if (j->failed || af_jexec(j, &n->list, inner) == AF_FLOW_BREAK)
            break;
    }
}

/* loop(items) in a recursive loop. */
af_jv af_jloop_call(af_jinja *j, const af_jloop *l, const af_jargs *args)
{
    if (!l->node)
        return af_jfail(j, "The loop must have the 'recursive' marker to be called recursively.");
    if (args->n != 1 || args->nkw)
        return af_jfail(j, "loop() takes one argument, %d were given", args->n + args->nkw);
    if (++j->calls > AF_JINJA_CALL_MAX) {
        j->calls--;
        return af_jfail(j, "maximum recursion depth of %d exceeded", AF_JINJA_CALL_MAX);
    }
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_buf *saved = j->out;
    j->out = &b;
    run_loop(j, l->node, l->closure, args->pos[0], l->depth + 1);
    j->out = saved;
    j->calls--;
    return af_jstr_take(j, &b);
}

/* --- macros --------------------------------------------------------------------------------------
 */

static bool has_param(const af_jnode *n, const af_jstr *name)
{
    for (int i = 0; i < n->list2.n; i++)
        if (n->list2.item[i]->name == name)
            return true;
    return false;
}

/* Where a keyword argument goes: a parameter, the caller, or kwargs. */
static void bind_keyword(af_jinja *j, const af_jnode *n, af_jscope *s, const af_jkw *kw, int given,
                         af_jdict *rest)
{
    for (int i = 0; i < n->list2.n; i++) {
        const af_jstr *name = n->list2.item[i]->name;
        if (name->n != kw->name->n || memcmp(name->p, kw->name->p, name->n))
            continue;
        if (i < given)
            af_jfail(j, "macro '%s' got multiple values for argument '%s'", n->name->p, name->p);
        else
            af_jscope_set(j, s, name, kw->val);
        return;
    }
    if (af_jstr_is(kw->name, "caller") && (n->uses & AF_USES_CALLER))
        af_jscope_set(j, s, j->t->caller, kw->val);
    else if (n->uses & AF_USES_KWARGS)
        af_jdict_set(j, rest, (af_jv){.kind = AF_J_STR, .s = kw->name}, kw->val);
    else
        af_jfail(j, "macro '%s' takes no keyword argument '%s'", n->name->p, kw->name->p);
}

static void bind_defaults(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    const int first = n->list2.n - n->list3.n;
    for (int i = 0; i < n->list2.n && !j->failed; i++) {
        const af_jstr *name = n->list2.item[i]->name;
        bool bound = false;
        for (int k = 0; k < s->n && !bound; k++)
            bound = s->bind[k].name == name && s->bind[k].val.kind != AF_J_MISSING;
        if (bound)
            continue;
        af_jscope_set(j, s, name,
                      i >= first ? af_jeval(j, n->list3.item[i - first], s)
                                 : af_jundef(j, "parameter '%s' was not provided", name->p));
    }
}

static void bind_macro(af_jinja *j, const af_jnode *n, af_jscope *s, const af_jargs *args)
{
    const int given = AF_MIN(args->n, n->list2.n);
    for (int i = 0; i < n->list2.n; i++) /* not yet given: hides outer names from defaults */
        af_jscope_set(j, s, n->list2.item[i]->name,
                      i < given ? args->pos[i] : (af_jv){.kind = AF_J_MISSING});
    if (args->n > given && !(n->uses & AF_USES_VARARGS))
        af_jfail(j, "macro '%s' takes not more than %d argument(s)", n->name->p, n->list2.n);
    af_jdict *rest = af_jdict_new(j, 0);
    if ((n->uses & AF_USES_CALLER) && !has_param(n, j->t->caller))
        af_jscope_set(j, s, j->t->caller, af_jundef(j, "No caller defined"));
    for (int i = 0; i < args->nkw && !j->failed; i++)
        bind_keyword(j, n, s, &args->kw[i], given, rest);
    if (j->failed)
        return;
    if ((n->uses & AF_USES_VARARGS) && !has_param(n, j->t->varargs)) {
        af_jlist *more = af_jlist_new(j, args->n - given);
        for (int i = given; i < args->n; i++)
            af_jlist_add(j, more, args->pos[i]);
        af_jscope_set(j, s, j->t->varargs, af_jtuple_v(more));
    }
    if ((n->uses & AF_USES_KWARGS) && !has_param(n, j->t->kwargs))
        af_jscope_set(j, s, j->t->kwargs, af_jdict_v(rest));
    bind_defaults(j, n, s);
}

af_jv af_jmacro_call(af_jinja *j, const af_jmacro *m, const af_jargs *args)
{
    af_jflow flow;
    if (j->calls >= AF_JINJA_CALL_MAX)
        return af_jfail(j, "maximum recursion depth of %d exceeded", AF_JINJA_CALL_MAX);
    j->calls++;
    af_jscope *s = af_jscope_new(j, m->closure, m->node);
    if (!j->failed)
        bind_macro(j, m->node, s, args);
    const af_jv text = j->failed ? af_jnone() : capture(j, &m->node->list, s, &flow);
    j->calls--;
    return text;
}

static af_jv macro_value(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_jmacro *m = af_jtake(j, sizeof *m);
    if (!m)
        return af_jnone();
    *m = (af_jmacro){.node = n, .closure = s};
    return (af_jv){.kind = AF_J_MACRO, .macro = m};
}

static void call_block(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    const af_jnode *call = n->a;
    const af_jv callee = af_jeval(j, call->a, s);
    af_jargs args;
    if (!j->failed)
        af_jeval_args(j, call->args, s, &args);
    j->line = n->line;
    if (j->failed)
        return;
    if (args.nkw == AF_JINJA_ARGS_MAX) {
        af_jfail(j, "a call has more than %d arguments", AF_JINJA_ARGS_MAX);
        return;
    }
    args.kw[args.nkw++] = (af_jkw){j->t->caller, macro_value(j, n, s)};
    const af_jv v = af_jinvoke(j, callee, &args);
    if (!j->failed)
        print(j, v);
}

/* --- statements
 * ------------------------------------------------------------------------------------ */

static af_jflow exec_if(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    for (int i = 0; i < n->list.n; i++) {
        const af_jnode *branch = n->list.item[i];
        const af_jv v = af_jeval(j, branch->a, s);
        if (j->failed)
            return AF_FLOW_NEXT;
        if (af_jtruth(&v))
            return af_jexec(j, &branch->list, s);
    }
    return af_jexec(j, &n->list2, s);
}

static void generation(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_jflow flow;
    const uint64_t begin = j->root->len;
    const af_jv v = capture(j, &n->list, af_jscope_new(j, s, n), &flow);
    if (j->failed)
        return;
    const af_span span = {.begin = begin, .end = begin + v.s->n};
    af_buf_add(&j->spans, &span, sizeof span);
    print(j, v);
}

static af_jflow with_scope(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_jscope *inner = af_jscope_new(j, s, n);
    for (int i = 0; i < n->list3.n && !j->failed; i++) {
        const af_jv v = af_jeval(j, n->list3.item[i], s);
        if (!j->failed)
            assign(j, n->list2.item[i], inner, v);
    }
    return j->failed ? AF_FLOW_NEXT : af_jexec(j, &n->list, inner);
}

static af_jflow captured(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    af_jflow flow;
    af_jscope *inner = af_jscope_new(j, s, n);
    af_jv v = capture(j, &n->list, inner, &flow);
    if (j->failed || flow != AF_FLOW_NEXT)
        return flow;
    v = filtered(j, n->op == AF_N_SETBLOCK ? n->b : n->a, inner, v);
    if (j->failed)
        return AF_FLOW_NEXT;
    if (n->op == AF_N_SETBLOCK)
        assign(j, n->a, s, v);
    else
        print(j, v);
    return AF_FLOW_NEXT;
}

static af_jscope *root_of(af_jscope *s)
{
    while (s->up)
        s = s->up;
    return s;
}

static void exec_print(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    for (int i = 0; i < n->list.n && !j->failed; i++) {
        const af_jv v = af_jeval(j, n->list.item[i], s);
        if (!j->failed)
            print(j, v);
    }
}

static af_jflow exec_one(af_jinja *j, const af_jnode *n, af_jscope *s)
{
    switch ((af_jop)n->op) {
    case AF_N_DATA:
        af_jstep(j, n->value.s->n / 64);
        af_buf_add(j->out, n->value.s->p, n->value.s->n);
        check_output(j);
        break;
    case AF_N_PRINT:
        exec_print(j, n, s);
        break;
    case AF_N_IF:
        return exec_if(j, n, s);
    case AF_N_FOR: {
        const af_jv over = af_jeval(j, n->b, s);
        if (!j->failed)
            run_loop(j, n, s, over, 1);
        break;
    }
    case AF_N_SET: {
        const af_jv v = af_jeval(j, n->b, s);
        if (!j->failed)
            assign(j, n->a, s, v);
        break;
    }
    case AF_N_SETBLOCK:
    case AF_N_FILTERBLOCK:
        return captured(j, n, s);
    case AF_N_MACRO:
        af_jscope_set(j, s, n->name, macro_value(j, n, s));
        break;
    case AF_N_CALLBLOCK:
        call_block(j, n, s);
        break;
    case AF_N_GENERATION:
        generation(j, n, s);
        break;
    case AF_N_WITH:
        return with_scope(j, n, s);
    case AF_N_SCOPE:
        return af_jexec(j, &n->list, af_jscope_new(j, s, n));
    case AF_N_BLOCK:
        af_jexec(j, &n->list, af_jscope_new(j, root_of(s), n));
        break;
    case AF_N_BREAK:
        return AF_FLOW_BREAK;
    case AF_N_CONTINUE:
        return AF_FLOW_CONTINUE;
    default:
        af_jfail(j, "'%s' needs a template loader, and there is none", n->name->p);
        break;
    }
    return AF_FLOW_NEXT;
}

af_jflow af_jexec(af_jinja *j, const af_jnodes *body, af_jscope *s)
{
    if (!body->n || !af_jenter(j))
        return AF_FLOW_NEXT;
    af_jflow flow = AF_FLOW_NEXT;
    for (int i = 0; i < body->n && flow == AF_FLOW_NEXT && af_jstep(j, 1); i++) {
        j->line = body->item[i]->line;
        flow = exec_one(j, body->item[i], s);
    }
    af_jleave(j);
    return flow;
}

void af_jrun(af_jinja *j)
{
    j->no_str = (af_jstr){.p = "", .hash = 1};
    j->out = j->root;
    j->line = 1;
    af_jscope *s = af_jscope_new(j, NULL, j->t->root);
    if (!j->failed)
        af_jexec(j, &j->t->root->list, s);
}
