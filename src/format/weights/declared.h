/* declared.h - the tensors declared to a writer, and where the next bytes belong.
 *
 * Both writers declare every tensor first and then get the data as one stream, in the order of
 * declaration. */
#ifndef AF_DECLARED_H
#define AF_DECLARED_H

#include "base/arena.h"
#include "format/weights/weight.h"

typedef struct af_declared {
    const char *name;
    af_dtype dtype;
    int ndim;
    int64_t dim[AF_WEIGHT_NDIM_MAX];
    uint64_t bytes;
    uint64_t offset; /* in the data of its file */
    int shard;       /* which file */
    bool apart;      /* its bytes are not part of the stream */
} af_declared;

typedef struct af_declared_list {
    af_declared *item;
    int count, cap;
    int at;            /* the tensor whose bytes come next */
    uint64_t at_bytes; /* bytes of it so far */
    af_arena arena;
} af_declared_list;

void af_declared_clear(af_declared_list *l);
AF_CHECKED af_status af_declared_add(af_declared_list *l, const char *name, af_dtype dtype,
                                     const int64_t *dim, int ndim, af_error *err);

/* Before the first byte: the disk must have room for all tensors, or hours of work may be lost. */
AF_CHECKED af_status af_declared_check_room(const af_declared_list *l, const char *path,
                                            af_error *err);
/* The next part of n > 0 bytes of the stream: *take of them belong to *d, from its byte *from. */
AF_CHECKED af_status af_declared_next(af_declared_list *l, const char *path, uint64_t n,
                                      const af_declared **d, uint64_t *from, uint64_t *take,
                                      af_error *err);
/* Fails, naming the tensor, unless the stream is complete. */
AF_CHECKED af_status af_declared_complete(af_declared_list *l, const char *path, af_error *err);
#endif
