/* flat.h - bounded reading of FlatBuffers, as Arrow files store their metadata.
 *
 * Positions are offsets into the buffer; every one is compared with its size before it is used.
 * What does not fit latches `bad`, and everything read after that is absent. */
#ifndef AF_FLAT_H
#define AF_FLAT_H

#include "base/base.h"

typedef struct af_flat {
    const uint8_t *data;
    uint64_t size;
    bool bad;
} af_flat;

/* at == 0: there is none; all its fields are absent. */
typedef struct af_flat_table {
    uint64_t at, vtable, vtable_size;
} af_flat_table;

typedef struct af_flat_vector {
    uint64_t at, count;
} af_flat_vector;

af_flat_table af_flat_root(af_flat *f);
/* A whole number of 1, 2, 4 or 8 bytes, sign extended. */
int64_t af_flat_int(af_flat *f, const af_flat_table *t, int field, int width, int64_t otherwise);
af_flat_table af_flat_sub(af_flat *f, const af_flat_table *t, int field);
/* Elements of `size` bytes each, all inside the buffer. */
af_flat_vector af_flat_list(af_flat *f, const af_flat_table *t, int field, uint64_t size);
/* An element of a list of tables (of size 4). */
af_flat_table af_flat_item(af_flat *f, const af_flat_vector *v, uint64_t i);
/* A number at a position that af_flat_list has checked. */
int64_t af_flat_at(const af_flat *f, uint64_t at, int width);
/* NULL when absent. */
const char *af_flat_text(af_flat *f, const af_flat_table *t, int field, uint64_t *len);
#endif
