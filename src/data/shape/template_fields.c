/* template_fields.c - what a record has for the chat template besides messages: tools and further
 * variables. */
#include "data/shape/shape.h"
#include "format/text/json_text.h"

/* Tools that are JSON text themselves, in a list of texts, become objects. */
static af_status open_tools(json_t **tools, const char *field, const af_source_loc *p,
                            af_error *err)
{
    if (!json_is_string(json_array_get(*tools, 0)))
        return AF_OK;
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(*tools); i++) {
        const json_t *v = json_array_get(*tools, i);
        json_t *tool = af_json_load(json_is_string(v) ? json_string_value(v) : "",
                                    json_string_length(v), JSON_ALLOW_NUL, NULL);
        if (!tool || !out || json_array_append_new(out, tool)) {
            json_decref(out);
            return af_source_loc_fail(p, err, "field \"%s\": tool %zu is not valid JSON", field,
                                      i + 1);
        }
    }
    json_decref(*tools);
    *tools = out;
    return AF_OK;
}

static af_status take_tools(af_conversation *t, const af_data_source *s, const json_t *record,
                            const af_source_loc *p, af_error *err)
{
    json_t *v = json_object_get(record, s->field.tools);
    if (!v || json_is_null(v))
        return AF_OK;
    if (json_is_string(v)) {
        json_error_t why;
        if (json_string_length(v) == 0)
            return AF_OK;
        t->tools = af_json_load(json_string_value(v), json_string_length(v), JSON_ALLOW_NUL, &why);
        if (!t->tools)
            return af_source_loc_fail(p, err, "field \"%s\" is a string that is not valid JSON",
                                      s->field.tools);
    } else {
        t->tools = json_incref(v);
    }
    if (!json_is_array(t->tools))
        return af_source_loc_fail(p, err, "field \"%s\" should be a list, got %s", s->field.tools,
                                  af_type_words(t->tools));
    return open_tools(&t->tools, s->field.tools, p, err);
}

static af_status take_variables(af_conversation *t, const json_t *record, const af_source_loc *p,
                                af_error *err)
{
    static const char *const ours[] = {"messages", "tools", "add_generation_prompt",
                                       "continue_final_message"};
    json_t *v = json_object_get(record, AF_TEMPLATE_VARIABLES);
    if (!v || json_is_null(v))
        return AF_OK;
    if (!json_is_object(v))
        return af_field_wrong_type(AF_TEMPLATE_VARIABLES, v, "an object", p, err);
    for (size_t i = 0; i < AF_LEN(ours); i++)
        if (json_object_get(v, ours[i]))
            return af_source_loc_fail(p, err, "\"%s\" cannot be set in \"%s\"", ours[i],
                                      AF_TEMPLATE_VARIABLES);
    t->variables = json_incref(v);
    return AF_OK;
}

/* "enable_thinking" of verl, where the variables do not have it. */
static af_status take_thinking(af_conversation *t, const json_t *record, af_error *err)
{
    json_t *v = json_object_get(record, AF_ENABLE_THINKING);
    if (!json_is_boolean(v) || json_object_get(t->variables, AF_ENABLE_THINKING))
        return AF_OK;
    json_t *own = t->variables ? json_copy(t->variables) : json_object();
    json_decref(t->variables);
    t->variables = own;
    return own && !json_object_set(own, AF_ENABLE_THINKING, v)
               ? AF_OK
               : af_fail_nomem(err, AF_ENABLE_THINKING, 0);
}

af_status af_template_fields_take(af_conversation *t, const af_data_source *s, const json_t *record,
                                  const af_source_loc *p, af_error *err)
{
    af_status st = take_tools(t, s, record, p, err);
    if (st == AF_OK)
        st = take_variables(t, record, p, err);
    return st == AF_OK ? take_thinking(t, record, err) : st;
}
