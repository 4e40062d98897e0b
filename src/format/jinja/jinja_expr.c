/* jinja_expr.c - expressions of a template: recursive descent in Jinja's order of precedence.
 *
 * Filters and tests bind tighter than every binary operator, unary minus tighter than **, and ~
 * tighter than + and -. */
#include "format/jinja/jinja_ast.h"

static af_jexpr *new_expr(af_jparser *p, af_jexpr_kind kind, int line)
{
    af_jexpr *e = af_jparser_take(p, sizeof *e);
    if (e) {
        e->kind = (uint8_t)kind;
        e->line = line;
    }
    return e;
}

static af_jexpr *binary(af_jparser *p, af_jexpr_kind kind, int line, af_jexpr *a, af_jexpr *b)
{
    af_jexpr *e = new_expr(p, kind, line);
    if (e) {
        e->binary.left = a;
        e->binary.right = b;
    }
    return p->failed ? NULL : e;
}

static af_jexpr *constant(af_jparser *p, int line, af_jval v)
{
    af_jexpr *e = new_expr(p, AF_JEXPR_CONST, line);
    if (e)
        e->value = v;
    return e;
}

/* Expressions between brackets, after the opening one; a dict when `values` is not NULL. */
static af_jexpr *parse_items(af_jparser *p, af_jexpr_kind kind, const char *close)
{
    af_jexpr *e = new_expr(p, kind, p->at++->line);
    const bool dict = kind == AF_JEXPR_DICT;
    while (e && !p->failed && !af_jat_op(p, close)) {
        af_jexprs *keys = dict ? &e->dict.keys : &e->items;
        if (keys->n && (!af_jexpect_op(p, ",") || af_jat_op(p, close)))
            break;
        af_jexprs_add(p, keys, af_jparse_expr(p, true));
        if (dict && af_jexpect_op(p, ":"))
            af_jexprs_add(p, &e->dict.values, af_jparse_expr(p, true));
    }
    return af_jexpect_op(p, close) ? e : NULL;
}

static af_jexpr *parse_string(af_jparser *p)
{
    const af_jtoken *t = p->at++;
    af_jstr *s = af_jparser_take(p, sizeof *s);
    if (!s)
        return NULL;
    af_jstr_fill(s, t->p, t->n);
    af_jstr_hash(s); /* the tree is shared by threads: nothing is computed late */
    return constant(p, t->line, af_jstr_v(s));
}

/* A name as written; the caller decides what it means. */
static af_jexpr *parse_bare_name(af_jparser *p)
{
    const af_jtoken *t = p->at;
    if (!af_jexpect(p, AF_JTOKEN_NAME))
        return NULL;
    af_jexpr *e = new_expr(p, AF_JEXPR_NAME, t->line);
    if (e)
        e->name.name = af_jintern(p, t->p, t->n);
    return p->failed ? NULL : e;
}

static af_jexpr *parse_name(af_jparser *p)
{
    const int line = p->at->line;
    for (int upper = 0; upper < 2; upper++) {
        if (af_jskip_name(p, upper ? "True" : "true"))
            return constant(p, line, af_jbool(true));
        if (af_jskip_name(p, upper ? "False" : "false"))
            return constant(p, line, af_jbool(false));
        if (af_jskip_name(p, upper ? "None" : "none"))
            return constant(p, line, af_jnone());
    }
    af_jexpr *e = parse_bare_name(p);
    if (e)
        af_jname_load(p, e->name.name);
    return e;
}

static af_jexpr *parse_primary(af_jparser *p)
{
    const int line = p->at->line;
    if (p->at->type == AF_JTOKEN_NAME)
        return parse_name(p);
    if (p->at->type == AF_JTOKEN_STRING)
        return parse_string(p);
    if (p->at->type == AF_JTOKEN_NUMBER)
        return constant(p, line, p->at++->value);
    if (af_jat_op(p, "["))
        return parse_items(p, AF_JEXPR_LIST, "]");
    if (af_jat_op(p, "{"))
        return parse_items(p, AF_JEXPR_DICT, "}");
    if (!af_jskip_op(p, "("))
        return af_jexpected(p, "an expression");
    af_jexpr *e = af_jat_op(p, ")") ? new_expr(p, AF_JEXPR_TUPLE, line) : af_jparse_tuple(p, true);
    return af_jexpect_op(p, ")") ? e : NULL;
}

