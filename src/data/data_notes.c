/* data_notes.c - see data_notes.h. */
#include "data/data_notes.h"

#include "base/log.h"

#include <stdarg.h>

void af_note(const af_place *p, af_note_kind kind, const char *fmt, ...)
{
    char why[400];
    va_list ap;
    int64_t *said = &p->notes->said[kind];
    p->notes->counts.warnings++;
    if (++*said > AF_NOTES_SAID)
        return;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    af_say(AF_LOG_WARN, "%s:%" PRId64 ": %s%s", p->file, p->line, why,
           *said == AF_NOTES_SAID ? " (more of these are only counted)" : "");
}

af_status af_place_fail(const af_place *p, af_error *err, const char *fmt, ...)
{
    char why[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return af_fail(err, AF_EFORMAT, "%s:%" PRId64 ": %s", p->file, p->line, why);
}
