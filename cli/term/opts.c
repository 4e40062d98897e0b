/* opts.c - one option parser for all commands: "-o X", "-oX", "--output X", "--output=X", "--". */
#define _POSIX_C_SOURCE 200809L
#include "term/opts_help.h"

#include "afinar/device.h"

#include <errno.h>
#include <unistd.h>

static const af_opt *find(const af_opt *a, const af_opt *b, const char *name, size_t n, char letter)
{
    for (int set = 0; set < 2; set++)
        for (const af_opt *o = set ? b : a; o->name || o->letter; o++)
            if (name ? strlen(o->name) == n && !strncmp(o->name, name, n) : o->letter == letter)
                return o;
    return NULL;
}

static bool store(const char *command, const af_opt *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    switch (o->kind) {
    case AF_OPT_FLAG:
        *(bool *)o->target = true;
        return true;
    case AF_OPT_STR:
        *(const char **)o->target = text;
        return true;
    case AF_OPT_I64:
        *(int64_t *)o->target = strtoll(text, &end, 10);
        break;
    case AF_OPT_F64:
        *(double *)o->target = strtod(text, &end);
        break;
    case AF_OPT_LIST: {
        af_opt_list *l = o->target;
        if (l->count == (int)(sizeof l->item / sizeof l->item[0])) {
            af_cli_error(AF_EXIT_USAGE, command, "--%s given more than %d times", o->name,
                         l->count);
            return false;
        }
        l->item[l->count++] = text;
        return true;
    }
    }
    if (errno || end == text || *end) {
        af_cli_error(AF_EXIT_USAGE, command, "--%s expects a number, got '%s'", o->name, text);
        return false;
    }
    return true;
}

static af_parsed unknown_option(const af_usage *u, const af_opt *common, const char *arg)
{
    const char *known[128] = {0}, *near = NULL;
    char name[64];
    size_t n = 0;
    for (int set = 0; set < 2; set++)
        for (const af_opt *o = set ? common : u->opts; o->name; o++)
            if (n < sizeof known / sizeof known[0] - 1)
                known[n++] = o->name;
    if (arg[1] == '-') {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(arg + 2, "="), arg + 2);
        near = af_cli_suggest(name, known);
    }
    const bool has_keys = strstr(u->synopsis, "key=value") != NULL;
    af_cli_error(AF_EXIT_USAGE, u->command, "unknown option '%s'%s%s%s (%ssee 'afinar %s --help')",
                 arg, near ? "; did you mean '--" : "", near ? near : "", near ? "'?" : "",
                 has_keys && !near && arg[1] == '-' ? "run file keys are given as key=value; " : "",
                 u->command);
    return AF_PARSED_BAD;
}

/* One argument that begins with a dash. *i advances when the value is the next argument. */
static af_parsed parse_option(const af_usage *u, const af_opt *common, int argc, char **argv,
                              int *i)
{
    const char *arg = argv[*i], *value = NULL;
    const af_opt *o;
    if (arg[1] == '-') {
        const size_t n = strcspn(arg + 2, "=");
        o = find(u->opts, common, arg + 2, n, 0);
        if (arg[2 + n] == '=')
            value = arg + 3 + n;
    } else {
        o = find(u->opts, common, NULL, 0, arg[1]);
        if (o && arg[2] && o->kind == AF_OPT_FLAG)
            return unknown_option(u, common, arg);
        value = arg[2] ? arg + 2 : NULL;
    }
    if (!o)
        return unknown_option(u, common, arg);
    if (o->kind == AF_OPT_FLAG && value) {
        af_cli_error(AF_EXIT_USAGE, u->command, "--%s does not take a value", o->name);
        return AF_PARSED_BAD;
    }
    if (o->kind != AF_OPT_FLAG && !value) {
        if (*i + 1 >= argc) {
            af_cli_error(AF_EXIT_USAGE, u->command, "--%s needs a value", o->name);
            return AF_PARSED_BAD;
        }
        value = argv[++*i];
    }
    return store(u->command, o, value) ? AF_PARSED_OK : AF_PARSED_BAD;
}

/* Targets of the common options that no command sees. */
typedef struct common_flags {
    bool help, version;
} common_flags;

enum { COMMON_ROWS = 10 };

