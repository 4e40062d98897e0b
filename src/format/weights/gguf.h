/* gguf.h - GGUF version 2 and 3: mapped reader, and the core of the writer.
 *
 * Metadata is kept where it is in the map; strings are (pointer, length), because they are not
 * NUL-terminated in the file. Tensor data is not touched at open. Every offset, count, type and
 * name is checked first; overlapping tensors are refused. A reader may be shared by threads. */
#ifndef AF_GGUF_H
#define AF_GGUF_H

#include "base/file.h"
#include "format/weights/weight.h"

typedef enum af_gguf_type {
    AF_GGUF_U8 = 0,
    AF_GGUF_I8,
    AF_GGUF_U16,
    AF_GGUF_I16,
    AF_GGUF_U32,
    AF_GGUF_I32,
    AF_GGUF_F32,
    AF_GGUF_BOOL,
    AF_GGUF_STRING,
    AF_GGUF_ARRAY,
    AF_GGUF_U64,
    AF_GGUF_I64,
    AF_GGUF_F64,
    AF_GGUF_TYPES
} af_gguf_type;

enum {
    AF_GGUF_ALIGNMENT = 32,     /* when general.alignment is absent */
    AF_GGUF_DEPTH_MAX = 4,      /* arrays of arrays */
    AF_GGUF_NAME_MAX = 1 << 16, /* bytes of a key or a tensor name */
    AF_GGUF_TENSORS_MAX = 1 << 20,
    AF_GGUF_KEYS_MAX = 1 << 20,
};

/* A string inside the map. */
typedef struct af_gguf_str {
    const char *at; /* not NUL-terminated */
    uint64_t len;
} af_gguf_str;

typedef struct af_gguf_kv {
    const char *key; /* NUL-terminated copy */
    af_gguf_type type;
    af_gguf_type item;      /* of an array */
    uint64_t count;         /* items of an array, else 1 */
    const uint8_t *data;    /* the first value in the map */
    uint64_t bytes;         /* of all values */
    const af_gguf_str *str; /* the strings of a string or an array of strings, else NULL */
} af_gguf_kv;

typedef struct af_gguf af_gguf;

/* A model that llama.cpp's gguf-split has cut (split.count above 1) is opened with all its files,
 * whichever of them is named: keys of the first, tensors of all. */
AF_CHECKED af_status af_gguf_open(af_gguf **out, const char *path, af_error *err);
/* One file as it is. */
AF_CHECKED af_status af_gguf_open_file(af_gguf **out, const char *path, af_error *err);
/* Adds the n other files of a split model to its first one. It owns them and their array from then
 * on, also on failure; after a failure it can only be closed. */
AF_CHECKED af_status af_gguf_join(af_gguf *first, af_gguf **part, int n, af_error *err);
/* From bytes that outlive the reader. `name` is for messages. */
AF_CHECKED af_status af_gguf_parse(af_gguf **out, const void *bytes, uint64_t size,
                                   const char *name, af_error *err);
void af_gguf_close(af_gguf *g); /* NULL is allowed */

uint32_t af_gguf_version(const af_gguf *g);
int af_gguf_kv_count(const af_gguf *g);
const af_gguf_kv *af_gguf_kv_at(const af_gguf *g, int i);
const af_gguf_kv *af_gguf_find_kv(const af_gguf *g, const char *key); /* NULL when absent */

int af_gguf_count(const af_gguf *g);
/* Tensor i in file order, dims row-major (the stored order reversed). Borrowed until close. */
const af_stored *af_gguf_at(const af_gguf *g, int i);
const af_stored *af_gguf_find(const af_gguf *g, const char *name);
/* Dimension i in GGUF's own order, fastest first: 1 past the end. */
int64_t af_gguf_ne(const af_stored *t, int i);
/* The files in order of their numbers: one, or the parts of a split model (`file` of a tensor). */
int af_gguf_files(const af_gguf *g);
const af_map *af_gguf_map(const af_gguf *g, int file);
const char *af_gguf_path(const af_gguf *g, int file);

/* A file that ends in .gguf, or begins as one (Ollama's have no ending). */
bool af_gguf_is_file(const char *path);
/* By the file name: a language model, not the projector of images or the importance matrix that
 * lie next to one. */
