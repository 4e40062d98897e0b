/* tool_call.c - see tool_call.h. */
#define _GNU_SOURCE /* memmem */
#include "grammar/tool_call.h"
#include "base/buf.h"
#include "base/hash.h"
#include "format/text/json_text.h"
#include "grammar/call_text.h"

enum { CALL_BYTES_MAX = 4 << 20 }; /* held for one call; more is content */

/* What begins a call, or a list of them. One that is not whole is the beginning of the call. */
static const char *const openers[] = {"<tool_call>",
                                      "<|python_tag|>",
                                      "[TOOL_CALLS]",
                                      "<|tool_call|>",
                                      "<tool_calls>",
                                      "<TOOLCALL>",
                                      "<|START_ACTION|>",
                                      "<seed:tool_call>",
                                      "<minimax:tool_call>",
                                      "<function=",
                                      "<invoke name=\"",
                                      "<|tool_call_start|>",
                                      "<|python_start|>",
                                      "<function_calls>",
                                      "<|tool_call>",
                                      "<start_function_call>",
                                      "<｜tool▁calls▁begin｜>",
                                      "<｜tool▁call▁begin｜>",
                                      "<|tool_calls_section_begin|>",
                                      "<|tool_call_begin|>"};
/* What may follow a call. */
static const char lines_close[] = "</function_calls>";
static const char *const closers[] = {"</tool_call>",
                                      "<|/tool_call|>",
                                      "</tool_calls>",
                                      "</TOOLCALL>",
                                      "<|END_ACTION|>",
                                      "</seed:tool_call>",
                                      "</minimax:tool_call>",
                                      "<|tool_call_end|>",
                                      "<|python_end|>",
                                      lines_close,
                                      "<tool_call|>",
                                      "<end_function_call>",
                                      "<｜tool▁call▁end｜>",
                                      "<｜tool▁calls▁end｜>",
                                      "<|tool_calls_section_end|>"};
/* What else is in calls and may be a special token. */
static const char *const parts[] = {"[ARGS]",       "[CALL_ID]",
                                    "<arg_key>",    "</arg_key>",
                                    "<arg_value>",  "</arg_value>",
                                    "<tool_sep>",   "<｜tool▁sep｜>",
                                    "<|\"|>",       "<escape>",
                                    "</parameter>", "</function>",
                                    "</invoke>",    "<|tool_call_argument_begin|>"};

struct af_tool_parser {
    af_tool_format format;
    const json_t *tools;
    uint64_t seed;
    af_tool_sink sink;
    af_buf text;     /* held back; begins at a marker or value when in_call */
    bool after_call; /* its closing tag may follow */
    bool in_call;    /* after a marker, or in a bare object or list at the beginning */
    bool started;    /* some text that is not white space was seen */
    bool marked;     /* the call has a marker */
    uint64_t before; /* bytes of white space and markers in front of the call */
    bool lines;      /* calls follow each other, one per line, up to lines_close */
    int calls;
};

af_tool_format af_tool_format_of(const char *source)
{
    if (source && strstr(source, "<|channel|>") && strstr(source, "<|message|>"))
        return AF_TOOL_CHANNELS;
    if (source && strstr(source, "[TOOL_CALLS]"))
        return strstr(source, "[ARGS]") ? AF_TOOL_ARGS : AF_TOOL_MISTRAL;
    if (source && !strstr(source, "<tool_call>") &&
        (strstr(source, "<|python_tag|>") || strstr(source, "\"parameters\": ")))
        return AF_TOOL_LLAMA;
    return AF_TOOL_TAGS;
}

static bool is_one_of(const char *token, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(token, list[i]) == 0)
            return true;
    return false;
}

bool af_tool_marker(const char *token)
{
    for (size_t i = 0; token && i < AF_LEN(openers); i++)
        if (strcmp(token, openers[i]) == 0)
            return true;
    return token &&
           (is_one_of(token, closers, AF_LEN(closers)) || is_one_of(token, parts, AF_LEN(parts)));
}

const char *af_tool_opener(size_t i) { return i < AF_LEN(openers) ? openers[i] : NULL; }

