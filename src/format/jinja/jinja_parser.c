/* jinja_parser.c - statements of a template, and what both halves of the parser share. */
#include "format/jinja/jinja.h"

#include <stdarg.h>

af_jnode *af_jsyntax(af_jparser *p, int line, const char *fmt, ...)
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

af_jnode *af_jnode_new(af_jparser *p, af_jop op, int line)
{
    af_jnode *n = af_arena_take(&p->t->mem, sizeof *n);
    if (!n)
        return af_jsyntax(p, line, "the template needs too much memory");
    n->op = (uint8_t)op;
    n->line = line;
    return n;
}

void af_jnodes_add(af_jparser *p, af_jnodes *l, af_jnode *n)
{
    if (p->failed || !n)
        return;
    if (l->n == l->cap) {
        const int cap = l->cap ? l->cap * 2 : 4;
        af_jnode **item = af_arena_take(&p->t->mem, (uint64_t)cap * sizeof(af_jnode *));
        if (!item) {
            af_jsyntax(p, n->line, "the template needs too much memory");
            return;
        }
        if (l->n)
            memcpy(item, l->item, (size_t)l->n * sizeof(af_jnode *));
        l->item = item;
        l->cap = cap;
    }
    l->item[l->n++] = n;
}

static bool intern_grow(af_jparser *p)
{
    const uint64_t cap = p->cnames ? p->cnames * 2 : 256;
    af_jstr **names = af_calloc(cap, sizeof *names);
    if (!names)
        return false;
    for (uint64_t i = 0; i < p->cnames; i++) {
        if (!p->names[i])
            continue;
        uint64_t k = p->names[i]->hash & (cap - 1);
        while (names[k])
            k = (k + 1) & (cap - 1);
        names[k] = p->names[i];
    }
    free(p->names);
    p->names = names;
    p->cnames = cap;
    return true;
}

/* Equal names have equal addresses: scopes compare them so. NULL only after a failure. */
af_jstr *af_jintern(af_jparser *p, const char *s, uint64_t n)
{
    af_jstr probe;
    if ((p->nnames * 2 >= p->cnames && !intern_grow(p)) || !af_jstr_fill(&probe, s, n)) {
        af_jsyntax(p, p->at->line, "the template needs too much memory");
        return NULL;
    }
    uint64_t k = af_jstr_hash(&probe) & (p->cnames - 1);
    for (; p->names[k]; k = (k + 1) & (p->cnames - 1))
        if (p->names[k]->n == n && !memcmp(p->names[k]->p, s, n))
            return p->names[k];
    af_jstr *name = af_arena_take(&p->t->mem, sizeof *name);
    if (name)
        *name = probe;
    if (!name || !(name->p = af_arena_strndup(&p->t->mem, s, n))) {
        af_jsyntax(p, p->at->line, "the template needs too much memory");
        return NULL;
    }
    p->nnames++;
    return p->names[k] = name;
}

bool af_jtok_is_op(const af_jtoken *t, af_jsym op) { return t->type == AF_T_OP && t->op == op; }

bool af_jtok_is_name(const af_jtoken *t, const char *name)
{
    return t->type == AF_T_NAME && strlen(name) == t->n && !memcmp(t->p, name, t->n);
}

const char *af_jtok_text(const af_jtoken *t, char text[80])
{
    static const char *const fixed[] = {
        [AF_T_DATA] = "text",
        [AF_T_VAR_BEGIN] = "begin of print statement",
        [AF_T_VAR_END] = "end of print statement",
        [AF_T_BLOCK_BEGIN] = "begin of statement block",
        [AF_T_BLOCK_END] = "end of statement block",
        [AF_T_EOF] = "end of template",
        [AF_T_STRING] = "a string",
    };
    if (t->type < AF_LEN(fixed) && fixed[t->type])
        return fixed[t->type];
    snprintf(text, 80, "'%.*s'", (int)AF_MIN(t->n, 60), t->p);
    return text;
}

bool af_jskip_op(af_jparser *p, af_jsym op)
{
    const bool is = af_jtok_is_op(p->at, op);
    p->at += is;
    return is;
}

bool af_jskip_name(af_jparser *p, const char *name)
{
    const bool is = af_jtok_is_name(p->at, name);
    p->at += is;
    return is;
}

bool af_jexpect_op(af_jparser *p, af_jsym op)
{
    static const char *const names[] = {
        [AF_S_LPAREN] = "(", [AF_S_RPAREN] = ")", [AF_S_RBRACKET] = "]", [AF_S_RBRACE] = "}",
        [AF_S_COLON] = ":",  [AF_S_COMMA] = ",",  [AF_S_ASSIGN] = "=",
    };
    char text[80];
    if (p->failed || af_jskip_op(p, op))
        return !p->failed;
    const char *want = op < AF_LEN(names) && names[op] ? names[op] : "operator";
    af_jsyntax(p, p->at->line, "expected '%s', got %s", want, af_jtok_text(p->at, text));
    return false;
}

