/* jinja_op.c - arithmetic: + - * / // % ** and unary minus on Python's types.
 *
 * Integers are 64 bits: a result that needs more is an error, never a wrong number. */
#include "format/jinja/jinja.h"

#include <math.h>

static af_jval too_big(af_jinja *j) { return af_jfail(j, "an integer does not fit in 64 bits"); }

static bool int_pow(int64_t base, int64_t exp, int64_t *out)
{
    int64_t r = 1;
    while (exp > 0) {
        if ((exp & 1) && __builtin_mul_overflow(r, base, &r))
            return false;
        exp >>= 1;
        if (exp && __builtin_mul_overflow(base, base, &base))
            return false;
    }
    *out = r;
    return true;
}

static af_jval int_divide(af_jinja *j, char op, int64_t x, int64_t y)
{
    if (y == 0)
        return af_jfail(j, "%s by zero", op == '/' ? "division" : "integer division or modulo");
    if (op == '/')
        return af_jfloat((double)x / (double)y);
    if (y == -1)
        return op == '%' ? af_jint(0) : af_jnegate(j, af_jint(x));
    int64_t q = x / y, r = x % y; /* Python rounds down, the remainder has the divisor's sign */
    if (r != 0 && (r < 0) != (y < 0)) {
        q--;
        r += y;
    }
    return af_jint(op == 'f' ? q : r);
}

static af_jval float_operation(af_jinja *j, char op, double x, double y)
{
    switch (op) {
    case '+':
        return af_jfloat(x + y);
    case '-':
        return af_jfloat(x - y);
    case '*':
        return af_jfloat(x * y);
    case 'p':
        if (x == 0 && y < 0)
            return af_jfail(j, "0.0 cannot be raised to a negative power");
        if (x < 0 && y != floor(y))
            return af_jfail(j, "a negative number raised to a fractional power is complex");
        return af_jfloat(pow(x, y));
    default:
        break;
    }
    if (y == 0)
        return af_jfail(j, "float division by zero");
    if (op == '/')
        return af_jfloat(x / y);
    double r = fmod(x, y);
    if (r != 0 && (r < 0) != (y < 0))
        r += y;
    else if (r == 0)
        r = copysign(0.0, y);
    if (op == '%')
        return af_jfloat(r);
    const double q = (x - r) / y, down = floor(q);
    return af_jfloat(q == 0 ? copysign(0.0, x / y) : q - down > 0.5 ? down + 1 : down);
}

static af_jval int_operation(af_jinja *j, char op, int64_t x, int64_t y)
{
    int64_t r = 0;
    if (op == '/' || op == 'f' || op == '%')
        return int_divide(j, op, x, y);
    if (op == 'p' && y < 0)
        return float_operation(j, op, (double)x, (double)y);
    const bool over = op == '+'   ? __builtin_add_overflow(x, y, &r)
                      : op == '-' ? __builtin_sub_overflow(x, y, &r)
                      : op == '*' ? __builtin_mul_overflow(x, y, &r)
                                  : !int_pow(x, y, &r);
    return over ? too_big(j) : af_jint(r);
}

static af_jval concat_str(af_jinja *j, af_jval a, af_jval b)
{
    const bool markup = a.markup || b.markup;
    if (markup) { /* the one that is not marked safe is escaped */
        a = af_jescape(j, a);
        b = af_jescape(j, b);
    }
    const uint64_t n = a.s->n + b.s->n;
    if (n > AF_TEMPLATE_OUTPUT_MAX)
        return af_jfail(j, "a text has more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
    char *p = af_jtake(j, n + 1);
    af_jstr *s = af_jtake(j, sizeof *s);
    if (!p || !s)
        return (af_jval){0};
    memcpy(p, a.s->p, a.s->n);
    memcpy(p + a.s->n, b.s->p, b.s->n);
    *s = (af_jstr){.p = p, .n = n, .cps = a.s->cps + b.s->cps};
    return af_jmark(af_jstr_v(s), markup);
}

static void add_all(af_jinja *j, af_jlist *to, const af_jlist *from)
{
    for (int64_t i = 0; i < from->n && !j->failed; i++)
        af_jlist_add(j, to, from->item[i]);
}

static bool can_repeat(af_jval v)
{
    return v.kind == AF_JKIND_STR || v.kind == AF_JKIND_LIST || v.kind == AF_JKIND_TUPLE;
}

static af_jval repeat(af_jinja *j, af_jval v, int64_t times)
{
    times = AF_MAX(times, 0);
    if (v.kind == AF_JKIND_STR) {
        uint64_t n = 0;
        if (!af_mul_ok(v.s->n, (uint64_t)times, &n) || n > AF_JINJA_PAD_MAX)
            return af_jfail(j, "a repeated text has more than %d bytes", AF_JINJA_PAD_MAX);
        af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
        for (int64_t i = 0; i < times && v.s->n; i++)
            af_buf_add(&b, v.s->p, v.s->n);
        return af_jmark(af_jstr_take(j, &b), v.markup);
    }
    af_jlist *l = af_jlist_new(j, 0);
    for (int64_t k = 0; k < times && v.l->n && !j->failed; k++)
        add_all(j, l, v.l);
    return (af_jval){.kind = v.kind, .l = l};
}

af_jval af_jbinary(af_jinja *j, char op, af_jval a, af_jval b)
{
    if (af_jis_int(a) && af_jis_int(b))
        return int_operation(j, op, af_jinteger(a), af_jinteger(b));
    if (af_jis_number(a) && af_jis_number(b))
        return float_operation(j, op, af_jnumber(a), af_jnumber(b));
    if (op == '%' && a.kind == AF_JKIND_STR)
        return af_jpercent(j, a, b);
    if (op == '+' && a.kind == AF_JKIND_STR && b.kind == AF_JKIND_STR)
        return concat_str(j, a, b);
    if (op == '+' && a.kind == b.kind && can_repeat(a)) {
        af_jlist *l = af_jlist_new(j, a.l->n + b.l->n);
        add_all(j, l, a.l);
        add_all(j, l, b.l);
        return (af_jval){.kind = a.kind, .l = l};
    }
    if (op == '*' && can_repeat(a) && af_jis_int(b))
        return repeat(j, a, af_jinteger(b));
    if (op == '*' && af_jis_int(a) && can_repeat(b))
        return repeat(j, b, af_jinteger(a));
    const af_jval bad = a.kind == AF_JKIND_UNDEF ? a : b;
    if (op == '+' && can_repeat(a))
        return af_jfail_type(j, bad, "can only concatenate %s (not \"%s\") to %s", af_jtype(a),
                             af_jtype(b), af_jtype(a));
    return af_jfail_type(j, bad, "unsupported operand type(s) for %s: '%s' and '%s'",
                         op == 'f'   ? "//"
                         : op == 'p' ? "** or pow()"
                                     : (char[2]){op, 0},
                         af_jtype(a), af_jtype(b));
}

af_jval af_jnegate(af_jinja *j, af_jval v)
{
    if (af_jis_int(v))
        return af_jinteger(v) == INT64_MIN ? too_big(j) : af_jint(-af_jinteger(v));
    if (v.kind == AF_JKIND_FLOAT)
        return af_jfloat(-v.f);
    return af_jfail_type(j, v, "bad operand type for unary -: '%s'", af_jtype(v));
}
