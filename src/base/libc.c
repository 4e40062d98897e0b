/* libc.c - the monotonic clock, and functions of the C library whose results depend on the locale,
 * without it: for the length of a call the thread has the C locale (uselocale swaps a pointer). */
#define AF_ALLOW_BANNED
#define _GNU_SOURCE
#include "base/base.h"

#include <locale.h>
#include <pthread.h>
#include <time.h>

double af_seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- without the locale ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale; /* glibc's is static: never freed */

static void open_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* The locale to go back to; uselocale(0) changes nothing, so that a failure is harmless. */
static locale_t enter(void)
{
    pthread_once(&once, open_locale);
    return uselocale(c_locale);
}

int af_vsnprintf(char *text, size_t size, const char *fmt, va_list ap)
{
    const locale_t before = enter();
    const int n = vsnprintf(text, size, fmt, ap);
    uselocale(before);
    return n;
}

int af_snprintf(char *text, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = af_vsnprintf(text, size, fmt, ap);
    va_end(ap);
    return n;
}

double af_strtod(const char *text, char **end)
{
    const locale_t before = enter();
    const double x = strtod(text, end);
    uselocale(before);
    return x;
}

int af_strcasecmp(const char *a, const char *b)
{
    const locale_t before = enter();
    const int order = strcasecmp(a, b);
    uselocale(before);
    return order;
}

int af_strncasecmp(const char *a, const char *b, size_t n)
{
    const locale_t before = enter();
    const int order = strncasecmp(a, b, n);
    uselocale(before);
    return order;
}

char *af_strcasestr(const char *text, const char *part)
{
    const locale_t before = enter();
    char *at = strcasestr(text, part);
    uselocale(before);
    return at;
}