static void common_rows(af_opt out[COMMON_ROWS], af_common *c, common_flags *f)
{
    const af_opt rows[COMMON_ROWS] = {
        {0, "device", AF_OPT_STR, &c->device, "DEVICE", "auto, cpu, cuda or cuda:N [auto]"},
        {0, "threads", AF_OPT_I64, &c->threads, "N", "number of CPU threads, 0 = all cores [0]"},
        {'q', "quiet", AF_OPT_FLAG, &c->quiet, NULL, "print warnings and errors only"},
        {'v', "verbose", AF_OPT_FLAG, &c->verbose, NULL, "print more details"},
        {0, "json", AF_OPT_FLAG, &c->json, NULL, "print results as JSON"},
        {0, "offline", AF_OPT_FLAG, &c->offline, NULL, "download nothing from the hub"},
        {0, "token-file", AF_OPT_STR, &c->token_file, "FILE", "token of the hub [HF_TOKEN]"},
        {'h', "help", AF_OPT_FLAG, &f->help, NULL, "print this help"},
        {0, "version", AF_OPT_FLAG, &f->version, NULL, "print the version"},
        {0},
    };
    memcpy(out, rows, sizeof rows);
}

static af_parsed parse_all(const af_usage *u, const af_opt *common, int argc, char **argv,
                           const char **arg, int *count)
{
    bool options_ended = false;
    *count = 0;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!options_ended && !strcmp(a, "--")) {
            options_ended = true;
        } else if (!options_ended && a[0] == '-' && a[1]) {
            const af_parsed p = parse_option(u, common, argc, argv, &i);
            if (p != AF_PARSED_OK)
                return p;
        } else if (*count == u->max) {
            af_cli_error(AF_EXIT_USAGE, u->command, "unexpected argument '%s'", a);
            return AF_PARSED_BAD;
        } else {
            arg[(*count)++] = a;
        }
    }
    return AF_PARSED_OK;
}

af_parsed af_opts_parse(const af_usage *u, af_common *common, int argc, char **argv,
                        const char **arg, int *count)
{
    common_flags flags = {0};
    af_opt rows[COMMON_ROWS];
    common->device = NULL;
    common_rows(rows, common, &flags);
    if (argc == 2 && !strcmp(argv[1], AF_OPT_DUMP)) {
        af_opts_dump(u, stdout);
        return AF_PARSED_HELP;
    }
    if (parse_all(u, rows, argc, argv, arg, count) != AF_PARSED_OK)
        return AF_PARSED_BAD;
    common->device_is_set = common->device != NULL;
    if (!common->device_is_set)
        common->device = "auto";
    if (flags.help)
        af_opts_help(u, rows);
    else if (flags.version)
        printf("afinar %s\n", af_version());
    if (flags.help || flags.version)
        return AF_PARSED_HELP;
    if (*count < u->min) {
        af_cli_error(AF_EXIT_USAGE, u->command,
                     "an argument is missing; usage: afinar %s [options] %s", u->command,
                     u->synopsis);
        return AF_PARSED_BAD;
    }
    if (common->threads < 0 || common->threads > 4096) {
        af_cli_error(AF_EXIT_USAGE, u->command, "--threads is %lld; it must be 0 to 4096",
                     (long long)common->threads);
        return AF_PARSED_BAD;
    }
    af_cli_hub(common);
    return AF_PARSED_OK;
}

int af_opts_exit(af_parsed p) { return p == AF_PARSED_HELP ? AF_EXIT_OK : AF_EXIT_USAGE; }

void af_opts_dump_common(FILE *f)
{
    af_common c;
    common_flags flags;
    af_opt rows[COMMON_ROWS];
    common_rows(rows, &c, &flags);
    af_opts_dump_rows(rows, f);
}

static bool asks_for_gpu(const af_common *c)
{
    return strcmp(c->device, "auto") != 0 && strcmp(c->device, "cpu") != 0;
}

af_status af_cli_has_device(const af_common *c, af_error *err)
{
    af_device *d = NULL;
    const af_status st = asks_for_gpu(c) ? af_device_open(&d, c->device, 1, err) : AF_OK;
    if (st == AF_OK)
        af_device_close(d);
    return st;
}

af_status af_cli_on_cpu(const char *command, const af_common *c, af_error *err)
{
    const af_status st = af_cli_has_device(c, err);
    if (st == AF_OK && asks_for_gpu(c) && !c->quiet)
        fprintf(stderr, "note: %s computes on the CPU, not on %s\n", command, c->device);
    return st;
}

bool af_term_has_cursor(FILE *f)
{
    const char *term = getenv("TERM");
    return isatty(fileno(f)) && term && strcmp(term, "dumb") != 0;
}

bool af_tty(FILE *f) { return af_term_has_cursor(f) && !getenv("NO_COLOR"); }
