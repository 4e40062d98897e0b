/* cli.h - shared by all commands: options, exit codes, error reports, terminal checks. */
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
    AF_OPT_FLAG, /* bool *        */
    AF_OPT_STR,  /* const char ** */
    AF_OPT_I64,  /* int64_t *     */
    AF_OPT_F64,  /* double *      */
    AF_OPT_LIST, /* af_opt_list *: may be repeated */
} af_opt_kind;

typedef struct af_opt_list {
    const char *item[64];
    int count;
} af_opt_list;

typedef struct af_opt {
    char letter; /* 0 = none */
    const char *name;
    af_opt_kind kind;
    void *target;
    const char *value; /* placeholder of the value in the help text ("FILE"); NULL for flags */
    const char *help;
} af_opt;

/* How a command is called. */
typedef struct af_usage {
    const char *command;
    const char *about;        /* one or a few sentences, shown below the usage line */
    const char *synopsis;     /* the arguments without a dash: "MODEL" */
    const af_opt *opts;       /* ends with {0} */
    int min, max;             /* number of those arguments */
    void (*after_help)(void); /* prints what follows the options in the help; may be NULL */
} af_usage;

/* Options every command has; filled by af_opts_parse. */
typedef struct af_common {
    const char *device; /* "auto", "cpu", "cuda", "cuda:N" */
    bool device_is_set; /* --device was given: "auto" then overrides the run file, too */
    int64_t threads;    /* 0 = all cores */
    bool quiet, verbose, json;
    bool offline;           /* models and datasets of the hub come from the cache alone */
    const char *token_file; /* of the hub; NULL */
} af_common;

typedef enum af_parsed { AF_PARSED_OK, AF_PARSED_HELP, AF_PARSED_BAD } af_parsed;

/* Parses argv[1..]: arguments without a dash go to arg[u->max], their number to *count. Reports
 * errors on stderr (AF_PARSED_BAD), prints help and version on stdout (AF_PARSED_HELP). */
af_parsed af_opts_parse(const af_usage *u, af_common *common, int argc, char **argv,
                        const char **arg, int *count);
/* The exit code of a command whose af_opts_parse did not return AF_PARSED_OK. */
int af_opts_exit(af_parsed p);

/* The tables of a command as a JSON object: what `afinar __options` prints. */
#define AF_OPT_DUMP "--dump-options"
/* The options every command has, as a JSON array. */
void af_opts_dump_common(FILE *f);

/* The name in `known` (ends with NULL) most similar to a misspelt one; NULL when none is close. */
const char *af_cli_suggest(const char *name, const char *const *known);

/* Whether errors go to stdout as JSON, too: --json is among the arguments, however wrong they are.
 */
void af_cli_json_errors(int argc, char **argv);
/* Prints "afinar COMMAND: message" on stderr and, under --json, {"error": message} on stdout.
 * `command` NULL: of the program itself. Returns `code`, an exit code. */
AF_PRINTF(3, 4) int af_cli_error(int code, const char *command, const char *fmt, ...);
/* The same for an error of the library; returns AF_EXIT_FAILED. */
int af_report(const char *command, const af_error *err);
/* Prints start and text as a line on stderr. Names of files, tensors and tokens are others' text:
 * control characters of text, which a terminal would obey, are printed as '?'. */
void af_cli_put_line(const char *start, const char *text);
/* Prints a message as a JSON string on stdout; bytes that are not UTF-8 become U+FFFD. */
void af_cli_json_message(const char *message);

/* Fails when the device of --device is not usable. Called before anything is written. */
af_status af_cli_has_device(const af_common *c, af_error *err);
/* The same for a command that always computes on the CPU; prints a note when a GPU was requested.
 */
af_status af_cli_on_cpu(const char *command, const af_common *c, af_error *err);

/* True when the stream is a terminal that supports colour (NO_COLOR respected). */
bool af_tty(FILE *f);
/* True for a terminal whose cursor can be moved: not TERM=dumb. */
bool af_term_has_cursor(FILE *f);

/* From now on models and datasets of the hub that are not cached are downloaded, with a progress
 * bar, unless --offline or HF_HUB_OFFLINE. Called by af_opts_parse. */
void af_cli_hub(const af_common *c);
struct af_hub_opts;
/* The options that it set, for commands that call the hub themselves. Static storage. */
const struct af_hub_opts *af_cli_hub_opts(void);

/* Sends the library's log to stderr from now on: warnings always, the rest unless quiet. The same
 * warning is printed once: commands open a model more than once. */
void af_cli_log(const af_common *c);
/* For a process that serves: each time. */
void af_cli_log_each_time(const af_common *c);

/* Prints a JSON string of len bytes, quotes included. */
void af_cli_json_text(FILE *f, const char *s, uint64_t len);

/* Memory ran out where no error can be returned; the command fails at its end. */
void af_cli_note_memory(void);
/* AF_ENOMEM when that happened, or a library went on without what it could not allocate. */
af_status af_cli_memory_check(af_error *err);

struct json_t;
/* The JSON text of a tree (jansson); free(). NULL and an error also when an allocation failed, now
 * or while the tree was made. `fault`: what is wrong when the tree cannot be written. */
char *af_cli_json_dump(const struct json_t *tree, const char *fault, af_error *err);

/* After getline() or the like returned nothing: was it the end of stdin? */
af_status af_cli_stdin_end(af_error *err);

typedef int af_command_main(int argc, char **argv);
#endif
