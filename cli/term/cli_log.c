/* cli_log.c - the library's log on stderr, and JSON strings. */
#include "term/cli.h"

#include "afinar/log.h"

static const af_common silent = {.quiet = true};

static void to_stderr(void *user, af_log_level level, const char *line)
{
    const af_common *c = user;
    if (level == AF_LOG_WARN)
        fprintf(stderr, "warning: %s\n", line);
    else if (!c->quiet && (level == AF_LOG_INFO || c->verbose))
        fprintf(stderr, "%s\n", line);
}

void af_cli_log(const af_common *c)
{
    static af_common copy; /* outlives the command's frame; set before threads start */
    copy = c ? *c : silent;
    af_log_set(to_stderr, &copy);
}

void af_cli_json_text(FILE *f, const char *s, uint64_t len)
{
    fputc('"', f);
    for (uint64_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", f);
        else if (c < 0x20 || c == 0x7f)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}
