/* channels.h - answers of gpt-oss, which are messages with a channel each:
 *
 *     <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
 *     <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
 *
 * The text of "analysis" is reasoning, that of a message to functions.NAME is the arguments of a
 * call, the rest is content. Text without a head in front of it is content, too. */
#ifndef AF_CHANNELS_H
#define AF_CHANNELS_H

#include "base/buf.h"

typedef enum af_channel_kind {
    AF_CHANNEL_NONE, /* between two messages */
    AF_CHANNEL_REASONING,
    AF_CHANNEL_CONTENT,
    AF_CHANNEL_CALL,
} af_channel_kind;

typedef struct af_channels {
    af_channel_kind now;
    af_buf held; /* text that is not known yet to be a head or part of a mark */
    af_buf to;   /* a call: the name of its function */
    void (*text)(void *user, const char *text, uint64_t n);
    void (*end)(void *user); /* the message is complete; `now` and `to` are still its own */
    void *user;
} af_channels;

/* Are the answers to prompts of this template such messages? */
bool af_channels_used(const char *template_source);
/* Is this the text of a token that is read here? */
bool af_channels_mark(const char *token);
/* Where the last message of a prompt begins, after <|start|>; its end when it has none. */
const char *af_channels_last(const char *prompt, uint64_t n);
/* That message: the answer may be the rest of it. text, end and user are the caller's. */
void af_channels_begin(af_channels *c, const char *last, uint64_t n);
AF_CHECKED af_status af_channels_add(af_channels *c, const char *text, uint64_t n, af_error *err);
/* The answer is complete: a message that was cut off ends, too. */
AF_CHECKED af_status af_channels_finish(af_channels *c, af_error *err);
void af_channels_clear(af_channels *c); /* all zero is allowed */
#endif
