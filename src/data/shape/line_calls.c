/* line_calls.c - conversations as Ai2 publishes them (Dolci, the data of OLMo 3): tools are JSON
 * text in "functions" of a message, calls are lines of Python in "function_calls", and their
 * results have the role "environment". A template that reads these fields gets them as they are;
 * for all others they become tools, tool_calls and the role "tool". */
#include "data/shape/shape.h"

#include "grammar/call_text.h"

#define CALLS "function_calls"

/* The next call of the text, appended to the list. Whatever has a name here is a tool. */
static bool read_call(json_t *calls, const char *s, uint64_t n, uint64_t *at, size_t number)
{
    const char *paren = memchr(s + *at, '(', n - *at);
    json_t *tools = json_pack("[{s:{s:s%}}]", "function", "name", s + *at,
                              paren ? (size_t)(paren - s - (ptrdiff_t)*at) : 0);
    af_call_text c = {0};
    char id[32]; /* nine letters and digits, as Mistral's templates want */
    snprintf(id, sizeof id, "cal%c%05zu", (char)('a' + json_array_size(calls) % 26),
             number % 100000);
    const bool read = tools && af_call_text_read(s, n, at, tools, &c) == AF_CALL_READ &&
                      !c.name.bad && !c.arguments.bad &&
                      !json_array_append_new(
                          calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function",
                                           "function", "name", c.name.data, "arguments",
                                           c.arguments.data)); /* shape_chat.c reads them */
    af_call_text_clear(&c);
    json_decref(tools);
    return read;
}

/* The calls in lines of Python, a new reference; NULL: there is something else. */
static json_t *read_calls(const json_t *lines, size_t number)
{
    const char *s = json_string_value(lines);
    const uint64_t n = json_string_length(lines);
    json_t *calls = json_array();
    bool read = calls != NULL;
    for (uint64_t at = af_skip_blank(s, n, 0); read && at < n; at = af_skip_blank(s, n, at))
        read = read_call(calls, s, n, &at, number);
    if (read && json_array_size(calls))
        return calls;
    json_decref(calls);
    return NULL;
}

/* A list of functions as tools, a new reference. */
static json_t *tools_of(const json_t *functions)
{
    json_t *list = af_json_text_list(functions), *out = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *f = json_array_get(list, i);
        json_array_append_new(out,
                              json_object_get(f, "function")
                                  ? json_incref(f)
                                  : json_pack("{s:s, s:O}", "type", "function", "function", f));
    }
    json_decref(list);
    return out;
}

/* A message with its calls; others as they are. What cannot be read stays, and is an error later.
 */
static json_t *open_message(json_t *m, size_t number)
{
    const json_t *lines = json_object_get(m, CALLS);
    json_t *calls = json_string_length(lines) ? read_calls(lines, number) : NULL;
    if (!calls)
        return json_incref(m);
    json_t *out = json_copy(m);
    json_object_del(out, CALLS);
    json_object_set_new(out, "tool_calls", calls);
    return out;
}

static bool open_field(const af_data_source *s, json_t *record, const char *field)
{
    const json_t *turns = json_object_get(record, field);
    bool any = false;
    for (size_t i = 0; i < json_array_size(turns) && !any; i++) {
        const json_t *m = json_array_get(turns, i);
        any = json_string_length(json_object_get(m, CALLS)) ||
              json_string_length(json_object_get(m, AF_FUNCTIONS));
    }
    if (!any)
        return true;
    json_t *out = json_array();
    bool ok = true;
    for (size_t i = 0; i < json_array_size(turns); i++) {
        json_t *m = json_array_get(turns, i);
        const json_t *tools = json_object_get(record, s->field.tools);
        const json_t *functions = json_object_get(m, AF_FUNCTIONS);
        if (json_string_length(functions) && (!tools || json_is_null(tools)))
            ok = !json_object_set_new(record, s->field.tools, tools_of(functions)) && ok;
        ok = !json_array_append_new(out, open_message(m, i)) && ok;
    }
    return !json_object_set_new(record, field, out) && ok;
}

bool af_record_open_line_calls(const af_data_source *s, json_t *record)
{
    const af_fields *f = &s->field;
    const char *const fields[] = {f->messages, f->prompt, f->completion, f->chosen, f->rejected};
    bool ok = true;
    for (size_t i = 0; i < AF_LEN(fields) && !s->line_calls; i++)
        ok = open_field(s, record, fields[i]) && ok;
    return ok;
}
