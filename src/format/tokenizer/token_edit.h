/* token_edit.h - tokens added to the tokenizer of a folder, and others made its bos, eos, ..., as
 * transformers' add_special_tokens and add_tokens do and save them. */
#ifndef AF_TOKEN_EDIT_H
#define AF_TOKEN_EDIT_H

#include "afinar/text.h"
#include "base/arena.h"

typedef struct af_token_edit {
    const char *name; /* "eos_token", ...; NULL for a token that only has to exist */
    const char *text;
    bool special;
    bool listed; /* one of additional_special_tokens */
    bool single_word, lstrip, rstrip, normalized;
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
/* The edits that give `t` the added tokens of `from` that it does not have, in the order of their
 * ids, then its eos token, then tokens <extra_id_N> up to a multiple of 64, as TRL's
 * clone_chat_template does. Memory is the arena's. */
AF_CHECKED af_status af_token_edits_clone(af_token_edit **out, int *n, af_arena *arena,
                                          const af_tokenizer *t, const af_tokenizer *from,
                                          af_error *err);
/* Does it to the files of a folder: tokenizer.json, tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json, and the ids in config.json and
 * generation_config.json. `vocab` > 0: config.json gets this vocab_size. */
AF_CHECKED af_status af_token_edits_write(const char *dir, const af_token_edit *edit, int n,
                                          int64_t vocab, af_error *err);
/* Another text for one of the added tokens of a folder's tokenizer, by its id, as Axolotl's
 * added_tokens_overrides does it. */
AF_CHECKED af_status af_token_rename(const char *dir, int64_t id, const char *text, af_error *err);
/* The ids of bos, eos and pad in config.json and generation_config.json of a folder become those of
 * its tokenizer, as transformers' Trainer aligns them. */
AF_CHECKED af_status af_token_ids_align(const char *dir, af_error *err);
#endif
