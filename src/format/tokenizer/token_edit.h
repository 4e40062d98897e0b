/* token_edit.h - tokens added to the tokenizer of a folder, and others made its bos, eos, ..., as
 * transformers' add_special_tokens and add_tokens do and save them. */
#ifndef AF_TOKEN_EDIT_H
#define AF_TOKEN_EDIT_H

#include "base/arena.h"
#include "base/base.h"

typedef struct af_token_edit {
    const char *name; /* "eos_token", ...; NULL for a token that only has to exist */
    const char *text;
    bool special;
    bool listed; /* one of additional_special_tokens */
} af_token_edit;

typedef struct af_token_edits {
    int64_t size;       /* ids of the tokenizer afterwards: the highest and one */
    const int64_t *ids; /* those it did not have before, */
    const char **text;  /* and their tokens */
    int added;
    const int64_t *used; /* the same without a token that only pads: no text has that */
    int used_count;
    bool changed; /* false: every file already says so */
} af_token_edits;

/* What the edits, in their order, would do to the tokenizer of a folder or GGUF file. Memory is the
 * arena's. */
AF_CHECKED af_status af_token_edits_plan(af_token_edits *out, af_arena *arena, const char *model,
                                         const af_token_edit *edit, int n, af_error *err);
/* Does it to the files of a folder: tokenizer.json, tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json, and the ids in config.json and
 * generation_config.json. `vocab` > 0: config.json gets this vocab_size. */
AF_CHECKED af_status af_token_edits_write(const char *dir, const af_token_edit *edit, int n,
                                          int64_t vocab, af_error *err);
#endif
