/* cli.h - what the commands share: options, reports, output. */
#ifndef AF_CLI_H
#define AF_CLI_H

#include "afinar/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AF_EXIT_OK = 0, AF_EXIT_FAILED = 1, AF_EXIT_USAGE = 2 };

typedef enum af_opt_kind {
    AF_OPT_FLAG, /* bool *       */
    AF_OPT_STR,  /* const char ** */
    AF_OPT_I64,  /* int64_t *    */
    AF_OPT_F64,  /* double *     */
    AF_OPT_LIST, /* af_opt_list *: may be given more than once */
} af_opt_kind;

typedef struct af_opt_list {
    const char *item[64];
    int count;
} af_opt_list;

typedef struct af_opt {
    char letter; /* 0 = none */
    const char *name;
    af_opt_kind kind;
    void *place;
    const char *help;
} af_opt;

/* Options every command has; filled by af_opts_parse. */
typedef struct af_common {
    const char *device; /* "auto", "cpu", "cuda", "cuda:N" */
    bool device_given;  /* by the user: also "auto" then takes back what a run file says */
    int64_t threads;    /* 0 = all cores */
    bool quiet, verbose, json;
} af_common;

typedef enum af_parsed { AF_PARSED_OK, AF_PARSED_HELP, AF_PARSED_BAD } af_parsed;

/* Parses argv[1..]. `positional` describes what stands without a dash ("MODEL", "RUN.yaml
 * [key=value ...]"); up to `max` of them go to arg[], *count says how many; fewer than `min` is an
 * error. Says what is wrong on stderr, prints help on stdout. `opts` ends with {0}. */
af_parsed af_opts_parse(const char *command, const char *about, const char *positional,
                        const af_opt *opts, af_common *common, int argc, char **argv,
                        const char **arg, int min, int max, int *count);

/* Prints "afinar COMMAND: message" on stderr; the exit status to return. */
int af_report(const char *command, const af_error *err);

/* An error where the device that was asked for is not there: before anything is written. */
af_status af_cli_has_device(const af_common *c, af_error *err);
/* For a command whose work is the CPU's: an error where the device that was asked for is not there,
 * a word where it is. */
af_status af_cli_on_cpu(const char *command, const af_common *c, af_error *err);

/* True when the stream is a terminal that takes colour (NO_COLOR respected). */
bool af_tty(FILE *f);

/* The library's lines go to stderr from now on: warnings always, the rest unless quiet. */
void af_cli_log(const af_common *c);

typedef int af_command_main(int argc, char **argv);
#endif
