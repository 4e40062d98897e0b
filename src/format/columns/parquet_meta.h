/* parquet_meta.h - what a parquet file says about itself: its schema, its row groups, the place of
 * every column chunk, and the headers of pages. */
#ifndef AF_PARQUET_META_H
#define AF_PARQUET_META_H

#include "base/arena.h"
#include "format/columns/column_value.h"
#include "format/columns/thrift.h"

typedef enum af_parquet_type {
    AF_PARQUET_BOOL,
    AF_PARQUET_INT32,
    AF_PARQUET_INT64,
    AF_PARQUET_INT96,
    AF_PARQUET_FLOAT,
    AF_PARQUET_DOUBLE,
    AF_PARQUET_BYTES,
    AF_PARQUET_FIXED,
    AF_PARQUET_TYPES
} af_parquet_type;

typedef enum af_parquet_shape {
    AF_PARQUET_LEAF,
    AF_PARQUET_STRUCT,
    AF_PARQUET_LIST,
    AF_PARQUET_MAP
} af_parquet_shape;

enum {
    AF_PARQUET_DEPTH_MAX = 64,
    AF_PARQUET_FOOTER_MAX = 1 << 30,
    AF_PARQUET_PATH = 400,
};

/* A value of a record, as JSON knows it: the repeated groups inside lists and maps are gone. */
typedef struct af_parquet_node {
    const char *name; /* of its field */
    const struct af_parquet_node *parent;
    const char *key; /* the name in quotes and a colon */
    uint64_t key_len;
    af_parquet_shape shape;
    int def;      /* the definition level from which on it is not null */
    int item_def; /* LIST, MAP: from which on there is an item */
    int rep;      /* LIST, MAP: the repetition level of further items */
    int leaf_from, leaf_to;
    int count; /* STRUCT: fields; LIST: the element; MAP: key and value */
    struct af_parquet_node **child;
    /* LEAF */
    af_parquet_type physical;
    int width;    /* bytes of a value as stored; 0 = any, or bits */
    int leaf_rep; /* the highest repetition level */
    af_column_type type;
} af_parquet_node;

typedef struct af_parquet_chunk {
    bool there;
    bool encrypted, elsewhere;
    int64_t type, codec, values, packed, data_at, dictionary_at;
} af_parquet_chunk;

typedef struct af_parquet_group {
    int64_t rows;
    int64_t columns; /* declared */
    af_parquet_chunk *chunk;
} af_parquet_group;

typedef struct af_parquet_meta {
    const char *name; /* of the file */
    af_arena mem;
    uint64_t body; /* bytes of the file before the footer */
    int64_t rows;
    af_parquet_node *root;
    int leaves;
    af_parquet_node **leaf;
    int groups;
    af_parquet_group *group;
} af_parquet_meta;

typedef enum af_parquet_page_type {
    AF_PARQUET_PAGE_DATA,
    AF_PARQUET_PAGE_INDEX,
    AF_PARQUET_PAGE_DICTIONARY,
    AF_PARQUET_PAGE_DATA2
} af_parquet_page_type;

typedef struct af_parquet_page {
    int64_t type, full, packed;
    bool has_crc;
    uint32_t crc;
    bool has_header;
    int64_t values, nulls, rows, encoding, def_encoding, rep_encoding, def_bytes, rep_bytes;
    bool is_packed;
} af_parquet_page;

/* Reads the footer of a whole file. Everything that can be known without reading a page is checked.
 * Clear it in any case. */
AF_CHECKED af_status af_parquet_meta_read(af_parquet_meta *m, const char *name, const uint8_t *data,
                                          uint64_t size, af_error *err);
void af_parquet_meta_clear(af_parquet_meta *m);
/* One chunk of a row group, before it is read. */
AF_CHECKED af_status af_parquet_chunk_check(const af_parquet_meta *m, int group, int leaf,
                                            af_error *err);
/* Reads the header of a page at t->at. False when it is damaged. */
bool af_parquet_page_read(af_parquet_page *p, af_thrift *t);
/* parquet_schema.c: reads the list of schema elements into the tree. */
AF_CHECKED af_status af_parquet_schema_read(af_parquet_meta *m, af_thrift *t, af_thrift_struct *s,
                                            af_error *err);
/* "messages.element.content", for messages. Returns `out`. */
const char *af_parquet_path(const af_parquet_node *n, char out[AF_PARQUET_PATH]);
#endif
