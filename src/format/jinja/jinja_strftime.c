/* jinja_strftime.c - strftime_now: a date in the C locale, as Python's datetime.strftime. */
#define _GNU_SOURCE /* strftime_l, tm_zone */
#include "format/jinja/jinja.h"

#include <locale.h>
#include <time.h>

static struct tm broken_down(const af_jtime *t)
{
    struct tm tm = {.tm_year = t->year - 1900,
                    .tm_mon = t->month - 1,
                    .tm_mday = t->day,
                    .tm_hour = t->hour,
                    .tm_min = t->minute,
                    .tm_sec = t->second};
    struct tm copy = tm;
    timegm(&copy); /* fills the day of the week and of the year */
    tm.tm_wday = copy.tm_wday;
    tm.tm_yday = copy.tm_yday;
    tm.tm_isdst = -1;
    tm.tm_zone = "";
    return tm;
}

/* One directive, '%' included. */
static void directive(af_buf *b, const struct tm *tm, const char *p, uint64_t n, locale_t c)
{
    char fmt[16] = {0}, text[256];
    if (n >= sizeof fmt || n < 2) {
        af_buf_add(b, p, n);
        return;
    }
    memcpy(fmt, p, n);
    switch (fmt[1]) {
    case 'f':
        af_buf_str(b, "000000");
        return;
    case 'z': /* the time is naive: no zone */
    case 'Z':
        return;
    default:
        break;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t got = strftime_l(text, sizeof text, fmt, tm, c);
#pragma GCC diagnostic pop
    af_buf_add(b, text, got);
}

void af_jstrftime(af_jinja *j, af_buf *b, const af_jtime *t, const af_jstr *fmt)
{
    const struct tm tm = broken_down(t);
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c) {
        af_jfail(j, "the C locale is missing");
        return;
    }
    for (uint64_t i = 0; i < fmt->n;) {
        uint64_t end = i + 1;
        if (fmt->p[i] == '%') {
            while (end < fmt->n && end - i < 8 && fmt->p[end] && strchr("-_0^#EO", fmt->p[end]))
                end++;
            end += end < fmt->n;
            directive(b, &tm, fmt->p + i, end - i, c);
        } else {
            af_buf_char(b, fmt->p[i]);
        }
        i = end;
    }
    af_jstep(j, fmt->n);
    freelocale(c);
}
