/* columns.h - the records of a column file (parquet, Arrow) as JSON text.
 *
 * One reader over both formats. Everything a file says is checked before it is believed; an error
 * names the file and, as far as they are known, row group, row and column. */
#ifndef AF_COLUMNS_H
#define AF_COLUMNS_H

#include "base/buf.h"
#include "base/file.h"

typedef enum af_columns_format { AF_COLUMNS_PARQUET, AF_COLUMNS_ARROW } af_columns_format;

typedef struct af_columns af_columns;
/* Is a column of this name to be read? */
typedef bool af_columns_want(const void *user, const char *name);

AF_CHECKED af_status af_columns_open(af_columns **out, const char *path, af_columns_format format,
                                     af_error *err);
/* Over memory that outlives it; `name` is used in messages. */
AF_CHECKED af_status af_columns_of(af_columns **out, const char *name, const void *data,
                                   uint64_t size, af_columns_format format, af_error *err);
void af_columns_close(af_columns *c);
/* How many records there are; -1 = only known at the end. */
int64_t af_columns_rows(const af_columns *c);
/* From the next record on only these columns are read; the others are left out of the records. */
void af_columns_project(af_columns *c, af_columns_want *want, const void *user);
/* From the next record on: text of a type that is JSON becomes the value it stands for, and a field
 * inside a struct that is null is left out, for a table has every field in every row. */
void af_columns_unfold(af_columns *c);
/* Appends the next record to text as a JSON object, columns in the order of the file. *got is
 * false at the end. A record beyond text->limit is an error. */
AF_CHECKED af_status af_columns_next(af_columns *c, af_buf *text, bool *got, af_error *err);
#endif
