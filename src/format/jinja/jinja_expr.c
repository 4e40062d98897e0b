/* jinja_expr.c - expressions of a template: recursive descent in Jinja's order of precedence.
 *
 * Filters and tests bind tighter than every binary operator, unary minus tighter than **, and ~
 * tighter than + and -. */
#include "format/jinja/jinja.h"

static af_jnode *parse_unary(af_jparser *p, bool with_filter);
static af_jnode *parse_postfix(af_jparser *p, af_jnode *n);

/* A tree that is too high would exhaust the stack of whoever walks it. */
void af_jnode_grow(af_jparser *p, af_jnode *n, const af_jnode *child)
{
    if (!n || !child)
        return;
    n->height = AF_MAX(n->height, child->height + 1);
    if (n->height > AF_JINJA_HEIGHT_MAX)
        af_jsyntax(p, n->line, "an expression has more than %d levels", AF_JINJA_HEIGHT_MAX);
}

void af_jnode_add(af_jparser *p, af_jnode *n, af_jnodes *list, af_jnode *child)
{
    af_jnodes_add(p, list, child);
    af_jnode_grow(p, n, child);
}

static void grow_by_args(af_jparser *p, af_jnode *n)
{
    const af_jcallargs *a = n->args;
    for (int i = 0; a && i < a->pos.n; i++)
        af_jnode_grow(p, n, a->pos.item[i]);
    for (int i = 0; a && i < a->kw.n; i++)
        af_jnode_grow(p, n, a->kw.item[i]);
    if (a) {
        af_jnode_grow(p, n, a->dyn_pos);
        af_jnode_grow(p, n, a->dyn_kw);
    }
}

static af_jnode *binary(af_jparser *p, af_jop op, int line, af_jnode *a, af_jnode *b)
{
    af_jnode *n = af_jnode_new(p, op, line);
    if (n) {
        n->a = a;
        n->b = b;
        af_jnode_grow(p, n, a);
        af_jnode_grow(p, n, b);
    }
    return p->failed ? NULL : n;
}

static af_jnode *parse_pow(af_jparser *p)
{
    const int line = p->at->line;
    af_jnode *left = parse_unary(p, true);
    while (!p->failed && af_jskip_op(p, AF_S_POW))
        left = binary(p, AF_N_POW, line, left, parse_unary(p, true));
    return left;
}

static af_jnode *parse_math2(af_jparser *p)
{
    const int line = p->at->line;
    af_jnode *left = parse_pow(p);
    while (!p->failed) {
        const af_jop op = af_jtok_is_op(p->at, AF_S_MUL)        ? AF_N_MUL
                          : af_jtok_is_op(p->at, AF_S_DIV)      ? AF_N_DIV
                          : af_jtok_is_op(p->at, AF_S_FLOORDIV) ? AF_N_FLOORDIV
                          : af_jtok_is_op(p->at, AF_S_MOD)      ? AF_N_MOD
                                                                : AF_N_DATA;
        if (op == AF_N_DATA)
            break;
        p->at++;
        left = binary(p, op, line, left, parse_pow(p));
    }
    return left;
}

static af_jnode *parse_concat(af_jparser *p)
{
    const int line = p->at->line;
    af_jnode *first = parse_math2(p);
    if (p->failed || !af_jtok_is_op(p->at, AF_S_TILDE))
        return first;
    af_jnode *n = af_jnode_new(p, AF_N_CONCAT, line);
    if (!n)
        return NULL;
    af_jnode_add(p, n, &n->list, first);
    while (!p->failed && af_jskip_op(p, AF_S_TILDE))
        af_jnode_add(p, n, &n->list, parse_math2(p));
    return n;
}

static af_jnode *parse_math1(af_jparser *p)
{
    const int line = p->at->line;
    af_jnode *left = parse_concat(p);
    while (!p->failed && (af_jtok_is_op(p->at, AF_S_ADD) || af_jtok_is_op(p->at, AF_S_SUB))) {
        const af_jop op = p->at++->op == AF_S_ADD ? AF_N_ADD : AF_N_SUB;
        left = binary(p, op, line, left, parse_concat(p));
    }
    return left;
}

