/* cli_memory.c - what the program does when memory runs out where nothing would say so. */
#include "term/cli.h"

#include <errno.h>
#include <jansson.h>

static bool noted; /* by the main thread only */

void af_cli_note_memory(void) { noted = true; }

af_status af_cli_memory_check(af_error *err)
{
    const bool own = noted;
    noted = false;
    return own ? af_fail(err, AF_ENOMEM, "not enough memory") : af_memory_check(err);
}

char *af_cli_json_dump(const json_t *tree, const char *fault, af_error *err)
{
    char *text = json_dumps(tree, JSON_COMPACT);
    if (af_memory_check(err) != AF_OK) {
        free(text);
        return NULL;
    }
    if (!text)
        af_fail(err, AF_EUSAGE, "%s", fault);
    return text;
}

af_status af_cli_stdin_end(af_error *err)
{
    const int why = errno;
    if (feof(stdin))
        return AF_OK;
    return af_fail(err, why == ENOMEM ? AF_ENOMEM : AF_EIO, "cannot read stdin: %s", strerror(why));
}
