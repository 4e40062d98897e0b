/* json_fields.c - records whose values are not where the shapes look for them: turns as JSON text
 * (columns of tables, CSV), functions and their calls in the words of OpenAI's first API, and the
 * pairs of its fine-tuning. */
#include "data/shape/shape.h"

#include "format/text/json_text.h"
#include "grammar/call_literal.h"

json_t *af_json_or_python(const json_t *v)
{
    const char *s = json_string_value(v);
    const uint64_t n = json_string_length(v);
    uint64_t at = 0;
    af_buf b = {0};
    json_error_t why;
    json_t *out = af_json_load(s, n, JSON_ALLOW_NUL, &why);
    if (!out && memchr("{[", s[strspn(s, " \t\r\n")], 2) &&
        af_call_literal(s, n, &at, &b) == AF_CALL_READ && af_skip_blank(s, n, at) == n && !b.bad)
        out = af_json_load(b.data, b.len, JSON_ALLOW_NUL, &why);
    af_buf_clear(&b);
    return out;
}

json_t *af_json_text_list(const json_t *v)
{
    const char *s = json_string_value(v);
    json_t *list = s && s[strspn(s, " \t\r\n")] == '[' ? af_json_or_python(v) : NULL;
    if (json_is_array(list))
        return list;
    json_decref(list);
    return NULL;
}

/* {"input": {"messages", "tools"}, "preferred_output": [...], "non_preferred_output": [...]} */
static bool open_openai_pair(const af_data_source *s, json_t *record)
{
    const af_fields *f = &s->field;
    json_t *input = json_object_get(record, "input");
    json_t *turns = json_object_get(input, "messages"), *tools = json_object_get(input, "tools");
    json_t *good = json_object_get(record, "preferred_output");
    json_t *bad = json_object_get(record, "non_preferred_output");
    if (!json_is_array(turns) || !json_is_array(good) || !json_is_array(bad))
        return true;
    return !json_object_set(record, f->prompt, turns) &&
           !json_object_set(record, f->chosen, good) &&
           !json_object_set(record, f->rejected, bad) &&
           (!json_is_array(tools) || !json_object_set(record, f->tools, tools));
}

/* {"output": [better, worse]} of LLaMA-Factory, before it had fields for the two. */
static bool open_answers(const af_data_source *s, json_t *record)
{
    const json_t *list = json_object_get(record, s->field.output);
    if (!s->listed || s->shape != AF_SHAPE_PREFERENCE || json_array_size(list) < 2 ||
        json_object_get(record, s->field.chosen))
        return true;
    return !json_object_set(record, s->field.chosen, json_array_get(list, 0)) &&
           !json_object_set(record, s->field.rejected, json_array_get(list, 1));
}

/* "functions" as "tools". */
static bool open_functions(const af_data_source *s, json_t *record)
{
    const json_t *old = json_object_get(record, AF_FUNCTIONS), *now;
    now = json_object_get(record, s->field.tools);
    if (!json_is_array(old) || (now && !json_is_null(now)))
        return true;
    json_t *tools = json_array();
    for (size_t i = 0; i < json_array_size(old); i++)
        json_array_append_new(
            tools, json_pack("{s:s, s:O}", "type", "function", "function", json_array_get(old, i)));
    return json_array_size(tools) == json_array_size(old) &&
           !json_object_set_new(record, s->field.tools, tools);
}

af_status af_message_open_call(json_t *m, size_t number, af_error *err)
{
    json_t *call = json_object_get(m, "function_call");
    char id[32]; /* nine letters and digits, as Mistral's templates want */
    if (!json_is_object(call) || json_object_get(m, "tool_calls"))
        return AF_OK;
    snprintf(id, sizeof id, "call%05zu", number - 1);
    json_t *calls = json_pack("[{s:s, s:s, s:O}]", "id", id, "type", "function", "function", call);
    if (!calls || json_object_set_new(m, "tool_calls", calls))
        return af_fail_nomem(err, "a message", 0);
    json_object_del(m, "function_call");
    return AF_OK;
}

/* {"role": [...], "content": [...]}, which `datasets` makes of a Sequence of structs, as turns: a
 * new reference. NULL: it is something else. */
static json_t *turns_of_lists(const af_data_source *s, const json_t *v)
{
    const char *const names[] = {s->field.role, s->field.from};
    const json_t *first = json_object_get(v, names[0]);
    first = first ? first : json_object_get(v, names[1]);
    const size_t n = json_array_size(first);
    const char *key;
    json_t *list, *out = n ? json_array() : NULL;
    for (size_t i = 0; i < n && out; i++)
        json_array_append_new(out, json_object());
    json_object_foreach((json_t *)v, key, list)
    {
        for (size_t i = 0; i < json_array_size(list) && json_array_size(list) == n; i++)
            if (out && json_object_set(json_array_get(out, i), key, json_array_get(list, i))) {
                json_decref(out);
                out = NULL;
            }
    }
    return out;
}

/* JSON text of a field that may also be plain text: turns, each with its role, or NULL. */
static json_t *turns_of_text(const af_data_source *s, const json_t *v)
{
    json_t *list = af_json_text_list(v);
    bool turns = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        turns = turns &&
                ((json_is_string(json_object_get(m, s->field.role)) &&
                  (json_object_get(m, s->field.content) || json_object_get(m, "tool_calls"))) ||
                 (json_is_string(json_object_get(m, s->field.from)) &&
                  json_object_get(m, s->field.value)));
    }
    if (turns)
        return list;
    json_decref(list);
    return NULL;
}

/* Lists of turns as JSON text, or apart. */
static bool open_turns(const af_data_source *s, json_t *record)
{
    const af_fields *f = &s->field;
    const char *const fields[] = {f->messages,   f->conversations, f->prompt,
                                  f->completion, f->chosen,        f->rejected};
    bool ok = true;
    for (size_t i = 0; i < AF_LEN(fields); i++) {
        const json_t *v = json_object_get(record, fields[i]);
        json_t *list = i < 2 ? af_json_text_list(v) : turns_of_text(s, v);
        list = json_is_object(v) ? turns_of_lists(s, v) : list;
        ok = ok && (!list || !json_object_set_new(record, fields[i], list));
    }
    return ok;
}

/* Whether records may be conversations: of text, a field of that name is text. */
static bool may_have_turns(const af_data_source *s)
{
    return !s->shape_given || s->shape == AF_SHAPE_MESSAGES || s->shape == AF_SHAPE_SHAREGPT ||
           s->shape == AF_SHAPE_PREFERENCE || s->shape == AF_SHAPE_KTO ||
           s->shape == AF_SHAPE_CLASSES;
}

af_status af_record_open_fields(const af_data_source *s, json_t *record, af_error *err)
{
    const bool turns = may_have_turns(s);
    const bool ok =
        open_openai_pair(s, record) && open_answers(s, record) && open_functions(s, record) &&
        (!turns || open_turns(s, record)) && af_record_open_public(s, record) &&
        (!turns || (af_record_open_line_calls(s, record) && af_record_open_vendor(s, record)));
    return ok && !af_memory_failed() ? AF_OK : af_fail_nomem(err, "a record", 0);
}
