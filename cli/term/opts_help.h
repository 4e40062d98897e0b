/* opts_help.h - option tables as help text and as JSON. */
#ifndef AF_CLI_OPTS_HELP_H
#define AF_CLI_OPTS_HELP_H

#include "term/cli.h"

/* Prints the help text of a command on stdout. */
void af_opts_help(const af_usage *u, const af_opt *common);
/* {"text", "usage", "options"} of a command. */
void af_opts_dump(const af_usage *u, FILE *f);
/* [{"letter", "name", "value", "help", "repeat"}, ...] */
void af_opts_dump_rows(const af_opt *o, FILE *f);
#endif
