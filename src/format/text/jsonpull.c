/* jsonpull.c - see jsonpull.h. The tree is built with the same pull calls that callers use. */
#include "format/text/jsonpull.h"

#include "format/text/unicode.h"

#include <math.h>

#define EACH_BYTE UINT64_C(0x0101010101010101)

static bool bad(af_json_pull *j, const char *why)
{
    if (!j->bad)
        j->why = why;
    j->bad = true;
    return false;
}

void af_json_pull_init(af_json_pull *j, const char *text, uint64_t len)
{
    *j = (af_json_pull){.at = text, .end = text + len, .start = text};
}

void af_json_pull_clear(af_json_pull *j) { af_buf_clear(&j->scratch); }

af_status af_json_pull_check(const af_json_pull *j, const char *what, af_error *err)
{
    if (!j->bad)
        return AF_OK;
    return af_fail(err, AF_EFORMAT, "%s: %s at byte %" PRIu64 " of %" PRIu64, what, j->why,
                   (uint64_t)(j->at - j->start), (uint64_t)(j->end - j->start));
}

static inline bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Indented files are half blanks: up to eight spaces are skipped together. */
static inline const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && blank(*at)) {
        uint64_t w = 0;
        at++;
        if (end - at >= 8)
            memcpy(&w, at, 8);
        w ^= EACH_BYTE * ' ';
        at += w ? __builtin_ctzll(w) / 8 : 8;
    }
    return at;
}

/* The first byte that ends a stretch of plain string text: '"', a backslash or a control
 * character. The lowest bit of `hit` is exact: borrows only run upwards. */
static inline const char *skip_plain(const char *at, const char *end)
{
    for (uint64_t w; end - at >= 8; at += 8) {
        memcpy(&w, at, 8);
        const uint64_t q = w ^ EACH_BYTE * '"', b = w ^ EACH_BYTE * '\\';
        const uint64_t hit =
            (((q - EACH_BYTE) & ~q) | ((b - EACH_BYTE) & ~b) | ((w - EACH_BYTE * 0x20) & ~w)) &
            EACH_BYTE * 0x80;
        if (hit)
            return at + __builtin_ctzll(hit) / 8;
    }
    while (at < end && *at != '"' && *at != '\\' && (uint8_t)*at >= 0x20)
        at++;
    return at;
}

static inline char peek(af_json_pull *j)
{
    j->at = skip_blanks(j->at, j->end);
    return j->at < j->end && !j->bad ? *j->at : 0;
}

char af_json_pull_peek(af_json_pull *j) { return peek(j); }

static bool take(af_json_pull *j, char c, const char *why)
{
    if (peek(j) != c)
        return bad(j, why);
    j->at++;
    return true;
}

bool af_json_pull_open(af_json_pull *j, char bracket)
{
    return take(j, bracket, bracket == '{' ? "expected '{'" : "expected '['");
}

bool af_json_pull_colon(af_json_pull *j) { return take(j, ':', "expected ':'"); }

bool af_json_pull_more(af_json_pull *j, char closing, bool *first)
{
    const char c = peek(j);
    if (j->bad)
        return false;
    if (c == closing) {
        j->at++;
        return false;
    }
    if (*first) {
        *first = false;
        return c != 0 || bad(j, "unexpected end of text");
    }
    if (c != ',')
        return bad(j, "expected ',' or the closing bracket");
    j->at++;
    if (af_json_pull_peek(j) == closing)
        return bad(j, "trailing comma");
    return true;
}

static bool hex4(af_json_pull *j, uint32_t *out)
{
    uint32_t v = 0;
    if (j->end - j->at < 4)
        return bad(j, "truncated \\u escape");
    for (int i = 0; i < 4; i++) {
        const char c = *j->at++;
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0)
            return bad(j, "invalid \\u escape");
        v = v << 4 | (uint32_t)d;
    }
    *out = v;
    return true;
}

static bool unicode_escape(af_json_pull *j)
{
    uint32_t hi, lo;
    if (!hex4(j, &hi))
        return false;
    if (hi >= 0xdc00 && hi <= 0xdfff)
        return bad(j, "unpaired low surrogate");
    if (hi >= 0xd800 && hi <= 0xdbff) {
        if (j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u')
            return bad(j, "unpaired high surrogate");
        j->at += 2;
        if (!hex4(j, &lo))
            return false;
        if (lo < 0xdc00 || lo > 0xdfff)
            return bad(j, "unpaired high surrogate");
        hi = 0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00);
    }
    af_buf_utf8(&j->scratch, hi);
    return true;
}

