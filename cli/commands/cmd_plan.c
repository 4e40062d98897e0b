/* cmd_plan.c - `afinar plan RUN.yaml [--memory 24GiB] [--json]`. */
#include "commands/commands.h"

#include "afinar/train.h"

#include <strings.h>

enum { MEMORY_MIN = 1 << 20 };

/* "24GiB", "24G", "800MB", "25000000000". False when it is not a size of at least 1 MiB. */
static bool parse_size(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},         {"k", 0x1p10},   {"m", 0x1p20},   {"g", 0x1p30},   {"t", 0x1p40},
                 {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40}, {"kb", 1e3},
                 {"mb", 1e6},     {"gb", 1e9},     {"tb", 1e12}};
    char *end;
    const double v = strtod(text, &end);
    if (end == text || !(v > 0))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (!strcasecmp(end, units[i].unit)) {
            *bytes = (uint64_t)(v * units[i].factor);
            return *bytes >= MEMORY_MIN; /* "24" lacks its unit */
        }
    return false;
}

/* "300GB,25GB": bytes a second inside a machine and between machines. */
static bool parse_bandwidth(const char *text, af_plan_ranks *r)
{
    char first[64];
    uint64_t near_rate, far_rate;
    const size_t n = strcspn(text, ",");
    if (n >= sizeof first)
        return false;
    memcpy(first, text, n);
    first[n] = '\0';
    if (!parse_size(first, &near_rate))
        return false;
    far_rate = near_rate;
    if (text[n] == ',' && !parse_size(text + n + 1, &far_rate))
        return false;
    r->bandwidth = (double)near_rate;
    r->bandwidth_far = (double)far_rate;
    return true;
}

int cmd_plan(int argc, char **argv)
{
    enum { ARGS_MAX = 120 };
    const char *arg[ARGS_MAX + 2], *memory = NULL; /* and device=, strict= */
    const char *bandwidth = NULL;
    int64_t ranks = 0, per_node = 0;
    bool strict = false;
    int count;
    af_common common = {0};
    const af_opt opts[] = {
        {0, "memory", AF_OPT_STR, &memory, "SIZE",
         "plan for a machine with this much free memory, such as 24GiB"},
        {0, "ranks", AF_OPT_I64, &ranks, "N", "plan for so many processes"},
        {0, "ranks-per-node", AF_OPT_I64, &per_node, "M", "so many of them on one machine [all]"},
        {0, "bandwidth", AF_OPT_STR, &bandwidth, "RATE",
         "bytes/s of a rank, such as 300GB,25GB: inside a machine, between machines [10GB]"},
        {0, "strict", AF_OPT_FLAG, &strict, NULL, "refuse keys of the file that have no effect"},
        {0},
    };
    const af_usage usage = {
        "plan",
        "Prints the parameters, memory and FLOPs of a run and what fits into memory, from the run "
        "file,\nthe model's config and the file headers alone.",
        "RUN.yaml [key=value ...]",
        opts,
        1,
        ARGS_MAX,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    uint64_t bytes = 0;
    if (memory && !parse_size(memory, &bytes))
        return af_cli_error(AF_EXIT_USAGE, "plan",
                            "--memory expects a size such as 24GiB, got '%s'", memory);
    af_plan_ranks r = {.ranks = (int)ranks, .ranks_per_node = (int)per_node};
    if (bandwidth && !parse_bandwidth(bandwidth, &r))
        return af_cli_error(AF_EXIT_USAGE, "plan",
                            "--bandwidth expects rates such as 300GB,25GB, got '%s'", bandwidth);
    if (!ranks && (per_node || bandwidth))
        return af_cli_error(AF_EXIT_USAGE, "plan", "--%s needs --ranks",
                            per_node ? "ranks-per-node" : "bandwidth");
    common.quiet = !common.verbose; /* the plan alone; warnings are printed anyway */
    af_cli_log(&common);
    char device[64], *text;
    if (common.device_is_set) {
        snprintf(device, sizeof device, "device=%s", common.device);
        arg[count++] = device;
    }
    if (strict)
        arg[count++] = "strict=true";
    af_error err = {0};
    if (af_train_plan_ranks(arg[0], arg + 1, count - 1, bytes, ranks ? &r : NULL, common.json,
                            &text, &err) != AF_OK)
        return af_report("plan", &err);
    printf("%s%s", text, common.json ? "\n" : "");
    free(text);
    return AF_EXIT_OK;
}
