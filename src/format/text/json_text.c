/* json_text.c - see json_text.h. */
#include "format/text/json_text.h"

#include <math.h>

enum { DEPTH_MAX = 64 }; /* deeper ones keep their numbers as they were read */

/* An integer again, or NULL where the number is none, or as large as those that did not fit. */
static json_t *whole(const json_t *v)
{
    const double x = json_real_value(v);
    return json_is_real(v) && x == floor(x) && fabs(x) < 0x1p53 ? json_integer((json_int_t)x)
                                                                : NULL;
}

static void make_whole(json_t *v, int depth)
{
    const char *key;
    json_t *item, *number;
    size_t i;
    void *next;
    if (depth == DEPTH_MAX)
        return;
    json_object_foreach_safe(v, next, key, item)
    {
        number = whole(item);
        if (number && json_object_set_new(v, key, number) != 0)
            return;
        if (!number)
            make_whole(item, depth + 1);
    }
    json_array_foreach(v, i, item)
    {
        number = whole(item);
        if (number && json_array_set_new(v, i, number) != 0)
            return;
        if (!number)
            make_whole(item, depth + 1);
    }
}

af_status af_json_parse(json_t **out, const char *text, uint64_t n, const char *path, af_error *err)
{
    json_error_t why;
    *out = json_loadb(text, n, JSON_ALLOW_NUL, &why);
    if (!*out && json_error_code(&why) == json_error_numeric_overflow) {
        *out = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
        make_whole(*out, 0);
    }
    return *out ? AF_OK : af_fail(err, AF_EFORMAT, "%s:%d: %s", path, why.line, why.text);
}
