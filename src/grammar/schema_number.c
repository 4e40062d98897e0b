/* schema_number.c - numbers between bounds, as decimal digits.
 *
 * For each length of the integer part an automaton reads digit by digit and knows whether what it
 * has read equals the beginning of the lower and of the upper bound: only then does the bound limit
 * the next digit. For multiples it also knows the remainder. Numbers have at most 15 digits
 * (integers 18), so that a reader's double tells them from the bound and from each other. Numbers
 * with bounds, and those where each value has one spelling, are written without an exponent. */
#include "grammar/schema.h"

#include <math.h>

enum { DIGITS = 18, DIGITS_REAL = 15, DIGITS_MULTIPLE = 9, KEPT = 40 };
#define NO_STATE UINT32_MAX

typedef struct decimal { /* not negative */
    bool none;           /* no bound */
    bool exclusive;
    char whole[KEPT + 1], part[KEPT + 1]; /* without zeros in front, without zeros at the end */
    int wholes, parts;
} decimal;

typedef struct span {
    af_rtn *r;
    decimal low, high;
    bool fractions, once; /* once: no zero at the end of a fraction */
    int multiple, places; /* the value times 10^places is a multiple of this */
    uint32_t to;
    uint32_t at[4 * AF_SCHEMA_MULTIPLE_MAX],
        next[4 * AF_SCHEMA_MULTIPLE_MAX]; /* [low, high][rem] */
} span;

/* Shortest text that reads back as x. */
static void real_text(double x, char text[40])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, 40, "%.*e", digits - 1, x);
        if (strtod(text, NULL) == x)
            break;
    }
}

/* d.ddd e+xx to digits before and after the point; what is beyond the kept ones is cut off, and
 * *cut says that something was. */
static void split_digits(const char *text, decimal *d, bool *cut)
{
    char digit[24];
    int n = 0, point = 0;
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' && n < 20)
            digit[n++] = *text;
    if (*text == 'e')
        point = (int)strtol(text + 1, NULL, 10);
    point++; /* digits before the point */
    *cut = false;
    for (int i = AF_MIN(point, 0); i < n || i < point; i++) {
        const char c = i >= 0 && i < n ? digit[i] : '0';
        if (i < point && d->wholes < KEPT && (d->wholes || c != '0'))
            d->whole[d->wholes++] = c;
        else if (i >= point && d->parts < KEPT)
            d->part[d->parts++] = c;
        else if (c != '0' && i >= point)
            *cut = true;
    }
    while (d->parts && d->part[d->parts - 1] == '0')
        d->parts--;
}

/* |value| as digits. `lower`: it bounds from below. */
static decimal decimal_of(const af_number_bound *b, bool lower)
{
    decimal d = {.exclusive = b->exclusive};
    char text[40];
    bool cut = false;
    if (json_is_integer(b->value)) {
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(b->value));
        for (const char *c = text; *c; c++)
            if (*c != '-' && (d.wholes || *c != '0'))
                d.whole[d.wholes++] = *c;
        return d;
    }
    const double x = json_real_value(b->value);
    real_text(x < 0 ? -x : x, text);
    split_digits(text, &d, &cut);
    if (cut) /* nothing lies between the value and its digits */
        d.exclusive = lower;
    return d;
}

static bool is_negative(const af_number_bound *b)
{
    return json_is_integer(b->value) ? json_integer_value(b->value) < 0
                                     : json_real_value(b->value) < 0;
}

static bool is_zero(const decimal *d) { return !d->wholes && !d->parts; }

/* May the number end after `parts` digits of the fraction? rem: of all its digits. */
static bool may_end(const span *s, int parts, bool low, bool high, int rem)
{
    for (int i = parts; i < s->places && rem; i++)
        rem = rem * 10 % s->multiple;
    if (rem || (low && (parts < s->low.parts || s->low.exclusive)))
        return false;
    return !high || parts < s->high.parts || !s->high.exclusive;
}

static int digit_at(const char *digits, int n, int i) { return i < n ? digits[i] - '0' : 0; }

/* The state for low * 2 + high and a remainder among the next ones; made when it is first needed.
 */
static uint32_t next_state(span *s, int bounds, int rem)
{
    uint32_t *state = &s->next[bounds * s->multiple + rem];
    if (*state == NO_STATE)
        *state = af_rtn_state(s->r);
    return *state;
}

static void clear_states(const span *s, uint32_t *state)
{
    for (int i = 0; i < 4 * s->multiple; i++)
        state[i] = NO_STATE;
}

