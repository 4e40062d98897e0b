/* data_slice.c - `train[:20%]`: a part of a split, in the notation of Hugging Face's datasets. */
#include "data/shape/data_source.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>

static bool read_bound(const char **at, bool *has, int64_t *value, bool *percent)
{
    char *end = NULL;
    *has = **at == '-' || isdigit((unsigned char)**at);
    *percent = false;
    if (!*has)
        return true;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    if (errno || end == *at)
        return false;
    *percent = *end == '%';
    *at = end + *percent;
    return true;
}

static bool is_percent(int64_t v) { return v >= -100 && v <= 100; }

bool af_data_slice_read(const char **name, af_data_slice *out, const char *text, af_arena *mem)
{
    const size_t n = strcspn(text, "[+(");
    bool from_percent, to_percent;
    *out = (af_data_slice){0};
    if (n == 0)
        return false;
    if (!text[n]) {
        *name = text;
        return true;
    }
    const char *at = text + n + 1;
    if (text[n] != '[' || !read_bound(&at, &out->has_from, &out->from, &from_percent) ||
        *at++ != ':' || !read_bound(&at, &out->has_to, &out->to, &to_percent) || *at++ != ']' ||
        *at)
        return false;
    if (out->has_from && out->has_to && from_percent != to_percent)
        return false;
    out->percent = from_percent || to_percent;
    if (out->percent && (!is_percent(out->from) || !is_percent(out->to)))
        return false;
    out->given = true;
    *name = af_arena_strndup(mem, text, n);
    return *name != NULL;
}

static int64_t bound(const af_data_slice *s, int64_t value, int64_t n)
{
    if (s->percent) /* to the nearest record, halves to the even one */
        value = (int64_t)nearbyint((double)value * (double)n / 100.0);
    if (value < 0)
        value = AF_MAX(n + value, 0);
    return AF_MIN(value, n);
}

void af_data_slice_bounds(const af_data_slice *s, int64_t n, int64_t *from, int64_t *to)
{
    *from = s->has_from ? bound(s, s->from, n) : 0;
    *to = s->has_to ? bound(s, s->to, n) : n;
}