/* The comparison at the current token, or -1; eats it. */
static int comparison(af_jparser *p)
{
    static const struct {
        af_jsym sym;
        int cmp;
    } ops[] = {
        {AF_S_EQ, AF_CMP_EQ}, {AF_S_NE, AF_CMP_NE}, {AF_S_LT, AF_CMP_LT},
        {AF_S_LE, AF_CMP_LE}, {AF_S_GT, AF_CMP_GT}, {AF_S_GE, AF_CMP_GE},
    };
    for (size_t i = 0; i < AF_LEN(ops); i++)
        if (af_jskip_op(p, ops[i].sym))
            return ops[i].cmp;
    if (af_jskip_name(p, "in"))
        return AF_CMP_IN;
    if (af_jtok_is_name(p->at, "not") && af_jtok_is_name(p->at + 1, "in")) {
        p->at += 2;
        return AF_CMP_NOTIN;
    }
    return -1;
}

static af_jnode *parse_compare(af_jparser *p)
{
    const int line = p->at->line;
    af_jnode *first = parse_math1(p);
    af_jnode *chain = NULL; /* a = first operand; list = one node per operator, cmp and a */
    for (int cmp; !p->failed && (cmp = comparison(p)) >= 0;) {
        if (!chain && !(chain = binary(p, AF_N_COMPARE, line, first, NULL)))
            return NULL;
        af_jnode *operand = binary(p, AF_N_COMPARE, line, parse_math1(p), NULL);
        if (!operand)
            return NULL;
        operand->cmp = (uint8_t)cmp;
        af_jnode_add(p, chain, &chain->list, operand);
    }
    return chain ? chain : first;
}

static af_jnode *parse_not(af_jparser *p)
{
    const int line = p->at->line;
    if (!af_jtok_is_name(p->at, "not"))
        return parse_compare(p);
    int nots = 0;
    while (af_jskip_name(p, "not"))
        nots++;
    af_jnode *n = parse_compare(p);
    for (nots = nots % 2 ? 1 : 2; nots > 0 && !p->failed;
         nots--) /* pairs cancel, but give a bool */
        n = binary(p, AF_N_NOT, line, n, NULL);
    return n;
}

static af_jnode *parse_and(af_jparser *p)
{
    const int line = p->at->line;
    af_jnode *left = parse_not(p);
    while (!p->failed && af_jskip_name(p, "and"))
        left = binary(p, AF_N_AND, line, left, parse_not(p));
    return left;
}

static af_jnode *parse_or(af_jparser *p)
{
    const int line = p->at->line;
    af_jnode *left = parse_and(p);
    while (!p->failed && af_jskip_name(p, "or"))
        left = binary(p, AF_N_OR, line, left, parse_and(p));
    return left;
}

static af_jnode *parse_cond(af_jparser *p)
{
    const int line = p->at->line;
    af_jnode *e = parse_or(p);
    while (!p->failed && af_jskip_name(p, "if")) {
        af_jnode *test = parse_or(p);
        af_jnode *n = binary(p, AF_N_COND, line, e, test);
        if (n && af_jskip_name(p, "else"))
            n->c = af_jparse_expr(p, true);
        af_jnode_grow(p, n, n ? n->c : NULL);
        e = n;
    }
    return p->failed ? NULL : e;
}

af_jnode *af_jparse_expr(af_jparser *p, bool with_cond)
{
    if (p->failed)
        return NULL;
    if (++p->depth > AF_TEMPLATE_DEPTH_MAX)
        return af_jsyntax(p, p->at->line, "expressions are nested deeper than %d",
                          AF_TEMPLATE_DEPTH_MAX);
    af_jnode *n = with_cond ? parse_cond(p) : parse_or(p);
    p->depth--;
    return n;
}

static af_jnode *tuple_of_nodes(af_jparser *p, int line, af_jnodes items)
{
    af_jnode *n = af_jnode_new(p, AF_N_TUPLE, line);
    if (n)
        n->list = items;
    for (int i = 0; n && i < items.n; i++)
        af_jnode_grow(p, n, items.item[i]);
    return n;
}

