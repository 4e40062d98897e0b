/* data_notes.c - see data_notes.h. */
#include "data/store/data_notes.h"

#include "base/log.h"

#include <stdarg.h>

static void say(const af_source_loc *p, af_note_kind kind, const char *why)
{
    int64_t *said = &p->notes->said[kind];
    p->notes->counts.warnings++;
    if (++*said <= AF_NOTES_SAID)
        af_say(AF_LOG_WARN, "%s:%" PRId64 ": %s%s", p->file, p->line, why,
               *said == AF_NOTES_SAID ? " (more of these are only counted)" : "");
}

void af_note(const af_source_loc *p, af_note_kind kind, const char *fmt, ...)
{
    char why[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (!p->notes->hold) {
        say(p, kind, why);
        return;
    }
    af_buf_char(&p->notes->held, (char)kind);
    af_buf_add(&p->notes->held, why, strlen(why) + 1);
}

void af_notes_join(const af_source_loc *p, af_notes *from)
{
    int64_t *to = (int64_t *)&p->notes->counts;
    const int64_t *add = (const int64_t *)&from->counts;
    for (size_t i = 0; i < sizeof from->counts / sizeof *to; i++)
        to[i] += add[i];
    for (uint64_t at = 0; at < from->held.len; at += strlen(from->held.data + at) + 1) {
        const af_note_kind kind = (af_note_kind)from->held.data[at++];
        say(p, kind, from->held.data + at);
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
