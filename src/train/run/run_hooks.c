/* run_hooks.c - see run_hooks.h. */
#include "train/run/run_hooks.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void af_run_log(const af_train_hooks *h, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    if (!h || !h->log)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    h->log(h->user, line);
}

void af_run_warn(const af_train_hooks *h, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    if (!h || !h->log)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    af_log_write(AF_LOG_WARN, "%s", line);
}

bool af_run_stop_requested(const af_train_hooks *h) { return h && h->stop && h->stop(h->user); }
