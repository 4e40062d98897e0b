/* jinja_format.c - "..." % values and "...".format(values). Both put values in fields. */
#include "format/jinja/jinja.h"

#include "format/text/python_text.h"

#include <math.h>

/* The character an integer or a string of one character stands for; false for anything else. */
static bool char_field(af_buf *b, const af_py_spec *s, af_jval v)
{
    af_buf one = {0};
    if (af_jis_int(v) && (uint64_t)af_jinteger(v) <= 0x10ffff && (af_jinteger(v) >> 11) != 0x1b)
        af_buf_utf8(&one, (uint32_t)af_jinteger(v));
    else if (v.kind == AF_JKIND_STR && v.s->cps == 1)
        af_buf_add(&one, v.s->p, v.s->n);
    const bool ok = one.len > 0;
    if (ok)
        af_py_str_field(b, s, one.data, one.len);
    af_buf_clear(&one);
    return ok;
}

typedef struct percent {
    af_jinja *j;
    af_buf *b;
    af_jval args;
    int64_t used; /* of a tuple; of a single value 0 or 1 */
    bool markup;
    const char *p, *end; /* what remains of the format */
} percent;

static af_jval next_arg(percent *x)
{
    const bool tuple = x->args.kind == AF_JKIND_TUPLE;
    if (x->used >= (tuple ? x->args.l->n : 1))
        return af_jfail(x->j, "not enough arguments for format string");
    return tuple ? x->args.l->item[x->used++] : (x->used++, x->args);
}

static int64_t star_or_number(percent *x)
{
    if (x->p == x->end || *x->p != '*')
        return af_py_digits(&x->p, x->end);
    x->p++;
    const af_jval v = next_arg(x);
    if (!af_jis_int(v))
        af_jfail(x->j, "* in a format expects an integer");
    return x->j->failed ? 0 : af_jinteger(v);
}

static af_jval mapping_arg(percent *x)
{
    const char *from = ++x->p;
    const char *close = memchr(from, ')', (size_t)(x->end - from));
    if (!close)
        return af_jfail(x->j, "incomplete format key");
    if (x->args.kind != AF_JKIND_DICT)
        return af_jfail(x->j, "format requires a mapping");
    x->p = close + 1;
    const af_jval key = af_jstr_new(x->j, from, (uint64_t)(close - from));
    const af_jval *v = af_jdict_get(x->j, x->args.d, key);
    return v ? *v : af_jfail(x->j, "the format names '%s', which is not in the mapping", key.s->p);
}

/* Flags, width and precision. */
static void percent_spec(percent *x, af_py_spec *s, bool *zero)
{
    bool left = false;
    for (; x->p < x->end && *x->p && strchr("#0- +", *x->p); x->p++) {
        s->alt = s->alt || *x->p == '#';
        *zero = *zero || *x->p == '0';
        left = left || *x->p == '-';
        if (*x->p == '+' || (*x->p == ' ' && s->sign != '+'))
            s->sign = *x->p;
    }
    s->width = star_or_number(x);
    s->align = left || s->width < 0 ? '<' : '>';
    s->width = s->width < 0 ? -s->width : s->width;
    if (x->p < x->end && *x->p == '.') {
        x->p++;
        const int64_t n = star_or_number(x);
        s->precision = AF_MAX(n, 0);
    }
    if (s->width >= AF_PY_FIELD_MAX || s->precision >= AF_PY_FIELD_MAX)
        af_jfail(x->j, "a field is wider than %d", AF_PY_FIELD_MAX);
}

static void percent_int(percent *x, af_py_spec *s, af_jval v)
{
    if (v.kind == AF_JKIND_FLOAT && s->type == 'd' && isfinite(v.f) && fabs(v.f) < 9e18)
        v = af_jint((int64_t)v.f);
    if (!af_jis_int(v))
        af_jfail(x->j, "%%%c format: a number is required, not %s", s->type, af_jtype(v));
    else
        af_py_int_field(x->b, s, af_jinteger(v), s->precision);
}

