/* parse_file.h - whole run files of other trainers, for the tests of each. */
#ifndef AF_TEST_PARSE_FILE_H
#define AF_TEST_PARSE_FILE_H

#include "test.h"

#include "train/run/run_keys.h"

/* A whole file, and a part of the effective one ('!': one that it lacks), or of what is said. */
static inline void parse_file(af_dialect dialect, const char *keys, const char *want, bool refused)
{
    af_run_config r = {0};
    af_error err = {0};
    char *text;
    const af_status st = af_run_config_parse(&r, keys, strlen(keys), "run.yaml", NULL, 0, &err);
    if (refused) {
        CHECK_MSG(st != AF_OK, "accepted: %s", keys);
        CHECK_MSG(strstr(err.msg, want), "'%s' lacks '%s'", err.msg, want);
        af_run_config_clear(&r);
        return;
    }
    CHECK_MSG(st == AF_OK, "%s: %s", keys, err.msg);
    CHECK_MSG(r.dialect == dialect, "%s", keys);
    CHECK_OK(af_run_config_text(&r, &text, &err), err);
    const bool absent = want[0] == '!';
    CHECK_MSG(!strstr(text, want + absent) == absent, "%s: %s in\n%s", keys, want, text);
    free(text);
    af_run_config_clear(&r);
}
#endif
