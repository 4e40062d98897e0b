/* jinja_text.c - str() and repr() of values, and HTML escaping. */
#include "format/jinja/jinja.h"

#include <math.h>

void af_jfloat_text(af_buf *b, double f)
{
    char digits[40];
    if (isnan(f)) {
        af_buf_str(b, "nan");
        return;
    }
    if (isinf(f)) {
        af_buf_str(b, f < 0 ? "-inf" : "inf");
        return;
    }
    for (int precision = 1; precision <= 17; precision++) { /* the shortest that reads back */
        snprintf(digits, sizeof digits, "%.*e", precision - 1, f);
        if (strtod(digits, NULL) == f)
            break;
    }
    char *e = strchr(digits, 'e');
    const int exp = (int)strtol(e + 1, NULL, 10);
    *e = 0;
    char *mantissa = digits + (digits[0] == '-');
    if (mantissa != digits)
        af_buf_char(b, '-');
    char all[24];
    size_t n = 0;
    for (const char *p = mantissa; *p && n < sizeof all - 1; p++)
        if (*p != '.')
            all[n++] = *p;
    all[n] = 0;
    if (exp < -4 || exp >= 16) {
        af_buf_char(b, all[0]);
        if (n > 1)
            af_buf_printf(b, ".%s", all + 1);
        af_buf_printf(b, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
        return;
    }
    if (exp < 0) {
        af_buf_str(b, "0.");
        for (int i = -1; i > exp; i--)
            af_buf_char(b, '0');
        af_buf_str(b, all);
        return;
    }
    for (int i = 0; i <= exp; i++)
        af_buf_char(b, (size_t)i < n ? all[i] : '0');
    af_buf_char(b, '.');
    af_buf_str(b, n > (size_t)exp + 1 ? all + exp + 1 : "0");
}

static void repr_char(af_buf *b, uint32_t cp, char quote)
{
    if (cp == (uint32_t)quote || cp == '\\') {
        af_buf_char(b, '\\');
        af_buf_char(b, (char)cp);
    } else if (cp == '\n' || cp == '\r' || cp == '\t') {
        af_buf_str(b, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
    } else if (af_juni_printable(cp)) {
        af_buf_utf8(b, cp);
    } else {
        af_buf_printf(b, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
}

static void repr_str(af_buf *b, const af_jstr *s)
{
    const bool single = memchr(s->p, '\'', s->n) != NULL;
    const char quote = single && !memchr(s->p, '"', s->n) ? '"' : '\'';
    af_buf_char(b, quote);
    for (const char *p = s->p, *end = s->p + s->n; p < end;)
        repr_char(b, af_jutf8_next(&p), quote);
    af_buf_char(b, quote);
}

static void repr_list(af_jinja *j, af_buf *b, const af_jlist *l, const char *open,
                      const char *close)
{
    af_buf_str(b, open);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        if (i)
            af_buf_str(b, ", ");
        af_jrepr(j, b, l->item[i]);
    }
    if (*open == '(' && l->n == 1)
        af_buf_char(b, ',');
    af_buf_str(b, close);
}

static void repr_dict(af_jinja *j, af_buf *b, const af_jdict *d)
{
    af_buf_char(b, '{');
    for (int64_t i = 0; i < d->n && !j->failed; i++) {
        if (i)
            af_buf_str(b, ", ");
        af_jrepr(j, b, d->pair[i].key);
        af_buf_str(b, ": ");
        af_jrepr(j, b, d->pair[i].val);
    }
    af_buf_char(b, '}');
}

static void repr_view(af_jinja *j, af_buf *b, af_jv v)
{
    const char what = v.view->what;
    af_buf_str(b, what == 'k' ? "dict_keys(" : what == 'v' ? "dict_values(" : "dict_items(");
    repr_list(j, b, af_jitems(j, v), "[", "])");
}

static void repr_range(af_buf *b, const af_jrange *r)
{
    af_buf_printf(b, "range(%" PRId64 ", %" PRId64, r->start, r->stop);
    if (r->step != 1)
        af_buf_printf(b, ", %" PRId64, r->step);
    af_buf_char(b, ')');
}

static void repr_object(af_jinja *j, af_buf *b, af_jv v)
{
    switch ((af_jkind)v.kind) {
    case AF_J_NS:
        af_buf_str(b, "<Namespace ");
        repr_dict(j, b, v.d);
        af_buf_char(b, '>');
        break;
    case AF_J_LOOP:
        af_buf_printf(b, "<LoopContext %" PRId64 "/%" PRId64 ">", v.loop->at + 1, v.loop->items->n);
        break;
    case AF_J_FUNC: /* Python shows addresses here; nobody can depend on them */
        af_buf_printf(b, "<function %s>", v.func->name);
        break;
    case AF_J_METHOD:
        af_buf_printf(b, "<built-in method %s of %s object>", v.method->func->name,
                      af_jtype(v.method->self));
        break;
    case AF_J_MACRO:
        af_buf_str(b, "<Macro>");
        break;
    default:
        af_buf_printf(b, "<%s object>", af_jtype(v));
        break;
    }
}

void af_jrepr(af_jinja *j, af_buf *b, af_jv v)
{
    if (b->bad)
        af_jfail(j, "a text has more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
    if (!af_jenter(j))
        return;
    switch ((af_jkind)v.kind) {
    case AF_J_UNDEF:
        af_buf_str(b, "Undefined");
        break;
    case AF_J_NONE:
        af_buf_str(b, "None");
        break;
    case AF_J_BOOL:
        af_buf_str(b, v.b ? "True" : "False");
        break;
    case AF_J_INT:
        af_buf_printf(b, "%" PRId64, v.i);
        break;
    case AF_J_FLOAT:
        af_jfloat_text(b, v.f);
        break;
    case AF_J_STR:
        if (v.markup)
            af_buf_str(b, "Markup(");
        repr_str(b, v.s);
        if (v.markup)
            af_buf_char(b, ')');
        break;
    case AF_J_LIST:
        repr_list(j, b, v.l, "[", "]");
        break;
    case AF_J_TUPLE:
        repr_list(j, b, v.l, "(", ")");
        break;
    case AF_J_DICT:
        repr_dict(j, b, v.d);
        break;
    case AF_J_VIEW:
        repr_view(j, b, v);
        break;
    case AF_J_RANGE:
        repr_range(b, v.r);
        break;
    default:
        repr_object(j, b, v);
        break;
    }
    af_jleave(j);
}

void af_jprint(af_jinja *j, af_buf *b, af_jv v)
{
    if (v.kind == AF_J_STR)
        af_buf_add(b, v.s->p, v.s->n);
    else if (v.kind != AF_J_UNDEF)
        af_jrepr(j, b, v);
}

af_jv af_jtostr(af_jinja *j, af_jv v)
{
    if (v.kind == AF_J_STR)
        return af_jmark(v, false);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_jprint(j, &b, v);
    return af_jstr_take(j, &b);
}

af_jv af_jsoftstr(af_jinja *j, af_jv v) { return v.kind == AF_J_STR ? v : af_jtostr(j, v); }

af_jv af_jescape(af_jinja *j, af_jv v)
{
    if (v.kind == AF_J_STR && v.markup)
        return v;
    const af_jstr *s = af_jtostr(j, v).s;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (uint64_t i = 0; i < s->n; i++) {
        const char c = s->p[i];
        const char *as = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : NULL;
        if (as)
            af_buf_str(&b, as);
        else
            af_buf_char(&b, c);
    }
    return af_jmark(af_jstr_take(j, &b), true);
}
