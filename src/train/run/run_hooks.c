/* run_hooks.c - see run_hooks.h. */
#include "train/run/run_hooks.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static void write_line(const af_train_hooks *h, bool warns, const char *fmt, va_list ap)
{
    char line[1024];
    if (!h || !h->log)
        return;
    vsnprintf(line, sizeof line, fmt, ap);
    if (warns)
        af_log_write(AF_LOG_WARN, "%s", line);
    else
        h->log(h->user, line);
}

void af_run_log(const af_train_hooks *h, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_line(h, false, fmt, ap);
    va_end(ap);
}

void af_run_warn(const af_train_hooks *h, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_line(h, true, fmt, ap);
    va_end(ap);
}

bool af_run_stop_requested(const af_train_hooks *h) { return h && h->stop && h->stop(h->user); }
