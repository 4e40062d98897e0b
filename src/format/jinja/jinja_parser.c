/* jinja_parser.c - statements of a template, their scopes, and what both halves of the parser
 * share. */
#include "format/jinja/jinja_ast.h"

#include <stdarg.h>

void *af_jsyntax(af_jparser *p, int line, const char *fmt, ...)
{
    if (p->failed)
        return NULL;
    p->failed = true;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    af_fail(p->err, AF_EFORMAT, "line %d: %s", line, text);
    return NULL;
}

void *af_jparser_take(af_jparser *p, uint64_t bytes)
{
    void *m = p->failed ? NULL : af_arena_take(&p->t->mem, bytes);
    return m ? m : af_jsyntax(p, p->at ? p->at->line : 1, "the template needs too much memory");
}

void *af_jgrow(af_jparser *p, void *items, int n, int *cap, uint64_t size)
{
    if (n < *cap)
        return items;
    const int more = *cap ? *cap * 2 : 4;
    void *m = af_jparser_take(p, (uint64_t)more * size);
    if (m && n)
        memcpy(m, items, (uint64_t)n * size);
    *cap = m ? more : *cap;
    return m;
}

void af_jexprs_add(af_jparser *p, af_jexprs *l, af_jexpr *e)
{
    af_jexpr **item =
        p->failed || !e ? NULL : af_jgrow(p, l->item, l->n, &l->cap, sizeof(af_jexpr *));
    if (item) {
        l->item = item;
        l->item[l->n++] = e;
    }
}

static void stmts_add(af_jstmts *l, af_jstmt *n)
{
    *(l->first ? &l->last->next : &l->first) = n;
    l->last = n;
}

typedef struct af_jname {
    af_jstr str;
    struct af_jmention *top; /* in the innermost open scope that mentions the name */
    struct af_jname *next;   /* of the same hash */
} af_jname;

typedef struct af_jmention {
    af_jname *name;
    const af_jframe *frame;
    struct af_jmention *outer; /* of the same name, in a scope around */
    struct af_jmention *next;  /* of the same scope */
} af_jmention;

typedef struct af_jstored {
    af_jname *name;
    af_jstmt *in; /* the scope that stores it */
    struct af_jstored *next;
} af_jstored;

af_jstr *af_jintern(af_jparser *p, const char *s, uint64_t n)
{
    af_jstr probe;
    af_jstr_fill(&probe, s, n);
    af_jname **chain = &p->names[af_jstr_hash(&probe) % AF_JINJA_NAMES];
    for (af_jname *name = *chain; name; name = name->next)
        if (name->str.n == n && !memcmp(name->str.p, s, n))
            return &name->str;
    af_jname *name = af_jparser_take(p, sizeof *name + n + 1);
    if (!name)
        return NULL;
    probe.p = memcpy(name + 1, s, n);
    *name = (af_jname){.str = probe, .next = *chain};
    *chain = name;
    return &name->str;
}

static void mention(af_jparser *p, af_jstr *s)
{
    af_jname *name = (af_jname *)s; /* every interned string is the head of one */
    if (p->failed || (name->top && name->top->frame == p->frame))
        return;
    af_jmention *m = af_jparser_take(p, sizeof *m);
    if (!m)
        return;
    *m = (af_jmention){name, p->frame, name->top, p->frame->mentions};
    name->top = p->frame->mentions = m;
}

void af_jname_load(af_jparser *p, af_jstr *name)
{
    const uint8_t use = name == p->t->caller    ? AF_JUSES_CALLER
                        : name == p->t->varargs ? AF_JUSES_VARARGS
                        : name == p->t->kwargs  ? AF_JUSES_KWARGS
                                                : 0;
    for (af_jstmt *m = p->macro; use && m; m = m->macro.outer)
        m->macro.uses |= use;
    if (!((af_jname *)name)->top)
        mention(p, name);
}

/* A first store outside any if: whether the name begins as undefined is known when the scopes
 * around have been read. */
static void store(af_jparser *p, af_jstr *name)
{
    const af_jmention *top = ((af_jname *)name)->top;
    mention(p, name);
    if (p->failed || top || p->frame->branches)
        return;
    af_jstored *s = af_jparser_take(p, sizeof *s);
    if (s)
        *s = (af_jstored){(af_jname *)name, p->frame->of, p->frame->stored};
    p->frame->stored = s;
}

