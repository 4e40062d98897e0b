/* request_chat.c - messages and tools to the text that the model's template makes of them. */
#include "serve/api/generation.h"

#include "data/shape/shape.h"
#include "format/chat/chat_template.h"
#include "format/text/json_text.h"

af_status af_join_parts(const json_t *parts, json_t **out, af_error *err)
{
    af_buf b = {0};
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *p = json_array_get(parts, i), *text = json_object_get(p, "text");
        const char *type = json_string_value(json_object_get(p, "type"));
        if (type && strcmp(type, "refusal") == 0)
            text = json_object_get(p, "refusal"); /* of an earlier answer */
        if (json_is_string(p)) {
            text = p;
        } else if (!type || !json_is_string(text) ||
                   (strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 &&
                    strcmp(type, "output_text") != 0 && strcmp(type, "refusal") != 0)) {
            af_buf_clear(&b);
            return af_fail_subject(err, AF_EUNSUPPORTED, "messages",
                                   "a part of a message is of type '%.40s'; only text is supported",
                                   type ? type : "none");
        }
        if (i)
            af_buf_char(&b, '\n');
        af_buf_add(&b, json_string_value(text), json_string_length(text));
    }
    *out = b.bad ? NULL : json_stringn(b.data ? b.data : "", b.len);
    af_buf_clear(&b);
    return *out ? AF_OK : af_fail_nomem(err, "a message", 0);
}

/* Clients send the arguments of earlier calls as JSON text; templates expect the object. */
static void open_arguments(json_t *message)
{
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call)
    {
        json_t *custom = json_object_get(call, "custom"), *function;
        if (json_is_object(custom) && !json_object_get(call, "function")) {
            function = json_pack("{s:O?, s:{s:O?}}", "name", json_object_get(custom, "name"),
                                 "arguments", "input", json_object_get(custom, "input"));
            json_object_set_new(call, "function", function);
            json_object_set_new(call, "type", json_string("function"));
            json_object_del(call, "custom");
        }
        function = json_object_get(call, "function");
        const json_t *text = json_object_get(function, "arguments");
        json_t *tree = json_is_string(text) ? af_json_load(json_string_value(text),
                                                           json_string_length(text), 0, NULL)
                                            : NULL;
        if (json_is_object(tree))
            json_object_set(function, "arguments", tree);
        json_decref(tree);
    }
}

/* Reasoning of an earlier answer, as the template calls it. That of gpt-oss takes it or a text next
 * to calls, not both. */
static void name_reasoning(json_t *message, const char *source)
{
    const json_t *sent = json_object_get(message, "reasoning_content");
    if (!json_is_string(sent))
        sent = json_object_get(message, "reasoning"); /* vLLM */
    if (!json_is_string(sent) || json_string_length(sent) == 0)
        return;
    json_t *text = json_copy((json_t *)(uintptr_t)sent);
    if (!json_object_get(message, "reasoning_content"))
        json_object_set(message, "reasoning_content", text);
    const bool thinking = strstr(source, ".thinking") || strstr(source, "['thinking']") ||
                          strstr(source, "[\"thinking\"]");
    if (thinking && !json_object_get(message, "thinking")) {
        json_object_set(message, "thinking", text);
        if (af_channels_used(source) && json_array_size(json_object_get(message, "tool_calls")))
            json_object_set_new(message, "content", json_string(""));
    }
    json_decref(text);
}

/* A call and its result, the message after it, as OpenAI's first API had them. */
static af_status name_function(json_t *message, const char *role, size_t at, af_error *err)
{
    char id[32];
    if (strcmp(role, "function") == 0) {
        snprintf(id, sizeof id, "call%05zu", at - AF_MIN(at, (size_t)1)); /* af_message_open_call */
        json_object_set_new(message, "role", json_string("tool"));
        json_object_set_new(message, "tool_call_id", json_string(id));
    }
    return af_message_open_call(message, at + 1, err);
}

