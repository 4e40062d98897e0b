/* main.c - runs the subcommand and checks that its output was written. */
#define _POSIX_C_SOURCE 200809L
#include "commands/commands.h"
#include "term/interrupt.h"
#include "term/stack.h"

#include "afinar/train.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static void usage(FILE *f)
{
    fprintf(f,
            "afinar %s - fine-tune language models\n\nusage: afinar COMMAND [options] "
            "[arguments]\n\ncommands:\n",
            af_version());
    for (const af_command *c = af_commands; c->name; c++)
        fprintf(f, "  %-10s %s\n", c->name, c->about);
    fprintf(f, "\nSee 'afinar COMMAND --help' for the options of a command.\n");
}

static int unknown_command(const char *name)
{
    const char *known[64] = {0};
    for (int i = 0; i < 63 && af_commands[i].name; i++)
        known[i] = af_commands[i].name;
    const char *near = af_cli_suggest(name, known);
    return af_cli_error(AF_EXIT_USAGE, NULL, "unknown command '%s'%s%s%s (see 'afinar --help')",
                        name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* When the caller closed stdin, stdout or stderr, the next file we open would get its descriptor
 * and receive our output. Opening /dev/null in the wrong direction takes the number, and writes
 * fail as they would have. */
static bool reserve_streams(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* Output that could not be written is a failure, whatever the command returned; and so is output
 * that lacks what there was no memory for. */
static int finish(int rc, const char *command)
{
    af_error err = {0};
    if (af_cli_memory_check(&err) != AF_OK && rc == AF_EXIT_OK)
        rc = af_report(command, &err);
    errno = 0;
    const bool lost = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !lost)
        return rc;
    fprintf(stderr, "afinar %s: cannot write the output%s%s\n", command, errno ? ": " : "",
            errno ? strerror(errno) : "");
    return rc == AF_EXIT_OK ? AF_EXIT_FAILED : rc;
}

static int run_command(int argc, char **argv)
{
    af_cli_json_errors(argc, argv);
    for (const af_command *c = af_commands; c->name; c++)
        if (!strcmp(c->name, argv[0])) {
            af_cli_watch_files(c->name);
            return finish(c->main(argc, argv), c->name);
        }
    return unknown_command(argv[0]);
}

/* All option tables and run file keys as one JSON object. Hidden: for tools/gen-docs. */
static int dump_options(void)
{
    char *keys;
    af_error err = {0};
    if (af_train_keys_json(&keys, &err) != AF_OK)
        return af_report("__options", &err);
    printf("{\"version\": \"%s\", \"commands\": [", af_version());
    for (const af_command *c = af_commands; c->name; c++) {
        printf("%s\n{\"name\": \"%s\", \"about\": \"%s\", \"help\": ", c == af_commands ? "" : ",",
               c->name, c->about);
        c->main(2, (char *[]){(char *)c->name, (char *)AF_OPT_DUMP, NULL});
        putchar('}');
    }
    printf("],\n\"common\": ");
    af_opts_dump_common(stdout);
    printf(",\n\"run_file\": %s}\n", keys);
    free(keys);
    return AF_EXIT_OK;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return AF_EXIT_USAGE;
    }
    /* "help train" is "train --help" */
    if (!strcmp(argv[1], "help") && argc > 2 && strcmp(argv[2], "help") != 0)
        return run_command(2, (char *[]){argv[2], (char *)"--help", NULL});
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return finish(AF_EXIT_OK, "--help");
    }
    if (!strcmp(argv[1], "--version")) {
        printf("afinar %s\n", af_version());
        return finish(AF_EXIT_OK, "--version");
    }
    if (!strcmp(argv[1], "__options") && argc == 2)
        return finish(dump_options(), argv[1]);
    return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    if (!reserve_streams())
        return AF_EXIT_FAILED;
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write */
    return af_cli_with_stack(run, argc, argv);
}
