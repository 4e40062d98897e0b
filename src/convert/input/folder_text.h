/* folder_text.h - the text files of a model folder: JSON files and the chat template. */
#ifndef AF_FOLDER_TEXT_H
#define AF_FOLDER_TEXT_H

#include "base/file.h"

#include <jansson.h>

/* One JSON file of a folder; *out NULL when it is absent. json_decref it. */
AF_CHECKED af_status af_json_read(json_t **out, const char *dir, const char *name, af_error *err);
/* tokenizer.json, or what stands for it where there is neither it nor tokenizer.model. */
AF_CHECKED af_status af_tokenizer_json_read(json_t **out, const char *dir, af_error *err);
/* Writes n bytes as a file of a folder. */
AF_CHECKED af_status af_text_write(const char *dir, const char *name, const char *text, uint64_t n,
                                   af_error *err);
/* JSON with an indent of two and sorted keys, as transformers writes it. */
AF_CHECKED af_status af_json_write(const char *dir, const char *name, const json_t *j,
                                   af_error *err);
/* The chat template of a folder as llama.cpp's key has it: *text malloc'ed, NULL when there is
 * none. Where both places have one and they differ, warns and takes the one transformers takes. */
AF_CHECKED af_status af_folder_template(char **text, const char *dir, af_error *err);
#endif
