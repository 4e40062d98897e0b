/* tool_answer.c - tools of a request, and calls of them in its answer. */
#include "serve/api/generation.h"

#include "format/chat/chat_template.h"
#include "format/text/json_text.h"

/* The grammar of calls, made of {"format", "tools", "tool_choice", "parallel_tool_calls"} or, for
 * calls or a text that fits a schema, {"format", "tools", "answer"}. It replaces one of a schema:
 * that is for texts. */
static af_status take_grammar(af_generation *g, json_t *tree, af_error *err)
{
    char *text = tree ? af_json_dump(tree, JSON_COMPACT) : NULL;
    json_decref(tree);
    if (!text)
        return af_fail_nomem(err, "tools", 0);
    af_kept_grammar_release(g->grammar);
    g->grammar = NULL;
    const af_status st =
        af_api_grammar(g->api, &g->grammar, AF_GRAMMAR_TOOLS, text, strlen(text), err);
    free(text);
    if (st != AF_OK && err)
        snprintf(err->subject, sizeof err->subject, "%s", "tools");
    return st;
}

static af_status force_call(af_generation *g, const json_t *body, const json_t *choice,
                            af_error *err)
{
    bool parallel = true;
    const af_status st = af_value_bool(body, "parallel_tool_calls", &parallel, err);
    if (st != AF_OK)
        return st;
    if (g->grammar && !g->schema)
        return af_fail_subject(err, AF_EUSAGE, "tool_choice",
                               "a forced call and a grammar cannot both be kept");
    return take_grammar(g,
                        json_pack("{s:s, s:O, s:O, s:b}", "format",
                                  af_tool_format_name(g->tool_format), "tools", g->tools,
                                  "tool_choice", choice, "parallel_tool_calls", (int)parallel),
                        err);
}

/* A call, or a text that fits the schema of the response format. */
static af_status call_or_format(af_generation *g, af_error *err)
{
    json_t *schema = af_json_load(g->schema, strlen(g->schema), JSON_DECODE_ANY, NULL);
    if (!json_is_object(schema)) { /* true or false: the grammar that it has */
        json_decref(schema);
        return AF_OK;
    }
    return take_grammar(g,
                        json_pack("{s:s, s:O, s:o}", "format", af_tool_format_name(g->tool_format),
                                  "tools", g->tools, "answer", schema),
                        err);
}

static bool names_a_tool(const af_generation *g, const json_t *choice)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    for (size_t i = 0; name && i < json_array_size(g->tools); i++) {
        const json_t *f = json_object_get(json_array_get(g->tools, i), "function");
        if (strcmp(name, json_string_value(json_object_get(f, "name"))) == 0)
            return true;
    }
    return false;
}

af_status af_generation_tools(af_generation *g, const json_t *body, af_api_fault *f)
{
    static const char field[] = "tool_choice";
    const json_t *tools = af_value(body, "tools"), *choice = af_value(body, field);
    const char *word = json_string_value(choice);
    const af_template *t = af_served_template(g->api, g->model);
    if (word && strcmp(word, "none") == 0)
        return AF_OK;
    const bool forced = choice && !(word && strcmp(word, "auto") == 0);
    if (forced && json_array_size(tools) == 0)
        return af_fail_subject(&f->err, AF_EUSAGE, field, "'tool_choice' needs 'tools'");
    if (json_array_size(tools) == 0)
        return AF_OK;
    g->tools = json_deep_copy(tools); /* the body belongs to the worker */
    if (!g->tools)
        return af_fail_nomem(&f->err, "tools", 0);
    g->tool_format = af_tool_format_of(af_template_source(af_template_for(t, true), NULL));
    if (!forced)
        return g->schema ? call_or_format(g, &f->err) : AF_OK;
    if (!(word && strcmp(word, "required") == 0) && !names_a_tool(g, choice))
        return af_fail_subject(&f->err, AF_EUSAGE, field,
                               "'tool_choice' is not none, auto, required or one of the tools");
    return force_call(g, body, choice, &f->err);
}

/* The function that the name of a choice stands for is one of them. */
static bool is_function(const json_t *functions, const json_t *name)
{
    for (size_t i = 0; name && i < json_array_size(functions); i++)
        if (json_equal(json_object_get(json_array_get(functions, i), "name"), name))
            return true;
    return false;
}

af_status af_function_tools(af_generation *g, const json_t *body, json_t **out, af_error *err)
{
    static const char list[] = "functions", one[] = "function_call";
    json_t *functions = NULL, *choice = af_value(body, one);
    af_status st = AF_OK;
    *out = json_incref((json_t *)(uintptr_t)body);
    AF_TRY(af_value_type(body, list, JSON_ARRAY, &functions, err));
    const char *word = json_string_value(choice);
    const bool is_word = word && (strcmp(word, "auto") == 0 || strcmp(word, "none") == 0);
    json_t *name = json_object_get(choice, "name");
    if (choice && !is_word && !is_function(functions, name))
        return af_fail_subject(err, AF_EUSAGE, one,
                               "'function_call' is not none, auto or one of the functions");
    if (json_array_size(functions) == 0)
        return AF_OK;
    if (json_array_size(af_value(body, "tools")))
        return af_fail_subject(err, AF_EUSAGE, list, "'functions' and 'tools' cannot both be kept");
    json_t *tools = json_array();
    for (size_t i = 0; i < json_array_size(functions); i++)
        json_array_append_new(tools, json_pack("{s:s, s:O}", "type", "function", "function",
                                               json_array_get(functions, i)));
    if (!choice)
        choice = json_string("auto");
    else if (is_word)
        json_incref(choice);
    else
        choice = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
    json_decref(*out);
    *out = json_copy((json_t *)(uintptr_t)body);
    json_object_set_new(*out, "tools", tools);
    json_object_set_new(*out, "tool_choice", choice);
    json_object_set_new(*out, "parallel_tool_calls", json_false()); /* an answer has one call */
    g->functions = true;
    AF_TRY(af_memory_check(err));
done:
    return st;
}

