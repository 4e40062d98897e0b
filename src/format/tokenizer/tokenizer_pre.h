/* tokenizer_pre.h - what the names in tokenizer.ggml.pre stand for. */
#ifndef AF_TOKENIZER_PRE_H
#define AF_TOKENIZER_PRE_H

#include "base/base.h"

#include <jansson.h>

enum { AF_PRE_PATTERNS = 6 };
enum {
    AF_PRE_NFC = 1,           /* the text is normalised first */
    AF_PRE_IGNORE_MERGES = 2, /* a word that is a token is that token */
    AF_PRE_ADD_BOS = 4,       /* where the file does not say it */
    AF_PRE_RAW = 8            /* characters, and bytes of unknown ones, instead of byte level */
};

typedef struct af_pre_name {
    const char *name;
    const char *pattern[AF_PRE_PATTERNS]; /* that cut the text, one after another; NULL ends them */
    unsigned flags;
} af_pre_name;

extern const char af_pre_kimi[]; /* tokenization_kimi.py */

/* Whether a special token takes the white space after it: those of Phi-3 that mark roles do, and
 * GGUF has no place to say so. */
struct af_gguf;
bool af_gguf_token_strips(const struct af_gguf *g, const char *token, uint64_t len);

/* NULL when the name is not known. */
const af_pre_name *af_pre_name_find(const char *name, uint64_t len);
/* That of a GGUF file; of one without tokenizer.ggml.pre that of its architecture, with a warning,
 * where all its models have the same. `raw`: of Gemma 4. AF_EUNSUPPORTED. */
AF_CHECKED af_status af_pre_name_of(const af_pre_name **out, const struct af_gguf *g, bool raw,
                                    af_error *err);
/* The i-th name; NULL after the last. */
const af_pre_name *af_pre_name_at(int i);
/* Normalizer, pre_tokenizer and decoder as in a tokenizer.json. json_decref it; NULL = no memory.
 */
json_t *af_pre_name_parts(const af_pre_name *p);
#endif
