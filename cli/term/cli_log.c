/* cli_log.c - where the library's lines go. */
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
    static af_common kept; /* outlives the command's frame; written once, before any thread */
    kept = c ? *c : silent;
    af_log_set(to_stderr, &kept);
}
