/* read_bytes.h - the bytes of a dataset file, in pieces: plain, gzip or zstd.
 *
 * Memory is bounded whatever the file's size: a plain file is mapped and released to the system
 * as it is read, a compressed one passes through one small buffer. What unpacks to far more than
 * text can is refused. */
#ifndef AF_READ_BYTES_H
#define AF_READ_BYTES_H

#include "base/file.h"

#define AF_UNPACK_RATIO_MAX 200                  /* unpacked bytes per packed byte ...         */
#define AF_UNPACK_FREE      ((uint64_t)64 << 20) /* ... once more than this has been unpacked  */

typedef struct af_bytes af_bytes;

/* Opens a file; whether it is packed is decided by its first bytes. */
AF_CHECKED af_status af_bytes_open(af_bytes **out, const char *path, af_error *err);
/* The same over memory that outlives it; `name` is used in messages. */
AF_CHECKED af_status af_bytes_of(af_bytes **out, const char *name, const void *data, uint64_t size,
                                 af_error *err);
/* The next piece, valid until the next call; *n is 0 at the end. */
AF_CHECKED af_status af_bytes_next(af_bytes *b, const uint8_t **p, uint64_t *n, af_error *err);
void af_bytes_close(af_bytes *b);
#endif
