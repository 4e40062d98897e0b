/* chat_template.h - what apply_chat_template does around a template; data as jansson values. */
#ifndef AF_CHAT_TEMPLATE_H
#define AF_CHAT_TEMPLATE_H

#include "base/base.h"

#include "afinar/chat.h"
#include "afinar/text.h"

#include <jansson.h>

/* How a template reads messages, where it does not take contents both as text and in parts, and
 * calls of tools with their arguments as an object (which transformers asks for) next to an empty
 * content: bits. */
typedef enum af_message_form {
    AF_FORM_CALL_NULL = 1,     /* the content of such a message must be None */
    AF_FORM_CALL_TEXT = 2,     /* the arguments must be JSON text */
    AF_FORM_CONTENT_TEXT = 4,  /* parts of text must be one text: lines, as in servers */
    AF_FORM_CONTENT_PARTS = 8, /* a text must be a list of one part */
} af_message_form;

typedef struct af_render_opts {
    json_t *messages;  /* array of objects; borrowed, never changed */
    json_t *tools;     /* NULL = None */
    json_t *documents; /* NULL = None */
    json_t *extra;     /* object of further variables; over the template's own special tokens */
    bool add_generation_prompt;
    bool continue_final_message;
    bool raw;        /* only `extra` is passed */
    unsigned form;   /* of af_message_form: how messages are passed; 0 = as they are */
    const char *now; /* "2025-03-14T09:26:53", or NULL = the current local time */
    uint64_t *steps; /* the template's are added, if not NULL */
} af_render_opts;

/* Renders. *text is malloc'ed and NUL-terminated. `generation` may be NULL. */
AF_CHECKED af_status af_template_render(const af_template *t, char **text, uint64_t *len,
                                        const af_render_opts *o, af_spans *generation,
                                        af_error *err);

/* The template that renders with tools, or without: a model may have one of its own for them. */
const af_template *af_template_for(const af_template *t, bool tools);

/* The form in which the template shows messages; 0 where the usual one does. */
AF_CHECKED af_status af_template_form(const af_template *t, unsigned *form, af_error *err);

/* The special tokens of a tokenizer, for a template that came without any. */
AF_CHECKED af_status af_template_set_tokens(af_template *t, const af_tokenizer *k, af_error *err);

/* Writes a template to a folder, as chat_template.jinja and over one in its tokenizer_config.json,
 * so that no reader takes another one. */
AF_CHECKED af_status af_template_put(const char *dir, const char *text, uint64_t len,
                                     af_error *err);

/* Gives a folder that has chat_template.jinja the template of `model`: as above, or, where it has
 * another one for tools, both. */
AF_CHECKED af_status af_template_put_own(const char *dir, const char *model, af_error *err);
#endif
