/* tool_call.c - see tool_call.h. */
#define _GNU_SOURCE /* memmem */
#include "grammar/tool_call.h"
#include "base/buf.h"
#include "base/hash.h"
#include "format/text/json_text.h"

enum { CALL_BYTES_MAX = 4 << 20 }; /* held for one call; more is content */

static const char open_tag[] = "<tool_call>", close_tag[] = "</tool_call>";
static const char python_tag[] = "<|python_tag|>", calls_tag[] = "[TOOL_CALLS]";
static const char *const markers[] = {open_tag, python_tag, calls_tag};

struct af_tool_parser {
    af_tool_format format;
    const json_t *tools;
    uint64_t seed;
    af_tool_sink sink;
    af_buf text;     /* held back; begins at a marker or value when in_call */
    bool after_call; /* its closing tag may follow */
    bool in_call;    /* after a marker (marker_len > 0) or in a bare object at the beginning */
    bool started;    /* some text that is not white space was seen */
    uint64_t marker_len;
    int calls;
};

af_tool_format af_tool_format_of(const char *source)
{
    if (source && strstr(source, "[TOOL_CALLS]"))
        return AF_TOOL_MISTRAL;
    if (source && !strstr(source, "<tool_call>") &&
        (strstr(source, "<|python_tag|>") || strstr(source, "\"parameters\": ")))
        return AF_TOOL_LLAMA;
    return AF_TOOL_TAGS;
}

bool af_tool_marker(const char *token)
{
    for (size_t i = 0; token && i < AF_LEN(markers); i++)
        if (strcmp(token, markers[i]) == 0)
            return true;
    return token && strcmp(token, close_tag) == 0;
}

const char *af_tool_format_name(af_tool_format f)
{
    return f == AF_TOOL_LLAMA ? "llama" : f == AF_TOOL_MISTRAL ? "mistral" : "tags";
}

af_status af_tool_parser_new(af_tool_parser **out, af_tool_format f, const json_t *tools,
                             uint64_t seed, const af_tool_sink *sink, af_error *err)
{
    af_tool_parser *p = af_calloc(1, sizeof *p);
    if (!p)
        return af_fail_nomem(err, "tool calls", sizeof *p);
    *p = (af_tool_parser){.format = f, .tools = tools, .seed = seed, .sink = *sink};
    *out = p;
    return AF_OK;
}

void af_tool_parser_free(af_tool_parser *p)
{
    if (!p)
        return;
    af_buf_clear(&p->text);
    free(p);
}

int af_tool_parser_calls(const af_tool_parser *p) { return p->calls; }

/* ---- JSON text ---- */

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static uint64_t skip_blank(const char *s, uint64_t n, uint64_t at)
{
    while (at < n && is_blank(s[at]))
        at++;
    return at;
}

/* Where the value that begins at `at` ends; 0 while it is not complete. */
static uint64_t value_end(const char *s, uint64_t n, uint64_t at)
{
    int depth = 0;
    bool text = false;
    for (; at < n; at++) {
        const char c = s[at];
        if (text) {
            at += c == '\\';
            text = c != '"';
            if (!text && depth == 0)
                return at + 1;
        } else if (c == '"') {
            text = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return at;
            if (--depth == 0)
                return at + 1;
        } else if (depth == 0 && (c == ',' || is_blank(c))) {
            return at;
        }
    }
    return 0;
}

typedef struct text_span {
    const char *s;
    uint64_t n;
} text_span;

/* The text of a member of an object (valid JSON); n 0 when it is absent. */
static text_span member_text(text_span object, const char *name)
{
    uint64_t at = skip_blank(object.s, object.n, 1);
    while (at < object.n && object.s[at] == '"') {
        const uint64_t key = at, key_end = value_end(object.s, object.n, at);
        const uint64_t from =
            skip_blank(object.s, object.n, skip_blank(object.s, object.n, key_end) + 1);
        const uint64_t to = value_end(object.s, object.n, from);
        if (!key_end || !to)
            break;
        if (key_end - key - 2 == strlen(name) &&
            memcmp(object.s + key + 1, name, strlen(name)) == 0)
            return (text_span){object.s + from, to - from};
        at = skip_blank(object.s, object.n, to);
        at += at < object.n && object.s[at] == ',';
        at = skip_blank(object.s, object.n, at);
    }
    return (text_span){0};
}

/* ---- calls ---- */

