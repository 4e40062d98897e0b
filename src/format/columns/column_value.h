/* column_value.h - a value of a column file as JSON text.
 *
 * Text stays text, bytes become base64, whole numbers stay exact, other numbers have the shortest
 * text that reads back to the same double, NaN and infinities are strings; dates and times are
 * ISO 8601, decimals are strings with all digits of their scale. */
#ifndef AF_COLUMN_VALUE_H
#define AF_COLUMN_VALUE_H

#include "base/buf.h"

typedef enum af_column_kind {
    AF_COLUMN_NULL,
    AF_COLUMN_BOOL, /* a byte, 0 or 1 */
    AF_COLUMN_INT,
    AF_COLUMN_FLOAT, /* of 2, 4 or 8 bytes */
    AF_COLUMN_TEXT,
    AF_COLUMN_BYTES,
    AF_COLUMN_UUID,
    AF_COLUMN_DECIMAL,
    AF_COLUMN_DATE, /* days, or units since 1970 */
    AF_COLUMN_TIME,
    AF_COLUMN_STAMP,
    AF_COLUMN_INT96, /* parquet: nanoseconds of the day, Julian day */
} af_column_kind;

typedef struct af_column_type {
    af_column_kind kind;
    int width;       /* bytes of a value; 0 = any number of them */
    bool json;       /* TEXT: it is JSON */
    bool is_signed;  /* INT */
    bool zone;       /* STAMP: ends in Z */
    bool big_endian; /* DECIMAL */
    int scale;       /* DECIMAL */
    int digits;      /* of a second: 0, 3, 6 or 9; DATE: -1 = days */
} af_column_type;

/* Appends a value of `len` bytes. NULL, or what is wrong with it. */
const char *af_column_put(af_buf *b, const af_column_type *t, const uint8_t *p, uint64_t len);
/* The same; text that is JSON becomes the value it stands for. */
const char *af_column_put_inside(af_buf *b, const af_column_type *t, const uint8_t *p,
                                 uint64_t len);
/* Takes a field back, which begins at `field` and its value at `value`, when that is null. */
bool af_column_drop_null(af_buf *b, uint64_t field, uint64_t value);
/* Appends text in quotes. NULL, or what is wrong with it. */
const char *af_column_put_text(af_buf *b, const char *s, uint64_t n);
/* Little-endian bytes. */
static inline uint64_t af_column_uint(const uint8_t *p, int width)
{
    uint64_t v = 0;
    memcpy(&v, p, (size_t)width);
    return v;
}
#endif
