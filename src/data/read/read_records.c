/* read_records.c - opening a dataset file, the checks every kind needs, and plain text. */
#include "data/read/read_records.h"

#include "afinar/data.h"
#include "base/word.h"
#include "format/text/unicode.h"

#include <stdarg.h>
#include <strings.h>

static const struct {
    const char *ending, *name;
    af_records_kind kind;
} kinds[] = {
    {".jsonl", "jsonl", AF_RECORDS_JSONL},
    {".ndjson", "ndjson", AF_RECORDS_JSONL},
    {".json", "json", AF_RECORDS_JSON},
    {".csv", "csv", AF_RECORDS_CSV},
    {".tsv", "tsv", AF_RECORDS_TSV},
    {".txt", "text", AF_RECORDS_TEXT},
    {".text", "txt", AF_RECORDS_TEXT},
    {".md", "md", AF_RECORDS_TEXT},
    {".parquet", "parquet", AF_RECORDS_PARQUET},
    {".arrow", "arrow", AF_RECORDS_ARROW},
    {".feather", "feather", AF_RECORDS_ARROW},
    {".arrows", "arrows", AF_RECORDS_ARROW},
    {".ipc", "ipc", AF_RECORDS_ARROW},
};

static const char *ending_of(const char *path, const char *const *list)
{
    const uint64_t n = strlen(path);
    while (*list && !af_ends_with_any_case(path, n, *list))
        list++;
    return *list;
}

/* The length of the name without the ending of a compressed file. */
static uint64_t unpacked_length(const char *path)
{
    const char *packed = ending_of(path, (const char *[]){".gz", ".zst", ".zstd", NULL});
    return strlen(path) - (packed ? strlen(packed) : 0);
}

/* The ending of a compressed file or an archive that is not read; NULL: it has none. */
static const char *foreign_ending(const char *path)
{
    return ending_of(path, (const char *[]){".bz2", ".xz", ".lzma", ".lz4", ".br", ".zip", ".tar",
                                            ".tgz", ".7z", ".rar", NULL});
}

static bool is_columns(af_records_kind k)
{
    return k == AF_RECORDS_PARQUET || k == AF_RECORDS_ARROW;
}

/* Other tools write json for both. */
static bool is_json(af_records_kind k) { return k == AF_RECORDS_JSON || k == AF_RECORDS_JSONL; }

af_status af_records_kind_of(af_records_kind *out, const char *path, const char *ds_type,
                             af_error *err)
{
    const uint64_t n = unpacked_length(path);
    bool declared = false;
    af_records_kind wish = AF_RECORDS_JSON;
    for (size_t i = 0; ds_type && i < AF_LEN(kinds); i++)
        if (strcasecmp(ds_type, kinds[i].name) == 0) {
            wish = kinds[i].kind;
            declared = true;
        }
    if (ds_type && !declared)
        return af_fail(
            err, AF_EUSAGE,
            "%s: 'ds_type: %.40s' is not one of jsonl, json, csv, tsv, text, parquet, arrow", path,
            ds_type);
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        if (!af_ends_with_any_case(path, n, kinds[i].ending))
            continue;
        *out = kinds[i].kind;
        if (is_columns(*out) && n != strlen(path))
            return af_fail(err, AF_EUNSUPPORTED, "%s: a packed %s file is not read: unpack it",
                           path, kinds[i].name);
        if (declared && wish != *out && !(is_json(wish) && is_json(*out)) &&
            !(wish == AF_RECORDS_CSV && *out == AF_RECORDS_TSV)) /* the name tells the separator */
            return af_fail(err, AF_EUSAGE, "%s: 'ds_type: %s' and the name's %s contradict", path,
                           ds_type, kinds[i].ending);
        return AF_OK;
    }
    const char *foreign = foreign_ending(path);
    if (foreign || af_ends_with_any_case(path, n, ".tar"))
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: %s files are not read (.gz and .zst are): unpack it", path,
                       foreign ? foreign : ".tar");
    if (declared) {
        *out = wish;
        return AF_OK;
    }
    return af_fail(err, AF_EUSAGE,
                   "%s: the file type is not clear from the name (.jsonl, .json, .csv, .tsv, .txt, "
                   "each may end in .gz or .zst; .parquet, .arrow); set ds_type",
                   path);
}

