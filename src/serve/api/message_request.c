/* message_request.c - the body of /v1/messages as the body of a chat completion.
 *
 * Blocks become parts of messages, and turns of one role in a row become one message, as the API
 * says and templates need. Results of tools become messages of their own. Of the tools, those with
 * a schema remain; the ones that a provider runs or defines (web search, bash and the like) are
 * not offered to the model. */
#include "serve/api/messages.h"

/* ---- turns ---- */

/* The last message when it is of this role, or else a new one. */
static json_t *turn_of(json_t *messages, const char *role)
{
    const size_t n = json_array_size(messages);
    json_t *last = n ? json_array_get(messages, n - 1) : NULL;
    if (last && af_is_word(json_object_get(last, "role"), role))
        return last;
    json_array_append_new(messages, json_pack("{s:s, s:[]}", "role", role, "content"));
    return json_array_get(messages, n);
}

static void add_part(json_t *messages, const char *role, json_t *part)
{
    json_array_append(json_object_get(turn_of(messages, role), "content"), part);
}

static af_status bad_block(size_t at, const char *what, af_error *err)
{
    return af_fail_subject(err, AF_EUSAGE, "messages", "message %zu has %s", at, what);
}

/* What the model thought: templates decide whether it is part of a later prompt. A list until all
 * of it is there. */
static void add_thinking(json_t *messages, const json_t *block)
{
    json_t *turn = turn_of(messages, "assistant"), *text = json_object_get(block, "thinking");
    if (!json_object_get(turn, "reasoning_content"))
        json_object_set_new(turn, "reasoning_content", json_array());
    if (json_is_string(text))
        json_array_append(json_object_get(turn, "reasoning_content"), text);
}

static void join_thinking(json_t *turn)
{
    const json_t *list = json_object_get(turn, "reasoning_content");
    af_buf b = {0};
    for (size_t i = 0; i < json_array_size(list); i++)
        af_buf_add(&b, json_string_value(json_array_get(list, i)),
                   json_string_length(json_array_get(list, i)));
    if (list)
        json_object_set_new(turn, "reasoning_content", json_stringn(b.data ? b.data : "", b.len));
    af_buf_clear(&b);
}

static af_status add_call(json_t *messages, const json_t *block, size_t at, af_error *err)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
           *input = json_object_get(block, "input"), *turn = turn_of(messages, "assistant");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input))
        return bad_block(at, "a tool_use without 'id', 'name' or 'input'", err);
    if (!json_object_get(turn, "tool_calls"))
        json_object_set_new(turn, "tool_calls", json_array());
    json_array_append_new(json_object_get(turn, "tool_calls"),
                          json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function",
                                    "function", "name", name, "arguments", input));
    return AF_OK;
}

static af_status add_result(json_t *messages, const json_t *block, size_t at, af_error *err)
{
    json_t *id = json_object_get(block, "tool_use_id"), *content = af_value(block, "content");
    if (!json_is_string(id) || (content && !json_is_string(content) && !json_is_array(content)))
        return bad_block(at,
                         "a tool_result without 'tool_use_id', or with another 'content' than "
                         "a text or blocks",
                         err);
    json_t *message = json_pack("{s:s, s:O}", "role", "tool", "tool_call_id", id);
    json_object_set_new(message, "content", content ? json_incref(content) : json_string(""));
    json_array_append_new(messages, message);
    return AF_OK;
}

static af_status add_block(json_t *messages, const char *role, json_t *block, size_t at,
                           af_error *err)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    if (!type)
        return bad_block(at, "a block without 'type'", err);
    const bool assistant = strcmp(role, "assistant") == 0;
    if (assistant && strcmp(type, "tool_use") == 0)
        return add_call(messages, block, at, err);
    if (!assistant && strcmp(type, "tool_result") == 0)
        return add_result(messages, block, at, err);
    if (assistant && strcmp(type, "thinking") == 0)
        add_thinking(messages, block);
    else if (!assistant || strcmp(type, "redacted_thinking") != 0)
        add_part(messages, role, block); /* not a text: refused when parts are joined */
    return AF_OK;
}

