/* jinja_format.c - "..." % values and "...".format(values). */
#include "format/jinja/jinja_spec.h"

#include <math.h>

/* --- the % operator ------------------------------------------------------------------------- */

typedef struct percent {
    af_jinja *j;
    af_buf *b;
    af_jv args;
    int64_t used; /* of a tuple; of a single value 0 or 1 */
    bool markup;
} percent;

static af_jv next_arg(percent *x)
{
    if (x->args.kind == AF_J_TUPLE) {
        if (x->used < x->args.l->n)
            return x->args.l->item[x->used++];
    } else if (x->used++ == 0) {
        return x->args;
    }
    return af_jfail(x->j, "not enough arguments for format string");
}

static int64_t star_or_number(percent *x, const char **p, const char *end)
{
    if (*p < end && **p == '*') {
        (*p)++;
        return af_jneed_int(x->j, next_arg(x), "* in a format");
    }
    int64_t n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++)
        n = AF_MIN(n * 10 + (**p - '0'), AF_JINJA_PAD_MAX); /* no field is that wide */
    return n;
}

static af_jv mapping_arg(percent *x, const char **p, const char *end)
{
    const char *from = ++*p;
    int depth = 1;
    for (; *p < end && depth; (*p)++)
        depth += **p == '(' ? 1 : **p == ')' ? -1 : 0;
    if (depth)
        return af_jfail(x->j, "incomplete format key");
    if (x->args.kind != AF_J_DICT)
        return af_jfail(x->j, "format requires a mapping");
    const af_jv key = af_jstr_new(x->j, from, (uint64_t)(*p - 1 - from));
    const af_jv *v = af_jdict_get(x->j, x->args.d, key);
    return v ? *v : af_jfail(x->j, "the format names '%s', which is not in the mapping", key.s->p);
}

static void percent_int(percent *x, af_jspec *s, af_jv v, char c)
{
    int64_t i = 0;
    if (v.kind == AF_J_FLOAT && c == 'd' && isfinite(v.f) && fabs(v.f) < 9e18)
        i = (int64_t)v.f;
    else if (v.kind == AF_J_INT || v.kind == AF_J_BOOL)
        i = v.kind == AF_J_BOOL ? v.b : v.i;
    else
        af_jfail(x->j, "%%%c format: a number is required, not %s", c, af_jtype(v));
    s->type = c;
    const int64_t digits = s->precision;
    s->precision = -1;
    if (!x->j->failed)
        af_jspec_int(x->b, s, i, digits);
}

static void percent_char(percent *x, af_jspec *s, af_jv v)
{
    af_buf one = {0};
    if (v.kind == AF_J_INT && v.i >= 0 && v.i <= 0x10ffff && !(v.i >= 0xd800 && v.i < 0xe000))
        af_buf_utf8(&one, (uint32_t)v.i);
    else if (v.kind == AF_J_STR && v.s->cps == 1)
        af_buf_add(&one, v.s->p, v.s->n);
    else
        af_jfail(x->j, "%%c requires int or char");
    af_jstr s1;
    af_jstr_fill(&s1, one.data ? one.data : "", one.len);
    s->precision = -1;
    af_jspec_str(x->b, s, &s1);
    af_buf_clear(&one);
}

static void percent_text(percent *x, af_jspec *s, af_jv v, char c)
{
    if (c != 's') {
        af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
        af_jrepr(x->j, &b, v);
        v = af_jstr_take(x->j, &b);
    } else {
        v = x->markup ? af_jescape(x->j, v) : af_jtostr(x->j, v);
    }
    af_jspec_str(x->b, s, v.s);
}

