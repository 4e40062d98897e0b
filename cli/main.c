/* main.c - picks the subcommand. */
#include "commands.h"

static void usage(FILE *f)
{
    fprintf(f, "afinar %s - fine-tunes language models\n\nusage: afinar COMMAND [options]\n\n",
            af_version());
    for (const af_command *c = af_commands; c->name; c++)
        fprintf(f, "  %-10s %s\n", c->name, c->about);
    fprintf(f, "\n'afinar COMMAND --help' says more.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return AF_EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return AF_EXIT_OK;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("afinar %s\n", af_version());
        return AF_EXIT_OK;
    }
    for (const af_command *c = af_commands; c->name; c++)
        if (!strcmp(c->name, argv[1]))
            return c->main(argc - 1, argv + 1);
    fprintf(stderr, "afinar: no command '%s' (see 'afinar --help')\n", argv[1]);
    return AF_EXIT_USAGE;
}
