/* public_records.c - records of public datasets that say in fields of their own what a shape has:
 * a query with calls (xLAM), messages and the answer to them (Nemotron), two answers and which of
 * them is preferred. They become messages, or a pair. */
#define _GNU_SOURCE /* strcasestr */
#include "data/shape/shape.h"

#include "format/text/json_text.h"

#include <strings.h>

static const json_t *get(const json_t *record, const char *field)
{
    const json_t *v = json_object_get(record, field);
    return json_is_null(v) ? NULL : v;
}

static json_t *message(const af_data_source *s, const char *role, const json_t *content)
{
    return json_pack("{s:s, s:O}", s->field.role, role, s->field.content, content);
}

/* --- messages and the answer to them --------------------------------------------------------- */

static bool open_answer(const af_data_source *s, json_t *record)
{
    const json_t *turns = get(record, "input"), *answer = get(record, "output");
    const json_t *system = get(record, "system_prompt");
    if (!json_is_string(answer) || !get(json_array_get(turns, 0), s->field.role))
        return true;
    json_t *list = json_copy((json_t *)turns);
    const bool ok = list && !json_array_append_new(list, message(s, "assistant", answer)) &&
                    (!json_is_string(system) || get(record, s->field.system) ||
                     !json_object_set(record, s->field.system, (json_t *)system));
    return !json_object_set_new(record, s->field.messages, list) && ok;
}

/* A pair of answers as text to a prompt of messages: messages, too. */
static bool open_text_answers(const af_data_source *s, json_t *record)
{
    const char *const answers[] = {s->field.chosen, s->field.rejected};
    bool ok = true;
    if (!get(json_array_get(get(record, s->field.prompt), 0), s->field.role))
        return true;
    for (size_t i = 0; i < AF_LEN(answers); i++) {
        const json_t *v = get(record, answers[i]);
        if (json_is_string(v))
            ok = !json_object_set_new(record, answers[i],
                                      json_pack("[o]", message(s, "assistant", v))) &&
                 ok;
    }
    return ok;
}

/* --- a query and calls ------------------------------------------------------------------------ */

/* What JSON Schema calls a type of Python, of n bytes. */
static const char *schema_type(const char *name, size_t n)
{
    static const char *const types[][2] = {
        {"int", "integer"},   {"integer", "integer"}, {"float", "number"}, {"double", "number"},
        {"number", "number"}, {"bool", "boolean"},    {"list", "array"},   {"boolean", "boolean"},
        {"array", "array"},   {"tuple", "array"},     {"set", "array"},    {"dict", "object"},
        {"object", "object"},
    };
    for (size_t i = 0; i < AF_LEN(types); i++)
        if (strlen(types[i][0]) == n && strncasecmp(types[i][0], name, n) == 0)
            return types[i][1];
    return "string";
}

/* Writes the type of a parameter ("List[int], optional") as JSON Schema does. False: it is optional
 * or memory is short. */
static bool set_type(json_t *parameter)
{
    const char *text = json_string_value(json_object_get(parameter, "type"));
    const char *type = text ? text : "";
    const bool optional = strcasestr(type, "optional") || json_object_get(parameter, "default");
    if (strncasecmp(type, "optional[", 9) == 0)
        type += 9;
    const size_t n = strcspn(type, "[], ");
    const char *schema = schema_type(type, n), *item = type + n + 1;
    if (type[n] == '[' && strcmp(schema, "array") == 0 && item[strcspn(item, "[],")] == ']')
        json_object_set_new(parameter, "items",
                            json_pack("{s:s}", "type", schema_type(item, strcspn(item, "[], "))));
    return !json_object_set_new(parameter, "type", json_string(schema)) && !optional;
}

