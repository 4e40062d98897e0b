/* model_opts.h - options that every command with a model has. */
#ifndef AF_CLI_MODEL_OPTS_H
#define AF_CLI_MODEL_OPTS_H

#include "term/cli.h"

#include "afinar/model.h"

typedef struct af_model_flags {
    af_opt_list adapter; /* DIR or DIR=WEIGHT */
    bool load_in_4bit, quant_scratch, bf16, f32;
    bool few_tokens; /* set by commands that generate */
} af_model_flags;

/* Appends the rows of these options to a table, which must have room for six more. */
void af_cli_model_rows(af_opt *table, af_model_flags *f);
/* Opens the model as the options say. */
AF_CHECKED af_status af_cli_open_model(af_model **out, const char *model, const af_model_flags *f,
                                       const af_common *c, af_error *err);
/* The probability of --top-p: 0 is the most likely token alone, where the library has it off. */
double af_cli_top_p(double given);
/* DIR or DIR=WEIGHT, unless the whole is a folder's name; false: the path is too long or the weight
 * not finite. */
bool af_cli_split_weight(const char *s, char *dir, size_t size, double *weight);
/* Prints a JSON string of len bytes, quotes included. */
void af_cli_json_text(FILE *f, const char *s, uint64_t len);
/* [1, 2, 3] */
void af_cli_json_ids(FILE *f, const int32_t *ids, int64_t n);
/* Renders messages (a JSON array as text) for the model to answer, and tokenises that. */
AF_CHECKED af_status af_cli_chat_ids(af_model *m, const char *messages, af_encoding *out,
                                     af_error *err);
#endif
