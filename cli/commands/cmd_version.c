/* cmd_version.c - `afinar version`: the same as --version, for those who look for a command. */
#include "commands/commands.h"

int cmd_version(int argc, char **argv)
{
    const char *arg[1];
    int count;
    af_common common = {0};
    const af_opt opts[] = {{0}};
    const af_usage usage = {"version", "Prints the version.", "", opts, 0, 0, NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    printf(common.json ? "{\"version\": \"%s\"}\n" : "afinar %s\n", af_version());
    return AF_EXIT_OK;
}