static af_status add_message(json_t *messages, const json_t *message, size_t at, af_error *err)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *content = json_object_get(message, "content");
    af_status st = AF_OK;
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 &&
                  strcmp(role, "system") != 0))
        return bad_block(at, "a 'role' that is not user, assistant or system", err);
    if (!json_is_string(content) && !json_is_array(content))
        return bad_block(at, "no 'content'", err);
    /* templates take one system message, the first: later ones are said in the user's turn */
    const bool begun =
        json_array_size(messages) > 1 ||
        (json_array_size(messages) == 1 &&
         !af_is_word(json_object_get(json_array_get(messages, 0), "role"), "system"));
    if (strcmp(role, "system") == 0 && begun)
        role = "user";
    if (json_is_string(content))
        add_part(messages, role, content);
    for (size_t i = 0; st == AF_OK && i < json_array_size(content); i++)
        st = add_block(messages, role, json_array_get(content, i), at, err);
    return st;
}

/* A line of accounts that some agents put first: another one with every request, so that no prompt
 * would begin as the one before it. */
static bool is_accounting(const json_t *part)
{
    static const char mark[] = "x-anthropic-billing-header:";
    const char *text = json_string_value(json_object_get(part, "text"));
    return text && strncmp(text, mark, sizeof mark - 1) == 0;
}

static af_status make_messages(const json_t *body, json_t *chat, af_error *err)
{
    af_status st = AF_OK;
    json_t *list = NULL, *system = af_value(body, "system"), *messages = json_array();
    if (system && !json_is_string(system) && !json_is_array(system))
        AF_TRY(af_fail_subject(err, AF_EUSAGE, "system", "'system' is not a text or blocks"));
    if (json_is_string(system) && json_string_length(system) > 0)
        add_part(messages, "system", system);
    for (size_t i = 0; i < json_array_size(system); i++)
        if (!is_accounting(json_array_get(system, i)))
            add_part(messages, "system", json_array_get(system, i));
    AF_TRY(af_value_type(body, "messages", JSON_ARRAY, &list, err));
    if (json_array_size(list) == 0)
        AF_TRY(af_fail_subject(err, AF_EUSAGE, "messages", "'messages' is empty or absent"));
    for (size_t i = 0; i < json_array_size(list); i++)
        AF_TRY(add_message(messages, json_array_get(list, i), i, err));
    for (size_t i = 0; i < json_array_size(messages); i++)
        join_thinking(json_array_get(messages, i));
    json_object_set(chat, "messages", messages);
    /* an answer that the request begins */
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (af_is_word(json_object_get(last, "role"), "assistant") &&
        !json_object_get(last, "tool_calls"))
        json_object_set_new(chat, "continue_final_message", json_true());
done:
    json_decref(messages);
    return st;
}

/* ---- tools ---- */

static af_status read_tools(const json_t *body, json_t *chat, af_error *err)
{
    json_t *tools = NULL, *list = NULL;
    const af_status st = af_value_type(body, "tools", JSON_ARRAY, &tools, err);
    if (st != AF_OK || !tools)
        return st;
    list = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i), *name = json_object_get(tool, "name");
        json_t *type = af_value(tool, "type");
        if (type && !af_is_word(type, "custom"))
            continue;
        if (!json_is_string(name)) {
            json_decref(list);
            return af_fail_subject(err, AF_EUSAGE, "tools", "tool %zu has no 'name'", i);
        }
        json_t *function = json_pack("{s:O}", "name", name);
        if (af_value(tool, "description"))
            json_object_set(function, "description", af_value(tool, "description"));
        if (af_value(tool, "input_schema"))
            json_object_set(function, "parameters", af_value(tool, "input_schema"));
        json_array_append_new(list,
                              json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    json_object_set_new(chat, "tools", list);
    return AF_OK;
}