static bool tuple_ends(const af_jparser *p, const char *ends)
{
    return p->at->type == AF_T_VAR_END || p->at->type == AF_T_BLOCK_END ||
           af_jtok_is_op(p->at, AF_S_RPAREN) || (ends && af_jtok_is_name(p->at, ends));
}

typedef enum tuple_of { EXPR, EXPR_NO_COND, TARGET, TARGET_NS } tuple_of;

static af_jnode *parse_items(af_jparser *p, tuple_of of, const char *ends, bool parens)
{
    const int line = p->at->line;
    af_jnodes items = {0};
    bool is_tuple = false;
    char text[80];
    while (!p->failed) {
        if (items.n && !af_jexpect_op(p, AF_S_COMMA))
            return NULL;
        if (tuple_ends(p, ends))
            break;
        af_jnodes_add(p, &items,
                      of == TARGET || of == TARGET_NS ? af_jparse_primary(p, of == TARGET_NS)
                                                      : af_jparse_expr(p, of == EXPR));
        if (!af_jtok_is_op(p->at, AF_S_COMMA))
            break;
        is_tuple = true;
    }
    if (p->failed)
        return NULL;
    if (!is_tuple && items.n)
        return items.item[0];
    if (!is_tuple && !parens)
        return af_jsyntax(p, p->at->line, "Expected an expression, got %s",
                          af_jtok_text(p->at, text));
    return tuple_of_nodes(p, line, items);
}

af_jnode *af_jparse_tuple(af_jparser *p, bool with_cond, const char *ends, bool parens)
{
    return parse_items(p, with_cond ? EXPR : EXPR_NO_COND, ends, parens);
}

static bool can_assign(const af_jnode *n)
{
    if (n->op != AF_N_TUPLE)
        return n->op == AF_N_NAME || n->op == AF_N_NSREF;
    for (int i = 0; i < n->list.n; i++)
        if (!can_assign(n->list.item[i]))
            return false;
    return true;
}

af_jnode *af_jparse_target(af_jparser *p, const char *ends, bool with_ns)
{
    const int line = p->at->line;
    af_jnode *n = parse_items(p, with_ns ? TARGET_NS : TARGET, ends, false);
    if (n && !can_assign(n))
        return af_jsyntax(p, line, "can't assign to this expression");
    return n;
}

/* One subscript: an expression or a slice (a, b, c may be NULL). */
static af_jnode *parse_subscribed(af_jparser *p)
{
    const int line = p->at->line;
    af_jnode *part[3] = {0};
    if (!af_jtok_is_op(p->at, AF_S_COLON)) {
        part[0] = af_jparse_expr(p, true);
        if (p->failed || !af_jtok_is_op(p->at, AF_S_COLON))
            return part[0];
    }
    for (int i = 1; i < 3 && !p->failed && af_jskip_op(p, AF_S_COLON); i++)
        if (!af_jtok_is_op(p->at, AF_S_COLON) && !af_jtok_is_op(p->at, AF_S_RBRACKET) &&
            !af_jtok_is_op(p->at, AF_S_COMMA))
            part[i] = af_jparse_expr(p, true);
    af_jnode *n = binary(p, AF_N_SLICE, line, part[0], part[1]);
    if (n)
        n->c = part[2];
    af_jnode_grow(p, n, part[2]);
    return n;
}

