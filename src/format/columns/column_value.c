/* column_value.c - see column_value.h. */
#include "format/columns/column_value.h"

#include "format/text/json_text.h"
#include "format/text/python_text.h"
#include "format/text/unicode.h"
#include "tensor/half.h"

#include <math.h>

#define ONES  UINT64_C(0x0101010101010101)
#define HIGHS UINT64_C(0x8080808080808080)

/* Of eight bytes: is one not plain ASCII (a quote, a backslash, a control character, beyond)? */
static inline bool has_special(uint64_t v)
{
    const uint64_t quote = v ^ ONES * '"', slash = v ^ ONES * '\\';
    const uint64_t low = (v - ONES * 0x20) & ~v;
    return ((v | low | ((quote - ONES) & ~quote) | ((slash - ONES) & ~slash)) & HIGHS) != 0;
}

/* How many bytes from s on need no escape. */
static uint64_t plain_run(const uint8_t *s, uint64_t n)
{
    uint64_t i = 0;
    while (i < n) {
        uint64_t v;
        if (n - i >= 8) {
            memcpy(&v, s + i, 8);
            if (!has_special(v)) {
                i += 8;
                continue;
            }
        }
        if (s[i] < 0x80) {
            if (s[i] < 0x20 || s[i] == '"' || s[i] == '\\')
                return i;
            i++;
            continue;
        }
        if (af_utf8_bad((const char *)s + i, n - i))
            return i;
        i += af_utf8_len((char)s[i]);
    }
    return n;
}

static void put_escape(af_buf *b, uint8_t c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = c ? strchr(from, c) : NULL;
    if (at)
        af_buf_add(b, (const char[]){'\\', to[at - from]}, 2);
    else
        af_buf_printf(b, "\\u%04x", c);
}

const char *af_column_put_text(af_buf *b, const char *s, uint64_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    af_buf_char(b, '"');
    for (uint64_t i = 0; i < n;) {
        const uint64_t run = plain_run(p + i, n - i);
        af_buf_add(b, p + i, run);
        i += run;
        if (i < n && p[i] >= 0x80)
            return "the text is not UTF-8";
        if (i < n)
            put_escape(b, p[i++]);
    }
    af_buf_char(b, '"');
    return NULL;
}

static int64_t signed_of(const uint8_t *p, int width)
{
    const int shift = 64 - 8 * width;
    return (int64_t)(af_column_uint(p, width) << shift) >> shift;
}

static void put_int(af_buf *b, const af_column_type *t, const uint8_t *p)
{
    if (t->is_signed)
        af_buf_printf(b, "%" PRId64, signed_of(p, t->width));
    else
        af_buf_printf(b, "%" PRIu64, af_column_uint(p, t->width));
}

