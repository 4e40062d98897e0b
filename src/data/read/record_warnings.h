/* record_warnings.h - warnings about records: each is counted, the first few of a kind are logged.
 */
#ifndef AF_RECORD_WARNINGS_H
#define AF_RECORD_WARNINGS_H

#include "base/buf.h"
#include "data/read/data_opts.h"

typedef enum af_warning_kind {
    AF_WARNING_EMPTY,      /* an empty answer */
    AF_WARNING_NOTHING,    /* nothing to learn */
    AF_WARNING_SAME_PAIR,  /* chosen equals rejected */
    AF_WARNING_DOUBLE_BOS, /* the tokenizer's and the template's or text's */
    AF_WARNING_TOOLS,      /* the template never reads tools */
    AF_WARNING_TRUNCATED,
    AF_WARNING_ANSWER, /* an answer that the template changes */
    AF_WARNING_PROMPT, /* a pair's prompt is not how its rows begin */
    AF_WARNING_KINDS
} af_warning_kind;

enum { AF_WARNINGS_LOGGED = 10 };

typedef struct af_record_warnings {
    af_data_counts counts;
    int64_t logged[AF_WARNING_KINDS];
    bool hold;   /* keep the warnings for af_record_warnings_join: records are made ready by several
                    threads */
    af_buf held; /* a byte with the kind, the text, a NUL; and again */
} af_record_warnings;

/* Where we are in a dataset. */
typedef struct af_source_loc {
    const char *file;
    int64_t line, number;
    bool csv;
    af_record_warnings *warnings;
} af_source_loc;

/* Counts a warning and logs "file:line: ...". */
AF_PRINTF(3, 4)
void af_record_warn(const af_source_loc *p, af_warning_kind kind, const char *fmt, ...);
/* Adds the counts of `from` and logs what it held, for location p. */
void af_record_warnings_join(const af_source_loc *p, af_record_warnings *from);
/* Warns of records that are cut or dropped, and counts that. */
void af_data_counts_warn(af_data_counts *c, int64_t sequence_len);
/* AF_EFORMAT "file:line: ...". */
AF_PRINTF(3, 4)
af_status af_source_loc_fail(const af_source_loc *p, af_error *err, const char *fmt, ...);
#endif