static af_jnode *parse_subscript(af_jparser *p, af_jnode *on)
{
    const int line = p->at->line;
    if (af_jskip_op(p, AF_S_DOT)) {
        const af_jtoken *t = p->at;
        if (t->type == AF_T_INT)
            return binary(p, AF_N_GETITEM, line, on, af_jparse_primary(p, false));
        if (t->type != AF_T_NAME)
            return af_jsyntax(p, t->line, "expected name or number");
        p->at++;
        af_jnode *n = binary(p, AF_N_GETATTR, line, on, NULL);
        if (n)
            n->name = af_jintern(p, t->p, t->n);
        return n;
    }
    p->at++;
    af_jnodes args = {0};
    while (!p->failed && !af_jtok_is_op(p->at, AF_S_RBRACKET)) {
        if (args.n && !af_jexpect_op(p, AF_S_COMMA))
            break;
        af_jnodes_add(p, &args, parse_subscribed(p));
    }
    if (!af_jexpect_op(p, AF_S_RBRACKET))
        return NULL;
    if (args.n == 1)
        return binary(p, AF_N_GETITEM, line, on, args.item[0]);
    return binary(p, AF_N_GETITEM, line, on, tuple_of_nodes(p, line, args));
}

static void parse_keyword(af_jparser *p, af_jcallargs *a)
{
    const af_jtoken *name = p->at;
    p->at += 2;
    if (a->kw.n == AF_JINJA_ARGS_MAX) {
        af_jsyntax(p, name->line, "a call has more than %d arguments", AF_JINJA_ARGS_MAX);
        return;
    }
    a->kwname[a->kw.n] = af_jintern(p, name->p, name->n);
    for (int i = 0; i < a->kw.n; i++)
        if (a->kwname[i] == a->kwname[a->kw.n])
            af_jsyntax(p, name->line, "keyword argument repeated: %.*s", (int)AF_MIN(name->n, 60),
                       name->p);
    af_jnodes_add(p, &a->kw, af_jparse_expr(p, true));
}

static af_jcallargs *parse_call_args(af_jparser *p)
{
    const int line = p->at->line;
    af_jcallargs *a = af_arena_take(&p->t->mem, sizeof *a);
    if (a)
        a->kwname = af_arena_take(&p->t->mem, AF_JINJA_ARGS_MAX * sizeof(af_jstr *));
    if (!a || !a->kwname) {
        af_jsyntax(p, line, "the template needs too much memory");
        return NULL;
    }
    af_jexpect_op(p, AF_S_LPAREN);
    bool comma = false, ok = true;
    while (!p->failed && !af_jtok_is_op(p->at, AF_S_RPAREN)) {
        if (comma && (!af_jexpect_op(p, AF_S_COMMA) || af_jtok_is_op(p->at, AF_S_RPAREN)))
            break;
        comma = true;
        if (af_jskip_op(p, AF_S_MUL)) {
            ok = ok && !a->dyn_pos && !a->dyn_kw;
            a->dyn_pos = af_jparse_expr(p, true);
        } else if (af_jskip_op(p, AF_S_POW)) {
            ok = ok && !a->dyn_kw;
            a->dyn_kw = af_jparse_expr(p, true);
        } else if (p->at->type == AF_T_NAME && af_jtok_is_op(p->at + 1, AF_S_ASSIGN)) {
            ok = ok && !a->dyn_kw;
            parse_keyword(p, a);
        } else {
            ok = ok && !a->dyn_pos && !a->dyn_kw && !a->kw.n;
            af_jnodes_add(p, &a->pos, af_jparse_expr(p, true));
        }
        if (!ok || a->pos.n > AF_JINJA_ARGS_MAX)
            af_jsyntax(p, line, "invalid syntax for function call expression");
    }
    return af_jexpect_op(p, AF_S_RPAREN) ? a : NULL;
}

static af_jnode *parse_call(af_jparser *p, af_jnode *on)
{
    af_jnode *n = binary(p, AF_N_CALL, p->at->line, on, NULL);
    if (n) {
        n->args = parse_call_args(p);
        grow_by_args(p, n);
    }
    return p->failed ? NULL : n;
}

static af_jnode *parse_postfix(af_jparser *p, af_jnode *n)
{
    while (!p->failed) {
        if (af_jtok_is_op(p->at, AF_S_DOT) || af_jtok_is_op(p->at, AF_S_LBRACKET))
            n = parse_subscript(p, n);
        else if (af_jtok_is_op(p->at, AF_S_LPAREN))
            n = parse_call(p, n);
        else
            return n;
    }
    return NULL;
}

