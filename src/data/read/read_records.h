/* read_records.h - what the readers of the file kinds share. */
#ifndef AF_READ_RECORDS_H
#define AF_READ_RECORDS_H

#include "base/buf.h"
#include "data/read/read_bytes.h"
#include "data/read/records.h"

struct af_records {
    char *name;
    af_records_kind kind;
    af_bytes *in;
    const uint8_t *p, *end; /* the bytes not parsed yet */
    bool eof;
    int64_t line;   /* of the next byte */
    int64_t number; /* records returned */
    af_buf buf;     /* the record's text */
    enum { AF_RECORDS_START, AF_RECORDS_ARRAY, AF_RECORDS_ROW, AF_RECORDS_DONE } state;
    json_t *columns; /* csv: array of names */
    af_columns *table;
    af_buf lost;    /* names of fields, each with a NUL: see af_record */
    bool keep_text; /* of JSON, into: */
    af_buf text;
};

/* "name:line: ..." as AF_EFORMAT. */
AF_PRINTF(4, 5)
af_status af_records_fail(const af_records *r, int64_t line, af_error *err, const char *fmt, ...);
/* Makes sure that r->p < r->end unless the file has ended (r->eof). */
AF_CHECKED af_status af_records_fill(af_records *r, af_error *err);
/* Checks r->buf, whose first byte is in line `line`. */
AF_CHECKED af_status af_records_check_utf8(const af_records *r, const char *s, uint64_t n,
                                           int64_t line, af_error *err);
/* Parses r->buf into *out. */
AF_CHECKED af_status af_records_parse(af_records *r, json_t **out, int64_t line, af_error *err);
/* Replaces out by JSON text without the blanks between its parts; NaN and infinities, which JSON
 * does not have, become strings. */
void af_record_compact(af_buf *out, const char *s, uint64_t n);
AF_CHECKED af_status af_records_too_long(const af_records *r, int64_t line, af_error *err);

AF_CHECKED af_status af_json_line_next(af_records *r, af_record *out, af_error *err);
AF_CHECKED af_status af_json_value_next(af_records *r, af_record *out, af_error *err);
AF_CHECKED af_status af_csv_next(af_records *r, af_record *out, af_error *err);
AF_CHECKED af_status af_table_next(af_records *r, af_record *out, af_error *err);
#endif
