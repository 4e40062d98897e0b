/* json_fields.c - records whose values are not where the shapes look for them: turns as JSON text
 * (columns of tables, CSV), functions and their calls in the words of OpenAI's first API, and the
 * pairs of its fine-tuning. */
#include "data/shape/shape.h"

#include "format/text/json_text.h"

json_t *af_json_text_list(const json_t *v)
{
    const char *s = json_string_value(v);
    json_error_t why;
    if (!s || s[strspn(s, " \t\r\n")] != '[')
        return NULL;
    json_t *list = af_json_load(s, json_string_length(v), JSON_ALLOW_NUL, &why);
    if (!json_is_array(list)) {
        json_decref(list);
        return NULL;
    }
    return list;
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

/* Whether records may be conversations: of text, a field of that name is text. */
static bool may_have_turns(const af_data_source *s)
{
    return !s->shape_given || s->shape == AF_SHAPE_MESSAGES || s->shape == AF_SHAPE_SHAREGPT ||
           s->shape == AF_SHAPE_PREFERENCE || s->shape == AF_SHAPE_KTO ||
           s->shape == AF_SHAPE_CLASSES;
}

af_status af_record_open_fields(const af_data_source *s, json_t *record, af_error *err)
{
    const char *const turns[] = {s->field.messages, s->field.conversations};
    bool ok = open_openai_pair(s, record) && open_functions(s, record) &&
              af_record_open_public(s, record);
    if (ok && may_have_turns(s)) {
        for (size_t i = 0; i < AF_LEN(turns); i++) {
            json_t *list = af_json_text_list(json_object_get(record, turns[i]));
            ok = ok && (!list || !json_object_set_new(record, turns[i], list));
        }
        ok = ok && af_record_open_vendor(s, record);
    }
    return ok ? AF_OK : af_fail_nomem(err, "a record", 0);
}