/* Declares the names of a target: stored by a statement, or the parameters of a scope. */
static void declare(af_jparser *p, const af_jexpr *target, bool parameter)
{
    if (p->failed || !target)
        return;
    if (target->kind == AF_JEXPR_TUPLE)
        for (int i = 0; i < target->items.n; i++)
            declare(p, target->items.item[i], parameter);
    else if (target->kind == AF_JEXPR_NSREF)
        af_jname_load(p, target->name.name);
    else
        (parameter ? mention : store)(p, target->name.name);
}

static void frame_open(af_jparser *p, af_jframe *f, af_jstmt *of)
{
    *f = (af_jframe){.up = p->frame, .of = of};
    p->frame = f;
}

/* What inner scopes store and this one mentions is not undefined there: it is looked up. */
static void frame_close(af_jparser *p)
{
    af_jframe *f = p->frame;
    for (af_jstored *s = f->stored, *next; s && !p->failed; s = next) {
        next = s->next;
        if (s->in != f->of && s->name->top && s->name->top->frame == f)
            continue;
        if (f->up) {
            s->next = f->up->stored;
            f->up->stored = s;
            continue;
        }
        af_jstr **undef = af_jgrow(p, s->in->undef, s->in->nundef, &s->in->cundef, sizeof *undef);
        if (undef) {
            s->in->undef = undef;
            s->in->undef[s->in->nundef++] = &s->name->str;
        }
    }
    for (af_jmention *m = f->mentions; m; m = m->next)
        m->name->top = m->outer;
    p->frame = f->up;
}

static bool token_is(const af_jtoken *t, af_jtoken_type type, const char *text)
{
    return t->type == type && strlen(text) == t->n && !memcmp(t->p, text, t->n);
}

bool af_jat_op(const af_jparser *p, const char *op) { return token_is(p->at, AF_JTOKEN_OP, op); }

bool af_jat_name(const af_jparser *p, const char *name)
{
    return token_is(p->at, AF_JTOKEN_NAME, name);
}

bool af_jskip_op(af_jparser *p, const char *op)
{
    const bool is = af_jat_op(p, op);
    p->at += is;
    return is;
}

bool af_jskip_name(af_jparser *p, const char *name)
{
    const bool is = af_jat_name(p, name);
    p->at += is;
    return is;
}

static const char *const token_names[] = {"text",
                                          "begin of print statement",
                                          "end of print statement",
                                          "begin of statement block",
                                          "end of statement block",
                                          "end of template",
                                          "a string",
                                          "a name"};

void *af_jexpected(af_jparser *p, const char *what)
{
    const af_jtoken *t = p->at;
    if (t->type <= AF_JTOKEN_STRING)
        return af_jsyntax(p, t->line, "expected %s, got %s", what, token_names[t->type]);
    return af_jsyntax(p, t->line, "expected %s, got '%.*s'", what, (int)AF_MIN(t->n, 60), t->p);
}

bool af_jexpect_op(af_jparser *p, const char *op)
{
    if (!p->failed && !af_jskip_op(p, op))
        af_jexpected(p, op);
    return !p->failed;
}

bool af_jexpect(af_jparser *p, af_jtoken_type type)
{
    const af_jexpr *e = p->unknown;
    if (e && !p->failed && (type == AF_JTOKEN_BLOCK_END || type == AF_JTOKEN_VAR_END))
        af_jsyntax(p, e->line, "No %s named '%s'.", e->kind == AF_JEXPR_TEST ? "test" : "filter",
                   e->call.name->p);
    if (!p->failed && p->at->type != type)
        af_jexpected(p, token_names[type]);
    p->at += !p->failed;
    return !p->failed;
}

static af_jstmt *new_stmt(af_jparser *p, af_jstmt_kind kind)
{
    af_jstmt *n = af_jparser_take(p, sizeof *n);
    if (n) {
        n->kind = (uint8_t)kind;
        n->line = p->at->line;
    }
    return n;
}

static void parse_body(af_jparser *p, af_jstmts *out, const char *tag, const char *const *ends);

/* The body of a statement up to one of `ends` (NULL-terminated); the end's name is left current. */
static void body_until(af_jparser *p, af_jstmts *out, const char *tag, const char *const *ends)
{
    af_jskip_op(p, ":");
    if (af_jexpect(p, AF_JTOKEN_BLOCK_END))
        parse_body(p, out, tag, ends);
}

