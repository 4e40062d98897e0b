/* hub_journal.h - which bytes of a file have arrived, and how that is kept across processes.
 *
 * The journal lies next to the incomplete file. It has two slots, written in turns; a record is
 * text with a number that grows and a checksum, so that a process killed while it wrote one leaves
 * the other. It holds no hash state: what is there is hashed again, which also finds what a power
 * failure or a broken disk did to it. */
#ifndef AF_HUB_JOURNAL_H
#define AF_HUB_JOURNAL_H

#include "base/base.h"

enum { AF_BYTE_RANGES_MAX = 48, AF_JOURNAL_SLOT = 4096 };

typedef struct af_byte_range {
    uint64_t from, to; /* [from, to) */
} af_byte_range;

/* Sorted, and no two of them touch. */
typedef struct af_byte_ranges {
    af_byte_range at[AF_BYTE_RANGES_MAX];
    int count;
} af_byte_ranges;

/* Adds [from, to). A span more than fit is forgotten. */
void af_byte_ranges_add(af_byte_ranges *s, uint64_t from, uint64_t to);
/* The end of the span that begins at or before `at` and reaches it; `at` when there is none. */
uint64_t af_byte_ranges_end(const af_byte_ranges *s, uint64_t at);
/* The first bytes from `from` on that are missing, up to `size`; false when there are none. */
bool af_byte_ranges_gap(const af_byte_ranges *s, uint64_t from, uint64_t size, af_byte_range *out);
/* Bytes in all spans. */
uint64_t af_byte_ranges_total(const af_byte_ranges *s);

typedef struct af_journal {
    uint64_t number; /* of the record */
    char etag[65];
    uint64_t size;
    af_byte_ranges done;
} af_journal;

/* The record's text; its length. It goes to slot number % 2. */
uint64_t af_journal_print(const af_journal *j, char text[AF_JOURNAL_SLOT]);
/* The newest valid record of a journal's bytes; false when there is none. */
bool af_journal_parse(af_journal *out, const char *text, uint64_t n);
#endif