static af_jexpr *parse_subscript(af_jparser *p, af_jexpr *on)
{
    const int line = p->at++->line;
    af_jexpr *part[3] = {0};
    if (!af_jat_op(p, ":")) {
        part[0] = af_jparse_expr(p, true);
        if (!p->failed && af_jskip_op(p, "]"))
            return binary(p, AF_JEXPR_ITEM, line, on, part[0]);
    }
    if (!p->failed && af_jat_op(p, ","))
        return af_jsyntax(p, line, "not supported: several subscripts in one bracket");
    for (int i = 1; i < 3 && !p->failed && af_jskip_op(p, ":"); i++)
        if (!af_jat_op(p, ":") && !af_jat_op(p, "]"))
            part[i] = af_jparse_expr(p, true);
    af_jexpr *e = binary(p, AF_JEXPR_SLICE, line, on, NULL);
    if (e)
        memcpy(e->slice.part, part, sizeof part);
    return af_jexpect_op(p, "]") ? e : NULL;
}

static af_jexpr *parse_attribute(af_jparser *p, af_jexpr *on)
{
    const int line = p->at++->line;
    const af_jtoken *t = p->at;
    if (t->type == AF_JTOKEN_NUMBER && t->value.kind == AF_JKIND_INT)
        return binary(p, AF_JEXPR_ITEM, line, on, constant(p, line, p->at++->value));
    if (t->type != AF_JTOKEN_NAME)
        return af_jexpected(p, "name or number");
    p->at++;
    af_jexpr *e = binary(p, AF_JEXPR_ATTR, line, on, NULL);
    if (e)
        e->attr.name = af_jintern(p, t->p, t->n);
    return p->failed ? NULL : e;
}

static void parse_keyword(af_jparser *p, af_jcall_args *a)
{
    const af_jtoken *t = p->at;
    p->at += 2;
    if (a->kw.n == AF_JINJA_ARGS_MAX)
        af_jsyntax(p, t->line, "a call has more than %d arguments", AF_JINJA_ARGS_MAX);
    if (!a->kwname && !p->failed)
        a->kwname = af_jparser_take(p, AF_JINJA_ARGS_MAX * sizeof(af_jstr *));
    if (p->failed)
        return;
    a->kwname[a->kw.n] = af_jintern(p, t->p, t->n);
    for (int i = 0; i < a->kw.n; i++)
        if (a->kwname[i] == a->kwname[a->kw.n])
            af_jsyntax(p, t->line, "keyword argument repeated: %.*s", (int)AF_MIN(t->n, 60), t->p);
    af_jexprs_add(p, &a->kw, af_jparse_expr(p, true));
}

static af_jcall_args *parse_args(af_jparser *p)
{
    const int line = p->at->line;
    af_jcall_args *a = af_jparser_take(p, sizeof *a);
    af_jexpect_op(p, "(");
    for (bool comma = false, ok = true; !p->failed && !af_jat_op(p, ")"); comma = true) {
        if (comma && (!af_jexpect_op(p, ",") || af_jat_op(p, ")")))
            break;
        ok = ok && !a->star_star;
        if (af_jskip_op(p, "*")) {
            ok = ok && !a->star;
            a->star = af_jparse_expr(p, true);
        } else if (af_jskip_op(p, "**")) {
            a->star_star = af_jparse_expr(p, true);
        } else if (p->at->type == AF_JTOKEN_NAME && p->at[1].type == AF_JTOKEN_OP &&
                   p->at[1].n == 1 && p->at[1].p[0] == '=') {
            parse_keyword(p, a);
        } else {
            ok = ok && !a->star && !a->kw.n;
            af_jexprs_add(p, &a->pos, af_jparse_expr(p, true));
        }
        if (!ok || a->pos.n > AF_JINJA_ARGS_MAX)
            af_jsyntax(p, line, "invalid syntax for function call expression");
    }
    return af_jexpect_op(p, ")") ? a : NULL;
}

