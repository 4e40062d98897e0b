/* jinja_rows.h - comparing renderings with files of expected ones. */
#ifndef AF_JINJA_ROWS_H
#define AF_JINJA_ROWS_H

#include "base/buf.h"
#include "base/file.h"
#include "format/chat/chat_template.h"
#include "test.h"

/* Calls `row` for each JSON line of a file; returns how many there were. Lines end at \n only. */
static int each_row(const char *path, void (*row)(json_t *row, void *user), void *user)
{
    char *text = NULL;
    uint64_t size = 0;
    af_error err = {0};
    int rows = 0;
    CHECK_OK(af_file_read(&text, &size, path, (uint64_t)64 << 20, &err), err);
    for (char *p = text, *end = text + size; p < end;) {
        char *eol = memchr(p, '\n', (size_t)(end - p));
        eol = eol ? eol : end;
        json_error_t why;
        json_t *json = json_loadb(p, (size_t)(eol - p), JSON_ALLOW_NUL, &why);
        CHECK_MSG(json != NULL, "%s: row %d: %s", path, rows + 1, why.text);
        row(json, user);
        json_decref(json);
        rows++;
        p = eol + 1;
    }
    free(text);
    return rows;
}

/* Fails unless a rendering is what `expected` says: a string, or {"error", "kind"}. */
static void check_rendering(const char *name, const json_t *expected, af_status st,
                            const char *text, uint64_t len, const af_error *err)
{
    if (json_is_string(expected)) {
        CHECK_MSG(st == AF_OK, "%s: %s", name, err->msg);
        if (len != json_string_length(expected) || memcmp(text, json_string_value(expected), len))
            fail_msg("%s:\n  expected: %s\n  got:      %s", name, json_string_value(expected),
                     text);
        return;
    }
    const char *part = json_string_value(json_object_get(expected, "error"));
    CHECK_MSG(st != AF_OK, "%s: rendered '%s' instead of an error", name, text);
    CHECK_MSG(part && strstr(err->msg, part), "%s: '%s' does not contain '%s'", name, err->msg,
              part ? part : "");
}
#endif
