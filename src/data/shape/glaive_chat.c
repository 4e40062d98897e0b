/* glaive_chat.c - conversations in one text, as Glaive's function calling data has them:
 *
 *     system: SYSTEM: You are a helpful assistant with access to the following functions. ... {...}
 *     chat:   USER: ...  ASSISTANT: <functioncall> {"name": "f", "arguments": '{"a": 1}'}
 *             <|endoftext|>  FUNCTION RESPONSE: {...}  ASSISTANT: ... <|endoftext|>
 *
 * They become messages and tools; the sentence that announces the functions is left to the
 * template. */
#define _GNU_SOURCE /* memmem */
#include "data/shape/shape.h"

#include "grammar/call_text.h"

#define CALL "<functioncall>"
#define END  "<|endoftext|>"

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

/* {"name": "f", "arguments": '...'}; the quotes may have others inside. */
static json_t *read_call(span t)
{
    static const char key[] = "\"arguments\":";
    json_t *text = json_stringn(t.at, t.n), *call = text ? af_json_or_python(text) : NULL;
    const char *at = memmem(t.at, t.n, key, strlen(key));
    if (call || !at) {
        json_decref(call ? text : NULL);
        return call ? call : text;
    }
    const span name = {t.at, (uint64_t)(at - t.at)}, rest = after(t, name.n + strlen(key));
    const char *first = memchr(rest.at, '\'', rest.n), *last = memrchr(rest.at, '\'', rest.n);
    json_t *head = json_sprintf("%.*s\"\": 0}", (int)AF_MIN(name.n, 4096u), name.at);
    call = head ? af_json_or_python(head) : NULL;
    if (call && first && last > first)
        json_object_set_new(call, "arguments", json_stringn(first + 1, (size_t)(last - first - 1)));
    json_object_del(call, "");
    json_decref(head);
    json_decref(call ? text : NULL);
    return call ? call : text;
}

static bool add_turn(const af_data_source *s, json_t *list, const char *role, span t)
{
    const char *call = memmem(t.at, t.n, CALL, strlen(CALL));
    bool ok = true;
    t = trimmed(t);
    if (t.n >= strlen(END) && memcmp(t.at + t.n - strlen(END), END, strlen(END)) == 0)
        t = trimmed((span){t.at, t.n - strlen(END)});
    if (strcmp(role, "assistant") != 0 || !call)
        return add(s, list, role, json_stringn(t.at, t.n));
    const span before = trimmed((span){t.at, (uint64_t)(call - t.at)});
    if (before.n)
        ok = add(s, list, role, json_stringn(before.at, before.n));
    return add(s, list, AF_ROLE_CALL,
               read_call(trimmed(after(t, (uint64_t)(call - t.at) + strlen(CALL))))) &&
           ok;
}

/* The functions in the text, as tools; the rest of it is what the system says. */
static bool open_system(const af_data_source *s, json_t *record, json_t *list, span t)
{
    json_t *tools = json_array();
    const char *first = memmem(t.at, t.n, "\n{", 2);
    uint64_t at = first ? (uint64_t)(first - t.at) + 1 : t.n, end;
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
    const bool all = json_array_size(tools) && at >= t.n;
    t = trimmed(begins(t, "SYSTEM:") ? after(t, 7) : t);
    if (all)
        ok = !json_object_set(record, s->field.tools, tools) && ok;
    else if (t.n)
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
