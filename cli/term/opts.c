/* opts.c - one option parser for all commands: "-o X", "-oX", "--output X", "--output=X", "--". */
#define _POSIX_C_SOURCE 200809L
#include "term/cli.h"

#include "afinar/device.h"
#include "afinar/word.h"

#include <errno.h>
#include <unistd.h>

static const af_opt *find(const af_opt *a, const af_opt *b, const char *name, size_t n, char letter)
{
    for (int set = 0; set < 2; set++)
        for (const af_opt *o = set ? b : a; o->name || o->letter; o++)
            if (letter ? o->letter == letter : strlen(o->name) == n && !strncmp(o->name, name, n))
                return o;
    return NULL;
}

static bool store(const char *command, const af_opt *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    switch (o->kind) {
    case AF_OPT_FLAG:
        *(bool *)o->place = true;
        return true;
    case AF_OPT_STR:
        *(const char **)o->place = text;
        return true;
    case AF_OPT_I64:
        *(int64_t *)o->place = strtoll(text, &end, 10);
        break;
    case AF_OPT_F64:
        *(double *)o->place = strtod(text, &end);
        break;
    case AF_OPT_LIST: {
        af_opt_list *l = o->place;
        if (l->count == (int)(sizeof l->item / sizeof l->item[0])) {
            fprintf(stderr, "afinar %s: --%s given more than %d times\n", command, o->name,
                    l->count);
            return false;
        }
        l->item[l->count++] = text;
        return true;
    }
    }
    if (errno || end == text || *end) {
        fprintf(stderr, "afinar %s: --%s wants a number, not '%s'\n", command, o->name, text);
        return false;
    }
    return true;
}

static void help_rows(const af_opt *o)
{
    for (; o->name || o->letter; o++) {
        char left[64];
        const char *value = o->kind == AF_OPT_FLAG  ? ""
                            : o->kind == AF_OPT_I64 ? " N"
                            : o->kind == AF_OPT_F64 ? " X"
                                                    : " VALUE";
        if (o->letter)
            snprintf(left, sizeof left, "-%c, --%s%s", o->letter, o->name, value);
        else
            snprintf(left, sizeof left, "    --%s%s", o->name, value);
        printf("  %-28s %s\n", left, o->help);
    }
}

static void help(const char *command, const char *about, const char *positional, const af_opt *opts,
                 const af_opt *common)
{
    printf("usage: afinar %s [options] %s\n\n%s\n\noptions:\n", command, positional, about);
    help_rows(opts);
    printf("\ncommon options:\n");
    help_rows(common);
}

static af_parsed bad_option(const char *command, const af_opt *opts, const af_opt *common,
                            const char *word)
{
    const char *known[128] = {0}, *near = NULL;
    char name[64];
    size_t n = 0;
    for (int set = 0; set < 2; set++)
        for (const af_opt *o = set ? common : opts; o->name || o->letter; o++)
            if (o->name && n < sizeof known / sizeof known[0] - 1)
                known[n++] = o->name;
    if (word[1] == '-') {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
        near = af_word_nearest(name, known);
    }
    const bool keys = !strcmp(command, "train") || !strcmp(command, "plan");
    fprintf(stderr, "afinar %s: unknown option '%s'%s%s%s (%ssee 'afinar %s --help')\n", command,
            word, near ? "; did you mean '--" : "", near ? near : "", near ? "'?" : "",
            keys && !near && word[1] == '-' ? "keys of a run file are given as key=value; " : "",
            command);
    return AF_PARSED_BAD;
}

/* One word that begins with a dash. *i moves on when the value is the next word. */
static af_parsed option(const char *command, const af_opt *opts, const af_opt *common, int argc,
                        char **argv, int *i)
{
    const char *word = argv[*i], *value = NULL;
    const af_opt *o;
    if (word[1] == '-') {
        const size_t n = strcspn(word + 2, "=");
        o = find(opts, common, word + 2, n, 0);
        if (word[2 + n] == '=')
            value = word + 3 + n;
    } else {
        o = find(opts, common, NULL, 0, word[1]);
        if (o && word[2] && o->kind == AF_OPT_FLAG)
            return bad_option(command, opts, common, word);
        value = word[2] ? word + 2 : NULL;
    }
    if (!o)
        return bad_option(command, opts, common, word);
    if (o->kind == AF_OPT_FLAG && value) {
        fprintf(stderr, "afinar %s: --%s takes no value\n", command, o->name);
        return AF_PARSED_BAD;
    }
    if (o->kind != AF_OPT_FLAG && !value) {
        if (*i + 1 >= argc) {
            fprintf(stderr, "afinar %s: --%s wants a value\n", command, o->name);
            return AF_PARSED_BAD;
        }
        value = argv[++*i];
    }
    return store(command, o, value) ? AF_PARSED_OK : AF_PARSED_BAD;
}

af_parsed af_opts_parse(const char *command, const char *about, const char *positional,
                        const af_opt *opts, af_common *common, int argc, char **argv,
                        const char **arg, int min, int max, int *count)
{
    bool want_help = false, want_version = false;
    common->device = NULL;
    const af_opt shared[] = {
        {0, "device", AF_OPT_STR, &common->device, "auto, cpu, cuda or cuda:N"},
        {0, "threads", AF_OPT_I64, &common->threads, "CPU threads (0 = every core)"},
        {'q', "quiet", AF_OPT_FLAG, &common->quiet, "say only what went wrong"},
        {'v', "verbose", AF_OPT_FLAG, &common->verbose, "say more"},
        {0, "json", AF_OPT_FLAG, &common->json, "results as JSON on stdout"},
        {'h', "help", AF_OPT_FLAG, &want_help, "this text"},
        {0, "version", AF_OPT_FLAG, &want_version, "which afinar this is"},
        {0},
    };
    bool only_words = false;
    *count = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!only_words && !strcmp(word, "--")) {
            only_words = true;
        } else if (!only_words && word[0] == '-' && word[1]) {
            const af_parsed p = option(command, opts, shared, argc, argv, &i);
            if (p != AF_PARSED_OK)
                return p;
        } else if (*count == max) {
            fprintf(stderr, "afinar %s: one word too many: '%s'\n", command, word);
            return AF_PARSED_BAD;
        } else {
            arg[(*count)++] = word;
        }
    }
    common->device_given = common->device != NULL;
    if (!common->device_given)
        common->device = "auto";
    if (want_help) {
        help(command, about, positional, opts, shared);
        return AF_PARSED_HELP;
    }
    if (want_version) {
        printf("afinar %s\n", af_version());
        return AF_PARSED_HELP;
    }
    if (*count < min) {
        fprintf(stderr, "usage: afinar %s [options] %s\n", command, positional);
        return AF_PARSED_BAD;
    }
    if (common->threads < 0 || common->threads > 4096) {
        fprintf(stderr, "afinar %s: --threads %lld is not between 0 and 4096\n", command,
                (long long)common->threads);
        return AF_PARSED_BAD;
    }
    return AF_PARSED_OK;
}

int af_report(const char *command, const af_error *err)
{
    fprintf(stderr, "afinar %s: %s\n", command, err->msg);
    return AF_EXIT_FAILED;
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

bool af_tty(FILE *f)
{
    const char *term = getenv("TERM");
    return isatty(fileno(f)) && !getenv("NO_COLOR") && term && strcmp(term, "dumb") != 0;
}
