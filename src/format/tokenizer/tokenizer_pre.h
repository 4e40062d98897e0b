/* tokenizer_pre.h - what the names in tokenizer.ggml.pre stand for. */
#ifndef AF_TOKENIZER_PRE_H
#define AF_TOKENIZER_PRE_H

#include "base/base.h"

typedef struct af_pre_name {
    const char *name;
    const char *parts; /* normalizer, pre_tokenizer and decoder, as in a tokenizer.json */
    bool ignore_merges, add_bos;
} af_pre_name;

/* NULL when the name is not known. */
const af_pre_name *af_pre_name_find(const char *name, uint64_t len);
#endif
