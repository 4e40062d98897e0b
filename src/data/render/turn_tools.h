/* turn_tools.h - tools in turn templates (turn_row.c). */
#ifndef AF_TURN_TOOLS_H
#define AF_TURN_TOOLS_H

#include "base/buf.h"

#include <jansson.h>

/* Whether the template of this name has Qwen's tool format, the one that is known here. */
bool af_turn_tools_known(const char *template);
/* Appends what stands after the system text. */
void af_turn_tools_put(af_buf *b, const json_t *tools);
/* Appends the calls of an answer; false when one has no name or no arguments. */
bool af_turn_calls_put(af_buf *b, const json_t *calls);
#endif