static void conversion(percent *x, const char **p, const char *end)
{
    af_jspec s = {.fill = ' ', .precision = -1, .align = '>'};
    af_jv v = {.kind = AF_J_MISSING};
    bool left = false, zero = false;
    if (*p < end && **p == '(')
        v = mapping_arg(x, p, end);
    for (; *p < end && strchr("#0- +", **p) && **p; (*p)++) {
        s.alt = s.alt || **p == '#';
        zero = zero || **p == '0';
        left = left || **p == '-';
        if (**p == '+' || (**p == ' ' && s.sign != '+'))
            s.sign = **p;
    }
    s.width = star_or_number(x, p, end);
    left = left || s.width < 0;
    s.width = s.width < 0 ? -s.width : s.width;
    if (*p < end && **p == '.') {
        (*p)++;
        s.precision = star_or_number(x, p, end);
        s.precision = AF_MAX(s.precision, 0);
    }
    while (*p < end && strchr("hlL", **p) && **p)
        (*p)++;
    const char c = *p < end ? *(*p)++ : 0;
    if (c == '%') {
        af_buf_char(x->b, '%');
        return;
    }
    if (!c || !strchr("diouxXeEfFgGcrsa", c)) {
        af_jfail(x->j, c ? "unsupported format character '%c'" : "incomplete format%c", c);
        return;
    }
    if (s.width >= AF_JINJA_PAD_MAX || s.precision >= AF_JINJA_PAD_MAX)
        af_jfail(x->j, "a field is wider than %d", AF_JINJA_PAD_MAX);
    if (v.kind == AF_J_MISSING && !x->j->failed)
        v = next_arg(x);
    if (x->j->failed)
        return;
    const bool number = strchr("diouxXeEfFgG", c) != NULL;
    s.align = left ? '<' : number && zero ? '=' : '>';
    s.fill = s.align == '=' ? '0' : ' ';
    if (strchr("diouxX", c)) {
        percent_int(x, &s, v, c == 'i' || c == 'u' ? 'd' : c);
    } else if (number) {
        s.type = c;
        if (!af_jis_number(v))
            af_jfail(x->j, "must be real number, not %s", af_jtype(v));
        else if (!af_jspec_float(x->b, &s, af_jnumber(v)))
            af_jfail(x->j, "the precision of a format is too large");
    } else if (c == 'c') {
        percent_char(x, &s, v);
    } else {
        percent_text(x, &s, v, c);
    }
}

af_jv af_jpercent(af_jinja *j, af_jv fmt, af_jv args)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    percent x = {.j = j, .b = &b, .args = args, .markup = fmt.markup};
    const char *p = fmt.s->p, *end = p + fmt.s->n;
    while (p < end && !j->failed) {
        const char *at = memchr(p, '%', (size_t)(end - p));
        af_buf_add(&b, p, (uint64_t)((at ? at : end) - p));
        p = at ? at + 1 : end;
        if (at)
            conversion(&x, &p, end);
        af_jstep(j, 1);
    }
    const bool left = args.kind == AF_J_TUPLE ? x.used < args.l->n
                      : args.kind == AF_J_DICT || args.kind == AF_J_LIST ||
                              args.kind == AF_J_UNDEF || args.kind == AF_J_RANGE
                          ? false
                          : x.used == 0;
    if (left && !j->failed)
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

static void format_into(formatter *x, af_buf *b, const char *p, const char *end, int depth);

static bool all_digits(const char *p, const char *end)
{
    if (p == end)
        return false;
    for (; p < end; p++)
        if (*p < '0' || *p > '9')
            return false;
    return true;
}

static af_jv positional(formatter *x, int64_t i)
{
    return i < x->args->n
               ? x->args->pos[i]
               : af_jfail(x->j,
                          "Replacement index %" PRId64 " out of range for positional args tuple",
                          i);
}

static af_jv field_start(formatter *x, const char *p, const char *end)
{
    if (p == end)
        return positional(x, x->automatic++);
    if (all_digits(p, end) && end - p < 10)
        return positional(x, strtoll(p, NULL, 10));
    for (int i = 0; i < x->args->nkw; i++)
        if (x->args->kw[i].name->n == (uint64_t)(end - p) &&
            !memcmp(x->args->kw[i].name->p, p, (size_t)(end - p)))
            return x->args->kw[i].val;
    return af_jfail(x->j, "the format names '%.*s', which is not given", (int)AF_MIN(end - p, 60),
                    p);
}

