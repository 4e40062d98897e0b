/* adapter_texts.h - tokenizer and chat template in the folder of an adapter: what it was
 * trained with, where they are not the base's. */
#ifndef AF_ADAPTER_TEXTS_H
#define AF_ADAPTER_TEXTS_H

#include "afinar/text.h"
#include "base/base.h"

/* In chat_template.jinja, or where older versions of transformers wrote it. */
bool af_adapter_has_template(const char *dir);
/* A tokenizer, with its tokenizer_config.json, that is the base's, or whose ids all have one
 * of `rows` rows; one that has more is not used, with a warning. Of a GGUF base
 * there is none to compare with: one with more tokens counts, another does not. */
bool af_adapter_has_tokenizer(const char *dir, const char *base, int64_t rows);
/* The same, and it is not byte for byte the base's. */
bool af_adapter_own_tokenizer(const char *dir, const char *base, int64_t rows);
/* What ends an answer of the base ends one of its adapter. */
AF_CHECKED af_status af_adapter_add_stops(af_tokenizer *t, const char *base, af_error *err);
#endif