/* A tool whose parameters are {name: {type, description, default}} as a function of JSON Schema. */
static json_t *schema_tool(const json_t *tool)
{
    const json_t *old = json_object_get(tool, "parameters");
    const char *name;
    json_t *v;
    if (json_object_get(tool, "function"))
        return json_incref((json_t *)tool);
    json_t *function = json_copy((json_t *)tool);
    if (json_is_object(old) && !json_is_object(json_object_get(old, "properties"))) {
        json_t *all = json_object(), *required = json_array();
        json_object_foreach((json_t *)old, name, v)
        {
            json_t *one = json_is_object(v) ? json_copy(v) : json_object();
            if (one && set_type(one))
                json_array_append_new(required, json_string(name));
            json_object_set_new(all, name, one);
        }
        json_object_set_new(function, "parameters",
                            json_pack("{s:s, s:o, s:o}", "type", "object", "properties", all,
                                      "required", required));
    }
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

/* {"query": ..., "tools": ..., "answers": [{"name", "arguments"}]}, lists or JSON text. */
static bool open_calls(const af_data_source *s, json_t *record)
{
    const json_t *query = get(record, "query"), *answers = get(record, "answers");
    const json_t *old = get(record, "tools");
    if (!json_is_string(query) || !answers || !old)
        return true;
    json_t *tools = json_is_array(old) ? json_incref((json_t *)old) : af_json_text_list(old);
    json_t *calls =
        json_is_array(answers) ? json_incref((json_t *)answers) : af_json_text_list(answers);
    json_t *list = json_array(), *empty = json_string(""), *schemas = json_array();
    const bool none = calls && json_array_size(calls) == 0; /* no tool serves */
    bool ok = !json_array_append_new(list, message(s, "user", query)) &&
              !json_array_append_new(list, none ? message(s, "assistant", empty)
                                                : message(s, AF_ROLE_CALL, answers));
    for (size_t i = 0; i < json_array_size(tools); i++)
        ok = !json_array_append_new(schemas, schema_tool(json_array_get(tools, i))) && ok;
    ok = !json_object_set(record, s->field.messages, list) && ok;
    if (tools)
        ok = !json_object_set(record, s->field.tools, schemas) && ok;
    json_decref(tools);
    json_decref(calls);
    json_decref(list);
    json_decref(empty);
    json_decref(schemas);
    return ok;
}

/* --- two answers ------------------------------------------------------------------------------ */

typedef struct judged_layout {
    const char *prompt;  /* NULL: as in other pairs */
    const char *side[2]; /* texts, messages, or whole conversations */
    const char *verdict; /* NULL: the first is preferred */
    const char *word[2]; /* verdicts by name */
    bool sign;           /* negative: the first, positive: the second; else 0 and 1 */
} judged_layout;

static const judged_layout judged[] = {
    /* HelpSteer3 and 2, PKU-SafeRLHF, SHP, LMArena, When2Call */
    {.prompt = "context",
     .side = {"response1", "response2"},
     .verdict = "overall_preference",
     .sign = true},
    {.prompt = "prompt",
     .side = {"response_1", "response_2"},
     .verdict = "preference_strength",
     .sign = true},
    {.prompt = "prompt", .side = {"response_0", "response_1"}, .verdict = "better_response_id"},
    {.prompt = "history", .side = {"human_ref_B", "human_ref_A"}, .verdict = "labels"},
    {.side = {"conversation_a", "conversation_b"},
     .verdict = "winner",
     .word = {"model_a", "model_b"}},
    {.side = {"chosen_response", "rejected_response"}},
};

/* The side that is preferred; -1: none. */
static int preferred(const judged_layout *l, const json_t *record)
{
    const json_t *v = l->verdict ? get(record, l->verdict) : NULL;
    const char *word = json_string_value(v);
    const double x = json_number_value(v);
    if (!l->verdict)
        return 0;
    for (int i = 0; i < 2; i++)
        if (word ? l->word[i] && strcmp(word, l->word[i]) == 0
                 : json_is_number(v) && (l->sign ? (i ? x > 0 : x < 0) : x == i))
            return i;
    return -1;
}

static bool open_judged(const af_data_source *s, const judged_layout *l, json_t *record)
{
    const char *const to[2] = {s->field.chosen, s->field.rejected};
    const json_t *prompt = l->prompt ? get(record, l->prompt) : NULL;
    const bool chat = prompt || json_is_array(get(record, s->field.messages));
    const int first = preferred(l, record);
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        const json_t *v = get(record, l->side[first > 0 ? 1 - i : i]);
        json_t *side = first < 0                   ? json_null()
                       : json_is_string(v) && chat ? message(s, "assistant", v)
                                                   : json_incref((json_t *)v);
        ok = !json_object_set_new(record, to[i], side) && ok;
    }
    if (!prompt)
        return ok;
    json_t *turns = json_is_string(prompt) ? json_pack("[o]", message(s, "user", prompt))
                                           : json_incref((json_t *)prompt);
    return !json_object_set_new(record, s->field.prompt, turns) && ok;
}

static bool open_pair(const af_data_source *s, json_t *record)
{
    for (size_t i = 0; i < AF_LEN(judged); i++) {
        const judged_layout *l = &judged[i];
        if (get(record, l->side[0]) && get(record, l->side[1]) &&
            (!l->prompt || get(record, l->prompt)) &&
            (!l->verdict || json_object_get(record, l->verdict)))
            return open_judged(s, l, record);
    }
    return true;
}

/* --- all -------------------------------------------------------------------------------------- */

const char *const af_public_columns[] = {
    "query",    "answers",           "input",      "output", "system_prompt",
    "contents", "systemInstruction", "toolConfig", "chat",   NULL};

/* A field that the run file names is read as what it names. */
static bool is_named(const af_data_source *s, const char *column)
{
    const af_fields *f = &s->field;
    const char *const names[] = {f->instruction, f->prompt, f->completion, f->text, f->output};
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i], column) == 0)
            return true;
    return false;
}

bool af_record_open_public(const af_data_source *s, json_t *record)
{
    const bool own = s->prompt || s->form || s->listed; /* the entry says how records are read */
    const bool turns = !s->shape_given || s->shape == AF_SHAPE_MESSAGES;
    const bool pairs = !s->shape_given || s->shape == AF_SHAPE_PREFERENCE;
    if (own)
        return true;
    if (!open_text_answers(s, record))
        return false;
    if (json_object_get(record, s->field.chosen) || json_object_get(record, s->field.rejected))
        return true;
    if (pairs && !open_pair(s, record))
        return false;
    if (!turns || json_object_get(record, s->field.messages) ||
        json_object_get(record, s->field.conversations))
        return true;
    return open_answer(s, record) && af_record_open_glaive(s, record) &&
           (is_named(s, "query") || is_named(s, "answers") || open_calls(s, record));
}
