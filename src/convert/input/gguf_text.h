/* gguf_text.h - the text files of a model folder, made from the metadata of a GGUF file.
 *
 * Files that afinar itself carried along ("afinar.file.NAME", and tokenizer.huggingface.json) come
 * back as they were; without them they are rebuilt from what GGUF knows. */
#ifndef AF_GGUF_TEXT_H
#define AF_GGUF_TEXT_H

#include "convert/input/folder_text.h"
#include "format/config/hf_config.h"

#define AF_GGUF_FILE_KEY      "afinar.file."
#define AF_GGUF_TOKENIZER_KEY "tokenizer.huggingface.json"

/* Writes them into `dir`. *config: a config.json, json_decref it. */
AF_CHECKED af_status af_gguf_text(const af_gguf *g, const af_hf_config *c, const char *dir,
                                  json_t **config, af_error *err);
/* config.json of a model that has none. */
json_t *af_config_json(const af_hf_config *c);
#endif
