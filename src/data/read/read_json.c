/* read_json.c - json and jsonl files, value by value.
 *
 * A value's extent is found by counting brackets outside strings; its inside is jansson's to judge.
 * So only one record is ever in memory. */
#include "data/read/read_records.h"
#include "format/text/json_text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>

static bool blank(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static const char *json_type_name(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "a number",
                                        "a number",  "true",     "false",    "null"};
    return names[json_typeof(v)];
}

static bool in_number(char c) { return c == '-' || c == '+' || c == '.' || isalnum((uint8_t)c); }

/* A number that jansson cannot represent: NaN, Infinity, 2^64, 1e999. */
static bool unreadable(const char *s, uint64_t n)
{
    char *end;
    char text[400];
    if (n >= sizeof text)
        return false;
    memcpy(text, s, n);
    text[n] = 0;
    const char *name = text + (*text == '-');
    if (strcmp(name, "NaN") == 0 || strcmp(name, "Infinity") == 0)
        return true;
    if (strspn(name, "0123456789.eE+-") != strlen(name))
        return false;
    errno = 0;
    if (strpbrk(name, ".eE"))
        return isinf(strtod(text, &end)) && !*end;
    (void)strtoll(text, &end, 10);
    return errno == ERANGE && !*end;
}

/* The end of the string that begins at b->data[i]: its second quote. */
static uint64_t string_end(const af_buf *b, uint64_t i)
{
    for (i++; i < b->len && b->data[i] != '"'; i++)
        i += b->data[i] == '\\';
    return AF_MIN(i, b->len);
}

/* Replaces such numbers by 0, so that the rest can be read as other loaders read it. Fields of the
 * record itself (ids, scores) are none that anything is learned from. Those that have one deeper
 * inside are noted: a template could show it. True when there was one. */
