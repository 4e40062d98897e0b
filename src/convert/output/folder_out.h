/* folder_out.h - an output folder with a model or an adapter (base/publish.h), and the text files
 * that belong into it. */
#ifndef AF_FOLDER_OUT_H
#define AF_FOLDER_OUT_H

#include "base/file.h"
#include "base/publish.h"

#define AF_SHARD_BYTES UINT64_C(5000000000)

/* Opens a model or adapter folder to write. Refuses one that is an input, one that has content
 * (without force), and one with a model that is not ours. */
AF_CHECKED af_status af_folder_open(af_output *o, const char *path, const char *const *inputs,
                                    int input_count, bool force, af_error *err);

/* Copies tokenizer, template and generation files of a model folder, where they are there. */
AF_CHECKED af_status af_folder_copy_text(const af_output *f, const char *from, af_error *err);
/* The Python files of a model whose code lies in its folder, where `to` has none of the name.
 * *names: to be freed with af_names_free, on failure too. */
AF_CHECKED af_status af_folder_code(char ***names, int *count, const char *from, const char *to,
                                    af_error *err);
AF_CHECKED af_status af_folder_copy_code(const char *from, const char *to, af_error *err);
/* Puts another folder's tokenizer and template in the place of those copied; `forms`: also of the
 * vocabulary in its older forms. */
AF_CHECKED af_status af_folder_replace_tokenizer(const af_output *f, const char *from, bool forms,
                                                 af_error *err);
#endif