static void percent_text(percent *x, const af_py_spec *s, af_jval v)
{
    if (s->type == 's') {
        v = x->markup ? af_jescape(x->j, v) : af_jtostr(x->j, v);
    } else {
        af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
        af_jrepr(x->j, &b, v);
        v = af_jstr_take(x->j, &b);
    }
    af_py_str_field(x->b, s, v.s->p, v.s->n);
}

static void conversion(percent *x)
{
    af_py_spec s = {.fill = ' ', .precision = -1};
    bool zero = false;
    af_jval v = x->p < x->end && *x->p == '(' ? mapping_arg(x) : af_jmissing();
    percent_spec(x, &s, &zero);
    const char c = x->p < x->end ? *x->p++ : 0;
    if (c == '%') {
        af_buf_char(x->b, '%');
        return;
    }
    if (!c || !strchr("diouxXeEfFgGcrsa", c))
        af_jfail(x->j, "unsupported or incomplete format character '%.*s'", c != 0, &c);
    if (v.kind == AF_JKIND_MISSING && !x->j->failed)
        v = next_arg(x);
    if (x->j->failed)
        return;
    s.type = c == 'i' || c == 'u' ? 'd' : c;
    if (zero && s.align == '>' && !strchr("crsa", c)) {
        s.align = '=';
        s.fill = '0';
    }
    if (strchr("doxX", s.type))
        percent_int(x, &s, v);
    else if (c == 'c' ? !char_field(x->b, &s, v) : !strchr("rsa", c) && !af_jis_number(v))
        af_jfail(x->j, "%%%c format: %s expected, not %s", c, c == 'c' ? "a character" : "a number",
                 af_jtype(v));
    else if (strchr("rsa", c))
        percent_text(x, &s, v);
    else if (c != 'c' && !af_py_float_field(x->b, &s, af_jnumber(v)))
        af_jfail(x->j, "the precision of a format is too large");
}

af_jval af_jpercent(af_jinja *j, af_jval fmt, af_jval args)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    percent x = {.j = j, .b = &b, .args = args, .markup = fmt.markup};
    x.p = fmt.s->p;
    x.end = x.p + fmt.s->n;
    while (x.p < x.end && !j->failed) {
        const char *at = memchr(x.p, '%', (size_t)(x.end - x.p));
        af_buf_add(&b, x.p, (uint64_t)((at ? at : x.end) - x.p));
        x.p = at ? at + 1 : x.end;
        if (at)
            conversion(&x);
        af_jstep(j, 1);
    }
    const bool single = !af_jis_list(args) && args.kind != AF_JKIND_DICT;
    if (args.kind == AF_JKIND_TUPLE ? x.used < args.l->n
                                    : single && args.kind != AF_JKIND_UNDEF && x.used == 0)
        af_jfail(j, "not all arguments converted during string formatting");
    return af_jmark(af_jstr_take(j, &b), fmt.markup);
}

typedef struct formatter {
    af_jinja *j;
    const af_jargs *args;
    int64_t automatic; /* next {} */
    bool markup;
} formatter;

static bool format_value(af_buf *b, const af_py_spec *s, af_jval v)
{
    if (v.kind == AF_JKIND_STR) {
        af_py_str_field(b, s, v.s->p, v.s->n);
        return (!s->type || s->type == 's') && !s->sign && s->align != '=' && !s->group;
    }
    if (af_jis_int(v) && s->type == 'c')
        return char_field(b, s, v);
    if (af_jis_int(v) && (!s->type || strchr("dnboxX", s->type))) {
        af_py_int_field(b, s, af_jinteger(v), 0);
        return s->precision < 0;
    }
    return af_jis_number(v) && (!s->type || strchr("eEfFgGn%", s->type)) &&
           af_py_float_field(b, s, af_jnumber(v));
}

static bool all_digits(const char *p, const char *end)
{
    const char *q = p;
    af_py_digits(&q, end);
    return p < end && q == end && end - p < 10;
}

