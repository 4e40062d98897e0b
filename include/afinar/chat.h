/* chat.h - chat templates: from messages to the exact text a model was trained on.
 *
 * A template is a Jinja program of the model's publisher and is not trusted: it runs in an
 * interpreter with bounded steps, depth, memory and output, and sees nothing but the data it is
 * given. Results equal those of transformers' apply_chat_template byte for byte. A parsed
 * template is constant: threads may share it. */
#ifndef AFINAR_CHAT_H
#define AFINAR_CHAT_H

#include "afinar/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits; exceeding one is an error that names it. */
#define AF_TEMPLATE_SOURCE_MAX ((uint64_t)4 << 20)   /* bytes of a template */
#define AF_TEMPLATE_OUTPUT_MAX ((uint64_t)256 << 20) /* bytes of a rendered text */
#define AF_TEMPLATE_MEMORY_MAX ((uint64_t)1 << 30)   /* bytes of memory of a rendering */
#define AF_TEMPLATE_STEPS_MAX  ((uint64_t)20000000)  /* nodes and items evaluated in one render */
#define AF_TEMPLATE_DEPTH_MAX  200                   /* nesting of the source                   */

/* A parsed template. */
typedef struct af_template af_template;

typedef struct af_span {
    uint64_t begin, end; /* bytes, half open */
} af_span;

typedef struct af_spans {
    af_span *item;
    uint64_t count;
} af_spans;

/* Frees the items and empties *s. */
AF_API void af_spans_clear(af_spans *s);

/* Parses a template of `len` bytes. On success *out belongs to the caller; close it with
 * af_template_close. A syntax error is AF_EFORMAT and begins with "line N: ". */
AF_API AF_CHECKED af_status af_template_parse(af_template **out, const char *source, uint64_t len,
                                              af_error *err);

/* Opens the template of a model folder (chat_template.jinja over tokenizer_config.json, as
 * transformers), a tokenizer_config.json, a .gguf file or a .jinja file. From a folder, a config or
 * a GGUF the special tokens (bos_token, eos_token, ...) come with it. AF_EIO, AF_EFORMAT (also when
 * there is no template). */
AF_API AF_CHECKED af_status af_template_open(af_template **out, const char *path, af_error *err);

/* The same with the template called `name` of a model that has several (NULL = "default"). */
AF_API AF_CHECKED af_status af_template_open_named(af_template **out, const char *path,
                                                   const char *name, af_error *err);

/* NULL is allowed. */
AF_API void af_template_close(af_template *t);

/* The source text, *len bytes (len may be NULL). Borrowed until af_template_close. */
AF_API const char *af_template_source(const af_template *t, uint64_t *len);

/* True when the template has {% generation %} blocks. */
AF_API bool af_template_marks_generation(const af_template *t);

/* True when the template's text names a variable or attribute: a template that never mentions
 * "tools" cannot show them. */
AF_API bool af_template_mentions(const af_template *t, const char *name);

/* Renders one JSON object {"messages", "tools", "documents", "add_generation_prompt",
 * "continue_final_message", "now", "extra", "raw"} (all but messages may be absent; "raw": true
 * passes only `extra`; "now" is local time as 2025-03-14T09:26:53). When t is NULL the row has its
 * own "template". *text is malloc'ed and NUL-terminated, *len its bytes. `generation`
 * (may be NULL) gets the byte spans of {% generation %} blocks; clear it with af_spans_clear.
 * AF_EFORMAT for an invalid row or a syntax error, AF_EUSAGE when the template fails or options
 * contradict each other. */
AF_API AF_CHECKED af_status af_template_render_row(const af_template *t, const char *row,
                                                   uint64_t row_len, char **text, uint64_t *len,
                                                   af_spans *generation, af_error *err);

/* The same with the result as a JSON line without newline: {"text": "..."} or, when the row fails,
 * {"error": "..."}. free() the result. AF_ENOMEM. */
AF_API AF_CHECKED af_status af_template_answer_row(const af_template *t, const char *row,
                                                   uint64_t row_len, char **json, af_error *err);

/* ---- channels ----
 *
 * Answers of gpt-oss are messages with a channel each. The text of "analysis" is reasoning, that of
 * a message to functions.NAME is the arguments of a call, the rest is content; text without a head
 * in front of it is content, too. They are read with the texts of special tokens. */

typedef enum af_channel_kind {
    AF_CHANNEL_NONE, /* between two messages */
    AF_CHANNEL_REASONING,
    AF_CHANNEL_CONTENT,
    AF_CHANNEL_CALL,
} af_channel_kind;

/* Called while text is added; strings are valid during the call. Both may be NULL. */
typedef struct af_channel_sink {
    void (*text)(void *user, af_channel_kind kind, const char *text, uint64_t n);
    /* The message is complete; to: the function of a call. */
    void (*end)(void *user, af_channel_kind kind, const char *to);
    void *user;
} af_channel_sink;

/* A reader of one answer. */
typedef struct af_channels af_channels;

/* True when answers to the template's prompts have channels. */
AF_API bool af_template_has_channels(const af_template *t);
/* `last`: the message at the end of the prompt (n bytes), which the answer may go on with; "" when
 * it is the head of the answer alone. *sink is copied. On success *out belongs to the caller; free
 * it with af_channels_free. AF_ENOMEM. */
AF_API AF_CHECKED af_status af_channels_new(af_channels **out, const char *last, uint64_t n,
                                            const af_channel_sink *sink, af_error *err);
/* Adds n bytes of the answer and calls the sink with what they complete. AF_ENOMEM. */
AF_API AF_CHECKED af_status af_channels_add(af_channels *c, const char *text, uint64_t n,
                                            af_error *err);
/* The answer is complete: a message that was cut off ends, too. */
AF_API AF_CHECKED af_status af_channels_finish(af_channels *c, af_error *err);
/* NULL is allowed. */
AF_API void af_channels_free(af_channels *c);

#ifdef __cplusplus
}
#endif
#endif
