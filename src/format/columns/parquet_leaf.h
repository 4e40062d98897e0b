/* parquet_leaf.h - the values of one column of a row group, page by page. */
#ifndef AF_PARQUET_LEAF_H
#define AF_PARQUET_LEAF_H

#include "base/file.h"
#include "format/columns/parquet_meta.h"
#include "format/columns/parquet_runs.h"
#include "format/columns/unpack.h"

enum { AF_PARQUET_BATCH = 512 };

typedef enum af_parquet_encoding {
    AF_PARQUET_PLAIN = 0,
    AF_PARQUET_PLAIN_DICTIONARY = 2,
    AF_PARQUET_RLE = 3,
    AF_PARQUET_BIT_PACKED = 4,
    AF_PARQUET_DELTA_BINARY_PACKED = 5,
    AF_PARQUET_DELTA_LENGTH_BYTES = 6,
    AF_PARQUET_DELTA_BYTES = 7,
    AF_PARQUET_RLE_DICTIONARY = 8,
    AF_PARQUET_BYTE_STREAM_SPLIT = 9,
} af_parquet_encoding;

typedef struct af_parquet_string {
    const uint8_t *at;
    uint64_t len;
} af_parquet_string;

typedef struct af_parquet_leaf {
    const af_parquet_meta *m;
    const af_parquet_node *node;
    const af_map *map;
    int index, group;
    bool mapped;        /* pages that were read are released */
    const int64_t *row; /* that is being read, from 1, for messages */

    /* the chunk */
    const uint8_t *at, *end; /* the next page, the end of the chunk */
    af_codec codec;
    int64_t values_left; /* of the chunk, those of the page not counted */
    bool has_dictionary, page_seen;
    uint64_t dictionary_count;
    af_buf dictionary_buf;
    const uint8_t *dictionary;          /* [count * width] */
    af_parquet_string *dictionary_text; /* [count] */

    /* the page */
    af_buf page_buf;
    int64_t page_left; /* entries whose levels are not decoded */
    af_runs reps, defs, indexes;
    af_parquet_encoding encoding;
    const uint8_t *value, *value_end;
    uint64_t bit;               /* truth values */
    uint64_t split;             /* BYTE_STREAM_SPLIT: values of the page, */
    uint64_t split_at;          /* those given */
    af_delta numbers, prefixes; /* whole numbers or lengths; lengths of prefixes */
    af_buf text;                /* the value before, for prefixes */
    uint64_t text_made;         /* bytes of prefixes in this page */
    uint64_t page_size;

    /* entries */
    uint32_t def[AF_PARQUET_BATCH], rep[AF_PARQUET_BATCH], dict_index[AF_PARQUET_BATCH];
    int batch, batch_at; /* levels decoded, the current one */
    int dict_batch, dict_at;
    bool done; /* the chunk has no more entries */
    uint8_t scratch[16];
} af_parquet_leaf;

/* Goes to the first entry of a row group's chunk. `l` is all zero before the first time, apart from
 * m, node, map, index, mapped and row. */
AF_CHECKED af_status af_parquet_leaf_open(af_parquet_leaf *l, int group, af_error *err);
void af_parquet_leaf_clear(af_parquet_leaf *l);
/* Decodes more levels: the next page when the current one is used up; l->done at the end. */
AF_CHECKED af_status af_parquet_leaf_more(af_parquet_leaf *l, af_error *err);
/* The value of the current entry, whose definition level is the highest one: bytes of l->node's
 * type. */
AF_CHECKED af_status af_parquet_leaf_value(af_parquet_leaf *l, const uint8_t **p, uint64_t *n,
                                           af_error *err);
/* parquet_page.c: reads the next page: a dictionary, or data. */
AF_CHECKED af_status af_parquet_leaf_page(af_parquet_leaf *l, af_error *err);
/* "file: row group 2, row 71, column a.b: reason". */
AF_PRINTF(3, 4)
af_status af_parquet_leaf_fail(const af_parquet_leaf *l, af_error *err, const char *fmt, ...);

static inline uint32_t af_parquet_leaf_def(const af_parquet_leaf *l) { return l->def[l->batch_at]; }
static inline uint32_t af_parquet_leaf_rep(const af_parquet_leaf *l) { return l->rep[l->batch_at]; }
/* To the next entry. */
AF_CHECKED static inline af_status af_parquet_leaf_step(af_parquet_leaf *l, af_error *err)
{
    return ++l->batch_at < l->batch ? AF_OK : af_parquet_leaf_more(l, err);
}
#endif
