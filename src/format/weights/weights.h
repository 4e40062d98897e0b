/* weights.h - the tensors of a model, wherever they are: a folder with model.safetensors or its
 * shards, an adapter folder, one .safetensors file, one .gguf file, or files of torch.save.
 *
 * One lookup for all of them. Names are as stored (GGUF names stay GGUF names). Safe to share
 * between threads. */
#ifndef AF_WEIGHTS_H
#define AF_WEIGHTS_H

#include "format/weights/gguf.h"
#include "format/weights/safetensors.h"

enum { AF_WEIGHTS_FILES_MAX = 4096 };
#define AF_WEIGHTS_INDEX_MAX UINT64_C(100000000) /* bytes of an index file */

typedef struct af_weights af_weights;

/* `path`: a folder (model.safetensors, model.safetensors.index.json, the shards of a model without
 * one, adapter_model.safetensors, mlx-lm's adapters.safetensors, pytorch_model.bin, its index, or
 * adapter_model.bin), a .safetensors, .bin or .index.json file, or a .gguf file. */
AF_CHECKED af_status af_weights_open(af_weights **out, const char *path, af_error *err);
void af_weights_close(af_weights *w); /* NULL is allowed */
/* Whether a folder has anything that opens, or should. */
bool af_weights_in(const char *dir);

int af_weights_count(const af_weights *w);
/* Tensors in file order, then data order (of torch.save: that of its dictionary). Borrowed until
 * close. */
const af_stored *af_weights_at(const af_weights *w, int i);
/* NULL when there is no such name. */
const af_stored *af_weights_find(const af_weights *w, const char *name);
int af_weights_files(const af_weights *w);
const char *af_weights_file_path(const af_weights *w, int file);
/* The GGUF file read, or NULL when these are other files; NULL when a file is not safetensors. */
const af_gguf *af_weights_gguf(const af_weights *w);
const af_safetensors *af_weights_safetensors(const af_weights *w, int file);
/* True when it lies in the map of its file, false for one of the copies. */
bool af_weights_mapped(const af_weights *w, const af_stored *t);
/* The pages of this tensor may leave memory; reading it again maps them in again. */
void af_weights_forget(const af_weights *w, const af_stored *t);
#endif
