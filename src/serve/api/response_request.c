/* response_request.c - the body of /v1/responses as the body of a chat completion.
 *
 * Items become messages: a call joins the assistant's message before it, as chat templates expect,
 * and instructions and system messages at the beginning become one. Of the tools, functions remain;
 * those that a provider would run itself (web search and the like) are not offered to the model,
 * and the answer's "tools" says so. */
#include "serve/api/responses.h"

#include "format/text/json_text.h"

void af_response_free(af_response *r)
{
    if (!r)
        return;
    free(r->echo);
    free(r->items);
    af_buf_clear(&r->logprobs);
    free(r);
}

/* ---- items to messages ---- */

static json_t *last_of(const json_t *list)
{
    const size_t n = json_array_size(list);
    return n ? json_array_get(list, n - 1) : NULL;
}

/* The content of a system message; NULL: the item is something else. */
static json_t *system_content(const json_t *item)
{
    const json_t *type = json_object_get(item, "type"), *role = json_object_get(item, "role");
    json_t *content = json_object_get(item, "content");
    const bool is_message = !type || af_is_word(type, "message");
    const bool has_text = json_is_string(content) || json_is_array(content);
    return is_message && has_text && (af_is_word(role, "system") || af_is_word(role, "developer"))
               ? content
               : NULL;
}

/* Instructions and the system messages that follow them, as the one that templates take. *used is
 * the number of items that are part of it. */
static af_status add_system(json_t *messages, json_t *instructions, const json_t *items,
                            size_t *used, af_error *err)
{
    json_t *parts = json_array(), *all = NULL;
    af_status st = AF_OK;
    if (instructions && json_string_length(instructions) > 0)
        json_array_append(parts, instructions);
    for (*used = 0; *used < json_array_size(items); ++*used) {
        json_t *item = json_array_get(items, *used), *content = system_content(item);
        if (!content && !af_is_word(json_object_get(item, "type"), "reasoning"))
            break;
        if (content && json_array_size(parts) > 0)
            json_array_append_new(parts, json_string("")); /* parts are joined by line ends */
        if (json_is_array(content))
            json_array_extend(parts, content);
        else if (content)
            json_array_append(parts, content);
    }
    if (json_array_size(parts) > 0) {
        AF_TRY(af_join_parts(parts, &all, err));
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", all));
    }
done:
    json_decref(parts);
    json_decref(all);
    return st;
}

static af_status add_message(json_t *messages, const json_t *item, size_t at, af_error *err)
{
    const json_t *role = json_object_get(item, "role");
    json_t *content = json_object_get(item, "content");
    if (!json_is_string(role) || (!json_is_string(content) && !json_is_array(content)))
        return af_fail_subject(err, AF_EUSAGE, "input",
                               "item %zu is a message without 'role' or without 'content'", at);
    json_array_append_new(messages, json_pack("{s:O, s:O}", "role", role, "content", content));
    return AF_OK;
}

static af_status add_call(json_t *messages, const json_t *item, size_t at, af_error *err)
{
    const bool custom = af_is_word(json_object_get(item, "type"), "custom_tool_call");
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name"),
           *given = json_object_get(item, custom ? "input" : "arguments"),
           *last = last_of(messages);
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(given))
        return af_fail_subject(
            err, AF_EUSAGE, "input", "item %zu is a %s without 'call_id', 'name' or '%s'", at,
            custom ? "custom_tool_call" : "function_call", custom ? "input" : "arguments");
    if (!last || !af_is_word(json_object_get(last, "role"), "assistant")) {
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
        last = last_of(messages);
    }
    if (!json_object_get(last, "tool_calls"))
        json_object_set_new(last, "tool_calls", json_array());
    json_array_append_new(
        json_object_get(last, "tool_calls"),
        json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name",
                  name, "arguments",
                  custom ? json_pack("{s:O}", "input", given) : json_incref(given)));
    return AF_OK;
}

static af_status add_output(json_t *messages, const json_t *item, size_t at, af_error *err)
{
    json_t *id = json_object_get(item, "call_id"), *output = json_object_get(item, "output");
    if (!json_is_string(id) || (!json_is_string(output) && !json_is_array(output)))
        return af_fail_subject(err, AF_EUSAGE, "input",
                               "item %zu is a function_call_output without 'call_id' or 'output'",
                               at);
    json_array_append_new(messages, json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", id,
                                              "content", output));
    return AF_OK;
}

