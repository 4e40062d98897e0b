/* vendor_records.c - conversations as the APIs and tuning services of vendors have them: blocks of
 * Anthropic's messages, those of Bedrock, contents of Gemini. Calls become tool_calls, results
 * messages of a tool, thoughts reasoning_content. What is not known here stays a part, and a
 * template that shows only text refuses it. */
#include "data/shape/shape.h"

#include "base/buf.h"
#include "format/text/json_text.h"

#include <strings.h>

typedef struct block_reader {
    const af_data_source *s;
    json_t *out;             /* messages */
    json_t *parts, *calls;   /* of the message that is read */
    af_buf thought;          /* of it */
    size_t called, answered; /* calls and results without an id so far */
    bool bad;                /* memory is short */
} block_reader;

static json_t *get(const json_t *v, const char *name)
{
    json_t *found = json_object_get(v, name);
    return json_is_null(found) ? NULL : found;
}

static bool is_type(const json_t *block, const char *type)
{
    const char *name = json_string_value(get(block, "type"));
    return name && strcmp(name, type) == 0;
}

/* --- blocks ---------------------------------------------------------------------------------- */

/* Vendors whose calls have no ids answer them in order. Nine letters and digits, as Mistral's
 * templates want. */
static json_t *id_or_next(const json_t *id, size_t *count)
{
    char next[32];
    if (json_is_string(id))
        return json_incref((json_t *)id);
    snprintf(next, sizeof next, "call%05zu", (*count)++);
    return json_string(next);
}

/* Adds a call of a tool; false when the block has no name, so that it is not a call. */
static bool add_call(block_reader *r, const json_t *id, const json_t *name, json_t *arguments)
{
    if (!json_is_string(name))
        return false;
    json_t *none = arguments ? NULL : json_object();
    json_t *call =
        json_pack("{s:o, s:s, s:{s:O, s:O}}", "id", id_or_next(id, &r->called), "type", "function",
                  "function", "name", name, "arguments", arguments ? arguments : none);
    json_decref(none);
    r->bad |= json_array_append_new(r->calls, call) != 0;
    return true;
}

static json_t *text_part(const json_t *text)
{
    return json_pack("{s:s, s:O}", "type", "text", "text", text);
}

static json_t *json_as_text(const json_t *v)
{
    char *text = af_json_dump(v, JSON_ENCODE_ANY | JSON_COMPACT);
    json_t *out = text ? json_string(text) : NULL;
    free(text);
    return out;
}

/* A text, blocks, or any JSON as text. */
static json_t *result_content(const json_t *v)
{
    if (!v)
        return json_string("");
    if (json_is_string(v))
        return json_incref((json_t *)v);
    if (!json_is_array(v))
        return json_as_text(v);
    json_t *parts = json_array();
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *block = json_array_get(v, i), *json = get(block, "json");
        json_t *text = json ? json_as_text(json) : json_incref(get(block, "text"));
        json_array_append_new(parts, json_is_string(text) ? text_part(text)
                                                          : json_incref((json_t *)block));
        json_decref(text);
    }
    return parts;
}

static void add_result(block_reader *r, const json_t *id, const json_t *name, const json_t *content)
{
    json_t *m =
        json_pack("{s:s, s:o, s:o}", r->s->field.role, "tool", "tool_call_id",
                  id_or_next(id, &r->answered), r->s->field.content, result_content(content));
    if (json_is_string(name))
        r->bad |= json_object_set(m, "name", (json_t *)name) != 0;
    r->bad |= json_array_append_new(r->out, m) != 0;
}

static void add_part(block_reader *r, const json_t *block)
{
    const json_t *text = get(block, "text");
    json_t *part = json_is_string(text) && !get(block, "type") ? text_part(text)
                                                               : json_incref((json_t *)block);
    r->bad |= json_array_append_new(r->parts, part) != 0;
}

static bool read_call(block_reader *r, const json_t *b)
{
    const json_t *use = get(b, "toolUse"), *call = get(b, "functionCall");
    if (is_type(b, "tool_use"))
        return add_call(r, get(b, "id"), get(b, "name"), get(b, "input"));
    return use ? add_call(r, get(use, "toolUseId"), get(use, "name"), get(use, "input"))
               : add_call(r, get(call, "id"), get(call, "name"), get(call, "args"));
}