static af_status normal_message(const json_t *in, size_t at, const char *source, json_t *list,
                                af_error *err)
{
    af_status st = AF_OK;
    json_t *content = json_object_get(in, "content"), *text = NULL, *m = NULL;
    const char *role = json_string_value(json_object_get(in, "role"));
    if (!json_is_object(in) || !role)
        return af_fail_subject(err, AF_EUSAGE, "messages", "message %zu has no 'role'", at);
    if (content && !json_is_string(content) && !json_is_array(content) && !json_is_null(content))
        return af_fail_subject(err, AF_EUSAGE, "messages",
                               "'content' of message %zu is not a text or a list of parts", at);
    const json_t *calls = json_object_get(in, "tool_calls");
    if (calls && !json_is_array(calls) && !json_is_null(calls))
        return af_fail_subject(err, AF_EUSAGE, "messages",
                               "'tool_calls' of message %zu is not a list", at);
    if ((!content || json_is_null(content)) && (strcmp(role, "assistant") != 0))
        return af_fail_subject(err, AF_EUSAGE, "messages", "message %zu has no 'content'", at);
    m = json_deep_copy(in);
    if (json_is_array(content))
        AF_TRY(af_join_parts(content, &text, err));
    else if (!json_is_string(content))
        text = json_string("");
    if (text)
        json_object_set(m, "content", text);
    if (json_is_null(calls))
        json_object_del(m, "tool_calls");
    AF_TRY(name_function(m, role, at, err));
    if (strcmp(role, "developer") == 0) /* what templates call it */
        json_object_set_new(m, "role", json_string("system"));
    open_arguments(m);
    name_reasoning(m, source);
    json_array_append(list, m);
done:
    json_decref(text);
    json_decref(m);
    return st;
}

static af_status check_tools(const json_t *tools, af_error *err)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        if (!json_is_string(json_object_get(f, "name")))
            return af_fail_subject(
                err, AF_EUSAGE, "tools",
                "tool %zu is not {\"type\": \"function\", \"function\": {\"name\", ...}}", i);
    }
    return AF_OK;
}

static bool tools_are_off(const json_t *body)
{
    const char *choice = json_string_value(af_value(body, "tool_choice"));
    return choice && strcmp(choice, "none") == 0;
}

/* Variables of the template: those that the body gives, and how much the model should think. */
static af_status template_values(const json_t *body, json_t **out, af_error *err)
{
    af_status st = AF_OK;
    const char *effort = NULL;
    json_t *given = NULL;
    AF_TRY(af_value_type(body, "chat_template_kwargs", JSON_OBJECT, &given, err));
    AF_TRY(af_value_string(body, "reasoning_effort", &effort, err));
    *out = given ? json_copy(given) : json_object();
    if (!effort)
        return AF_OK;
    json_t *own = strcmp(effort, "none") == 0
                      ? json_pack("{s:b, s:b}", "enable_thinking", 0, "thinking", 0)
                      : json_object();
    json_object_set_new(own, "reasoning_effort", json_string(effort));
    json_object_update_missing(*out, own);
    json_decref(own);
done:
    return st;
}

