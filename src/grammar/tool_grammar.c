/* tool_grammar.c - answers that are calls of tools, in the format of the model. */
#include "format/text/json_text.h"
#include "grammar/compile.h"
#include "grammar/schema.h"
#include "grammar/tool_call.h"

typedef struct tool_grammar {
    af_rtn *r;
    af_tool_format format;
    bool any; /* arguments are any object */
    af_error *err;
} tool_grammar;

static uint32_t text(tool_grammar *g, uint32_t from, const char *s)
{
    return af_rtn_text(g->r, from, s, strlen(s));
}

/* A blank or a new line, or neither. */
static uint32_t gap(tool_grammar *g, uint32_t from)
{
    const uint32_t to = af_rtn_state(g->r);
    af_rtn_free_edge(g->r, from, to);
    af_rtn_bytes(g->r, from, ' ', ' ', to);
    af_rtn_bytes(g->r, from, '\n', '\n', to);
    return to;
}

/* The text of a token that may be a special one. */
static uint32_t mark(tool_grammar *g, uint32_t from, const char *s)
{
    const uint32_t start = af_rtn_state(g->r);
    af_rtn_free_edge(g->r, from, start);
    af_rtn_bytes(g->r, from, AF_RTN_SPECIAL, AF_RTN_SPECIAL, start);
    return text(g, start, s);
}

/* {"name": "f", "arguments": */
static uint32_t json_head(tool_grammar *g, uint32_t from, const char *quoted)
{
    const bool llama = g->format == AF_TOOL_LLAMA;
    uint32_t at = gap(g, text(g, from, "{\"name\":"));
    at = gap(g, text(g, text(g, at, quoted), ","));
    return gap(g, text(g, at, llama ? "\"parameters\":" : "\"arguments\":"));
}

/* What is before the arguments. */
static uint32_t call_head(tool_grammar *g, uint32_t from, const char *name, const char *quoted)
{
    if (g->format == AF_TOOL_ARGS)
        return mark(g, text(g, mark(g, from, "[TOOL_CALLS]"), name), "[ARGS]");
    if (g->format != AF_TOOL_CHANNELS)
        return json_head(g, from, quoted);
    const uint32_t to = text(g, mark(g, from, "<|channel|>"), "commentary to=functions.");
    const uint32_t type =
        text(g, mark(g, text(g, text(g, to, name), " "), "<|constrain|>"), "json");
    return mark(g, type, "<|message|>");
}

/* One call of a function, without what the format puts around calls. */
static af_status emit_call(tool_grammar *g, uint32_t from, const json_t *function, uint32_t to)
{
    af_status st = AF_OK;
    static const char none[] = "{\"type\":\"object\",\"properties\":{}}";
    const char *name = json_string_value(json_object_get(function, "name"));
    json_t *parameters = json_object_get(function, "parameters"), *own = NULL;
    char *quoted = NULL;
    uint32_t rule;
    if (!name || !*name)
        return af_fail_subject(g->err, AF_EFORMAT, "tools", "a tool has no function with a name");
    if (g->any || !json_is_object(parameters)) {
        own = g->any ? json_pack("{s:s}", "type", "object")
                     : af_json_load(none, sizeof none - 1, 0, NULL);
        parameters = own;
    }
    quoted = af_json_dump(json_object_get(function, "name"), JSON_ENCODE_ANY);
    if (!parameters || !quoted) {
        st = af_fail_nomem(g->err, "tools", sizeof none);
        goto done;
    }
    st = af_schema_compile(g->r, parameters, &rule, g->err);
    if (st != AF_OK) {
        st = af_fail_prefix(st, g->err, "parameters of tool '%.60s'", name);
        goto done;
    }
    const bool json = g->format != AF_TOOL_ARGS && g->format != AF_TOOL_CHANNELS;
    const uint32_t head = call_head(g, from, name, quoted), after = af_rtn_state(g->r);
    af_rtn_call(g->r, head, rule, after);
    af_rtn_free_edge(g->r, json ? text(g, after, "}") : after, to);
done:
    free(quoted);
    json_decref(own);
    return st;
}

/* The rule of one call of any of the tools, or of the one with this name. */
static af_status calls_rule(tool_grammar *g, const json_t *tools, const char *only, uint32_t *rule)
{
    af_status st = AF_OK;
    int count = 0;
    *rule = af_rtn_rule_new(g->r, "call");
    AF_TRY(g->r->st);
    const af_rtn_rule body = g->r->rule[*rule];
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (only && (!name || strcmp(name, only) != 0))
            continue;
        count++;
        AF_TRY(emit_call(g, body.start, function, body.accept));
    }
    if (!count && only)
        return af_fail_subject(g->err, AF_EUSAGE, "tool_choice",
                               "tool_choice names '%.100s', which is not among the tools", only);
    if (!count)
        return af_fail_subject(g->err, AF_EUSAGE, "tools", "there are no tools to call");
done:
    return st;
}

