/* run_tokens.h - the tokens a run file adds or renames: its tokenizer, and the rows they need. */
#ifndef AF_RUN_TOKENS_H
#define AF_RUN_TOKENS_H

#include "format/config/config_rope.h"
#include "format/tokenizer/token_edit.h"
#include "model/adapter.h"
#include "train/run/run_config.h"

typedef struct af_run_tokens {
    char *dir;  /* a temporary folder with the texts of the model and these tokens; NULL: none */
    char *root; /* it is in this one, under the model's name, which messages show */
    af_token_edits edits;
    int64_t vocab; /* rows the model needs, 0 = as many as it has */
    af_arena arena;
} af_run_tokens;

/* Reads the keys and, where they change anything, makes the folder. `model` is resolved. An adapter
 * that is continued brings its own tokenizer. Close after a failure too. */
AF_CHECKED af_status af_run_tokens_open(af_run_tokens *t, const af_run_config *run,
                                        const char *model, af_error *err);
/* The vocabulary of `model` gets this many rows: config.json of the folder says so. */
AF_CHECKED af_status af_run_tokens_fit(af_run_tokens *t, const char *model, int64_t rows,
                                       af_error *err);
/* config.json of the folder has this rope_scaling. */
AF_CHECKED af_status af_run_tokens_rope(af_run_tokens *t, const char *model,
                                        const af_rope_change *r, af_error *err);
void af_run_tokens_close(af_run_tokens *t);

/* trainable_token_indices of the run file into the settings of its adapter; without that key, the
 * rows of new tokens that nothing else trains. Memory is the arena's. */
AF_CHECKED af_status af_run_tokens_train(af_run_tokens *t, af_adapter_config *c,
                                         const af_run_config *run, const af_model_spec *spec,
                                         af_error *err);
#endif