static bool read_result(block_reader *r, const json_t *b)
{
    const json_t *result = get(b, "toolResult"), *response = get(b, "functionResponse");
    if (is_type(b, "tool_result"))
        add_result(r, get(b, "tool_use_id"), NULL, get(b, "content"));
    else if (result)
        add_result(r, get(result, "toolUseId"), NULL, get(result, "content"));
    else if (response)
        add_result(r, get(response, "id"), get(response, "name"), get(response, "response"));
    return is_type(b, "tool_result") || result || response;
}

static bool read_thought(block_reader *r, const json_t *b)
{
    const json_t *reason = get(get(get(b, "reasoningContent"), "reasoningText"), "text");
    const json_t *text = is_type(b, "thinking")            ? get(b, "thinking")
                         : json_is_true(get(b, "thought")) ? get(b, "text")
                                                           : reason;
    if (json_is_string(text))
        af_buf_add(&r->thought, json_string_value(text), json_string_length(text));
    return json_is_string(text) || is_type(b, "redacted_thinking");
}

static void read_block(block_reader *r, const json_t *b)
{
    if (!read_call(r, b) && !read_result(r, b) && !read_thought(r, b))
        add_part(r, b);
}

/* --- messages -------------------------------------------------------------------------------- */

/* What is left of a message after its results; nothing where that was all. */
static void add_message(block_reader *r, const json_t *m, const char *role, const char *blocks)
{
    const json_t *list = json_object_get(m, blocks);
    json_t *copy = json_copy((json_t *)m), *parts = r->parts = json_array();
    json_t *calls = r->calls = json_array();
    r->thought.len = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        read_block(r, json_array_get(list, i));
    json_object_del(copy, blocks);
    json_t *text = get(json_array_get(parts, 0), "text");
    if (json_array_size(parts) == 0)
        r->bad |= json_object_set_new(copy, r->s->field.content, json_string("")) != 0;
    else
        r->bad |= json_object_set(copy, r->s->field.content,
                                  json_array_size(parts) == 1 && text ? text : parts) != 0;
    if (role)
        r->bad |= json_object_set_new(copy, r->s->field.role, json_string(role)) != 0;
    if (json_array_size(calls))
        r->bad |= json_object_set(copy, "tool_calls", calls) != 0;
    if (r->thought.len)
        r->bad |= json_object_set_new(copy, "reasoning_content",
                                      json_stringn(r->thought.data, r->thought.len)) != 0;
    if (json_array_size(parts) || json_array_size(calls) || r->thought.len ||
        !json_array_size(list))
        r->bad |= json_array_append(r->out, copy) != 0;
    json_decref(copy);
    json_decref(parts);
    json_decref(calls);
}

/* Whether a list has a block that only vendors write. */
static bool has_blocks(const json_t *list)
{
    static const char *const types[] = {"tool_use", "tool_result", "thinking", "redacted_thinking"};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *b = json_array_get(list, i);
        for (size_t k = 0; k < AF_LEN(types); k++)
            if (is_type(b, types[k]))
                return true;
        if (json_is_object(b) && !get(b, "type") &&
            (get(b, "text") || get(b, "toolUse") || get(b, "toolResult")))
            return true;
    }
    return false;
}

static bool open_blocks(const af_data_source *s, json_t *record, const char *field)
{
    const json_t *turns = json_object_get(record, field);
    bool any = false;
    for (size_t i = 0; i < json_array_size(turns) && !any; i++)
        any = has_blocks(json_object_get(json_array_get(turns, i), s->field.content));
    if (!any)
        return true;
    block_reader r = {.s = s, .out = json_array()};
    for (size_t i = 0; i < json_array_size(turns); i++) {
        const json_t *m = json_array_get(turns, i);
        if (json_is_array(json_object_get(m, s->field.content)))
            add_message(&r, m, NULL, s->field.content);
        else
            r.bad |= json_array_append(r.out, (json_t *)m) != 0;
    }
    af_buf_clear(&r.thought);
    return !json_object_set_new(record, field, r.out) && !r.bad && !r.thought.bad;
}

