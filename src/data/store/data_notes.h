/* data_notes.h - warnings about records: each is counted, the first few of a kind are said. */
#ifndef AF_DATA_NOTES_H
#define AF_DATA_NOTES_H

#include "base/buf.h"
#include "data/store/dataset.h"

typedef enum af_note_kind {
    AF_NOTE_EMPTY,      /* an empty answer */
    AF_NOTE_NOTHING,    /* nothing to learn */
    AF_NOTE_SAME_PAIR,  /* chosen equals rejected */
    AF_NOTE_DOUBLE_BOS, /* the tokenizer's and the template's or text's */
    AF_NOTE_TOOLS,      /* the template never reads tools */
    AF_NOTE_NO_EOS,     /* the tokenizer has no end-of-text token */
    AF_NOTE_TRUNCATED,
    AF_NOTE_KINDS
} af_note_kind;

enum { AF_NOTES_SAID = 10 };

typedef struct af_notes {
    af_data_counts counts;
    int64_t said[AF_NOTE_KINDS];
    bool hold; /* keep the warnings for af_notes_join: records are made ready by several threads */
    af_buf held; /* a byte with the kind, the text, a NUL; and again */
} af_notes;

/* Where we are in a dataset. */
typedef struct af_source_loc {
    const char *file;
    int64_t line, number;
    bool csv;
    af_notes *notes;
} af_source_loc;

/* Counts a warning and hands "file:line: ..." to the log. */
AF_PRINTF(3, 4) void af_note(const af_source_loc *p, af_note_kind kind, const char *fmt, ...);
/* Adds the counts of `from` and says what it held, as from place p. */
void af_notes_join(const af_source_loc *p, af_notes *from);
/* AF_EFORMAT "file:line: ...". */
AF_PRINTF(3, 4)
af_status af_source_loc_fail(const af_source_loc *p, af_error *err, const char *fmt, ...);
#endif