static void body_to(af_jparser *p, af_jstmts *out, const char *tag, const char *end)
{
    body_until(p, out, tag, (const char *const[]){end, NULL});
    p->at += !p->failed;
}

/* The tags whose body is a scope of its own. */
static const struct scope_tag {
    const char *name, *end;
    af_jstmt_kind kind;
    bool function; /* a break in it has no loop to leave */
} scope_tags[] = {
    {"macro", "endmacro", AF_JSTMT_MACRO, true},
    {"call", "endcall", AF_JSTMT_CALLBLOCK, true},
    {"generation", "endgeneration", AF_JSTMT_GENERATION, true},
    {"block", "endblock", AF_JSTMT_BLOCK, true},
    {"filter", "endfilter", AF_JSTMT_FILTERBLOCK, false},
    {"with", "endwith", AF_JSTMT_WITH, false},
    {"autoescape", "endautoescape", AF_JSTMT_SCOPE, false},
};
static const struct scope_tag set_tag = {"set", "endset", AF_JSTMT_SETBLOCK, false};
static const struct scope_tag else_tag = {"for", "endfor", AF_JSTMT_SCOPE, false};

static void scope_body(af_jparser *p, af_jstmt *n, const struct scope_tag *tag)
{
    af_jframe f;
    const int loops = p->loops;
    const bool macro = n->kind == AF_JSTMT_MACRO || n->kind == AF_JSTMT_CALLBLOCK;
    frame_open(p, &f, n);
    p->loops = tag->function ? 0 : loops;
    p->captures += macro;
    if (n->kind == AF_JSTMT_SETBLOCK)
        n->set.value = af_jparse_filters(p, NULL, false);
    for (int i = 0; n->kind == AF_JSTMT_WITH && i < n->with.target.n; i++)
        declare(p, n->with.target.item[i], true);
    for (int i = 0; macro && i < n->macro.param.n; i++)
        declare(p, n->macro.param.item[i], true);
    body_to(p, &n->body, tag->name, tag->end);
    p->loops = loops;
    frame_close(p);
}

static void parse_macro(af_jparser *p, af_jstmt *n)
{
    if (n->kind == AF_JSTMT_CALLBLOCK) {
        n->macro.name = p->t->caller;
        if (af_jat_op(p, "("))
            af_jparse_params(p, n);
        n->macro.call = af_jparse_expr(p, true);
        if (!p->failed && n->macro.call->kind != AF_JEXPR_CALL)
            af_jsyntax(p, n->line, "expected call");
        return;
    }
    const af_jtoken *name = p->at;
    if (af_jexpect(p, AF_JTOKEN_NAME) && (n->macro.name = af_jintern(p, name->p, name->n)))
        store(p, n->macro.name);
    n->macro.outer = p->macro;
    p->macro = n;
    af_jparse_params(p, n);
}

static af_jstmt *parse_scope(af_jparser *p, const struct scope_tag *tag)
{
    af_jstmt *n = new_stmt(p, tag->kind);
    const af_jtoken *name = ++p->at;
    if (!n)
        return NULL;
    if (n->kind == AF_JSTMT_MACRO || n->kind == AF_JSTMT_CALLBLOCK) {
        parse_macro(p, n);
    } else if (n->kind == AF_JSTMT_BLOCK) {
        if (af_jexpect(p, AF_JTOKEN_NAME))
            af_jskip_name(p, "scoped");
    } else if (n->kind == AF_JSTMT_FILTERBLOCK) {
        n->set.value = af_jparse_filters(p, NULL, true);
    } else if (n->kind == AF_JSTMT_SCOPE && !af_jskip_name(p, "false")) {
        af_jsyntax(p, n->line, "not supported: autoescape other than false");
    }
    while (n->kind == AF_JSTMT_WITH && !p->failed && p->at->type != AF_JTOKEN_BLOCK_END) {
        if (n->with.target.n && !af_jexpect_op(p, ","))
            break;
        af_jexprs_add(p, &n->with.target, af_jparse_target(p, false));
        if (af_jexpect_op(p, "="))
            af_jexprs_add(p, &n->with.value, af_jparse_expr(p, true));
    }
    scope_body(p, n, tag);
    p->t->marks_generation |= n->kind == AF_JSTMT_GENERATION;
    if (n->kind == AF_JSTMT_MACRO)
        p->macro = n->macro.outer;
    if (n->kind == AF_JSTMT_BLOCK && !p->failed && p->at->type == AF_JTOKEN_NAME &&
        p->at->n == name->n && !memcmp(p->at->p, name->p, name->n))
        p->at++;
    return n;
}