/* The whole answer: calls in what the format puts around them. */
static void emit_answer(tool_grammar *g, uint32_t call, bool several)
{
    af_rtn *r = g->r;
    const uint32_t root = af_rtn_rule_new(r, "root");
    if (r->st != AF_OK)
        return;
    r->root = root;
    uint32_t from = af_rtn_state(r), end = af_rtn_state(r);
    af_rtn_free_edge(r, r->rule[root].start, from);
    if (g->format == AF_TOOL_TAGS) {
        const uint32_t in = gap(g, mark(g, from, "<tool_call>")), out = af_rtn_state(r);
        af_rtn_call(r, in, call, out);
        af_rtn_free_edge(r, mark(g, gap(g, out), "</tool_call>"), end);
        if (several)
            af_rtn_free_edge(r, gap(g, end), from);
        af_rtn_free_edge(r, end, r->rule[root].accept);
    } else if (g->format == AF_TOOL_MISTRAL) {
        const uint32_t in = text(g, gap(g, mark(g, from, "[TOOL_CALLS]")), "[");
        const uint32_t first = af_rtn_state(r);
        af_rtn_free_edge(r, in, first);
        af_rtn_call(r, first, call, end);
        if (several)
            af_rtn_free_edge(r, gap(g, text(g, end, ",")), first);
        af_rtn_free_edge(r, text(g, end, "]"), r->rule[root].accept);
    } else {
        af_rtn_call(r, from, call, end);
        if (several && g->format == AF_TOOL_LLAMA)
            af_rtn_free_edge(r, gap(g, text(g, end, ";")), from);
        if (several && g->format == AF_TOOL_ARGS)
            af_rtn_free_edge(r, end, from);
        af_rtn_free_edge(r, end, r->rule[root].accept);
    }
}

/* Any text up to the end. */
static void emit_rest(tool_grammar *g, uint32_t from, uint32_t to)
{
    const uint32_t loop = af_rtn_state(g->r);
    af_rtn_free_edge(g->r, from, loop);
    af_rtn_bytes(g->r, loop, 0, 255, loop);
    af_rtn_free_edge(g->r, loop, to);
}

/* Channels: thoughts, then the answer or a call. */
static void emit_channels(tool_grammar *g, uint32_t from, uint32_t answer, uint32_t to)
{
    af_rtn *r = g->r;
    const uint32_t start = af_rtn_state(r), thought = af_rtn_state(r), after = af_rtn_state(r);
    af_rtn_free_edge(r, from, start);
    const uint32_t head = mark(g, start, "<|channel|>");
    af_rtn_free_edge(r, mark(g, text(g, head, "analysis"), "<|message|>"), thought);
    af_rtn_bytes(r, thought, 0, AF_RTN_SPECIAL - 1, thought);
    const uint32_t next = mark(g, mark(g, thought, "<|end|>"), "<|start|>");
    af_rtn_free_edge(r, text(g, next, "assistant"), start);
    af_rtn_call(r, mark(g, text(g, head, "final"), "<|message|>"), answer, after);
    af_rtn_free_edge(r, after, to);
    emit_rest(g, text(g, head, "commentary to=functions."), to);
}

/* A text that fits the schema, or calls. After the mark of a call the model is free: how it writes
 * them is not known to all formats. Llama's have none. */
static af_status emit_either(tool_grammar *g, const json_t *tools, json_t *schema)
{
    af_status st = AF_OK;
    af_rtn *r = g->r;
    uint32_t answer, call = 0;
    AF_TRY(af_schema_compile(r, schema, &answer, g->err));
    g->any = true;
    if (g->format == AF_TOOL_LLAMA)
        AF_TRY(calls_rule(g, tools, NULL, &call));
    const uint32_t root = af_rtn_rule_new(r, "root");
    AF_TRY(r->st);
    const af_rtn_rule body = r->rule[root];
    r->root = root;
    if (g->format == AF_TOOL_CHANNELS) {
        emit_channels(g, body.start, answer, body.accept);
        return r->st;
    }
    af_rtn_call(r, body.start, answer, body.accept);
    if (g->format == AF_TOOL_LLAMA)
        af_rtn_call(r, body.start, call, body.accept);
    for (size_t i = 0; af_tool_opener(i); i++)
        emit_rest(g, mark(g, body.start, af_tool_opener(i)), body.accept);
    st = r->st;
done:
    return st;
}

af_status af_tools_compile(af_rtn *r, const char *source, uint64_t len, af_error *err)
{
    af_status st = AF_OK;
    tool_grammar g = {.r = r, .err = err};
    json_t *root = NULL;
    uint32_t call;
    AF_TRY(af_json_parse(&root, source, len, "tools", err));
    const char *format = json_string_value(json_object_get(root, "format"));
    for (int f = AF_TOOL_TAGS; f < AF_TOOL_FORMATS; f++)
        if (format && strcmp(format, af_tool_format_name((af_tool_format)f)) == 0)
            g.format = (af_tool_format)f;
    json_t *answer = json_object_get(root, "answer");
    if (answer) {
        st = emit_either(&g, json_object_get(root, "tools"), answer);
        goto done;
    }
    const json_t *choice = json_object_get(root, "tool_choice");
    const json_t *function = json_object_get(choice, "function");
    const char *only = json_string_value(json_object_get(function, "name"));
    if (json_is_object(choice) && !only) {
        st = af_fail_subject(err, AF_EFORMAT, "tool_choice",
                             "tool_choice is not {\"type\": \"function\", \"function\": "
                             "{\"name\"}}");
        goto done;
    }
    AF_TRY(calls_rule(&g, json_object_get(root, "tools"), only, &call));
    emit_answer(&g, call, !only && !json_is_false(json_object_get(root, "parallel_tool_calls")));
    st = r->st;
done:
    json_decref(root);
    return st;
}
