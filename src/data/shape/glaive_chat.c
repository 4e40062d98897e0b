/* glaive_chat.c - conversations in one text, as Glaive's function calling data has them:
 *
 *     system: SYSTEM: You are a helpful assistant with access to the following functions. ... {...}
 *     chat:   USER: ...  ASSISTANT: <functioncall> {"name": "f", "arguments": '{"a": 1}'}
 *             <|endoftext|>  FUNCTION RESPONSE: {...}  ASSISTANT: ... <|endoftext|>
 *
 * They become messages and tools; the sentence that announces the functions is left to the
 * template. Text before and after calls is the content of their message. */
#define _GNU_SOURCE /* memmem */
#include "data/shape/shape.h"

#include "format/text/json_text.h"
#include "grammar/call_literal.h"

#define CALL "<functioncall>"
#define END  "<|endoftext|>"
enum { HEAD_MAX = 4096 }; /* of a call: its name, up to the arguments */

static const struct {
    const char *name, *role;
} speakers[] = {{"USER:", "user"}, {"ASSISTANT:", "assistant"}, {"FUNCTION RESPONSE:", "tool"}};

typedef struct span {
    const char *at;
    uint64_t n;
} span;

static bool begins(span t, const char *word)
{
    return t.n >= strlen(word) && memcmp(t.at, word, strlen(word)) == 0;
}

static span after(span t, uint64_t n) { return (span){t.at + n, t.n - n}; }

static span trimmed(span t)
{
    while (t.n && strchr(" \t\r\n", t.at[0]))
        t = after(t, 1);
    while (t.n && strchr(" \t\r\n", t.at[t.n - 1]))
        t.n--;
    return t;
}

/* Who speaks at the beginning of t; -1: the text goes on. */
static int speaker_of(span t)
{
    for (int i = 0; i < (int)AF_LEN(speakers); i++)
        if (begins(t, speakers[i].name))
            return i;
    return -1;
}

/* Where the next one speaks: after an empty line. */
static uint64_t turn_length(span t)
{
    for (uint64_t i = 2; i < t.n; i++)
        if (t.at[i - 1] == '\n' && t.at[i - 2] == '\n' && speaker_of(after(t, i)) >= 0)
            return i;
    return t.n;
}

static bool add(const af_data_source *s, json_t *list, const char *role, json_t *content)
{
    return content && !json_array_append_new(list, json_pack("{s:s, s:o}", s->field.role, role,
                                                             s->field.content, content));
}

/* {"name": "f", "arguments": '...'} with JSON in the quotes as it is, which may have others inside:
 * the call, a new reference, with *end after it. NULL: it is something else. */
static json_t *read_quoted(span t, uint64_t *end)
{
    static const char key[] = "\"arguments\":";
    const char *at = memmem(t.at, AF_MIN(t.n, HEAD_MAX), key, strlen(key));
    if (!at)
        return NULL;
    const uint64_t head = (uint64_t)(at - t.at);
    uint64_t quote = af_skip_blank(t.at, t.n, head + strlen(key));
    if (quote == t.n || t.at[quote] != '\'')
        return NULL;
    const uint64_t from = af_skip_blank(t.at, t.n, quote + 1);
    const uint64_t to = af_json_value_end(t.at, t.n, from);
    quote = af_skip_blank(t.at, t.n, to);
    const uint64_t last = af_skip_blank(t.at, t.n, AF_MIN(quote + 1, t.n));
    if (!to || quote == t.n || t.at[quote] != '\'' || last == t.n || t.at[last] != '}')
        return NULL;
    json_t *arguments = af_json_load(t.at + from, to - from, JSON_ALLOW_NUL, NULL);
    json_t *text = json_sprintf("%.*s\"\": 0}", (int)head, t.at);
    json_t *call = arguments && text ? af_json_or_python(text) : NULL;
    if (call)
        json_object_set(call, "arguments", arguments);
    json_object_del(call, "");
    json_decref(arguments);
    json_decref(text);
    *end = last + 1;
    return call;
}

/* A call at the beginning of t, which ends at *end. One that cannot be read is all of t, as a text,
 * which is refused as a call. */
static json_t *read_call(span t, uint64_t *end)
{
    af_buf literal = {0};
    uint64_t at = 0;
    json_t *call = read_quoted(t, end);
    if (!call) {
        *end = af_call_literal(t.at, t.n, &at, &literal) == AF_CALL_READ ? at : t.n;
        json_t *text = json_stringn(t.at, *end);
        call = text ? af_json_or_python(text) : NULL;
        *end = call ? *end : t.n;
        json_decref(text);
    }
    af_buf_clear(&literal);
    return call ? call : json_stringn(t.at, t.n);
}

