/* cmd_template.c - afinar template: renders conversations with a chat template. */
#define _GNU_SOURCE /* getline */
#include "afinar/chat.h"
#include "commands/commands.h"

#include <errno.h>
#include <sys/types.h>

/* One answer per row; a row that fails says so in its answer and the rest goes on. */
static int answer_rows(const af_template *t)
{
    char *line = NULL;
    size_t cap = 0;
    af_error err = {0};
    int status = AF_EXIT_OK;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) >= 0;) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            n--;
        if (n == 0)
            continue;
        char *json = NULL;
        if (af_template_answer_row(t, line, (uint64_t)n, &json, &err) != AF_OK) {
            status = af_report("template", &err);
            break;
        }
        printf("%s\n", json);
        free(json);
    }
    free(line);
    if (ferror(stdin)) {
        fprintf(stderr, "afinar template: cannot read the lines: %s\n", strerror(errno));
        status = AF_EXIT_FAILED;
    }
    return status;
}

int cmd_template(int argc, char **argv)
{
    const char *arg[1], *name = NULL;
    int count = 0;
    af_common common = {0};
    const af_opt opts[] = {
        {0, "name", AF_OPT_STR, &name, "the template of that name, where the model has several"},
        {0},
    };
    const af_parsed parsed = af_opts_parse(
        "template",
        "Renders JSON lines from stdin with a chat template: {\"messages\": [...]} in, "
        "{\"text\": ...} or {\"error\": ...} out",
        "MODEL|FILE.jinja|-", opts, &common, argc, argv, arg, 1, 1, &count);
    if (parsed != AF_PARSED_OK)
        return parsed == AF_PARSED_HELP ? AF_EXIT_OK : AF_EXIT_USAGE;

    af_template *t = NULL;
    af_error err = {0};
    if (strcmp(arg[0], "-") != 0 && af_template_open_named(&t, arg[0], name, &err) != AF_OK)
        return af_report("template", &err);
    const int status = answer_rows(t);
    af_template_close(t);
    return status;
}
