/* token_bytes.h - tokens as bytes, for readers that need no more of a tokenizer's parts. */
#ifndef AF_TOKEN_BYTES_H
#define AF_TOKEN_BYTES_H

#include "afinar/text.h"
#include "base/buf.h"

/* The bytes that `id` adds inside a text, incomplete characters included; none
 * for an id without a token. Replaces what *out held. */
AF_CHECKED af_status af_tokenizer_token_bytes(const af_tokenizer *t, int32_t id, af_buf *out,
                                              af_error *err);
#endif
