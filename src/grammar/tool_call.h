/* tool_call.h - calls of tools in the text of an answer, as the common models write them:
 *
 *     <tool_call>{"name": "f", "arguments": {...}}</tool_call>      Hermes, Qwen
 *     {"name": "f", "parameters": {...}}                            Llama 3
 *     [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]          Mistral
 *
 * and the forms of call_text.h that are not JSON, within the marks of their models.
 *
 * A parser takes the text as it comes (with the texts of special tokens) and reports what is around
 * calls as content, as soon as it cannot begin a call, and each call once it is complete. All are
 * read whatever the model is; a bare object or list is one only at the beginning of an answer, with
 * names of tools. What looks like a call and is not one is content. White space next to calls
 * is left out. */
#ifndef AF_TOOL_CALL_H
#define AF_TOOL_CALL_H

#include "base/base.h"
#include "grammar/rtn.h"

#include <jansson.h>

typedef enum af_tool_format {
    AF_TOOL_TAGS,
    AF_TOOL_LLAMA,
    AF_TOOL_MISTRAL,
    AF_TOOL_ARGS,     /* Mistral's since 2025: [TOOL_CALLS]f[ARGS]{...} */
    AF_TOOL_CHANNELS, /* gpt-oss: a message to functions.f */
    AF_TOOL_FORMATS
} af_tool_format;

/* What the source of a chat template says of its model; AF_TOOL_TAGS when it says nothing. */
af_tool_format af_tool_format_of(const char *template_source);
/* Is this the text of a token that marks calls? Other special tokens are no part of an answer. */
bool af_tool_marker(const char *token);
/* The mark number i that may begin a call; NULL: there are no more. */
const char *af_tool_opener(size_t i);
/* "tags", "llama", "mistral", "args", "channels" */
const char *af_tool_format_name(af_tool_format f);

typedef struct af_tool_call {
    int index;      /* of this answer's calls */
    const char *id; /* unique; of the form that the model's template takes back */
    const char *name;
    const char *arguments; /* JSON text, as the model wrote it */
} af_tool_call;

/* Called during af_tool_parser_add and af_tool_parser_finish; strings are valid during the call. */
typedef struct af_tool_sink {
    void (*content)(void *user, const char *text, uint64_t n);
    void (*call)(void *user, const af_tool_call *c);
    void *user;
} af_tool_sink;

typedef struct af_tool_parser af_tool_parser;

/* `tools`: the request's list, borrowed until the parser is freed. Ids follow from `seed`. */
AF_CHECKED af_status af_tool_parser_new(af_tool_parser **out, af_tool_format f, const json_t *tools,
                                        uint64_t seed, const af_tool_sink *sink, af_error *err);
/* NULL is allowed. */
void af_tool_parser_free(af_tool_parser *p);
/* More text of the answer. */
AF_CHECKED af_status af_tool_parser_add(af_tool_parser *p, const char *text, uint64_t n,
                                        af_error *err);
/* The answer is complete: what was held back is reported. */
AF_CHECKED af_status af_tool_parser_finish(af_tool_parser *p, af_error *err);
/* A call that was read elsewhere; false when the arguments are not a JSON object. */
bool af_tool_parser_report(af_tool_parser *p, const char *name, const char *arguments);
/* Calls so far. */
int af_tool_parser_calls(const af_tool_parser *p);

/* The network of AF_GRAMMAR_TOOLS, from {"format": a name of above, "tools": as in a request,
 * "tool_choice": "required" or {"type": "function", "function": {"name"}}, "parallel_tool_calls":
 * bool}: one call or several with arguments that fit the tool's parameters, and nothing else. With
 * "answer", a schema, in place of "tool_choice": a text that fits it, or calls as the model writes
 * them. */
AF_CHECKED af_status af_tools_compile(af_rtn *r, const char *text, uint64_t len, af_error *err);
#endif