const char *af_tool_format_name(af_tool_format f)
{
    static const char *const names[] = {"tags", "llama", "mistral", "args", "channels"};
    return names[f];
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

typedef struct text_span {
    const char *s;
    uint64_t n;
} text_span;

/* The text of a member of an object (valid JSON); n 0 when it is absent. */
static text_span member_text(text_span object, const char *name)
{
    uint64_t at = af_skip_blank(object.s, object.n, 1);
    while (at < object.n && object.s[at] == '"') {
        const uint64_t key = at, key_end = af_json_value_end(object.s, object.n, at);
        const uint64_t from =
            af_skip_blank(object.s, object.n, af_skip_blank(object.s, object.n, key_end) + 1);
        const uint64_t to = af_json_value_end(object.s, object.n, from);
        if (!key_end || !to)
            break;
        if (key_end - key - 2 == strlen(name) &&
            memcmp(object.s + key + 1, name, strlen(name)) == 0)
            return (text_span){object.s + from, to - from};
        at = af_skip_blank(object.s, object.n, to);
        at += at < object.n && object.s[at] == ',';
        at = af_skip_blank(object.s, object.n, at);
    }
    return (text_span){0};
}

/* ---- calls ---- */

/* Mistral's template takes nine letters and digits; others take anything. */
static void make_id(const af_tool_parser *p, char id[40])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const bool mistral = p->format == AF_TOOL_MISTRAL || p->format == AF_TOOL_ARGS;
    const int n = mistral ? 9 : 24;
    const uint64_t key[2] = {p->seed, (uint64_t)p->calls};
    uint64_t h = af_fnv1a(AF_FNV_START, key, sizeof key);
    int at = snprintf(id, 40, "%s", mistral ? "" : "call_");
    for (int i = 0; i < n; i++) {
        h = (h ^ (h >> 29)) * UINT64_C(0xbf58476d1ce4e5b9) + UINT64_C(0x9e3779b97f4a7c15);
        id[at++] = digits[(h >> 40) % 62];
    }
    id[at] = '\0';
}

static bool is_tool(const af_tool_parser *p, const char *name)
{
    bool found = false;
    (void)af_tool_parameters(p->tools, name, &found);
    return found;
}

/* The name that a call in JSON has; Cohere's word is another. */
static const char *call_name(const json_t *call)
{
    const char *name = json_string_value(json_object_get(call, "name"));
    return name ? name : json_string_value(json_object_get(call, "tool_name"));
}

