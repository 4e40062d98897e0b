/* cmd_init.c - `afinar init MODEL DATASET [-o run.yaml]`: a run file to start from. */
#include "commands/commands.h"

#include "afinar/output.h"
#include "afinar/train.h"

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
        {0, "force", AF_OPT_FLAG, &force, NULL,
         "replace a file that afinar wrote and nobody changed"},
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
    if (out && strcmp(out, "-") == 0)
        out = NULL; /* stdout */
    if (out && af_output_check_file(out, force, &err) != AF_OK)
        return af_report("init", &err);
    if (af_train_init(arg[0], arg[1], &text, &err) != AF_OK)
        return af_report("init", &err);
    af_status st = AF_OK;
    if (out)
        st = af_output_write(out, text, strlen(text), force, &err);
    else
        fputs(text, stdout);
    free(text);
    if (st != AF_OK)
        return af_report("init", &err);
    if (out && !common.quiet)
        fprintf(stderr, "wrote %s\n", out);
    return AF_EXIT_OK;
}