/* The text of a reasoning item; NULL when it has none that can be read. */
static json_t *reasoning_text(const json_t *item)
{
    const json_t *content = json_object_get(item, "content");
    json_t *text = json_object_get(json_array_get(content, 0), "text");
    return json_is_string(text) ? text : NULL;
}

/* What the model thought before the answer or call that follows: templates decide whether it is
 * part of a later prompt. */
static void add_reasoning(const json_t *messages, json_t **thought)
{
    json_t *last = last_of(messages);
    if (!*thought || !af_is_word(json_object_get(last, "role"), "assistant"))
        return;
    if (!json_object_get(last, "reasoning_content"))
        json_object_set(last, "reasoning_content", *thought);
    *thought = NULL;
}

/* Those from number `from` on. */
static af_status add_items(json_t *messages, const json_t *items, size_t from, af_error *err)
{
    af_status st = AF_OK;
    json_t *thought = NULL;
    for (size_t i = from; st == AF_OK && i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i), *type = json_object_get(item, "type");
        if (json_is_object(item) && (!type || af_is_word(type, "message")))
            st = add_message(messages, item, i, err);
        else if (af_is_word(type, "function_call") || af_is_word(type, "custom_tool_call"))
            st = add_call(messages, item, i, err);
        else if (af_is_word(type, "function_call_output") ||
                 af_is_word(type, "custom_tool_call_output"))
            st = add_output(messages, item, i, err);
        else if (af_is_word(type, "reasoning"))
            thought = reasoning_text(item);
        else
            st = af_fail_subject(err, AF_EUNSUPPORTED, "input",
                                 "item %zu is of type '%.40s'; messages, calls of functions and "
                                 "custom tools, and their outputs are supported",
                                 i, json_is_string(type) ? json_string_value(type) : "none");
        if (!af_is_word(type, "reasoning"))
            add_reasoning(messages, &thought);
    }
    return st;
}

/* ---- the conversation ---- */

/* The items of the answer that this one continues. */
static af_status add_previous(const af_api *a, json_t *items, const char *id, af_api_fault *f)
{
    static const char field[] = "previous_response_id";
    char *text = af_response_store_get(a->responses, id, AF_STORED_ITEMS);
    af_buf list = {0};
    if (!text) {
        f->status = 404;
        return af_fail_subject(
            &f->err, AF_EUSAGE, field,
            "response '%.100s' is not stored: unknown, deleted, or older than those kept", id);
    }
    af_buf_printf(&list, "[%s]", text);
    free(text);
    json_t *before = list.bad ? NULL : af_json_load(list.data, list.len, JSON_ALLOW_NUL, NULL);
    af_buf_clear(&list);
    if (!before)
        return af_fail_nomem(&f->err, "the conversation", 0);
    json_array_extend(items, before);
    json_decref(before);
    return AF_OK;
}

static af_status read_items(const af_api *a, const json_t *body, json_t *items, af_api_fault *f)
{
    af_status st = AF_OK;
    const char *previous = NULL;
    json_t *input = af_value(body, "input");
    AF_TRY(af_value_string(body, "previous_response_id", &previous, &f->err));
    if (previous)
        AF_TRY(add_previous(a, items, previous, f));
    if (json_is_array(input))
        json_array_extend(items, input);
    else if (json_is_string(input))
        json_array_append_new(items, json_pack("{s:s, s:s, s:O}", "type", "message", "role", "user",
                                               "content", input));
    else if (input)
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "input",
                               "'input' is not a text or a list of items"));
    if (json_array_size(items) == 0)
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "input", "'input' is empty or absent"));
done:
    return st;
}

/* ---- fields ---- */

static af_status refuse_others(const json_t *body, af_error *err)
{
    static const char *const absent[] = {"conversation", "prompt"};
    static const char *const other[][2] = {{"max_tokens", "max_output_tokens"},
                                           {"max_completion_tokens", "max_output_tokens"},
                                           {"response_format", "text.format"},
                                           {"messages", "input"}};
    bool background = false;
    af_status st = AF_OK;
    const char *truncation = "disabled";
    AF_TRY(af_value_bool(body, "background", &background, err));
    if (background)
        AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, "background",
                               "'background' is not supported; use 'stream'"));
    AF_TRY(af_value_string(body, "truncation", &truncation, err));
    if (strcmp(truncation, "disabled") != 0)
        AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, "truncation",
                               "'truncation' is '%.40s'; only 'disabled' is supported",
                               truncation));
    for (size_t i = 0; i < AF_LEN(absent); i++)
        if (af_value(body, absent[i]))
            AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, absent[i], "'%s' is not supported",
                                   absent[i]));
    for (size_t i = 0; i < AF_LEN(other); i++)
        if (af_value(body, other[i][0]))
            AF_TRY(af_fail_subject(err, AF_EUSAGE, other[i][1],
                                   "responses have '%s' in place of '%s' of chat completions",
                                   other[i][1], other[i][0]));