/* A call, filter or test of `on`, its arguments in parentheses when there are any. */
static af_jexpr *parse_call(af_jparser *p, af_jexpr_kind kind, int line, af_jexpr *on,
                            af_jstr *name)
{
    af_jexpr *e = binary(p, kind, line, on, NULL);
    if (!e)
        return NULL;
    e->call.name = name;
    if (name)
        e->call.func =
            af_jtable_find(kind == AF_JEXPR_TEST ? AF_JTABLE_TEST : AF_JTABLE_FILTER, name);
    if (name && !e->call.func && !p->frame->branches && !p->unknown)
        p->unknown = e;
    if (af_jat_op(p, "("))
        e->call.args = parse_args(p);
    return p->failed ? NULL : e;
}

static af_jexpr *parse_postfix(af_jparser *p, af_jexpr *e)
{
    while (!p->failed) {
        if (af_jat_op(p, "."))
            e = parse_attribute(p, e);
        else if (af_jat_op(p, "["))
            e = parse_subscript(p, e);
        else if (af_jat_op(p, "("))
            e = parse_call(p, AF_JEXPR_CALL, p->at->line, e, NULL);
        else
            return e;
    }
    return NULL;
}

static af_jstr *parse_function_name(af_jparser *p)
{
    const af_jtoken *t = p->at;
    if (!af_jexpect(p, AF_JTOKEN_NAME))
        return NULL;
    if (af_jat_op(p, "."))
        return af_jsyntax(p, t->line, "not supported: a filter or test with a dot in its name");
    return af_jintern(p, t->p, t->n);
}

af_jexpr *af_jparse_filters(af_jparser *p, af_jexpr *on, bool bare)
{
    while (!p->failed && (bare || af_jskip_op(p, "|"))) {
        const int line = p->at->line;
        bare = false;
        af_jstr *name = parse_function_name(p);
        on = name ? parse_call(p, AF_JEXPR_FILTER, line, on, name) : NULL;
    }
    return p->failed ? NULL : on;
}

/* An argument without parentheses: "is divisibleby 3". */
static bool test_takes_arg(const af_jparser *p)
{
    if (p->at->type == AF_JTOKEN_NAME)
        return !af_jat_name(p, "else") && !af_jat_name(p, "or") && !af_jat_name(p, "and");
    return (p->at->type >= AF_JTOKEN_STRING && p->at->type != AF_JTOKEN_OP) || af_jat_op(p, "[") ||
           af_jat_op(p, "{");
}

static af_jexpr *parse_test(af_jparser *p, af_jexpr *on)
{
    const int line = p->at++->line;
    const bool negated = af_jskip_name(p, "not");
    af_jstr *name = parse_function_name(p);
    af_jexpr *e = name ? parse_call(p, AF_JEXPR_TEST, line, on, name) : NULL;
    if (e && !e->call.args && test_takes_arg(p)) {
        if (af_jat_name(p, "is"))
            return af_jsyntax(p, line, "You cannot chain multiple tests with is");
        e->call.args = af_jparser_take(p, sizeof *e->call.args);
        if (e->call.args)
            af_jexprs_add(p, &e->call.args->pos, parse_postfix(p, parse_primary(p)));
    }
    return negated ? binary(p, AF_JEXPR_NOT, line, e, NULL) : p->failed ? NULL : e;
}

static af_jexpr *parse_unary(af_jparser *p, bool with_filter)
{
    const int line = p->at->line;
    if (p->failed)
        return NULL;
    if (++p->depth > AF_TEMPLATE_DEPTH_MAX)
        return af_jsyntax(p, line, "expressions are nested deeper than %d", AF_TEMPLATE_DEPTH_MAX);
    const bool minus = af_jskip_op(p, "-"), plus = !minus && af_jskip_op(p, "+");
    af_jexpr *e = minus || plus ? parse_unary(p, false) : parse_primary(p);
    for (int i = minus ? 1 : plus ? 2 : 0; i > 0; i--) /* +x is -(-x): an error unless a number */
        e = binary(p, AF_JEXPR_NEG, line, e, NULL);
    p->depth--;
    e = parse_postfix(p, e);
    while (with_filter && !p->failed) {
        if (af_jat_op(p, "|"))
            e = af_jparse_filters(p, e, false);
        else if (af_jat_name(p, "is"))
            e = parse_test(p, e);
        else if (af_jat_op(p, "("))
            e = parse_call(p, AF_JEXPR_CALL, p->at->line, e, NULL);
        else
            break;
    }
    return p->failed ? NULL : e;
}