/* "name" or "a.b" behind | or is. */
static af_jstr *parse_dotted(af_jparser *p)
{
    char text[128];
    uint64_t n = 0;
    do {
        const af_jtoken *t = p->at;
        if (!af_jexpect(p, AF_T_NAME))
            return NULL;
        if (n + t->n + 2 > sizeof text) {
            af_jsyntax(p, t->line, "the name of a filter or test is too long");
            return NULL;
        }
        if (n)
            text[n++] = '.';
        memcpy(text + n, t->p, t->n);
        n += t->n;
    } while (af_jskip_op(p, AF_S_DOT));
    return af_jintern(p, text, n);
}

af_jnode *af_jparse_filter(af_jparser *p, af_jnode *on, bool inline_first)
{
    while (!p->failed && (inline_first || af_jskip_op(p, AF_S_PIPE))) {
        inline_first = false;
        af_jnode *n = binary(p, AF_N_FILTER, p->at->line, on, NULL);
        if (!n || !(n->name = parse_dotted(p)))
            return NULL;
        n->func = af_jfilter_find(n->name);
        if (!p->failed && af_jtok_is_op(p->at, AF_S_LPAREN))
            n->args = parse_call_args(p);
        grow_by_args(p, n);
        on = n;
    }
    return p->failed ? NULL : on;
}

static bool test_takes_arg(const af_jparser *p)
{
    const af_jtoken *t = p->at;
    if (t->type == AF_T_NAME)
        return !af_jtok_is_name(t, "else") && !af_jtok_is_name(t, "or") &&
               !af_jtok_is_name(t, "and");
    return t->type == AF_T_STRING || t->type == AF_T_INT || t->type == AF_T_FLOAT ||
           af_jtok_is_op(t, AF_S_LBRACKET) || af_jtok_is_op(t, AF_S_LBRACE);
}

static af_jnode *parse_test(af_jparser *p, af_jnode *on)
{
    af_jnode *n = binary(p, AF_N_TEST, p->at++->line, on, NULL);
    const bool negated = af_jskip_name(p, "not");
    if (!n || !(n->name = parse_dotted(p)))
        return NULL;
    n->func = af_jtest_find(n->name);
    if (!p->failed && af_jtok_is_op(p->at, AF_S_LPAREN)) {
        n->args = parse_call_args(p);
    } else if (!p->failed && test_takes_arg(p)) {
        if (af_jtok_is_name(p->at, "is"))
            return af_jsyntax(p, n->line, "You cannot chain multiple tests with is");
        n->args = af_arena_take(&p->t->mem, sizeof *n->args);
        if (!n->args)
            return af_jsyntax(p, n->line, "the template needs too much memory");
        af_jnodes_add(p, &n->args->pos, parse_postfix(p, af_jparse_primary(p, false)));
    }
    grow_by_args(p, n);
    return negated ? binary(p, AF_N_NOT, n->line, n, NULL) : p->failed ? NULL : n;
}

static af_jnode *parse_unary(af_jparser *p, bool with_filter)
{
    const int line = p->at->line;
    if (p->failed)
        return NULL;
    if (++p->depth > AF_TEMPLATE_DEPTH_MAX)
        return af_jsyntax(p, line, "expressions are nested deeper than %d", AF_TEMPLATE_DEPTH_MAX);
    af_jnode *n = af_jskip_op(p, AF_S_SUB) ? binary(p, AF_N_NEG, line, parse_unary(p, false), NULL)
                  : af_jskip_op(p, AF_S_ADD)
                      ? binary(p, AF_N_POS, line, parse_unary(p, false), NULL)
                      : af_jparse_primary(p, false);
    p->depth--;
    n = parse_postfix(p, n);
    while (with_filter && !p->failed) {
        if (af_jtok_is_op(p->at, AF_S_PIPE))
            n = af_jparse_filter(p, n, false);
        else if (af_jtok_is_name(p->at, "is"))
            n = parse_test(p, n);
        else if (af_jtok_is_op(p->at, AF_S_LPAREN))
            n = parse_call(p, n);
        else
            break;
    }
    return p->failed ? NULL : n;
}