static af_status read_tool_choice(const json_t *body, json_t *chat, af_error *err)
{
    static const char field[] = "tool_choice";
    json_t *choice = NULL;
    bool single = false;
    af_status st = AF_OK;
    AF_TRY(af_value_type(body, field, JSON_OBJECT, &choice, err));
    if (!choice)
        return AF_OK;
    const json_t *type = json_object_get(choice, "type"), *name = json_object_get(choice, "name");
    AF_TRY(af_value_bool(choice, "disable_parallel_tool_use", &single, err));
    json_object_set_new(chat, "parallel_tool_calls", json_boolean(!single));
    if (af_is_word(type, "tool") && json_is_string(name))
        json_object_set_new(
            chat, field, json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
    else if (af_is_word(type, "auto") || af_is_word(type, "none"))
        json_object_set_new(chat, field, json_string(json_string_value(type)));
    else if (af_is_word(type, "any"))
        json_object_set_new(chat, field, json_string("required"));
    else
        AF_TRY(
            af_fail_subject(err, AF_EUSAGE, field,
                            "'tool_choice' is not of type auto, any, none, or tool with 'name'"));
done:
    return st;
}

/* ---- fields ---- */

/* Thinking comes as blocks when it is on; templates that can leave it out know one of two names. */
static af_status read_thinking(const json_t *body, json_t *chat, af_error *err)
{
    json_t *thinking = NULL;
    const af_status st = af_value_type(body, "thinking", JSON_OBJECT, &thinking, err);
    if (st != AF_OK || !thinking)
        return st;
    const json_t *type = json_object_get(thinking, "type");
    const bool off = af_is_word(type, "disabled");
    if (!off && !af_is_word(type, "enabled") && !af_is_word(type, "adaptive"))
        return af_fail_subject(err, AF_EUSAGE, "thinking",
                               "'thinking' is not of type enabled, adaptive or disabled");
    if (!off && !af_value(chat, "reasoning_format"))
        json_object_set_new(chat, "reasoning_format", json_string("auto"));
    if (!af_is_word(type, "adaptive") && !af_value(chat, "chat_template_kwargs"))
        json_object_set_new(chat, "chat_template_kwargs",
                            json_pack("{s:b, s:b}", "enable_thinking", !off, "thinking", !off));
    return AF_OK;
}

/* "output_config": {"format": {"type": "json_schema", "schema"}, "effort"}; its older
 * "output_format". */
static af_status read_format(const json_t *body, json_t *chat, af_error *err)
{
    json_t *config = NULL, *format = NULL, *old = NULL;
    af_status st = AF_OK;
    AF_TRY(af_value_type(body, "output_config", JSON_OBJECT, &config, err));
    AF_TRY(af_value_type(config, "format", JSON_OBJECT, &format, err));
    AF_TRY(af_value_type(body, "output_format", JSON_OBJECT, &old, err));
    if (format || old)
        json_object_set(chat, "response_format", format ? format : old);
    if (af_value(config, "effort"))
        json_object_set(chat, "reasoning_effort", af_value(config, "effort"));
done:
    return st;
}

static af_status refuse_others(const json_t *body, af_error *err)
{
    static const char *const absent[] = {"container", "mcp_servers"};
    for (size_t i = 0; i < AF_LEN(absent); i++) {
        const json_t *v = af_value(body, absent[i]);
        if (v && !(json_is_array(v) && json_array_size(v) == 0))
            return af_fail_subject(err, AF_EUNSUPPORTED, absent[i], "'%s' is not supported",
                                   absent[i]);
    }
    return AF_OK;
}

af_status af_message_read(af_generation *g, const json_t *body, json_t **chat, af_api_fault *f)
{
    af_status st = AF_OK;
    af_error *err = &f->err;
    json_t *stops = NULL, *to = json_object();
    (void)g;
    AF_TRY(refuse_others(body, err));
    AF_TRY(make_messages(body, to, err));
    AF_TRY(read_tools(body, to, err));
    AF_TRY(read_format(body, to, err));
    af_copy_fields(body, to);
    AF_TRY(read_tool_choice(body, to, err));
    AF_TRY(read_thinking(body, to, err));
    AF_TRY(af_value_type(body, "stop_sequences", JSON_ARRAY, &stops, err));
    if (stops)
        json_object_set(to, "stop", stops);
    if (af_value(body, "max_tokens"))
        json_object_set(to, "max_tokens", json_object_get(body, "max_tokens"));
    AF_TRY(af_memory_check(err));
    *chat = json_incref(to);
done:
    json_decref(to);
    return st;
}
