/* parquet.h - the records of a parquet file, one after another, as JSON text.
 *
 * Every column that is read keeps one page and its dictionary in memory; the file is mapped, and
 * released as it is read. */
#ifndef AF_PARQUET_H
#define AF_PARQUET_H

#include "format/columns/columns.h"

typedef struct af_parquet af_parquet;

AF_CHECKED af_status af_parquet_open(af_parquet **out, const char *name, const af_map *map,
                                     bool mapped, af_error *err);
void af_parquet_close(af_parquet *p);
/* Those of af_columns. */
int64_t af_parquet_rows(const af_parquet *p);
void af_parquet_project(af_parquet *p, af_columns_want *want, const void *user);
void af_parquet_unfold(af_parquet *p);
AF_CHECKED af_status af_parquet_next(af_parquet *p, af_buf *text, bool *got, af_error *err);
#endif