af_status af_records_fail(const af_records *r, int64_t line, af_error *err, const char *fmt, ...)
{
    char why[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return af_fail(err, AF_EFORMAT, "%s:%" PRId64 ": %s", r->name, line, why);
}

af_status af_records_too_long(const af_records *r, int64_t line, af_error *err)
{
    return af_records_fail(r, line, err, "a record of more than %d MiB",
                           (int)(AF_RECORD_MAX >> 20));
}

af_status af_records_fill(af_records *r, af_error *err)
{
    if (r->p < r->end || r->eof)
        return AF_OK;
    uint64_t n;
    const af_status st = af_bytes_next(r->in, &r->p, &n, err);
    if (st != AF_OK)
        return st;
    r->end = r->p + n;
    r->eof = n == 0;
    return AF_OK;
}

af_status af_records_check_utf8(const af_records *r, const char *s, uint64_t n, int64_t line,
                                af_error *err)
{
    const uint64_t good = af_utf8_valid(s, n);
    if (good == n)
        return AF_OK;
    for (uint64_t i = 0; i < good; i++)
        line += s[i] == '\n';
    return af_records_fail(r, line, err, "invalid UTF-8 (byte 0x%02X); convert the file to UTF-8",
                           (unsigned)(uint8_t)s[good]);
}

/* A byte order mark is skipped; UTF-16 is named. */
static af_status look_at_start(af_records *r, af_error *err)
{
    const af_status st = af_records_fill(r, err);
    if (st != AF_OK)
        return st;
    const uint64_t n = (uint64_t)(r->end - r->p);
    if (n >= 3 && memcmp(r->p, "\xef\xbb\xbf", 3) == 0)
        r->p += 3;
    else if (n >= 2 && (memcmp(r->p, "\xff\xfe", 2) == 0 || memcmp(r->p, "\xfe\xff", 2) == 0 ||
                        (r->p[0] == 0) != (r->p[1] == 0)))
        return af_records_fail(r, 1, err, "looks like UTF-16; convert the file to UTF-8");
    else if (n >= 4 && memcmp(r->p, "PAR1", 4) == 0)
        return af_records_fail(r, 1, err,
                               "a parquet file; let its name end in .parquet, or set 'ds_type: "
                               "parquet'");
    return AF_OK;
}

/* Files called .jsonl are now and then one array of objects; other loaders read those, too. */
static bool begins_array(const af_records *r)
{
    const uint8_t *p = r->p;
    int seen = 0;
    for (; p < r->end && (*p == '[' || strchr(" \t\r\n", *p)); p++)
        seen += *p == '[';
    return seen == 1 && p < r->end && *p == '{';
}

static af_columns_format format_of(af_records_kind kind)
{
    return kind == AF_RECORDS_PARQUET ? AF_COLUMNS_PARQUET : AF_COLUMNS_ARROW;
}

static af_status finish_open(af_records **out, af_records *r, af_records_kind kind,
                             const char *name, af_error *err)
{
    af_status st = AF_OK;
    r->kind = kind;
    r->line = 1;
    r->name = af_strdup(name);
    if (!r->name) {
        st = af_fail_nomem(err, name, sizeof *r);
        goto done;
    }
    if (!r->table)
        AF_TRY(look_at_start(r, err));
    if (kind == AF_RECORDS_JSONL && begins_array(r))
        r->kind = AF_RECORDS_JSON;
    *out = r;
    r = NULL;
done:
    af_records_close(r);
    return st;
}

af_status af_records_open(af_records **out, const char *path, af_records_kind kind, af_error *err)
{
    af_records *r = af_calloc(1, sizeof *r);
    if (!r)
        return af_fail_nomem(err, path, sizeof *r);
    const af_status st = is_columns(kind) ? af_columns_open(&r->table, path, format_of(kind), err)
                                          : af_bytes_open(&r->in, path, err);
    if (st != AF_OK) {
        free(r);
        return st;
    }
    return finish_open(out, r, kind, path, err);
}

af_status af_records_of(af_records **out, const char *name, const void *data, uint64_t size,
                        af_records_kind kind, af_error *err)
{
    af_records *r = af_calloc(1, sizeof *r);
    if (!r)
        return af_fail_nomem(err, name, sizeof *r);
    const af_status st = is_columns(kind)
                             ? af_columns_of(&r->table, name, data, size, format_of(kind), err)
                             : af_bytes_of(&r->in, name, data, size, err);
    if (st != AF_OK) {
        free(r);
        return st;
    }
    return finish_open(out, r, kind, name, err);
}

void af_records_close(af_records *r)
{
    if (!r)
        return;
    af_bytes_close(r->in);
    af_columns_close(r->table);
    af_buf_clear(&r->buf);
    af_buf_clear(&r->text);
    af_buf_clear(&r->lost);
    json_decref(r->columns);
    free(r->name);
    free(r);
}

/* Where a block of text may end: after its last newline, else its last blank, else a character. */
static uint64_t cut_point(const af_buf *b)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t i = b->len; i > b->len / 2; i--)
            if (b->data[i - 1] == (pass ? ' ' : '\n'))
                return i;
    uint64_t i = b->len;
    while (i > 1 && af_utf8_is_tail(b->data[i]))
        i--;
    return i;
}

