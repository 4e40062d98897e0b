/* log.c - the process-wide hook, set once at start, and the time at which the run started: mutable
 * globals of the library. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static af_log_hook *log_hook;
static void *log_user;
static bool muted;
static _Atomic double began;      /* 0 = no lines */
static _Thread_local double last; /* of this thread, or of another run */

void af_log_set(af_log_hook *hook, void *user)
{
    log_hook = hook;
    log_user = user;
}

void af_log_mute(bool on) { muted = on; }

void af_log_write(af_log_level level, const char *fmt, ...)
{
    if (!log_hook || (muted && level != AF_LOG_DEBUG))
        return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    log_hook(log_user, level, line);
}

void af_log_time_begin(void) { began = last = af_seconds_now(); }

void af_log_time_end(void) { began = 0; }

void af_log_time(const char *what)
{
    const double now = af_seconds_now(), start = began, since = now - AF_MAX(start, last);
    if (start == 0)
        return;
    last = now;
    if (what)
        af_log_write(AF_LOG_DEBUG, "time %.3f s (+ %.3f): %s", now - start, since, what);
}
