/* cli_log.c - the library's log on stderr, and JSON strings. */
#include "term/cli.h"

#include "afinar/log.h"

#include <pthread.h>

enum { SAID_MAX = 64 };

static const af_common silent = {.quiet = true};
static bool each_time;

/* Whether this warning has been printed; beyond SAID_MAX none is remembered. */
static bool said_before(const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char *said[SAID_MAX]; /* until the process ends */
    static int n;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n && !found; i++)
        found = strcmp(said[i], line) == 0;
    if (!found && n < SAID_MAX) {
        said[n] = strdup(line);
        n += said[n] != NULL;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void to_stderr(void *user, af_log_level level, const char *line)
{
    const af_common *c = user;
    if (level == AF_LOG_WARN) {
        if (each_time || !said_before(line))
            af_cli_put_line("warning: ", line);
    } else if (!c->quiet && (level == AF_LOG_INFO || c->verbose)) {
        af_cli_put_line("", line);
    }
}

void af_cli_log(const af_common *c)
{
    static af_common copy; /* outlives the command's frame; set before threads start */
    copy = c ? *c : silent;
    af_log_set(to_stderr, &copy);
}

void af_cli_log_each_time(const af_common *c)
{
    each_time = true;
    af_cli_log(c);
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
