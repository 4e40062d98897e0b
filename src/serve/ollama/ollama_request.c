/* ollama_request.c - bodies of /api/chat and /api/generate in the words of chat completions. */
#include "serve/ollama/ollama.h"

json_t *af_ollama_body(af_api *a, const json_t *body)
{
    static const char latest[] = ":latest";
    const size_t tail = sizeof latest - 1;
    json_t *out = json_copy((json_t *)(uintptr_t)body);
    const json_t *given =
        af_value(body, "model") ? af_value(body, "model") : af_value(body, "name");
    const char *name = json_string_value(given);
    const size_t n = name ? strlen(name) : 0;
    af_served *m = name ? af_api_find_model(a, name) : NULL;
    if (name && !m && n > tail && strcmp(name + n - tail, latest) == 0)
        json_object_set_new(out, "model", json_stringn(name, n - tail));
    else if (given)
        json_object_set(out, "model", (json_t *)(uintptr_t)given);
    af_served_unref(m);
    return out;
}

/* Numbers of "options"; Ollama's own values where there are none. */
static af_status read_options(const json_t *body, json_t *out, af_error *err)
{
    static const char *const same[] = {"seed",
                                       "temperature",
                                       "top_k",
                                       "top_p",
                                       "min_p",
                                       "stop",
                                       "repeat_penalty",
                                       "repeat_last_n",
                                       "presence_penalty",
                                       "frequency_penalty"};
    af_status st = AF_OK;
    json_t *options = NULL;
    int64_t limit = -1;
    AF_TRY(af_value_type(body, "options", JSON_OBJECT, &options, err));
    AF_TRY(af_value_int(options, "num_predict", -2, INT32_MAX / 2, &limit, err));
    AF_TRY(af_samplers_check(options, err));
    json_object_set_new(out, "max_tokens", json_integer(limit > 0 ? limit : -1));
    json_object_set_new(out, "temperature", json_real(0.8));
    json_object_set_new(out, "top_k", json_integer(40));
    json_object_set_new(out, "top_p", json_real(0.9));
    json_object_set_new(out, "repeat_last_n", json_integer(AF_LLAMA_LAST_N));
    for (size_t i = 0; i < AF_LEN(same); i++)
        if (af_value(options, same[i]))
            json_object_set(out, same[i], af_value(options, same[i]));
    const json_t *seed = af_value(options, "seed");
    if (json_is_integer(seed) && json_integer_value(seed) == -1)
        json_object_del(out, "seed"); /* a random one */
done:
    return st;
}

/* "json", a schema, or nothing. */
static af_status read_format(const json_t *body, json_t *out, af_error *err)
{
    json_t *format = af_value(body, "format");
    const char *word = json_string_value(format);
    if (!format || (word && !*word))
        return AF_OK;
    if (!json_is_object(format) && !(word && strcmp(word, "json") == 0))
        return af_fail_subject(err, AF_EUSAGE, "format", "'format' is not \"json\" or a schema");
    json_object_set_new(
        out, "response_format",
        word ? json_pack("{s:s}", "type", "json_object")
             : json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", format));
    return AF_OK;
}

/* true, false, or how much. */
static af_status read_think(const json_t *body, json_t *out, af_error *err)
{
    json_t *think = af_value(body, "think");
    json_object_set_new(out, "reasoning_format", json_string("auto"));
    if (json_is_string(think))
        json_object_set(out, "reasoning_effort", think);
    else if (json_is_boolean(think))
        json_object_set_new(out, "chat_template_kwargs",
                            json_pack("{s:O, s:O}", "enable_thinking", think, "thinking", think));
    else if (think)
        return af_fail_subject(err, AF_EUSAGE, "think", "'think' is not true, false or a word");
    return AF_OK;
}

static af_status read_shared(af_generation *g, const json_t *body, json_t **out, af_error *err)
{
    static const char *const absent[] = {"images", "template", "context"};
    af_status st = AF_OK;
    bool stream = true;
    json_t *named = af_ollama_body(g->api, body);
    *out = json_object();
    for (size_t i = 0; i < AF_LEN(absent); i++) {
        const json_t *v = af_value(body, absent[i]);
        if (json_array_size(v) || json_string_length(v))
            AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, absent[i], "'%s' is not supported",
                                   absent[i]));
    }
    AF_TRY(af_value_bool(body, "stream", &stream, err));
    if (af_value(named, "model"))
        json_object_set(*out, "model", af_value(named, "model"));
    json_object_set_new(*out, "stream", json_boolean(stream));
    AF_TRY(read_options(body, *out, err));
    AF_TRY(read_format(body, *out, err));
    AF_TRY(read_think(body, *out, err));
    AF_TRY(af_memory_check(err));
