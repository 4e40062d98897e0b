/* tokenizer_make.h - the tokenizer.json that a folder lacks, made of other files: vocab.json and
 * merges.txt (byte-level BPE), as classes of transformers read them. */
#ifndef AF_TOKENIZER_MAKE_H
#define AF_TOKENIZER_MAKE_H

#include "format/config/hf_config.h"
#include "format/text/json_text.h"

/* For a folder of af_tokenizer_can_make. *out: json_decref. */
AF_CHECKED af_status af_tokenizer_make(json_t **out, const char *folder, af_error *err);
#endif
