/* read_columns.c - records of column files, and records as the text they are. */
#include "data/read/read_records.h"
#include "format/text/json_text.h"

#include <ctype.h>

/* The next row as text in r->buf; false at the end. */
static af_status row_text(af_records *r, bool *got, af_error *err)
{
    r->buf.len = 0;
    r->buf.limit = AF_RECORD_MAX;
    return af_columns_next(r->table, &r->buf, got, err);
}

/* The same way as a line of a .jsonl file: what is learned from a table is what would be learned
 * from its records in such a file. */
af_status af_table_next(af_records *r, af_record *out, af_error *err)
{
    bool got = false;
    af_columns_unfold(r->table);
    const af_status st = row_text(r, &got, err);
    if (st != AF_OK || !got)
        return st;
    out->line = r->number + 1;
    return af_records_parse(r, &out->json, out->line, err);
}

/* NaN, Infinity and -Infinity, as Python writes them. */
static uint64_t not_finite(const char *s, uint64_t n)
{
    static const char *const names[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < AF_LEN(names); i++) {
        const size_t len = strlen(names[i]);
        if (n >= len && memcmp(s, names[i], len) == 0)
            return len;
    }
    return 0;
}

void af_record_compact(af_buf *out, const char *s, uint64_t n)
{
    bool in_string = false;
    out->len = 0;
    for (uint64_t i = 0; i < n;) {
        uint64_t run = 1;
        if (in_string) {
            if (s[i] == '\\' && i + 1 < n)
                run = 2;
            in_string = s[i] != '"';
        } else if (s[i] == '"') {
            in_string = true;
        } else if (isspace((unsigned char)s[i])) {
            i++;
            continue;
        } else if ((run = not_finite(s + i, n - i)) > 0) {
            af_buf_printf(out, "\"%.*s\"", (int)run, s + i);
            i += run;
            continue;
        } else {
            run = 1;
        }
        af_buf_add(out, s + i, run);
        i += run;
    }
}

/* A record of a kind that has no text of its own. */
static af_status dumped(af_records *r, const json_t *record, af_error *err)
{
    char *text = af_json_dump(record, JSON_COMPACT);
    r->text.len = 0;
    if (text)
        af_buf_str(&r->text, text);
    free(text);
    return text && !r->text.bad ? AF_OK : af_fail_nomem(err, r->name, r->text.len);
}

af_status af_records_next_text(af_records *r, const char **text, uint64_t *len, af_error *err)
{
    af_status st = AF_OK;
    af_record rec = {0};
    const bool json = r->kind == AF_RECORDS_JSON || r->kind == AF_RECORDS_JSONL;
    *text = NULL;
    if (r->table) {
        bool got = false;
        AF_TRY(row_text(r, &got, err));
        r->number += got;
        *text = got ? r->buf.data : NULL;
        *len = r->buf.len;
        return AF_OK;
    }
    r->keep_text = json;
    AF_TRY(af_records_next(r, &rec, err));
    if (!rec.json)
        return AF_OK;
    if (!json)
        AF_TRY(dumped(r, rec.json, err));
    if (r->text.bad)
        st = af_fail_nomem(err, r->name, r->text.len);
    *text = r->text.data;
    *len = r->text.len;
done:
    json_decref(rec.json);
    return st;
}

void af_records_project(af_records *r, af_columns_want *want, const void *user)
{
    if (r->table)
        af_columns_project(r->table, want, user);
}

int64_t af_records_count(const af_records *r) { return r->table ? af_columns_rows(r->table) : -1; }