enum { OR, AND, NOT, COMPARE, ADD, CONCAT, MUL, POW, UNARY }; /* loosest first */

static const uint8_t kind_of[] = {
    AF_JEXPR_OR,     AF_JEXPR_AND,    AF_JEXPR_NOT,    AF_JEXPR_COMPARE,
    AF_JEXPR_BINARY, AF_JEXPR_CONCAT, AF_JEXPR_BINARY, AF_JEXPR_BINARY,
};

static const char *const comparisons[] = {"==", "!=", "<", "<=", ">", ">=", "in"}; /* af_jcmp */
static const struct {
    const char *text;
    uint8_t level, op;
} operators[] = {
    {"or", OR, 0},   {"and", AND, 0}, {"+", ADD, '+'},  {"-", ADD, '-'}, {"~", CONCAT, 0},
    {"*", MUL, '*'}, {"/", MUL, '/'}, {"//", MUL, 'f'}, {"%", MUL, '%'}, {"**", POW, 'p'},
};

static bool skip(af_jparser *p, const char *text)
{
    return af_jskip_op(p, text) || af_jskip_name(p, text);
}

/* Takes an operator of that level at the current token. */
static bool take_operator(af_jparser *p, int level, uint8_t *op)
{
    for (uint8_t i = 0; level == COMPARE && i < AF_LEN(comparisons); i++)
        if (skip(p, comparisons[i])) {
            *op = i;
            return true;
        }
    *op = AF_JCMP_NOTIN;
    if (level == COMPARE && af_jskip_name(p, "not")) {
        const bool in = af_jskip_name(p, "in");
        p->at -= !in;
        return in;
    }
    for (size_t i = 0; i < AF_LEN(operators); i++)
        if (operators[i].level == level && skip(p, operators[i].text)) {
            *op = operators[i].op;
            return true;
        }
    return false;
}

/* left OP right: a comparison joins the chain that ends in *last, a concatenation its list. */
static af_jexpr *combine(af_jparser *p, int level, uint8_t op, int line, af_jexpr *left,
                         af_jexpr *right, af_jexpr **last)
{
    if (level == CONCAT) {
        af_jexpr *e = left->kind == AF_JEXPR_CONCAT ? left : new_expr(p, AF_JEXPR_CONCAT, line);
        if (e && e != left)
            af_jexprs_add(p, &e->items, left);
        if (e)
            af_jexprs_add(p, &e->items, right);
        return p->failed ? NULL : e;
    }
    af_jexpr *e = binary(p, (af_jexpr_kind)kind_of[level], line, *last ? NULL : left, right);
    if (!e)
        return NULL;
    e->op = op;
    if (level != COMPARE)
        return e;
    if (*last)
        (*last)->compare.chain = e;
    left = *last ? left : e;
    *last = e;
    return left;
}

static af_jexpr *parse_level(af_jparser *p, int level)
{
    const int line = p->at->line;
    if (level == UNARY)
        return parse_unary(p, true);
    int nots = 0;
    while (level == NOT && af_jskip_name(p, "not"))
        nots++;
    af_jexpr *e = parse_level(p, level + 1), *last = NULL;
    for (uint8_t op; !p->failed && take_operator(p, level, &op);) {
        af_jexpr *right = parse_level(p, level + 1);
        e = p->failed ? NULL : combine(p, level, op, line, e, right, &last);
    }
    for (nots = nots > 1 ? 2 - nots % 2 : nots; nots > 0 && !p->failed; nots--)
        e = binary(p, AF_JEXPR_NOT, line, e, NULL); /* pairs cancel, but leave a bool */
    return e;
}

