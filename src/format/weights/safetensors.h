/* safetensors.h - one .safetensors file: mapped reader and streaming writer.
 *
 * The reader parses the header, maps the data and checks everything before it returns a pointer:
 * offsets inside the file, without overlap and without holes, shape times size, known dtype, unique
 * names. Folders of several files are weights.h. A reader may be shared by threads. */
#ifndef AF_SAFETENSORS_H
#define AF_SAFETENSORS_H

#include "base/arena.h"
#include "base/file.h"
#include "format/weights/weight.h"

#define AF_SAFETENSORS_HEADER_MAX UINT64_C(100000000) /* the real library's limit */

typedef struct af_safetensors af_safetensors;

/* On success *out is the caller's, to be closed with af_safetensors_close. */
AF_CHECKED af_status af_safetensors_open(af_safetensors **out, const char *path, af_error *err);
/* The same from bytes in memory, which must outlive the reader. `name` is for messages. */
AF_CHECKED af_status af_safetensors_parse(af_safetensors **out, const void *bytes, uint64_t size,
                                          const char *name, af_error *err);
void af_safetensors_close(af_safetensors *s); /* NULL is allowed */

int af_safetensors_count(const af_safetensors *s);
/* Tensor i, in the order of the data. Borrowed until close. */
const af_stored *af_safetensors_at(const af_safetensors *s, int i);
/* NULL when there is no such name. */
const af_stored *af_safetensors_find(const af_safetensors *s, const char *name);
/* __metadata__: entries in file order, and by key (NULL when absent). */
int af_safetensors_meta_count(const af_safetensors *s);
void af_safetensors_meta_at(const af_safetensors *s, int i, const char **key, const char **value);
const char *af_safetensors_meta(const af_safetensors *s, const char *key);
/* The mapped file, for af_map_forget. Borrowed. */
const af_map *af_safetensors_map(const af_safetensors *s);

/* Writer: declare every tensor, begin, then write the data in the order of declaration (in pieces
 * of any size), then commit. Nothing is at `path` before commit. When the sum of the data passes
 * `shard_bytes` (0 = one file), tensors go to NAME-00001-of-0000n.safetensors and an index
 * NAME.safetensors.index.json is written; `path` then names the single-file form
 * (".../model.safetensors"). */
typedef struct af_safetensors_writer af_safetensors_writer;

AF_CHECKED af_status af_safetensors_writer_new(af_safetensors_writer **out, const char *path,
                                               uint64_t shard_bytes, af_error *err);
/* Extra __metadata__ (strings are copied). {"format":"pt"} is always there. Before begin. */
AF_CHECKED af_status af_safetensors_writer_meta(af_safetensors_writer *w, const char *key,
                                                const char *value, af_error *err);
/* Declares one tensor; its bytes follow from dtype and shape. Before begin. */
AF_CHECKED af_status af_safetensors_writer_add(af_safetensors_writer *w, const char *name,
                                               af_dtype dtype, const int64_t *dim, int ndim,
                                               af_error *err);
/* Writes the header(s). */
AF_CHECKED af_status af_safetensors_writer_begin(af_safetensors_writer *w, af_error *err);
/* The next n bytes; may end in the middle of a tensor, may not pass the end of the last one. */
AF_CHECKED af_status af_safetensors_writer_data(af_safetensors_writer *w, const void *bytes,
                                                uint64_t n, af_error *err);
/* Renames everything into place. Frees `w` in every case. */
AF_CHECKED af_status af_safetensors_writer_commit(af_safetensors_writer *w, af_error *err);
/* Removes what was written so far. NULL is allowed. */
void af_safetensors_writer_abandon(af_safetensors_writer *w);
#endif
