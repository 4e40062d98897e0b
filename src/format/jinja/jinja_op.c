/* jinja_op.c - arithmetic: + - * / // % ** and unary minus on Python's types.
 *
 * Integers are 64 bits: a result that needs more is an error, never a wrong number. */
#include "format/jinja/jinja.h"

#include <math.h>

static const char *sign_of(af_jop op)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    return names[op - AF_N_ADD];
}

static af_jv no_operation(af_jinja *j, af_jop op, af_jv a, af_jv b)
{
    const af_jv *u = a.kind == AF_J_UNDEF ? &a : b.kind == AF_J_UNDEF ? &b : NULL;
    if (u && u->s)
        return af_jfail(j, "%s", u->s->p);
    if (op == AF_N_ADD && (a.kind == AF_J_STR || a.kind == AF_J_LIST || a.kind == AF_J_TUPLE))
        return af_jfail(j, "can only concatenate %s (not \"%s\") to %s", af_jtype(a), af_jtype(b),
                        af_jtype(a));
    return af_jfail(j, "unsupported operand type(s) for %s: '%s' and '%s'", sign_of(op),
                    af_jtype(a), af_jtype(b));
}

bool af_jint_pow(int64_t base, int64_t exp, int64_t *out)
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

static af_jv int_divide(af_jinja *j, af_jop op, int64_t x, int64_t y)
{
    if (y == 0)
        return af_jfail(j, "%s by zero",
                        op == AF_N_DIV ? "division" : "integer division or modulo");
    if (op == AF_N_DIV)
        return af_jfloat((double)x / (double)y);
    if (y == -1) {
        int64_t r = 0;
        if (op == AF_N_FLOORDIV && __builtin_sub_overflow((int64_t)0, x, &r))
            return af_jfail(j, "an integer result does not fit in 64 bits");
        return af_jint(op == AF_N_FLOORDIV ? r : 0);
    }
    int64_t q = x / y, r = x % y; /* Python rounds down, the remainder has the divisor's sign */
    if (r != 0 && (r < 0) != (y < 0)) {
        q--;
        r += y;
    }
    return af_jint(op == AF_N_FLOORDIV ? q : r);
}

static af_jv int_operation(af_jinja *j, af_jop op, int64_t x, int64_t y)
{
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case AF_N_ADD:
        over = __builtin_add_overflow(x, y, &r);
        break;
    case AF_N_SUB:
        over = __builtin_sub_overflow(x, y, &r);
        break;
    case AF_N_MUL:
        over = __builtin_mul_overflow(x, y, &r);
        break;
    case AF_N_POW:
        if (y < 0 && x == 0)
            return af_jfail(j, "0.0 cannot be raised to a negative power");
        if (y < 0)
            return af_jfloat(pow((double)x, (double)y));
        over = !af_jint_pow(x, y, &r);
        break;
    default:
        return int_divide(j, op, x, y);
    }
    return over ? af_jfail(j, "an integer result does not fit in 64 bits") : af_jint(r);
}

static af_jv float_operation(af_jinja *j, af_jop op, double x, double y)
{
    switch (op) {
    case AF_N_ADD:
        return af_jfloat(x + y);
    case AF_N_SUB:
        return af_jfloat(x - y);
    case AF_N_MUL:
        return af_jfloat(x * y);
    case AF_N_POW:
        if (x == 0 && y < 0)
            return af_jfail(j, "0.0 cannot be raised to a negative power");
        if (x < 0 && y != floor(y))
            return af_jfail(j, "a negative number to a broken power is complex");
        return af_jfloat(pow(x, y));
    default:
        break;
    }
    if (y == 0)
        return af_jfail(j, "float division by zero");
    if (op == AF_N_DIV)
        return af_jfloat(x / y);
    double r = fmod(x, y);
    if (r != 0 && (r < 0) != (y < 0))
        r += y;
    else if (r == 0)
        r = copysign(0.0, y);
    if (op == AF_N_MOD)
        return af_jfloat(r);
    const double q = (x - r) / y;
    const double down = floor(q);
    return af_jfloat(q == 0 ? copysign(0.0, x / y) : q - down > 0.5 ? down + 1 : down);
}

