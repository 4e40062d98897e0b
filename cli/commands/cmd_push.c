/* cmd_push.c - `afinar push DIR ORG/NAME`: an adapter or a model folder to the hub. */
#include "commands/commands.h"

#include "afinar/hub.h"

int cmd_push(int argc, char **argv)
{
    const char *arg[2];
    int count;
    char *address = NULL;
    af_common common = {0};
    af_push_opts o = {0};
    af_error err = {0};
    const af_opt opts[] = {
        {0, "private", AF_OPT_FLAG, &o.private_repo, NULL, "create the repository as private"},
        {0, "revision", AF_OPT_STR, &o.revision, "BRANCH", "branch to commit to [main]"},
        {'m', "message", AF_OPT_STR, &o.message, "TEXT", "message of the commit"},
        {0, "dataset", AF_OPT_FLAG, &o.dataset, NULL, "a dataset, not a model"},
        {0},
    };
    const af_usage usage = {
        "push",
        "Uploads a folder to the Hugging Face hub in one commit and prints its address. The\n"
        "repository is created when it does not exist. Checkpoints and hidden files are left out;\n"
        "what the hub already has is not sent again.",
        "DIR ORG/NAME",
        opts,
        2,
        2,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    af_cli_log(&common);
    o.hub = *af_cli_hub_opts();
    if (af_hub_push(&address, arg[0], arg[1], &o, &err) != AF_OK)
        return af_report("push", &err);
    if (common.json) {
        printf("{\"commit_url\": ");
        af_cli_json_message(address);
        printf("}\n");
    } else {
        printf("%s\n", address);
    }
    free(address);
    return AF_EXIT_OK;
}
