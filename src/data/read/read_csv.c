/* read_csv.c - RFC 4180: a header, cells in quotes with doubled quotes and newlines inside them,
 * blanks kept. Rows end with LF or CRLF. */
#include "data/read/read_records.h"

typedef struct row {
    json_t *cells;
    int64_t line;   /* where the row begins */
    uint64_t bytes; /* of all cells */
    bool quoted;    /* the last cell was */
} row;

static af_status peek(af_records *r, int *c, af_error *err)
{
    const af_status st = af_records_fill(r, err);
    *c = st == AF_OK && !r->eof ? *r->p : -1;
    return st;
}

static af_status add(af_records *r, row *w, int c, af_error *err)
{
    if (++w->bytes > AF_RECORD_MAX)
        return af_records_too_long(r, w->line, err);
    af_buf_char(&r->buf, (char)c);
    return AF_OK;
}

/* From after the opening quote up to and including the closing one. */
static af_status quoted_cell(af_records *r, row *w, int64_t opened, af_error *err)
{
    int c;
    for (;;) {
        af_status st = peek(r, &c, err);
        if (st != AF_OK)
            return st;
        if (c < 0)
            return af_records_fail(r, opened, err, "quoted cell opened here is never closed");
        r->p++;
        if (c == '"') {
            st = peek(r, &c, err);
            if (st != AF_OK || c != '"')
                return st;
            r->p++;
        }
        r->line += c == '\n';
        st = add(r, w, c, err);
        if (st != AF_OK)
            return st;
    }
}

/* True when the row ends here; the end is consumed. */
static af_status row_end(af_records *r, bool *end, af_error *err)
{
    int c;
    af_status st = peek(r, &c, err);
    *end = c < 0 || c == '\n';
    if (st != AF_OK || c < 0)
        return st;
    if (c == '\n') {
        r->p++;
        r->line++;
    }
    return AF_OK;
}

static af_status plain_cell(af_records *r, row *w, char comma, af_error *err)
{
    int c;
    for (;;) {
        af_status st = peek(r, &c, err);
        if (st != AF_OK || c < 0 || c == comma || c == '\n')
            return st;
        r->p++;
        if (c == '\r') { /* part of CRLF, or a character of its own */
            int next;
            st = peek(r, &next, err);
            if (st != AF_OK || next == '\n' || next < 0)
                return st;
        }
        st = add(r, w, c, err);
        if (st != AF_OK)
            return st;
    }
}

static af_status read_cell(af_records *r, row *w, char comma, af_error *err)
{
    af_status st = AF_OK;
    int c;
    const int64_t line = r->line;
    r->buf.len = 0;
    AF_TRY(peek(r, &c, err));
    w->quoted = c == '"';
    if (w->quoted) {
        r->p++;
        AF_TRY(quoted_cell(r, w, line, err));
        AF_TRY(peek(r, &c, err));
        if (c == '\r') {
            r->p++;
            AF_TRY(peek(r, &c, err));
        }
        if (c >= 0 && c != comma && c != '\n')
            return af_records_fail(r, line, err, "text after the closing quote of a cell");
    } else {
        AF_TRY(plain_cell(r, w, comma, err));
    }
    if (r->buf.bad)
        return af_fail_nomem(err, r->name, r->buf.len);
    const char *s = r->buf.len ? r->buf.data : "";
    AF_TRY(af_records_check_utf8(r, s, r->buf.len, line, err));
    if (json_array_append_new(w->cells, json_stringn_nocheck(s, r->buf.len)))
        return af_fail_nomem(err, r->name, r->buf.len);
done:
    return st;
}

/* The next row that is not blank; w->cells is NULL at the end of the file. */
static af_status read_row(af_records *r, row *w, af_error *err)
{
    const char comma = r->kind == AF_RECORDS_TSV ? '\t' : ',';
    af_status st = AF_OK;
    int c;
    for (;;) {
        AF_TRY(peek(r, &c, err));
        if (c < 0)
            return AF_OK;
        *w = (row){.cells = json_array(), .line = r->line};
        if (!w->cells)
            return af_fail_nomem(err, r->name, 0);
        for (bool end = false; !end;) {
            AF_TRY(read_cell(r, w, comma, err));
            AF_TRY(row_end(r, &end, err));
            if (!end)
                r->p++; /* the comma */
            if (json_array_size(w->cells) > AF_CSV_COLUMN_MAX) {
                st = af_records_fail(r, w->line, err, "more than %d cells", AF_CSV_COLUMN_MAX);
                goto done;
            }
        }
        if (json_array_size(w->cells) > 1 || w->quoted || w->bytes)
            return AF_OK;
        json_decref(w->cells);
        w->cells = NULL;
    }
done:
    json_decref(w->cells);
    w->cells = NULL;
    return st;
}

/* A carriage return that no newline follows. */
static bool has_lone_cr(const json_t *cell)
{
    const char *s = json_string_value(cell), *at = strchr(s, '\r');
    while (at && at[1] == '\n')
        at = strchr(at + 1, '\r');
    return at != NULL;
}

static af_status read_header(af_records *r, af_error *err)
{
    row w = {0};
    af_status st = read_row(r, &w, err);
    if (st != AF_OK || !w.cells)
        return st;
    for (size_t i = 0; i < json_array_size(w.cells); i++)
        if (has_lone_cr(json_array_get(w.cells, i))) {
            json_decref(w.cells);
            return af_records_fail(r, w.line, err,
                                   "the header has a carriage return without a newline: let rows "
                                   "end with LF or CRLF");
        }
    for (size_t i = 0; i < json_array_size(w.cells); i++)
        for (size_t k = 0; k < i; k++)
            if (json_equal(json_array_get(w.cells, i), json_array_get(w.cells, k))) {
                st = af_records_fail(r, w.line, err, "column \"%s\" is there twice",
                                     json_string_value(json_array_get(w.cells, i)));
                json_decref(w.cells);
                return st;
            }
    r->columns = w.cells;
    return AF_OK;
}

af_status af_csv_next(af_records *r, af_record *out, af_error *err)
{
    row w = {0};
    if (r->state == AF_RECORDS_START) {
        r->state = AF_RECORDS_ROW;
        const af_status st = read_header(r, err);
        if (st != AF_OK || !r->columns)
            return st;
    }
    af_status st = read_row(r, &w, err);
    if (st != AF_OK || !w.cells)
        return st;
    const size_t n = json_array_size(w.cells), want = json_array_size(r->columns);
    if (n != want) {
        st = af_records_fail(r, w.line, err, "%zu cell%s, the header has %zu", n, n == 1 ? "" : "s",
                             want);
        goto done;
    }
    json_t *o = json_object();
    for (size_t i = 0; o && i < n; i++)
        json_object_set_nocheck(o, json_string_value(json_array_get(r->columns, i)),
                                json_array_get(w.cells, i));
    if (!o)
        st = af_fail_nomem(err, r->name, 0);
    out->json = o;
    out->line = w.line;
    out->bytes = w.bytes;
done:
    json_decref(w.cells);
    return st;
}