json_t *af_custom_function(const json_t *tool, const json_t *format)
{
    const json_t *rules = af_value(format, "definition");
    json_t *text = json_pack("{s:s}", "type", "string");
    const char *said = json_string_value(af_value(tool, "description"));
    af_buf b = {0};
    af_buf_str(&b, said ? said : "");
    if (json_is_string(rules))
        af_buf_printf(&b, "%sThe input follows this %s:\n%s", b.len ? "\n" : "",
                      af_is_word(af_value(format, "syntax"), "regex") ? "regular expression"
                                                                      : "grammar",
                      json_string_value(rules));
    if (json_is_string(rules) && af_is_word(af_value(format, "syntax"), "regex")) {
        af_buf pattern = {0};
        af_buf_printf(&pattern, "^(?:%s)$", json_string_value(rules));
        json_object_set_new(text, "pattern", json_string(pattern.data ? pattern.data : ""));
        af_buf_clear(&pattern);
    }
    json_t *function =
        json_pack("{s:O?, s:s, s:{s:s, s:{s:o}, s:[s]}}", "name", af_value(tool, "name"),
                  "description", b.data ? b.data : "", "parameters", "type", "object", "properties",
                  "input", text, "required", "input");
    af_buf_clear(&b);
    return function;
}

bool af_is_custom(const af_generation *g, const char *name)
{
    for (size_t i = 0; i < json_array_size(g->custom); i++)
        if (strcmp(json_string_value(json_array_get(g->custom, i)), name) == 0)
            return true;
    return false;
}

const char *af_custom_input(const af_tool_call *call, json_t **tree)
{
    *tree = af_json_load(call->arguments, strlen(call->arguments), 0, NULL);
    const char *input = json_string_value(json_object_get(*tree, "input"));
    return input ? input : call->arguments;
}

af_status af_custom_tools(af_generation *g, const json_t *body, json_t **out, af_error *err)
{
    const json_t *tools = af_value(body, "tools"), *choice = af_value(body, "tool_choice");
    json_t *list = json_array(), *names = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i), *own = json_object_get(tool, "custom");
        json_t *format = af_value(own, "format"), *name = json_object_get(own, "name");
        const bool custom =
            af_is_word(json_object_get(tool, "type"), "custom") && json_is_string(name);
        if (custom)
            json_array_append(names, name);
        json_array_append_new(
            list, custom ? json_pack("{s:s, s:o}", "type", "function", "function",
                                     af_custom_function(own, af_value(format, "grammar")))
                         : json_incref(tool));
    }
    *out = json_array_size(names) ? json_copy((json_t *)(uintptr_t)body)
                                  : json_incref((json_t *)(uintptr_t)body);
    if (json_array_size(names)) {
        json_object_set(*out, "tools", list);
        if (af_is_word(json_object_get(choice, "type"), "custom"))
            json_object_set_new(*out, "tool_choice",
                                json_pack("{s:s, s:O?}", "type", "function", "function",
                                          json_object_get(choice, "custom")));
        g->custom = json_incref(names);
    }
    json_decref(list);
    json_decref(names);
    return af_memory_check(err);
}

static bool is_listed(const json_t *list, const json_t *tool)
{
    const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
    for (size_t i = 0; name && i < json_array_size(list); i++)
        if (json_equal(
                json_object_get(json_object_get(json_array_get(list, i), "function"), "name"),
                name))
            return true;
    return false;
}

af_status af_allowed_tools(const json_t *body, json_t **out, af_error *err)
{
    static const char field[] = "tool_choice";
    const json_t *choice = af_value(body, field), *type = json_object_get(choice, "type");
    if (!json_is_string(type) || strcmp(json_string_value(type), "allowed_tools") != 0) {
        *out = json_incref((json_t *)(uintptr_t)body);
        return AF_OK;
    }
    const json_t *allowed = af_value(choice, "allowed_tools"), *tools = af_value(body, "tools"),
                 *list = json_object_get(allowed, "tools");
    json_t *mode = json_object_get(allowed, "mode"), *kept = json_array();
    const char *word = json_string_value(mode);
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (is_listed(list, json_array_get(tools, i)))
            json_array_append(kept, json_array_get(tools, i));
    const bool good = word && (strcmp(word, "auto") == 0 || strcmp(word, "required") == 0) &&
                      json_array_size(list) > 0 && json_array_size(kept) == json_array_size(list);
    if (good) {
        *out = json_copy((json_t *)(uintptr_t)body);
        json_object_set(*out, "tools", kept);
        json_object_set(*out, field, mode);
    }
    json_decref(kept);
    if (!good)
        return af_fail_subject(err, AF_EUSAGE, field,
                               "'allowed_tools' is not a mode (auto, required) with some of the "
                               "tools");
    return af_memory_check(err);
}

/* ---- answers ---- */

static void on_content(void *user, const char *text, uint64_t n)
{
    af_buf_add(&((af_choice *)user)->content, text, n);
}

static void on_call(void *user, const af_tool_call *call)
{
    af_choice *c = user;
    c->call_count++;
    c->of->form->call(c, call);
}

af_status af_choice_tools(af_choice *c, af_error *err)
{
    const af_tool_sink sink = {on_content, on_call, c};
    const uint64_t seed =
        atomic_fetch_add(&c->of->api->ids, 1) + ((uint64_t)c->of->api->started << 24);
    return af_tool_parser_new(&c->parser, c->of->tool_format, c->of->tools, seed, &sink, err);
}