static bool escape(af_json_pull *j)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (j->at >= j->end)
        return bad(j, "truncated escape");
    const char c = *j->at++;
    if (c == 'u')
        return unicode_escape(j);
    const char *at = c ? strchr(from, c) : NULL;
    if (!at)
        return bad(j, "unknown escape");
    af_buf_char(&j->scratch, to[at - from]);
    return true;
}

bool af_json_pull_string(af_json_pull *j, const char **s, uint64_t *n)
{
    if (!take(j, '"', "expected a string"))
        return false;
    const char *from = j->at;
    j->at = skip_plain(j->at, j->end);
    if (j->at < j->end && *j->at == '"') { /* the common case: nothing to unescape */
        *s = from;
        *n = (uint64_t)(j->at++ - from);
        return true;
    }
    j->scratch.len = 0;
    af_buf_add(&j->scratch, from, (uint64_t)(j->at - from));
    while (j->at < j->end && *j->at != '"') {
        if ((uint8_t)*j->at < 0x20)
            return bad(j, "control character in a string");
        if (*j->at == '\\') {
            j->at++;
            if (!escape(j))
                return false;
            continue;
        }
        from = j->at;
        j->at = skip_plain(j->at, j->end);
        af_buf_add(&j->scratch, from, (uint64_t)(j->at - from));
    }
    if (j->at >= j->end)
        return bad(j, "unterminated string");
    j->at++;
    if (j->scratch.bad)
        return bad(j, "out of memory for a string");
    *s = j->scratch.data ? j->scratch.data : "";
    *n = j->scratch.len;
    return true;
}

