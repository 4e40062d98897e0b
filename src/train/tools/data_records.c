/* data_records.c - the records of a dataset before any shape is applied. */
#include "afinar/data.h"

#include "base/file.h"
#include "data/read/records.h"
#include "data/shape/data_source.h"

typedef struct printing {
    int64_t left; /* records; -1 = all */
    af_data_line_hook *hook;
    void *user;
    bool stopped;
} printing;

static af_status print_file(printing *p, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_records *r = NULL;
    af_records_kind kind;
    AF_TRY(af_records_kind_of(&kind, path, NULL, err));
    AF_TRY(af_records_open(&r, path, kind, err));
    while (p->left != 0 && !p->stopped) {
        const char *text;
        uint64_t n = 0;
        AF_TRY(af_records_next_text(r, &text, &n, err));
        if (!text)
            break;
        p->left -= p->left > 0;
        p->stopped = !p->hook(p->user, text, n);
    }
done:
    af_records_close(r);
    return st;
}

af_status af_data_records(const char *path, const char *config, const char *split, int64_t limit,
                          af_data_line_hook *hook, void *user, af_error *err)
{
    AF_NEED(err, path, hook);
    if (limit < 0)
        return af_fail(err, AF_EUSAGE, "at most %" PRId64 " records are not possible", limit);
    af_error unread;
    char **files = NULL;
    int n = 0, held_out = 0;
    printing p = {limit > 0 ? limit : -1, hook, user, false};
    const af_data_source s = {.path = path, .name = config, .split = split};
    err = af_error_or(err, &unread);
    af_status st = af_data_source_files(&s, "", &files, &n, &held_out, err);
    for (int i = 0; i < n && st == AF_OK && p.left != 0 && !p.stopped; i++)
        st = print_file(&p, files[i], err);
    af_names_free(files, n);
    return st;
}
