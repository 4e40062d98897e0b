/* schema_values.h - the values of a schema, as far as they are few. */
#ifndef AF_SCHEMA_VALUES_H
#define AF_SCHEMA_VALUES_H

#include "base/buf.h"
#include "grammar/schema.h"

typedef struct af_value_set {
    char **text; /* one for each value, as unique.c keeps it; sorted, each once */
    size_t count, cap, limit;
    bool many;    /* at least `limit` different ones */
    bool unknown; /* there may be more than are listed */
    bool lists;   /* the same of arrays and objects */
} af_value_set;

/* schema_values.c */

/* The different values of a list of schemas, at depth 0 outside of arrays and objects; at most
 * about to->limit of them. */
AF_CHECKED af_status af_values_collect(af_schema *s, af_schemas all, int depth, af_value_set *to);
void af_values_clear(af_value_set *v);
/* Appends a copy of a text. */
AF_CHECKED af_status af_values_add(af_schema *s, af_value_set *to, const char *text, uint64_t n);
void af_values_put_string(af_buf *b, const char *text, size_t n);
/* schema_lists.c */
AF_CHECKED af_status af_values_of_arrays(af_schema *s, const af_flat_schema *f, int depth,
                                         af_value_set *to);
AF_CHECKED af_status af_values_of_objects(af_schema *s, const af_flat_schema *f, int depth,
                                          af_value_set *to);
/* schema_room.c: af_schema_room at a depth. *keep, unless it is NULL, gets the values that a tight
 * array may run out of. */
AF_CHECKED af_status af_values_room(af_schema *s, const af_flat_schema *f, int depth, af_rtn *keep,
                                    af_room *out);
#endif