static af_jstmt *parse_if(af_jparser *p)
{
    af_jstmt *first = new_stmt(p, AF_JSTMT_IF), *n = first;
    p->frame->branches++;
    while (!p->failed) {
        if (!af_jskip_name(p, "else")) {
            p->at++;
            n->cond.test = af_jparse_tuple(p, false);
        }
        static const char *const ends[] = {"endif", "elif", "else", NULL};
        body_until(p, &n->body, "if", n->cond.test ? ends : (const char *const[]){"endif", NULL});
        if (p->failed || af_jskip_name(p, "endif"))
            break;
        n->cond.otherwise = new_stmt(p, AF_JSTMT_IF);
        n = n->cond.otherwise;
    }
    p->frame->branches--;
    return first;
}

static af_jstmt *parse_for(af_jparser *p)
{
    af_jstmt *n = new_stmt(p, AF_JSTMT_FOR);
    const int captures = p->captures;
    af_jframe f;
    p->at++;
    af_jexpr *target = af_jparse_target(p, false);
    if (!p->failed && !af_jskip_name(p, "in"))
        af_jexpected(p, "'in'");
    if (p->failed)
        return NULL;
    n->loop.target = target;
    n->loop.over = af_jparse_tuple(p, false);
    if (!p->failed && af_jskip_name(p, "if")) { /* a scope that knows the targets only */
        frame_open(p, &f, n);
        declare(p, target, true);
        n->loop.test = af_jparse_expr(p, true);
        frame_close(p);
    }
    n->loop.recursive = !p->failed && af_jskip_name(p, "recursive");
    p->captures += n->loop.recursive;
    frame_open(p, &f, n);
    declare(p, target, true);
    mention(p, p->t->loop);
    p->loops++;
    body_until(p, &n->body, "for", (const char *const[]){"endfor", "else", NULL});
    p->loops--;
    frame_close(p);
    n->loop.captured = p->captures > captures;
    if (!p->failed && af_jskip_name(p, "else")) {
        af_jstmt *otherwise = new_stmt(p, AF_JSTMT_SCOPE);
        if (!otherwise)
            return NULL;
        scope_body(p, otherwise, &else_tag);
        stmts_add(&n->loop.otherwise, otherwise);
    } else {
        p->at += !p->failed;
    }
    return n;
}

static af_jstmt *parse_set(af_jparser *p)
{
    af_jstmt *n = new_stmt(p, AF_JSTMT_SET);
    p->at++;
    af_jexpr *target = af_jparse_target(p, true);
    if (p->failed)
        return NULL;
    n->set.target = target;
    if (!af_jskip_op(p, "=")) {
        n->kind = AF_JSTMT_SETBLOCK;
        declare(p, target, false);
        scope_body(p, n, &set_tag);
        return n;
    }
    n->set.value = af_jparse_tuple(p, true);
    declare(p, target, false);
    return n;
}

static af_jstmt *parse_print(af_jparser *p)
{
    af_jstmt *n = new_stmt(p, AF_JSTMT_PRINT);
    p->at++;
    while (!p->failed && p->at->type != AF_JTOKEN_BLOCK_END) {
        if (n->print.n && !af_jexpect_op(p, ","))
            break;
        af_jexprs_add(p, &n->print, af_jparse_expr(p, true));
    }
    return n;
}

static af_jstmt *parse_jump(af_jparser *p)
{
    const bool leave = af_jat_name(p, "break");
    if (p->loops == 0)
        return af_jsyntax(p, p->at->line, "'%s' outside loop", leave ? "break" : "continue");
    af_jstmt *n = new_stmt(p, leave ? AF_JSTMT_BREAK : AF_JSTMT_CONTINUE);
    p->at++;
    return n;
}

