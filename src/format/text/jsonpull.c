/* jsonpull.c - see jsonpull.h. The tree is built with the same pull calls that callers use. */
#include "format/text/jsonpull.h"

#include "format/text/unicode.h"

#include <math.h>

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

char af_json_pull_peek(af_json_pull *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r'))
        j->at++;
    return j->at < j->end && !j->bad ? *j->at : 0;
}

static bool take(af_json_pull *j, char c, const char *why)
{
    if (af_json_pull_peek(j) != c)
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
    const char c = af_json_pull_peek(j);
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
    while (j->at < j->end && *j->at != '"' && *j->at != '\\' && (uint8_t)*j->at >= 0x20)
        j->at++;
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
        while (j->at < j->end && *j->at != '"' && *j->at != '\\' && (uint8_t)*j->at >= 0x20)
            j->at++;
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

/* Skips one value without building it: strings are honoured, brackets are counted. */
static bool skip(af_json_pull *j)
{
    int depth = 0;
    do {
        const char c = af_json_pull_peek(j);
        if (c == 0)
            return bad(j, "unexpected end of text");
        if (c == '"') {
            for (j->at++; j->at < j->end && *j->at != '"'; j->at++)
                if (*j->at == '\\')
                    j->at++;
            if (j->at >= j->end)
                return bad(j, "unterminated string");
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
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
    const char *const *raw;
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

static bool build_member(json_builder *b, af_json_value *item, int depth)
{
    const char *s;
    if (!af_json_pull_string(&b->j, &s, &item->key_len) ||
        !(item->key = keep(b, s, item->key_len)) || !af_json_pull_colon(&b->j))
        return false;
    const char c = af_json_pull_peek(&b->j);
    if ((c == '{' || c == '[') && on_list(b->raw, item->key)) {
        item->type = AF_JSON_RAW;
        item->text = b->j.at;
        if (!skip(&b->j))
            return false;
        item->len = (uint64_t)(b->j.at - item->text);
        return true;
    }
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
        if (!(object ? build_member(b, item, depth + 1) : build(b, item, depth + 1)))
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
    default:
        v->type = AF_JSON_NUMBER;
        return af_json_pull_number(&b->j, &v->number);
    }
}

af_status af_json_tree_parse(af_json_value *out, af_arena *arena, const char *json, uint64_t len,
                             const char *const *raw, af_error *err)
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
