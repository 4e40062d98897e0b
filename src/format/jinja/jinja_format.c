/* jinja_format.c - "..." % values and "...".format(values).
 *
 * Both put one value in a field: a spec says how wide, how aligned and in which notation. For
 * str.format it is the text after the colon in "{:>10.2f}", for % the flags before the letter. */
#include "format/jinja/jinja.h"

#include <math.h>

#define PRECISION_MAX 1000

typedef struct spec {
    uint32_t fill;
    char align, sign, group, type; /* 0 = not given */
    bool alt;
    int64_t width, precision; /* precision -1 = not given */
} spec;

/* --- one value in a field --------------------------------------------------------------------- */

static void pad(af_buf *b, uint32_t fill, int64_t n)
{
    for (; n > 0 && !b->bad; n--)
        af_buf_utf8(b, fill);
}

/* Sign and prefix, then the digits or the text. `natural` is the alignment when none is given. */
static void field(af_buf *b, const spec *s, const char *head, const char *body, uint64_t n,
                  char natural)
{
    const int64_t have = (int64_t)(strlen(head) + af_jutf8_count(body, n));
    const int64_t space = s->width > have ? s->width - have : 0;
    const char align = s->align ? s->align : natural;
    const int64_t left = align == '>' ? space : align == '^' ? space / 2 : 0;
    pad(b, s->fill, left);
    af_buf_str(b, head);
    if (align == '=')
        pad(b, s->fill, space);
    af_buf_add(b, body, n);
    if (align == '<' || align == '^')
        pad(b, s->fill, space - left);
}

static void number_field(af_buf *b, const spec *s, bool negative, const char *prefix,
                         const char *body, size_t every)
{
    char head[8];
    af_buf grouped = {0};
    const char sign = negative ? '-' : s->sign == '+' || s->sign == ' ' ? s->sign : 0;
    snprintf(head, sizeof head, "%.*s%s", sign != 0, &sign, prefix);
    const size_t lead =
        s->group ? strspn(body, every == 3 ? "0123456789" : "0123456789abcdefABCDEF") : 0;
    for (size_t i = 0; i < lead; i++) {
        if (i && (lead - i) % every == 0)
            af_buf_char(&grouped, s->group);
        af_buf_char(&grouped, body[i]);
    }
    af_buf_str(&grouped, body + lead);
    field(b, s, head, grouped.data ? grouped.data : "", grouped.len, '>');
    af_buf_clear(&grouped);
}

static void int_field(af_buf *b, const spec *s, int64_t v, int64_t min_digits)
{
    const char t = s->type;
    const unsigned base = t == 'x' || t == 'X' ? 16 : t == 'o' ? 8 : t == 'b' ? 2 : 10;
    char digits[65], prefix[3] = {'0', t, 0};
    int at = 64;
    digits[64] = 0;
    uint64_t x = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        digits[--at] = (t == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[x % base];
        x /= base;
    } while (x);
    af_buf body = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    pad(&body, '0', min_digits - (64 - at));
    af_buf_str(&body, digits + at);
    number_field(b, s, v < 0, s->alt && base != 10 ? prefix : "", body.data ? body.data : "",
                 base == 10 ? 3 : 4);
    af_buf_clear(&body);
}

/* A precision without a type: like g, but never without a point. */
static void general(af_buf *body, double x, int precision)
{
    char text[PRECISION_MAX + 64];
    snprintf(text, sizeof text, "%.*e", precision - 1, x);
    const int exp = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exp >= -4 && exp < precision - 1 + (precision > 1)) {
        snprintf(text, sizeof text, "%.*g", precision, x);
        af_buf_printf(body, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
    } else {
        af_buf_printf(body, "%.*g", precision, x);
    }
}

/* False when the precision is absurd. */
static bool float_field(af_buf *b, const spec *s, double v)
{
    af_buf body = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    const double x = s->type == '%' ? fabs(v) * 100 : fabs(v);
    const char t = s->type == '%' ? 'f' : s->type == 'n' ? 'g' : s->type;
    if (s->precision > PRECISION_MAX)
        return false;
    if (!isfinite(v)) {
        af_buf_str(&body, isnan(v) ? "nan" : "inf");
    } else if (!t && s->precision < 0) {
        af_jfloat_text(&body, x);
    } else if (!t) {
        general(&body, x, (int)AF_MAX(s->precision, 1));
    } else {
        char fmt[8];
        snprintf(fmt, sizeof fmt, "%%%s.*%c", s->alt ? "#" : "", t);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        /* fmt was made above: %[#].*[efgEFG] */
        af_buf_printf(&body, fmt, s->precision < 0 ? 6 : (int)s->precision, x);
#pragma GCC diagnostic pop
    }
    if (s->type == '%')
        af_buf_char(&body, '%');
    number_field(b, s, signbit(v) && !isnan(v), "", body.data ? body.data : "", 3);
    af_buf_clear(&body);
    return true;
}