/* "0.name[key]" */
static af_jv field_value(formatter *x, const char *p, const char *end)
{
    const char *q = p;
    while (q < end && *q != '.' && *q != '[')
        q++;
    af_jv v = field_start(x, p, q);
    while (q < end && !x->j->failed) {
        const bool dot = *q++ == '.';
        const char *from = q;
        while (q < end && (dot ? *q != '.' && *q != '[' : *q != ']'))
            q++;
        const af_jv key = af_jstr_new(x->j, from, (uint64_t)(q - from));
        if (dot) {
            v = af_jgetattr(x->j, v, key.s);
        } else {
            v = af_jgetitem(x->j, v,
                            all_digits(from, q) && q - from < 18 ? af_jint(strtoll(from, NULL, 10))
                                                                 : key);
            q += q < end;
        }
        if (v.kind == AF_J_UNDEF && v.s)
            af_jfail(x->j, "%s", v.s->p);
    }
    return v;
}

static void replacement(formatter *x, af_buf *b, const char *p, const char *end, int depth)
{
    int brackets = 0;
    const char *name_end = p;
    while (name_end < end && (brackets || (*name_end != '!' && *name_end != ':'))) {
        brackets += *name_end == '[' ? 1 : *name_end == ']' ? -1 : 0;
        name_end++;
    }
    af_jv v = field_value(x, p, name_end);
    const char *q = name_end;
    if (q < end && *q == '!') {
        const char c = q + 1 < end ? q[1] : 0;
        q = AF_MIN(q + 2, end);
        if (c != 'r' && c != 's' && c != 'a')
            af_jfail(x->j, "Unknown conversion specifier in a format");
        if (c == 'r' || c == 'a') {
            af_buf r = {.limit = AF_TEMPLATE_OUTPUT_MAX};
            af_jrepr(x->j, &r, v);
            v = af_jstr_take(x->j, &r);
        } else {
            v = af_jtostr(x->j, v);
        }
    }
    af_buf spec = {.limit = 4096};
    if (q < end && *q == ':')
        format_into(x, &spec, q + 1, end, depth + 1);
    if (!x->j->failed) {
        v = af_jformat_spec(x->j, v, spec.data ? spec.data : "", spec.len);
        v = x->markup && !x->j->failed ? af_jescape(x->j, v) : v;
        if (!x->j->failed)
            af_jprint(x->j, b, v);
    }
    af_buf_clear(&spec);
}

static void format_into(formatter *x, af_buf *b, const char *p, const char *end, int depth)
{
    if (depth > 2)
        af_jfail(x->j, "Max string recursion exceeded");
    while (p < end && !x->j->failed) {
        const char c = *p++;
        if (c != '{' && c != '}') {
            af_buf_char(b, c);
            continue;
        }
        if (p < end && *p == c) {
            af_buf_char(b, c);
            p++;
            continue;
        }
        const char *close = p;
        int open = 1;
        for (; c == '{' && close < end; close++) {
            open += *close == '{' ? 1 : *close == '}' ? -1 : 0;
            if (!open)
                break;
        }
        if (c == '}' || open) {
            af_jfail(x->j, "Single '%c' encountered in format string", c);
            return;
        }
        af_jstep(x->j, 1);
        replacement(x, b, p, close, depth);
        p = close + 1;
    }
}

af_jv af_jformat(af_jinja *j, af_jv fmt, const af_jargs *args)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    formatter x = {.j = j, .args = args, .markup = fmt.markup};
    format_into(&x, &b, fmt.s->p, fmt.s->p + fmt.s->n, 0);
    return af_jmark(af_jstr_take(j, &b), fmt.markup);
}