static void advance(span *s)
{
    memcpy(s->at, s->next, 4 * (size_t)s->multiple * sizeof *s->at);
    clear_states(s, s->next);
}

/* One digit after s->at[i]: without remainders at most three edges, by whether it equals a bound's.
 * parts > 0: it is that one of a fraction, which may only end with a digit above 0. */
static void digit_edges(span *s, int i, int lo, int hi, int least, int parts)
{
    const int bounds = i / s->multiple, rem = i % s->multiple;
    const bool low = bounds >> 1, high = bounds & 1;
    for (int d = AF_MAX(least, low ? lo : 0); d <= (high ? hi : 9); d++) {
        const bool l = low && d == lo, h = high && d == hi;
        int last = d;
        while (!l && !h && s->multiple == 1 && last + 1 <= (high ? hi - 1 : 9))
            last++;
        const int left = (rem * 10 + d) % s->multiple;
        af_rtn_bytes(s->r, s->at[i], '0' + d, '0' + last, next_state(s, l * 2 + h, left));
        if (parts && last > 0 && may_end(s, parts, l, h, left))
            af_rtn_bytes(s->r, s->at[i], '0' + AF_MAX(d, 1), '0' + last, s->to);
        d = last;
    }
}

/* One digit after all states: lo and hi are those of the bounds. */
static void take_digit(span *s, int lo, int hi, int least, int parts)
{
    for (int i = 0; i < 4 * s->multiple; i++)
        if (s->at[i] != NO_STATE)
            digit_edges(s, i, lo, hi, least, parts);
    advance(s);
}

static void end_number(span *s, int parts)
{
    for (int i = 0; i < 4 * s->multiple; i++) {
        const int bounds = i / s->multiple;
        if (s->at[i] != NO_STATE && may_end(s, parts, bounds >> 1, bounds & 1, i % s->multiple))
            af_rtn_free_edge(s->r, s->at[i], s->to);
    }
}

static void emit_fraction(span *s, int digits)
{
    if (digits < 1)
        return;
    for (int i = 0; i < 4 * s->multiple; i++)
        if (s->at[i] != NO_STATE)
            af_rtn_bytes(s->r, s->at[i], '.', '.', next_state(s, i / s->multiple, i % s->multiple));
    advance(s);
    for (int k = 0; k < digits; k++) {
        take_digit(s, digit_at(s->low.part, s->low.parts, k),
                   digit_at(s->high.part, s->high.parts, k), 0, s->once ? k + 1 : 0);
        if (!s->once)
            end_number(s, k + 1);
    }
}

/* Numbers with `n` digits before the point. */
static void emit_length(span *s, uint32_t from, int n)
{
    const int lows = AF_MAX(s->low.wholes, 1), highs = AF_MAX(s->high.wholes, 1);
    const bool low = !s->low.none && lows == n, high = !s->high.none && highs == n;
    if ((!s->low.none && lows > n) || (!s->high.none && highs < n))
        return;
    clear_states(s, s->next);
    af_rtn_free_edge(s->r, from, next_state(s, low * 2 + high, 0));
    advance(s);
    for (int k = 0; k < n; k++)
        take_digit(s, digit_at(s->low.whole, s->low.wholes, k),
                   digit_at(s->high.whole, s->high.wholes, k), k == 0 && n > 1, 0);
    end_number(s, 0);
    if (s->fractions)
        emit_fraction(s, AF_MIN(DIGITS_REAL - n, s->places));
}

static void emit_span(span *s, uint32_t from, decimal low, decimal high)
{
    int most = s->fractions ? DIGITS_REAL : DIGITS;
    if (s->multiple > 1 && high.none) /* remainders are many states */
        most = AF_MIN(most, AF_MAX(DIGITS_MULTIPLE, low.wholes + 1));
    s->low = low;
    s->high = high;
    for (int n = 1; n <= most; n++)
        emit_length(s, from, n);
}

static uint32_t digits(af_rtn *r, uint32_t from, int min, int max, uint32_t to)
{
    for (int i = 0; i < max; i++) {
        const uint32_t next = af_rtn_state(r);
        if (i >= min)
            af_rtn_free_edge(r, from, to);
        af_rtn_bytes(r, from, '0', '9', next);
        from = next;
    }
    af_rtn_free_edge(r, from, to);
    return to;
}

