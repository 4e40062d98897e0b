/* tokenizer_make.h - the tokenizer.json that a folder lacks, made of other files: vocab.json and
 * merges.txt (byte-level BPE) as classes of transformers read them, tekken.json of Mistral, or
 * files of tiktoken of Moonshot and of GLM-4. */
#ifndef AF_TOKENIZER_MAKE_H
#define AF_TOKENIZER_MAKE_H

#include "format/config/hf_config.h"
#include "format/text/json_text.h"

/* For a folder of af_tokenizer_can_make. *names (may be NULL): bos_token and so on, where only the
 * kind of tokenizer says them. Both: json_decref. */
AF_CHECKED af_status af_tokenizer_make(json_t **out, json_t **names, const char *folder,
                                       af_error *err);

/* tokenizer_ranks.c: adds to the objects. *pattern: free(). specials: texts by id, from 0 on. */
AF_CHECKED af_status af_tiktoken_read(json_t *vocab, json_t *merges, const char *path,
                                      af_error *err);
AF_CHECKED af_status af_tekken_read(json_t *vocab, json_t *merges, json_t *specials, char **pattern,
                                    const char *path, af_error *err);
#endif