static void str_field(af_buf *b, const spec *s, const af_jstr *v)
{
    const bool cut = s->precision >= 0 && (uint64_t)s->precision < v->cps;
    field(b, s, "", v->p, cut ? af_jstr_at(v, (uint64_t)s->precision) : v->n, '<');
}

/* The character an integer or a string of one character stands for; false for anything else. */
static bool char_field(af_buf *b, const spec *s, af_jval v)
{
    af_buf one = {0};
    if (af_jis_int(v) && (uint64_t)af_jinteger(v) <= 0x10ffff && (af_jinteger(v) >> 11) != 0x1b)
        af_buf_utf8(&one, (uint32_t)af_jinteger(v));
    else if (v.kind == AF_JKIND_STR && v.s->cps == 1)
        af_buf_add(&one, v.s->p, v.s->n);
    field(b, s, "", one.data ? one.data : "", one.len, '<');
    const bool ok = one.len > 0;
    af_buf_clear(&one);
    return ok;
}

/* A decimal number, at most AF_JINJA_PAD_MAX: no field is that wide. */
static int64_t digits(const char **p, const char *end)
{
    int64_t n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++)
        n = AF_MIN(n * 10 + (**p - '0'), AF_JINJA_PAD_MAX);
    return n;
}

/* --- the % operator --------------------------------------------------------------------------- */

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
        return digits(&x->p, x->end);
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
static void percent_spec(percent *x, spec *s, bool *zero)
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
    if (s->width >= AF_JINJA_PAD_MAX || s->precision >= AF_JINJA_PAD_MAX)
        af_jfail(x->j, "a field is wider than %d", AF_JINJA_PAD_MAX);
    while (x->p < x->end && *x->p && strchr("hlL", *x->p))
        x->p++;
}

static void percent_int(percent *x, spec *s, af_jval v)
{
    if (v.kind == AF_JKIND_FLOAT && s->type == 'd' && isfinite(v.f) && fabs(v.f) < 9e18)
        v = af_jint((int64_t)v.f);
    if (!af_jis_int(v))
        af_jfail(x->j, "%%%c format: a number is required, not %s", s->type, af_jtype(v));
    else
        int_field(x->b, s, af_jinteger(v), s->precision);
}

static void percent_text(percent *x, const spec *s, af_jval v)
{
    if (s->type == 's') {
        v = x->markup ? af_jescape(x->j, v) : af_jtostr(x->j, v);
    } else {
        af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
        af_jrepr(x->j, &b, v);
        v = af_jstr_take(x->j, &b);
    }
    str_field(x->b, s, v.s);
}

static void conversion(percent *x)
{
    spec s = {.fill = ' ', .precision = -1};
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
    else if (c != 'c' && !float_field(x->b, &s, af_jnumber(v)))
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

/* --- str.format ------------------------------------------------------------------------------- */

typedef struct formatter {
    af_jinja *j;
    const af_jargs *args;
    int64_t automatic; /* next {} */
    bool markup;
} formatter;

static bool is_align(uint32_t c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

/* False when the text is not a specification. */
static bool spec_parse(spec *s, const char *p, const char *end)
{
    *s = (spec){.fill = ' ', .precision = -1};
    const char *q = p;
    const uint32_t first = af_jutf8_next(&q);
    if (q < end && is_align((unsigned char)*q)) {
        s->fill = first;
        s->align = *q;
        p = q + 1;
    } else if (is_align(first)) {
        s->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' '))
        s->sign = *p++;
    if (p < end && *p == '#')
        s->alt = *p++;
    if (p < end && *p == '0') {
        s->fill = s->align ? s->fill : '0';
        s->align = s->align ? s->align : '=';
        p++;
    }
    s->width = digits(&p, end);
    if (p < end && (*p == ',' || *p == '_'))
        s->group = *p++;
    if (p < end && *p == '.') {
        const char *from = ++p;
        s->precision = digits(&p, end);
        if (p == from)
            return false;
    }
    if (p < end)
        s->type = *p++;
    /* zeros before a thousands separator are not supported */
    return p == end && s->width < AF_JINJA_PAD_MAX && !(s->group && s->fill == '0');
}

static bool format_value(af_buf *b, const spec *s, af_jval v)
{
    if (v.kind == AF_JKIND_STR) {
        str_field(b, s, v.s);
        return (!s->type || s->type == 's') && !s->sign && s->align != '=' && !s->group;
    }
    if (af_jis_int(v) && s->type == 'c')
        return char_field(b, s, v);
    if (af_jis_int(v) && (!s->type || strchr("dnboxX", s->type))) {
        int_field(b, s, af_jinteger(v), 0);
        return s->precision < 0;
    }
    return af_jis_number(v) && (!s->type || strchr("eEfFgGn%", s->type)) &&
           float_field(b, s, af_jnumber(v));
}

static bool all_digits(const char *p, const char *end)
{
    const char *q = p;
    digits(&q, end);
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
    spec s;
    if (!how.len)
        af_jprint(x->j, &text, v);
    else if (!x->j->failed &&
             !(spec_parse(&s, how.data, how.data + how.len) && format_value(&text, &s, v)))
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