af_jexpr *af_jparse_expr(af_jparser *p, bool with_cond)
{
    const int line = p->at->line;
    const af_jexpr *unknown = p->unknown;
    if (p->failed)
        return NULL;
    if (++p->depth > AF_TEMPLATE_DEPTH_MAX)
        return af_jsyntax(p, line, "expressions are nested deeper than %d", AF_TEMPLATE_DEPTH_MAX);
    af_jexpr *e = parse_level(p, OR);
    while (with_cond && !p->failed && af_jskip_name(p, "if")) {
        af_jexpr *n = new_expr(p, AF_JEXPR_COND, line);
        if (!n)
            break;
        n->cond.then = e;
        n->cond.test = parse_level(p, OR);
        if (!p->failed && af_jskip_name(p, "else"))
            n->cond.otherwise = af_jparse_expr(p, true);
        p->unknown = unknown; /* guarded: fails when it is reached */
        e = n;
    }
    p->depth--;
    return p->failed ? NULL : e;
}

/* Nothing follows; after a comma also where a target or the items of a loop end. */
static bool ends_tuple(const af_jparser *p, bool comma)
{
    return p->at->type == AF_JTOKEN_VAR_END || p->at->type == AF_JTOKEN_BLOCK_END ||
           af_jat_op(p, ")") ||
           (comma && (af_jat_op(p, "=") || af_jat_name(p, "in") || af_jat_name(p, "recursive")));
}

static af_jexpr *parse_target_item(af_jparser *p, bool with_ns);

/* "a", or a tuple "a, b" of expressions, or of targets when `target` is 't' or 'n' (namespaces). */
static af_jexpr *parse_tuple(af_jparser *p, bool with_cond, char target)
{
    const int line = p->at->line;
    af_jexprs items = {0};
    bool comma = false;
    if (p->failed || ends_tuple(p, false))
        return p->failed ? NULL : af_jexpected(p, "an expression");
    do {
        af_jexprs_add(p, &items,
                      target ? parse_target_item(p, target == 'n') : af_jparse_expr(p, with_cond));
        comma = comma || af_jat_op(p, ",");
    } while (!p->failed && af_jskip_op(p, ",") && !ends_tuple(p, true));
    if (p->failed || !comma)
        return p->failed ? NULL : items.item[0];
    af_jexpr *e = new_expr(p, AF_JEXPR_TUPLE, line);
    if (e)
        e->items = items;
    return e;
}

af_jexpr *af_jparse_tuple(af_jparser *p, bool with_cond) { return parse_tuple(p, with_cond, 0); }

static af_jexpr *parse_target_item(af_jparser *p, bool with_ns)
{
    const int line = p->at->line;
    if (af_jskip_op(p, "(")) {
        if (++p->depth > AF_TEMPLATE_DEPTH_MAX)
            return af_jsyntax(p, line, "targets are nested deeper than %d", AF_TEMPLATE_DEPTH_MAX);
        af_jexpr *e = parse_tuple(p, false, with_ns ? 'n' : 't');
        p->depth--;
        return af_jexpect_op(p, ")") ? e : NULL;
    }
    if (p->at->type != AF_JTOKEN_NAME)
        return af_jsyntax(p, line, "can't assign to this expression");
    af_jexpr *e = parse_bare_name(p);
    if (!e || !with_ns || !af_jskip_op(p, "."))
        return e;
    const af_jexpr *attr = parse_bare_name(p);
    if (!attr)
        return NULL;
    e->kind = AF_JEXPR_NSREF;
    e->name.attr = attr->name.name;
    return e;
}

af_jexpr *af_jparse_target(af_jparser *p, bool with_ns)
{
    return parse_tuple(p, false, with_ns ? 'n' : 't');
}

void af_jparse_params(af_jparser *p, af_jstmt *n)
{
    af_jexpect_op(p, "(");
    while (!p->failed && !af_jat_op(p, ")")) {
        if (n->macro.param.n && !af_jexpect_op(p, ","))
            return;
        af_jexprs_add(p, &n->macro.param, parse_bare_name(p));
        if (!p->failed && af_jskip_op(p, "="))
            af_jexprs_add(p, &n->macro.defaults, af_jparse_expr(p, true));
        else if (n->macro.defaults.n)
            af_jsyntax(p, n->line, "non-default argument follows default argument");
        if (n->macro.param.n > AF_JINJA_ARGS_MAX)
            af_jsyntax(p, n->line, "a macro has more than %d arguments", AF_JINJA_ARGS_MAX);
    }
    af_jexpect_op(p, ")");
}
