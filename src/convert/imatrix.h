/* imatrix.h - importance matrices: for every linear the mean square of each input column, in
 * llama.cpp's file format (the binary one and the GGUF one are read, the GGUF one is written). */
#ifndef AF_IMATRIX_H
#define AF_IMATRIX_H

#include "base/arena.h"

enum { AF_IMATRIX_ENTRIES_MAX = 1 << 20, AF_IMATRIX_COLS_MAX = 1 << 24 };

typedef struct af_imatrix_entry {
    const char *name; /* GGUF tensor name, "blk.0.attn_q.weight" */
    float *values;    /* [count], mean squares */
    int64_t count;
    int64_t tokens; /* how many were summed */
} af_imatrix_entry;

typedef struct af_imatrix {
    af_imatrix_entry *entry;
    int count;
    af_arena arena;
} af_imatrix;

AF_CHECKED af_status af_imatrix_read(af_imatrix *out, const char *path, af_error *err);
/* From the bytes of the binary format. `name` is for messages. */
AF_CHECKED af_status af_imatrix_parse(af_imatrix *out, const void *bytes, uint64_t size,
                                      const char *name, af_error *err);
AF_CHECKED af_status af_imatrix_write(const af_imatrix *m, const char *path, const char *dataset,
                                      af_error *err);
const af_imatrix_entry *af_imatrix_find(const af_imatrix *m, const char *name); /* NULL = none */
void af_imatrix_clear(af_imatrix *m);
#endif