/* Mistral's template takes nine letters and digits; others take anything. */
static void make_id(const af_tool_parser *p, char id[40])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const int n = p->format == AF_TOOL_MISTRAL ? 9 : 24;
    const uint64_t key[2] = {p->seed, (uint64_t)p->calls};
    uint64_t h = af_fnv1a(AF_FNV_START, key, sizeof key);
    int at = snprintf(id, 40, "%s", p->format == AF_TOOL_MISTRAL ? "" : "call_");
    for (int i = 0; i < n; i++) {
        h = (h ^ (h >> 29)) * UINT64_C(0xbf58476d1ce4e5b9) + UINT64_C(0x9e3779b97f4a7c15);
        id[at++] = digits[(h >> 40) % 62];
    }
    id[at] = '\0';
}

static bool is_tool(const af_tool_parser *p, const char *name)
{
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *f = json_object_get(json_array_get(p->tools, i), "function");
        const char *tool = json_string_value(json_object_get(f, "name"));
        if (tool && strcmp(tool, name) == 0)
            return true;
    }
    return false;
}

/* Reports one object as a call; false when it is not one. */
static bool report_call(af_tool_parser *p, text_span object, bool bare, af_error *err,
                        af_status *st)
{
    json_t *tree = af_json_load(object.s, object.n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *f = json_object_get(tree, "function");
    const char *name = json_string_value(json_object_get(json_is_object(f) ? f : tree, "name"));
    bool is_call = json_is_object(tree) && name && *name && (!bare || is_tool(p, name));
    if (json_is_object(f))
        object = member_text(object, "function");
    text_span given = member_text(object, "arguments");
    const json_t *value = json_object_get(json_is_object(f) ? f : tree, "arguments");
    if (!given.n) {
        given = member_text(object, "parameters");
        value = json_object_get(json_is_object(f) ? f : tree, "parameters");
    }
    is_call = is_call && (!bare || given.n);
    if (is_call) {
        char id[40];
        const bool text = json_is_string(value); /* arguments that are JSON text already */
        char *arguments = text      ? af_strdup(json_string_value(value))
                          : given.n ? af_strndup(given.s, given.n)
                                    : af_strdup("{}");
        make_id(p, id);
        if (arguments)
            p->sink.call(p->sink.user, &(af_tool_call){p->calls++, id, name, arguments});
        else
            *st = af_fail_nomem(err, "tool calls", given.n);
        free(arguments);
    }
    json_decref(tree);
    return is_call;
}

/* A list of calls: all of it is one, or none. */
static bool report_list(af_tool_parser *p, text_span list, af_error *err, af_status *st)
{
    json_t *tree = af_json_load(list.s, list.n, 0, NULL);
    bool good = json_is_array(tree) && json_array_size(tree) > 0;
    for (size_t i = 0; i < json_array_size(tree); i++)
        good &= json_is_string(json_object_get(json_array_get(tree, i), "name"));
    json_decref(tree);
    uint64_t at = skip_blank(list.s, list.n, 1);
    while (good && *st == AF_OK && at < list.n && list.s[at] == '{') {
        const uint64_t end = value_end(list.s, list.n, at);
        report_call(p, (text_span){list.s + at, end - at}, false, err, st);
        at = skip_blank(list.s, list.n, end);
        at += at < list.n && list.s[at] == ',';
        at = skip_blank(list.s, list.n, at);
    }
    return good;
}

/* ---- text as it comes ---- */

static void drop(af_tool_parser *p, uint64_t n)
{
    memmove(p->text.data, p->text.data + n, p->text.len - n);
    p->text.len -= n;
    p->text.data[p->text.len] = '\0';
}

static void give_content(af_tool_parser *p, uint64_t n)
{
    if (!n)
        return;
    p->sink.content(p->sink.user, p->text.data, n);
    drop(p, n);
}

/* Does the text end with the beginning of a marker? How long it is. */
static uint64_t begun_marker(const af_buf *b)
{
    uint64_t most = 0;
    for (size_t i = 0; i < AF_LEN(markers); i++) {
        const uint64_t n = strlen(markers[i]);
        for (uint64_t k = AF_MIN(n - 1, b->len); k > most; k--)
            if (memcmp(b->data + b->len - k, markers[i], k) == 0)
                most = k;
    }
    return most;
}

/* Outside of calls: content up to a marker, or to what may become one. True: a call begins. */
static bool read_content(af_tool_parser *p)
{
    uint64_t at = p->text.len, marker = 0;
    if (!p->text.len)
        return false;
    const uint64_t first = skip_blank(p->text.data, p->text.len, 0);
    if (!p->started && first < p->text.len && p->text.data[first] == '{') {
        drop(p, first);
        p->in_call = p->started = true;
        p->marker_len = 0;
        return true;
    }
    for (size_t i = 0; i < AF_LEN(markers); i++) {
        const uint64_t n = strlen(markers[i]);
        const char *hit = memmem(p->text.data, p->text.len, markers[i], n);
        if (hit && (uint64_t)(hit - p->text.data) < at) {
            at = (uint64_t)(hit - p->text.data);
            marker = n;
        }
    }
    uint64_t end = marker ? at : p->text.len - begun_marker(&p->text);
    while (end > 0 && is_blank(p->text.data[end - 1])) /* not known yet what follows */
        end--;
    p->started |= first < end;
    give_content(p, end);
    if (!marker)
        return false;
    drop(p, at - end);
    p->in_call = p->started = true;
    p->marker_len = marker;
    return true;
}

/* After a call: closing tags, separators and white space. True: known what follows. */
static bool skip_closing(af_tool_parser *p, bool last)
{
    const uint64_t tag = sizeof close_tag - 1;
    for (;;) {
        const uint64_t at = skip_blank(p->text.data, p->text.len, 0), n = p->text.len - at;
        const char *s = p->text.data + at;
        if (n == 0 || (n < tag && memcmp(s, close_tag, n) == 0 && !last))
            return last;
        if (n >= tag && memcmp(s, close_tag, tag) == 0)
            drop(p, at + tag);
        else if (*s == ';')
            drop(p, at + 1);
        else
            return true;
    }
}

/* In a call: reports it when it is complete. True: go on with what follows. */
static bool read_call(af_tool_parser *p, bool last, af_error *err, af_status *st)
{
    const uint64_t from = skip_blank(p->text.data, p->text.len, p->marker_len);
    const char c = from < p->text.len ? p->text.data[from] : 0;
    const bool value = c == '{' || (c == '[' && p->marker_len);
    const uint64_t end = value ? value_end(p->text.data, p->text.len, from) : 0;
    if (!end && !last && (value || !c) && p->text.len < CALL_BYTES_MAX)
        return false;
    const text_span v = {p->text.data + from, end - from};
    bool good = false;
    if (end)
        good =
            c == '[' ? report_list(p, v, err, st) : report_call(p, v, p->marker_len == 0, err, st);
    p->in_call = false;
    if (!good) { /* content: the marker or bracket at least, so that it is not read again */
        give_content(p, AF_MAX(end, AF_MIN(AF_MAX(p->marker_len, 1), p->text.len)));
        return true;
    }
    drop(p, end);
    return true;
}

/* After a call another one may follow without a marker: {...}; {...} */
static bool next_bare(af_tool_parser *p)
{
    const uint64_t at = skip_blank(p->text.data, p->text.len, 0);
    if (at == p->text.len || p->text.data[at] != '{')
        return false;
    drop(p, at);
    p->in_call = true;
    p->marker_len = 0;
    return true;
}

static af_status read_all(af_tool_parser *p, bool last, af_error *err)
{
    af_status st = AF_OK;
    while (st == AF_OK && p->text.len) {
        const int before = p->calls;
        if (!p->in_call && p->after_call) {
            if (!skip_closing(p, last))
                break;
            p->after_call = false;
            if (p->text.len && next_bare(p))
                continue;
        }
        if (!p->in_call && !read_content(p))
            break;
        if (p->in_call && !read_call(p, last, err, &st))
            break;
        p->after_call |= p->calls > before;
    }
    return st;
}

af_status af_tool_parser_add(af_tool_parser *p, const char *text, uint64_t n, af_error *err)
{
    af_buf_add(&p->text, text, n);
    return p->text.bad ? af_fail_nomem(err, "tool calls", n) : read_all(p, false, err);
}

af_status af_tool_parser_finish(af_tool_parser *p, af_error *err)
{
    const af_status st = read_all(p, true, err);
    if (st != AF_OK || !p->text.len)
        return st;
    const uint64_t first = skip_blank(p->text.data, p->text.len, 0);
    if (p->calls == 0 || first < p->text.len)
        give_content(p, p->text.len);
    return AF_OK;
}
