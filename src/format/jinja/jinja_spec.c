/* jinja_spec.c - the format specification mini-language: what stands behind the colon in
 * "{:>10.2f}", shared with the % operator. */
#include "format/jinja/jinja_spec.h"

#include <math.h>

#define PRECISION_MAX 1000

static bool is_align(uint32_t c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

static int64_t digits(const char **p, const char *end)
{
    int64_t n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++)
        n = AF_MIN(n * 10 + (**p - '0'), AF_JINJA_PAD_MAX); /* no field is that wide */
    return n;
}

bool af_jspec_parse(af_jspec *s, const char *p, uint64_t n)
{
    const char *end = p + n;
    *s = (af_jspec){.fill = ' ', .precision = -1};
    if (p < end) {
        const char *q = p;
        const uint32_t first = af_jutf8_next(&q);
        if (q < end && is_align((unsigned char)*q)) {
            s->fill = first;
            s->align = *q;
            p = q + 1;
        } else if (is_align(first)) {
            s->align = *p++;
        }
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' '))
        s->sign = *p++;
    if (p < end && *p == 'z')
        p++;
    if (p < end && *p == '#') {
        s->alt = true;
        p++;
    }
    if (p < end && *p == '0') {
        s->fill = s->align ? s->fill : '0';
        s->zero = !s->align;
        s->align = s->align ? s->align : '=';
        p++;
    }
    s->width = digits(&p, end);
    if (p < end && (*p == ',' || *p == '_'))
        s->group = *p++;
    if (p < end && *p == '.') {
        p++;
        if (p == end || *p < '0' || *p > '9')
            return false;
        s->precision = digits(&p, end);
    }
    if (p < end)
        s->type = *p++;
    return p == end;
}

static void pad(af_buf *b, uint32_t fill, int64_t n)
{
    for (; n > 0 && !b->bad; n--)
        af_buf_utf8(b, fill);
}

/* sign and prefix, then the digits, in the field. */
static void field(af_buf *b, const af_jspec *s, const char *head, const char *body, uint64_t n,
                  char natural)
{
    const int64_t have = (int64_t)(strlen(head) + af_jutf8_count(body, n));
    const int64_t room = s->width > have ? s->width - have : 0;
    const char align = s->align ? s->align : natural;
    const int64_t left = align == '>' ? room : align == '^' ? room / 2 : 0;
    pad(b, s->fill, left);
    af_buf_str(b, head);
    if (align == '=')
        pad(b, s->fill, room);
    af_buf_add(b, body, n);
    if (align == '<' || align == '^')
        pad(b, s->fill, room - left);
}

/* Inserts the thousands separator into the leading digits of `text`. */
static void group_digits(af_buf *out, const char *text, char sep, int every)
{
    const size_t n = strspn(text, every == 3 ? "0123456789" : "0123456789abcdefABCDEF");
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % (size_t)every == 0)
            af_buf_char(out, sep);
        af_buf_char(out, text[i]);
    }
    af_buf_str(out, text + n);
}

static void finish(af_buf *b, const af_jspec *s, bool negative, const char *prefix, af_buf *body,
                   int every)
{
    char head[8];
    snprintf(head, sizeof head, "%s%s",
             negative         ? "-"
             : s->sign == '+' ? "+"
             : s->sign == ' ' ? " "
                              : "",
             prefix);
    af_buf grouped = {0};
    if (s->group) {
        /* zero padding counts before the separators go in */
        while (s->zero && body->data && !body->bad) {
            af_buf_clear(&grouped);
            group_digits(&grouped, body->data, s->group, every);
            if ((int64_t)(grouped.len + strlen(head)) >= s->width)
                break;
            af_buf more = {.limit = AF_TEMPLATE_OUTPUT_MAX};
            af_buf_char(&more, '0');
            af_buf_add(&more, body->data, body->len);
            af_buf_clear(body);
            *body = more;
        }
        af_buf_clear(&grouped);
        group_digits(&grouped, body->data ? body->data : "", s->group, every);
    }
    const af_buf *text = s->group ? &grouped : body;
    field(b, s, head, text->data ? text->data : "", text->len, '>');
    af_buf_clear(&grouped);
}

static void radix_text(af_buf *b, uint64_t x, unsigned base, bool upper)
{
    char text[65];
    int at = 64;
    text[64] = 0;
    do {
        const unsigned d = (unsigned)(x % base);
        text[--at] = (char)(d < 10 ? '0' + d : (upper ? 'A' : 'a') + d - 10);
        x /= base;
    } while (x);
    af_buf_str(b, text + at);
}

