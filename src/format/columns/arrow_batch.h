/* arrow_batch.h - the arrays of a record batch or a dictionary. */
#ifndef AF_ARROW_BATCH_H
#define AF_ARROW_BATCH_H

#include "format/columns/arrow_schema.h"

typedef struct af_arrow_bytes {
    const uint8_t *at;
    uint64_t len;
} af_arrow_bytes;

typedef struct af_arrow_array {
    const af_arrow_field *field;
    int64_t length;
    const uint8_t *valid;       /* bits; NULL = nothing is null */
    af_arrow_bytes offsets;     /* also sizes of list views follow in `sizes` */
    af_arrow_bytes sizes, data; /* data: values, bytes, views, or indexes of a dictionary */
    af_arrow_bytes *extra;      /* of views */
    int64_t extras;
    struct af_arrow_array *child; /* [field->count] */
} af_arrow_array;

typedef struct af_arrow_batch {
    af_arena mem; /* arrays and unpacked buffers */
    int64_t rows;
    af_arrow_array root; /* its children are the columns */
} af_arrow_batch;

/* One message of a file. */
typedef struct af_arrow_message {
    af_flat flat;
    af_flat_table header;
    int64_t type; /* of the header */
    const uint8_t *body;
    uint64_t body_size;
    uint64_t end; /* of the message in the file */
} af_arrow_message;

enum { AF_ARROW_SCHEMA = 1, AF_ARROW_DICTIONARY = 2, AF_ARROW_BATCH = 3 };

/* Reads the record batch `t` of a message as arrays of `field`'s children; those with left_out[i]
 * (NULL = none) are not unpacked. Clear it in any case. */
AF_CHECKED af_status af_arrow_batch_read(af_arrow_batch *b, const af_arrow_field *field,
                                         const bool *left_out, af_arrow_message *m,
                                         const af_flat_table *t, const char *name, af_error *err);
void af_arrow_batch_clear(af_arrow_batch *b);
#endif
