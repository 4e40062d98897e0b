/* cmd_plan.c - `afinar plan RUN.yaml [--memory 24GiB] [--json]`. */
#include "commands/commands.h"

#include "afinar/train.h"

#include <strings.h>

enum { MEMORY_MIN = 1 << 20 };

/* "24GiB", "24G", "800MB", "25000000000". False when it is not a size of a memory. */
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
            return *bytes >= MEMORY_MIN; /* "24" forgot its unit */
        }
    return false;
}

int cmd_plan(int argc, char **argv)
{
    const char *arg[128], *memory = NULL;
    int count;
    af_common common = {0};
    const af_opt opts[] = {
        {0, "memory", AF_OPT_STR, &memory, "plan for a machine with so much free (24GiB)"},
        {0},
    };
    switch (af_opts_parse("plan", "Says what a run needs, before anything is loaded.",
                          "RUN.yaml [key=value ...]", opts, &common, argc, argv, arg, 1, 120,
                          &count)) {
    case AF_PARSED_HELP:
        return AF_EXIT_OK;
    case AF_PARSED_BAD:
        return AF_EXIT_USAGE;
    case AF_PARSED_OK:
        break;
    }
    uint64_t bytes = 0;
    if (memory && !parse_size(memory, &bytes)) {
        fprintf(stderr, "afinar plan: --memory wants a size such as 24GiB, not '%s'\n", memory);
        return AF_EXIT_USAGE;
    }
    common.quiet = !common.verbose; /* a plan is what is asked for; warnings come all the same */
    af_cli_log(&common);
    char device[64], *text;
    if (common.device_given) {
        snprintf(device, sizeof device, "device=%s", common.device);
        arg[count++] = device;
    }
    af_error err = {0};
    if (af_train_plan(arg[0], arg + 1, count - 1, bytes, common.json, &text, &err) != AF_OK)
        return af_report("plan", &err);
    printf("%s%s", text, common.json ? "\n" : "");
    free(text);
    return AF_EXIT_OK;
}
