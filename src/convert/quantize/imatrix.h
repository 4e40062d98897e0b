/* imatrix.h - importance matrices: for every linear the mean square of each input column, in
 * llama.cpp's two file formats, binary (.dat) and GGUF, both read and written. */
#ifndef AF_IMATRIX_H
#define AF_IMATRIX_H

#include "base/arena.h"

enum {
    AF_IMATRIX_ENTRIES_MAX = 1 << 20,
    AF_IMATRIX_COLS_MAX = 1 << 24,
    AF_IMATRIX_CHUNK = 512, /* tokens; what a binary file, which does not say, is taken to have */
};

typedef struct af_imatrix_entry {
    const char *name; /* GGUF tensor name, "blk.0.attn_q.weight" */
    float *values;    /* [count], mean squares: sums / counts */
    float *sums;      /* [count] */
    float *counts;    /* [matrices], tokens each has seen */
    int64_t count;
    int64_t matrices; /* 1, or the experts of a tensor of experts */
} af_imatrix_entry;

typedef struct af_imatrix {
    af_imatrix_entry *entry;
    int count, capacity;
    int64_t chunks, chunk_size;
    const char *dataset; /* what it was computed from; NULL = not known */
    af_arena arena;
} af_imatrix;

/* Either format, by its first bytes. */
AF_CHECKED af_status af_imatrix_read(af_imatrix *out, const char *path, af_error *err);
/* From the bytes of the binary format. `name` is for messages. */
AF_CHECKED af_status af_imatrix_parse(af_imatrix *out, const void *bytes, uint64_t size,
                                      const char *name, af_error *err);
/* The binary format for a name that ends in .dat, else GGUF. */
AF_CHECKED af_status af_imatrix_write(const af_imatrix *m, const char *path, af_error *err);
/* For makers: reserves n entries, once; then entries of zeros, one after another. */
AF_CHECKED af_status af_imatrix_reserve(af_imatrix *m, int64_t n, af_error *err);
AF_CHECKED af_status af_imatrix_add(af_imatrix *m, af_imatrix_entry **out, const char *name,
                                    uint64_t name_len, int64_t count, int64_t matrices,
                                    af_error *err);
const af_imatrix_entry *af_imatrix_find(const af_imatrix *m, const char *name); /* NULL = none */
void af_imatrix_clear(af_imatrix *m);
#endif
