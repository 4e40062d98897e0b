/* main.c - picks the subcommand, and sees that what it printed has arrived. */
#define _POSIX_C_SOURCE 200809L
#include "commands/commands.h"

#include "afinar/word.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void usage(FILE *f)
{
    fprintf(f, "afinar %s - fine-tunes language models\n\nusage: afinar COMMAND [options]\n\n",
            af_version());
    for (const af_command *c = af_commands; c->name; c++)
        fprintf(f, "  %-10s %s\n", c->name, c->about);
    fprintf(f, "\n'afinar COMMAND --help' says more.\n");
}

static int no_command(const char *word)
{
    const char *known[64] = {0};
    for (int i = 0; i < 63 && af_commands[i].name; i++)
        known[i] = af_commands[i].name;
    const char *near = af_word_nearest(word, known);
    fprintf(stderr, "afinar: no command '%s'%s%s%s (see 'afinar --help')\n", word,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return AF_EXIT_USAGE;
}

/* Where the caller closed one of the three streams, no file of ours may take its number: it would
 * get what is printed. A write there fails, as it would have. */
static bool fill_streams(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* A result that could not be written is a failure, whatever the command thought. */
static int finish(int rc, const char *command)
{
    errno = 0;
    const bool lost = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !lost)
        return rc;
    fprintf(stderr, "afinar %s: the output could not be written%s%s\n", command, errno ? ": " : "",
            errno ? strerror(errno) : "");
    return rc == AF_EXIT_OK ? AF_EXIT_FAILED : rc;
}

static int run_command(int argc, char **argv)
{
    for (const af_command *c = af_commands; c->name; c++)
        if (!strcmp(c->name, argv[0]))
            return finish(c->main(argc, argv), c->name);
    return no_command(argv[0]);
}

int main(int argc, char **argv)
{
    if (!fill_streams())
        return AF_EXIT_FAILED;
    if (argc < 2) {
        usage(stderr);
        return AF_EXIT_USAGE;
    }
    /* "help train" is "train --help"; "help help" is this one */
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
    return run_command(argc - 1, argv + 1);
}
