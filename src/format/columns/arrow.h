/* arrow.h - the records of an Arrow IPC file or stream, one after another, as JSON text.
 *
 * One record batch is in memory at a time, and the dictionaries; buffers that are not packed are
 * read where they lie in the mapped file. */
#ifndef AF_ARROW_H
#define AF_ARROW_H

#include "format/columns/columns.h"

typedef struct af_arrow af_arrow;

/* A file begins with ARROW1; everything else is a stream. */
AF_CHECKED af_status af_arrow_open(af_arrow **out, const char *name, const af_map *map, bool mapped,
                                   af_error *err);
void af_arrow_close(af_arrow *a);
/* Those of af_columns. */
int64_t af_arrow_rows(const af_arrow *a);
void af_arrow_project(af_arrow *a, af_columns_want *want, const void *user);
void af_arrow_unfold(af_arrow *a);
AF_CHECKED af_status af_arrow_next(af_arrow *a, af_buf *text, bool *got, af_error *err);
#endif
