/* torch_file.h - a file of torch.save that has a dictionary of tensors: pytorch_model.bin,
 * adapter_model.bin.
 *
 * Both forms are read: the archive (torch 1.6 and newer; ZIP, nothing compressed) and the older
 * stream. Of the pickle in it, only what describes tensors is understood, and nothing is run.
 * Tensors lie in the mapped file; what is not contiguous or aligned there is copied. A reader may
 * be shared by threads. */
#ifndef AF_TORCH_FILE_H
#define AF_TORCH_FILE_H

#include "base/arena.h"
#include "base/file.h"
#include "format/weights/weight.h"

typedef struct af_torch_file af_torch_file;

/* On success *out is the caller's, to be closed with af_torch_file_close. */
AF_CHECKED af_status af_torch_file_open(af_torch_file **out, const char *path, af_error *err);
/* The same from bytes in memory, which must outlive the reader. `name` is for messages. */
AF_CHECKED af_status af_torch_file_parse(af_torch_file **out, const void *bytes, uint64_t size,
                                         const char *name, af_error *err);
void af_torch_file_close(af_torch_file *f); /* NULL is allowed */

int af_torch_file_count(const af_torch_file *f);
/* Tensor i, in the order of the dictionary. Borrowed until close. */
const af_stored *af_torch_file_at(const af_torch_file *f, int i);
/* The mapped file, for af_map_forget. Borrowed. */
const af_map *af_torch_file_map(const af_torch_file *f);
/* Whether a path ends as these files do. */
bool af_torch_file_named(const char *path);

/* Where the values of storages are: what the two forms have in common. */
typedef struct af_torch_record {
    const char *key;
    const uint8_t *data;
    uint64_t bytes;
} af_torch_record;

typedef struct af_torch_archive {
    const uint8_t *pickle; /* data.pkl */
    uint64_t pickle_bytes;
    af_torch_record *record; /* data/KEY, sorted by key, in the arena */
    uint64_t count;
} af_torch_archive;

/* The directory of a ZIP file. */
AF_CHECKED af_status af_torch_archive_read(af_torch_archive *out, af_arena *arena,
                                           const uint8_t *bytes, uint64_t size, af_error *err);
void af_torch_records_sort(af_torch_record *r, uint64_t n);
#endif
