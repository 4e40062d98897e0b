/* records.h - the records of a dataset file, one JSON value at a time, each with the line it begins
 * in.
 *
 * parquet and arrow: rows, whose numbers are their lines. jsonl: one value per line. json: the
 * elements of one array, or values one after another. csv and tsv: objects of strings, keys from
 * the header. txt: {"text": block}. A byte order mark, CRLF and blank lines are accepted; what is
 * not UTF-8 is refused with its line. */
#ifndef AF_RECORDS_H
#define AF_RECORDS_H

#include "format/columns/columns.h"

#include <jansson.h>

#define AF_RECORD_MAX     ((uint64_t)8 << 20) /* bytes of one record */
#define AF_TEXT_BLOCK     ((uint64_t)1 << 20) /* bytes of a block of plain text, about */
#define AF_CSV_COLUMN_MAX 4096

typedef enum af_records_kind {
    AF_RECORDS_JSONL,
    AF_RECORDS_JSON,
    AF_RECORDS_CSV,
    AF_RECORDS_TSV,
    AF_RECORDS_TEXT,
    AF_RECORDS_PARQUET,
    AF_RECORDS_ARROW,
} af_records_kind;

typedef struct af_records af_records;

typedef struct af_record {
    json_t *json;   /* the caller's */
    int64_t line;   /* where it begins, from 1 */
    int64_t number; /* from 1 */
    uint64_t bytes; /* about, in the file */
    bool last;      /* text: the file ends with this block */
    /* Fields with a number inside that JSON or 64 bits do not have, and that is 0 now: names, each
     * with a NUL, `lost_len` bytes; valid until the next record is read. */
    const char *lost;
    uint64_t lost_len;
} af_record;

/* The kind by the name's ending (.gz and .zst taken off), or by `ds_type` ("json", "jsonl", "csv",
 * "text", "parquet", "arrow"; NULL = by name). */
AF_CHECKED af_status af_records_kind_of(af_records_kind *out, const char *path, const char *ds_type,
                                        af_error *err);
AF_CHECKED af_status af_records_open(af_records **out, const char *path, af_records_kind kind,
                                     af_error *err);
/* Over memory that outlives it. */
AF_CHECKED af_status af_records_of(af_records **out, const char *name, const void *data,
                                   uint64_t size, af_records_kind kind, af_error *err);
/* The next record; out->json is NULL at the end. Errors are "file:line: reason". */
AF_CHECKED af_status af_records_next(af_records *r, af_record *out, af_error *err);
/* The next record as a line of JSON text, as it stands in the file but without blanks; NULL at the
 * end. Valid until the next call. */
AF_CHECKED af_status af_records_next_text(af_records *r, const char **text, uint64_t *len,
                                          af_error *err);
/* From the next record on, only these columns are needed: others may be left out. */
void af_records_project(af_records *r, af_columns_want *want, const void *user);
/* How many records there are, when the file says so; -1 = only known at the end. */
int64_t af_records_count(const af_records *r);
void af_records_close(af_records *r);
#endif
