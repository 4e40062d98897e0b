/* cmd_init.c - `afinar init MODEL DATASET [-o run.yaml]`: a run file to start from. */
#include "commands/commands.h"

#include "afinar/train.h"

#include <errno.h>

static int write_new(const char *path, const char *text, bool force)
{
    FILE *f = fopen(path, force ? "w" : "wx");
    if (!f) {
        return af_cli_error(AF_EXIT_FAILED, "init", "cannot write '%s': %s", path,
                            errno == EEXIST ? "it exists (use --force to replace it)"
                                            : strerror(errno));
    }
    const bool bad = fputs(text, f) < 0;
    if (fclose(f) != 0 || bad) {
        remove(path);
        return af_cli_error(AF_EXIT_FAILED, "init", "cannot write '%s'", path);
    }
    return AF_EXIT_OK;
}

int cmd_init(int argc, char **argv)
{
    const char *arg[2], *out = NULL;
    bool force = false;
    int count;
    char *text;
    af_common common = {0};
    af_error err = {0};
    const af_opt opts[] = {
        {'o', "output", AF_OPT_STR, &out, "FILE", "run file to write [stdout]"},
        {0, "force", AF_OPT_FLAG, &force, NULL, "replace an existing file"},
        {0},
    };
    const af_usage usage = {
        "init",
        "Writes a commented run file for a model and a dataset. A dataset with its own field names "
        "is\n"
        "given as in a run file: '{path: FILE, field_prompt: question, field_completion: answer}'.",
        "MODEL DATASET",
        opts,
        2,
        2,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    if (common.json)
        return af_cli_error(AF_EXIT_USAGE, "init", "--json is not supported; a run file is YAML");
    af_cli_log(&common);
    if (af_train_init(arg[0], arg[1], &text, &err) != AF_OK)
        return af_report("init", &err);
    int rc = AF_EXIT_OK;
    if (out)
        rc = write_new(out, text, force);
    else
        fputs(text, stdout);
    if (rc == AF_EXIT_OK && out && !common.quiet)
        fprintf(stderr, "wrote %s\n", out);
    free(text);
    return rc;
}
