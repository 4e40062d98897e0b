/* main.c - picks the subcommand. */
#include "commands.h"

#include "afinar/word.h"

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
    return no_command(argv[1]);
}
