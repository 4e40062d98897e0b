/* cmd_template.c - `afinar template`: renders conversations with a chat template. */
#define _GNU_SOURCE /* getline */
#include "afinar/chat.h"
#include "commands/commands.h"

#include <sys/types.h>

/* One result per row; the result of a row that fails is its error, and the rest continues. */
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
    if (status == AF_EXIT_OK && af_cli_stdin_end(&err) != AF_OK)
        status = af_report("template", &err);
    free(line);
    return status;
}

int cmd_template(int argc, char **argv)
{
    const char *arg[1], *name = NULL;
    int count = 0;
    af_common common = {0};
    const af_opt opts[] = {
        {0, "name", AF_OPT_STR, &name, "NAME", "which template to use when the model has several"},
        {0},
    };
    const af_usage usage = {
        "template",
        "Renders chat templates: reads JSON lines {\"messages\": [...]} from stdin and writes\n"
        "{\"text\": ...} or {\"error\": ...} for each. With - every line has its own \"template\".",
        "MODEL|FILE.jinja|-",
        opts,
        1,
        1,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);

    af_template *t = NULL;
    af_error err = {0};
    if (strcmp(arg[0], "-") != 0 && af_template_open_named(&t, arg[0], name, &err) != AF_OK)
        return af_report("template", &err);
    const int status = answer_rows(t);
    af_template_close(t);
    return status;
}