bool af_jexpect(af_jparser *p, af_jtok type)
{
    char text[80], want_text[80];
    if (p->failed)
        return false;
    if (p->at->type == type) {
        p->at += type != AF_T_EOF;
        return true;
    }
    const af_jtoken want = {.type = (uint8_t)type, .p = "name", .n = 4};
    af_jsyntax(p, p->at->line, "expected %s, got %s",
               type == AF_T_NAME ? "a name" : af_jtok_text(&want, want_text),
               af_jtok_text(p->at, text));
    return false;
}

static void parse_body(af_jparser *p, af_jnodes *out, const char *tag, const char *const *ends);

/* The body of a statement up to one of `ends` (NULL-terminated); the end's name is left current. */
static void body_until(af_jparser *p, af_jnodes *out, const char *tag, const char *const *ends)
{
    af_jskip_op(p, AF_S_COLON);
    if (af_jexpect(p, AF_T_BLOCK_END))
        parse_body(p, out, tag, ends);
}

static void body_to(af_jparser *p, af_jnodes *out, const char *tag, const char *end)
{
    body_until(p, out, tag, (const char *const[]){end, NULL});
    p->at += !p->failed;
}

static af_jnode *parse_if(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_IF, p->at->line);
    while (!p->failed) { /* list: one scope-less node per branch, a = condition */
        p->at++;
        af_jnode *branch = af_jnode_new(p, AF_N_IF, p->at->line);
        if (!branch)
            break;
        branch->a = af_jparse_tuple(p, false, NULL, false);
        body_until(p, &branch->list, "if", (const char *const[]){"elif", "else", "endif", NULL});
        af_jnodes_add(p, &n->list, branch);
        if (p->failed || af_jtok_is_name(p->at, "elif"))
            continue;
        if (af_jskip_name(p, "else"))
            body_to(p, &n->list2, "if", "endif");
        else
            p->at++;
        break;
    }
    return n;
}

/* The else branch is a scope of its own. */
static void for_else(af_jparser *p, af_jnode *n)
{
    af_jnode *scope = af_jnode_new(p, AF_N_SCOPE, p->at->line);
    if (scope)
        body_to(p, &scope->list, "for", "endfor");
    af_jnodes_add(p, &n->list2, scope);
}

static af_jnode *parse_for(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_FOR, p->at->line);
    if (!n)
        return NULL;
    char text[80];
    p->at++;
    n->a = af_jparse_target(p, "in", false);
    if (!p->failed && !af_jskip_name(p, "in"))
        af_jsyntax(p, p->at->line, "expected 'in', got %s", af_jtok_text(p->at, text));
    if (!p->failed)
        n->b = af_jparse_tuple(p, false, "recursive", false);
    if (!p->failed && af_jskip_name(p, "if"))
        n->c = af_jparse_expr(p, true);
    n->flag = !p->failed && af_jskip_name(p, "recursive");
    p->loops++;
    body_until(p, &n->list, "for", (const char *const[]){"endfor", "else", NULL});
    p->loops--;
    if (!p->failed && af_jskip_name(p, "else"))
        for_else(p, n);
    else
        p->at += !p->failed;
    return n;
}

static af_jnode *parse_set(af_jparser *p)
{
    const int line = p->at++->line;
    af_jnode *target = af_jparse_target(p, NULL, true);
    if (p->failed)
        return NULL;
    if (af_jskip_op(p, AF_S_ASSIGN)) {
        af_jnode *n = af_jnode_new(p, AF_N_SET, line);
        if (n) {
            n->a = target;
            n->b = af_jparse_tuple(p, true, NULL, false);
        }
        return n;
    }
    af_jnode *n = af_jnode_new(p, AF_N_SETBLOCK, line);
    if (n) {
        n->a = target;
        n->b = af_jparse_filter(p, NULL, false);
        body_to(p, &n->list, "set", "endset");
    }
    return n;
}

/* Arguments of a macro or call block: names in list2, defaults of the last ones in list3. */
static void parse_signature(af_jparser *p, af_jnode *n)
{
    af_jexpect_op(p, AF_S_LPAREN);
    while (!p->failed && !af_jtok_is_op(p->at, AF_S_RPAREN)) {
        if (n->list2.n && !af_jexpect_op(p, AF_S_COMMA))
            return;
        const af_jtoken *name = p->at;
        if (!af_jexpect(p, AF_T_NAME))
            return;
        af_jnode *arg = af_jnode_new(p, AF_N_NAME, name->line);
        if (!arg)
            return;
        arg->name = af_jintern(p, name->p, name->n);
        af_jnodes_add(p, &n->list2, arg);
        if (af_jskip_op(p, AF_S_ASSIGN))
            af_jnodes_add(p, &n->list3, af_jparse_expr(p, true));
        else if (n->list3.n)
            af_jsyntax(p, name->line, "non-default argument follows default argument");
        if (n->list2.n > AF_JINJA_ARGS_MAX)
            af_jsyntax(p, name->line, "a macro has more than %d arguments", AF_JINJA_ARGS_MAX);
    }
    af_jexpect_op(p, AF_S_RPAREN);
}