af_status af_chat_render(const af_api *a, const af_served *m, const json_t *body, char **text,
                         uint64_t *n, af_error *err)
{
    af_status st = AF_OK;
    const af_template *t = af_served_template(a, m);
    const char *source = t ? af_template_source(t, NULL) : NULL;
    json_t *messages = NULL, *list = json_array(), *values = NULL;
    af_render_opts o = {
        .messages = list, .add_generation_prompt = true, .form = af_served_form(a, m)};
    if (!source)
        AF_TRY(
            af_fail(err, AF_EUNSUPPORTED, "the model has no chat template; use /v1/completions"));
    AF_TRY(af_value_type(body, "messages", JSON_ARRAY, &messages, err));
    if (!messages || json_array_size(messages) == 0)
        AF_TRY(af_fail_subject(err, AF_EUSAGE, "messages", "'messages' is empty or absent"));
    for (size_t i = 0; i < json_array_size(messages); i++)
        AF_TRY(normal_message(json_array_get(messages, i), i, source, list, err));
    AF_TRY(af_value_type(body, "tools", JSON_ARRAY, &o.tools, err));
    AF_TRY(check_tools(o.tools, err));
    if (o.tools && (json_array_size(o.tools) == 0 || tools_are_off(body)))
        o.tools = NULL;
    AF_TRY(af_value_type(body, "documents", JSON_ARRAY, &o.documents, err));
    AF_TRY(template_values(body, &values, err));
    o.extra = values;
    AF_TRY(af_value_bool(body, "continue_final_message", &o.continue_final_message, err));
    o.add_generation_prompt = !o.continue_final_message;
    AF_TRY(af_value_bool(body, "add_generation_prompt", &o.add_generation_prompt, err));
    AF_TRY(af_memory_check(err));
    st = af_template_render(t, text, n, &o, NULL, err);
    if (st != AF_OK && st != AF_ENOMEM && err && !*err->subject)
        snprintf(err->subject, sizeof err->subject, "messages");
done:
    json_decref(list);
    json_decref(values);
    return st;
}

af_status af_chat_encode(const af_api *a, const af_served *m, const json_t *body, bool add_special,
                         af_encoding *e, af_error *err)
{
    char *text = NULL;
    uint64_t n = 0;
    af_status st = af_chat_render(a, m, body, &text, &n, err);
    if (st == AF_OK)
        st = af_tokenizer_encode(a->tokenizer, e, text, n, add_special, err);
    free(text);
    return st;
}

static af_status fits(const af_generation *g, int64_t tokens, const char *field, af_api_fault *f)
{
    const af_api *a = g->api;
    if (tokens < a->context)
        return AF_OK;
    f->code = "context_length_exceeded";
    if (g->form == &af_form_messages) /* by these words agents know when to shorten the prompt */
        return af_fail_subject(&f->err, AF_EUSAGE, field,
                               "prompt is too long: %" PRId64 " tokens > %" PRId64 " maximum",
                               tokens, a->context - 1);
    return af_fail_subject(&f->err, AF_EUSAGE, field,
                           "the prompt has %" PRId64 " tokens; the context is %" PRId64, tokens,
                           a->context);
}

/* The text that ends an answer of the server's template, a token or not; of channels the tokens,
 * which not all models list among their end tokens. */
static af_status add_end_of_turn(af_generation *g, af_error *err)
{
    static const char *const ends[] = {"<|return|>", "<|call|>"};
    const char *eot = g->api->eot;
    for (size_t i = 0; g->channels && i < AF_LEN(ends); i++) {
        const int32_t end = af_tokenizer_id(g->api->tokenizer, ends[i], strlen(ends[i]));
        if (end >= 0)
            g->stop_id[g->stop_ids++] = end;
    }
    if (!eot || af_served_template(g->api, g->model) != g->api->template)
        return AF_OK;
    const int32_t id = af_tokenizer_id(g->api->tokenizer, eot, strlen(eot));
    if (id >= 0) {
        g->stop_id[g->stop_ids++] = id;
        return AF_OK;
    }
    g->stop[g->stops] = af_strdup(eot);
    if (!g->stop[g->stops])
        return af_fail_nomem(err, "stop strings", strlen(eot));
    g->stops++;
    return AF_OK;
}

/* What the prompt says of the answer's beginning. A constrained answer in channels is the message
 * that the reader sees. */
