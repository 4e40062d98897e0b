/* fields.c - reading and writing JSON values; see fields.h. */
#include "serve/api/fields.h"

#include "format/text/unicode.h"

#include <math.h>

json_t *af_value(const json_t *o, const char *name)
{
    json_t *v = json_object_get(o, name);
    return json_is_null(v) ? NULL : v;
}

bool af_is_word(const json_t *v, const char *word)
{
    return json_is_string(v) && strcmp(json_string_value(v), word) == 0;
}

af_status af_value_type(const json_t *o, const char *name, json_type type, json_t **v,
                        af_error *err)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string"};
    json_t *f = af_value(o, name);
    if (f && json_typeof(f) != type)
        return af_fail_subject(err, AF_EUSAGE, name, "'%s' is not %s", name, names[type]);
    *v = f;
    return AF_OK;
}

af_status af_value_bool(const json_t *o, const char *name, bool *v, af_error *err)
{
    const json_t *f = af_value(o, name);
    if (f && !json_is_boolean(f))
        return af_fail_subject(err, AF_EUSAGE, name, "'%s' is not true or false", name);
    if (f)
        *v = json_is_true(f);
    return AF_OK;
}

af_status af_value_number(const json_t *o, const char *name, double min, double max, double *v,
                          af_error *err)
{
    const json_t *f = af_value(o, name);
    if (!f)
        return AF_OK;
    if (!json_is_number(f))
        return af_fail_subject(err, AF_EUSAGE, name, "'%s' is not a number", name);
    const double x = json_number_value(f);
    if (!(x >= min && x <= max))
        return af_fail_subject(err, AF_EUSAGE, name, "'%s' is %g, not from %g to %g", name, x, min,
                               max);
    *v = x;
    return AF_OK;
}

af_status af_value_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *v,
                       af_error *err)
{
    const json_t *f = af_value(o, name);
    if (!f)
        return AF_OK;
    const double real = json_is_real(f) ? json_real_value(f) : 0;
    if (!json_is_integer(f) && !(json_is_real(f) && real == floor(real) && fabs(real) < 9e15))
        return af_fail_subject(err, AF_EUSAGE, name, "'%s' is not an integer", name);
    const int64_t x = json_is_integer(f) ? (int64_t)json_integer_value(f) : (int64_t)real;
    if (x < min || x > max)
        return af_fail_subject(err, AF_EUSAGE, name,
                               "'%s' is %" PRId64 ", not from %" PRId64 " to %" PRId64, name, x,
                               min, max);
    *v = x;
    return AF_OK;
}

af_status af_value_string(const json_t *o, const char *name, const char **v, af_error *err)
{
    json_t *f = NULL;
    const af_status st = af_value_type(o, name, JSON_STRING, &f, err);
    if (st != AF_OK || !f)
        return st;
    if (strlen(json_string_value(f)) != json_string_length(f))
        return af_fail_subject(err, AF_EUSAGE, name, "'%s' contains a NUL character", name);
    *v = json_string_value(f);
    return AF_OK;
}

/* ---- output ---- */

static void out_character(af_buf *b, const char *s, uint64_t len)
{
    static const char *const escapes[] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f", ['\r'] = "\\r"};
    const uint8_t c = (uint8_t)*s;
    if (len > 1)
        af_buf_add(b, s, len);
    else if (c == '"' || c == '\\')
        af_buf_printf(b, "\\%c", c);
    else if (c < AF_LEN(escapes) && escapes[c])
        af_buf_str(b, escapes[c]);
    else if (c < 0x20 || c == 0x7f)
        af_buf_printf(b, "\\u%04x", c);
    else
        af_buf_char(b, (char)c);
}

void af_out_string(af_buf *b, const char *s, uint64_t n)
{
    af_buf_char(b, '"');
    for (uint64_t i = 0; i < n;) {
        const uint32_t bad = af_utf8_bad(s + i, n - i), len = bad ? bad : af_utf8_len(s[i]);
        if (bad)
            af_buf_str(b, "\xef\xbf\xbd");
        else
            out_character(b, s + i, len);
        i += len;
    }
    af_buf_char(b, '"');
}

void af_out_cstring(af_buf *b, const char *s)
{
    if (s)
        af_out_string(b, s, strlen(s));
    else
        af_buf_str(b, "null");
}

void af_out_number(af_buf *b, double v)
{
    if (isfinite(v))
        af_buf_printf(b, "%.17g", v);
    else
        af_buf_str(b, "null");
}

void af_out_logprob(af_buf *b, double v) { af_out_number(b, v < -9999 ? -9999 : v); }

void af_out_ids(af_buf *b, const int32_t *ids, int64_t n)
{
    af_buf_char(b, '[');
    for (int64_t i = 0; i < n; i++)
        af_buf_printf(b, i ? ",%d" : "%d", (int)ids[i]);
    af_buf_char(b, ']');
}