/* A body that becomes a function of its own: a break in it has no loop to leave. */
static void function_body(af_jparser *p, af_jnode *n, const char *tag, const char *end)
{
    const int loops = p->loops;
    p->loops = 0;
    body_to(p, &n->list, tag, end);
    p->loops = loops;
}

static af_jnode *parse_macro(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_MACRO, p->at++->line);
    const af_jtoken *name = p->at;
    if (!n || !af_jexpect(p, AF_T_NAME))
        return NULL;
    n->name = af_jintern(p, name->p, name->n);
    parse_signature(p, n);
    function_body(p, n, "macro", "endmacro");
    return n;
}

static af_jnode *parse_call_block(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_CALLBLOCK, p->at++->line);
    if (!n)
        return NULL;
    n->name = af_jintern(p, "caller", 6);
    if (af_jtok_is_op(p->at, AF_S_LPAREN))
        parse_signature(p, n);
    n->a = p->failed ? NULL : af_jparse_expr(p, true);
    if (!p->failed && n->a->op != AF_N_CALL)
        return af_jsyntax(p, n->line, "expected call");
    function_body(p, n, "call", "endcall");
    return n;
}

static af_jnode *parse_with(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_WITH, p->at++->line);
    while (n && !p->failed && p->at->type != AF_T_BLOCK_END) { /* list2 targets, list3 values */
        if (n->list2.n && !af_jexpect_op(p, AF_S_COMMA))
            break;
        af_jnodes_add(p, &n->list2, af_jparse_target(p, NULL, false));
        if (p->failed || !af_jexpect_op(p, AF_S_ASSIGN))
            break;
        af_jnodes_add(p, &n->list3, af_jparse_expr(p, true));
    }
    if (n)
        body_to(p, &n->list, "with", "endwith");
    return n;
}

static af_jnode *parse_block(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_BLOCK, p->at++->line);
    const af_jtoken *name = p->at;
    if (!n || !af_jexpect(p, AF_T_NAME))
        return NULL;
    n->name = af_jintern(p, name->p, name->n);
    af_jskip_name(p, "scoped");
    af_jskip_name(p, "required");
    function_body(p, n, "block", "endblock");
    if (!p->failed && p->at->type == AF_T_NAME && p->at->n == name->n &&
        !memcmp(p->at->p, name->p, name->n))
        p->at++;
    return n;
}

static af_jnode *parse_print(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_PRINT, p->at++->line);
    while (n && !p->failed && p->at->type != AF_T_BLOCK_END) {
        if (n->list.n && !af_jexpect_op(p, AF_S_COMMA))
            break;
        af_jnodes_add(p, &n->list, af_jparse_expr(p, true));
    }
    return n;
}

/* include, import, from, extends: there is no loader, so they fail when reached. */
static af_jnode *parse_loader(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_LOADER, p->at->line);
    if (n)
        n->name = af_jintern(p, p->at->p, p->at->n);
    p->at++;
    while (!p->failed && p->at->type != AF_T_BLOCK_END) {
        if (p->at->type == AF_T_EOF)
            return af_jsyntax(p, p->at->line, "unexpected end of template");
        p->at++;
    }
    return n;
}

static af_jnode *parse_body_tag(af_jparser *p, af_jop op, const char *tag, const char *end)
{
    af_jnode *n = af_jnode_new(p, op, p->at++->line);
    if (!n)
        return NULL;
    if (op == AF_N_FILTERBLOCK)
        n->a = af_jparse_filter(p, NULL, true);
    if (op == AF_N_SCOPE)
        n->a = af_jparse_expr(p, true);
    if (op == AF_N_GENERATION) {
        p->t->marks_generation = true;
        function_body(p, n, tag, end);
    } else {
        body_to(p, &n->list, tag, end);
    }
    return n;
}

static af_jnode *parse_jump(af_jparser *p, af_jop op, const char *name)
{
    if (p->loops == 0)
        return af_jsyntax(p, p->at->line, "'%s' outside loop", name);
    return af_jnode_new(p, op, p->at++->line);
}

