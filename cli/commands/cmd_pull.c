/* cmd_pull.c - `afinar pull ORG/NAME[@REV]`: a model or a dataset of the hub into the cache. */
#include "commands/commands.h"

#include "afinar/hub.h"

int cmd_pull(int argc, char **argv)
{
    const char *arg[1];
    int count;
    char *folder = NULL;
    af_common common = {0};
    af_opt_list include = {0}, exclude = {0};
    af_pull_opts o = {0};
    af_error err = {0};
    const af_opt opts[] = {
        {0, "include", AF_OPT_LIST, &include, "GLOB",
         "take the files that match, in place of the usual choice (may be repeated)"},
        {0, "exclude", AF_OPT_LIST, &exclude, "GLOB", "leave out files that match"},
        {0, "gguf", AF_OPT_STR, &o.gguf, "TYPE", "take the GGUF file of this type: Q4_K_M, ..."},
        {0, "dataset", AF_OPT_FLAG, &o.dataset, NULL, "a dataset, not a model"},
        {'o', "output", AF_OPT_STR, &o.output, "DIR", "write the files here, not to the cache"},
        {0},
    };
    const af_usage usage = {
        "pull",
        "Downloads a repository of the Hugging Face hub into the cache that huggingface_hub uses,\n"
        "checks sizes and hashes, and prints the folder. Only configs, the tokenizer, and\n"
        "safetensors or one GGUF file are fetched. A transfer that was cut continues.",
        "ORG/NAME[@REV]",
        opts,
        1,
        1,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    af_cli_log(&common);
    o.hub = *af_cli_hub_opts();
    o.include = include.item;
    o.includes = include.count;
    o.exclude = exclude.item;
    o.excludes = exclude.count;
    if (af_hub_pull(&folder, arg[0], &o, &err) != AF_OK)
        return af_report("pull", &err);
    if (common.json) {
        printf("{\"folder\": ");
        af_cli_json_message(folder);
        printf("}\n");
    } else {
        printf("%s\n", folder);
    }
    free(folder);
    return AF_EXIT_OK;
}