static bool drop_unreadable(af_buf *b, af_buf *fields)
{
    int64_t depth = 0;
    uint64_t name = 0, name_len = 0, noted = 0; /* the field that is read, where it begins */
    bool any = false;
    for (uint64_t i = 0; i < b->len; i++) {
        const char c = b->data[i];
        if (c == '"') {
            const uint64_t end = string_end(b, i);
            if (depth == 1) {
                name = i + 1;
                name_len = end - name;
            }
            i = end;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (depth >= 1 && in_number(c)) {
            uint64_t n = 1;
            while (i + n < b->len && in_number(b->data[i + n]))
                n++;
            if (unreadable(b->data + i, n)) {
                memset(b->data + i, ' ', n);
                b->data[i] = '0';
                any = true;
                if (depth > 1 && noted != name) {
                    af_buf_add(fields, b->data + name, name_len);
                    af_buf_char(fields, '\0');
                    noted = name;
                }
            }
            i += n - 1;
        }
    }
    return any;
}

af_status af_records_parse(af_records *r, json_t **out, int64_t line, af_error *err)
{
    json_error_t why;
    af_status st = af_records_check_utf8(r, r->buf.data, r->buf.len, line, err);
    if (st != AF_OK)
        return st;
    if (r->keep_text)
        af_record_compact(&r->text, r->buf.data, r->buf.len);
    json_t *v = af_json_load(r->buf.data, r->buf.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    r->lost.len = 0;
    if (!v && drop_unreadable(&r->buf, &r->lost))
        v = af_json_load(r->buf.data, r->buf.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    if (json_is_object(v)) {
        *out = v;
        return r->lost.bad ? af_fail_nomem(err, r->name, r->buf.len) : AF_OK;
    }
    if (v) {
        st = af_records_fail(r, line, err, "expected a JSON object, got %s", json_type_name(v));
        json_decref(v);
        return st;
    }
    switch (json_error_code(&why)) {
    case json_error_premature_end_of_input:
        return af_records_fail(r, line, err, "unexpected end of %s inside a record%s",
                               r->eof ? "file" : "line", r->eof ? " (file cut short?)" : "");
    case json_error_out_of_memory:
        return af_fail_nomem(err, r->name, r->buf.len);
    case json_error_stack_overflow:
        return af_records_fail(r, line, err, "the JSON is nested too deeply");
    default:
        break;
    }
    const char *escape = strstr(why.text, "Unicode '\\u");
    if (escape)
        return af_records_fail(r, line, err, "%.6s is not a character (lone surrogate)",
                               escape + 9);
    return af_records_fail(r, line, err, "JSON syntax error near column %d: %s", why.column,
                           why.text);
}

/* Appends the rest of the line to r->buf, its newline consumed. */
static af_status read_line(af_records *r, bool *any, af_error *err)
{
    r->buf.len = 0;
    *any = false;
    for (;;) {
        const af_status st = af_records_fill(r, err);
        if (st != AF_OK || r->eof)
            return st;
        *any = true;
        const uint64_t n = (uint64_t)(r->end - r->p);
        const uint8_t *stop = memchr(r->p, '\n', n);
        const uint64_t take = stop ? (uint64_t)(stop - r->p) : n;
        if (r->buf.len + take > AF_RECORD_MAX)
            return af_records_too_long(r, r->line, err);
        af_buf_add(&r->buf, r->p, take);
        if (r->buf.bad)
            return af_fail_nomem(err, r->name, r->buf.len);
        r->p += take + (stop ? 1 : 0);
        if (stop)
            return AF_OK;
    }
}

/* True when nothing but blanks is left of the file; only then a bad line is the file's cut end. */
static af_status peek_end(af_records *r, af_error *err)
{
    while (!r->eof) {
        const af_status st = af_records_fill(r, err);
        if (st != AF_OK)
            return st;
        if (r->eof || !blank(*r->p))
            return AF_OK;
        r->line += *r->p == '\n';
        r->p++;
    }
    return AF_OK;
}

af_status af_json_line_next(af_records *r, af_record *out, af_error *err)
{
    for (;;) {
        bool any;
        af_status st = read_line(r, &any, err);
        if (st != AF_OK || !any)
            return st;
        const int64_t line = r->line++;
        uint64_t n = r->buf.len, i = 0;
        while (i < n && blank(r->buf.data[i]))
            i++;
        if (i == n)
            continue;
        st = peek_end(r, err);
        if (st != AF_OK)
            return st;
        out->line = line;
        return af_records_parse(r, &out->json, line, err);
    }
}

static af_status skip_blanks(af_records *r, int *c, af_error *err)
{
    for (;;) {
        const af_status st = af_records_fill(r, err);
        if (st != AF_OK)
            return st;
        *c = r->eof ? -1 : *r->p;
        if (r->eof || !blank(*c))
            return AF_OK;
        r->line += *c == '\n';
        r->p++;
    }
}

/* One value from its first byte to its last into r->buf. */
static af_status scan_value(af_records *r, int64_t line, af_error *err)
{
    int64_t depth = 0;
    bool in_string = false, escaped = false, scalar = false;
    r->buf.len = 0;
    for (bool open = true; open;) {
        const af_status st = af_records_fill(r, err);
        if (st != AF_OK)
            return st;
        if (r->eof)
            return scalar && !in_string ? AF_OK
                                        : af_records_fail(r, r->line, err,
                                                          "unexpected end of file inside a record "
                                                          "(file cut short?)");
        const uint8_t c = *r->p;
        if (in_string) {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            open = in_string || depth > 0;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && depth > 0) {
            open = --depth > 0;
        } else if (depth == 0) {
            scalar = true;
            if (blank(c) || c == ',' || c == ']' || c == '}')
                return AF_OK;
        }
        if (r->buf.len >= AF_RECORD_MAX)
            return af_records_too_long(r, line, err);
        af_buf_char(&r->buf, (char)c);
        r->line += c == '\n';
        r->p++;
    }
    return r->buf.bad ? af_fail_nomem(err, r->name, r->buf.len) : AF_OK;
}

/* Between two elements: ',' or the closing ']'. */
static af_status array_step(af_records *r, int *c, af_error *err)
{
    af_status st = skip_blanks(r, c, err);
    if (st != AF_OK)
        return st;
    if (*c == ']') {
        r->p++;
        st = skip_blanks(r, c, err);
        if (st == AF_OK && *c >= 0)
            return af_records_fail(r, r->line, err, "JSON syntax error: text after the array");
        r->state = AF_RECORDS_DONE;
        return st;
    }
    if (*c >= 0 && r->number > 0) {
        if (*c != ',')
            return af_records_fail(r, r->line, err,
                                   "JSON syntax error: a comma is missing between two records");
        r->p++;
        st = skip_blanks(r, c, err);
    }
    if (st == AF_OK && *c < 0)
        return af_records_fail(r, r->line, err,
                               "unexpected end of file inside the array (file cut short?)");
    return st;
}

af_status af_json_value_next(af_records *r, af_record *out, af_error *err)
{
    int c = -1;
    af_status st = AF_OK;
    if (r->state == AF_RECORDS_DONE)
        return AF_OK;
    if (r->state == AF_RECORDS_START) {
        AF_TRY(skip_blanks(r, &c, err));
        r->state = c == '[' ? AF_RECORDS_ARRAY : AF_RECORDS_ROW;
        if (c == '[')
            r->p++;
    }
    AF_TRY(r->state == AF_RECORDS_ARRAY ? array_step(r, &c, err) : skip_blanks(r, &c, err));
    if (c < 0 || r->state == AF_RECORDS_DONE)
        return AF_OK;
    out->line = r->line;
    AF_TRY(scan_value(r, out->line, err));
    if (r->buf.len == 0)
        return af_records_fail(r, r->line, err, "JSON syntax error: '%c' where a record begins", c);
    AF_TRY(af_records_parse(r, &out->json, out->line, err));
done:
    return st;
}
