/* folder_out.h - an output folder that appears whole or not at all: everything is written under a
 * temporary name next to it, which is renamed at the end or removed. */
#ifndef AF_FOLDER_OUT_H
#define AF_FOLDER_OUT_H

#include "base/file.h"

#define AF_SHARD_BYTES UINT64_C(5000000000)

typedef struct af_folder {
    char *final, *temp;
} af_folder;

/* Refuses a folder that is an input, and one with content that is not a model or adapter (it would
 * be replaced). */
AF_CHECKED af_status af_folder_begin(af_folder *f, const char *path, const char *const *inputs,
                                     int input_count, af_error *err);
/* Puts it in place. Clears f on success. */
AF_CHECKED af_status af_folder_commit(af_folder *f, af_error *err);
/* Removes what was written; f may be empty. */
void af_folder_abandon(af_folder *f);

/* Copies tokenizer, template and generation files of a model folder, where they are there. */
AF_CHECKED af_status af_folder_copy_text(const af_folder *f, const char *from, af_error *err);
/* Puts another folder's tokenizer and template in the place of those copied; `forms`: also of the
 * vocabulary in its older forms. */
AF_CHECKED af_status af_folder_replace_tokenizer(const af_folder *f, const char *from, bool forms,
                                                 af_error *err);
/* Refuses an output file that is one of the inputs. */
AF_CHECKED af_status af_output_check(const char *path, const char *const *inputs, int n,
                                     af_error *err);
#endif
