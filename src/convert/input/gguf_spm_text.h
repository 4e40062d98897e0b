/* gguf_spm_text.h - the SentencePiece half of gguf_text. */
#ifndef AF_GGUF_SPM_TEXT_H
#define AF_GGUF_SPM_TEXT_H

#include "format/weights/gguf.h"

#include <jansson.h>

/* Fills model, normalizer and decoder of a tokenizer.json. */
AF_CHECKED af_status af_gguf_spm_json(const af_gguf *g, const af_gguf_kv *tokens,
                                      const af_gguf_kv *types, json_t *o, af_error *err);
#endif