done:
    return st;
}

/* Functions and custom tools: as chat completions have them into the chat, as they are into `kept`.
 */
static af_status read_tools(af_generation *g, const json_t *body, json_t *chat, json_t *kept,
                            af_error *err)
{
    static const char *const members[] = {"name", "description", "parameters", "strict"};
    json_t *tools = NULL, *list;
    const af_status st = af_value_type(body, "tools", JSON_ARRAY, &tools, err);
    if (st != AF_OK || json_array_size(tools) == 0)
        return st;
    list = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i), *name = af_value(tool, "name");
        const bool custom = af_is_word(json_object_get(tool, "type"), "custom");
        json_t *function =
            custom ? af_custom_function(tool, af_value(tool, "format")) : json_object();
        if (!json_is_string(json_object_get(tool, "type"))) {
            json_decref(function);
            json_decref(list);
            return af_fail_subject(err, AF_EUSAGE, "tools", "tool %zu has no 'type'", i);
        }
        if (custom && json_is_string(name))
            json_array_append(g->custom, name);
        for (size_t k = 0; k < AF_LEN(members) && !custom; k++)
            if (af_value(tool, members[k]))
                json_object_set(function, members[k], json_object_get(tool, members[k]));
        if (custom || af_is_word(json_object_get(tool, "type"), "function")) {
            json_array_append_new(
                list, json_pack("{s:s, s:O}", "type", "function", "function", function));
            json_array_append(kept, tool);
        }
        json_decref(function);
    }
    json_object_set_new(chat, "tools", list);
    return AF_OK;
}

/* {"type": "allowed_tools", "mode", "tools": [{"type": "function", "name"}]} */
static json_t *allowed_tools(const json_t *choice)
{
    const json_t *tools = json_object_get(choice, "tools"), *mode = json_object_get(choice, "mode");
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:{s:O?}}", "type", "function", "function", "name",
                                        json_object_get(json_array_get(tools, i), "name")));
    return json_pack("{s:s, s:{s:O?, s:o}}", "type", "allowed_tools", "allowed_tools", "mode", mode,
                     "tools", list);
}