static af_status begin_answer(af_generation *g, bool has_tools, char **text, uint64_t *n,
                              af_error *err)
{
    static const char role[] = "<|start|>assistant", head[] = "<|channel|>final<|message|>";
    const uint64_t len = sizeof role - 1;
    af_buf b = {0};
    g->opened = af_reasoning_opened(*text, *n);
    g->channels = af_channels_used(af_template_source(af_served_template(g->api, g->model), NULL));
    if (!g->channels)
        return AF_OK;
    if (g->grammar && !(g->schema && has_tools) && *n >= len &&
        memcmp(*text + *n - len, role, len) == 0) {
        af_buf_add(&b, *text, *n);
        af_buf_str(&b, head);
        free(*text);
        *n = b.len;
        *text = af_buf_take(&b);
        if (!*text)
            return af_fail_nomem(err, "the prompt", *n);
    }
    const char *last = af_channels_last(*text, *n);
    af_buf_add(&g->begun, last, *n - (uint64_t)(last - *text));
    return g->begun.bad ? af_fail_nomem(err, "the prompt", *n) : AF_OK;
}

af_status af_generation_chat(af_generation *g, const json_t *body, af_api_fault *f)
{
    af_status st = AF_OK;
    char *text = NULL;
    uint64_t n = 0;
    AF_TRY(af_chat_render(g->api, g->model, body, &text, &n, &f->err));
    const bool has_tools = json_array_size(af_value(body, "tools")) && !tools_are_off(body);
    bool special = false; /* the template has them */
    AF_TRY(af_value_bool(body, "add_special_tokens", &special, &f->err));
    AF_TRY(begin_answer(g, has_tools, &text, &n, &f->err));
    g->prompts = 1;
    g->prompt = af_calloc(1, sizeof *g->prompt);
    if (!g->prompt)
        AF_TRY(af_fail_nomem(&f->err, "the prompt", sizeof *g->prompt));
    AF_TRY(af_tokenizer_encode(g->api->tokenizer, g->prompt, text, n, special, &f->err));
    if (g->prompt->count == 0)
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "messages", "the messages make no tokens"));
    AF_TRY(fits(g, g->prompt->count, "messages", f));
    AF_TRY(add_end_of_turn(g, &f->err));
done:
    free(text);
    return st;
}

/* ---- prompts ---- */

static af_status decode_prompts(af_generation *g, af_error *err)
{
    af_status st = AF_OK;
    g->prompt_text = af_calloc((uint64_t)g->prompts, sizeof *g->prompt_text);
    if (!g->prompt_text)
        return af_fail_nomem(err, "prompts", (uint64_t)g->prompts * sizeof *g->prompt_text);
    for (int i = 0; i < g->prompts; i++) {
        af_buf *b = &g->prompt_text[i];
        AF_TRY(af_tokenizer_decode(g->api->tokenizer, &b->data, &b->len, g->prompt[i].ids,
                                   g->prompt[i].count, true, err));
    }
done:
    return st;
}

af_status af_generation_prompts(af_generation *g, const json_t *body, af_api_fault *f)
{
    af_status st = AF_OK;
    const json_t *suffix = af_value(body, "suffix");
    const bool infill =
        g->form->infill || (suffix && !(json_is_string(suffix) && !json_string_length(suffix)));
    AF_TRY(infill ? af_generation_infill(g, body, &f->err)
                  : af_read_inputs(g->api, body, "prompt", &g->prompt, &g->prompts, &f->err));
    for (int i = 0; i < g->prompts; i++)
        AF_TRY(fits(g, g->prompt[i].count, "prompt", f));
    AF_TRY(af_value_bool(body, "echo", &g->echo, &f->err));
    if (g->no_tokens && !g->echo && !g->form->prompt_alone)
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "max_tokens",
                               "'max_tokens' is 0, which needs 'echo': true"));
    if (g->echo && infill)
        AF_TRY(af_fail_subject(&f->err, AF_EUNSUPPORTED, "echo",
                               "'echo' with 'suffix' is not supported"));
    if (g->echo)
        AF_TRY(decode_prompts(g, &f->err));
done:
    return st;
}
