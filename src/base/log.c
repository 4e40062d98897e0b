/* log.c - the process-wide hook. It is the one mutable global of the library: set once at start. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static af_log_hook *log_hook;
static void *log_user;

void af_log_set(af_log_hook *hook, void *user)
{
    log_hook = hook;
    log_user = user;
}

void af_log_write(af_log_level level, const char *fmt, ...)
{
    if (!log_hook)
        return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    log_hook(log_user, level, line);
}
