/* status.c - where errors are born, and the few allocation helpers. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef AF_VERSION
#define AF_VERSION "0.0.0"
#endif

const char *af_version(void) { return AF_VERSION; }

/* An allocation of this thread failed, and no error has said so. */
static _Thread_local bool memory_failed;

void af_memory_note(void) { memory_failed = true; }
bool af_memory_failed(void) { return memory_failed; }
void af_memory_forget(void) { memory_failed = false; }

static af_status fail(af_error *err, af_status code, const char *subject, const char *fmt,
                      va_list ap)
{
    assert(code != AF_OK);
    const bool follows = memory_failed && code != AF_ENOMEM && code != AF_ESTOPPED;
    if (follows)
        code = AF_ENOMEM;
    memory_failed = !err && code == AF_ENOMEM; /* without words it is not reported yet */
    if (err) {
        static const char cause[] = "not enough memory: ";
        const size_t at = follows ? sizeof cause - 1 : 0;
        err->code = code;
        snprintf(err->subject, sizeof err->subject, "%s", subject ? subject : "");
        memcpy(err->msg, cause, at);
        vsnprintf(err->msg + at, sizeof err->msg - at, fmt ? fmt : "", ap);
    }
    return code;
}

af_status af_memory_check(af_error *err)
{
    return memory_failed ? af_fail(err, AF_ENOMEM, "not enough memory") : AF_OK;
}

af_status af_fail(af_error *err, af_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const af_status st = fail(err, code, "", fmt, ap);
    va_end(ap);
    return st;
}

af_status af_fail_subject(af_error *err, af_status code, const char *subject, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const af_status st = fail(err, code, subject, fmt, ap);
    va_end(ap);
    return st;
}

af_status af_fail_prefix(af_status st, af_error *err, const char *fmt, ...)
{
    assert(st != AF_OK);
    if (!err || !fmt)
        return st;
    char whole[sizeof err->msg];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(whole, sizeof whole, fmt, ap);
    va_end(ap);
    const size_t at = AF_MIN((size_t)AF_MAX(n, 0), sizeof whole - 1);
    /* the prefix is kept whole, the end of a long message is cut */
    const size_t sep = AF_MIN(sizeof whole - 1 - at, 2);
    memcpy(whole + at, ": ", sep);
    const size_t rest = AF_MIN(strlen(err->msg), sizeof whole - 1 - at - sep);
    memcpy(whole + at + sep, err->msg, rest);
    whole[at + sep + rest] = '\0';
    memcpy(err->msg, whole, sizeof whole);
    return st;
}

af_status af_need(const bool *have, size_t count, const char *function, const char *names,
                  af_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const size_t n = strcspn(names, " ,");
        if (!have[i])
            return af_fail(err, AF_EUSAGE, "%s: '%.*s' is NULL", function, (int)n, names);
        names += strcspn(names, ",");
        names += strspn(names, ", ");
    }
    return AF_OK;
}

af_status af_need_strings(const char *const *list, int count, int most, const char *name,
                          af_error *err)
{
    if (count < 0 || count > most)
        return af_fail(err, AF_EUSAGE, "'%s' has %d strings, not 0 to %d", name, count, most);
    for (int i = 0; i < count; i++)
        if (!list || !list[i])
            return af_fail(err, AF_EUSAGE, "'%s': string %d of %d is NULL", name, i + 1, count);
    return AF_OK;
}

const char *af_status_name(af_status code)
{
    static const char *const names[] = {"AF_OK",      "AF_EUSAGE",  "AF_ENOMEM",
                                        "AF_EIO",     "AF_EFORMAT", "AF_EUNSUPPORTED",
                                        "AF_EDEVICE", "AF_ESTOPPED"};
    return (size_t)code < AF_LEN(names) ? names[code] : "unknown status";
}

void *af_calloc(uint64_t count, uint64_t size)
{
    uint64_t bytes;
    const bool fits = af_mul_ok(count, size, &bytes) && bytes <= PTRDIFF_MAX;
    void *p = fits ? calloc(count ? count : 1, size ? size : 1) : NULL;
    if (!p)
        af_memory_note();
    return p;
}

void *af_realloc(void *p, uint64_t count, uint64_t size)
{
    uint64_t bytes;
    const bool fits = af_mul_ok(count, size, &bytes) && bytes <= PTRDIFF_MAX;
    void *more = fits ? realloc(p, bytes ? bytes : 1) : NULL;
    if (!more)
        af_memory_note();
    return more;
}

char *af_strndup(const char *s, uint64_t n)
{
    char *p = af_calloc(n + 1, 1);
    if (p && n)
        memcpy(p, s, n);
    return p;
}

char *af_strdup(const char *s) { return af_strndup(s, strlen(s)); }

af_status af_fail_nomem(af_error *err, const char *what, uint64_t bytes)
{
    return af_fail(err, AF_ENOMEM, "out of memory: %s needs %.1f MiB", what,
                   (double)bytes / (1024.0 * 1024.0));
}