AF_CHECKED static af_status text_next(af_records *r, af_record *out, af_error *err)
{
    af_status st = AF_OK;
    const int64_t line = r->line;
    while (r->buf.len <= AF_TEXT_BLOCK) {
        AF_TRY(af_records_fill(r, err));
        if (r->eof)
            break;
        af_buf_add(&r->buf, r->p, (uint64_t)(r->end - r->p));
        r->p = r->end;
    }
    if (r->buf.bad)
        return af_fail_nomem(err, r->name, r->buf.len);
    if (r->buf.len == 0)
        return AF_OK;
    const bool last = r->eof;
    const uint64_t n = last ? r->buf.len : cut_point(&r->buf);
    AF_TRY(af_records_check_utf8(r, r->buf.data, n, line, err));
    for (uint64_t i = 0; i < n; i++)
        r->line += r->buf.data[i] == '\n';
    json_t *text = json_stringn_nocheck(r->buf.data, n);
    out->json = json_pack("{s:o}", "text", text);
    if (!out->json)
        return af_fail_nomem(err, r->name, n);
    memmove(r->buf.data, r->buf.data + n, r->buf.len - n);
    r->buf.len -= n;
    out->line = line;
    out->last = last;
done:
    return st;
}

af_status af_records_next(af_records *r, af_record *out, af_error *err)
{
    af_status st = AF_OK;
    *out = (af_record){0};
    switch (r->kind) {
    case AF_RECORDS_JSONL:
        st = af_json_line_next(r, out, err);
        break;
    case AF_RECORDS_JSON:
        st = af_json_value_next(r, out, err);
        break;
    case AF_RECORDS_CSV:
    case AF_RECORDS_TSV:
        st = af_csv_next(r, out, err);
        break;
    case AF_RECORDS_TEXT:
        st = text_next(r, out, err);
        break;
    case AF_RECORDS_PARQUET:
    case AF_RECORDS_ARROW:
        st = af_table_next(r, out, err);
        break;
    }
    if (st == AF_OK && out->json) {
        out->number = ++r->number;
        out->lost = r->lost.data;
        out->lost_len = r->lost.len;
        out->bytes = AF_MAX(out->bytes, r->buf.len);
    }
    return st;
}