bool af_gguf_names_model(const char *path);
/* The GGUF model of a folder without safetensors (of a split one its first file), and another one
 * when there are several; NULL when there is none. Folders inside are searched, too. free() both.
 */
AF_CHECKED af_status af_gguf_search(char **one, char **other, const char *dir, af_error *err);

/* Values with a default for an absent key or another kind of value. Integers of every width and
 * bools convert into each other when the value fits; a float gives floats only. */
int64_t af_gguf_int(const af_gguf *g, const char *key, int64_t absent);
double af_gguf_float(const af_gguf *g, const char *key, double absent);
bool af_gguf_bool(const af_gguf *g, const char *key, bool absent);
/* The string inside the map; {NULL, 0} when absent. */
af_gguf_str af_gguf_string(const af_gguf *g, const char *key);
/* Element i of an array (or of a single value, i = 0) as a number; 0 for strings. */
int64_t af_gguf_item_int(const af_gguf_kv *kv, uint64_t i);
double af_gguf_item_float(const af_gguf_kv *kv, uint64_t i);
const char *af_gguf_type_name(af_gguf_type t);

/* Writer: keys and tensors are declared, then begin, then the data of the tensors in order, each
 * one padded to the alignment by the writer. Nothing is at `path` before commit. Strings and values
 * are copied. */
typedef struct af_gguf_writer af_gguf_writer;

AF_CHECKED af_status af_gguf_writer_new(af_gguf_writer **out, const char *path, af_error *err);
AF_CHECKED af_status af_gguf_put_int(af_gguf_writer *w, const char *key, af_gguf_type type,
                                     int64_t value, af_error *err);
AF_CHECKED af_status af_gguf_put_u32(af_gguf_writer *w, const char *key, uint32_t value,
                                     af_error *err);
AF_CHECKED af_status af_gguf_put_f32(af_gguf_writer *w, const char *key, float value,
                                     af_error *err);
AF_CHECKED af_status af_gguf_put_bool(af_gguf_writer *w, const char *key, bool value,
                                      af_error *err);
AF_CHECKED af_status af_gguf_put_str(af_gguf_writer *w, const char *key, const char *s, uint64_t n,
                                     af_error *err);
/* `values` are count little-endian values of a fixed-size item type. */
AF_CHECKED af_status af_gguf_put_array(af_gguf_writer *w, const char *key, af_gguf_type item,
                                       const void *values, uint64_t count, af_error *err);
AF_CHECKED af_status af_gguf_put_strs(af_gguf_writer *w, const char *key, const af_gguf_str *s,
                                      uint64_t count, af_error *err);
/* Copies one key as it is. */
AF_CHECKED af_status af_gguf_put_kv(af_gguf_writer *w, const af_gguf_kv *kv, af_error *err);
/* Declares a tensor; `dim` is row-major, 1 to 4 dimensions. */
AF_CHECKED af_status af_gguf_put_tensor(af_gguf_writer *w, const char *name, af_dtype dtype,
                                        const int64_t *dim, int ndim, af_error *err);
AF_CHECKED af_status af_gguf_writer_begin(af_gguf_writer *w, af_error *err);
AF_CHECKED af_status af_gguf_writer_data(af_gguf_writer *w, const void *bytes, uint64_t n,
                                         af_error *err);
/* Instead, in any order: takes the i-th tensor out of that row and tells where it begins; its bytes
 * are put by af_gguf_writer_fill, from any thread. */
uint64_t af_gguf_writer_take(af_gguf_writer *w, int i);
AF_CHECKED af_status af_gguf_writer_fill(af_gguf_writer *w, uint64_t offset, const void *bytes,
                                         uint64_t n, af_error *err);
/* After begin: the file as it grows, under its temporary name; bytes not yet put are zero. */
const char *af_gguf_writer_file(const af_gguf_writer *w);
AF_CHECKED af_status af_gguf_writer_commit(af_gguf_writer *w, af_error *err); /* frees w always */
void af_gguf_writer_abandon(af_gguf_writer *w);                               /* NULL is allowed */
#endif