/* A piece of what a speaker says, after an empty line where there is one before. */
static void add_text(af_buf *b, span t)
{
    t = trimmed(t);
    if (t.n >= strlen(END) && memcmp(t.at + t.n - strlen(END), END, strlen(END)) == 0)
        t = trimmed((span){t.at, t.n - strlen(END)});
    if (t.n && b->len)
        af_buf_str(b, "\n\n");
    af_buf_add(b, t.at, t.n);
}

static bool add_turn(const af_data_source *s, json_t *list, const char *role, span t)
{
    const bool calls = strcmp(role, "assistant") == 0;
    af_buf text = {0};
    json_t *all = json_array();
    bool ok = all != NULL;
    for (bool more = true; more;) {
        const char *call = calls ? memmem(t.at, t.n, CALL, strlen(CALL)) : NULL;
        const uint64_t before = call ? (uint64_t)(call - t.at) : t.n;
        uint64_t end = 0;
        add_text(&text, (span){t.at, before});
        more = call != NULL;
        if (call) {
            t = trimmed(after(t, before + strlen(CALL)));
            ok = !json_array_append_new(all, read_call(t, &end)) && ok;
            t = after(t, end);
        }
    }
    if (text.len || !json_array_size(all))
        ok = add(s, list, role, json_stringn(text.data ? text.data : "", text.len)) && ok;
    if (json_array_size(all))
        ok = add(s, list, AF_ROLE_CALL, json_incref(all)) && ok;
    ok = ok && !text.bad;
    af_buf_clear(&text);
    json_decref(all);
    return ok;
}

/* Where Glaive's sentences about the functions begin, at the end of t; t.n: it has none. */
static uint64_t announcement_at(span t)
{
    static const char *const whole =
        "You are a helpful assistant with access to the following functions. Use them if required "
        "-";
    static const char *const begin[] = {"You have access to ", "You are a helpful assistant "};
    static const char last[] = "functions -";
    if (t.n >= strlen(whole) && begins(after(t, t.n - strlen(whole)), whole))
        return t.n - strlen(whole);
    if (t.n < strlen(last) || !begins(after(t, t.n - strlen(last)), last))
        return t.n;
    uint64_t at = t.n - strlen(last);
    while (at && t.at[at - 1] != '\n' &&
           !(at > 1 && t.at[at - 1] == ' ' && memchr(".!?:", t.at[at - 2], 4)))
        at--;
    for (size_t i = 0; i < AF_LEN(begin); i++)
        if (begins(after(t, at), begin[i]))
            return at;
    return t.n;
}

/* The functions in the text, as tools; the rest of it is what the system says. */
static bool open_system(const af_data_source *s, json_t *record, json_t *list, span t)
{
    json_t *tools = json_array();
    const char *first = memmem(t.at, t.n, "\n{", 2);
    const uint64_t begin = first ? (uint64_t)(first - t.at) + 1 : t.n;
    uint64_t at = begin, end;
    bool ok = tools != NULL;
    for (; at < t.n && (end = af_json_value_end(t.at, t.n, at)) > at;
         at = af_skip_blank(t.at, t.n, end)) {
        json_t *text = json_stringn(t.at + at, end - at);
        json_t *f = text ? af_json_or_python(text) : NULL;
        if (f)
            ok = !json_array_append_new(
                     tools, json_pack("{s:s, s:o}", "type", "function", "function", f)) &&
                 ok;
        json_decref(text);
        if (!f) /* then the text stays as it is */
            break;
    }
    if (json_array_size(tools) && at >= t.n) {
        ok = !json_object_set(record, s->field.tools, tools) && ok;
        t = trimmed((span){t.at, begin});
        t.n = announcement_at(t);
    }
    t = trimmed(t);
    t = trimmed(begins(t, "SYSTEM:") ? after(t, 7) : t);
    if (t.n)
        ok = add(s, list, "system", json_stringn(t.at, t.n)) && ok;
    json_decref(tools);
    return ok;
}

bool af_record_open_glaive(const af_data_source *s, json_t *record)
{
    const json_t *chat = json_object_get(record, "chat");
    const json_t *system = json_object_get(record, "system");
    span t = {json_string_value(chat), json_string_length(chat)};
    if (!t.at || !json_is_string(system) || speaker_of(trimmed(t)) < 0)
        return true;
    json_t *list = json_array();
    bool ok = list && open_system(s, record, list,
                                  (span){json_string_value(system), json_string_length(system)});
    for (t = trimmed(t); ok && t.n;) {
        const int who = speaker_of(t);
        const uint64_t n = turn_length(t), name = strlen(speakers[who].name);
        ok = add_turn(s, list, speakers[who].role, (span){t.at + name, n - name});
        t = after(t, n);
    }
    ok = ok && !json_object_set(record, s->field.messages, list) &&
         !json_object_del(record, "system");
    json_decref(list);
    return ok;
}
