/* python_format.c - how Python reads and writes numbers, fields, quoted strings and dates. */
#define _GNU_SOURCE /* timegm, strftime_l */
#include "format/text/python_text.h"

#include "format/text/unicode.h"

#include <errno.h>
#include <locale.h>
#include <math.h>

#define PRECISION_MAX 1000

void af_py_float(af_buf *b, double f)
{
    char text[40], digit[24];
    if (!isfinite(f)) {
        af_buf_str(b, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    for (int precision = 0; precision < 17; precision++) { /* the shortest that reads back */
        snprintf(text, sizeof text, "%.*e", precision, f);
        if (strtod(text, NULL) == f)
            break;
    }
    const int exp = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    size_t n = 0;
    for (const char *p = text; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            digit[n++] = *p;
    digit[n] = 0;
    if (text[0] == '-')
        af_buf_char(b, '-');
    if (exp < -4 || exp >= 16) {
        af_buf_printf(b, "%c%s%se%c%02d", digit[0], n > 1 ? "." : "", digit + 1,
                      exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        af_buf_printf(b, "0.%.*s%s", -exp - 1, "000", digit);
    } else {
        for (int i = 0; i <= exp; i++)
            af_buf_char(b, (size_t)i < n ? digit[i] : '0');
        af_buf_printf(b, ".%s", n > (size_t)exp + 1 ? digit + exp + 1 : "0");
    }
}

/* A decimal number, at most AF_PY_FIELD_MAX: no field is that wide. */
int64_t af_py_digits(const char **p, const char *end)
{
    int64_t n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++)
        n = AF_MIN(n * 10 + (**p - '0'), AF_PY_FIELD_MAX);
    return n;
}

static bool is_align(uint32_t c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

/* False when the text is not a specification. */
bool af_py_spec_parse(af_py_spec *s, const char *p, const char *end)
{
    *s = (af_py_spec){.fill = ' ', .precision = -1};
    const char *q = p;
    const uint32_t first = af_utf8_next(&q);
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
    s->width = af_py_digits(&p, end);
    if (p < end && (*p == ',' || *p == '_'))
        s->group = *p++;
    if (p < end && *p == '.') {
        const char *from = ++p;
        s->precision = af_py_digits(&p, end);
        if (p == from)
            return false;
    }
    if (p < end)
        s->type = *p++;
    /* zeros before a thousands separator are not supported */
    return p == end && s->width < AF_PY_FIELD_MAX && !(s->group && s->fill == '0');
}

static void pad(af_buf *b, uint32_t fill, int64_t n)
{
    for (; n > 0 && !b->bad; n--)
        af_buf_utf8(b, fill);
}

/* Sign and prefix, then the digits or the text. `natural` is the alignment when none is given. */
static void field(af_buf *b, const af_py_spec *s, const char *head, const char *body, uint64_t n,
                  char natural)
{
    const int64_t have = (int64_t)(strlen(head) + af_utf8_count(body, n));
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

static void number_field(af_buf *b, const af_py_spec *s, bool negative, const char *prefix,
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

void af_py_int_field(af_buf *b, const af_py_spec *s, int64_t v, int64_t min_digits)
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
    af_buf body = {.limit = AF_PY_FIELD_MAX};
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
bool af_py_float_field(af_buf *b, const af_py_spec *s, double v)
{
    af_buf body = {.limit = AF_PY_FIELD_MAX};
    const double x = s->type == '%' ? fabs(v) * 100 : fabs(v);
    const char t = s->type == '%' ? 'f' : s->type == 'n' ? 'g' : s->type;
    if (s->precision > PRECISION_MAX)
        return false;
    if (!isfinite(v)) {
        af_buf_str(&body, isnan(v) ? "nan" : "inf");
    } else if (!t && s->precision < 0) {
        af_py_float(&body, x);
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

void af_py_str_field(af_buf *b, const af_py_spec *s, const char *p, uint64_t n)
{
    const char *end = p + n, *cut = s->precision < 0 ? end : p;
    for (int64_t i = 0; i < s->precision && cut < end; i++)
        af_utf8_next(&cut);
    field(b, s, "", p, (uint64_t)(cut - p), '<');
}

/* The text without white space around it and underscores between digits; false when it does not
 * fit or an underscore is elsewhere. */
static bool clean_number(const char *s, uint64_t len, char *out, size_t size)
{
    uint64_t from = 0;
    size_t n = 0;
    af_py_strip(s, &from, &len, NULL, 0, 'b');
    for (const char *p = s + from, *end = s + len; p < end; p++) {
        if (*p == '_' && n > 0 && p + 1 < end && p[-1] != '_' && p[1] != '_')
            continue;
        if (n + 1 >= size || !*p || *p == '_')
            return false;
        out[n++] = *p;
    }
    out[n] = 0;
    return n > 0;
}

bool af_py_parse_int(const char *s, uint64_t n, int64_t base, int64_t *out)
{
    char text[512];
    if (!clean_number(s, n, text, sizeof text))
        return false;
    const char *p = text + (*text == '-' || *text == '+');
    const char r = (char)(p[0] == '0' ? p[1] | 32 : 0);
    const int64_t named = r == 'x' ? 16 : r == 'o' ? 8 : r == 'b' ? 2 : 0;
    if (named && (base == 0 || base == named)) {
        base = named;
        p += 2;
    }
    base = base ? base : 10;
    const char *first = strchr("+- ", *p); /* strtoull would take these again, or "0x" twice */
    if (base < 2 || base > 36 || first || (base == 16 && p[0] == '0' && (p[1] | 32) == 'x'))
        return false;
    char *end = NULL;
    errno = 0;
    const uint64_t x = strtoull(p, &end, (int)base);
    const bool negative = *text == '-';
    if (errno || *end || end == p || x > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - x) : (int64_t)x;
    return true;
}

bool af_py_parse_float(const char *s, uint64_t n, double *out)
{
    char text[512], *end = NULL;
    if (!clean_number(s, n, text, sizeof text))
        return false;
    const char *p = text + (*text == '-' || *text == '+');
    /* strtod also takes hexadecimal floats and nan(...), Python does not */
    if (!*p || strpbrk(p, "xX(") || *p == ' ')
        return false;
    *out = strtod(text, &end);
    return end != text && !*end;
}

double af_py_round(double x, int64_t digits)
{
    if (!isfinite(x) || digits > 300)
        return x;
    if (digits >= 0) {
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)digits, x);
        return strtod(text, NULL);
    }
    const double scale = pow(10, (double)-digits);
    return isinf(scale) ? copysign(0.0, x) : rint(x / scale) * scale;
}

void af_py_quote(af_buf *b, const char *s, uint64_t n)
{
    const bool single = memchr(s, '\'', n) != NULL;
    const char quote = single && !memchr(s, '"', n) ? '"' : '\'';
    af_buf_char(b, quote);
    for (const char *p = s, *end = s + n; p < end;) {
        const uint32_t cp = af_utf8_next(&p);
        if (cp == (uint32_t)quote || cp == '\\')
            af_buf_printf(b, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            af_buf_str(b, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        else if (af_py_printable(cp))
            af_buf_utf8(b, cp);
        else
            af_buf_printf(b, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
    af_buf_char(b, quote);
}

void af_py_strftime(af_buf *b, const struct tm *when, const char *fmt, uint64_t n)
{
    struct tm tm = *when;
    timegm(&tm); /* fills the day of the week and of the year */
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    for (uint64_t i = 0, end; i < n; i = end) {
        char one[16] = {0}, text[256];
        const bool directive = fmt[i] == '%';
        end = i + 1;
        while (directive && end < n && end - i < 8 && fmt[end] && strchr("-_0^#EO", fmt[end]))
            end++;
        end += directive && end < n;
        memcpy(one, fmt + i, end - i);
        if (!directive || end - i < 2)
            af_buf_add(b, one, end - i);
        else if (one[1] == 'f')
            af_buf_str(b, "000000");
        else if (one[1] != 'z' && one[1] != 'Z' && c) { /* the time has no zone */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            af_buf_add(b, text, strftime_l(text, sizeof text, one, &tm, c));
#pragma GCC diagnostic pop
        }
    }
    b->bad = b->bad || !c;
    if (c)
        freelocale(c);
}

int af_py_unescape(af_buf *b, const char *s)
{
    static const char simple[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    for (size_t i = 0; i + 1 < sizeof simple; i += 2)
        if (simple[i] == *s) {
            af_buf_char(b, simple[i + 1]);
            return 1;
        }
    char digits[9] = {0};
    const bool octal = *s >= '0' && *s <= '7';
    const int want = octal ? 3 : *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    int n = 0;
    for (const char *p = s + !octal; n < want && *p; n++, p++) {
        if (!strchr(octal ? "01234567" : "0123456789abcdefABCDEF", *p))
            break;
        digits[n] = *p;
    }
    if (want == 0 && *s != 'N')
        return *s == '\n' ? 1 : -1;
    const unsigned long cp = strtoul(digits, NULL, octal ? 8 : 16);
    if ((!octal && n < want) || cp > 0x10ffff || (cp >> 11) == 0x1b || *s == 'N')
        return 0;
    af_buf_utf8(b, (uint32_t)cp);
    return n + !octal;
}

void af_py_filesize(af_buf *b, double bytes, bool binary)
{
    const double base = binary ? 1024 : 1000;
    double unit = base;
    int i = 0;
    for (; i < 7 && bytes >= unit * base; i++)
        unit *= base;
    if (bytes < base)
        af_buf_printf(b, "%.0f Byte%s", trunc(bytes), bytes == 1 ? "" : "s");
    else
        af_buf_printf(b, "%.1f %c%s", bytes / unit, (binary ? "KMGTPEZY" : "kMGTPEZY")[i],
                      binary ? "iB" : "B");
}