static bool open_contents(const af_data_source *s, json_t *record)
{
    const json_t *contents = get(record, "contents");
    if (!json_is_array(get(json_array_get(contents, 0), "parts")) ||
        json_object_get(record, s->field.messages))
        return true;
    block_reader r = {.s = s, .out = json_array()};
    for (size_t i = 0; i < json_array_size(contents); i++) {
        const json_t *m = json_array_get(contents, i);
        const char *role = json_string_value(get(m, "role"));
        const bool model = role && strcmp(role, "model") == 0;
        if (json_is_array(get(m, "parts")))
            add_message(&r, m, model ? "assistant" : role ? NULL : "user", "parts");
        else
            r.bad |= json_array_append(r.out, (json_t *)m) != 0; /* refused as a message */
    }
    af_buf_clear(&r.thought);
    return !json_object_set_new(record, s->field.messages, r.out) && !r.bad && !r.thought.bad;
}

/* --- system text and tools ------------------------------------------------------------------- */

static bool open_system(const af_data_source *s, json_t *record)
{
    const json_t *gemini = get(record, "systemInstruction");
    const json_t *list = gemini ? get(gemini, "parts") : get(record, s->field.system);
    af_buf b = {0};
    bool texts = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *text = get(json_array_get(list, i), "text");
        texts = texts && json_is_string(text);
        if (i)
            af_buf_char(&b, '\n');
        if (texts)
            af_buf_add(&b, json_string_value(text), json_string_length(text));
    }
    const bool ok = !texts || (!b.bad && !json_object_set_new(record, s->field.system,
                                                              json_stringn(b.data, b.len)));
    af_buf_clear(&b);
    return ok;
}

/* Gemini writes the types of JSON Schema in capitals. */
static void lower_types(json_t *schema)
{
    static const char *const types[] = {"string", "number", "integer", "boolean",
                                        "array",  "object", "null"};
    const char *key, *type = json_string_value(json_object_get(schema, "type"));
    json_t *v;
    size_t i;
    for (i = 0; type && i < AF_LEN(types); i++)
        if (strcasecmp(type, types[i]) == 0) {
            json_object_set_new(schema, "type", json_string(types[i]));
            break;
        }
    json_object_foreach(schema, key, v) lower_types(v);
    json_array_foreach(schema, i, v) lower_types(v);
}

/* Takes the schema. */
static void add_tool(json_t *out, const json_t *tool, json_t *schema)
{
    json_t *f = json_pack("{s:O}", "name", json_object_get(tool, "name"));
    if (get(tool, "description"))
        json_object_set(f, "description", get(tool, "description"));
    if (schema)
        json_object_set_new(f, "parameters", schema);
    json_array_append_new(out, json_pack("{s:s, s:o}", "type", "function", "function", f));
}

static bool is_tool(const json_t *v) { return json_is_string(get(v, "name")); }

static bool are_tools(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!is_tool(json_array_get(list, i)))
            return false;
    return json_array_size(list) > 0;
}

static bool open_tools(const af_data_source *s, json_t *record)
{
    const json_t *bedrock = get(get(record, "toolConfig"), "tools");
    const json_t *list = bedrock ? bedrock : get(record, s->field.tools);
    json_t *out = json_array();
    bool any = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *t = json_array_get(list, i), *spec = get(t, "toolSpec");
        const json_t *many = get(t, "functionDeclarations");
        many = are_tools(many) ? many : NULL;
        const bool anthropic = is_tool(t) && get(t, "input_schema");
        any |= is_tool(spec) || many || anthropic;
        for (size_t k = 0; k < json_array_size(many); k++) {
            const json_t *f = json_array_get(many, k);
            json_t *schema = json_deep_copy(get(f, "parameters"));
            lower_types(schema);
            add_tool(out, f, schema);
        }
        if (is_tool(spec))
            add_tool(out, spec, json_incref(get(get(spec, "inputSchema"), "json")));
        else if (anthropic)
            add_tool(out, t, json_incref(get(t, "input_schema")));
        else if (!many)
            json_array_append(out, (json_t *)t);
    }
    const bool ok = !any || !json_object_set(record, s->field.tools, out);
    json_decref(out);
    return ok;
}

bool af_record_open_vendor(const af_data_source *s, json_t *record)
{
    return open_contents(s, record) && open_blocks(s, record, s->field.messages) &&
           open_system(s, record) && open_tools(s, record);
}