static af_jv concat_str(af_jinja *j, af_jv a, af_jv b)
{
    const bool markup = a.markup || b.markup;
    if (markup) { /* whoever is not marked safe is escaped */
        a = af_jescape(j, a);
        b = af_jescape(j, b);
    }
    const uint64_t n = a.s->n + b.s->n;
    if (n > AF_TEMPLATE_OUTPUT_MAX)
        return af_jfail(j, "a text has more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
    char *p = af_jtake(j, n + 1);
    af_jstr *s = af_jtake(j, sizeof *s);
    if (!p || !s)
        return (af_jv){0};
    memcpy(p, a.s->p, a.s->n);
    memcpy(p + a.s->n, b.s->p, b.s->n);
    *s = (af_jstr){.p = p, .n = n, .cps = a.s->cps + b.s->cps};
    return (af_jv){.kind = AF_J_STR, .markup = markup, .s = s};
}

static af_jv concat_list(af_jinja *j, af_jv a, af_jv b)
{
    af_jlist *l = af_jlist_new(j, a.l->n + b.l->n);
    for (int64_t i = 0; i < a.l->n && !j->failed; i++)
        af_jlist_add(j, l, a.l->item[i]);
    for (int64_t i = 0; i < b.l->n && !j->failed; i++)
        af_jlist_add(j, l, b.l->item[i]);
    return a.kind == AF_J_LIST ? af_jlist_v(l) : af_jtuple_v(l);
}

static af_jv repeat(af_jinja *j, af_jv v, int64_t times)
{
    times = AF_MAX(times, 0);
    if (v.kind == AF_J_STR) {
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
        for (int64_t i = 0; i < v.l->n && !j->failed; i++)
            af_jlist_add(j, l, v.l->item[i]);
    return v.kind == AF_J_LIST ? af_jlist_v(l) : af_jtuple_v(l);
}

static bool is_int(af_jv v) { return v.kind == AF_J_INT || v.kind == AF_J_BOOL; }
static int64_t int_of(af_jv v) { return v.kind == AF_J_BOOL ? v.b : v.i; }
static bool is_seq(af_jv v)
{
    return v.kind == AF_J_STR || v.kind == AF_J_LIST || v.kind == AF_J_TUPLE;
}

af_jv af_jbinary(af_jinja *j, af_jop op, af_jv a, af_jv b)
{
    if (is_int(a) && is_int(b))
        return int_operation(j, op, int_of(a), int_of(b));
    if (af_jis_number(a) && af_jis_number(b))
        return float_operation(j, op, af_jnumber(a), af_jnumber(b));
    if (op == AF_N_MOD && a.kind == AF_J_STR)
        return af_jpercent(j, a, b);
    if (op == AF_N_ADD && a.kind == AF_J_STR && b.kind == AF_J_STR)
        return concat_str(j, a, b);
    if (op == AF_N_ADD && a.kind == b.kind && (a.kind == AF_J_LIST || a.kind == AF_J_TUPLE))
        return concat_list(j, a, b);
    if (op == AF_N_MUL && is_seq(a) && is_int(b))
        return repeat(j, a, int_of(b));
    if (op == AF_N_MUL && is_int(a) && is_seq(b))
        return repeat(j, b, int_of(a));
    return no_operation(j, op, a, b);
}

af_jv af_jnegate(af_jinja *j, af_jv v)
{
    int64_t r = 0;
    if (is_int(v))
        return __builtin_sub_overflow((int64_t)0, int_of(v), &r)
                   ? af_jfail(j, "an integer result does not fit in 64 bits")
                   : af_jint(r);
    if (v.kind == AF_J_FLOAT)
        return af_jfloat(-v.f);
    if (v.kind == AF_J_UNDEF && v.s)
        return af_jfail(j, "%s", v.s->p);
    return af_jfail(j, "bad operand type for unary -: '%s'", af_jtype(v));
}
