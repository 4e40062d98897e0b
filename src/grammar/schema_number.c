/* schema_number.c - numbers between bounds, as decimal digits.
 *
 * For each length of the integer part an automaton reads digit by digit and knows whether what it
 * has read equals the beginning of the lower and of the upper bound: only then does the bound limit
 * the next digit. Numbers have at most 15 digits (integers 18), so that a reader's double tells
 * them from the bound. Numbers with bounds are written without an exponent. */
#include "grammar/schema.h"

enum { DIGITS = 18, DIGITS_REAL = 15, KEPT = 40 };

typedef struct decimal { /* not negative */
    bool none;           /* no bound */
    bool exclusive;
    char whole[KEPT + 1], part[KEPT + 1]; /* without zeros in front, without zeros at the end */
    int wholes, parts;
} decimal;

typedef struct span {
    af_rtn *r;
    decimal low, high;
    bool fractions;
    uint32_t to;
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

/* May the number end after `parts` digits of the fraction? */
static bool may_end(const span *s, int parts, bool low, bool high)
{
    if (low && (parts < s->low.parts || s->low.exclusive))
        return false;
    return !high || parts < s->high.parts || !s->high.exclusive;
}

static int digit_at(const char *digits, int n, int i) { return i < n ? digits[i] - '0' : 0; }

/* One digit: at most three edges, by whether it equals a bound's. state[] by low * 2 + high. */
static void digit_edges(span *s, uint32_t from, bool low, bool high, int lo, int hi, int least,
                        uint32_t state[4])
{
    for (int d = AF_MAX(least, low ? lo : 0); d <= (high ? hi : 9); d++) {
        const bool l = low && d == lo, h = high && d == hi;
        int last = d;
        while (!l && !h && last + 1 <= (high ? hi - 1 : 9))
            last++;
        af_rtn_bytes(s->r, from, '0' + d, '0' + last, state[l * 2 + h]);
        d = last;
    }
}

static void new_states(span *s, uint32_t state[4])
{
    for (int i = 0; i < 4; i++)
        state[i] = af_rtn_state(s->r);
}

static void emit_fraction(span *s, const uint32_t whole[4], int digits)
{
    uint32_t at[4], next[4];
    if (digits < 1)
        return;
    new_states(s, at);
    for (int i = 0; i < 4; i++)
        af_rtn_bytes(s->r, whole[i], '.', '.', at[i]);
    for (int k = 0; k < digits; k++) {
        new_states(s, next);
        for (int i = 0; i < 4; i++) {
            digit_edges(s, at[i], i >> 1, i & 1, digit_at(s->low.part, s->low.parts, k),
                        digit_at(s->high.part, s->high.parts, k), 0, next);
            if (may_end(s, k + 1, i >> 1, i & 1))
                af_rtn_free_edge(s->r, next[i], s->to);
        }
        memcpy(at, next, sizeof at);
    }
}

/* Numbers with `n` digits before the point. */
static void emit_length(span *s, uint32_t from, int n)
{
    const int lows = AF_MAX(s->low.wholes, 1), highs = AF_MAX(s->high.wholes, 1);
    const bool low = !s->low.none && lows == n, high = !s->high.none && highs == n;
    uint32_t at[4], next[4];
    if ((!s->low.none && lows > n) || (!s->high.none && highs < n))
        return;
    new_states(s, at);
    af_rtn_free_edge(s->r, from, at[low * 2 + high]);
    for (int k = 0; k < n; k++) {
        new_states(s, next);
        for (int i = 0; i < 4; i++)
            digit_edges(s, at[i], i >> 1, i & 1, digit_at(s->low.whole, s->low.wholes, k),
                        digit_at(s->high.whole, s->high.wholes, k), k == 0 && n > 1, next);
        memcpy(at, next, sizeof at);
    }
    for (int i = 0; i < 4; i++)
        if (may_end(s, 0, i >> 1, i & 1))
            af_rtn_free_edge(s->r, at[i], s->to);
    if (s->fractions)
        emit_fraction(s, at, DIGITS_REAL - n);
}

static void emit_span(af_rtn *r, uint32_t from, decimal low, decimal high, bool fractions,
                      uint32_t to)
{
    span s = {r, low, high, fractions, to};
    for (int n = 1; n <= (fractions ? DIGITS_REAL : DIGITS); n++)
        emit_length(&s, from, n);
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

void af_number_emit(af_rtn *r, uint32_t from, unsigned types, const af_number_bound *least,
                    const af_number_bound *most, uint32_t to)
{
    const bool fractions = types & AF_TYPE_FRACTION;
    const decimal none = {.none = true}, above_zero = {.exclusive = true}, zero = {0};
    if (!least->set && !most->set) {
        emit_any(r, from, fractions, to);
        return;
    }
    if (!most->set || !is_negative(most)) {
        const bool from_zero = !least->set || is_negative(least);
        const decimal low = from_zero ? zero : decimal_of(least, true);
        emit_span(r, from, low, most->set ? decimal_of(most, false) : none, fractions, to);
    }
    if (!least->set || is_negative(least)) {
        const uint32_t minus = af_rtn_state(r);
        decimal low = most->set && is_negative(most) ? decimal_of(most, true) : above_zero;
        if (is_zero(&low))
            low.exclusive = true;
        af_rtn_bytes(r, from, '-', '-', minus);
        emit_span(r, minus, low, least->set ? decimal_of(least, false) : none, fractions, to);
    }
}