/* Any number, in the spelling of JSON. */
static void emit_any(af_rtn *r, uint32_t from, bool fractions, uint32_t to)
{
    const uint32_t unsigned_ = af_rtn_state(r), whole = af_rtn_state(r), more = af_rtn_state(r);
    af_rtn_free_edge(r, from, unsigned_);
    af_rtn_bytes(r, from, '-', '-', unsigned_);
    af_rtn_bytes(r, unsigned_, '0', '0', whole);
    af_rtn_bytes(r, unsigned_, '1', '9', more);
    digits(r, more, 0, (fractions ? DIGITS_REAL : DIGITS) - 1, whole);
    af_rtn_free_edge(r, whole, to);
    if (!fractions)
        return;
    const uint32_t point = af_rtn_state(r), mantissa = af_rtn_state(r), e = af_rtn_state(r);
    const uint32_t sign = af_rtn_state(r), hundred = af_rtn_state(r);
    af_rtn_bytes(r, whole, '.', '.', point);
    digits(r, point, 1, 17, mantissa);
    af_rtn_free_edge(r, mantissa, to);
    af_rtn_free_edge(r, whole, mantissa);
    af_rtn_bytes(r, mantissa, 'e', 'e', e);
    af_rtn_bytes(r, mantissa, 'E', 'E', e);
    af_rtn_free_edge(r, e, sign);
    af_rtn_bytes(r, e, '+', '+', sign);
    af_rtn_bytes(r, e, '-', '-', sign);
    digits(r, sign, 1, 2, to);
    af_rtn_bytes(r, sign, '1', '2', hundred); /* below 1e308 with every mantissa */
    digits(r, hundred, 2, 2, to);
}

bool af_number_multiple(const json_t *v, int *multiple, int *places)
{
    const decimal d = decimal_of(&(af_number_bound){.value = v}, false);
    int m = 0;
    for (int i = 0; i < d.wholes + d.parts; i++) {
        m = m * 10 + (i < d.wholes ? d.whole[i] : d.part[i - d.wholes]) - '0';
        if (m > AF_SCHEMA_MULTIPLE_MAX)
            return false;
    }
    *multiple = m;
    *places = d.parts;
    return m > 0 && d.parts < DIGITS_REAL;
}

bool af_number_is_multiple(const json_t *v, int multiple, int places)
{
    const decimal d = decimal_of(&(af_number_bound){.value = v}, false);
    int rem = 0;
    for (int i = 0; i < d.wholes + places; i++)
        rem = (rem * 10 +
               (i < d.wholes ? d.whole[i] - '0' : digit_at(d.part, d.parts, i - d.wholes))) %
              multiple;
    return rem == 0 && d.parts <= places;
}

void af_number_text(const json_t *v, char text[48])
{
    if (json_is_integer(v)) {
        snprintf(text, 48, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return;
    }
    const double x = json_real_value(v);
    if (fabs(x) < 9e18 && floor(x) == x) {
        snprintf(text, 48, "%.0f", x == 0 ? 0.0 : x); /* not -0 */
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, 48, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    if (!strchr(text, 'e'))
        return;
    char plain[48]; /* as digits where they are not too many */
    int n = snprintf(plain, sizeof plain, "%.*f", DIGITS_REAL - 1, x);
    if (fabs(x) > 1 || strtod(plain, NULL) != x)
        return;
    while (plain[n - 1] == '0')
        plain[--n] = 0;
    memcpy(text, plain, (size_t)n + 1);
}

void af_number_emit(af_rtn *r, uint32_t from, unsigned types, const af_flat_schema *f, bool once,
                    uint32_t to)
{
    const af_number_bound *least = &f->least, *most = &f->most;
    const decimal none = {.none = true}, above_zero = {.exclusive = true}, zero = {0};
    span s = {.r = r,
              .fractions = types & AF_TYPE_FRACTION,
              .once = once,
              .multiple = AF_MAX(f->multiple, 1),
              .places = f->multiple ? f->places : DIGITS_REAL,
              .to = to};
    if (!least->set && !most->set && !f->multiple && !once) {
        emit_any(r, from, s.fractions, to);
        return;
    }
    if (!most->set || !is_negative(most)) {
        const bool from_zero = !least->set || is_negative(least);
        const decimal low = from_zero ? zero : decimal_of(least, true);
        emit_span(&s, from, low, most->set ? decimal_of(most, false) : none);
    }
    if (!least->set || is_negative(least)) {
        const uint32_t minus = af_rtn_state(r);
        decimal low = most->set && is_negative(most) ? decimal_of(most, true) : above_zero;
        if (is_zero(&low))
            low.exclusive = true;
        af_rtn_bytes(r, from, '-', '-', minus);
        emit_span(&s, minus, low, least->set ? decimal_of(least, false) : none);
    }
}
