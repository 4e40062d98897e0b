/* arrow_schema.h - the fields of an Arrow file. */
#ifndef AF_ARROW_SCHEMA_H
#define AF_ARROW_SCHEMA_H

#include "base/arena.h"
#include "format/columns/column_value.h"
#include "format/columns/flat.h"

typedef enum af_arrow_shape {
    AF_ARROW_NULL,       /* no buffers */
    AF_ARROW_FIXED,      /* values of one width, or bits */
    AF_ARROW_BYTES,      /* offsets and bytes */
    AF_ARROW_VIEW,       /* 16 bytes each: the bytes, or where they are */
    AF_ARROW_LIST,       /* offsets into the child */
    AF_ARROW_LIST_VIEW,  /* offsets and sizes */
    AF_ARROW_FIXED_LIST, /* a number of elements each */
    AF_ARROW_STRUCT,
} af_arrow_shape;

enum { AF_ARROW_DEPTH_MAX = 64, AF_ARROW_PATH = 400 };

typedef struct af_arrow_field {
    const char *name, *key; /* key: the name in quotes and a colon */
    uint64_t key_len;
    const struct af_arrow_field *parent;
    af_arrow_shape shape;
    af_column_type type; /* of values */
    int offset_width;    /* 4 or 8 */
    int64_t list_size;
    bool map; /* a list of pairs */
    bool has_dictionary, index_signed;
    int64_t dictionary;
    int index_width;
    int count;
    struct af_arrow_field *child;
} af_arrow_field;

typedef struct af_arrow_schema {
    const char *name; /* of the file */
    af_arena mem;
    af_arrow_field root; /* its children are the columns */
    uint64_t fields;     /* of all depths */
} af_arrow_schema;

AF_CHECKED af_status af_arrow_schema_read(af_arrow_schema *s, af_flat *f, const af_flat_table *t,
                                          af_error *err);
/* "messages.item.content", for messages. Returns `out`. */
const char *af_arrow_path(const af_arrow_field *f, char out[AF_ARROW_PATH]);
#endif