/* "", "0", "name", each with "[key]" after it; attributes ("0.name") are not supported. */
static af_jval field_value(formatter *x, const char *p, const char *end)
{
    const char *q = p;
    while (q < end && *q != '.' && *q != '[')
        q++;
    const int64_t index = q == p ? x->automatic++ : all_digits(p, q) ? strtoll(p, NULL, 10) : -1;
    af_jval v = index >= 0 && index < x->args->n ? x->args->pos[index] : af_jmissing();
    for (int i = 0; index < 0 && i < x->args->nkw; i++)
        if (x->args->kw[i].name->n == (uint64_t)(q - p) &&
            !memcmp(x->args->kw[i].name->p, p, (size_t)(q - p)))
            v = x->args->kw[i].val;
    while (q < end && *q == '[' && v.kind != AF_JKIND_MISSING) {
        const char *key = q + 1, *close = memchr(q, ']', (size_t)(end - q));
        if (!close)
            break;
        v = af_jitem(x->j, v,
                     all_digits(key, close) ? af_jint(strtoll(key, NULL, 10))
                                            : af_jstr_new(x->j, key, (uint64_t)(close - key)));
        q = close + 1;
    }
    if (q < end && *q == '.')
        return af_jfail(x->j, "not supported: an attribute in a format field");
    if (q < end || v.kind == AF_JKIND_MISSING)
        return af_jfail(x->j, "the format names '%.*s', which was not passed",
                        (int)AF_MIN(end - p, 60), p);
    return v;
}

static void format_into(formatter *x, af_buf *b, const char *p, const char *end, int depth);

static void replacement(formatter *x, af_buf *b, const char *p, const char *end, int depth)
{
    const char *q = p;
    for (int brackets = 0; q < end && (brackets || (*q != '!' && *q != ':')); q++)
        brackets += *q == '[' ? 1 : *q == ']' ? -1 : 0;
    af_jval v = field_value(x, p, q);
    af_buf text = {.limit = AF_TEMPLATE_OUTPUT_MAX}, how = {.limit = 4096};
    if (q < end && *q == '!') {
        const char c = q + 1 < end ? q[1] : 0;
        if (c != 'r' && c != 's' && c != 'a')
            af_jfail(x->j, "unknown conversion in a format");
        (c == 's' ? af_jprint : af_jrepr)(x->j, &text, v);
        v = af_jstr_take(x->j, &text);
        q = AF_MIN(q + 2, end);
    }
    if (q < end && *q == ':')
        format_into(x, &how, q + 1, end, depth + 1);
    af_py_spec s;
    if (!how.len)
        af_jprint(x->j, &text, v);
    else if (!x->j->failed &&
             !(af_py_spec_parse(&s, how.data, how.data + how.len) && format_value(&text, &s, v)))
        af_jfail(x->j, "invalid format specifier '%.80s' for object of type '%s'", how.data,
                 af_jtype(v));
    v = af_jstr_take(x->j, &text);
    af_jprint(x->j, b, x->markup ? af_jescape(x->j, v) : v);
    af_buf_clear(&how);
}

static void format_into(formatter *x, af_buf *b, const char *p, const char *end, int depth)
{
    if (depth > 2)
        af_jfail(x->j, "formats are nested deeper than 2");
    while (p < end && af_jstep(x->j, 1)) {
        const char c = *p++;
        if (c != '{' && c != '}') {
            af_buf_char(b, c);
        } else if (p < end && *p == c) {
            af_buf_char(b, c);
            p++;
        } else {
            const char *close = p;
            int open = 1;
            for (; c == '{' && close < end; close++) {
                open += *close == '{' ? 1 : *close == '}' ? -1 : 0;
                if (!open)
                    break;
            }
            if (c == '}' || open)
                af_jfail(x->j, "Single '%c' encountered in format string", c);
            else
                replacement(x, b, p, close, depth);
            p = close + 1;
        }
    }
}

af_jval af_jformat(af_jinja *j, af_jval fmt, const af_jargs *args)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    formatter x = {.j = j, .args = args, .markup = fmt.markup};
    format_into(&x, &b, fmt.s->p, fmt.s->p + fmt.s->n, 0);
    return af_jmark(af_jstr_take(j, &b), fmt.markup);
}
