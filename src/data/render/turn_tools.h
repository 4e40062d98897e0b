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
} af_turn_tools;

af_turn_tools af_turn_tools_of(const char *template);
/* Appends what stands after the system text; false when a tool lacks its name or its parameters, or
 * has one of a kind that the format cannot tell. */
bool af_turn_tools_put(af_buf *b, af_turn_tools format, const json_t *tools);
/* Appends the calls of an answer; false when one has no name or no arguments. */
bool af_turn_calls_put(af_buf *b, af_turn_tools format, const json_t *calls);
#endif