void af_jspec_int(af_buf *b, const af_jspec *s, int64_t v, int64_t min_digits)
{
    const char t = s->type;
    const uint64_t x = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    const unsigned base = t == 'x' || t == 'X' ? 16 : t == 'o' ? 8 : t == 'b' ? 2 : 10;
    af_buf body = {.limit = AF_TEMPLATE_OUTPUT_MAX}, text = {0};
    radix_text(&text, x, base, t == 'X');
    for (int64_t i = (int64_t)text.len; i < min_digits && !body.bad; i++)
        af_buf_char(&body, '0');
    af_buf_add(&body, text.data, text.len);
    const char *prefix = !s->alt    ? ""
                         : t == 'x' ? "0x"
                         : t == 'X' ? "0X"
                         : t == 'o' ? "0o"
                         : t == 'b' ? "0b"
                                    : "";
    finish(b, s, v < 0, prefix, &body, base == 10 ? 3 : 4);
    af_buf_clear(&text);
    af_buf_clear(&body);
}

/* The shortest text with a precision and no type: like g, but never without a point. */
static void general(af_buf *body, double x, int precision)
{
    char text[PRECISION_MAX + 64];
    snprintf(text, sizeof text, "%.*e", AF_MAX(precision, 1) - 1, x);
    const int exp = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exp >= -4 && exp < AF_MAX(precision, 1) - 1 + (precision > 1)) {
        snprintf(text, sizeof text, "%.*g", AF_MAX(precision, 1), x);
        af_buf_str(body, text);
        if (!strchr(text, '.') && !strchr(text, 'e'))
            af_buf_str(body, ".0");
        return;
    }
    snprintf(text, sizeof text, "%.*g", AF_MAX(precision, 1), x);
    af_buf_str(body, text);
}

bool af_jspec_float(af_buf *b, const af_jspec *s, double v)
{
    af_buf body = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    const double x = fabs(v);
    const bool special = isnan(v) || isinf(v);
    char t = s->type;
    if (s->precision > PRECISION_MAX)
        return false;
    if (special) {
        af_buf_str(&body, isnan(v) ? "nan" : "inf");
    } else if (!t && s->precision < 0) {
        af_jfloat_text(&body, x);
    } else if (!t) {
        general(&body, x, (int)s->precision);
    } else {
        char fmt[8];
        t = t == '%' ? 'f' : t == 'n' ? 'g' : t;
        snprintf(fmt, sizeof fmt, "%%%s.*%c", s->alt ? "#" : "", t);
        const int precision = s->precision < 0 ? 6 : (int)s->precision;
        const double shown = s->type == '%' ? x * 100 : x;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        af_buf_printf(&body, fmt, precision, shown); /* fmt was made above: %[#].*[efgEFG] */
#pragma GCC diagnostic pop
    }
    if (s->type == '%')
        af_buf_char(&body, '%');
    finish(b, s, signbit(v) && !isnan(v), "", &body, 3);
    af_buf_clear(&body);
    return true;
}

void af_jspec_str(af_buf *b, const af_jspec *s, const af_jstr *v)
{
    uint64_t n = v->n;
    if (s->precision >= 0 && (uint64_t)s->precision < v->cps)
        n = af_jstr_at(v, (uint64_t)s->precision);
    field(b, s, "", v->p, n, '<');
}

static bool spec_value(af_buf *b, const af_jspec *s, af_jv v)
{
    const bool whole = v.kind == AF_J_INT || v.kind == AF_J_BOOL;
    const int64_t i = v.kind == AF_J_BOOL ? v.b : v.i;
    if (v.kind == AF_J_STR) {
        af_jspec_str(b, s, v.s);
        return (!s->type || s->type == 's') && !s->sign && s->align != '=' && !s->group;
    }
    if (whole && s->type == 'c') {
        if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
            return false;
        af_buf one = {0};
        af_buf_utf8(&one, (uint32_t)i);
        field(b, s, "", one.data ? one.data : "", one.len, '<');
        af_buf_clear(&one);
        return true;
    }
    if (whole && (!s->type || strchr("dnboxX", s->type))) {
        af_jspec_int(b, s, i, 0);
        return s->precision < 0;
    }
    if (af_jis_number(v) && (!s->type || strchr("eEfFgGn%", s->type)))
        return af_jspec_float(b, s, af_jnumber(v));
    return false;
}

af_jv af_jformat_spec(af_jinja *j, af_jv v, const char *spec, uint64_t n)
{
    af_jspec s;
    if (n == 0)
        return af_jtostr(j, v);
    if (v.kind == AF_J_UNDEF || !(af_jis_number(v) || v.kind == AF_J_STR))
        return af_jfail(j, "unsupported format string passed to %s.__format__", af_jtype(v));
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    const bool ok =
        af_jspec_parse(&s, spec, n) && s.width < AF_JINJA_PAD_MAX && spec_value(&b, &s, v);
    if (!ok)
        af_jfail(j, "invalid format specifier '%.*s' for object of type '%s'", (int)AF_MIN(n, 80),
                 spec, af_jtype(v));
    return af_jstr_take(j, &b);
}
