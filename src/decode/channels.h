/* channels.h - how the marks of channels (afinar/chat.h) are written.
 *
 *     <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
 *     <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>  */
#ifndef AF_CHANNELS_H
#define AF_CHANNELS_H

#include "afinar/chat.h"
#include "base/base.h"

/* Are the answers to prompts of this template such messages? */
bool af_channels_used(const char *template_source);
/* Is this the text of a token that is read here? */
bool af_channels_mark(const char *token);
/* Where the last message of a prompt begins, after <|start|>; its end when it has none. */
const char *af_channels_last(const char *prompt, uint64_t n);
#endif