static void put_float(af_buf *b, double v)
{
    if (isnan(v) || isinf(v))
        af_buf_str(b, isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    else
        af_py_float(b, v);
}

static double float_of(const uint8_t *p, int width)
{
    float f;
    double d;
    if (width == 2)
        return (double)af_f16_at(p);
    if (width == 4) {
        memcpy(&f, p, 4);
        return (double)f;
    }
    memcpy(&d, p, 8);
    return d;
}

static void put_uuid(af_buf *b, const uint8_t *p)
{
    af_buf_char(b, '"');
    for (int i = 0; i < 16; i++)
        af_buf_printf(b, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", p[i]);
    af_buf_char(b, '"');
}

enum { DECIMAL_BYTES_MAX = 32, DECIMAL_DIGITS = 80, DECIMAL_SCALE_MAX = 1000 };

/* The decimal digits of a big-endian magnitude, last digit first. */
static int digits_of(char *out, uint8_t *v, uint64_t n)
{
    int count = 0;
    for (bool more = true; more && count < DECIMAL_DIGITS;) {
        uint32_t rest = 0;
        more = false;
        for (uint64_t i = 0; i < n; i++) {
            const uint32_t d = rest << 8 | v[i];
            v[i] = (uint8_t)(d / 10);
            rest = d % 10;
            more |= v[i] != 0;
        }
        out[count++] = (char)('0' + rest);
    }
    return count;
}

static const char *put_decimal(af_buf *b, const af_column_type *t, const uint8_t *p, uint64_t n)
{
    uint8_t v[DECIMAL_BYTES_MAX];
    char digit[DECIMAL_DIGITS];
    if (n == 0 || n > sizeof v)
        return "a decimal number of no or more than 32 bytes";
    if (t->scale > DECIMAL_SCALE_MAX || t->scale < -DECIMAL_SCALE_MAX)
        return "a decimal number with a scale beyond 1000";
    for (uint64_t i = 0; i < n; i++)
        v[i] = t->big_endian ? p[i] : p[n - 1 - i];
    const bool minus = v[0] & 0x80;
    unsigned carry = 1;
    for (uint64_t i = n; minus && i-- > 0;) { /* two's complement */
        carry += (uint8_t)~v[i];
        v[i] = (uint8_t)carry;
        carry >>= 8;
    }
    const int count = digits_of(digit, v, n);
    af_buf_str(b, minus ? "\"-" : "\"");
    for (int i = AF_MAX(count - 1, t->scale); i >= 0; i--) {
        af_buf_char(b, i < count ? digit[i] : '0');
        if (i == t->scale && i > 0)
            af_buf_char(b, '.');
    }
    for (int i = t->scale; i < 0 && !(count == 1 && digit[0] == '0'); i++)
        af_buf_char(b, '0');
    af_buf_char(b, '"');
    return NULL;
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static int64_t floor_rest(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

/* The day of the proleptic Gregorian calendar, days since 1970-01-01. */
static void put_day(af_buf *b, int64_t days)
{
    const int64_t z = days + 719468, era = floor_div(z, 146097), doe = z - era * 146097;
    const int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    const int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    const int64_t day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9;
    const int64_t year = yoe + era * 400 + (month <= 2);
    af_buf_printf(b, "%s%04" PRId64 "-%02d-%02d", year < 0 ? "-" : "", year < 0 ? -year : year,
                  (int)month, (int)day);
}

static int64_t per_second(int digits)
{
    return digits == 9 ? 1000000000 : digits == 6 ? 1000000 : digits == 3 ? 1000 : 1;
}

static void put_clock(af_buf *b, int64_t seconds, int64_t part, int digits)
{
    af_buf_printf(b, "%02" PRId64 ":%02d:%02d", seconds / 3600, (int)(seconds / 60 % 60),
                  (int)(seconds % 60));
    if (digits > 0)
        af_buf_printf(b, ".%0*" PRId64, digits, part);
}

static void put_stamp(af_buf *b, int64_t days, int64_t seconds, int64_t part, int digits, bool zone)
{
    af_buf_char(b, '"');
    put_day(b, days);
    af_buf_char(b, 'T');
    put_clock(b, seconds, part, digits);
    af_buf_str(b, zone ? "Z\"" : "\"");
}

static const char *put_when(af_buf *b, const af_column_type *t, int64_t v)
{
    const int64_t unit = per_second(t->digits);
    const int64_t seconds = floor_div(v, unit), part = floor_rest(v, unit);
    const int64_t days = floor_div(seconds, 86400), clock = floor_rest(seconds, 86400);
    if (t->kind == AF_COLUMN_STAMP) {
        put_stamp(b, days, clock, part, t->digits, t->zone);
        return NULL;
    }
    if (t->digits < 0 && (v < INT32_MIN || v > INT32_MAX))
        return "a date beyond 5 million years";
    if (t->kind == AF_COLUMN_TIME && (v < 0 || seconds >= 86400))
        return "a time of day outside 24 hours";
    af_buf_char(b, '"');
    if (t->kind == AF_COLUMN_TIME)
        put_clock(b, seconds, part, t->digits);
    else
        put_day(b, t->digits < 0 ? v : days);
    af_buf_char(b, '"');
    return NULL;
}

static const char *put_int96(af_buf *b, const uint8_t *p)
{
    enum { UNIX_EPOCH = 2440588 }; /* as a Julian day */
    const uint64_t nanos = af_column_uint(p, 8);
    const int64_t day = (int64_t)af_column_uint(p + 8, 4) - UNIX_EPOCH;
    const uint64_t second = 1000000000, days = nanos / second / 86400;
    if (days > 0)
        return "a time of day outside 24 hours";
    put_stamp(b, day, (int64_t)(nanos / second), (int64_t)(nanos % second), 9, false);
    return NULL;
}

const char *af_column_put(af_buf *b, const af_column_type *t, const uint8_t *p, uint64_t len)
{
    if (t->width && len != (uint64_t)t->width)
        return "a value has another length than its type";
    switch (t->kind) {
    case AF_COLUMN_NULL:
        af_buf_str(b, "null");
        break;
    case AF_COLUMN_BOOL:
        af_buf_str(b, *p ? "true" : "false");
        break;
    case AF_COLUMN_INT:
        put_int(b, t, p);
        break;
    case AF_COLUMN_FLOAT:
        put_float(b, float_of(p, t->width));
        break;
    case AF_COLUMN_TEXT:
        return af_column_put_text(b, (const char *)p, len);
    case AF_COLUMN_BYTES:
        af_buf_char(b, '"');
        af_buf_base64(b, p, len);
        af_buf_char(b, '"');
        break;
    case AF_COLUMN_UUID:
        put_uuid(b, p);
        break;
    case AF_COLUMN_DECIMAL:
        return put_decimal(b, t, p, len);
    case AF_COLUMN_DATE:
    case AF_COLUMN_TIME:
    case AF_COLUMN_STAMP:
        return put_when(b, t, signed_of(p, t->width));
    case AF_COLUMN_INT96:
        return put_int96(b, p);
    }
    return NULL;
}

const char *af_column_put_inside(af_buf *b, const af_column_type *t, const uint8_t *p, uint64_t len)
{
    json_t *v = t->kind == AF_COLUMN_TEXT && t->json
                    ? af_json_load((const char *)p, len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL)
                    : NULL;
    if (!v)
        return af_column_put(b, t, p, len);
    json_decref(v);
    af_buf_add(b, p, len);
    return NULL;
}

bool af_column_drop_null(af_buf *b, uint64_t field, uint64_t value)
{
    if (b->bad || b->len != value + 4 || memcmp(b->data + value, "null", 4) != 0)
        return false;
    b->len = field;
    return true;
}