done:
    json_decref(named);
    return st;
}

/* ---- messages ---- */

/* Ollama's calls may have no ids: they are answered in order. */
static json_t *id_or_next(const json_t *id, size_t *count)
{
    char next[32];
    if (json_string_length(id))
        return json_incref((json_t *)(uintptr_t)id);
    snprintf(next, sizeof next, "call%05zu", (*count)++);
    return json_string(next);
}

static json_t *open_calls(const json_t *calls, size_t *called)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        json_t *f = json_object_get(call, "function"), *name = json_object_get(f, "name");
        json_t *arguments = json_object_get(f, "arguments");
        if (json_is_string(name))
            json_array_append_new(out,
                                  json_pack("{s:o, s:s, s:{s:O, s:o}}", "id",
                                            id_or_next(json_object_get(call, "id"), called), "type",
                                            "function", "function", "name", name, "arguments",
                                            arguments ? json_deep_copy(arguments) : json_object()));
    }
    return out;
}

static af_status open_message(const json_t *in, size_t at, size_t count[2], json_t *list,
                              af_error *err)
{
    json_t *m = json_copy((json_t *)(uintptr_t)in);
    const char *role = json_string_value(json_object_get(in, "role"));
    json_t *thought = af_value(in, "thinking"), *tool = af_value(in, "tool_name");
    json_array_append_new(list, m ? m : json_null());
    if (json_array_size(af_value(in, "images")))
        return af_fail_subject(err, AF_EUNSUPPORTED, "messages",
                               "message %zu has images; only text is supported", at);
    if (thought)
        json_object_set(m, "reasoning_content", thought);
    if (json_array_size(af_value(in, "tool_calls")))
        json_object_set_new(m, "tool_calls", open_calls(af_value(in, "tool_calls"), &count[0]));
    if (role && strcmp(role, "tool") == 0) {
        json_object_set_new(m, "tool_call_id", id_or_next(af_value(in, "tool_call_id"), &count[1]));
        if (tool)
            json_object_set(m, "name", tool);
    }
    return AF_OK;
}

af_status af_ollama_read_chat(af_generation *g, const json_t *body, json_t **out, af_api_fault *f)
{
    af_status st = AF_OK;
    json_t *messages = NULL, *list = json_array();
    size_t count[2] = {0};
    AF_TRY(read_shared(g, body, out, &f->err));
    AF_TRY(af_value_type(body, "messages", JSON_ARRAY, &messages, &f->err));
    for (size_t i = 0; i < json_array_size(messages); i++)
        AF_TRY(open_message(json_array_get(messages, i), i, count, list, &f->err));
    json_object_set(*out, "messages", list);
    if (af_value(body, "tools"))
        json_object_set(*out, "tools", af_value(body, "tools"));
    AF_TRY(af_memory_check(&f->err));
done:
    json_decref(list);
    return st;
}

af_status af_ollama_read_prompt(af_generation *g, const json_t *body, json_t **out, af_api_fault *f)
{
    af_status st = AF_OK;
    const char *prompt = "", *system = NULL;
    json_t *list = json_array();
    AF_TRY(read_shared(g, body, out, &f->err));
    AF_TRY(af_value_string(body, "prompt", &prompt, &f->err));
    AF_TRY(af_value_string(body, "system", &system, &f->err));
    if (system && *system)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", prompt));
    json_object_set(*out, "messages", list);
    AF_TRY(af_memory_check(&f->err));
done:
    json_decref(list);
    return st;
}

af_status af_ollama_read_raw(af_generation *g, const json_t *body, json_t **out, af_api_fault *f)
{
    static const char *const same[] = {"prompt", "suffix"};
    const af_status st = read_shared(g, body, out, &f->err);
    for (size_t i = 0; st == AF_OK && i < AF_LEN(same); i++)
        if (af_value(body, same[i]))
            json_object_set(*out, same[i], af_value(body, same[i]));
    return st;
}