static af_jnode *parse_statement(af_jparser *p)
{
    const af_jtoken *t = p->at;
    char text[80];
    if (t->type != AF_T_NAME)
        return af_jsyntax(p, t->line, "tag name expected, got %s", af_jtok_text(t, text));
    if (af_jtok_is_name(t, "if"))
        return parse_if(p);
    if (af_jtok_is_name(t, "for"))
        return parse_for(p);
    if (af_jtok_is_name(t, "set"))
        return parse_set(p);
    if (af_jtok_is_name(t, "macro"))
        return parse_macro(p);
    if (af_jtok_is_name(t, "call"))
        return parse_call_block(p);
    if (af_jtok_is_name(t, "with"))
        return parse_with(p);
    if (af_jtok_is_name(t, "block"))
        return parse_block(p);
    if (af_jtok_is_name(t, "print"))
        return parse_print(p);
    if (af_jtok_is_name(t, "filter"))
        return parse_body_tag(p, AF_N_FILTERBLOCK, "filter", "endfilter");
    if (af_jtok_is_name(t, "generation"))
        return parse_body_tag(p, AF_N_GENERATION, "generation", "endgeneration");
    if (af_jtok_is_name(t, "autoescape"))
        return parse_body_tag(p, AF_N_SCOPE, "autoescape", "endautoescape");
    if (af_jtok_is_name(t, "break"))
        return parse_jump(p, AF_N_BREAK, "break");
    if (af_jtok_is_name(t, "continue"))
        return parse_jump(p, AF_N_CONTINUE, "continue");
    static const char *const loaders[] = {"include", "import", "from", "extends"};
    for (size_t i = 0; i < AF_LEN(loaders); i++)
        if (af_jtok_is_name(t, loaders[i]))
            return parse_loader(p);
    return af_jsyntax(p, t->line, "Encountered unknown tag %s", af_jtok_text(t, text));
}

static bool ends_here(const af_jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (af_jtok_is_name(p->at, *ends))
            return true;
    return false;
}

static void parse_body(af_jparser *p, af_jnodes *out, const char *tag, const char *const *ends)
{
    const int line = p->at->line;
    if (++p->depth > AF_TEMPLATE_DEPTH_MAX)
        af_jsyntax(p, line, "statements are nested deeper than %d", AF_TEMPLATE_DEPTH_MAX);
    while (!p->failed && p->at->type != AF_T_EOF) {
        const af_jtoken *t = p->at;
        af_jnode *n = NULL;
        p->at++;
        if (t->type == AF_T_DATA) {
            if ((n = af_jnode_new(p, AF_N_DATA, t->line))) {
                n->value.s = af_arena_take(&p->t->mem, sizeof(af_jstr));
                if (!n->value.s || !af_jstr_fill(n->value.s, t->p, t->n))
                    af_jsyntax(p, t->line, "the template needs too much memory");
            }
        } else if (t->type == AF_T_VAR_BEGIN) {
            if ((n = af_jnode_new(p, AF_N_PRINT, t->line)))
                af_jnodes_add(p, &n->list, af_jparse_tuple(p, true, NULL, false));
            af_jexpect(p, AF_T_VAR_END);
        } else {
            if (ends_here(p, ends)) {
                p->depth--;
                return;
            }
            n = parse_statement(p);
            af_jexpect(p, AF_T_BLOCK_END);
        }
        af_jnodes_add(p, out, n);
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
    t->loop = af_jintern(p, "loop", 4);
    t->caller = af_jintern(p, "caller", 6);
    t->varargs = af_jintern(p, "varargs", 7);
    t->kwargs = af_jintern(p, "kwargs", 6);
    t->root = af_jnode_new(p, AF_N_SCOPE, 1);
    if (!p->failed)
        parse_body(p, &t->root->list, "", NULL);
    if (!p->failed)
        af_jscopes(p, t->root);
}

af_status af_template_parse(af_template **out, const char *source, uint64_t len, af_error *err)
{
    af_status st = AF_OK;
    af_jtokens tokens = {0};
    af_jparser p = {.err = err};
    af_template *t = NULL;

    if (len > AF_TEMPLATE_SOURCE_MAX)
        return af_fail(err, AF_EFORMAT,
                       "the template has %" PRIu64 " bytes, more than %" PRIu64 " are refused", len,
                       AF_TEMPLATE_SOURCE_MAX);
    if (!af_jutf8_valid(source, len))
        return af_fail(err, AF_EFORMAT, "the template is not valid UTF-8");
    t = af_calloc(1, sizeof *t);
    if (!t || !(t->source = af_strndup(source, len))) {
        st = af_fail_nomem(err, "a template", len);
        goto done;
    }
    t->source_len = len;
    AF_TRY(af_jlex(&tokens, &t->mem, source, len, err));
    p.t = t;
    p.at = tokens.item;
    parse_template(&p);
    if (p.failed) {
        st = AF_EFORMAT;
        goto done;
    }
    *out = t;
    t = NULL;
done:
    free(p.names);
    free(tokens.item);
    af_template_close(t);
    return st;
}
