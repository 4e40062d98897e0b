/* cmd_distill.c - `afinar distill capture RUN.yaml -o FILE`. */
#include "commands/commands.h"

#include "afinar/train.h"

#include <inttypes.h>

int cmd_distill(int argc, char **argv)
{
    enum { ARGS_MAX = 120 };
    const char *arg[ARGS_MAX + 1], *out = NULL; /* and device= */
    bool force = false;
    int count;
    char device[64];
    af_common common = {0};
    af_capture_result r = {0};
    af_error err = {0};
    const af_opt opts[] = {
        {'o', "output", AF_OPT_STR, &out, "FILE",
         "safetensors file to write, for 'kd_logits'; FILE.part until it is whole"},
        {0, "force", AF_OPT_FLAG, &force, NULL, "replace a file that afinar wrote"},
        {0},
    };
    const af_usage usage = {
        "distill",
        "capture: runs the teacher of a run file over its data and writes the most likely tokens "
        "at every\nlabel (kd_topk, 64 without it) to a file that 'kd_logits' trains with. The same "
        "command continues after\nan interruption.",
        "capture RUN.yaml [key=value ...] -o FILE",
        opts,
        2,
        ARGS_MAX,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    if (strcmp(arg[0], "capture") != 0)
        return af_cli_error(AF_EXIT_USAGE, "distill", "expected 'capture', got '%s'", arg[0]);
    if (!out)
        return af_cli_error(AF_EXIT_USAGE, "distill", "-o FILE is required");
    af_cli_log(&common);
    if (common.device_is_set) {
        snprintf(device, sizeof device, "device=%s", common.device);
        arg[count++] = device;
    }
    if (af_distill_capture(arg[1], arg + 2, count - 2, out, force, NULL, &r, &err) != AF_OK)
        return af_report("distill", &err);
    if (common.json)
        printf("{\"records\": %" PRId64 ", \"positions\": %" PRId64 ", \"kd_topk\": %" PRId64
               ", \"resumed\": %" PRId64 "}\n",
               r.records, r.positions, r.k, r.resumed);
    else if (!common.quiet)
        printf("%s: %" PRId64 " positions of %" PRId64 " records, %" PRId64 " tokens each\n", out,
               r.positions, r.records, r.k);
    return AF_EXIT_OK;
}