static af_jstmt *parse_statement(af_jparser *p)
{
    static const char *const loaders[] = {"include", "import", "from", "extends"};
    for (size_t i = 0; i < AF_LEN(scope_tags); i++)
        if (af_jat_name(p, scope_tags[i].name))
            return parse_scope(p, &scope_tags[i]);
    for (size_t i = 0; i < AF_LEN(loaders); i++)
        if (af_jat_name(p, loaders[i]))
            return af_jsyntax(p, p->at->line, "not supported: '%s' needs a template loader",
                              loaders[i]);
    return af_jat_name(p, "if")                                    ? parse_if(p)
           : af_jat_name(p, "for")                                 ? parse_for(p)
           : af_jat_name(p, "set")                                 ? parse_set(p)
           : af_jat_name(p, "print")                               ? parse_print(p)
           : af_jat_name(p, "break") || af_jat_name(p, "continue") ? parse_jump(p)
                                                                   : af_jexpected(p, "a tag");
}

static af_jstmt *parse_text(af_jparser *p, const af_jtoken *t)
{
    af_jstmt *n = new_stmt(p, AF_JSTMT_TEXT);
    af_jstr *s = n ? af_jparser_take(p, sizeof *s) : NULL;
    if (!s)
        return NULL;
    af_jstr_fill(s, t->p, t->n);
    n->line = t->line;
    n->text = s;
    return n;
}

static bool ends_here(const af_jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (af_jat_name(p, *ends))
            return true;
    return false;
}

static void parse_body(af_jparser *p, af_jstmts *out, const char *tag, const char *const *ends)
{
    const int line = p->at->line;
    if (++p->depth > AF_TEMPLATE_DEPTH_MAX)
        af_jsyntax(p, line, "statements are nested deeper than %d", AF_TEMPLATE_DEPTH_MAX);
    while (!p->failed && p->at->type != AF_JTOKEN_EOF) {
        const af_jtoken *t = p->at++;
        af_jstmt *n = NULL;
        if (t->type == AF_JTOKEN_TEXT) {
            n = parse_text(p, t);
        } else if (t->type == AF_JTOKEN_VAR_BEGIN) {
            if ((n = new_stmt(p, AF_JSTMT_PRINT)))
                af_jexprs_add(p, &n->print, af_jparse_tuple(p, true));
            af_jexpect(p, AF_JTOKEN_VAR_END);
        } else if (ends_here(p, ends)) {
            p->depth--;
            return;
        } else {
            n = parse_statement(p);
            af_jexpect(p, AF_JTOKEN_BLOCK_END);
        }
        if (n && !p->failed)
            stmts_add(out, n);
    }
    p->depth--;
    if (ends)
        af_jsyntax(p, p->at->line,
                   "Unexpected end of template: '%s' of line %d is not closed by '%s'", tag, line,
                   *ends);
}

static void parse_template(af_jparser *p)
{
    af_template *t = p->t;
    af_jframe f;
    t->loop = af_jintern(p, "loop", 4);
    t->caller = af_jintern(p, "caller", 6);
    t->varargs = af_jintern(p, "varargs", 7);
    t->kwargs = af_jintern(p, "kwargs", 6);
    t->root = new_stmt(p, AF_JSTMT_SCOPE);
    frame_open(p, &f, t->root);
    if (!p->failed)
        parse_body(p, &t->root->body, "", NULL);
    frame_close(p);
}

af_status af_template_parse(af_template **out, const char *source, uint64_t len, af_error *err)
{
    AF_NEED(err, out, source || !len);
    af_status st = AF_OK;
    af_jparser p = {.err = err};
    af_template *t = NULL;

    if (len > AF_TEMPLATE_SOURCE_MAX)
        return af_fail(err, AF_EFORMAT, "the template has %" PRIu64 " bytes, the limit is %" PRIu64,
                       len, AF_TEMPLATE_SOURCE_MAX);
    if (af_utf8_valid(source, len) != len)
        return af_fail(err, AF_EFORMAT, "the template is not valid UTF-8");
    t = af_calloc(1, sizeof *t);
    if (!t || !(t->source = af_strndup(source, len))) {
        st = af_fail_nomem(err, "a template", len);
        goto done;
    }
    t->source_len = len;
    p.t = t;
    af_jlex(&p, source, len);
    p.at = p.tokens;
    if (!p.failed)
        parse_template(&p);
    if (p.failed) {
        st = err && err->code == AF_ENOMEM ? AF_ENOMEM : AF_EFORMAT;
        goto done;
    }
    *out = t;
    t = NULL;
done:
    af_template_close(t);
    return st;
}