static void read_tool_choice(const json_t *body, json_t *chat)
{
    json_t *choice = af_value(body, "tool_choice"), *name = json_object_get(choice, "name");
    if (af_is_word(json_object_get(choice, "type"), "allowed_tools"))
        json_object_set_new(chat, "tool_choice", allowed_tools(choice));
    else if ((af_is_word(json_object_get(choice, "type"), "function") ||
              af_is_word(json_object_get(choice, "type"), "custom")) &&
             json_is_string(name))
        json_object_set_new(
            chat, "tool_choice",
            json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
    else if (choice)
        json_object_set(chat, "tool_choice", choice);
}

static af_status read_format(const json_t *body, json_t *chat, json_t **text, af_error *err)
{
    json_t *format = NULL;
    af_status st = AF_OK;
    AF_TRY(af_value_type(body, "text", JSON_OBJECT, text, err));
    AF_TRY(af_value_type(*text, "format", JSON_OBJECT, &format, err));
    if (format)
        json_object_set(chat, "response_format", format);
done:
    return st;
}

static af_status read_logprobs(const json_t *body, json_t *chat, af_error *err)
{
    json_t *include = NULL, *top = af_value(body, "top_logprobs");
    const af_status st = af_value_type(body, "include", JSON_ARRAY, &include, err);
    bool wanted = top && !(json_is_integer(top) && json_integer_value(top) == 0);
    for (size_t i = 0; i < json_array_size(include); i++)
        wanted |= af_is_word(json_array_get(include, i), "message.output_text.logprobs");
    if (st == AF_OK && wanted) {
        json_object_set_new(chat, "logprobs", json_true());
        if (top)
            json_object_set(chat, "top_logprobs", top);
    }
    return st;
}

/* ---- what the answer repeats ---- */

/* The field, or else `value`. */
static void echo_field(json_t *echo, const json_t *body, const char *name, json_t *value)
{
    json_t *own = af_value(body, name);
    json_object_set(echo, name, own ? own : value);
    json_decref(value);
}

static char *without_ends(char *text)
{
    const size_t n = text ? strlen(text) : 0;
    if (n < 2)
        return text;
    memmove(text, text + 1, n - 2);
    text[n - 2] = '\0';
    return text;
}

static af_status make_echo(af_response *r, const json_t *body, json_t *tools, bool store,
                           af_error *err)
{
    af_status st = AF_OK;
    json_t *echo = json_object(), *text = NULL, *metadata = NULL, *reasoning = NULL;
    AF_TRY(af_value_type(body, "metadata", JSON_OBJECT, &metadata, err));
    AF_TRY(af_value_type(body, "reasoning", JSON_OBJECT, &reasoning, err));
    text = af_value(body, "text") ? json_copy(af_value(body, "text")) : json_object();
    if (!af_value(text, "format"))
        json_object_set_new(text, "format", json_pack("{s:s}", "type", "text"));
    json_object_set(echo, "text", text);
    json_decref(text);
    echo_field(echo, body, "instructions", json_null());
    echo_field(echo, body, "max_output_tokens", json_null());
    echo_field(echo, body, "metadata", json_object());
    echo_field(echo, body, "parallel_tool_calls", json_true());
    echo_field(echo, body, "previous_response_id", json_null());
    echo_field(echo, body, "reasoning", json_pack("{s:n, s:n}", "effort", "summary"));
    echo_field(echo, body, "temperature", json_real(1));
    echo_field(echo, body, "tool_choice", json_string("auto"));
    echo_field(echo, body, "top_logprobs", json_integer(0));
    echo_field(echo, body, "top_p", json_real(1));
    echo_field(echo, body, "truncation", json_string("disabled"));
    json_object_set(echo, "tools", tools);
    json_object_set_new(echo, "background", json_false());
    json_object_set_new(echo, "store", json_boolean(store));
    r->echo = without_ends(af_json_dump(echo, JSON_COMPACT));
    if (!r->echo)
        AF_TRY(af_fail_nomem(err, "the request", 0));
done:
    json_decref(echo);
    return st;
}

/* ---- all of it ---- */

static af_status make_messages(const json_t *body, json_t *items, json_t *chat, af_error *err)
{
    af_status st = AF_OK;
    json_t *messages = json_array(), *instructions = NULL;
    AF_TRY(af_value_type(body, "instructions", JSON_STRING, &instructions, err));
    size_t used;
    AF_TRY(add_system(messages, instructions, items, &used, err));
    AF_TRY(add_items(messages, items, used, err));
    json_object_set(chat, "messages", messages);
done:
    json_decref(messages);
    return st;
}

af_status af_response_read(af_generation *g, const json_t *body, json_t **chat, af_api_fault *f)
{
    af_status st = AF_OK;
    bool store = true;
    json_t *items = json_array(), *tools = json_array(), *text = NULL;
    json_t *to = json_object();
    af_response *r = g->response = af_calloc(1, sizeof *r);
    if (!r)
        AF_TRY(af_fail_nomem(&f->err, "the request", sizeof *r));
    AF_TRY(refuse_others(body, &f->err));
    AF_TRY(af_value_bool(body, "store", &store, &f->err));
    AF_TRY(read_items(g->api, body, items, f));
    AF_TRY(make_messages(body, items, to, &f->err));
    g->custom = json_array();
    AF_TRY(read_tools(g, body, to, tools, &f->err));
    read_tool_choice(body, to);
    AF_TRY(read_format(body, to, &text, &f->err));
    AF_TRY(read_logprobs(body, to, &f->err));
    af_copy_fields(body, to);
    json_t *effort = af_value(af_value(body, "reasoning"), "effort");
    if (effort)
        json_object_set(to, "reasoning_effort", effort);
    if (af_value(body, "max_output_tokens"))
        json_object_set(to, "max_completion_tokens", json_object_get(body, "max_output_tokens"));
    AF_TRY(make_echo(r, body, tools, store, &f->err));
    if (store) {
        r->items = without_ends(af_json_dump(items, JSON_COMPACT));
        if (!r->items)
            AF_TRY(af_fail_nomem(&f->err, "the conversation", 0));
    }
    AF_TRY(af_memory_check(&f->err));
    *chat = json_incref(to);
done:
    json_decref(to);
    json_decref(items);
    json_decref(tools);
    return st;
}