/* Digits by hand for short integers, strtod (bounded copy) for the rest. */
bool af_json_pull_number(af_json_pull *j, double *x)
{
    char copy[64];
    size_t n = 0;
    af_json_pull_peek(j);
    const char *at = j->at;
    int64_t whole = 0;
    while (at < j->end && *at >= '0' && *at <= '9' && at - j->at < 15)
        whole = whole * 10 + (*at++ - '0');
    const bool plain = at < j->end && at > j->at && (*at == ',' || *at == '}' || *at == ']');
    if (plain && !(at - j->at > 1 && *j->at == '0')) {
        *x = (double)whole;
        j->at = at;
        return true;
    }
    at = j->at;
    while (at < j->end && n < sizeof copy - 1 && *at && strchr("+-.eE0123456789", *at))
        copy[n++] = *at++;
    copy[n] = 0;
    char *end = copy;
    const char *digits = copy[0] == '-' ? copy + 1 : copy;
    if (digits[0] < '0' || digits[0] > '9' ||
        (digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9'))
        return bad(j, "invalid value");
    *x = strtod(copy, &end);
    if (n == sizeof copy - 1 || end == copy || *end || !isfinite(*x))
        return bad(j, "invalid number");
    j->at = at;
    return true;
}

static bool skip_string(af_json_pull *j)
{
    const char *at = j->at + 1;
    while ((at = skip_plain(at, j->end)) < j->end && *at != '"')
        at += *at == '\\' && j->end - at > 1 ? 2 : 1;
    j->at = at;
    return at < j->end || bad(j, "unterminated string");
}

/* Skips one value without building it: strings are honoured, brackets are counted. *items: those
 * of the value itself. */
static bool skip(af_json_pull *j, uint64_t *items)
{
    int depth = 0;
    *items = 1;
    do {
        const char c = peek(j);
        if (c == 0)
            return bad(j, "unexpected end of text");
        if (c == '"') {
            if (!skip_string(j))
                return false;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == ',' && depth == 1) {
            (*items)++;
        }
        j->at++;
    } while (depth > 0);
    return true;
}

static bool word(af_json_pull *j, const char *w)
{
    const size_t n = strlen(w);
    if ((size_t)(j->end - j->at) < n || memcmp(j->at, w, n) != 0)
        return bad(j, "invalid value");
    j->at += n;
    return true;
}

static bool on_list(const char *const *list, const char *key)
{
    for (; list && *list; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

typedef struct json_builder {
    af_json_pull j;
    af_arena *arena;
    const af_json_raw *raw;
} json_builder;

static bool build(json_builder *b, af_json_value *v, int depth);

static char *keep(json_builder *b, const char *s, uint64_t n)
{
    char *copy = af_arena_take(b->arena, n + 1);
    if (copy)
        memcpy(copy, s, n);
    else
        bad(&b->j, "out of memory for a string");
    return copy;
}

static bool keep_raw(json_builder *b, const af_json_value *object, af_json_value *item)
{
    *item = (af_json_value){.type = AF_JSON_RAW,
                            .key = item->key,
                            .key_len = item->key_len,
                            .text = b->j.at,
                            .len = (uint64_t)(b->j.end - b->j.at)};
    const uint64_t read = b->raw->read ? b->raw->read(b->raw->ctx, object, item) : 0;
    b->j.at += read;
    if (!read && !skip(&b->j, &item->items))
        return false;
    item->len = (uint64_t)(b->j.at - item->text);
    return true;
}

static bool build_member(json_builder *b, const af_json_value *object, af_json_value *item,
                         int depth)
{
    const char *s;
    if (!af_json_pull_string(&b->j, &s, &item->key_len) ||
        !(item->key = keep(b, s, item->key_len)) || !af_json_pull_colon(&b->j))
        return false;
    const char c = peek(&b->j);
    if ((c == '{' || c == '[') && b->raw && on_list(b->raw->keys, item->key))
        return keep_raw(b, object, item);
    return build(b, item, depth);
}

static bool build_items(json_builder *b, af_json_value *v, int depth)
{
    const bool object = v->type == AF_JSON_OBJECT;
    af_json_value **tail = &v->item;
    bool first = true;
    b->j.at++;
    while (af_json_pull_more(&b->j, object ? '}' : ']', &first)) {
        af_json_value *item = af_arena_take(b->arena, sizeof *item);
        if (!item)
            return bad(&b->j, "out of memory for a value");
        if (!(object ? build_member(b, v, item, depth + 1) : build(b, item, depth + 1)))
            return false;
        *tail = item;
        tail = &item->next;
        v->len++;
    }
    return !b->j.bad;
}

static bool build(json_builder *b, af_json_value *v, int depth)
{
    const char *s;
    if (depth > AF_JSON_DEPTH_MAX)
        return bad(&b->j, "values nested deeper than 64");
    switch (af_json_pull_peek(&b->j)) {
    case '{':
        v->type = AF_JSON_OBJECT;
        return build_items(b, v, depth);
    case '[':
        v->type = AF_JSON_ARRAY;
        return build_items(b, v, depth);
    case '"':
        v->type = AF_JSON_STRING;
        return af_json_pull_string(&b->j, &s, &v->len) && (v->text = keep(b, s, v->len));
    case 't':
        v->type = AF_JSON_BOOL;
        v->flag = true;
        return word(&b->j, "true");
    case 'f':
        v->type = AF_JSON_BOOL;
        return word(&b->j, "false");
    case 'n':
        v->type = AF_JSON_NULL;
        return word(&b->j, "null");
    case 'N': /* what Python writes and JSON lacks; nothing that is read from here has them */
        return word(&b->j, "NaN");
    case 'I':
        return word(&b->j, "Infinity");
    default:
        if (b->j.end - b->j.at > 1 && b->j.at[0] == '-' && b->j.at[1] == 'I')
            return word(&b->j, "-Infinity");
        v->type = AF_JSON_NUMBER;
        return af_json_pull_number(&b->j, &v->number);
    }
}

af_status af_json_tree_parse(af_json_value *out, af_arena *arena, const char *json, uint64_t len,
                             const af_json_raw *raw, af_error *err)
{
    json_builder b = {.arena = arena, .raw = raw};
    const uint64_t good = af_utf8_valid(json, len);
    if (good != len)
        return af_fail(err, AF_EFORMAT, "JSON text is not UTF-8 at byte %" PRIu64, good);
    af_json_pull_init(&b.j, json, len);
    *out = (af_json_value){0};
    if (build(&b, out, 0) && af_json_pull_peek(&b.j) != 0)
        bad(&b.j, "text after the value");
    const af_status st = af_json_pull_check(&b.j, "JSON", err);
    af_json_pull_clear(&b.j);
    return st;
}

const af_json_value *af_json_get(const af_json_value *object, const char *key)
{
    static const af_json_value none;
    const af_json_value *found = &none;
    const size_t n = strlen(key);
    if (object->type != AF_JSON_OBJECT)
        return found;
    for (const af_json_value *v = object->item; v; v = v->next)
        if (v->key_len == n && memcmp(v->key, key, n) == 0)
            found = v;
    return found;
}

bool af_json_bool(const af_json_value *object, const char *key, bool absent)
{
    const af_json_value *v = af_json_get(object, key);
    return v->type == AF_JSON_BOOL ? v->flag : absent;
}

bool af_json_is(const af_json_value *v, const char *string)
{
    return v->type == AF_JSON_STRING && strlen(string) == v->len &&
           memcmp(v->text, string, v->len) == 0;
}
