/* call_text.h - calls of tools that are not JSON, read to a name and arguments in JSON:
 *
 *     <function=f><parameter=k>value</parameter></function>          Qwen3-Coder, Seed-OSS
 *     <invoke name="f"><parameter name="k">value</parameter></invoke>     MiniMax
 *     f<arg_key>k</arg_key><arg_value>value</arg_value>              GLM, Hunyuan
 *     f[ARGS]{...}, f<|tool_sep|>{...}, functions.f:0<|..begin|>{...}     Mistral, DeepSeek, Kimi
 *     call:f{k:<|"|>value<|"|>}                                      Gemma
 *     [f(k='value'), ...], f(k='value')                              Llama 4, LFM2, OLMo
 *
 * A value between tags is a text where the tool's parameters say so, else what it reads as. */
#ifndef AF_CALL_TEXT_H
#define AF_CALL_TEXT_H

#include "base/buf.h"

#include <jansson.h>

typedef enum af_call_found {
    AF_CALL_NONE, /* the text is not a call */
    AF_CALL_MORE, /* it may become one */
    AF_CALL_READ,
} af_call_found;

typedef struct af_call_text {
    af_buf name, arguments;
    af_buf id; /* where the model writes one that its template takes back; else empty */
} af_call_text;

void af_call_text_clear(af_call_text *c);

/* Where the JSON value that begins at `at` ends; 0 while it is not complete. */
uint64_t af_json_value_end(const char *s, uint64_t n, uint64_t at);
/* The next byte that is not white space; n when there is none. */
uint64_t af_skip_blank(const char *s, uint64_t n, uint64_t at);

/* The parameters of the tool with this name; NULL when it has none. `found`: there is one. */
const json_t *af_tool_parameters(const json_t *tools, const char *name, bool *found);

/* A call that begins at s[*at]; after AF_CALL_READ *at is where it ends. The parts of a call in
 * Python's syntax are read by one call of this each: see tool_call.c. */
af_call_found af_call_text_read(const char *s, uint64_t n, uint64_t *at, const json_t *tools,
                                af_call_text *out);
#endif
