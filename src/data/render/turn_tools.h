/* turn_tools.h - tools in turn templates (turn_row.c). */
#ifndef AF_TURN_TOOLS_H
#define AF_TURN_TOOLS_H

#include "base/buf.h"

#include <jansson.h>

/* LLaMA-Factory's tool formats; of a template whose format is another one NONE. */
typedef enum af_turn_tools {
    AF_TURN_TOOLS_NONE,
    AF_TURN_TOOLS_QWEN,
    AF_TURN_TOOLS_DEFAULT,
    AF_TURN_TOOLS_GLM4,   /* one call in an answer */
    AF_TURN_TOOLS_LLAMA3, /* calls alone: its text of the tools has the date of the day */
    AF_TURN_TOOLS_MISTRAL,
    AF_TURN_TOOLS_QWEN35,
} af_turn_tools;

af_turn_tools af_turn_tools_of(const char *template);
/* Appends what stands after the system text; false when a tool lacks its name or its parameters, or
 * has one of a kind that the format cannot tell. */
bool af_turn_tools_put(af_buf *b, af_turn_tools format, const json_t *tools);
/* Appends the calls of an answer; false when one has no name, no arguments, others than the format
 * can tell, or when they are more than it can. */
bool af_turn_calls_put(af_buf *b, af_turn_tools format, const json_t *calls);
/* The piece of an answer with calls: `answer` unless the template has one of its own. */
const char *af_turn_calls_piece(const char *template, const char *answer);
#endif
