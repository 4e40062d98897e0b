/* data_notes.c - see data_notes.h. */
#include "data/read/record_warnings.h"

#include "base/log.h"

#include <stdarg.h>

static void log_warning(const af_source_loc *p, af_warning_kind kind, const char *why)
{
    int64_t *logged = &p->warnings->logged[kind];
    p->warnings->counts.warnings++;
    if (++*logged <= AF_WARNINGS_LOGGED)
        af_log_write(AF_LOG_WARN, "%s:%" PRId64 ": %s%s", p->file, p->line, why,
                     *logged == AF_WARNINGS_LOGGED ? " (more of these are only counted)" : "");
}

void af_record_warn(const af_source_loc *p, af_warning_kind kind, const char *fmt, ...)
{
    char why[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (!p->warnings->hold) {
        log_warning(p, kind, why);
        return;
    }
    af_buf_char(&p->warnings->held, (char)kind);
    af_buf_add(&p->warnings->held, why, strlen(why) + 1);
}

void af_record_warnings_join(const af_source_loc *p, af_record_warnings *from)
{
    int64_t *to = (int64_t *)&p->warnings->counts;
    const int64_t *add = (const int64_t *)&from->counts;
    for (size_t i = 0; i < sizeof from->counts / sizeof *to; i++)
        to[i] += add[i];
    for (uint64_t at = 0; at < from->held.len; at += strlen(from->held.data + at) + 1) {
        const af_warning_kind kind = (af_warning_kind)from->held.data[at++];
        log_warning(p, kind, from->held.data + at);
    }
    af_buf_clear(&from->held);
    from->counts = (af_data_counts){0};
}

af_status af_source_loc_fail(const af_source_loc *p, af_error *err, const char *fmt, ...)
{
    char why[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return af_fail(err, AF_EFORMAT, "%s:%" PRId64 ": %s", p->file, p->line, why);
}

void af_data_counts_warn(af_data_counts *c, int64_t sequence_len)
{
    if (c->truncated) {
        c->warnings++;
        af_log_write(AF_LOG_WARN,
                     "%" PRId64 " of %" PRId64 " records are cut at sequence_len %" PRId64
                     "; %" PRId64 " of them lose their end-of-turn token",
                     c->truncated, c->records + c->nothing_to_learn + c->dropped, sequence_len,
                     c->lost_eot);
    }
    if (c->dropped) {
        c->warnings++;
        af_log_write(AF_LOG_WARN,
                     "%" PRId64 " records are longer than sequence_len %" PRId64 " and dropped",
                     c->dropped, sequence_len);
    }
}
