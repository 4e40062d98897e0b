/* jinja_literal.c - the leaves of expressions: numbers, strings, names, lists, dicts, parentheses.
 */
#include "format/jinja/jinja.h"

#include <errno.h>

static af_jnode *constant(af_jparser *p, int line, af_jv v)
{
    af_jnode *n = af_jnode_new(p, AF_N_CONST, line);
    if (n)
        n->value = v;
    return n;
}

static af_jnode *parse_list(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_LIST, p->at++->line);
    while (n && !p->failed && !af_jtok_is_op(p->at, AF_S_RBRACKET)) {
        if (n->list.n && !af_jexpect_op(p, AF_S_COMMA))
            break;
        if (af_jtok_is_op(p->at, AF_S_RBRACKET))
            break;
        af_jnode_add(p, n, &n->list, af_jparse_expr(p, true));
    }
    return af_jexpect_op(p, AF_S_RBRACKET) ? n : NULL;
}

static af_jnode *parse_dict(af_jparser *p)
{
    af_jnode *n = af_jnode_new(p, AF_N_DICT, p->at++->line);
    while (n && !p->failed && !af_jtok_is_op(p->at, AF_S_RBRACE)) {
        if (n->list.n && !af_jexpect_op(p, AF_S_COMMA))
            break;
        if (af_jtok_is_op(p->at, AF_S_RBRACE))
            break;
        af_jnode_add(p, n, &n->list, af_jparse_expr(p, true));
        if (!af_jexpect_op(p, AF_S_COLON))
            break;
        af_jnode_add(p, n, &n->list2, af_jparse_expr(p, true));
    }
    return af_jexpect_op(p, AF_S_RBRACE) ? n : NULL;
}

static af_jnode *parse_number(af_jparser *p)
{
    const af_jtoken *t = p->at++;
    char text[64];
    uint64_t n = 0;
    for (uint64_t i = 0; i < t->n; i++) {
        if (t->p[i] == '_')
            continue;
        if (n + 1 >= sizeof text)
            return af_jsyntax(p, t->line, "a number has too many digits");
        text[n++] = t->p[i];
    }
    text[n] = 0;
    errno = 0;
    if (t->type == AF_T_FLOAT)
        return constant(p, t->line, af_jfloat(strtod(text, NULL)));
    const char radix = (char)(n > 1 ? text[1] | 32 : 0);
    const int base = radix == 'x' ? 16 : radix == 'o' ? 8 : radix == 'b' ? 2 : 10;
    const int64_t v = strtoll(base == 10 ? text : text + 2, NULL, base);
    if (errno)
        return af_jsyntax(p, t->line, "the integer %s does not fit in 64 bits", text);
    if (base == 10 && text[0] == '0' && strspn(text, "0") != n)
        return af_jsyntax(p, t->line, "the integer %s begins with a zero", text);
    return constant(p, t->line, af_jint(v));
}

static af_jnode *parse_strings(af_jparser *p)
{
    const int line = p->at->line;
    af_buf b = {0};
    for (; p->at->type == AF_T_STRING; p->at++)
        af_buf_add(&b, p->at->p, p->at->n);
    af_jstr *s = af_arena_take(&p->t->mem, sizeof *s);
    char *text = b.bad || !s ? NULL : af_arena_strndup(&p->t->mem, b.len ? b.data : "", b.len);
    const bool ok = text && af_jstr_fill(s, text, b.len);
    af_buf_clear(&b);
    if (!ok)
        return af_jsyntax(p, line, "the template needs too much memory");
    af_jstr_hash(s); /* the tree is shared by threads: nothing is computed late */
    return constant(p, line, (af_jv){.kind = AF_J_STR, .s = s});
}

static af_jnode *parse_name(af_jparser *p, bool with_ns)
{
    const af_jtoken *t = p->at++;
    if (af_jtok_is_name(t, "true") || af_jtok_is_name(t, "True"))
        return constant(p, t->line, af_jbool(true));
    if (af_jtok_is_name(t, "false") || af_jtok_is_name(t, "False"))
        return constant(p, t->line, af_jbool(false));
    if (af_jtok_is_name(t, "none") || af_jtok_is_name(t, "None"))
        return constant(p, t->line, af_jnone());
    const bool ns = with_ns && af_jskip_op(p, AF_S_DOT);
    af_jnode *n = af_jnode_new(p, ns ? AF_N_NSREF : AF_N_NAME, t->line);
    if (!n)
        return NULL;
    n->name = af_jintern(p, t->p, t->n);
    if (ns) {
        const af_jtoken *attr = p->at;
        if (!af_jexpect(p, AF_T_NAME))
            return NULL;
        n->name2 = af_jintern(p, attr->p, attr->n);
    }
    return p->failed ? NULL : n;
}

af_jnode *af_jparse_primary(af_jparser *p, bool with_ns)
{
    char text[80];
    if (p->failed)
        return NULL;
    switch (p->at->type) {
    case AF_T_NAME:
        return parse_name(p, with_ns);
    case AF_T_STRING:
        return parse_strings(p);
    case AF_T_INT:
    case AF_T_FLOAT:
        return parse_number(p);
    default:
        break;
    }
    if (af_jtok_is_op(p->at, AF_S_LBRACKET))
        return parse_list(p);
    if (af_jtok_is_op(p->at, AF_S_LBRACE))
        return parse_dict(p);
    if (!af_jtok_is_op(p->at, AF_S_LPAREN))
        return af_jsyntax(p, p->at->line, "unexpected %s", af_jtok_text(p->at, text));
    p->at++;
    af_jnode *n = af_jparse_tuple(p, true, NULL, true);
    return af_jexpect_op(p, AF_S_RPAREN) ? n : NULL;
}
