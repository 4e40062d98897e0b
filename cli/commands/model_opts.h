/* model_opts.h - options shared by all commands that load a model. */
#ifndef AF_CLI_MODEL_OPTS_H
#define AF_CLI_MODEL_OPTS_H

#include "term/cli.h"

#include "afinar/model.h"
#include "afinar/serve.h"

typedef struct af_model_flags {
    af_opt_list adapter; /* DIR or DIR=WEIGHT */
    bool load_in_4bit, quant_scratch, bf16, f32;
    bool few_tokens; /* set by commands that generate */
} af_model_flags;

/* Appends these options to a table, which must have space for six more rows. */
void af_cli_model_rows(af_opt *table, af_model_flags *f);
/* Opens the model as the options say. */
AF_CHECKED af_status af_cli_open_model(af_model **out, const char *model, const af_model_flags *f,
                                       const af_common *c, af_error *err);
/* True for the name of a plain text file (.txt, .text, .md, .raw), which is evaluated in windows;
 * anything else is a dataset. */
bool af_cli_is_text(const char *path);
/* The value of --top-p for the library: 0 selects the most likely token, where the library uses 0
 * for off. */
double af_cli_top_p(double p);
/* Splits DIR=WEIGHT, unless the whole string is an existing folder. False when the path is too long
 * or the weight is not finite. */
bool af_cli_split_weight(const char *s, char *dir, size_t size, double *weight);
/* The one --adapter of a command that merges it, NULL without; more are wrong usage, which is
 * printed: false. */
bool af_cli_one_adapter(const char *command, const af_opt_list *list, const char **adapter);
/* All of a file, "-" is stdin: *text is malloc'ed, with a NUL after it. */
AF_CHECKED af_status af_cli_read_file(char **text, size_t *len, const char *path, af_error *err);
/* [1, 2, 3] */
void af_cli_json_ids(FILE *f, const int32_t *ids, int64_t n);
/* Renders a row of the chat template (a JSON object as text: messages, tools, ...), and tokenises
 * that. */
AF_CHECKED af_status af_cli_template_ids(af_model *m, const char *row, af_encoding *out,
                                         af_error *err);
/* Appends {"role", "content"} to a list. Bytes that are not UTF-8 are an error of
 * af_cli_json_dump, not of this. */
void af_cli_add_message(struct json_t *list, const char *role, const char *text, size_t len);
/* Renders messages (a JSON array as text) for the model to answer, and tokenises that. */
AF_CHECKED af_status af_cli_chat_ids(af_model *m, const char *messages, af_encoding *out,
                                     af_error *err);
/* False for a list of keys without one: an empty variable must not open a server. */
bool af_cli_has_key(const char *list);
/* cmd_serve.c: the line that says where a server listens, on stdout. */
void af_cli_announce(const af_server *server, bool json);
#endif
