/* constraint.h - answers that must fit a JSON schema or a grammar. */
#ifndef AF_CLI_CONSTRAINT_H
#define AF_CLI_CONSTRAINT_H

#include "term/cli.h"

#include "afinar/grammar.h"
#include "afinar/model.h"

typedef struct af_cli_constraint {
    const char *schema, *schema_file, *rules, *rules_file; /* options; at most one is given */
    af_model *m;
    af_grammar_vocab *vocab;
    af_grammar *grammar;
    af_grammar_state **state; /* [sequences] */
    int64_t *accepted;        /* tokens that each has seen */
    int sequences;
    af_status st; /* of the mask */
    af_error err;
} af_cli_constraint;

/* Appends these options to a table, which must have space for four more rows and an end. */
void af_cli_constraint_rows(af_opt *table, af_cli_constraint *c);
/* How many of them were given. */
int af_cli_constraint_count(const af_cli_constraint *c);
/* For so many answers of the model. */
AF_CHECKED af_status af_cli_constraint_open(af_cli_constraint *c, af_model *m, int sequences,
                                            af_error *err);
/* af_generate_opts.mask; `user` is the constraint. */
bool af_cli_constraint_mask(void *user, int sequence, const int32_t *made, int64_t n,
                            uint32_t *allowed);
void af_cli_constraint_close(af_cli_constraint *c); /* all zero is allowed */
#endif
