/* call_literal.h - values as models write them in calls, to JSON text: JSON itself, Python's (True,
 * 'text', tuples), and Gemma's (names without quotes, <|"|>text<|"|>). */
#ifndef AF_CALL_LITERAL_H
#define AF_CALL_LITERAL_H

#include "grammar/call_text.h"

/* Appends the value at s[*at]; after AF_CALL_READ *at is where it ends. A word that is not a value
 * in JSON, Python or Gemma's form is a text. */
af_call_found af_call_literal(const char *s, uint64_t n, uint64_t *at, af_buf *out);
/* Appends a text as a JSON string; false when it is not UTF-8. */
bool af_call_string(af_buf *out, const char *text, uint64_t n);
#endif