/* Reports one object as a call; false when it is not one. */
static bool report_call(af_tool_parser *p, text_span object, bool bare, af_error *err,
                        af_status *st)
{
    json_t *tree = af_json_load(object.s, object.n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *f = json_object_get(tree, "function");
    const char *name = call_name(json_is_object(f) ? f : tree);
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
static bool report_list(af_tool_parser *p, text_span list, bool bare, af_error *err, af_status *st)
{
    json_t *tree = af_json_load(list.s, list.n, 0, NULL);
    bool good = json_is_array(tree) && json_array_size(tree) > 0;
    for (size_t i = 0; i < json_array_size(tree); i++) {
        const char *name = call_name(json_array_get(tree, i));
        good &= name && (!bare || is_tool(p, name));
    }
    json_decref(tree);
    uint64_t at = af_skip_blank(list.s, list.n, 1);
    while (good && *st == AF_OK && at < list.n && list.s[at] == '{') {
        const uint64_t end = af_json_value_end(list.s, list.n, at);
        report_call(p, (text_span){list.s + at, end - at}, false, err, st);
        at = af_skip_blank(list.s, list.n, end);
        at += at < list.n && list.s[at] == ',';
        at = af_skip_blank(list.s, list.n, at);
    }
    return good;
}

/* Reports a call that was not JSON. */
static void report_text(af_tool_parser *p, const af_call_text *c, af_error *err, af_status *st)
{
    char id[40];
    make_id(p, id);
    if (c->name.bad || c->arguments.bad || c->id.bad)
        *st = af_fail_nomem(err, "tool calls", c->arguments.len);
    else
        p->sink.call(p->sink.user, &(af_tool_call){p->calls++, c->id.len ? c->id.data : id,
                                                   c->name.data, c->arguments.data});
}

/* [f(...), g(...)] from `at`: looked at as a whole first, so that all of it are calls or none. */
static af_call_found read_python(af_tool_parser *p, uint64_t *at, bool report, af_error *err,
                                 af_status *st)
{
    const char *s = p->text.data;
    const uint64_t n = p->text.len;
    af_call_text c = {0};
    af_call_found f = AF_CALL_MORE;
    for (uint64_t i = *at + 1; *st == AF_OK;) {
        i = af_skip_blank(s, n, i);
        f = af_call_text_read(s, n, &i, p->tools, &c);
        if (f != AF_CALL_READ)
            break;
        if (report)
            report_text(p, &c, err, st);
        i = af_skip_blank(s, n, i);
        f = i == n ? AF_CALL_MORE : s[i] == ',' || s[i] == ']' ? AF_CALL_READ : AF_CALL_NONE;
        if (f != AF_CALL_READ || s[i++] == ']') {
            *at = i;
            break;
        }
    }
    af_call_text_clear(&c);
    return f;
}

/* A call that is not JSON, at *at. */
static af_call_found read_text(af_tool_parser *p, uint64_t *at, af_error *err, af_status *st)
{
    uint64_t end = *at;
    if (p->text.data[*at] == '[') {
        const af_call_found f = read_python(p, &end, false, err, st);
        return f == AF_CALL_READ ? read_python(p, at, true, err, st) : f;
    }
    af_call_text c = {0};
    const af_call_found f = af_call_text_read(p->text.data, p->text.len, at, p->tools, &c);
    if (f == AF_CALL_READ)
        report_text(p, &c, err, st);
    af_call_text_clear(&c);
    return f;
}

bool af_tool_parser_report(af_tool_parser *p, const char *name, const char *arguments)
{
    char id[40];
    json_t *tree = af_json_load(arguments, strlen(arguments), 0, NULL);
    const bool good = json_is_object(tree);
    json_decref(tree);
    make_id(p, id);
    if (good)
        p->sink.call(p->sink.user, &(af_tool_call){p->calls++, id, name, arguments});
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
    for (size_t i = 0; i < AF_LEN(openers); i++) {
        const uint64_t n = strlen(openers[i]);
        for (uint64_t k = AF_MIN(n - 1, b->len); k > most; k--)
            if (memcmp(b->data + b->len - k, openers[i], k) == 0)
                most = k;
    }
    return most;
}

/* Does the text from `at` begin with a marker, or may it become one? `whole` false: only may. */
static bool is_opener(const af_buf *b, uint64_t at, bool whole)
{
    for (size_t i = 0; at < b->len && i < AF_LEN(openers); i++) {
        const uint64_t n = strlen(openers[i]), left = b->len - at;
        if ((whole || left < n) && memcmp(b->data + at, openers[i], AF_MIN(left, n)) == 0)
            return true;
    }
    return false;
}

static bool is_whole(const char *opener) { return strchr("]>", opener[strlen(opener) - 1]); }

/* A call begins, after so many bytes of white space and its marker. */
static bool begin_call(af_tool_parser *p, uint64_t before, bool marked)
{
    p->in_call = p->started = true;
    p->before = before;
    p->marked = marked;
    return true;
}

/* Outside of calls: content up to a marker, or to what may become one. True: a call begins. */
static bool read_content(af_tool_parser *p)
{
    uint64_t at = p->text.len, marker = 0;
    bool found = false;
    if (!p->text.len)
        return false;
    const uint64_t first = af_skip_blank(p->text.data, p->text.len, 0);
    if (!p->started && first < p->text.len && strchr("{[", p->text.data[first]) &&
        !is_opener(&p->text, first, true))
        return begin_call(p, first, false);
    for (size_t i = 0; i < AF_LEN(openers); i++) {
        const uint64_t n = strlen(openers[i]);
        const char *hit = memmem(p->text.data, p->text.len, openers[i], n);
        if (!hit || (uint64_t)(hit - p->text.data) >= at)
            continue;
        found = true;
        at = (uint64_t)(hit - p->text.data);
        marker = is_whole(openers[i]) ? n : 0;
        p->lines = strcmp(openers[i], "<function_calls>") == 0;
    }
    uint64_t end = found ? at : p->text.len - begun_marker(&p->text);
    while (end > 0 && is_blank(p->text.data[end - 1])) /* not known yet what follows */
        end--;
    p->started |= first < end;
    give_content(p, end);
    return found && begin_call(p, at - end + marker, true);
}

/* After a call: closing tags, separators and white space. True: known what follows. */
static bool skip_closing(af_tool_parser *p, bool last)
{
    for (bool again = true; again;) {
        const uint64_t at = af_skip_blank(p->text.data, p->text.len, 0), n = p->text.len - at;
        const char *s = p->text.data + at;
        if (n == 0)
            return last;
        again = *s == ';';
        if (again)
            drop(p, at + 1);
        for (size_t i = 0; !again && i < AF_LEN(closers); i++) {
            const uint64_t tag = strlen(closers[i]);
            if (memcmp(s, closers[i], AF_MIN(n, tag)) != 0)
                continue;
            if (n < tag && !last)
                return false;
            again = true;
            drop(p, at + AF_MIN(n, tag)); /* what there is of it: the answer was cut here */
            p->lines = p->lines && closers[i] != lines_close;
        }
    }
    return true;
}

/* Calls in a list may have markers of their own: all of them are before the call. */
static void pass_openers(af_tool_parser *p)
{
    for (size_t i = 0; p->marked && i < AF_LEN(openers);) {
        const uint64_t at = af_skip_blank(p->text.data, p->text.len, p->before);
        const uint64_t n = strlen(openers[i]);
        const bool next = is_whole(openers[i]) && p->text.len - at >= n &&
                          memcmp(p->text.data + at, openers[i], n) == 0;
        p->before = next ? at + n : p->before;
        i = next ? 0 : i + 1;
    }
}

/* A call in JSON at `from`, or a list of them; *end 0: none. */
static bool read_json(af_tool_parser *p, uint64_t from, uint64_t *end, af_error *err, af_status *st)
{
    *end = af_json_value_end(p->text.data, p->text.len, from);
    const text_span v = {p->text.data + from, *end - from};
    const bool bare = !p->marked;
    if (!*end)
        return false;
    return *v.s == '[' ? report_list(p, v, bare, err, st) : report_call(p, v, bare, err, st);
}

/* In a call: reports it when it is complete. True: go on with what follows. */
static bool read_call(af_tool_parser *p, bool last, af_error *err, af_status *st)
{
    pass_openers(p);
    const uint64_t from = af_skip_blank(p->text.data, p->text.len, p->before);
    const uint64_t second = af_skip_blank(p->text.data, p->text.len, from + 1);
    const char c = from < p->text.len ? p->text.data[from] : 0;
    const char d = second < p->text.len ? p->text.data[second] : 0;
    const bool json = c == '{' || (c == '[' && d == '{');
    uint64_t end = from;
    bool good = false, more = !c || (c == '[' && !d) || is_opener(&p->text, from, false);
    if (!more && json) {
        good = read_json(p, from, &end, err, st);
        more = !end;
    } else if (!more) {
        const af_call_found f = read_text(p, &end, err, st);
        good = f == AF_CALL_READ;
        more = f == AF_CALL_MORE;
        end = good ? end : 0;
    }
    if (more && !last && p->text.len < CALL_BYTES_MAX)
        return false;
    p->in_call = false;
    if (!good) { /* content: what makes it a call at least, so that it is not read again */
        give_content(p, AF_MAX(end, AF_MIN(from + 1, p->text.len)));
        return true;
    }
    drop(p, end);
    return true;
}

/* After a call another one may follow without a marker: {...}; {...} */
static bool next_bare(af_tool_parser *p)
{
    const uint64_t at = af_skip_blank(p->text.data, p->text.len, 0);
    if (at == p->text.len || (p->text.data[at] != '{' && !p->lines))
        return false;
    return begin_call(p, at, false);
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
    const uint64_t first = af_skip_blank(p->text.data, p->text.len, 0);
    if (p->calls == 0 || first < p->text.len)
        give_content(p, p->text.len);
    return AF_OK;
}
